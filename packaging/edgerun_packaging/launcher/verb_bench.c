/* `bench`: cold start, first run and steady state apart; one row for each thread count. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "launcher.h"

#define MAX_COUNTS 16
#define MAX_SAMPLES 16384 /* a phase ends when they are full */

static float sample_ms[MAX_SAMPLES];

typedef struct {
  int threads, runs;
  double min, p50, p90, p99, max, mean, sd; /* milliseconds */
  clock_watch clock;
  int rejected; /* the CPU was throttled */
} row;

static int by_value(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

/* Linear interpolation between closest ranks, as numpy.percentile does. */
static double percentile(int n, double q) {
  double at = q * (n - 1);
  int low = (int)at;
  int high = low + 1 < n ? low + 1 : low;
  return sample_ms[low] + (at - low) * (sample_ms[high] - sample_ms[low]);
}

static int is_text; /* a language model, measured token by token */

static double run_once(bound *b, uint64_t seed) {
  const char *error = NULL;
  if (is_text) return bench_text_step();
  fill_inputs(b, seed);
  double start = seconds_now();
  if (er_run(b->model, &error)) fail(EXIT_NEGATIVE, "the model failed: %s", error ? error : "unknown reason");
  return (seconds_now() - start) * 1e3;
}

/* Between runs, never inside one: reading /sys takes a fraction of a millisecond. */
static void sample_clock_sometimes(clock_watch *w) {
  if (seconds_now() - w->sampled > 0.2) clock_sample(w);
}

static row measure(bound *b, const options *o, int threads) {
  row r = {.threads = threads};
  if (er_set_threads(b->model, threads)) fail(EXIT_USAGE, "cannot run with %d threads", threads);
  r.threads = er_threads(b->model);
  for (long i = 0; i < o->warmup; i++) run_once(b, o->seed);
  clock_start(&r.clock);
  double end = seconds_now() + o->seconds;
  int n = 0;
  while (n < MAX_SAMPLES && (o->runs ? n < o->runs : n < 2 || seconds_now() < end))
    sample_ms[n++] = (float)run_once(b, o->seed), sample_clock_sometimes(&r.clock);
  clock_sample(&r.clock);
  r.rejected = r.clock.reasons && !o->allow_throttled;
  r.runs = n;
  for (int i = 0; i < n; i++) r.mean += sample_ms[i] / n;
  for (int i = 0; i < n; i++) r.sd += (sample_ms[i] - r.mean) * (sample_ms[i] - r.mean);
  r.sd = n > 1 ? sqrt(r.sd / (n - 1)) : 0;
  qsort(sample_ms, (size_t)n, sizeof *sample_ms, by_value); /* for a few floats musl's qsort uses no heap */
  r.min = sample_ms[0];
  r.p50 = percentile(n, 0.5);
  r.p90 = percentile(n, 0.9);
  r.p99 = percentile(n, 0.99);
  r.max = sample_ms[n - 1];
  return r;
}

/* "4", "1,2,4" or "sweep" (powers of two up to the cores, and the cores). Returns how many counts. */
static int thread_counts(const char *text, int cores, int default_count, int *counts) {
  int n = 0;
  if (!text) return counts[0] = default_count, 1;
  if (!strcmp(text, "sweep")) {
    for (int t = 1; t <= cores && n < MAX_COUNTS; t *= 2) counts[n++] = t;
    if (counts[n - 1] != cores && n < MAX_COUNTS) counts[n++] = cores;
    return n;
  }
  while (*text && n < MAX_COUNTS) {
    char word[16];
    size_t length = strcspn(text, ",");
    if (length >= sizeof word)
      fail(EXIT_USAGE, "--threads takes a number, a list such as 1,2,4, or sweep, not '%s'", text);
    memcpy(word, text, length);
    word[length] = 0;
    counts[n++] = (int)parse_count(word, "--threads", 1, 1024);
    text += length + (text[length] == ',');
  }
  if (*text || n == 0) fail(EXIT_USAGE, "--threads takes at most %d counts", MAX_COUNTS);
  return n;
}

static void json_or_null(const char *key, double value) {
  out(", \"%s\": ", key);
  if (value < 0) out("null");
  else out_json_number(value);
}

/* `separator` between the reasons, each in `quote`s. */
static void print_reasons(unsigned reasons, const char *quote, const char *separator) {
  int n = 0;
  for (int i = 0; i < THROTTLE_REASONS; i++)
    if (reasons >> i & 1) out("%s%s%s%s", n++ ? separator : "", quote, throttle_reason[i], quote);
}

static void print_row_json(const row *r, const char *isa, double cold, double first) {
  out("{\"threads\": %d, \"isa\": \"%s\", \"cold_ms\": %.4f, \"first_ms\": %.4f, \"runs\": %d", r->threads, isa, cold,
      first, r->runs);
  out(", \"min_ms\": %.4f, \"p50_ms\": %.4f, \"p90_ms\": %.4f, \"p99_ms\": %.4f", r->min, r->p50, r->p90, r->p99);
  out(", \"max_ms\": %.4f, \"mean_ms\": %.4f, \"sd_ms\": %.4f, \"per_second\": %.3f", r->max, r->mean, r->sd,
      1e3 / r->mean);
  json_or_null("mhz_min", r->clock.mhz_min);
  json_or_null("mhz_max", r->clock.mhz_max);
  json_or_null("celsius_max", r->clock.celsius_max);
  out(", \"throttled\": %s, \"throttle_reasons\": [", !r->clock.known ? "null" : r->clock.reasons ? "true" : "false");
  print_reasons(r->clock.reasons, "\"", ", ");
  out("], \"rejected\": %s}", r->rejected ? "true" : "false");
}

static void print_row_table(const row *r) {
  out("%7d %6d %9.3f %9.3f %9.3f %9.3f %9.3f %9.3f %8.3f %9.1f", r->threads, r->runs, r->min, r->p50, r->p90, r->p99,
      r->max, r->mean, r->sd, 1e3 / r->mean);
  if (r->clock.mhz_min >= 0) out("  %.0f-%.0f MHz", r->clock.mhz_min, r->clock.mhz_max);
  if (r->clock.celsius_max >= 0) out("  %.0f C", r->clock.celsius_max);
  if (r->clock.reasons) out(r->rejected ? "  REJECTED: " : "  ");
  print_reasons(r->clock.reasons, "", ", ");
  out("\n");
}

/* Mean time of every node over some profiled runs. */
static void print_layers(bound *b, const options *o) {
  int n = er_node_count(b->model), runs = o->runs && o->runs < 20 ? (int)o->runs : 20;
  size_t bytes = (size_t)(n ? n : 1) * sizeof(double);
  double *us = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), total = 0;
  if (us == MAP_FAILED) fail(EXIT_HARDWARE, "not enough memory for the layer table");
  er_profile(b->model, 1);
  double stop = seconds_now() + 4 * o->seconds;
  int done = 0;
  for (; done < runs && (done < 1 || seconds_now() < stop); done++) {
    run_once(b, o->seed);
    for (int i = 0; i < n; i++) us[i] += er_node_seconds(b->model, i) * 1e6;
  }
  er_profile(b->model, 0);
  for (int i = 0; i < n; i++) total += us[i] /= done;
  if (!o->json) out("\n%5s %10s %6s  %-28s %s\n", "index", "us", "%", "kernel", "node");
  for (int i = 0; i < n; i++) {
    double share = total > 0 ? 100 * us[i] / total : 0;
    const char *kernel = er_node_kernel(b->model, i), *name = er_node_name(b->model, i);
    if (o->json) {
      out("%s{\"index\": %d, \"node\": ", i ? ", " : "", i);
      out_json_text(name, strlen(name));
      out(", \"kernel\": ");
      out_json_text(kernel, strlen(kernel));
      out(", \"us\": %.3f, \"percent\": %.3f}", us[i], share);
    } else {
      out("%5d %10.2f %6.2f  %-28s ", i, us[i], share, kernel);
      out_bytes(name, strlen(name));
      out("\n");
    }
  }
  munmap(us, bytes);
}

/* The latency budget of the pack applies to the best thread count measured. Returns the exit status. */
static int check_latency(const packed *p, const options *o, const row *rows, int n) {
  double limit = json_number(json_find(manifest(p), "budgets.max_latency_ms"), -1), best = rows[0].p50;
  for (int i = 1; i < n; i++)
    if (rows[i].p50 < best) best = rows[i].p50;
  if (limit < 0) return EXIT_OK;
  if (!o->json)
    out("median %.3f ms, budget %.3f ms: %s\n", best, limit, best > limit ? "OVER BUDGET" : "within budget");
  return best > limit ? EXIT_NEGATIVE : EXIT_OK;
}

/* A throttled row says how fast a hot board is, not how fast the model is. Returns the exit status. */
static int check_throttling(const row *rows, int n) {
  int rejected = 0;
  for (int i = 0; i < n; i++) rejected += rows[i].rejected;
  if (!rejected) return EXIT_OK;
  note("%d of %d measurements rejected: the CPU was throttled; cool the board, check its power supply, or accept them "
       "with --allow-throttled",
       rejected, n);
  return EXIT_NEGATIVE;
}

static int most_threads(const row *rows, int n) {
  int most = 1;
  for (int i = 0; i < n; i++)
    if (rows[i].threads > most) most = rows[i].threads;
  return most;
}

static void print_head(const packed *p, er_model *model, const options *o, int cores, double cold, double first) {
  char governor[32];
  if (o->json) {
    json_value m = manifest(p), name = json_find(m, "model.name"), hash = json_find(m, "model.sha256");
    out("{\"version\": \"%s\", \"model\": ", er_version());
    out_json_or_null(name);
    out(", \"sha256\": ");
    out_json_or_null(hash);
    out(", \"machine\": ");
    print_machine_json(cores);
    out(", \"rows\": [");
    return;
  }
  read_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", governor, sizeof governor);
  out("isa %s, cold start %.3f ms, first run %.3f ms%s%s\n", er_isa(model), cold, first, *governor ? ", governor " : "",
      governor);
  out("%7s %6s %9s %9s %9s %9s %9s %9s %8s %9s\n", "threads", "runs", "min ms", "p50 ms", "p90 ms", "p99 ms", "max ms",
      "mean ms", "sd ms", "per s");
}

int verb_bench(const packed *p, const options *o, double started) {
  static bound b;
  static row rows[MAX_COUNTS];
  int counts[MAX_COUNTS];
  int cores = online_cores(); /* before the runtime restricts this thread to the big ones */
  is_text = has_text(p) && !o->n_input && !o->n_shape;
  int single = o->threads && strcmp(o->threads, "sweep") && !strchr(o->threads, ',');
  er_model *model = load_model(p, o, single ? (int)parse_count(o->threads, "--threads", 1, 1024) : 0);
  b.model = model;
  if (is_text) bench_text_open(p, model);
  else bind_inputs(&b, model, o, 1);
  for (int i = 0; i < b.n_inputs; i++)
    if (b.feeds[i].kind == FROM_FILE && !b.feeds[i].file.seekable)
      fail(EXIT_USAGE, "bench reads its inputs many times: give a file, not a pipe");
  double cold = (seconds_now() - started) * 1e3;
  double first = run_once(&b, o->seed);
  int n = thread_counts(o->threads, cores, er_threads(model), counts);
  for (int i = 0; i < n; i++) rows[i] = measure(&b, o, counts[i]);
  print_head(p, model, o, cores, cold, first);
  for (int i = 0; i < n; i++) {
    if (o->json && i) out(", ");
    if (o->json) print_row_json(&rows[i], er_isa(model), cold, first);
    else print_row_table(&rows[i]);
  }
  if (is_text && !o->json)
    out("a run is one token of text; prompts %.1f tokens/s with %d threads\n", bench_text_prompt(), er_threads(model));
  if (o->json) out("], \"memory\": {");
  print_memory(p, o->json, most_threads(rows, n), 1);
  if (o->json) out("}");
  if (o->layers) {
    if (o->json) out(", \"layers\": [");
    print_layers(&b, o);
    if (o->json) out("]");
  }
  if (o->json) out("}\n");
  int status = check_latency(p, o, rows, n) | check_throttling(rows, n); /* each 0 or 1 */
  er_free(model);
  return status;
}
