/* Reductions over any set of axes. Dims are collapsed to alternating kept and reduced ones; then either the last dim is
 * reduced (runs: one accumulator) or kept (columns: a row of accumulators). Narrow types are widened a run at a time:
 * f16 and bf16 to f32, integers to i64 (sums wrap when stored).
 * Parameters: kind, mask of reduced axes (bit d = axis d). Accuracy: f32 runs add 16 lanes for 1024 elements, then in
 * double; columns add 16 rows at a time, then in double. */
#include <math.h>
#include "half.h"
#include "nd.h"

enum reduce_kind {
  RED_SUM,
  RED_MEAN,
  RED_MAX,
  RED_MIN,
  RED_PROD,
  RED_L1,
  RED_L2,
  RED_LOGSUM,
  RED_LOGSUMEXP,
  RED_SUMSQ,
  RED_KINDS
};
#define RED_RUN 1024 /* elements of a run handled at once; also the most columns */
#define RED_ROWS 16  /* rows of columns summed before they join the total */

#ifdef ER_BASELINE_CHECKS
static int check_reduce(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 1 && c->n_out == 1 && c->n_param == 2, "reduce takes one tensor to another");
  const er_view *in = &c->in[0], *out = &c->out[0];
  ER_REQUIRE(c, c->param[0] >= 0 && c->param[0] < RED_KINDS && c->param[1] >= 0 && c->param[1] < 1 << in->rank,
             "reduce: bad parameters");
  ER_REQUIRE(c, in->dtype == out->dtype && er_is_number(in->dtype), "reduce: bad dtypes %d and %d", in->dtype,
             out->dtype);
  ER_REQUIRE(c, er_is_dense(in) && er_is_dense(out), "reduce takes dense tensors");
  int64_t n = 1;
  for (int d = 0; d < in->rank; d++) if (!(c->param[1] >> d & 1)) n *= in->dim[d];
  ER_REQUIRE(c, n == er_numel(out), "reduce: %lld results for an output of %lld", (long long)n,
             (long long)er_numel(out));
  return 0;
}
#endif

typedef struct {
  int rank;
  int64_t dim[ER_MAX_RANK], stride[ER_MAX_RANK];
} red_axes;

typedef struct {
  const er_call *c;
  int kind, dtype, tasks;
  red_axes kept, reduced; /* without the last dim of the input, which is `width` long */
  int columns;            /* the last dim is kept */
  int64_t width, kept_rows, reduced_rows, tiles;
  int64_t count;          /* elements per result */
} red_plan;

static int64_t red_offset(const red_axes *a, int64_t index) {
  int64_t at = 0;
  for (int d = a->rank - 1; d >= 0; d--) {
    at += index % a->dim[d] * a->stride[d];
    index /= a->dim[d];
  }
  return at;
}

/* n elements of a 16-bit float type as f32: in place for f32. */
static const float *red_floats(int dtype, const void *data, int64_t at, int64_t n, float *buffer) {
  if (dtype == ER_F32) return (const float *)data + at;
  const uint16_t *h = (const uint16_t *)data + at;
  if (dtype == ER_F16) for (int64_t i = 0; i < n; i++) buffer[i] = er_from_f16(h[i]);
  else for (int64_t i = 0; i < n; i++) buffer[i] = er_from_bf16(h[i]);
  return buffer;
}
static void red_store_float(int dtype, void *data, int64_t at, float v) {
  if (dtype == ER_F32) ((float *)data)[at] = v;
  else ((uint16_t *)data)[at] = dtype == ER_F16 ? er_to_f16(v) : er_to_bf16(v);
}
/* Integers as i64. u64 keeps its order by a flipped top bit when `ordered`. */
static int64_t red_load_int(int dtype, const void *data, int64_t at, int ordered) {
  switch (dtype) {
    case ER_I8: return ((const int8_t *)data)[at];
    case ER_U8: case ER_BOOL: return ((const uint8_t *)data)[at];
    case ER_I16: return ((const int16_t *)data)[at];
    case ER_U16: return ((const uint16_t *)data)[at];
    case ER_I32: return ((const int32_t *)data)[at];
    case ER_U32: return ((const uint32_t *)data)[at];
    case ER_U64: return (int64_t)(((const uint64_t *)data)[at] ^ (ordered ? (uint64_t)1 << 63 : 0));
    default: return ((const int64_t *)data)[at];
  }
}
static void red_store_int(int dtype, void *data, int64_t at, int64_t v, int ordered) {
  switch (er_itemsize(dtype)) {
    case 1: ((uint8_t *)data)[at] = dtype == ER_BOOL ? v != 0 : (uint8_t)v; break;
    case 2: ((uint16_t *)data)[at] = (uint16_t)v; break;
    case 4: ((uint32_t *)data)[at] = (uint32_t)v; break;
    default: ((uint64_t *)data)[at] = (uint64_t)v ^ (dtype == ER_U64 && ordered ? (uint64_t)1 << 63 : 0);
  }
}

static double red_start(int kind) {
  return kind == RED_MAX ? -INFINITY : kind == RED_MIN ? INFINITY : kind == RED_PROD ? 1 : 0;
}
static double red_finish(int kind, double v, double largest, int64_t count) {
  switch (kind) {
    case RED_MEAN: return v / (double)count;
    case RED_L2: return sqrt(v);
    case RED_LOGSUM: return log(v);
    case RED_LOGSUMEXP: return log(v) + largest;
    default: return v;
  }
}
static double red_max(double a, double b) { return a > b || a != a ? a : b; }
static double red_min(double a, double b) { return a < b || a != a ? a : b; }

#define RED_LANES(combine, element) \
  do { \
    for (; i + 4 * ER_W <= n; i += 4 * ER_W) \
      for (int k = 0; k < 4; k++) { \
        er_w v = er_load_w(x + i + k * ER_W); \
        acc[k] = combine(acc[k], element); \
      } \
    for (; i + ER_W <= n; i += ER_W) { \
      er_w v = er_load_w(x + i); \
      acc[0] = combine(acc[0], element); \
    } \
  } while (0)
#define RED_ADD(a, b) ((a) + (b))
#define RED_MUL(a, b) ((a) * (b))

/* Combine n <= RED_RUN floats into one value. */
static double red_run_f32(int kind, double so_far, const float *x, int64_t n, float largest) {
  er_w acc[4];
  float tail = (float)red_start(kind);
  for (int k = 0; k < 4; k++) acc[k] = er_splat_w(tail);
  int64_t i = 0;
  switch (kind) {
    case RED_MAX:
      RED_LANES(er_max_w, v);
      for (; i < n; i++) tail = er_max_s(tail, x[i]);
      return red_max(so_far,
                     er_max_s(tail, er_max_lanes_w(er_max_w(er_max_w(acc[0], acc[1]), er_max_w(acc[2], acc[3])))));
    case RED_MIN:
      RED_LANES(er_min_w, v);
      for (; i < n; i++) tail = er_min_s(tail, x[i]);
      return red_min(so_far,
                     er_min_s(tail, -er_max_lanes_w(-er_min_w(er_min_w(acc[0], acc[1]), er_min_w(acc[2], acc[3])))));
    case RED_PROD: {
      for (i = 0; i < n; i++) so_far *= x[i];
      return so_far;
    }
    case RED_L1:
      RED_LANES(RED_ADD, er_abs_w(v));
      for (; i < n; i++) tail += er_abs_s(x[i]);
      break;
    case RED_L2: case RED_SUMSQ:
      RED_LANES(RED_ADD, v * v);
      for (; i < n; i++) tail += x[i] * x[i];
      break;
    case RED_LOGSUMEXP:
      RED_LANES(RED_ADD, er_exp_w(v - largest));
      for (; i < n; i++) tail += er_exp_s(x[i] - largest);
      break;
    default:
      RED_LANES(RED_ADD, v);
      for (; i < n; i++) tail += x[i];
  }
  return so_far + tail + er_sum_lanes_w((acc[0] + acc[1]) + (acc[2] + acc[3]));
}

static double red_run_f64(int kind, double y, const double *x, int64_t n, double largest) {
  for (int64_t i = 0; i < n; i++) {
    switch (kind) {
      case RED_MAX: y = red_max(y, x[i]); break;
      case RED_MIN: y = red_min(y, x[i]); break;
      case RED_PROD: y *= x[i]; break;
      case RED_L1: y += fabs(x[i]); break;
      case RED_L2: case RED_SUMSQ: y += x[i] * x[i]; break;
      case RED_LOGSUMEXP: y += exp(x[i] - largest); break;
      default: y += x[i];
    }
  }
  return y;
}

static int red_is_float(int dtype) { return dtype >= ER_F32 && dtype <= ER_BF16; }
static double red_shift(double largest) { return isfinite(largest) ? largest : largest != largest ? largest : 0; }

/* One float result from runs of the last dim: `rows` runs at offsets of the reduced dims from `base`. */
static double red_runs(const red_plan *p, int kind, int64_t base, double largest, float *buffer) {
  const er_view *in = &p->c->in[0];
  double y = red_start(kind);
  for (int64_t r = 0; r < p->reduced_rows; r++) {
    int64_t at = base + red_offset(&p->reduced, r);
    for (int64_t i = 0; i < p->width; i += RED_RUN) {
      int64_t n = nd_min(RED_RUN, p->width - i);
      if (p->dtype == ER_F64) y = red_run_f64(kind, y, (const double *)in->data + at + i, n, largest);
      else y = red_run_f32(kind, y, red_floats(p->dtype, in->data, at + i, n, buffer), n, (float)largest);
    }
  }
  return y;
}

/* An integer as a number. */
static double red_number(int dtype, int64_t v) { return dtype == ER_U64 ? (double)(uint64_t)v : (double)v; }
/* Truncated and saturated to an integer type; NaN gives 0. */
static int64_t red_saturate(int dtype, double v) {
  int bits = 8 * er_itemsize(dtype), is_signed = dtype >= ER_I8 && dtype <= ER_I64;
  uint64_t half = (uint64_t)1 << (bits - 1);
  double high = is_signed ? (double)half : 2.0 * (double)half; /* the first number above the range */
  if (v != v) return 0;
  if (v >= high) return (int64_t)(is_signed ? half - 1 : half - 1 + half);
  if (v <= (is_signed ? -high : 0)) return is_signed ? -(int64_t)(half - 1) - 1 : 0;
  return dtype == ER_U64 ? (int64_t)(uint64_t)v : (int64_t)v;
}
/* One integer result; `step` is the distance of the run's elements (columns are read one at a time). */
static void red_integer(const red_plan *p, int64_t base, int64_t run, int64_t out_at) {
  const er_view *in = &p->c->in[0];
  int kind = p->kind, ordered = kind == RED_MAX || kind == RED_MIN;
  int64_t first = p->dtype == ER_BOOL ? 1 : 0, y = kind == RED_PROD ? 1 : 0;
  if (kind == RED_MIN) y = INT64_MAX;
  if (kind == RED_MAX) y = INT64_MIN;
  if (p->count == 0 && ordered && p->dtype != ER_I64 && p->dtype != ER_U64) {
    int bits = 8 * er_itemsize(p->dtype), is_signed = p->dtype >= ER_I8 && p->dtype <= ER_I32;
    int64_t high = is_signed ? ((int64_t)1 << (bits - 1)) - 1 : first ? 1 : ((int64_t)1 << bits) - 1;
    y = kind == RED_MIN ? high : is_signed ? -high - 1 : 0;
  }
  double sum = 0, largest = -INFINITY;
  if (kind == RED_LOGSUMEXP)
    for (int64_t r = 0; r < p->reduced_rows; r++)
      for (int64_t i = 0, at = base + red_offset(&p->reduced, r); i < run; i++)
        largest = fmax(largest, red_number(p->dtype, red_load_int(p->dtype, in->data, at + i, 0)));
  for (int64_t r = 0; r < p->reduced_rows; r++) {
    int64_t at = base + red_offset(&p->reduced, r);
    for (int64_t i = 0; i < run; i++) {
      int64_t v = red_load_int(p->dtype, in->data, at + i, ordered);
      switch (kind) {
        case RED_MAX: y = v > y ? v : y; break;
        case RED_MIN: y = v < y ? v : y; break;
        case RED_PROD: y = (int64_t)((uint64_t)y * (uint64_t)v); break;
        case RED_L1: y = (int64_t)((uint64_t)y + (v < 0 && p->dtype != ER_U64 ? -(uint64_t)v : (uint64_t)v)); break;
        case RED_SUMSQ: y = (int64_t)((uint64_t)y + (uint64_t)v * (uint64_t)v); break;
        case RED_L2: sum += red_number(p->dtype, v) * red_number(p->dtype, v); break;
        case RED_LOGSUMEXP: sum += exp(red_number(p->dtype, v) - largest); break;
        case RED_LOGSUM: sum += red_number(p->dtype, v); break;
        default: y = (int64_t)((uint64_t)y + (uint64_t)v);
      }
    }
  }
  if (kind == RED_MEAN && p->count)
    y = p->dtype == ER_U64 ? (int64_t)((uint64_t)y / (uint64_t)p->count) : y / p->count;
  if (kind == RED_L2 || kind == RED_LOGSUM || kind == RED_LOGSUMEXP)
    y = red_saturate(p->dtype, red_finish(kind, sum, largest, p->count));
  red_store_int(p->dtype, p->c->out[0].data, out_at, y, ordered);
}

/* acc[j] of a row of floats. */
static void red_row_f32(int kind, float *acc, const float *x, const float *largest, int64_t n) {
  int64_t i = 0;
#define RED_COLUMNS(vector, scalar) \
  for (; i + ER_W <= n; i += ER_W) { er_w v = er_load_w(x + i), y = er_load_w(acc + i); er_store_w(acc + i, vector); } \
  for (; i < n; i++) { float v = x[i], y = acc[i]; acc[i] = scalar; } \
  break
  switch (kind) {
    case RED_MAX: RED_COLUMNS(er_max_w(y, v), er_max_s(y, v));
    case RED_MIN: RED_COLUMNS(er_min_w(y, v), er_min_s(y, v));
    case RED_PROD: RED_COLUMNS(y * v, y * v);
    case RED_L1: RED_COLUMNS(y + er_abs_w(v), y + er_abs_s(v));
    case RED_L2: case RED_SUMSQ: RED_COLUMNS(y + v * v, y + v * v);
    case RED_LOGSUMEXP: RED_COLUMNS(y + er_exp_w(v - er_load_w(largest + i)), y + er_exp_s(v - largest[i]));
    default: RED_COLUMNS(y + v, y + v);
  }
#undef RED_COLUMNS
}

/* Results of `n` columns from element `base` on; total[] holds them. */
static void red_columns_f32(const red_plan *p, int kind, int64_t base, int64_t n, float *total, const float *largest) {
  float part[RED_RUN], buffer[RED_RUN];
  const er_view *in = &p->c->in[0];
  double sum[RED_RUN];
  int sums = kind != RED_MAX && kind != RED_MIN && kind != RED_PROD, in_groups = sums && p->reduced_rows > RED_ROWS;
  for (int64_t j = 0; j < n; j++) total[j] = (float)red_start(kind);
  if (in_groups) for (int64_t j = 0; j < n; j++) sum[j] = 0;
  for (int64_t r = 0; r < p->reduced_rows; r += RED_ROWS) {
    int64_t rows = nd_min(RED_ROWS, p->reduced_rows - r);
    float *acc = total;
    if (in_groups) {
      acc = part;
      for (int64_t j = 0; j < n; j++) part[j] = 0;
    }
    for (int64_t k = r; k < r + rows; k++) {
      int64_t at = base + red_offset(&p->reduced, k);
      red_row_f32(kind, acc, red_floats(p->dtype, in->data, at, n, buffer), largest, n);
    }
    if (in_groups) for (int64_t j = 0; j < n; j++) sum[j] += part[j];
  }
  if (in_groups) for (int64_t j = 0; j < n; j++) total[j] = (float)sum[j];
}

static void red_columns(const red_plan *p, int64_t base, int64_t n, int64_t out_at) {
  void *out = p->c->out[0].data;
  if (!red_is_float(p->dtype)) {
    for (int64_t j = 0; j < n; j++) red_integer(p, base + j, 1, out_at + j);
    return;
  }
  if (p->dtype == ER_F64) {
    const double *in = p->c->in[0].data;
    for (int64_t j = 0; j < n; j++) {
      double largest = 0, y = red_start(p->kind);
      if (p->kind == RED_LOGSUMEXP) {
        largest = -INFINITY;
        for (int64_t r = 0; r < p->reduced_rows; r++)
          largest = red_max(largest, in[base + j + red_offset(&p->reduced, r)]);
        largest = red_shift(largest);
      }
      for (int64_t r = 0; r < p->reduced_rows; r++)
        y = red_run_f64(p->kind, y, in + base + j + red_offset(&p->reduced, r), 1, largest);
      ((double *)out)[out_at + j] = red_finish(p->kind, y, largest, p->count);
    }
    return;
  }
  float total[RED_RUN], largest[RED_RUN];
  if (p->kind == RED_LOGSUMEXP) {
    red_columns_f32(p, RED_MAX, base, n, largest, NULL);
    for (int64_t j = 0; j < n; j++) largest[j] = (float)red_shift(largest[j]);
  }
  red_columns_f32(p, p->kind, base, n, total, largest);
  for (int64_t j = 0; j < n; j++)
    red_store_float(p->dtype, out, out_at + j,
                    (float)red_finish(p->kind, total[j], p->kind == RED_LOGSUMEXP ? largest[j] : 0, p->count));
}

static void red_task(void *context, int item, int thread) {
  (void)thread;
  const red_plan *p = context;
  int64_t from, to;
  float buffer[RED_RUN];
  nd_share(p->kept_rows * p->tiles, item, p->tasks, &from, &to);
  for (int64_t unit = from; unit < to; unit++) {
    int64_t row = unit / p->tiles, tile = unit % p->tiles, base = red_offset(&p->kept, row);
    if (p->columns) {
      int64_t first = tile * RED_RUN;
      red_columns(p, base + first, nd_min(RED_RUN, p->width - first), row * p->width + first);
    } else if (!red_is_float(p->dtype)) {
      red_integer(p, base, p->width, row);
    } else {
      double largest = 0;
      if (p->kind == RED_LOGSUMEXP) largest = red_shift(red_runs(p, RED_MAX, base, 0, buffer));
      double y = red_finish(p->kind, red_runs(p, p->kind, base, largest, buffer), largest, p->count);
      if (p->dtype == ER_F64) ((double *)p->c->out[0].data)[row] = y;
      else red_store_float(p->dtype, p->c->out[0].data, row, (float)y);
    }
  }
}

static void run_reduce(const er_call *c) {
  const er_view *in = &c->in[0];
  if (er_numel(&c->out[0]) == 0) return;
  red_plan p;
  memset(&p, 0, sizeof p);
  p.c = c;
  p.kind = c->param[0];
  p.dtype = in->dtype;
  int64_t dim[ER_MAX_RANK], stride[ER_MAX_RANK], step = 1;
  int reduced[ER_MAX_RANK], r = 0;
  for (int d = 0; d < in->rank; d++) {
    if (in->dim[d] == 1) continue;
    int is = c->param[1] >> d & 1;
    if (r && reduced[r - 1] == is) dim[r - 1] *= in->dim[d];
    else {
      reduced[r] = is;
      dim[r++] = in->dim[d];
    }
  }
  for (int d = r - 1; d >= 0; step *= dim[d], d--) stride[d] = step;
  p.width = r ? dim[r - 1] : 1;
  p.columns = r ? !reduced[r - 1] : 0;
  p.kept_rows = p.reduced_rows = 1;
  for (int d = 0; d < r - 1; d++) {
    red_axes *a = reduced[d] ? &p.reduced : &p.kept;
    a->dim[a->rank] = dim[d];
    a->stride[a->rank++] = stride[d];
    *(reduced[d] ? &p.reduced_rows : &p.kept_rows) *= dim[d];
  }
  p.count = p.reduced_rows * (p.columns ? 1 : p.width);
  p.tiles = p.columns ? (p.width + RED_RUN - 1) / RED_RUN : 1;
  p.tasks = nd_tasks(c, p.kept_rows * p.tiles, nd_max(1, er_numel(in) / (p.kept_rows * p.tiles)) * 2);
  er_parallel(c->pool, red_task, &p, p.tasks);
}
