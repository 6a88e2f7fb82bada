/* `run`: one inference, or one for each record of a stream. */
#include <math.h>
#include <string.h>
#include "launcher.h"

static void print_row(const er_io_info *info, const void *data) {
  uint64_t n = element_count(info), top = 0;
  double low = INFINITY, high = -INFINITY, sum = 0;
  uint64_t bad = 0;
  char shape[160];
  for (uint64_t i = 0; i < n; i++) {
    double v = element(data, info->dtype, i);
    if (isnan(v)) {
      bad++;
      continue;
    }
    if (v < low) low = v;
    if (v > high) high = v, top = i;
    sum += v;
  }
  shape_text(shape, sizeof shape, info->dim, info->rank);
  out("%-24s %-5s %-20s", info->name, dtype_name(info->dtype), shape);
  if (n > bad) out(" %12.6g %12.6g %12.6g %10llu", low, high, sum / (double)(n - bad), (unsigned long long)top);
  if (bad) out("  %llu NaN", (unsigned long long)bad);
  out("\n");
}

typedef struct {
  double load, run, sum; /* milliseconds; `run` of the last record, `sum` of all */
  uint64_t records;
} timing;

static void print_result(const packed *p, const bound *b, const options *o, const timing *t) {
  er_io_info info;
  int in_files = o->output || o->output_dir;
  int json = o->json || o->stream; /* a stream gives one document a line */
  if (json)
    out("{\"backend\": \"packed\", \"load_ms\": %.3f, \"run_ms\": %.3f, \"outputs\": [", t->load, t->run);
  else
    out("%-24s %-5s %-20s %12s %12s %12s %10s\n", "output", "dtype", "shape", "min", "max", "mean", "argmax");
  for (int i = 0; i < b->n_outputs; i++) {
    er_output_info(b->model, i, &info);
    const void *data = er_output_data(b->model, i);
    if (json && i) out(", ");
    if (json) out_array_json(&info, in_files ? NULL : data);
    else print_row(&info, data);
  }
  if (json) {
    out("], \"memory\": {");
    print_memory(p, 1, er_threads(b->model), 0);
    out("}}\n");
  }
  if (o->stream) out_flush(); /* whoever feeds the stream may wait for this line */
}

static void run_record(const packed *p, bound *b, const options *o, timing *t) {
  const char *error = NULL;
  fill_inputs(b, o->seed);
  double filled = seconds_now();
  if (er_run(b->model, &error)) fail(EXIT_NEGATIVE, "the model failed: %s", error ? error : "unknown reason");
  t->run = (seconds_now() - filled) * 1e3;
  t->sum += t->run;
  t->records++;
  if (o->output_dir) write_folder(b, o->output_dir, o->force);
  if (o->output) write_outputs(b, o->output, o->force);
  if (!is_standard_output(o->output)) print_result(p, b, o, t);
}

static void check_options(const bound *b, const options *o) {
  int streams = 0;
  for (int i = 0; i < b->n_inputs; i++) streams += is_stream(&b->feeds[i]);
  if (o->output && o->output_dir) fail(EXIT_USAGE, "give --output or --output-dir, not both");
  if (!o->stream) return;
  if (!streams) fail(EXIT_USAGE, "--stream needs an input from standard input: --input NAME=- or --input NAME=raw:-");
  if (o->output_dir || (o->output && !is_standard_output(o->output)))
    fail(EXIT_USAGE, "--stream writes to standard output: give --output - or --output raw:-, or none");
}

int verb_run(const packed *p, const options *o, double started) {
  static bound b;
  timing t = {0};
  er_model *model = load_model(p, o, o->threads ? (int)parse_count(o->threads, "--threads", 1, 1024) : 0);
  bind_inputs(&b, model, o, 0);
  check_options(&b, o);
  t.load = (seconds_now() - started) * 1e3;
  run_record(p, &b, o, &t);
  while (o->stream && next_record(&b)) run_record(p, &b, o, &t);
  if (o->stream) note("%llu records, %.2f ms each", (unsigned long long)t.records, t.sum / (double)t.records);
  else if (!o->json && !is_standard_output(o->output)) {
    out("load %.2f ms, run %.2f ms\n", t.load, t.run);
    print_memory(p, 0, er_threads(model), 0);
  }
  er_free(model);
  return EXIT_OK;
}
