/* Which cores there are, and where threads go. */
#ifndef EDGERUN_TOPOLOGY_H
#define EDGERUN_TOPOLOGY_H
#include <stdint.h>

typedef struct { uint64_t bits[16]; } er_cpus; /* bit n of word n / 64: core n is in the set */

int er_big_core_count(void);       /* big cores this process may use, siblings counted once, within its CPU quota */
void er_find_cpus(er_cpus *cpus);  /* the big cores this thread may use; empty when that is not known */
void er_place_worker(const er_cpus *cpus, int index); /* called by worker `index` itself */
int er_this_cpu(void);             /* -1: not known */
int er_thread_id(void);            /* of the calling thread, for er_keep_off; 0: not known */
/* Lets a worker run on all of `cpus` but `cpu`; does nothing when none is left or workers are pinned. */
void er_keep_off(const er_cpus *cpus, int thread_id, int cpu);
#endif
