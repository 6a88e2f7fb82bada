/* Resizing along one axis at a time, by a table of the cells that each output cell reads and their weights.
 *
 * resize_table: -> index i32 [m * taps], weight f32 [m * taps]. Output cell i lies at (first + i * delta) / denominator
 * of the input. Parameters: n, m, first, delta, denominator, mode (0 nearest, 1 linear, 2 cubic), rounding of nearest
 * (0 prefer floor, 1 prefer ceil, 2 floor, 3 ceil), cubic coefficient, exclude_outside, 1 = a single output cell lies
 * at 0. */
#include "nd.h"
#include "vmath.h"

enum {
  RT_N,
  RT_M,
  RT_FIRST,
  RT_DELTA,
  RT_DENOMINATOR,
  RT_MODE,
  RT_NEAREST,
  RT_CUBIC,
  RT_EXCLUDE,
  RT_SINGLE,
  RT_PARAMS
};
static const int resize_taps[] = {1, 2, 4};

#ifdef ER_BASELINE_CHECKS
static int check_resize_table(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 0 && c->n_out == 2 && c->n_param == RT_PARAMS, "resize_table: bad call");
  ER_REQUIRE(c,
             c->param[RT_N] >= 0 && c->param[RT_M] >= 0 && c->param[RT_DENOMINATOR] > 0 &&
                 (c->param[RT_N] > 0 || c->param[RT_M] == 0),
             "resize_table: bad sizes");
  ER_REQUIRE(c,
             c->param[RT_MODE] >= 0 && c->param[RT_MODE] <= 2 && c->param[RT_NEAREST] >= 0 && c->param[RT_NEAREST] <= 3,
             "resize_table: bad mode");
  int64_t total = (int64_t)c->param[RT_M] * resize_taps[c->param[RT_MODE]];
  ER_REQUIRE(c,
             c->out[0].dtype == ER_I32 && c->out[1].dtype == ER_F32 && er_numel(&c->out[0]) == total &&
                 er_numel(&c->out[1]) == total && er_is_dense(&c->out[0]) && er_is_dense(&c->out[1]),
             "resize_table: bad outputs");
  return 0;
}
#endif

static int64_t resize_floor(int64_t a, int64_t b) { return a / b - (a % b < 0); } /* b > 0 */

/* Keys' cubic convolution kernel with parameter a at distance d. */
static float resize_cubic(float d, float a) {
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? a * (((d - 5) * d + 8) * d - 4) : 0;
}

static void run_resize_table(const er_call *c) {
  const int32_t *p = c->param;
  int64_t n = p[RT_N], m = p[RT_M], denominator = p[RT_DENOMINATOR];
  int taps = resize_taps[p[RT_MODE]];
  int32_t *index = c->out[0].data;
  float *weight = c->out[1].data;
  for (int64_t i = 0; i < m; i++, index += taps, weight += taps) {
    int64_t x = m == 1 && p[RT_SINGLE] ? 0 : p[RT_FIRST] + i * p[RT_DELTA], low = resize_floor(x, denominator), at[4];
    float fraction = (float)((double)(x - low * denominator) / (double)denominator), sum = 0;
    if (taps == 1) {
      if (p[RT_NEAREST] == 0) at[0] = -resize_floor(denominator - 2 * x, 2 * denominator);
      else if (p[RT_NEAREST] == 1) at[0] = resize_floor(2 * x + denominator, 2 * denominator);
      else at[0] = p[RT_NEAREST] == 2 ? low : -resize_floor(-x, denominator);
      weight[0] = 1;
    } else {
      for (int k = 0; k < taps; k++) {
        at[k] = low + k - (taps / 2 - 1);
        float d = (float)(k - (taps / 2 - 1)) - fraction;
        d = d < 0 ? -d : d;
        weight[k] = taps == 2 ? 1 - d : resize_cubic(d, er_param_f32(c, RT_CUBIC));
        if (p[RT_EXCLUDE] && (at[k] < 0 || at[k] >= n)) weight[k] = 0;
        sum += weight[k];
      }
      if (p[RT_EXCLUDE]) for (int k = 0; k < taps; k++) weight[k] /= sum;
    }
    for (int k = 0; k < taps; k++) index[k] = (int32_t)nd_max(0, nd_min(n - 1, at[k]));
  }
}

/* resize_axis: x, index i32 [m, taps], weight [m, taps] of x's dtype (f32 or f64) -> y; y[.., i, ..] is the weighted
 * sum of x[.., index[i][k], ..]. Parameter: axis. */
#ifdef ER_BASELINE_CHECKS
static int check_resize_axis(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 3 && c->n_out == 1 && c->n_param == 1, "resize_axis: bad call");
  const er_view *x = &c->in[0], *index = &c->in[1], *weight = &c->in[2], *y = &c->out[0];
  int axis = c->param[0];
  ER_REQUIRE(c, axis >= 0 && axis < x->rank && y->rank == x->rank && x->dtype == y->dtype,
             "resize_axis: bad axis or output");
  ER_REQUIRE(c, (x->dtype == ER_F32 || x->dtype == ER_F64) && weight->dtype == x->dtype && index->dtype == ER_I32,
             "resize_axis: bad dtypes");
  for (int d = 0; d < x->rank; d++)
    ER_REQUIRE(c, d == axis || x->dim[d] == y->dim[d], "resize_axis: dim %d differs", d);
  ER_REQUIRE(c, index->rank == 2 && nd_same_shape(index, weight) && index->dim[0] == y->dim[axis] && index->dim[1] > 0,
             "resize_axis: bad table");
  ER_REQUIRE(c, x->dim[axis] > 0 || er_numel(y) == 0, "resize_axis of an empty axis");
  ER_REQUIRE(c, er_is_dense(x) && er_is_dense(index) && er_is_dense(weight) && er_is_dense(y),
             "resize_axis takes dense tensors");
  return 0;
}
#endif

typedef struct { const er_call *c; int64_t outer, n, m, inner, taps; int tasks; } resize_plan;

static int64_t resize_cell(const resize_plan *p, int64_t i, int64_t k) {
  return nd_max(0, nd_min(p->n - 1, ((const int32_t *)p->c->in[1].data)[i * p->taps + k]));
}

static void resize_row_f32(const resize_plan *p, float *y, const float *x, int64_t i) {
  const float *w = (const float *)p->c->in[2].data + i * p->taps;
  if (p->taps == 2) {
    const float *a = x + resize_cell(p, i, 0) * p->inner, *b = x + resize_cell(p, i, 1) * p->inner;
    for (int64_t j = 0; j < p->inner; j++) y[j] = a[j] * w[0] + b[j] * w[1];
    return;
  }
  for (int64_t j = 0; j < p->inner; j++) y[j] = 0;
  for (int64_t k = 0; k < p->taps; k++) {
    const float *a = x + resize_cell(p, i, k) * p->inner;
    for (int64_t j = 0; j < p->inner; j++) y[j] += a[j] * w[k];
  }
}

static void resize_task(void *context, int item, int thread) {
  (void)thread;
  const resize_plan *p = context;
  int64_t from, to;
  nd_share(p->outer * p->m, item, p->tasks, &from, &to);
  for (int64_t row = from; row < to; row++) {
    int64_t o = row / p->m, i = row % p->m;
    if (p->c->in[0].dtype == ER_F32) {
      resize_row_f32(p, (float *)p->c->out[0].data + row * p->inner,
                     (const float *)p->c->in[0].data + o * p->n * p->inner, i);
      continue;
    }
    const double *x = (const double *)p->c->in[0].data + o * p->n * p->inner,
                 *w = (const double *)p->c->in[2].data + i * p->taps;
    double *y = (double *)p->c->out[0].data + row * p->inner;
    for (int64_t j = 0; j < p->inner; j++) {
      double sum = 0;
      for (int64_t k = 0; k < p->taps; k++) sum += x[resize_cell(p, i, k) * p->inner + j] * w[k];
      y[j] = sum;
    }
  }
}

static void run_resize_axis(const er_call *c) {
  const er_view *x = &c->in[0];
  int axis = c->param[0];
  if (er_numel(&c->out[0]) == 0) return;
  resize_plan p = {
      c, nd_product(x, 0, axis), x->dim[axis], c->out[0].dim[axis], nd_product(x, axis + 1, x->rank), c->in[1].dim[1],
      1};
  p.tasks = nd_tasks(c, p.outer * p.m, p.inner * p.taps * 2);
  er_parallel(c->pool, resize_task, &p, p.tasks);
}
