/* What this CPU can do, and which of the compiled ISA levels to use. */
#ifndef EDGERUN_CPU_H
#define EDGERUN_CPU_H
#include "kernel.h"

typedef struct {
  const er_isa_level *level;
  int parent; /* index of the level it extends: where `run` is NULL, that one's function is used; -1 for the first */
} er_level;

int er_level_count(void);
const er_level *er_level_at(int index); /* weakest first */
int er_level_usable(int index);         /* whether this CPU and its operating system can run it */
/* The strongest usable level, or the one that ER_ISA in the environment names; -1 when that one is not usable. */
int er_level_best(void);
int er_level_find(const char *name);    /* -1 when there is none */
er_run_fn er_level_run(int index, int kernel);
const char *er_cpu_missing(void);       /* NULL, or what the weakest level needs and this CPU lacks */
#endif
