/* Fork-join with dynamic claiming.
 *
 * A job is published by raising `epoch`. Threads claim items by compare-and-swap on (epoch, next index), so a late
 * worker can never touch a newer job, and the job ends when all ITEMS are done: a worker that the system has
 * descheduled costs nothing unless it holds an item. After fork() the child still works, on its one thread. Workers
 * spin for a bounded time after each job (a wake-up costs ten times a spinning hand-over), then sleep on a futex.
 *
 * Placement: workers inherit the caller's affinity (taskset, cgroup cpusets), narrowed to the big cores among those.
 * They are not pinned one to one unless ER_PIN=1: two processes that each pin would pile up on the same cores.
 */
#define _GNU_SOURCE
#include "denormals.h"
#include "pool.h"
#include "edgerun.h"
#include "topology.h"

int er_pool_threads(const er_pool *p) { return p && p->team && p->threads > 1 ? p->threads : 1; }

static void run_serially(er_task_fn fn, void *ctx, int n) {
  for (int i = 0; i < n; i++) fn(ctx, i, 0);
}

#ifdef ER_NO_THREADS
er_team *er_team_start(int threads) { return (void)threads, NULL; }
void er_team_stop(er_team *team) { (void)team; }
int er_default_threads(void) { return 1; }
void er_parallel(er_pool *p, er_task_fn fn, void *ctx, int n) {
  (void)p;
  run_serially(fn, ctx, n);
}
#else
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include "futex.h"

#define SPIN_NANOSECONDS 50000
#define SPINS_PER_LOOK 64 /* at the clock */
#define STACK_BYTES (256 * 1024)

/* The fields are atomic because a late worker may read a slot while the next job but one is written into it; its claim
 * then fails. */
typedef struct {
  _Atomic(er_task_fn) fn;
  _Atomic(void *) ctx;
  _Atomic int n, threads;
} job;

typedef struct {
  er_team *team;
  int index;
  pthread_t thread;
} worker;

struct er_team {
  _Alignas(64) _Atomic uint32_t epoch; /* of the newest job; futex of the workers */
  _Atomic uint32_t sleepers;
  _Atomic int quit;
  _Alignas(64) _Atomic uint64_t next;  /* epoch << 32 | first unclaimed item */
  _Alignas(64) _Atomic uint32_t done;  /* finished items of the newest job; futex of the caller */
  _Atomic int caller_sleeps;
  _Alignas(64) job jobs[2];            /* by the lowest bit of the epoch */
  int threads;
  worker workers[ER_MAX_THREADS];      /* [1, threads) */
};

static inline void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
  __asm__ volatile("yield");
#else
  __asm__ volatile("" ::: "memory");
#endif
}

static uint64_t nanoseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Claims and runs items of job `epoch` until none is left. */
static void work(er_team *t, uint32_t epoch, int thread) {
  job *j = &t->jobs[epoch & 1];
  uint64_t claim = atomic_load_explicit(&t->next, memory_order_acquire);
  while ((uint32_t)(claim >> 32) == epoch) {
    er_task_fn fn = atomic_load_explicit(&j->fn, memory_order_relaxed);
    void *ctx = atomic_load_explicit(&j->ctx, memory_order_relaxed);
    int n = atomic_load_explicit(&j->n, memory_order_relaxed);
    int item = (int)(uint32_t)claim;
    if (item >= n || thread >= atomic_load_explicit(&j->threads, memory_order_relaxed)) return;
    /* Success means that job `epoch` was not finished, so the slot had not been reused when it was read. */
    if (!atomic_compare_exchange_weak_explicit(&t->next, &claim, claim + 1, memory_order_acq_rel, memory_order_acquire))
      continue;
    fn(ctx, item, thread);
    atomic_fetch_add(&t->done, 1);
    if (atomic_load(&t->caller_sleeps)) er_futex_wake(&t->done);
    claim = atomic_load_explicit(&t->next, memory_order_acquire);
  }
}

/* Waits until the epoch differs from `seen`: spinning first, then asleep. */
static uint32_t await_job(er_team *t, uint32_t seen) {
  uint64_t until = 0;
  for (int spins = 1;; spins++) {
    uint32_t epoch = atomic_load_explicit(&t->epoch, memory_order_acquire);
    if (epoch != seen) return epoch;
    relax();
    if (spins % SPINS_PER_LOOK) continue;
    uint64_t now = nanoseconds();
    if (!until) until = now + SPIN_NANOSECONDS;
    if (now < until) continue;
    atomic_fetch_add(&t->sleepers, 1);
    while (atomic_load(&t->epoch) == seen) er_futex_wait(&t->epoch, seen);
    atomic_fetch_sub(&t->sleepers, 1);
  }
}

static void *worker_main(void *argument) {
  worker *w = argument;
  er_team *t = w->team;
  er_place_worker(w->index);
  er_flush_denormals();
  for (uint32_t seen = 0;;) {
    seen = await_job(t, seen);
    if (atomic_load_explicit(&t->quit, memory_order_relaxed)) return NULL;
    work(t, seen, w->index);
  }
}

/* The caller has no items left; others still hold some. */
static void await_items(er_team *t, uint32_t n) {
  uint64_t until = 0;
  for (int spins = 1;; spins++) {
    uint32_t done = atomic_load_explicit(&t->done, memory_order_acquire);
    if (done == n) return;
    relax();
    if (spins % SPINS_PER_LOOK) continue;
    uint64_t now = nanoseconds();
    if (!until) until = now + SPIN_NANOSECONDS;
    if (now < until) continue;
    atomic_store(&t->caller_sleeps, 1);
    while ((done = atomic_load(&t->done)) != n) er_futex_wait(&t->done, done);
    atomic_store(&t->caller_sleeps, 0);
    return;
  }
}

void er_parallel(er_pool *p, er_task_fn fn, void *ctx, int n) {
  if (er_pool_threads(p) == 1 || n <= 1) {
    run_serially(fn, ctx, n);
    return;
  }
  er_team *t = p->team;
  uint32_t epoch = atomic_load_explicit(&t->epoch, memory_order_relaxed) + 1;
  job *j = &t->jobs[epoch & 1];
  atomic_store_explicit(&j->fn, fn, memory_order_relaxed);
  atomic_store_explicit(&j->ctx, ctx, memory_order_relaxed);
  atomic_store_explicit(&j->n, n, memory_order_relaxed);
  atomic_store_explicit(&j->threads, p->threads, memory_order_relaxed);
  atomic_store_explicit(&t->done, 0, memory_order_relaxed);
  atomic_store_explicit(&t->next, (uint64_t)epoch << 32, memory_order_release);
  atomic_store(&t->epoch, epoch);
  if (atomic_load(&t->sleepers)) er_futex_wake(&t->epoch);
  work(t, epoch, 0);
  await_items(t, (uint32_t)n);
}

er_team *er_team_start(int threads) {
  if (threads < 2 || threads > ER_MAX_THREADS) return NULL;
  er_team *t = aligned_alloc(64, (sizeof *t + 63) / 64 * 64);
  if (!t) return NULL;
  *t = (er_team){.threads = 1};
  pthread_attr_t attributes;
  sigset_t all, before;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  sigfillset(&all); /* signals are for the program's own threads */
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (; t->threads < threads; t->threads++) {
    worker *w = &t->workers[t->threads];
    *w = (worker){.team = t, .index = t->threads};
    if (pthread_create(&w->thread, &attributes, worker_main, w)) break;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  if (t->threads == threads) return t;
  er_team_stop(t);
  return NULL;
}

void er_team_stop(er_team *t) {
  if (!t) return;
  atomic_store(&t->quit, 1);
  atomic_fetch_add(&t->epoch, 1);
  er_futex_wake(&t->epoch);
  for (int i = 1; i < t->threads; i++) pthread_join(t->workers[i].thread, NULL);
  free(t);
}

int er_default_threads(void) {
  int n = er_big_core_count();
  return n < 1 ? 1 : n > ER_MAX_THREADS ? ER_MAX_THREADS : n;
}
#endif
