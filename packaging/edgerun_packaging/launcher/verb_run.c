/* `run`: one inference. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include "launcher.h"

static double half(uint16_t h) {
  int exponent = h >> 10 & 31, fraction = h & 1023;
  double sign = h & 0x8000 ? -1 : 1;
  if (exponent == 31) return fraction ? (double)NAN : sign * (double)INFINITY;
  return exponent ? sign * ldexp(1024 + fraction, exponent - 25) : sign * ldexp(fraction, -24);
}

double element(const void *data, int dtype, uint64_t i) {
  union {
    uint32_t u;
    float f;
  } word;
  switch (dtype) {
    case ER_F32: return ((const float *)data)[i];
    case ER_F64: return ((const double *)data)[i];
    case ER_F16: return half(((const uint16_t *)data)[i]);
    case ER_BF16: word.u = (uint32_t)((const uint16_t *)data)[i] << 16; return word.f;
    case ER_I8: return ((const int8_t *)data)[i];
    case ER_I16: return ((const int16_t *)data)[i];
    case ER_I32: return ((const int32_t *)data)[i];
    case ER_I64: return (double)((const int64_t *)data)[i];
    case ER_U16: return ((const uint16_t *)data)[i];
    case ER_U32: return ((const uint32_t *)data)[i];
    case ER_U64: return (double)((const uint64_t *)data)[i];
    default: return ((const uint8_t *)data)[i];
  }
}

static uint64_t count(const er_io_info *info) {
  uint64_t n = 1;
  for (int i = 0; i < info->rank; i++) n *= (uint64_t)info->dim[i];
  return n;
}

static void print_json(const er_io_info *info, const void *data, const char *directory) {
  uint64_t n = count(info);
  out("{\"name\": ");
  out_json_text(info->name, strlen(info->name));
  out(", \"dtype\": \"%s\", \"shape\": [", dtype_name(info->dtype));
  for (int k = 0; k < info->rank; k++) out("%s%lld", k ? ", " : "", (long long)info->dim[k]);
  out("]");
  if (!directory) { /* with --output-dir the values are in the files */
    out(", \"values\": [");
    for (uint64_t i = 0; i < n; i++) {
      if (i) out(", ");
      if (info->dtype == ER_I64) out("%lld", (long long)((const int64_t *)data)[i]);
      else if (info->dtype == ER_U64) out("%llu", (unsigned long long)((const uint64_t *)data)[i]);
      else out_json_number(element(data, info->dtype, i));
    }
    out("]");
  }
  out("}");
}

static void print_row(const er_io_info *info, const void *data) {
  uint64_t n = count(info), top = 0;
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

int verb_run(const packed *p, const options *o, double started) {
  static bound b;
  const char *error = NULL;
  er_io_info info;
  er_model *model = load_model(p, o, o->threads ? (int)parse_count(o->threads, "--threads", 1, 1024) : 0);
  bind_inputs(&b, model, o, 0);
  double loaded = seconds_now();
  fill_inputs(&b, o->seed);
  double filled = seconds_now();
  if (er_run(model, &error)) fail(EXIT_NEGATIVE, "the model failed: %s", error ? error : "unknown reason");
  double done = seconds_now();
  if (o->output_dir && mkdir(o->output_dir, 0777) && errno != EEXIST)
    fail(EXIT_IO, "cannot make the folder %s: %s", o->output_dir, strerror(errno));
  if (o->json)
    out("{\"load_ms\": %.3f, \"run_ms\": %.3f, \"outputs\": [", (loaded - started) * 1e3, (done - filled) * 1e3);
  else out("%-24s %-5s %-20s %12s %12s %12s %10s\n", "output", "dtype", "shape", "min", "max", "mean", "argmax");
  for (int i = 0; i < b.n_outputs; i++) {
    er_output_info(model, i, &info);
    const void *data = er_output_data(model, i);
    if (o->output_dir) npy_write(o->output_dir, info.name, &info, data, o->force);
    if (o->json) {
      if (i) out(", ");
      print_json(&info, data, o->output_dir);
    } else {
      print_row(&info, data);
    }
  }
  if (o->json) out("]}\n");
  else out("load %.2f ms, run %.2f ms\n", (loaded - started) * 1e3, (done - filled) * 1e3);
  er_free(model);
  return EXIT_OK;
}
