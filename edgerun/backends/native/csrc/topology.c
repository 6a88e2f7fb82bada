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

/* ER_PIN=1: worker i on the i-th big core, for boards that run nothing else. */
static void pin(int index) {
  cpu_set_t allowed, one;
  if (!allowed_cores(&allowed)) return;
  cpu_set_t big = big_cores(&allowed);
  index %= CPU_COUNT(&big);
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, &big) || index-- > 0) continue;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

static _Thread_local cpu_set_t usable; /* by this worker; empty when it is not to move */

void er_place_worker(int index) {
  const char *wanted = getenv("ER_PIN");
  CPU_ZERO(&usable);
  if (wanted && !strcmp(wanted, "1")) {
    pin(index);
    return;
  }
  er_prefer_big_cores();
  if (!allowed_cores(&usable)) CPU_ZERO(&usable);
}

int er_this_cpu(void) { return sched_getcpu(); }

void er_leave_cpus(const int *taken, int n) {
  cpu_set_t rest = usable;
  for (int i = 0; i < n; i++)
    if (taken[i] >= 0 && taken[i] < CPU_SETSIZE) CPU_CLR(taken[i], &rest);
  if (CPU_COUNT(&rest)) sched_setaffinity(0, sizeof rest, &rest);
}
#else
int er_big_core_count(void) { return 1; }
void er_prefer_big_cores(void) {}
void er_place_worker(int index) { (void)index; }
int er_this_cpu(void) { return -1; }
void er_leave_cpus(const int *taken, int n) { (void)taken, (void)n; }
#endif
