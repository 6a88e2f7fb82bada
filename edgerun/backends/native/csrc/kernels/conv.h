/* Geometry shared by the convolution kernels: parameters, views, checks. */
#ifndef EDGERUN_CONV_H
#define EDGERUN_CONV_H
#include "gemm.h"

enum { CONV_O, CONV_KH, CONV_KW, CONV_SH, CONV_SW, CONV_PT, CONV_PL, CONV_PB, CONV_PR, CONV_DH, CONV_DW, CONV_GROUP,
       CONV_ACT, CONV_P0, CONV_P1, CONV_RES, CONV_PARAMS };

typedef struct { int64_t n, h, w, c, ld; } conv_image;

/* Batch, height, width, channels and pixel stride of a view of rank 3 (height 1) or 4. */
ER_INLINE conv_image conv_view(const er_view *v) {
  int i = v->rank - 3;
  return (conv_image){v->dim[0], i ? v->dim[1] : 1, v->dim[i + 1], v->dim[i + 2], v->ld};
}
ER_INLINE int64_t conv_extent(int64_t in, int64_t before, int64_t after, int64_t kernel, int64_t stride, int64_t dilation) {
  int64_t room = in + before + after - dilation * (kernel - 1) - 1;
  return room < 0 ? 0 : room / stride + 1;
}
/* Padded height and width that the taps of all outputs touch. */
ER_INLINE int64_t conv_padded(int64_t out, int64_t stride, int64_t dilation, int64_t kernel) {
  return (out - 1) * stride + dilation * (kernel - 1) + 1;
}

#ifdef ER_BASELINE_CHECKS
/* Geometry shared by the convolution kernels: views 4-d or 3-d, parameters sane, output size right. */
static int conv_check_geometry(const er_call *c, int depthwise) {
  const int32_t *p = c->param;
  ER_REQUIRE(c, c->n_in == 5 && c->n_out == 1 && c->n_param == CONV_PARAMS, "a convolution has 5 inputs and %d parameters", CONV_PARAMS);
  const er_view *x = &c->in[0], *y = &c->out[0];
  ER_REQUIRE(c, x->data && y->data && c->in[1].data, "a convolution needs input, weights and output");
  ER_REQUIRE(c, x->dtype == ER_F32 && y->dtype == ER_F32 && c->in[1].dtype == ER_F32, "a convolution of other types than f32");
  ER_REQUIRE(c, (x->rank == 3 || x->rank == 4) && y->rank == x->rank, "a convolution of rank %d to %d", x->rank, y->rank);
  for (int i = CONV_O; i <= CONV_GROUP; i++)
    ER_REQUIRE(c, p[i] >= (i >= CONV_PT && i <= CONV_PR ? 0 : 1) && p[i] <= (1 << 24), "convolution parameter %d is %d", i, p[i]);
  ER_REQUIRE(c, p[CONV_ACT] >= 0 && p[CONV_ACT] <= ER_ACT_PRELU && p[CONV_RES] >= 0 && p[CONV_RES] <= 2, "unknown epilogue");
  conv_image xi = conv_view(x), yi = conv_view(y);
  ER_REQUIRE(c, xi.n == yi.n && yi.c == p[CONV_O], "convolution output has %lld channels", (long long)yi.c);
  ER_REQUIRE(c, yi.h == conv_extent(xi.h, p[CONV_PT], p[CONV_PB], p[CONV_KH], p[CONV_SH], p[CONV_DH]) &&
                yi.w == conv_extent(xi.w, p[CONV_PL], p[CONV_PR], p[CONV_KW], p[CONV_SW], p[CONV_DW]), "convolution output size");
  ER_REQUIRE(c, xi.c % p[CONV_GROUP] == 0 && p[CONV_O] % p[CONV_GROUP] == 0, "channels do not divide into %d groups", p[CONV_GROUP]);
  ER_REQUIRE(c, xi.n * xi.h * xi.w < INT32_MAX && yi.n * yi.h * yi.w < INT32_MAX, "too many pixels");
  if (depthwise) ER_REQUIRE(c, p[CONV_GROUP] == xi.c && yi.c == xi.c, "not a depthwise convolution");
  const er_view *bias = &c->in[2], *residual = &c->in[3], *slope = &c->in[4];
  ER_REQUIRE(c, (p[CONV_RES] != ER_RES_NONE) == (residual->data != NULL), "residual without a mode");
  if (residual->data) {
    ER_REQUIRE(c, residual->dtype == ER_F32 && residual->rank == y->rank, "residual of another type");
    for (int i = 0; i < y->rank; i++) ER_REQUIRE(c, residual->dim[i] == y->dim[i], "residual of another shape");
  }
  ER_REQUIRE(c, (p[CONV_ACT] == ER_ACT_PRELU) == (slope->data != NULL), "slopes without prelu");
  if (slope->data) ER_REQUIRE(c, slope->dtype == ER_F32 && er_numel(slope) >= yi.c, "too few slopes");
  if (bias->data) ER_REQUIRE(c, bias->dtype == ER_F32, "bias of another type");
  return 0;
}
#endif
#endif
