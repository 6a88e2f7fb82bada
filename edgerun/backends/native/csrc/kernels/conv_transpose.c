/* Transposed convolution, channels last: a GEMM into a matrix of contributions, then each output gathers its own.
 *
 *   conv_transpose_f32: x [N, H, W, C] (or [N, W, C]), w packed per group as [C / g] x [KH * KW * O / g], bias [O],
 *                       (no residual), slope -> y [N, OH, OW, O]; parameters as conv_f32 (pads may be any integers)
 *   scratch: the contributions of one image and group, [H * W][KH * KW * O / g]
 *
 * Gathering keeps every output with one thread: no atomics, and a fixed order of summation. */
#include "conv.h"
#include "product.h"

#ifdef ER_BASELINE_CHECKS
static int check_conv_transpose_f32(const er_call *c) {
  const int32_t *p = c->param;
  ER_REQUIRE(c, c->n_in == 5 && c->n_out == 1 && c->n_param == CONV_PARAMS, "a convolution has 5 inputs and %d parameters", CONV_PARAMS);
  const er_view *x = &c->in[0], *y = &c->out[0];
  ER_REQUIRE(c, x->data && y->data && c->in[1].data && x->dtype == ER_F32 && y->dtype == ER_F32 && c->in[1].dtype == ER_F32, "a convolution of f32");
  ER_REQUIRE(c, (x->rank == 3 || x->rank == 4) && y->rank == x->rank && er_is_dense(x) && er_is_dense(y), "convolution ranks");
  const int positive[] = {CONV_O, CONV_KH, CONV_KW, CONV_SH, CONV_SW, CONV_DH, CONV_DW, CONV_GROUP};
  for (int i = 0; i < 8; i++) ER_REQUIRE(c, p[positive[i]] >= 1 && p[positive[i]] < (1 << 24), "convolution geometry");
  ER_REQUIRE(c, p[CONV_PT] > -(1 << 24) && p[CONV_PT] < (1 << 24) && p[CONV_PL] > -(1 << 24) && p[CONV_PL] < (1 << 24), "convolution pads");
  ER_REQUIRE(c, p[CONV_ACT] >= 0 && p[CONV_ACT] <= ER_ACT_PRELU && p[CONV_RES] == 0 && !c->in[3].data, "unknown epilogue");
  conv_image xi = conv_view(x), yi = conv_view(y);
  ER_REQUIRE(c, xi.n == yi.n && yi.c == p[CONV_O] && xi.c % p[CONV_GROUP] == 0 && yi.c % p[CONV_GROUP] == 0, "convolution channels");
  int64_t cg = xi.c / p[CONV_GROUP], og = yi.c / p[CONV_GROUP], taps = (int64_t)p[CONV_KH] * p[CONV_KW] * og;
  ER_REQUIRE(c, taps < (1 << 28) && xi.h * xi.w < INT32_MAX && yi.n * yi.h * yi.w < INT32_MAX, "convolution too large");
  ER_REQUIRE(c, er_numel(&c->in[1]) == p[CONV_GROUP] * gemm_columns(taps) * cg, "packed weights of the wrong size");
  ER_REQUIRE(c, (uint64_t)(xi.h * xi.w) * (uint64_t)taps * 4 <= c->scratch_bytes, "too little scratch");
  if (c->in[2].data) ER_REQUIRE(c, c->in[2].dtype == ER_F32 && er_numel(&c->in[2]) >= yi.c, "too few biases");
  ER_REQUIRE(c, (p[CONV_ACT] == ER_ACT_PRELU) == (c->in[4].data != NULL), "slopes without prelu");
  if (c->in[4].data) ER_REQUIRE(c, c->in[4].dtype == ER_F32 && er_numel(&c->in[4]) >= yi.c, "too few slopes");
  return 0;
}
#endif

typedef struct { const er_call *c; conv_image x, y; const float *parts; float *to; int64_t og, first; } ct_job;

/* Output row: y[oy][ox] = bias + sum of parts[iy][ix][ky][kx] with iy * s + ky * d - pad = oy. */
static void ct_row(void *ctx, int oy, int thread) {
  const ct_job *j = ctx;
  (void)thread;
  const int32_t *p = j->c->param;
  const float *bias = j->c->in[2].data, *slope = j->c->in[4].data;
  int64_t og = j->og, kernel = (int64_t)p[CONV_KH] * p[CONV_KW];
  float p0 = er_param_f32(j->c, CONV_P0), p1 = er_param_f32(j->c, CONV_P1);
  for (int64_t ox = 0; ox < j->y.w; ox++) {
    float *to = j->to + ((int64_t)oy * j->y.w + ox) * j->y.ld + j->first;
    for (int64_t o = 0; o < og; o++) to[o] = bias ? bias[j->first + o] : 0.0f;
    for (int ky = 0; ky < p[CONV_KH]; ky++) {
      int64_t ty = oy + p[CONV_PT] - (int64_t)ky * p[CONV_DH];
      if (ty < 0 || ty % p[CONV_SH] || ty / p[CONV_SH] >= j->x.h) continue;
      for (int kx = 0; kx < p[CONV_KW]; kx++) {
        int64_t tx = ox + p[CONV_PL] - (int64_t)kx * p[CONV_DW];
        if (tx < 0 || tx % p[CONV_SW] || tx / p[CONV_SW] >= j->x.w) continue;
        const float *part = j->parts + ((ty / p[CONV_SH] * j->x.w + tx / p[CONV_SW]) * kernel + ky * p[CONV_KW] + kx) * og;
        for (int64_t o = 0; o < og; o++) to[o] += part[o];
      }
    }
    if (p[CONV_ACT] == ER_ACT_CLAMP)
      for (int64_t o = 0; o < og; o++) { float v = to[o]; v = v < p0 ? p0 : v; to[o] = v > p1 ? p1 : v; }
    else if (p[CONV_ACT] > ER_ACT_CLAMP) activate_row(p[CONV_ACT], p0, p1, slope ? slope + j->first : NULL, NULL, to, (int)og);
  }
}

static void run_conv_transpose_f32(const er_call *c) {
  const int32_t *p = c->param;
  conv_image x = conv_view(&c->in[0]), y = conv_view(&c->out[0]);
  if (y.n * y.h * y.w * y.c == 0) return;
  int64_t groups = p[CONV_GROUP], cg = x.c / groups, og = y.c / groups, taps = (int64_t)p[CONV_KH] * p[CONV_KW] * og;
  mm_job j = {.shape = {1, 1, cg, 0, 0}, .y = c->scratch, .m = x.h * x.w, .n = taps, .a_ld = x.ld, .y_ld = taps};
  for (int64_t n = 0; n < y.n; n++)
    for (int64_t g = 0; g < groups; g++) {
      j.a = (const float *)c->in[0].data + n * x.h * x.w * x.ld + g * cg;
      j.b = (const float *)c->in[1].data + g * gemm_columns(taps) * cg;
      mm_run(c->pool, &j, j.m * cg * 4);
      ct_job gather = {c, x, y, c->scratch, (float *)c->out[0].data + n * y.h * y.w * y.ld, og, g * og};
      er_parallel(c->pool, ct_row, &gather, (int)y.h);
    }
}
