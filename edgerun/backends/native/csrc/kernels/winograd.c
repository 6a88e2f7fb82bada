/* Winograd convolution F(4x4, 3x3) and F(2x2, 3x3), stride 1 (Lavin and Gray 2015, arXiv 1509.09308), channels last.
 *
 *   wino4_f32, wino2_f32: x [N, H, W, C], weights, bias, residual, slope -> y [N, OH, OW, O]; parameters as conv_f32
 *   weights: for each of the A * A transformed positions the packed matrix C x O (A = 6 or 4)
 *   scratch: per block of tiles [A*A][tiles][C] and [A*A][tiles][O]
 *
 * Tiles are worked in blocks so that both buffers stay in the second-level cache. */
#include "conv.h"
#include "product.h"

#define WINO_BLOCK_BYTES (700 * 1024)

/* Tiles in a block: a multiple of 14 (the widest GEMM tile), at least 28; mirrored by packing.py. */
ER_INLINE int64_t wino_block(int64_t tiles, int a, int64_t c, int64_t o) {
  int64_t b = WINO_BLOCK_BYTES / ((int64_t)a * a * (c + o) * 4) / 14 * 14;
  if (b < 28) b = 28;
  return b < tiles ? b : tiles;
}

#ifdef ER_BASELINE_CHECKS
static int wino_check(const er_call *c, int m) {
  if (conv_check_geometry(c, 0)) return 1;
  const int32_t *p = c->param;
  int a = m + 2;
  conv_image xi = conv_view(&c->in[0]), yi = conv_view(&c->out[0]);
  ER_REQUIRE(c, p[CONV_KH] == 3 && p[CONV_KW] == 3 && p[CONV_SH] == 1 && p[CONV_SW] == 1 && p[CONV_DH] == 1 && p[CONV_DW] == 1 &&
                p[CONV_GROUP] == 1, "Winograd takes 3x3 filters of stride 1");
  ER_REQUIRE(c, er_numel(&c->in[1]) == a * a * gemm_columns(yi.c) * xi.c, "packed weights of the wrong size");
  if (c->in[2].data) ER_REQUIRE(c, er_numel(&c->in[2]) >= yi.c, "too few biases");
  int64_t tiles = ((yi.h + m - 1) / m) * ((yi.w + m - 1) / m);
  int64_t block = wino_block(tiles, a, xi.c, yi.c);
  ER_REQUIRE(c, (uint64_t)(a * a * block * (xi.c + yi.c)) * 4 <= c->scratch_bytes, "too little scratch");
  return 0;
}
static int check_wino4_f32(const er_call *c) { return wino_check(c, 4); }
static int check_wino2_f32(const er_call *c) { return wino_check(c, 2); }
#endif

/* One-dimensional input transform B^T d and output transform A^T m. */
ER_INLINE void wino_in4(vf *o, const vf *s) {
  vf d0 = s[0], d1 = s[1], d2 = s[2], d3 = s[3], d4 = s[4], d5 = s[5];
  vf a = d4 - d2 * vsplat(4.0f), b = d3 - d1 * vsplat(4.0f), e = d4 - d2, f = (d3 - d1) * vsplat(2.0f);
  o[0] = d0 * vsplat(4.0f) - d2 * vsplat(5.0f) + d4;
  o[1] = a + b;
  o[2] = a - b;
  o[3] = e + f;
  o[4] = e - f;
  o[5] = d1 * vsplat(4.0f) - d3 * vsplat(5.0f) + d5;
}
ER_INLINE void wino_out4(vf *o, const vf *s) {
  vf m0 = s[0], a = s[1] + s[2], b = s[1] - s[2], e = s[3] + s[4], f = s[3] - s[4];
  o[0] = m0 + a + e;
  o[1] = b + f * vsplat(2.0f);
  o[2] = a + e * vsplat(4.0f);
  o[3] = b + f * vsplat(8.0f) + s[5];
}
ER_INLINE void wino_in2(vf *o, const vf *s) {
  o[0] = s[0] - s[2];
  o[1] = s[1] + s[2];
  o[2] = s[2] - s[1];
  o[3] = s[1] - s[3];
}
ER_INLINE void wino_out2(vf *o, const vf *s) {
  o[0] = s[0] + s[1] + s[2];
  o[1] = s[1] - s[2] - s[3];
}

typedef struct {
  const er_call *c;
  conv_image x, y;
  const float *from;
  float *to, *v, *m;                 /* v: [A*A][count][C], m: [A*A][count][O] */
  const float *residual;
  int64_t first, count, across;      /* tiles of this block; tiles per row */
  int pt, pl;
} wino_job;

ER_INLINE vf wino_load(const float *p, int left) { return left >= VL ? vload(p) : vload_part(p, left); }
ER_INLINE void wino_store(float *p, vf v, int left) { if (left >= VL) vstore(p, v); else vstore_part(p, v, left); }

/* Input tile `item` of the block. INSIDE: no part of it is padding. */
ER_INLINE void wino_input_tile(const int M, const int INSIDE, const wino_job *j, int item, int64_t y0, int64_t x0) {
  enum { MAXA = 6 };
  const int A = M + 2;
  int64_t c = j->x.c, ld = j->x.ld, row = j->x.w * ld;
  const float *corner = j->from + (y0 * j->x.w + x0) * ld;
  for (int64_t ch = 0; ch < c; ch += VL) {
    int left = (int)(c - ch < VL ? c - ch : VL);
    vf q[MAXA * MAXA];
#pragma GCC unroll 1
    for (int x = 0; x < A; x++) { /* columns */
      vf d[MAXA], r[MAXA];
#pragma GCC unroll 6
      for (int y = 0; y < A; y++) {
        int there = INSIDE || (y0 + y >= 0 && y0 + y < j->x.h && x0 + x >= 0 && x0 + x < j->x.w);
        d[y] = there ? wino_load(corner + y * row + x * ld + ch, left) : vsplat(0.0f);
      }
      if (M == 4) wino_in4(r, d); else wino_in2(r, d);
#pragma GCC unroll 6
      for (int y = 0; y < A; y++) q[y * A + x] = r[y];
    }
    float *to = j->v + item * c + ch;
#pragma GCC unroll 1
    for (int y = 0; y < A; y++) { /* rows */
      vf r[MAXA];
      if (M == 4) wino_in4(r, q + y * A); else wino_in2(r, q + y * A);
#pragma GCC unroll 6
      for (int x = 0; x < A; x++) wino_store(to + (y * A + x) * j->count * c, r[x], left);
    }
  }
}
ER_INLINE void wino_input(const int M, const wino_job *j, int item) {
  int64_t t = j->first + item, y0 = t / j->across * M - j->pt, x0 = t % j->across * M - j->pl;
  if (y0 >= 0 && x0 >= 0 && y0 + M + 2 <= j->x.h && x0 + M + 2 <= j->x.w) wino_input_tile(M, 1, j, item, y0, x0);
  else wino_input_tile(M, 0, j, item, y0, x0);
}

/* Output tile `item` of the block at row ty, column tx. INSIDE: all of it belongs to the output. */
ER_INLINE void wino_output_tile(const int M, const int INSIDE, const wino_job *j, int item, int64_t ty, int64_t tx) {
  enum { MAXA = 6, MAXM = 4 };
  const int A = M + 2;
  const int32_t *p = j->c->param;
  int64_t o = j->y.c, residual_ld = j->c->in[3].ld;
  const float *bias = j->c->in[2].data;
  const vf low = vsplat(er_param_f32(j->c, CONV_P0)), high = vsplat(er_param_f32(j->c, CONV_P1));
  int act = p[CONV_ACT], res = p[CONV_RES];
  for (int64_t n = 0; n < o; n += VL) {
    int left = (int)(o - n < VL ? o - n : VL);
    vf q[MAXM * MAXA], b = bias ? wino_load(bias + n, left) : vsplat(0.0f);
    const float *from = j->m + item * o + n;
#pragma GCC unroll 1
    for (int x = 0; x < A; x++) { /* columns */
      vf d[MAXA], v[MAXM];
#pragma GCC unroll 6
      for (int y = 0; y < A; y++) d[y] = wino_load(from + (y * A + x) * j->count * o, left);
      if (M == 4) wino_out4(v, d); else wino_out2(v, d);
#pragma GCC unroll 4
      for (int y = 0; y < M; y++) q[y * A + x] = v[y];
    }
#pragma GCC unroll 1
    for (int y = 0; y < M; y++) { /* rows */
      vf v[MAXM];
      if (M == 4) wino_out4(v, q + y * A); else wino_out2(v, q + y * A);
      if (!INSIDE && ty + y >= j->y.h) continue;
#pragma GCC unroll 4
      for (int x = 0; x < M; x++) {
        if (!INSIDE && tx + x >= j->y.w) continue;
        int64_t at = (ty + y) * j->y.w + tx + x;
        vf s = v[x] + b, k = s;
        if (j->residual) k = wino_load(j->residual + at * residual_ld + n, left);
        if (j->residual && res == ER_RES_BEFORE) s += k;
        if (act == ER_ACT_CLAMP) s = vat_most(vat_least(s, low), high);
        if (j->residual && res == ER_RES_AFTER && act <= ER_ACT_CLAMP) s += k;
        wino_store(j->to + at * j->y.ld + n, s, left);
      }
    }
  }
}
ER_INLINE void wino_output(const int M, const wino_job *j, int item) {
  const int32_t *p = j->c->param;
  int64_t t = j->first + item, ty = t / j->across * M, tx = t % j->across * M;
  if (ty + M <= j->y.h && tx + M <= j->y.w) wino_output_tile(M, 1, j, item, ty, tx);
  else wino_output_tile(M, 0, j, item, ty, tx);
  if (p[CONV_ACT] <= ER_ACT_CLAMP) return;
  for (int64_t y = ty; y < ty + M && y < j->y.h; y++)
    for (int64_t x = tx; x < tx + M && x < j->y.w; x++) {
      int64_t at = y * j->y.w + x;
      activate_row(p[CONV_ACT], er_param_f32(j->c, CONV_P0), er_param_f32(j->c, CONV_P1), j->c->in[4].data,
                   j->residual && p[CONV_RES] == ER_RES_AFTER ? j->residual + at * j->c->in[3].ld : NULL,
                   j->to + at * j->y.ld, (int)j->y.c);
    }
}
static void wino4_input(void *ctx, int item, int thread) { (void)thread; wino_input(4, ctx, item); }
static void wino2_input(void *ctx, int item, int thread) { (void)thread; wino_input(2, ctx, item); }
static void wino4_output(void *ctx, int item, int thread) { (void)thread; wino_output(4, ctx, item); }
static void wino2_output(void *ctx, int item, int thread) { (void)thread; wino_output(2, ctx, item); }

/* Position `item` of the A * A products: [count, C] x [C, O]. */
static void wino_gemm(void *ctx, int item, int thread) {
  const wino_job *j = ctx;
  (void)thread;
  int64_t c = j->x.c, o = j->y.c;
  mm_job g = {.shape = {1, 1, c, 0, 0}, .a = j->v + (int64_t)item * j->count * c, .b = (const float *)j->c->in[1].data + item * gemm_columns(o) * c,
              .y = j->m + (int64_t)item * j->count * o, .m = j->count, .n = o, .a_ld = c, .y_ld = o};
  g.split = gemm_plan_items(g.m, g.n, c, g.m * c * 4, 1);
  for (int i = 0; i < (int)(g.split.blocks * g.split.panel_blocks); i++) mm_item(&g, i, 0);
}

static void wino_run(const er_call *c, int m) {
  const int32_t *p = c->param;
  int a = m + 2;
  conv_image x = conv_view(&c->in[0]), y = conv_view(&c->out[0]);
  if (y.n * y.h * y.w * y.c == 0) return;
  int64_t across = (y.w + m - 1) / m, tiles = across * ((y.h + m - 1) / m), block = wino_block(tiles, a, x.c, y.c);
  for (int64_t n = 0; n < y.n; n++)
    for (int64_t first = 0; first < tiles; first += block) {
      int64_t count = tiles - first < block ? tiles - first : block;
      float *v = c->scratch;
      wino_job j = {c, x, y, (const float *)c->in[0].data + n * x.h * x.w * x.ld, (float *)c->out[0].data + n * y.h * y.w * y.ld, v,
                    v + a * a * count * x.c, c->in[3].data ? (const float *)c->in[3].data + n * y.h * y.w * c->in[3].ld : NULL,
                    first, count, across, p[CONV_PT], p[CONV_PL]};
      er_parallel(c->pool, m == 4 ? wino4_input : wino2_input, &j, (int)count);
      er_parallel(c->pool, wino_gemm, &j, a * a);
      er_parallel(c->pool, m == 4 ? wino4_output : wino2_output, &j, (int)count);
    }
}
static void run_wino4_f32(const er_call *c) { wino_run(c, 4); }
static void run_wino2_f32(const er_call *c) { wino_run(c, 2); }
