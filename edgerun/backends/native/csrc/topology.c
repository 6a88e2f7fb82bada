/* Big cores are those with at least 60 % of the largest capacity (Arm: cpu_capacity; elsewhere the highest clock).
 * Where /sys does not tell, all cores are alike. */
#define _GNU_SOURCE
#include "topology.h"
#include "edgerun.h"
#if defined(__linux__) && !defined(ER_NO_THREADS)
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BIG_PERCENT 60
#define CPU_PATH "/sys/devices/system/cpu/cpu%d/"

/* Reads a small file; 0 when it cannot be read. */
static int read_line(const char *path, char *text, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t n = read(fd, text, size - 1);
  close(fd);
  text[n > 0 ? n : 0] = 0;
  return n > 0;
}

static long cpu_number(const char *pattern, int cpu) {
  char path[96], text[64];
  snprintf(path, sizeof path, pattern, cpu);
  return read_line(path, text, sizeof text) ? strtol(text, NULL, 10) : -1;
}

static long capacity_of(int cpu) {
  long capacity = cpu_number(CPU_PATH "cpu_capacity", cpu);
  return capacity > 0 ? capacity : cpu_number(CPU_PATH "cpufreq/cpuinfo_max_freq", cpu);
}

/* The big ones among `allowed`. */
static cpu_set_t big_cores(const cpu_set_t *allowed) {
  long capacity[CPU_SETSIZE], largest = 0;
  cpu_set_t big;
  CPU_ZERO(&big);
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, allowed)) continue;
    capacity[cpu] = capacity_of(cpu);
    if (capacity[cpu] > largest) largest = capacity[cpu];
  }
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, allowed) && (capacity[cpu] <= 0 || capacity[cpu] * 100 >= largest * BIG_PERCENT))
      CPU_SET(cpu, &big);
  return big;
}

/* Hardware threads of one core count once: they share its vector units. */
static int physical_cores(const cpu_set_t *set) {
  int n = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, set)) continue;
    long first = cpu_number(CPU_PATH "topology/thread_siblings_list", cpu);
    n += first < 0 || first == cpu || first >= CPU_SETSIZE || !CPU_ISSET((int)first, set);
  }
  return n;
}

/* Whole CPUs that the control group grants (version 2), rounded up; a large number without a limit. */
static int quota(void) {
  char text[64], *end;
  if (!read_line("/sys/fs/cgroup/cpu.max", text, sizeof text)) return CPU_SETSIZE;
  long long granted = strtoll(text, &end, 10), period = strtoll(end, NULL, 10);
  if (end == text || granted <= 0 || period <= 0) return CPU_SETSIZE; /* "max 100000" */
  long long cpus = (granted + period - 1) / period;
  return cpus < CPU_SETSIZE ? (int)cpus : CPU_SETSIZE;
}

static int allowed_cores(cpu_set_t *set) { return sched_getaffinity(0, sizeof *set, set) == 0 && CPU_COUNT(set) > 0; }

int er_big_core_count(void) {
  cpu_set_t allowed;
  if (!allowed_cores(&allowed)) return 1;
  cpu_set_t big = big_cores(&allowed);
  int cores = physical_cores(&big), limit = quota();
  return cores < limit ? cores : limit;
}

void er_prefer_big_cores(void) {
  cpu_set_t allowed;
  if (!allowed_cores(&allowed)) return;
  cpu_set_t big = big_cores(&allowed);
  if (CPU_COUNT(&big) < CPU_COUNT(&allowed)) sched_setaffinity(0, sizeof big, &big);
}

_Static_assert(sizeof(er_cpus) == sizeof(cpu_set_t), "er_cpus is a cpu_set_t");
static cpu_set_t as_set(const er_cpus *cpus) {
  cpu_set_t set;
  memcpy(&set, cpus, sizeof set);
  return set;
}

void er_find_cpus(er_cpus *cpus) {
  cpu_set_t allowed, big;
  CPU_ZERO(&big);
  if (allowed_cores(&allowed)) big = big_cores(&allowed);
  memcpy(cpus, &big, sizeof big);
}

/* ER_PIN=1: worker i on the i-th big core, for boards that run nothing else. */
static int pinned(void) {
  const char *wanted = getenv("ER_PIN");
  return wanted && !strcmp(wanted, "1");
}

void er_place_worker(const er_cpus *cpus, int index) {
  cpu_set_t big = as_set(cpus), one;
  int count = CPU_COUNT(&big);
  if (count == 0) return;
  if (!pinned()) {
    sched_setaffinity(0, sizeof big, &big);
    return;
  }
  index %= count;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, &big) || index-- > 0) continue;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

int er_this_cpu(void) { return sched_getcpu(); }
int er_thread_id(void) { return (int)syscall(SYS_gettid); }

void er_keep_off(const er_cpus *cpus, int thread_id, int cpu) {
  cpu_set_t rest = as_set(cpus);
  if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_CLR(cpu, &rest);
  if (CPU_COUNT(&rest) && !pinned()) sched_setaffinity(thread_id, sizeof rest, &rest);
}
#else
int er_big_core_count(void) { return 1; }
void er_prefer_big_cores(void) {}
void er_find_cpus(er_cpus *cpus) { *cpus = (er_cpus){{0}}; }
void er_place_worker(const er_cpus *cpus, int index) { (void)cpus, (void)index; }
int er_this_cpu(void) { return -1; }
int er_thread_id(void) { return 0; }
void er_keep_off(const er_cpus *cpus, int thread_id, int cpu) { (void)cpus, (void)thread_id, (void)cpu; }
#endif
