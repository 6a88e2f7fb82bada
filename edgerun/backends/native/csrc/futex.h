/* Sleeping on a 32-bit word: a futex on Linux; elsewhere one mutex and condition for all words, which is slower. */
#ifndef EDGERUN_FUTEX_H
#define EDGERUN_FUTEX_H
#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifndef SYS_futex
#define SYS_futex SYS_futex_time64 /* 32-bit architectures that are younger than 2038's problem */
#endif
/* Returns at once when *word is no longer `value`; may return without a reason. */
static inline void er_futex_wait(_Atomic uint32_t *word, uint32_t value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}
static inline void er_futex_wake(_Atomic uint32_t *word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}
#else
#include <pthread.h>
static pthread_mutex_t er_sleep_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t er_sleep_condition = PTHREAD_COND_INITIALIZER;
static inline void er_futex_wait(_Atomic uint32_t *word, uint32_t value) {
  pthread_mutex_lock(&er_sleep_mutex);
  while (atomic_load(word) == value) pthread_cond_wait(&er_sleep_condition, &er_sleep_mutex);
  pthread_mutex_unlock(&er_sleep_mutex);
}
static inline void er_futex_wake(_Atomic uint32_t *word) {
  (void)word;
  pthread_mutex_lock(&er_sleep_mutex);
  pthread_cond_broadcast(&er_sleep_condition);
  pthread_mutex_unlock(&er_sleep_mutex);
}
#endif
#endif
