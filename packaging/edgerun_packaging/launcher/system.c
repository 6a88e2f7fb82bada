/* What /proc and /sys tell. Both may be absent on a board; then the values are -1 and the reports say so. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "launcher.h"

double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static size_t read_file(const char *path, char *to, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? 0 : read(fd, to, size - 1);
  if (fd >= 0) close(fd);
  if (n < 0) n = 0;
  to[n] = 0;
  return (size_t)n;
}

void read_text(const char *path, char *to, size_t size) {
  read_file(path, to, size);
  to[strcspn(to, "\n")] = 0;
}

static int64_t field_kib(const char *status, const char *key) {
  const char *at = strstr(status, key);
  return at ? strtoll(at + strlen(key), NULL, 10) * 1024 : -1;
}

memory_use read_memory(void) {
  char status[4096];
  read_file("/proc/self/status", status, sizeof status);
  return (memory_use){field_kib(status, "VmHWM:"), field_kib(status, "VmRSS:"), field_kib(status, "RssAnon:"),
                      field_kib(status, "RssFile:")};
}

int online_cores(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? (int)n : 1;
}

/* The fastest core's clock, the hottest zone, and the Raspberry Pi firmware's throttle word. */
clock_state read_clock(void) {
  clock_state s = {-1, -1, -1};
  char path[96], text[64];
  for (int cpu = 0; cpu < 16; cpu++) {
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq", cpu);
    read_text(path, text, sizeof text);
    if (*text && atof(text) / 1000 > s.mhz) s.mhz = atof(text) / 1000;
  }
  for (int zone = 0; zone < 16; zone++) {
    snprintf(path, sizeof path, "/sys/class/thermal/thermal_zone%d/temp", zone);
    read_text(path, text, sizeof text);
    if (*text && atof(text) / 1000 > s.celsius) s.celsius = atof(text) / 1000;
  }
  read_text("/sys/devices/platform/soc/soc:firmware/get_throttled", text, sizeof text);
  if (*text) s.throttled = (int)strtol(text, NULL, 16);
  return s;
}
