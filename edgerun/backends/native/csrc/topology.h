/* Which cores there are, and where threads go. */
#ifndef EDGERUN_TOPOLOGY_H
#define EDGERUN_TOPOLOGY_H
int er_big_core_count(void);       /* big cores this process may use, siblings counted once, within its CPU quota */
void er_place_worker(int index);   /* called by worker `index` itself */
int er_this_cpu(void);             /* -1: not known */
/* Moves the calling worker to a core where er_place_worker lets it be, other than the `n` taken ones; stays where it is
 * when there is none. */
void er_leave_cpus(const int *taken, int n);
#endif
