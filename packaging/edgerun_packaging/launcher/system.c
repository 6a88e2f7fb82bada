/* Time, small files of /proc and /sys, and what machine this is. Either folder may be absent on a board. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include "launcher.h"
#include "pack_format.h"

double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

size_t read_file(const char *path, char *to, size_t size) {
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

int online_cores(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? (int)n : 1;
}

/* The value of the first line `key : value` of /proc/cpuinfo. */
static void read_cpuinfo(const char *key, char *to, size_t size) {
  static char text[4096];
  read_file("/proc/cpuinfo", text, sizeof text);
  const char *at = strstr(text, key);
  at = at ? strchr(at, ':') : NULL;
  if (at) at += 1 + (at[1] == ' ');
  snprintf(to, size, "%.*s", at ? (int)strcspn(at, "\n") : 0, at ? at : "");
}

/* What this machine calls itself: the board's name in the device tree, else the CPU's. */
static void read_machine_name(char *to, size_t size) {
  read_text("/proc/device-tree/model", to, size);
  if (!*to) read_text("/sys/firmware/devicetree/base/model", to, size);
  if (!*to) read_cpuinfo("model name", to, size);
  if (!*to) read_cpuinfo("Model", to, size);
}

static void json_text_or_null(const char *key, const char *text) {
  out("\"%s\": ", key);
  if (*text) out_json_text(text, strlen(text));
  else out("null");
}

void print_machine_json(int cores) {
  struct utsname names;
  char text[128];
  read_machine_name(text, sizeof text);
  out("{");
  json_text_or_null("name", text);
  out(", ");
  json_text_or_null("arch", OWN_ARCH_NAME);
  out(", \"cores\": %d, ", cores);
  read_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", text, sizeof text);
  json_text_or_null("governor", text);
  out(", ");
  json_text_or_null("kernel", uname(&names) ? "" : names.release);
  out("}");
}
