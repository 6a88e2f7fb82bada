/* Convolution of any rank from 1 to 3, channels last, tap by tap: the kernel for everything the fast ones do not take.
 *
 *   conv_direct_f32: x [N, *S, C], w [O, *K, C / group], bias [O], residual, slope -> y [N, *T, O]
 *   parameters: spatial rank r, group, act, p0, p1, res, then r each of: stride, pad before, pad after, dilation
 */
#include "gemm.h"

enum { CD_RANK, CD_GROUP, CD_ACT, CD_P0, CD_P1, CD_RES, CD_STRIDE };

#ifdef ER_BASELINE_CHECKS
static int check_conv_direct_f32(const er_call *c) {
  const int32_t *p = c->param;
  ER_REQUIRE(c, c->n_in == 5 && c->n_out == 1 && c->n_param >= CD_STRIDE, "a convolution has 5 inputs and one output");
  int r = p[CD_RANK];
  ER_REQUIRE(c, r >= 1 && r <= 3 && c->n_param == CD_STRIDE + 4 * r, "a convolution of spatial rank %d", r);
  const er_view *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
  ER_REQUIRE(c, x->data && w->data && y->data && x->dtype == ER_F32 && w->dtype == ER_F32 && y->dtype == ER_F32, "a convolution of f32");
  ER_REQUIRE(c, x->rank == r + 2 && w->rank == r + 2 && y->rank == r + 2, "convolution ranks differ");
  ER_REQUIRE(c, er_is_dense(x) && er_is_dense(w) && er_is_dense(y), "convolution takes dense tensors");
  int64_t g = p[CD_GROUP], o = y->dim[r + 1], ch = x->dim[r + 1];
  ER_REQUIRE(c, g >= 1 && ch % g == 0 && o % g == 0 && w->dim[0] == o && w->dim[r + 1] == ch / g, "convolution channels");
  ER_REQUIRE(c, x->dim[0] == y->dim[0], "convolution batches differ");
  for (int i = 0; i < r; i++) {
    int64_t s = p[CD_STRIDE + i], before = p[CD_STRIDE + r + i], after = p[CD_STRIDE + 2 * r + i], d = p[CD_STRIDE + 3 * r + i];
    ER_REQUIRE(c, s >= 1 && d >= 1 && before >= 0 && after >= 0 && s < (1 << 24) && d < (1 << 24) && before < (1 << 24) && after < (1 << 24), "convolution geometry");
    ER_REQUIRE(c, w->dim[i + 1] >= 1 && w->dim[i + 1] < (1 << 24), "convolution kernel size");
    int64_t room = x->dim[i + 1] + before + after - d * (w->dim[i + 1] - 1) - 1;
    ER_REQUIRE(c, y->dim[i + 1] == (room < 0 ? 0 : room / s + 1), "convolution output size");
  }
  if (c->in[2].data) ER_REQUIRE(c, c->in[2].dtype == ER_F32 && er_numel(&c->in[2]) >= o, "too few biases");
  ER_REQUIRE(c, p[CD_ACT] >= 0 && p[CD_ACT] <= ER_ACT_PRELU && p[CD_RES] >= 0 && p[CD_RES] <= 2, "unknown epilogue");
  ER_REQUIRE(c, (p[CD_RES] != ER_RES_NONE) == (c->in[3].data != NULL), "residual without a mode");
  if (c->in[3].data) {
    ER_REQUIRE(c, c->in[3].dtype == ER_F32 && c->in[3].rank == y->rank && er_is_dense(&c->in[3]), "residual of another type");
    for (int i = 0; i < y->rank; i++) ER_REQUIRE(c, c->in[3].dim[i] == y->dim[i], "residual of another shape");
  }
  ER_REQUIRE(c, (p[CD_ACT] == ER_ACT_PRELU) == (c->in[4].data != NULL), "slopes without prelu");
  if (c->in[4].data) ER_REQUIRE(c, c->in[4].dtype == ER_F32 && er_numel(&c->in[4]) >= o, "too few slopes");
  ER_REQUIRE(c, o == 0 || er_numel(y) / o < INT32_MAX, "too many pixels");
  return 0;
}
#endif

/* One output pixel (all channels). */
static void conv_direct_item(void *ctx, int item, int thread) {
  const er_call *c = ctx;
  (void)thread;
  const int32_t *p = c->param;
  const er_view *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
  int r = p[CD_RANK];
  int64_t at[3] = {0, 0, 0}, in[3] = {1, 1, 1}, kernel[3] = {1, 1, 1}, rest = item;
  int32_t stride[3] = {1, 1, 1}, before[3] = {0, 0, 0}, dilation[3] = {1, 1, 1};
  for (int i = r - 1; i >= 0; i--) {
    at[i] = rest % y->dim[i + 1];
    rest /= y->dim[i + 1];
    in[i] = x->dim[i + 1];
    kernel[i] = w->dim[i + 1];
    stride[i] = p[CD_STRIDE + i];
    before[i] = p[CD_STRIDE + r + i];
    dilation[i] = p[CD_STRIDE + 3 * r + i];
  }
  int64_t channels = x->dim[r + 1], outputs = y->dim[r + 1], cg = w->dim[r + 1], og = outputs / p[CD_GROUP];
  const float *image = (const float *)x->data + rest * in[0] * in[1] * in[2] * channels;
  float *to = (float *)y->data + (int64_t)item * outputs;
  const float *residual = c->in[3].data ? (const float *)c->in[3].data + (int64_t)item * outputs : NULL;
  const float *bias = c->in[2].data, *slope = c->in[4].data;
  float p0 = er_param_f32(c, CD_P0), p1 = er_param_f32(c, CD_P1);
  for (int64_t o = 0; o < outputs; o++) {
    const float *filter = (const float *)w->data + o * kernel[0] * kernel[1] * kernel[2] * cg;
    int64_t first = o / og * cg;
    float sum = bias ? bias[o] : 0.0f;
    for (int64_t a = 0; a < kernel[0]; a++) {
      int64_t ia = at[0] * stride[0] - before[0] + a * dilation[0];
      if (ia < 0 || ia >= in[0]) continue;
      for (int64_t b = 0; b < kernel[1]; b++) {
        int64_t ib = at[1] * stride[1] - before[1] + b * dilation[1];
        if (ib < 0 || ib >= in[1]) continue;
        for (int64_t d = 0; d < kernel[2]; d++) {
          int64_t id = at[2] * stride[2] - before[2] + d * dilation[2];
          if (id < 0 || id >= in[2]) continue;
          const float *from = image + ((ia * in[1] + ib) * in[2] + id) * channels + first;
          const float *f = filter + ((a * kernel[1] + b) * kernel[2] + d) * cg;
          for (int64_t k = 0; k < cg; k++) sum += from[k] * f[k];
        }
      }
    }
    float q = residual ? residual[o] : 0.0f;
    if (p[CD_RES] == ER_RES_BEFORE) sum += q;
    if (p[CD_ACT] == ER_ACT_CLAMP) { sum = sum < p0 ? p0 : sum; sum = sum > p1 ? p1 : sum; }
    else if (p[CD_ACT] > ER_ACT_CLAMP) activate_row(p[CD_ACT], p0, p1, slope ? slope + o : NULL, NULL, &sum, 1);
    if (p[CD_RES] == ER_RES_AFTER) sum += q;
    to[o] = sum;
  }
}

static void run_conv_direct_f32(const er_call *c) {
  const er_view *y = &c->out[0];
  int64_t outputs = y->dim[y->rank - 1];
  if (outputs) er_parallel(c->pool, conv_direct_item, (void *)c, (int)(er_numel(y) / outputs));
}

/* Its transpose: each output gathers the taps that reach it.
 *
 *   conv_transpose_direct_f32: x [N, *S, C], w [C, *K, O / group], bias [O], slope -> y [N, *T, O]
 *   parameters: spatial rank r, group, act, p0, p1, then r each of: stride, pad before, dilation
 */
enum { CTD_RANK, CTD_GROUP, CTD_ACT, CTD_P0, CTD_P1, CTD_STRIDE };

#ifdef ER_BASELINE_CHECKS
static int check_conv_transpose_direct_f32(const er_call *c) {
  const int32_t *p = c->param;
  ER_REQUIRE(c, c->n_in == 4 && c->n_out == 1 && c->n_param >= CTD_STRIDE, "a transposed convolution has 4 inputs and one output");
  int r = p[CTD_RANK];
  ER_REQUIRE(c, r >= 1 && r <= 3 && c->n_param == CTD_STRIDE + 3 * r, "a transposed convolution of spatial rank %d", r);
  const er_view *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
  ER_REQUIRE(c, x->data && w->data && y->data, "a transposed convolution needs input, weights and output");
  ER_REQUIRE(c, x->dtype == ER_F32 && w->dtype == ER_F32 && y->dtype == ER_F32, "a transposed convolution of f32");
  ER_REQUIRE(c, x->rank == r + 2 && w->rank == r + 2 && y->rank == r + 2, "convolution ranks differ");
  ER_REQUIRE(c, er_is_dense(x) && er_is_dense(w) && er_is_dense(y), "a transposed convolution takes dense tensors");
  int64_t g = p[CTD_GROUP], o = y->dim[r + 1], ch = x->dim[r + 1];
  ER_REQUIRE(c, g >= 1 && ch % g == 0 && o == w->dim[r + 1] * g && w->dim[0] == ch, "convolution channels");
  ER_REQUIRE(c, x->dim[0] == y->dim[0], "convolution batches differ");
  for (int i = 0; i < r; i++) {
    int64_t stride = p[CTD_STRIDE + i], before = p[CTD_STRIDE + r + i], dilation = p[CTD_STRIDE + 2 * r + i];
    ER_REQUIRE(c, stride >= 1 && stride < (1 << 24) && dilation >= 1 && dilation < (1 << 24), "convolution geometry");
    ER_REQUIRE(c, before > -(1 << 24) && before < (1 << 24) && w->dim[i + 1] < (1 << 24), "convolution geometry");
  }
  if (c->in[2].data) ER_REQUIRE(c, c->in[2].dtype == ER_F32 && er_numel(&c->in[2]) >= o, "too few biases");
  ER_REQUIRE(c, p[CTD_ACT] >= 0 && p[CTD_ACT] <= ER_ACT_PRELU, "unknown epilogue");
  ER_REQUIRE(c, (p[CTD_ACT] == ER_ACT_PRELU) == (c->in[3].data != NULL), "slopes without prelu");
  if (c->in[3].data) ER_REQUIRE(c, c->in[3].dtype == ER_F32 && er_numel(&c->in[3]) >= o, "too few slopes");
  ER_REQUIRE(c, o == 0 || er_numel(y) / o < INT32_MAX, "too many pixels");
  return 0;
}
#endif

/* One output pixel (all channels). */
static void conv_transpose_direct_item(void *ctx, int item, int thread) {
  const er_call *c = ctx;
  (void)thread;
  const int32_t *p = c->param;
  const er_view *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
  int r = p[CTD_RANK];
  int64_t at[3] = {0, 0, 0}, in[3] = {1, 1, 1}, kernel[3] = {1, 1, 1}, rest = item;
  int64_t stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1};
  for (int i = r - 1; i >= 0; i--) {
    at[i] = rest % y->dim[i + 1] + p[CTD_STRIDE + r + i];
    rest /= y->dim[i + 1];
    in[i] = x->dim[i + 1];
    kernel[i] = w->dim[i + 1];
    stride[i] = p[CTD_STRIDE + i];
    dilation[i] = p[CTD_STRIDE + 2 * r + i];
  }
  int64_t channels = x->dim[r + 1], outputs = y->dim[r + 1], og = w->dim[r + 1], cg = channels / p[CTD_GROUP];
  int64_t taps = kernel[0] * kernel[1] * kernel[2];
  const float *image = (const float *)x->data + rest * in[0] * in[1] * in[2] * channels;
  float *to = (float *)y->data + (int64_t)item * outputs;
  const float *bias = c->in[2].data, *slope = c->in[3].data;
  for (int64_t o = 0; o < outputs; o++) to[o] = bias ? bias[o] : 0.0f;
  for (int64_t tap = 0; tap < taps; tap++) {
    int64_t left = tap, pixel = 0, scale = 1, inside = 1;
    for (int i = 2; i >= 0; i--) { /* at = i * stride + k * dilation */
      int64_t t = at[i] - left % kernel[i] * dilation[i];
      left /= kernel[i];
      inside &= t >= 0 && t % stride[i] == 0 && t / stride[i] < in[i];
      pixel += t / stride[i] * scale;
      scale *= in[i];
    }
    if (!inside) continue;
    for (int64_t ch = 0; ch < channels; ch++) {
      float v = image[pixel * channels + ch];
      const float *filter = (const float *)w->data + (ch * taps + tap) * og;
      float *sum = to + ch / cg * og;
      for (int64_t o = 0; o < og; o++) sum[o] += v * filter[o];
    }
  }
  float p0 = er_param_f32(c, CTD_P0), p1 = er_param_f32(c, CTD_P1);
  if (p[CTD_ACT] == ER_ACT_CLAMP)
    for (int64_t o = 0; o < outputs; o++) { float v = to[o]; v = v < p0 ? p0 : v; to[o] = v > p1 ? p1 : v; }
  else if (p[CTD_ACT] > ER_ACT_CLAMP) activate_row(p[CTD_ACT], p0, p1, slope, NULL, to, (int)outputs);
}

static void run_conv_transpose_direct_f32(const er_call *c) {
  const er_view *y = &c->out[0];
  int64_t outputs = y->dim[y->rank - 1];
  if (outputs) er_parallel(c->pool, conv_transpose_direct_item, (void *)c, (int)(er_numel(y) / outputs));
}
