/* Exercises the thread pool; run under a thread sanitizer. Arguments: threads, jobs. Prints "ok" or dies. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "pool.h"

#define MAX_ITEMS 9001 /* more than the units that a share counts */
#define USUAL_ITEMS 97

typedef struct {
  int counts[MAX_ITEMS]; /* plain: two threads on one item would be a race */
  long by_thread[64];
  int threads;
} record;

static void die(const char *what, int value) {
  printf("%s %d\n", what, value);
  exit(1);
}

static void touch(void *ctx, int item, int thread) {
  record *r = ctx;
  if (thread < 0 || thread >= r->threads) die("thread out of range", thread);
  r->counts[item]++;
  r->by_thread[thread]++;
}

static void job(er_pool *pool, record *r, int n) {
  for (int i = 0; i < n; i++) r->counts[i] = 0;
  er_parallel(pool, touch, r, n);
  for (int i = 0; i < n; i++)
    if (r->counts[i] != 1) die("item not run once", i);
}

static void nap(long nanoseconds) {
  struct timespec t = {0, nanoseconds};
  nanosleep(&t, NULL);
}

int main(int argc, char **argv) {
  int threads = argc > 1 ? atoi(argv[1]) : 4, jobs = argc > 2 ? atoi(argv[2]) : 20000;
  static record r;
  er_team *team = er_team_start(threads);
  if (!team) die("no team of", threads);
  er_pool pool = {team, threads};
  unsigned state = 1;
  for (int k = 0; k < jobs; k++) {
    state = state * 1664525u + 1013904223u;
    pool.threads = r.threads = 1 + (int)(state >> 8) % threads; /* the limit of a node */
    job(&pool, &r, (int)(state >> 16) % (k % 64 ? USUAL_ITEMS : MAX_ITEMS));
    if (k % 1000 == 0) nap(300000); /* long enough for the workers to fall asleep */
  }
  long total = 0;
  for (int i = 0; i < threads; i++) total += r.by_thread[i];
  if (jobs > 1000 && total == r.by_thread[0]) die("the workers never worked", threads);
  pool.threads = r.threads = threads;
#ifndef __SANITIZE_THREAD__
  pid_t child = fork(); /* the child has no workers: it must finish alone */
  if (child == 0) {
    job(&pool, &r, MAX_ITEMS);
    _exit(0);
  }
  int status = 1;
  waitpid(child, &status, 0);
  if (status) die("after fork", status);
#endif
  er_team_stop(team);
  for (int k = 0; k < 50; k++) { /* start and stop at once, with and without a job */
    team = er_team_start(2 + k % 3);
    er_pool small = {team, 2 + k % 3};
    r.threads = small.threads;
    if (k % 2) job(&small, &r, 5);
    er_team_stop(team);
  }
  puts("ok");
  return 0;
}
