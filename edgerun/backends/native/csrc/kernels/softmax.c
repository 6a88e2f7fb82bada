/* Softmax and its logarithm along an axis, f32 and f64. Parameters: axis, 1 = logarithm.
 * Along the last axis a row is read three times while it is in the cache; along others, columns are done 64 at a time.
 */
#include <math.h>
#include "nd.h"
#include "vmath.h"

#define SOFTMAX_COLUMNS 64

#ifdef ER_BASELINE_CHECKS
static int check_softmax(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 1 && c->n_out == 1 && c->n_param == 2, "softmax takes one tensor to another");
  const er_view *in = &c->in[0], *out = &c->out[0];
  ER_REQUIRE(c, in->dtype == out->dtype && (in->dtype == ER_F32 || in->dtype == ER_F64), "softmax: dtype %d",
             in->dtype);
  ER_REQUIRE(c, c->param[0] >= 0 && c->param[0] < in->rank, "softmax: there is no axis %d", c->param[0]);
  ER_REQUIRE(c, nd_same_shape(in, out) && er_is_dense(in) && er_is_dense(out), "softmax: input and output differ");
  return 0;
}
#endif

static float softmax_max(const float *x, int64_t n) {
  er_w a = er_splat_w(-INFINITY), b = a;
  float m = -INFINITY;
  int64_t i = 0;
  for (; i + 2 * ER_W <= n; i += 2 * ER_W) {
    a = er_max_w(a, er_load_w(x + i));
    b = er_max_w(b, er_load_w(x + i + ER_W));
  }
  for (; i + ER_W <= n; i += ER_W) a = er_max_w(a, er_load_w(x + i));
  for (; i < n; i++) m = er_max_s(m, x[i]);
  return er_max_s(m, er_max_lanes_w(er_max_w(a, b)));
}

/* y = e^(x - m) (y may be x, or NULL to keep nothing); returns the sum. */
static float softmax_exp(float *y, const float *x, int64_t n, float m) {
  er_w sum = er_splat_w(0);
  float rest = 0;
  int64_t i = 0;
  for (; i + ER_W <= n; i += ER_W) {
    er_w e = er_exp_fast_w(er_load_w(x + i) - m);
    sum += e;
    if (y) er_store_w(y + i, e);
  }
  if (i < n) {
    int part = (int)(n - i);
    er_w e = er_exp_fast_w(er_load_part_w(x + i, part) - m);
    if (y) er_store_part_w(y + i, e, part);
    float lanes[ER_W];
    er_store_w(lanes, e);
    for (int k = 0; k < part; k++) rest += lanes[k];
  }
  return rest + er_sum_lanes_w(sum);
}

static void softmax_row_f32(float *y, const float *x, int64_t n, int log_form) {
  float m = softmax_max(x, n), sum = softmax_exp(log_form ? NULL : y, x, n, m);
  if (log_form) {
    float shift = m == -INFINITY ? NAN : logf(sum);
    for (int64_t i = 0; i < n; i++) y[i] = x[i] - m - shift;
  } else {
    float scale = 1 / sum;
    for (int64_t i = 0; i < n; i++) y[i] *= scale;
  }
}

static void softmax_columns_f32(float *y, const float *x, int64_t n, int64_t step, int64_t columns, int log_form) {
  float m[SOFTMAX_COLUMNS], sum[SOFTMAX_COLUMNS];
  for (int64_t j = 0; j < columns; j++) {
    m[j] = -INFINITY;
    sum[j] = 0;
  }
  for (int64_t i = 0; i < n; i++) for (int64_t j = 0; j < columns; j++) m[j] = er_max_s(m[j], x[i * step + j]);
  for (int64_t i = 0; i < n; i++) {
    const float *row = x + i * step;
    float *to = y + i * step;
    int64_t j = 0;
    for (; j + ER_W <= columns; j += ER_W) {
      er_w d = er_load_w(row + j) - er_load_w(m + j), e = er_exp_fast_w(d);
      er_store_w(sum + j, er_load_w(sum + j) + e);
      er_store_w(to + j, log_form ? d : e);
    }
    for (; j < columns; j++) {
      float d = row[j] - m[j], e = er_exp_fast_s(d);
      sum[j] += e;
      to[j] = log_form ? d : e;
    }
  }
  for (int64_t j = 0; j < columns; j++) sum[j] = log_form ? logf(sum[j]) : 1 / sum[j];
  for (int64_t i = 0; i < n; i++) {
    float *to = y + i * step;
    if (log_form) for (int64_t j = 0; j < columns; j++) to[j] -= sum[j];
    else for (int64_t j = 0; j < columns; j++) to[j] *= sum[j];
  }
}

static void softmax_line_f64(double *y, const double *x, int64_t n, int64_t step, int log_form) {
  double m = -INFINITY, sum = 0;
  for (int64_t i = 0; i < n; i++) m = x[i * step] > m || x[i * step] != x[i * step] ? x[i * step] : m;
  for (int64_t i = 0; i < n; i++) sum += exp(x[i * step] - m);
  for (int64_t i = 0; i < n; i++) y[i * step] = log_form ? x[i * step] - m - log(sum) : exp(x[i * step] - m) / sum;
}

typedef struct { const er_call *c; int64_t outer, n, inner, tiles; int tasks; } softmax_plan;

static void softmax_task(void *context, int item, int thread) {
  (void)thread;
  const softmax_plan *p = context;
  const er_view *in = &p->c->in[0], *out = &p->c->out[0];
  int64_t from, to;
  nd_share(p->outer * p->tiles, item, p->tasks, &from, &to);
  for (int64_t unit = from; unit < to; unit++) {
    int64_t column = unit % p->tiles * SOFTMAX_COLUMNS, at = unit / p->tiles * p->n * p->inner + column;
    int64_t columns = nd_min(SOFTMAX_COLUMNS, p->inner - column);
    if (in->dtype == ER_F64) {
      for (int64_t j = 0; j < columns; j++)
        softmax_line_f64((double *)out->data + at + j, (const double *)in->data + at + j, p->n, p->inner,
                         p->c->param[1]);
    } else if (p->inner == 1) {
      softmax_row_f32((float *)out->data + at, (const float *)in->data + at, p->n, p->c->param[1]);
    } else {
      softmax_columns_f32((float *)out->data + at, (const float *)in->data + at, p->n, p->inner, columns,
                          p->c->param[1]);
    }
  }
}

static void run_softmax(const er_call *c) {
  const er_view *in = &c->in[0];
  int axis = c->param[0];
  if (er_numel(in) == 0) return;
  softmax_plan p = {c, nd_product(in, 0, axis), in->dim[axis], nd_product(in, axis + 1, in->rank), 1, 1};
  p.tiles = (p.inner + SOFTMAX_COLUMNS - 1) / SOFTMAX_COLUMNS;
  p.tasks = nd_tasks(c, p.outer * p.tiles, p.n * nd_min(p.inner, SOFTMAX_COLUMNS) * 8);
  er_parallel(c->pool, softmax_task, &p, p.tasks);
}
