/* Normalisation over rows (layer norm, RMS norm) and over groups of channels (channels last), f32 and f64.
 * Means and variances take two passes over the data, so that they do not cancel. */
#include <math.h>
#include "nd.h"
#include "vmath.h"

#ifdef ER_BASELINE_CHECKS
/* Input k is absent, or of the input's dtype with n elements. */
static int norm_fits(const er_call *c, int k, int64_t n) {
  if (k >= c->n_in || !c->in[k].data) return 1;
  return c->in[k].dtype == c->in[0].dtype && er_numel(&c->in[k]) == n && er_is_dense(&c->in[k]);
}
static int norm_check(const er_call *c) {
  ER_REQUIRE(c, c->n_in >= 1 && c->n_out >= 1 && c->n_param >= 2, "norm: bad call");
  const er_view *in = &c->in[0], *out = &c->out[0];
  ER_REQUIRE(c, in->dtype == out->dtype && (in->dtype == ER_F32 || in->dtype == ER_F64), "norm: dtype %d", in->dtype);
  ER_REQUIRE(c, nd_same_shape(in, out) && er_is_dense(in) && er_is_dense(out), "norm: input and output differ");
  return 0;
}
static int norm_check_rows(const er_call *c) {
  if (norm_check(c)) return 1;
  const er_view *in = &c->in[0];
  ER_REQUIRE(c, c->param[0] >= 0 && c->param[0] < in->rank, "norm: there is no axis %d", c->param[0]);
  int64_t rows = nd_product(in, 0, c->param[0]), n = nd_product(in, c->param[0], in->rank);
  ER_REQUIRE(c, norm_fits(c, 1, n) && norm_fits(c, 2, n), "norm: scale and bias need %lld elements", (long long)n);
  for (int k = 1; k < c->n_out; k++)
    if (c->out[k].data)
      ER_REQUIRE(c, er_numel(&c->out[k]) == rows && c->out[k].dtype == ER_F32, "norm: bad statistics output");
  return 0;
}
static int check_layer_norm(const er_call *c) { return norm_check_rows(c); }
static int check_rms_norm(const er_call *c) { return norm_check_rows(c); }
static int check_group_norm(const er_call *c) {
  if (norm_check(c)) return 1;
  const er_view *in = &c->in[0];
  int64_t channels = in->rank ? in->dim[in->rank - 1] : 0, groups = c->param[0];
  ER_REQUIRE(c, in->rank >= 2 && groups > 0 && channels % groups == 0, "group_norm: %lld channels",
             (long long)channels);
  ER_REQUIRE(c, norm_fits(c, 1, channels) && norm_fits(c, 2, channels), "group_norm: scale and bias need %lld elements",
             (long long)channels);
  return 0;
}
#endif

static float norm_sum(const float *x, int64_t n) {
  er_w a = er_splat_w(0), b = a;
  float rest = 0;
  int64_t i = 0;
  for (; i + 2 * ER_W <= n; i += 2 * ER_W) {
    a += er_load_w(x + i);
    b += er_load_w(x + i + ER_W);
  }
  for (; i < n; i++) rest += x[i];
  return rest + er_sum_lanes_w(a + b);
}
/* Sum of (x - mean)^2. */
static float norm_sum_squares(const float *x, int64_t n, float mean) {
  er_w a = er_splat_w(0), b = a;
  float rest = 0;
  int64_t i = 0;
  for (; i + 2 * ER_W <= n; i += 2 * ER_W) {
    er_w u = er_load_w(x + i) - mean, v = er_load_w(x + i + ER_W) - mean;
    a += u * u;
    b += v * v;
  }
  for (; i < n; i++) rest += (x[i] - mean) * (x[i] - mean);
  return rest + er_sum_lanes_w(a + b);
}

typedef struct { const er_call *c; int64_t rows, n; int tasks, centred; } norm_plan;

static void norm_rows_task(void *context, int item, int thread) {
  (void)thread;
  const norm_plan *p = context;
  const er_call *c = p->c;
  int64_t from, to, n = p->n;
  const void *scale = c->n_in > 1 ? c->in[1].data : NULL, *bias = c->n_in > 2 ? c->in[2].data : NULL;
  float epsilon = er_param_f32(c, 1);
  nd_share(p->rows, item, p->tasks, &from, &to);
  for (int64_t row = from; row < to; row++) {
    double mean = 0, inverse;
    if (c->in[0].dtype == ER_F32) {
      const float *x = (const float *)c->in[0].data + row * n, *s = scale, *b = bias;
      float *y = (float *)c->out[0].data + row * n;
      float m = p->centred ? norm_sum(x, n) / (float)n : 0;
      float r = 1 / sqrtf(norm_sum_squares(x, n, m) / (float)n + epsilon);
      if (s && b) for (int64_t i = 0; i < n; i++) y[i] = (x[i] - m) * r * s[i] + b[i];
      else if (s) for (int64_t i = 0; i < n; i++) y[i] = (x[i] - m) * r * s[i];
      else for (int64_t i = 0; i < n; i++) y[i] = (x[i] - m) * r + (b ? b[i] : 0);
      mean = m;
      inverse = r;
    } else {
      const double *x = (const double *)c->in[0].data + row * n, *s = scale, *b = bias;
      double *y = (double *)c->out[0].data + row * n, squares = 0;
      if (p->centred) for (int64_t i = 0; i < n; i++) mean += x[i];
      mean /= (double)n;
      for (int64_t i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
      inverse = 1 / sqrt(squares / (double)n + epsilon);
      for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * inverse * (s ? s[i] : 1) + (b ? b[i] : 0);
    }
    if (c->n_out > 1 && c->out[1].data) ((float *)c->out[1].data)[row] = (float)mean;
    if (c->n_out > 2 && c->out[2].data) ((float *)c->out[2].data)[row] = (float)inverse;
  }
}

static void norm_rows(const er_call *c, int centred) {
  const er_view *in = &c->in[0];
  norm_plan p = {c, nd_product(in, 0, c->param[0]), nd_product(in, c->param[0], in->rank), 1, centred};
  if (p.rows == 0 || p.n == 0) return;
  p.tasks = nd_tasks(c, p.rows, 4 * p.n);
  er_parallel(c->pool, norm_rows_task, &p, p.tasks);
}
/* layer_norm: x, scale?, bias? -> y, mean?, 1 / deviation?. Parameters: first normalised axis, epsilon. */
static void run_layer_norm(const er_call *c) { norm_rows(c, 1); }
/* rms_norm: the same without the mean. */
static void run_rms_norm(const er_call *c) { norm_rows(c, 0); }

/* group_norm: x [N, ..., C], scale [C]?, bias [C]? -> y. Parameters: groups, epsilon. A task is a group of a sample. */
static void norm_group_task(void *context, int item, int thread) {
  (void)thread;
  const norm_plan *p = context;
  const er_call *c = p->c;
  const er_view *in = &c->in[0];
  int64_t channels = in->dim[in->rank - 1], groups = c->param[0], width = channels / groups, rows = p->n;
  float epsilon = er_param_f32(c, 1);
  int64_t first = item / groups * rows * channels + item % groups * width, channel = item % groups * width;
  double count = (double)(rows * width), sum = 0, squares = 0;
  if (in->dtype == ER_F32) {
    const float *x = (const float *)in->data + first, *s = c->n_in > 1 ? c->in[1].data : NULL,
                *b = c->n_in > 2 ? c->in[2].data : NULL;
    float *y = (float *)c->out[0].data + first;
    if (width < ER_W) {
      for (int64_t r = 0; r < rows; r++) for (int64_t j = 0; j < width; j++) sum += x[r * channels + j];
      double m = sum / count;
      for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < width; j++) squares += (x[r * channels + j] - m) * (x[r * channels + j] - m);
    } else {
      for (int64_t r = 0; r < rows; r++) sum += norm_sum(x + r * channels, width);
      float m = (float)(sum / count);
      for (int64_t r = 0; r < rows; r++) squares += norm_sum_squares(x + r * channels, width, m);
    }
    float m = (float)(sum / count), inverse = (float)(1 / sqrt(squares / count + epsilon));
    for (int64_t r = 0; r < rows; r++)
      for (int64_t j = 0; j < width; j++)
        y[r * channels + j] =
            (x[r * channels + j] - m) * (inverse * (s ? s[channel + j] : 1)) + (b ? b[channel + j] : 0);
  } else {
    const double *x = (const double *)in->data + first, *s = c->n_in > 1 ? c->in[1].data : NULL,
                 *b = c->n_in > 2 ? c->in[2].data : NULL;
    double *y = (double *)c->out[0].data + first;
    for (int64_t r = 0; r < rows; r++) for (int64_t j = 0; j < width; j++) sum += x[r * channels + j];
    double m = sum / count;
    for (int64_t r = 0; r < rows; r++)
      for (int64_t j = 0; j < width; j++) squares += (x[r * channels + j] - m) * (x[r * channels + j] - m);
    double inverse = 1 / sqrt(squares / count + epsilon);
    for (int64_t r = 0; r < rows; r++)
      for (int64_t j = 0; j < width; j++)
        y[r * channels + j] = (x[r * channels + j] - m) * inverse * (s ? s[channel + j] : 1) + (b ? b[channel + j] : 0);
  }
}

static void run_group_norm(const er_call *c) {
  const er_view *in = &c->in[0];
  if (er_numel(in) == 0) return;
  norm_plan p = {c, in->dim[0] * c->param[0], nd_product(in, 1, in->rank - 1), 0, 0};
  er_parallel(c->pool, norm_group_task, &p, (int)p.rows);
}
