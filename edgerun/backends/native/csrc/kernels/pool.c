/* Pooling, channels last, over 1 to 3 spatial dims: x [N, *S, C] -> y [N, *T, C].
 * Parameters: kind, spatial rank, then for each spatial dim (kernel, stride, pad begin, pad end, dilation), then
 * count_include_pad, p. T comes from the output, so ceil_mode needs no flag: windows are cut at the padded border. */
#include <math.h>
#include "nd.h"
#include "vmath.h"

enum pool_kind { POOL_MAX, POOL_AVERAGE, POOL_LP };

#ifdef ER_BASELINE_CHECKS
static int check_pool(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 1 && c->n_out == 1 && c->n_param >= 2, "pool takes one tensor to another");
  const er_view *in = &c->in[0], *out = &c->out[0];
  int spatial = c->param[1];
  ER_REQUIRE(c, spatial >= 1 && spatial <= 3 && c->n_param == 4 + 5 * spatial, "pool: bad parameters");
  ER_REQUIRE(c, in->rank == spatial + 2 && out->rank == in->rank && in->dtype == out->dtype,
             "pool: input and output differ");
  ER_REQUIRE(c, in->dim[0] == out->dim[0] && in->dim[in->rank - 1] == out->dim[in->rank - 1],
             "pool: batch or channels differ");
  ER_REQUIRE(c, er_is_dense(in) && er_is_dense(out), "pool takes dense tensors");
  ER_REQUIRE(c, c->param[0] >= POOL_MAX && c->param[0] <= POOL_LP, "pool: there is no kind %d", c->param[0]);
  int max = c->param[0] == POOL_MAX;
  ER_REQUIRE(c, in->dtype == ER_F32 || in->dtype == ER_F64 || (max && (in->dtype == ER_I8 || in->dtype == ER_U8)),
             "pool: dtype %d", in->dtype);
  for (int d = 0; d < spatial; d++) {
    const int32_t *w = c->param + 2 + 5 * d;
    ER_REQUIRE(c, w[0] > 0 && w[1] > 0 && w[4] > 0 && w[0] <= 1 << 20 && w[1] <= 1 << 20 && w[4] <= 1 << 20,
               "pool: bad window");
  }
  ER_REQUIRE(c, c->param[3 + 5 * spatial] > 0, "pool: p must be positive");
  return 0;
}
#endif

typedef struct { int64_t size, out, kernel, stride, before, after, dilation; } pool_dim;
typedef struct {
  const er_call *c;
  int kind, include_pad, p, tasks;
  pool_dim d[3];
  int64_t channels, rows; /* rows of output pixels */
} pool_plan;

/* Window of output index o: taps [*first, *last) of the kernel lie in the input; returns the taps in the padded input.
 */
static int64_t pool_window(const pool_dim *d, int64_t o, int64_t *first, int64_t *last) {
  int64_t at = o * d->stride - d->before;
  *first = at < 0 ? (-at + d->dilation - 1) / d->dilation : 0;
  *last = at >= d->size ? 0 : nd_min(d->kernel, (d->size - at + d->dilation - 1) / d->dilation);
  if (*last < *first) *last = *first;
  int64_t limit = d->size + d->after;
  return at >= limit ? 0 : nd_min(d->kernel, (limit - at + d->dilation - 1) / d->dilation);
}

/* One output pixel: taps first..last of each dim, x at the first tap of all. */
typedef struct { int64_t n[3], step[3]; int64_t divisor; } pool_taps;

#define POOL_EACH(...) \
  for (int64_t a = 0; a < t->n[0]; a++) \
    for (int64_t b = 0; b < t->n[1]; b++) { \
      const POOL_T *q = x + a * t->step[0] + b * t->step[1]; \
      for (int64_t k = 0; k < t->n[2]; k++, q += t->step[2]) { __VA_ARGS__; } \
    }

#define POOL_T float
/* The usual window, all of it inside, for whole vectors of channels: returns how many channels it did. A NaN among the nine
 * is found by one comparison each, off the chain of maxima. */
static int64_t pool_max_3x3(float *y, const float *x, int64_t row, int64_t pixel, int64_t channels) {
  int64_t c = 0;
  for (; c + ER_W <= channels; c += ER_W) {
    const float *q = x + c;
    er_w m = er_load_w(q);
    er_wi odd = (er_wi)(m != m);
#pragma GCC unroll 9
    for (int i = 1; i < 9; i++) {
      er_w v = er_load_w(q + i / 3 * row + i % 3 * pixel);
      odd |= (er_wi)(v != v);
      m = er_select_w((er_wi)(v > m), v, m);
    }
    er_store_w(y + c, er_select_w(odd, er_splat_w(NAN), m));
  }
  return c;
}

static void pool_max_f32(float *y, const float *x, const pool_taps *t, int64_t channels) {
  int64_t c = 0;
  if (t->n[0] == 1 && t->n[1] == 3 && t->n[2] == 3) {
    c = pool_max_3x3(y, x, t->step[1], t->step[2], channels);
    x += c;
  }
  for (; c + ER_W <= channels; c += ER_W, x += ER_W) {
    er_w m = er_splat_w(-INFINITY);
    POOL_EACH(m = er_max_w(m, er_load_w(q)))
    er_store_w(y + c, m);
  }
  for (; c < channels; c++, x++) {
    float m = -INFINITY;
    POOL_EACH(m = er_max_s(m, *q))
    y[c] = m;
  }
}
static void pool_average_f32(float *y, const float *x, const pool_taps *t, int64_t channels) {
  float scale = 1 / (float)t->divisor;
  int64_t c = 0;
  for (; c + ER_W <= channels; c += ER_W, x += ER_W) {
    er_w sum = er_splat_w(0);
    POOL_EACH(sum += er_load_w(q))
    er_store_w(y + c, sum * scale);
  }
  for (; c < channels; c++, x++) {
    float sum = 0;
    POOL_EACH(sum += *q)
    y[c] = sum * scale;
  }
}
static void pool_lp_f32(float *y, const float *x, const pool_taps *t, int64_t channels, int p) {
  for (int64_t c = 0; c < channels; c++, x++) {
    float sum = 0;
    if (p == 1) { POOL_EACH(sum += fabsf(*q)) }
    else if (p == 2) { POOL_EACH(sum += *q * *q) }
    else { POOL_EACH(sum += powf(fabsf(*q), (float)p)) }
    y[c] = p == 1 ? sum : p == 2 ? sqrtf(sum) : powf(sum, 1 / (float)p);
  }
}
#undef POOL_T
#define POOL_T double
static void pool_f64(int kind, double *y, const double *x, const pool_taps *t, int64_t channels, int p) {
  for (int64_t c = 0; c < channels; c++, x++) {
    double v = kind == POOL_MAX ? -INFINITY : 0;
    if (kind == POOL_MAX) { POOL_EACH(v = *q > v || *q != *q ? *q : v) }
    else if (kind == POOL_AVERAGE) { POOL_EACH(v += *q) }
    else { POOL_EACH(v += pow(fabs(*q), p)) }
    y[c] = kind == POOL_MAX ? v : kind == POOL_AVERAGE ? v / (double)t->divisor : pow(v, 1.0 / p);
  }
}
#undef POOL_T
#define POOL_T int8_t
static void pool_max_i8(int8_t *y, const int8_t *x, const pool_taps *t, int64_t channels) {
  memset(y, 0x80, (size_t)channels);
  POOL_EACH(for (int64_t c = 0; c < channels; c++) y[c] = y[c] > q[c] ? y[c] : q[c])
}
#undef POOL_T
#define POOL_T uint8_t
static void pool_max_u8(uint8_t *y, const uint8_t *x, const pool_taps *t, int64_t channels) {
  memset(y, 0, (size_t)channels);
  POOL_EACH(for (int64_t c = 0; c < channels; c++) y[c] = y[c] > q[c] ? y[c] : q[c])
}
#undef POOL_T

static void pool_task(void *context, int item, int thread) {
  (void)thread;
  const pool_plan *p = context;
  const er_view *in = &p->c->in[0], *out = &p->c->out[0];
  const pool_dim *d = p->d;
  int64_t from, to, channels = p->channels, size = er_itemsize(in->dtype);
  nd_share(p->rows, item, p->tasks, &from, &to);
  for (int64_t row = from; row < to; row++) {
    int64_t o[2] = {row / d[1].out % d[0].out, row % d[1].out}, batch = row / d[1].out / d[0].out;
    pool_taps t;
    int64_t count = 1, at = batch;
    for (int k = 0; k < 2; k++) {
      int64_t first, last, padded = pool_window(&d[k], o[k], &first, &last);
      t.n[k] = last - first;
      count *= p->include_pad ? padded : t.n[k];
      at = at * d[k].size + o[k] * d[k].stride - d[k].before + first * d[k].dilation;
    }
    t.step[2] = d[2].dilation * channels;
    t.step[1] = d[1].dilation * d[2].size * channels;
    t.step[0] = d[0].dilation * d[1].size * d[2].size * channels;
    for (int64_t w = 0; w < d[2].out; w++) {
      int64_t first, last, padded = pool_window(&d[2], w, &first, &last);
      t.n[2] = last - first;
      t.divisor = count * (p->include_pad ? padded : t.n[2]);
      int64_t x_at = at * d[2].size + w * d[2].stride - d[2].before + first * d[2].dilation;
      if (t.n[0] <= 0 || t.n[1] <= 0 || t.n[2] <= 0) x_at = t.n[2] = 0; /* nothing is read */
      const char *x = (const char *)in->data + x_at * channels * size;
      char *y = (char *)out->data + (row * d[2].out + w) * channels * size;
      switch (in->dtype) {
        case ER_F64: pool_f64(p->kind, (double *)y, (const double *)x, &t, channels, p->p); break;
        case ER_I8: pool_max_i8((int8_t *)y, (const int8_t *)x, &t, channels); break;
        case ER_U8: pool_max_u8((uint8_t *)y, (const uint8_t *)x, &t, channels); break;
        default:
          if (p->kind == POOL_MAX) pool_max_f32((float *)y, (const float *)x, &t, channels);
          else if (p->kind == POOL_AVERAGE) pool_average_f32((float *)y, (const float *)x, &t, channels);
          else pool_lp_f32((float *)y, (const float *)x, &t, channels, p->p);
      }
    }
  }
}

static void run_pool(const er_call *c) {
  const er_view *in = &c->in[0], *out = &c->out[0];
  int spatial = c->param[1], lead = 3 - spatial;
  if (er_numel(out) == 0) return;
  pool_plan p = {c, c->param[0], c->param[2 + 5 * spatial], c->param[3 + 5 * spatial],
                 1, {{0}},       in->dim[in->rank - 1],     0};
  int64_t taps = 1;
  for (int k = 0; k < lead; k++) p.d[k] = (pool_dim){1, 1, 1, 1, 0, 0, 1};
  for (int k = 0; k < spatial; k++) {
    const int32_t *w = c->param + 2 + 5 * k;
    p.d[lead + k] = (pool_dim){in->dim[1 + k], out->dim[1 + k], w[0], w[1], w[2], w[3], w[4]};
    taps *= w[0];
  }
  p.rows = out->dim[0] * p.d[0].out * p.d[1].out;
  p.tasks = nd_tasks(c, p.rows, p.d[2].out * p.channels * taps);
  er_parallel(c->pool, pool_task, &p, p.tasks);
}

#ifndef ER_WIDE_ONLY
/* Largest of each window and where it was, as ONNX counts positions: in the channels-first input of the whole batch,
 * row- or column-major in space. x -> y, indices (i64). Parameters as pool, then storage_order. f32, f64, i8, u8. */
#ifdef ER_BASELINE_CHECKS
static int check_max_pool_indices(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 1 && c->n_out == 2 && c->n_param >= 7 && c->param[0] == POOL_MAX,
             "max_pool_indices: bad call");
  er_call plain = *c;
  plain.n_out = 1;
  plain.n_param--;
  if (check_pool(&plain)) return 1;
  ER_REQUIRE(c, c->out[1].dtype == ER_I64 && nd_same_shape(&c->out[0], &c->out[1]),
             "max_pool_indices: bad index output");
  ER_REQUIRE(c, er_is_dense(&c->out[1]), "max_pool_indices gives dense tensors");
  return 0;
}
#endif

static double pool_value(int dtype, const void *data, int64_t at) {
  switch (dtype) {
    case ER_F64: return ((const double *)data)[at];
    case ER_I8: return ((const int8_t *)data)[at];
    case ER_U8: return ((const uint8_t *)data)[at];
    default: return ((const float *)data)[at];
  }
}

static void pool_indices_task(void *context, int item, int thread) {
  (void)thread;
  const pool_plan *p = context;
  const er_view *in = &p->c->in[0], *out = &p->c->out[0];
  const pool_dim *d = p->d;
  int64_t from, to, channels = p->channels, space = d[0].size * d[1].size * d[2].size;
  int column_major = p->c->param[p->c->n_param - 1];
  nd_share(p->rows * d[2].out, item, p->tasks, &from, &to);
  for (int64_t pixel = from; pixel < to; pixel++) {
    int64_t first[3], last[3], rest = pixel;
    for (int k = 2; k >= 0; k--) {
      int64_t o = rest % d[k].out;
      rest /= d[k].out;
      pool_window(&d[k], o, &first[k], &last[k]);
      first[k] = o * d[k].stride - d[k].before + first[k] * d[k].dilation;
      last[k] = o * d[k].stride - d[k].before + last[k] * d[k].dilation;
    }
    for (int64_t c = 0; c < channels; c++) {
      double best = -INFINITY;
      int64_t where = -1;
      for (int64_t a = first[0]; a < last[0]; a += d[0].dilation)
        for (int64_t b = first[1]; b < last[1]; b += d[1].dilation)
          for (int64_t k = first[2]; k < last[2]; k += d[2].dilation) {
            double v =
                pool_value(in->dtype, in->data, (rest * space + (a * d[1].size + b) * d[2].size + k) * channels + c);
            if (where >= 0 && !(v > best || (v != v && best == best))) continue;
            best = v;
            where = column_major ? (k * d[1].size + b) * d[0].size + a : (a * d[1].size + b) * d[2].size + k;
          }
      int64_t at = pixel * channels + c;
      switch (in->dtype) {
        case ER_F64: ((double *)out->data)[at] = best; break;
        case ER_I8:
        case ER_U8:
          ((uint8_t *)out->data)[at] = (uint8_t)(int)(where < 0 ? (in->dtype == ER_I8 ? -128 : 0) : best);
          break;
        default: ((float *)out->data)[at] = (float)best;
      }
      ((int64_t *)p->c->out[1].data)[at] = where < 0 ? 0 : (rest * channels + c) * space + where;
    }
  }
}

static void run_max_pool_indices(const er_call *c) {
  const er_view *in = &c->in[0], *out = &c->out[0];
  int spatial = c->param[1], lead = 3 - spatial;
  if (er_numel(out) == 0) return;
  pool_plan p = {c, POOL_MAX, 0, 2, 1, {{0}}, in->dim[in->rank - 1], 0};
  for (int k = 0; k < lead; k++) p.d[k] = (pool_dim){1, 1, 1, 1, 0, 0, 1};
  for (int k = 0; k < spatial; k++) {
    const int32_t *w = c->param + 2 + 5 * k;
    p.d[lead + k] = (pool_dim){in->dim[1 + k], out->dim[1 + k], w[0], w[1], w[2], w[3], w[4]};
  }
  p.rows = out->dim[0] * p.d[0].out * p.d[1].out;
  p.tasks = nd_tasks(c, p.rows * p.d[2].out, p.channels * 32);
  er_parallel(c->pool, pool_indices_task, &p, p.tasks);
}

/* lrn: x / (bias + alpha / size * sum of squares over `size` neighbouring channels)^beta, channels last, f32.
 * Parameters: size, alpha, beta, bias. */
#ifdef ER_BASELINE_CHECKS
static int check_lrn(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 1 && c->n_out == 1 && c->n_param == 4 && c->param[0] > 0, "lrn: bad parameters");
  const er_view *in = &c->in[0], *out = &c->out[0];
  ER_REQUIRE(c, in->dtype == ER_F32 && out->dtype == ER_F32 && in->rank >= 1 && nd_same_shape(in, out),
             "lrn takes f32");
  ER_REQUIRE(c, er_is_dense(in) && er_is_dense(out), "lrn takes dense tensors");
  return 0;
}
#endif

typedef struct { const er_call *c; int64_t rows; int tasks; } lrn_plan;
static void lrn_task(void *context, int item, int thread) {
  (void)thread;
  const lrn_plan *p = context;
  const er_call *c = p->c;
  int64_t from, to, n = c->in[0].dim[c->in[0].rank - 1], size = c->param[0], before = (size - 1) / 2, after = size / 2;
  float alpha = er_param_f32(c, 1) / (float)size, beta = er_param_f32(c, 2), bias = er_param_f32(c, 3);
  nd_share(p->rows, item, p->tasks, &from, &to);
  for (int64_t row = from; row < to; row++) {
    const float *x = (const float *)c->in[0].data + row * n;
    float *y = (float *)c->out[0].data + row * n;
    for (int64_t i = 0; i < n; i++) {
      float sum = 0;
      for (int64_t k = nd_max(0, i - before); k < nd_min(n, i + after + 1); k++) sum += x[k] * x[k];
      y[i] = x[i] * er_exp_s(-beta * er_log_s(bias + alpha * sum));
    }
  }
}
static void run_lrn(const er_call *c) {
  const er_view *in = &c->in[0];
  if (er_numel(in) == 0) return;
  lrn_plan p = {c, nd_product(in, 0, in->rank - 1), 1};
  p.tasks = nd_tasks(c, p.rows, in->dim[in->rank - 1] * (8 + c->param[0]));
  er_parallel(c->pool, lrn_task, &p, p.tasks);
}
#endif
