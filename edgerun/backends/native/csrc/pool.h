/* The thread pool: a fork-join team in which the caller takes part. */
#ifndef EDGERUN_POOL_H
#define EDGERUN_POOL_H
#include "kernel.h"

typedef struct er_team er_team;

/* What kernels see: a team and how many of its threads may work. */
struct er_pool {
  er_team *team; /* NULL: one thread */
  int threads;
};

/* Starts `threads` - 1 workers, threads in [2, ER_MAX_THREADS]. NULL when the system refuses. */
er_team *er_team_start(int threads);
void er_team_stop(er_team *team); /* joins them; NULL is fine */
int er_default_threads(void);     /* big cores that this process may use, at least 1 */
#endif
