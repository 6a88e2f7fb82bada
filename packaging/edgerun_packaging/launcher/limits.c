/* Whether the predicted memory fits before any of it is used: better a message now than a kill in the middle.
 *
 * Limits: the memory cgroups this process is in (version 1 and 2, every level up to the root), RLIMIT_AS and
 * RLIMIT_DATA, and what the kernel says is available (with free swap). */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include "launcher.h"

#define NO_LIMIT (1ull << 60) /* cgroup v1 writes about 2^63 when there is none */

typedef struct {
  uint64_t bytes; /* what this process may use in total */
  char why[320];
} room;

__attribute__((format(printf, 3, 4))) static void narrow(room *r, uint64_t bytes, const char *format, ...) {
  if (bytes >= r->bytes) return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(r->why, sizeof r->why, format, arguments);
  va_end(arguments);
  r->bytes = bytes;
}

static int read_number(const char *folder, const char *file, uint64_t *value) {
  char path[640], text[32], *end;
  snprintf(path, sizeof path, "%s/%s", folder, file);
  read_text(path, text, sizeof text);
  *value = strtoull(text, &end, 10);
  return end != text; /* "max" is no number */
}

static uint64_t field(const char *text, const char *key) {
  size_t n = strlen(key);
  for (const char *line = text; line; line = strchr(line, '\n'), line += line != NULL)
    if (!strncmp(line, key, n) && line[n] == ' ') return strtoull(line + n, NULL, 10);
  return 0;
}

/* Page cache that the kernel gives back when it needs the memory. */
static uint64_t reclaimable(const char *folder, int version) {
  static char stat[8192];
  char path[640];
  snprintf(path, sizeof path, "%s/memory.stat", folder);
  read_file(path, stat, sizeof stat);
  if (version == 2) return field(stat, "active_file") + field(stat, "inactive_file");
  return field(stat, "total_active_file") + field(stat, "total_inactive_file");
}

/* One level of a hierarchy: its limit less what others in it hold for good. */
static void look_at_cgroup(room *r, const char *folder, int version, uint64_t own) {
  uint64_t limit, used = 0;
  if (!read_number(folder, version == 2 ? "memory.max" : "memory.limit_in_bytes", &limit) || limit >= NO_LIMIT) return;
  read_number(folder, version == 2 ? "memory.current" : "memory.usage_in_bytes", &used);
  uint64_t held = reclaimable(folder, version) + own;
  uint64_t others = used > held ? used - held : 0;
  narrow(r, limit > others ? limit - others : 0, "the memory cgroup %s allows %.2f MB, of which others use %.2f MB",
         folder, (double)limit / 1e6, (double)others / 1e6);
}

static void climb(room *r, const char *root, const char *path, int version, uint64_t own) {
  char folder[512];
  if (snprintf(folder, sizeof folder, "%s%s", root, path) >= (int)sizeof folder) return;
  size_t least = strlen(root);
  for (;;) {
    look_at_cgroup(r, folder, version, own);
    char *slash = strrchr(folder, '/');
    if (!slash || (size_t)(slash - folder) < least) return;
    *slash = 0;
  }
}

/* Lines of /proc/self/cgroup: NUMBER:CONTROLLERS:PATH. Version 2 has number 0 and no controllers. */
static void look_at_cgroups(room *r, uint64_t own) {
  static char text[4096];
  read_file("/proc/self/cgroup", text, sizeof text);
  for (char *line = text, *next; *line; line = next) {
    next = line + strcspn(line, "\n");
    if (*next) *next++ = 0;
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path) continue;
    *path++ = 0;
    if (!strcmp(path, "/")) path = "";
    if (!strncmp(line, "0:", 2) && !controllers[1]) {
      climb(r, "/sys/fs/cgroup", path, 2, own);
      climb(r, "/sys/fs/cgroup/unified", path, 2, own);
    } else if (strstr(controllers + 1, "memory")) {
      climb(r, "/sys/fs/cgroup/memory", path, 1, own);
    }
  }
}

static void look_at_system(room *r) {
  static char text[4096];
  read_file("/proc/meminfo", text, sizeof text);
  uint64_t available = field(text, "MemAvailable:") << 10, swap = field(text, "SwapFree:") << 10;
  if (available)
    narrow(r, available + swap, "the system has %.2f MB available and %.2f MB of free swap", (double)available / 1e6,
           (double)swap / 1e6);
}

/* Address space is taken whole at load, touched or not. */
static void check_address_space(const packed *p, int threads) {
  static const struct {
    int resource;
    const char *name;
    int with_files;
  } table[] = {{RLIMIT_AS, "RLIMIT_AS (ulimit -v)", 1}, {RLIMIT_DATA, "RLIMIT_DATA (ulimit -d)", 0}};
  uint64_t taken = (uint64_t)(_end - __executable_start) + p->header->arena_bytes +
                   (uint64_t)threads * (p->header->thread_scratch_bytes + (256 << 10));
  for (size_t i = 0; i < 2; i++) {
    struct rlimit limit;
    uint64_t need = taken + (table[i].with_files ? p->plan_bytes : 0);
    if (getrlimit(table[i].resource, &limit) || limit.rlim_cur == RLIM_INFINITY || need <= limit.rlim_cur) continue;
    fail(EXIT_HARDWARE,
         "the model needs %.2f MB of address space with %d thread(s), and %s allows %.2f MB; raise it, use fewer "
         "--threads, or pack with smaller shapes",
         (double)need / 1e6, threads, table[i].name, (double)limit.rlim_cur / 1e6);
  }
}

void check_memory_limits(const packed *p, int threads) {
  double predicted = ram_predicted(p, threads);
  room r = {UINT64_MAX, ""};
  check_address_space(p, threads);
  if (predicted < 0) return;
  memory_use now = read_memory();
  look_at_cgroups(&r, now.anonymous > 0 ? (uint64_t)now.anonymous : 0);
  look_at_system(&r);
  if (predicted <= (double)r.bytes) return;
  fail(EXIT_HARDWARE,
       "the model needs %.2f MB of memory with %d thread(s), as predicted at pack time, but %s; raise the limit, use "
       "fewer --threads, pack with smaller shapes, or start anyway with --no-memory-check",
       predicted / 1e6, threads, r.why);
}
