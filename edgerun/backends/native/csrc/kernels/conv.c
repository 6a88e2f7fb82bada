/* Convolution, channels last, as an implicit GEMM: no im2col, the rows of A are pointers into the (padded) input.
 *
 *   conv_f32: x [N, H, W, C] (or [N, W, C]), packed weights, bias, residual, slope -> y [N, OH, OW, O] (or [N, OW, O])
 *   parameters: O, KH, KW, stride h w, pad top left bottom right, dilation h w, group, act, p0, p1, res
 *
 * A padded copy of one image lies in the scratch where there is padding. Groups run one after the other. */
#include "conv.h"
#include "product.h"

#ifdef ER_BASELINE_CHECKS
static int check_conv_f32(const er_call *c) {
  if (conv_check_geometry(c, 0)) return 1;
  const int32_t *p = c->param;
  conv_image xi = conv_view(&c->in[0]), yi = conv_view(&c->out[0]);
  int64_t g = p[CONV_GROUP], per = yi.c / g, k = (int64_t)p[CONV_KH] * p[CONV_KW] * (xi.c / g);
  ER_REQUIRE(c, er_numel(&c->in[1]) == g * gemm_columns(per) * k, "packed weights of the wrong size");
  if (c->in[2].data) ER_REQUIRE(c, er_numel(&c->in[2]) >= g * gemm_columns(per), "too few biases");
  if (p[CONV_PT] | p[CONV_PL] | p[CONV_PB] | p[CONV_PR]) {
    if (yi.h == 0 || yi.w == 0) return 0;
    int64_t hp = conv_padded(yi.h, p[CONV_SH], p[CONV_DH], p[CONV_KH]), wp = conv_padded(yi.w, p[CONV_SW], p[CONV_DW], p[CONV_KW]);
    ER_REQUIRE(c, hp < (1 << 24) && wp < (1 << 24) && (uint64_t)hp * (uint64_t)wp * (uint64_t)xi.c * 4 <= c->scratch_bytes, "too little scratch");
  }
  return 0;
}
#endif

/* Copies row r of the padded image. */
typedef struct { const er_call *c; conv_image x; const float *from; float *to; int64_t hp, wp; int pt, pl; } conv_pad_job;
static void conv_pad_row(void *ctx, int r, int thread) {
  const conv_pad_job *j = ctx;
  (void)thread;
  float *to = j->to + (int64_t)r * j->wp * j->x.c;
  int64_t y = r - j->pt, width = j->x.w, c = j->x.c;
  if (y < 0 || y >= j->x.h) { memset(to, 0, (size_t)(j->wp * c) * 4); return; }
  if (width > j->wp - j->pl) width = j->wp - j->pl;
  if (width < 0) width = 0;
  int64_t left = j->pl < j->wp ? j->pl : j->wp;
  memset(to, 0, (size_t)(left * c) * 4);
  const float *from = j->from + y * j->x.w * j->x.ld;
  if (j->x.ld == c) memcpy(to + left * c, from, (size_t)(width * c) * 4);
  else for (int64_t x = 0; x < width; x++) memcpy(to + (left + x) * c, from + x * j->x.ld, (size_t)c * 4);
  memset(to + (left + width) * c, 0, (size_t)((j->wp - left - width) * c) * 4);
}

static void run_conv_f32(const er_call *c) {
  const int32_t *p = c->param;
  conv_image x = conv_view(&c->in[0]), y = conv_view(&c->out[0]);
  if (y.n * y.h * y.w * y.c == 0) return;
  int64_t groups = p[CONV_GROUP], cg = x.c / groups, og = y.c / groups;
  int padded = (p[CONV_PT] | p[CONV_PL] | p[CONV_PB] | p[CONV_PR]) != 0;
  int pointwise = p[CONV_KH] == 1 && p[CONV_KW] == 1 && !padded && p[CONV_SH] == 1 && p[CONV_SW] == 1;
  int64_t hp = padded ? conv_padded(y.h, p[CONV_SH], p[CONV_DH], p[CONV_KH]) : x.h;
  int64_t wp = padded ? conv_padded(y.w, p[CONV_SW], p[CONV_DW], p[CONV_KW]) : x.w;
  int64_t pixel = padded ? x.c : x.ld, row = wp * pixel; /* floats between pixels and rows of the input */
  mm_job j = {.n = og, .a_ld = pixel, .y_ld = y.ld};
  if (!pointwise) { j.across = y.w; j.step_x = p[CONV_SW] * pixel; j.step_y = p[CONV_SH] * row; }
  if (groups == 1 && p[CONV_DW] == 1 && pixel == x.c)
    j.shape = (gemm_shape){p[CONV_KH], 1, p[CONV_KW] * x.c, 0, p[CONV_DH] * row};
  else
    j.shape = (gemm_shape){p[CONV_KH], p[CONV_KW], cg, p[CONV_DW] * pixel, p[CONV_DH] * row};
  j.epilogue.act = p[CONV_ACT];
  j.epilogue.res = p[CONV_RES];
  j.epilogue.p0 = er_param_f32(c, CONV_P0);
  j.epilogue.p1 = er_param_f32(c, CONV_P1);
  j.epilogue.residual_ld = c->in[3].ld;
  int64_t k = gemm_k(&j.shape), images = pointwise ? 1 : y.n;
  j.m = pointwise ? y.n * y.h * y.w : y.h * y.w;
  int64_t touched = hp * wp * cg * 4, a_bytes = pointwise || j.m * k * 4 < touched ? j.m * k * 4 : touched;
  for (int64_t n = 0; n < images; n++) {
    const float *from = (const float *)c->in[0].data + n * x.h * x.w * x.ld;
    if (padded) {
      conv_pad_job pad = {c, x, from, c->scratch, hp, wp, p[CONV_PT], p[CONV_PL]};
      er_parallel(c->pool, conv_pad_row, &pad, (int)hp);
      from = c->scratch;
    }
    for (int64_t g = 0; g < groups; g++) {
      j.a = from + g * cg;
      j.b = (const float *)c->in[1].data + g * gemm_columns(og) * k;
      j.y = (float *)c->out[0].data + n * j.m * y.ld + g * og;
      j.epilogue.bias = c->in[2].data ? (const float *)c->in[2].data + g * gemm_columns(og) : NULL;
      j.epilogue.slope = c->in[4].data ? (const float *)c->in[4].data + g * og : NULL;
      j.epilogue.residual = c->in[3].data ? (const float *)c->in[3].data + n * j.m * c->in[3].ld + g * og : NULL;
      mm_run(c->pool, &j, a_bytes);
    }
  }
}
