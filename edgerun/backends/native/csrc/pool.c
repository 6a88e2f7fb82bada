/* Fork-join: every thread starts with a share of the items and helps the others when it is through.
 *
 * A job is published by raising `epoch`. A share is one word, (epoch, first, end); its owner takes items from the front,
 * so that it walks through memory in order and has the same part of the data in every layer; others take them from the
 * end. Taking is a compare-and-swap, so a late worker can never touch a newer job, and the job ends when all ITEMS are
 * done: a worker that the system has descheduled costs nothing unless it holds an item. After fork() the child still
 * works, on its one thread.
 *
 * Workers spin after a job (a wake-up costs ten times a spinning hand-over and more), then sleep on a futex. They spin
 * no longer than they have worked since they last slept, within limits: a model that runs again and again finds them
 * awake, and a short one now and then costs little.
 *
 * Placement: workers inherit the caller's affinity (taskset, cgroup cpusets), narrowed to the big cores among those.
 * They are not pinned one to one unless ER_PIN=1: two processes that each pin would pile up on the same cores. But the
 * system likes to wake a thread on the core of its waker, where it waits for the caller to stop: so workers are kept off
 * the core on which the caller runs, and told anew when the caller moves.
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
#include <unistd.h>
#include "futex.h"

#define SPIN_LEAST 50000    /* nanoseconds */
#define SPIN_MOST 2000000
#define CALLER_SPIN 200000
#define SPINS_PER_LOOK 64   /* at the clock */
#define STACK_BYTES (256 * 1024)
#define UNITS 4096          /* a share counts units of equally many items, at most so many in all */

/* The fields are atomic because a late worker may read a slot while the next job but one is written into it; its claim
 * then fails. */
typedef struct {
  _Atomic(er_task_fn) fn;
  _Atomic(void *) ctx;
  _Atomic int n, per, threads; /* items, items of a unit, threads that take part */
} job;

typedef struct {
  _Alignas(64) _Atomic uint64_t units; /* epoch << 32 | first << 16 | end */
} share;

typedef struct {
  er_team *team;
  int index;
  pthread_t thread;
  _Atomic int id; /* of the thread; 0 until it runs */
} worker;

struct er_team {
  _Alignas(64) _Atomic uint32_t epoch; /* of the newest job; futex of the workers */
  _Atomic uint32_t sleepers;
  _Atomic int quit;
  _Atomic int caller_cpu;              /* that workers keep off; -1: not known */
  _Alignas(64) _Atomic uint32_t done;  /* finished units of the newest job; futex of the caller */
  _Atomic int caller_sleeps;
  _Alignas(64) job jobs[2];            /* by the lowest bit of the epoch */
  share shares[ER_MAX_THREADS];
  er_cpus cpus;                        /* on which workers may run */
  int threads, process;
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

/* Takes a unit of job `epoch` from a share: its first or its last. Returns -1 when there is none. */
static int take(share *s, uint32_t epoch, int from_the_end) {
  uint64_t seen = atomic_load_explicit(&s->units, memory_order_acquire);
  for (;;) {
    int first = (int)(seen >> 16 & 0xffff), end = (int)(seen & 0xffff);
    if ((uint32_t)(seen >> 32) != epoch || first >= end) return -1;
    uint64_t left = from_the_end ? seen - 1 : seen + 0x10000;
    if (atomic_compare_exchange_weak_explicit(&s->units, &seen, left, memory_order_acq_rel, memory_order_acquire))
      return from_the_end ? end - 1 : first;
  }
}

/* Runs units of job `epoch` until none is left: those of the own share, then those of others. */
static void work(er_team *t, uint32_t epoch, int thread) {
  job *j = &t->jobs[epoch & 1];
  uint32_t finished = 0;
  for (int victim = thread, tried = 0;;) {
    er_task_fn fn = atomic_load_explicit(&j->fn, memory_order_relaxed);
    void *ctx = atomic_load_explicit(&j->ctx, memory_order_relaxed);
    int n = atomic_load_explicit(&j->n, memory_order_relaxed), per = atomic_load_explicit(&j->per, memory_order_relaxed);
    int threads = atomic_load_explicit(&j->threads, memory_order_relaxed);
    if (thread >= threads || tried == threads) break;
    /* Success means that job `epoch` was not finished, so the slot had not been reused when it was read. */
    int unit = take(&t->shares[victim], epoch, victim != thread);
    if (unit < 0) {
      victim = victim + 1 < threads ? victim + 1 : 0;
      tried++;
      continue;
    }
    int end = unit * per + per < n ? unit * per + per : n;
    for (int item = unit * per; item < end; item++) fn(ctx, item, thread);
    finished++;
  }
  if (!finished) return;
  atomic_fetch_add(&t->done, finished);
  if (atomic_load(&t->caller_sleeps)) er_futex_wake(&t->done);
}

/* How long a worker has been awake, and how much of that it waited; nanoseconds. */
typedef struct { uint64_t since, waited; } wakefulness;

/* Waits until the epoch differs from `seen`: spinning first, then asleep. */
static uint32_t await_job(er_team *t, uint32_t seen, wakefulness *w) {
  uint64_t start = 0, now = 0, most = 0;
  for (int spins = 1;; spins++) {
    uint32_t epoch = atomic_load_explicit(&t->epoch, memory_order_acquire);
    if (epoch != seen) {
      w->waited += now - start;
      return epoch;
    }
    relax();
    if (spins % SPINS_PER_LOOK) continue;
    now = nanoseconds();
    if (!start) {
      start = now;
      most = now - w->since > w->waited ? now - w->since - w->waited : 0; /* as long as it worked */
      most = most < SPIN_LEAST ? SPIN_LEAST : most > SPIN_MOST ? SPIN_MOST : most;
    }
    if (now - start < most) continue;
    atomic_fetch_add(&t->sleepers, 1);
    while (atomic_load(&t->epoch) == seen) er_futex_wait(&t->epoch, seen);
    atomic_fetch_sub(&t->sleepers, 1);
    *w = (wakefulness){nanoseconds(), 0};
    start = now = 0;
  }
}

static void *worker_main(void *argument) {
  worker *w = argument;
  er_team *t = w->team;
  er_place_worker(&t->cpus, w->index);
  atomic_store(&w->id, er_thread_id());
  int caller_cpu = atomic_load(&t->caller_cpu);
  if (caller_cpu >= 0) er_keep_off(&t->cpus, 0, caller_cpu);
  er_flush_denormals();
  wakefulness awake = {nanoseconds(), 0};
  for (uint32_t seen = 0;;) {
    seen = await_job(t, seen, &awake);
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
    if (!until) until = now + CALLER_SPIN;
    if (now < until) continue;
    atomic_store(&t->caller_sleeps, 1);
    while ((done = atomic_load(&t->done)) != n) er_futex_wait(&t->done, done);
    atomic_store(&t->caller_sleeps, 0);
    return;
  }
}

/* Keeps the workers off the caller's core. A child after fork() has none. */
static void make_room(er_team *t) {
  int here = er_this_cpu();
  if (here < 0 || here == atomic_load_explicit(&t->caller_cpu, memory_order_relaxed) || getpid() != t->process) return;
  atomic_store(&t->caller_cpu, here);
  for (int i = 1; i < t->threads; i++) {
    int id = atomic_load(&t->workers[i].id);
    if (id) er_keep_off(&t->cpus, id, here);
  }
}

#define JOBS_PER_LOOK 16 /* at the core on which the caller runs */

void er_parallel(er_pool *p, er_task_fn fn, void *ctx, int n) {
  if (er_pool_threads(p) == 1 || n <= 1) {
    run_serially(fn, ctx, n);
    return;
  }
  er_team *t = p->team;
  uint32_t epoch = atomic_load_explicit(&t->epoch, memory_order_relaxed) + 1;
  job *j = &t->jobs[epoch & 1];
  int per = (n - 1) / UNITS + 1, units = (n - 1) / per + 1, threads = p->threads;
  atomic_store_explicit(&j->fn, fn, memory_order_relaxed);
  atomic_store_explicit(&j->ctx, ctx, memory_order_relaxed);
  atomic_store_explicit(&j->n, n, memory_order_relaxed);
  atomic_store_explicit(&j->per, per, memory_order_relaxed);
  atomic_store_explicit(&j->threads, threads, memory_order_relaxed);
  atomic_store_explicit(&t->done, 0, memory_order_relaxed);
  for (int i = 0; i < threads; i++) {
    uint64_t first = (uint64_t)(units * i / threads), end = (uint64_t)(units * (i + 1) / threads);
    atomic_store_explicit(&t->shares[i].units, (uint64_t)epoch << 32 | first << 16 | end, memory_order_release);
  }
  int asleep = atomic_load_explicit(&t->sleepers, memory_order_relaxed) != 0;
  if (asleep || epoch % JOBS_PER_LOOK == 0) make_room(t);
  atomic_store(&t->epoch, epoch);
  if (asleep || atomic_load(&t->sleepers)) er_futex_wake(&t->epoch);
  work(t, epoch, 0);
  await_items(t, (uint32_t)units);
}

er_team *er_team_start(int threads) {
  if (threads < 2 || threads > ER_MAX_THREADS) return NULL;
  er_team *t = aligned_alloc(64, (sizeof *t + 63) / 64 * 64);
  if (!t) return NULL;
  *t = (er_team){.threads = 1, .caller_cpu = -1, .process = getpid()};
  er_find_cpus(&t->cpus);
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
