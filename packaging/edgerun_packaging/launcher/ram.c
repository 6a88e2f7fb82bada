/* Memory of this process beside the prediction made at pack time, in total and by part. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "launcher.h"

/* Parts that /proc can tell apart, and the parts of the prediction that belong to each. */
enum { PROGRAM, PLAN, WORK, PROCESS, GROUPS };
static const char *const group_name[GROUPS] = {"program and its buffers", "weights and plan tables",
                                               "arena, scratch and thread stacks", "stack and kernel pages"};
static const struct {
  const char *part;
  int group;
} groups[] = {{"text and constants", PROGRAM},
              {"data", PROGRAM},
              {"input and output buffers", PROGRAM},
              {"plan tables", PLAN},
              {"weights", PLAN},
              {"runtime tables", WORK},
              {"arena", WORK},
              {"thread scratch", WORK},
              {"thread stacks", WORK},
              {"process and libc", PROCESS}};
#define THREAD_STACK_BYTES (16 << 10) /* as edgerun_packaging/footprint.py predicts for each additional thread */

static int64_t field_kib(const char *text, const char *key) {
  const char *at = strstr(text, key);
  return at ? strtoll(at + strlen(key), NULL, 10) * 1024 : -1;
}

memory_use read_memory(void) {
  char text[4096];
  read_file("/proc/self/status", text, sizeof text);
  memory_use use = {field_kib(text, "VmHWM:"), field_kib(text, "VmRSS:"), field_kib(text, "RssAnon:"),
                    field_kib(text, "RssFile:")};
  read_file("/proc/self/smaps_rollup", text, sizeof text);
  int64_t exact = field_kib(text, "\nRss:"); /* VmRSS and VmHWM may lag behind by some pages on each core */
  if (exact >= 0) use.rss = exact;
  if (use.rss > use.rss_peak) use.rss_peak = use.rss;
  return use;
}

static int group_of(const char *part, size_t length) {
  for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
    if (strlen(groups[i].part) == length && !memcmp(groups[i].part, part, length)) return groups[i].group;
  return PROCESS;
}

/* Predicted bytes by group for `threads` threads. Returns the sum, -1 when the manifest has no prediction. */
static double predicted_groups(const packed *p, int threads, double *group) {
  json_value m = manifest(p);
  char path[32];
  double assumed = json_number(json_find(m, "threads"), 1), total = 0;
  for (int i = 0; i < GROUPS; i++) group[i] = 0;
  if (!json_find(m, "ram_bytes").text) return -1;
  for (int i = 0;; i++) {
    snprintf(path, sizeof path, "ram.%d.bytes", i);
    double bytes = json_number(json_find(m, path), -1);
    if (bytes < 0) break;
    snprintf(path, sizeof path, "ram.%d.part", i);
    json_value name = json_unquoted(json_find(m, path));
    group[group_of(name.text ? name.text : "", name.length)] += bytes;
  }
  group[WORK] += (threads - assumed) * (double)(p->header->thread_scratch_bytes + THREAD_STACK_BYTES);
  for (int i = 0; i < GROUPS; i++) total += group[i];
  return total;
}

double ram_predicted(const packed *p, int threads) {
  double group[GROUPS];
  return predicted_groups(p, threads, group);
}

typedef struct {
  const packed *p;
  int group;
  int64_t *bytes;
} mapping;

/* A line of /proc/self/smaps: either the head of a mapping, or a field of it. */
static void take_line(mapping *m, const char *line) {
  char *end;
  if (!strncmp(line, "Rss:", 4)) {
    m->bytes[m->group] += strtoll(line + 4, NULL, 10) * 1024;
    return;
  }
  uintptr_t from = (uintptr_t)strtoull(line, &end, 16);
  if (*end != '-') return;
  uintptr_t to = (uintptr_t)strtoull(end + 1, NULL, 16), plan = (uintptr_t)m->p->plan;
  if (from < plan + m->p->plan_bytes && to > plan) m->group = PLAN;
  else if (from < (uintptr_t)_end && to > (uintptr_t)__executable_start) m->group = PROGRAM;
  else m->group = strchr(line, '[') ? PROCESS : WORK;
}

/* Resident bytes by group. Returns 0 where /proc/self/smaps is absent. */
static int measured_groups(const packed *p, int64_t *bytes) {
  static char line[512];
  char block[1024];
  mapping m = {p, PROCESS, bytes};
  size_t n = 0;
  int fd = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
  for (int i = 0; i < GROUPS; i++) bytes[i] = 0;
  for (ssize_t got; fd >= 0 && (got = read(fd, block, sizeof block)) > 0;)
    for (ssize_t i = 0; i < got; i++) {
      if (block[i] != '\n') {
        if (n + 1 < sizeof line) line[n++] = block[i];
        continue;
      }
      line[n] = 0;
      take_line(&m, line);
      n = 0;
    }
  if (fd >= 0) close(fd);
  return bytes[PROGRAM] > 0;
}

/* A native process of ours maps no file but its own: more file pages mean an emulator's memory, not the model's. */
static const char *why_not_measured(const packed *p, memory_use use) {
  if (use.rss_peak < 0) return "no /proc";
  return use.file > (int64_t)p->file_bytes + 65536 ? "running under an emulator" : NULL;
}

static void json_or_null(const char *key, double value, int known) {
  out("\"%s\": ", key);
  if (known) out_json_number(value);
  else out("null");
}

static void print_json(const char *unknown, int exact, memory_use use, double total, const double *predicted,
                       const int64_t *measured, int by_part) {
  json_or_null("rss_peak_bytes", (double)use.rss_peak, !unknown);
  out(", ");
  json_or_null("rss_bytes", (double)use.rss, !unknown);
  out(", ");
  json_or_null("rss_anonymous_bytes", (double)use.anonymous, !unknown && use.anonymous >= 0);
  out(", ");
  json_or_null("rss_file_bytes", (double)use.file, !unknown && use.file >= 0);
  out(", ");
  json_or_null("ram_predicted_bytes", total, total >= 0);
  out(", ");
  json_or_null("ram_error_percent", 100 * (total / (double)use.rss_peak - 1), exact);
  out(", \"parts\": [");
  for (int i = 0; i < GROUPS && total >= 0; i++) {
    out("%s{\"part\": \"%s\", \"predicted_bytes\": %.0f, ", i ? ", " : "", group_name[i], predicted[i]);
    json_or_null("measured_bytes", (double)measured[i], by_part);
    out("}");
  }
  out("]");
}

void print_memory(const packed *p, int json, int threads, int parts) {
  double predicted[GROUPS];
  int64_t measured[GROUPS];
  memory_use use = read_memory();
  double total = predicted_groups(p, threads, predicted);
  const char *unknown = why_not_measured(p, use);
  int by_part = !unknown && measured_groups(p, measured);
  /* With free dimensions the prediction is a bound: it holds for the largest shapes. */
  int exact = !unknown && total >= 0 && p->header->n_symbols == 0;
  if (json) {
    print_json(unknown, exact, use, total, predicted, measured, by_part);
    return;
  }
  out("peak RSS ");
  if (unknown) out("not measured (%s)", unknown);
  else out("%.2f MB (anonymous %.2f, file %.2f)", (double)use.rss_peak / 1e6, (double)use.anonymous / 1e6,
           (double)use.file / 1e6);
  if (total >= 0) out(", predicted %.2f MB", total / 1e6);
  if (total >= 0 && p->header->n_symbols) out(" for the largest shapes");
  if (exact) out(" (%+.1f %%)", 100 * (total / (double)use.rss_peak - 1));
  out("\n");
  for (int i = 0; i < GROUPS && parts && by_part && total >= 0; i++)
    out("  %-32s %9.3f MB, predicted %9.3f MB\n", group_name[i], (double)measured[i] / 1e6, predicted[i] / 1e6);
}
