/* Winograd convolution F(4x4, 3x3) and F(2x2, 3x3), stride 1 (Lavin and Gray 2015, arXiv 1509.09308), channels last.
 *
 *   wino4_f32, wino2_f32: x [N, H, W, C], weights, bias, residual, slope -> y [N, OH, OW, O]; inputs, parameters and
 *   packed weights of conv_f32
 *   scratch: [A*A][tiles of a block][C], the transformed input (A = 6 or 4)
 *   scratch of a thread: [A*A][C][slice], transformed weights; [A*A][WINO_CHUNK][slice], products
 *
 * Weights are transformed while running, slice by slice of the output channels: they are needed in the second-level
 * cache anyway, and stored in advance they would be 4 (1.8) times as many to read from memory and to keep. A slice is a
 * panel, or half of one where many channels would make it too large. */
#include "conv.h"
#include "product.h"

/* These are mirrored by packing.py. */
#define WINO_BLOCK_BYTES (1024 * 1024) /* of transformed input, which stays in the second-level cache */
#define WINO_SLICE_BYTES (1280 * 1024) /* of transformed weights */
#define WINO_LEAST 28                  /* tiles of a block */
#define WINO_CHUNK 28                  /* tiles whose products are made together: two tiles of 14 rows */
#define WINO_SKEW 16                   /* floats between positions: equal distances of 4 KiB would share cache lines' places */

/* Tiles in a block: as many as fit, in blocks of equal size. */
ER_INLINE int64_t wino_block(int64_t tiles, int a, int64_t c) {
  int64_t most = WINO_BLOCK_BYTES / ((int64_t)a * a * c * 4);
  most = most < WINO_LEAST ? WINO_LEAST : most;
  int64_t blocks = (tiles + most - 1) / most;
  return (tiles + blocks - 1) / blocks;
}
/* Output channels of a slice. */
ER_INLINE int wino_slice(int a, int64_t c) { return a * a * c * GEMM_NR * 4 > WINO_SLICE_BYTES ? GEMM_HALF : GEMM_NR; }

#ifdef ER_BASELINE_CHECKS
static int wino_check(const er_call *c, int m) {
  if (conv_check_geometry(c, 0)) return 1;
  const int32_t *p = c->param;
  int64_t a = m + 2;
  conv_image xi = conv_view(&c->in[0]), yi = conv_view(&c->out[0]);
  ER_REQUIRE(c, p[CONV_KH] == 3 && p[CONV_KW] == 3 && p[CONV_SH] == 1 && p[CONV_SW] == 1 && p[CONV_DH] == 1 && p[CONV_DW] == 1 &&
                p[CONV_GROUP] == 1, "Winograd takes 3x3 filters of stride 1");
  ER_REQUIRE(c, er_numel(&c->in[1]) == 9 * gemm_columns(yi.c) * xi.c, "packed weights of the wrong size");
  if (c->in[2].data) ER_REQUIRE(c, er_numel(&c->in[2]) >= yi.c, "too few biases");
  int64_t tiles = ((yi.h + m - 1) / m) * ((yi.w + m - 1) / m);
  if (tiles == 0 || xi.c == 0) return 0;
  ER_REQUIRE(c, (uint64_t)(a * a * (wino_block(tiles, (int)a, xi.c) * xi.c + WINO_SKEW)) * 4 <= c->scratch_bytes, "too little scratch");
  ER_REQUIRE(c, (uint64_t)(a * a * ((xi.c + WINO_CHUNK) * wino_slice((int)a, xi.c) + 2 * WINO_SKEW)) * 4 <= c->thread_scratch_bytes,
             "too little scratch for a thread");
  return 0;
}
static int check_wino4_f32(const er_call *c) { return wino_check(c, 4); }
static int check_wino2_f32(const er_call *c) { return wino_check(c, 2); }
#endif

/* One-dimensional transforms: input B^T d, filter G g, output A^T m. */
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

ER_INLINE void wino_filter4(vf *o, const vf *g) {
  const vf sixth = vsplat(1.0f / 6), twelfth = vsplat(1.0f / 12), part = vsplat(1.0f / 24);
  vf e = (g[0] + g[2]) * sixth, f = g[1] * sixth, h = g[0] * part + g[2] * sixth, k = g[1] * twelfth;
  o[0] = g[0] * vsplat(0.25f);
  o[1] = -(e + f);
  o[2] = f - e;
  o[3] = h + k;
  o[4] = h - k;
  o[5] = g[2];
}
ER_INLINE void wino_filter2(vf *o, const vf *g) {
  vf e = (g[0] + g[2]) * vsplat(0.5f), f = g[1] * vsplat(0.5f);
  o[0] = g[0];
  o[1] = e + f;
  o[2] = e - f;
  o[3] = g[2];
}

typedef struct {
  const er_call *c;
  conv_image x, y;
  const float *from;
  float *to, *v;                     /* v: [A*A][count][C] */
  const float *residual;
  int64_t first, count, across;      /* tiles of this block; tiles per row */
  int64_t part, slices;              /* tiles of an item; items of a part of the tiles */
  int pt, pl, slice;
} wino_job;

ER_INLINE vf wino_load(const float *p, int left) { return left >= VL ? vload(p) : vload_part(p, left); }
ER_INLINE void wino_store(float *p, vf v, int left) { if (left >= VL) vstore(p, v); else vstore_part(p, v, left); }

/* Input tile `item` of the block. INSIDE: no part of it is padding. */
ER_INLINE void wino_input_tile(const int M, const int INSIDE, const wino_job *j, int item, int64_t y0, int64_t x0) {
  enum { MAXA = 6 };
  const int A = M + 2;
  int64_t c = j->x.c, ld = j->x.ld, row = j->x.w * ld, step = j->count * c + WINO_SKEW;
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
      for (int x = 0; x < A; x++) wino_store(to + (y * A + x) * step, r[x], left);
    }
  }
}
ER_INLINE void wino_input(const int M, const wino_job *j, int item) {
  int64_t t = j->first + item, y0 = t / j->across * M - j->pt, x0 = t % j->across * M - j->pl;
  if (y0 >= 0 && x0 >= 0 && y0 + M + 2 <= j->x.h && x0 + M + 2 <= j->x.w) wino_input_tile(M, 1, j, item, y0, x0);
  else wino_input_tile(M, 0, j, item, y0, x0);
}

/* One channel of the filters of a slice: `width` columns of the packed weights g, taps `tap` floats apart, to u, positions
 * `step` apart. */
ER_INLINE void wino_filter(const int M, const float *g, int64_t tap, float *u, int64_t step, int width) {
  enum { MAXA = 6 };
  const int A = M + 2;
  for (int n = 0; n < width; n += VL) {
    vf q[MAXA * 3];
#pragma GCC unroll 3
    for (int x = 0; x < 3; x++) { /* columns */
      vf d[3], r[MAXA];
#pragma GCC unroll 3
      for (int y = 0; y < 3; y++) d[y] = vload(g + (y * 3 + x) * tap + n);
      if (M == 4) wino_filter4(r, d); else wino_filter2(r, d);
#pragma GCC unroll 6
      for (int y = 0; y < A; y++) q[y * 3 + x] = r[y];
    }
#pragma GCC unroll 6
    for (int y = 0; y < A; y++) { /* rows */
      vf r[MAXA];
      if (M == 4) wino_filter4(r, q + y * 3); else wino_filter2(r, q + y * 3);
#pragma GCC unroll 6
      for (int x = 0; x < A; x++) vstore(u + (y * A + x) * step + n, r[x]);
    }
  }
}

/* Output tile at row ty, column tx, of which only what belongs to the output is stored: channels [first, first + width)
 * from the products m [A*A][chunk][slice]. */
ER_INLINE void wino_output_tile(const int M, const wino_job *j, const float *m, int64_t step, int64_t ty, int64_t tx,
                                int64_t first, int width) {
  enum { MAXA = 6, MAXM = 4 };
  const int A = M + 2;
  const int32_t *p = j->c->param;
  const int64_t residual_ld = j->c->in[3].ld;
  const float *bias = j->c->in[2].data;
  const vf low = vsplat(er_param_f32(j->c, CONV_P0)), high = vsplat(er_param_f32(j->c, CONV_P1));
  const int act = p[CONV_ACT], res = p[CONV_RES];
  const int64_t rows = j->y.h - ty, columns = j->y.w - tx;
  for (int n = 0; n < width; n += VL) {
    int left = width - n < VL ? width - n : VL;
    vf q[MAXM * MAXA], b = bias ? wino_load(bias + first + n, left) : vsplat(0.0f);
#pragma GCC unroll 1
    for (int x = 0; x < A; x++) { /* columns */
      vf d[MAXA], v[MAXM];
#pragma GCC unroll 6
      for (int y = 0; y < A; y++) d[y] = vload(m + (y * A + x) * step + n);
      if (M == 4) wino_out4(v, d); else wino_out2(v, d);
#pragma GCC unroll 4
      for (int y = 0; y < M; y++) q[y * A + x] = v[y];
    }
#pragma GCC unroll 1
    for (int y = 0; y < M; y++) { /* rows */
      vf v[MAXM];
      if (M == 4) wino_out4(v, q + y * A); else wino_out2(v, q + y * A);
      if (y >= rows) break;
#pragma GCC unroll 4
      for (int x = 0; x < M; x++) {
        if (x >= columns) break;
        int64_t at = (ty + y) * j->y.w + tx + x;
        vf s = v[x] + b, k = s;
        if (j->residual) k = wino_load(j->residual + at * residual_ld + first + n, left);
        if (j->residual && res == ER_RES_BEFORE) s += k;
        s = act_apply(act, s, low, high);
        if (j->residual && res == ER_RES_AFTER && act_in_registers(act)) s += k;
        wino_store(j->to + at * j->y.ld + first + n, s, left);
      }
    }
  }
}
ER_INLINE void wino_output(const int M, const wino_job *j, int64_t tile, const float *m, int64_t step, int64_t first, int width) {
  const int32_t *p = j->c->param;
  int64_t t = j->first + tile, ty = t / j->across * M, tx = t % j->across * M;
  wino_output_tile(M, j, m, step, ty, tx, first, width);
  if (act_in_registers(p[CONV_ACT])) return;
  const float *slope = j->c->in[4].data;
  const int64_t residual_ld = j->c->in[3].ld, columns = tx + M < j->y.w ? M : j->y.w - tx;
  for (int64_t y = ty; y < ty + M && y < j->y.h; y++) {
    int64_t at = y * j->y.w + tx;
    activate_tile(p[CONV_ACT], er_param_f32(j->c, CONV_P0), er_param_f32(j->c, CONV_P1), slope ? slope + first : NULL,
                  j->residual && p[CONV_RES] == ER_RES_AFTER ? j->residual + at * residual_ld + first : NULL, residual_ld,
                  j->to + at * j->y.ld + first, j->y.ld, (int)columns, width);
  }
}

/* An item: the output channels of a slice for a part of the block's tiles. */
ER_INLINE void wino_item(const int M, const wino_job *j, int item, int thread) {
  const int A = M + 2;
  int64_t c = j->x.c, o = j->y.c, first = item % j->slices * j->slice, t0 = item / j->slices * j->part;
  int64_t t1 = t0 + j->part < j->count ? t0 + j->part : j->count, panel = first / GEMM_NR * GEMM_NR;
  int stride = gemm_width(o, panel), slice = stride < j->slice ? stride : j->slice; /* columns of the panel, of the slice */
  int width = o - first < slice ? (int)(o - first) : slice;
  const int64_t v_step = j->count * c + WINO_SKEW, u_step = c * slice + WINO_SKEW;
  float *u = er_thread_scratch(j->c, thread), *m = u + A * A * u_step;
  const float *g = (const float *)j->c->in[1].data + panel * 9 * c + (first - panel);
  for (int64_t k = 0; k < c; k++) wino_filter(M, g + k * stride, c * stride, u + k * slice, u_step, slice);
  const gemm_shape shape = {1, 1, c, 0, 0};
  const gemm_epilogue none = {.act = ER_ACT_NONE};
  for (; t0 < t1; t0 += WINO_CHUNK) {
    int64_t chunk = t1 - t0 < WINO_CHUNK ? t1 - t0 : WINO_CHUNK, tiles = (chunk + GEMM_MR - 1) / GEMM_MR;
    const int64_t m_step = chunk * slice + WINO_SKEW;
    for (int position = 0; position < A * A; position++)
      for (int64_t t = 0; t < tiles; t++) {
        int64_t at = gemm_tile_first(chunk, tiles, t);
        int mr = (int)(gemm_tile_first(chunk, tiles, t + 1) - at);
        const float *rows[GEMM_MR], *v = j->v + position * v_step + (t0 + at) * c;
        for (int i = 0; i < mr; i++) rows[i] = v + i * c;
        gemm_tile(mr, rows, &shape, u + position * u_step, m + position * m_step + at * slice, slice, slice, 0, &none,
                  (const char *)v, 0);
      }
    for (int64_t t = 0; t < chunk; t++) wino_output(M, j, t0 + t, m + t * slice, m_step, first, width);
  }
}
static void wino4_input(void *ctx, int item, int thread) { (void)thread; wino_input(4, ctx, item); }
static void wino2_input(void *ctx, int item, int thread) { (void)thread; wino_input(2, ctx, item); }
static void wino4_item(void *ctx, int item, int thread) { wino_item(4, ctx, item, thread); }
static void wino2_item(void *ctx, int item, int thread) { wino_item(2, ctx, item, thread); }

/* Into how many parts the tiles of a block are cut. Costs are those of one tile's products: every part transforms the
 * weights again; with fewer parts than threads, tiles that one thread has transformed are fetched by others. */
#define WINO_TRANSFORM 15
#if defined(__x86_64__)
#define WINO_FETCH 3
#else
#define WINO_FETCH 1
#endif
static int64_t wino_parts(int64_t count, int64_t slices, int threads) {
  int64_t best = 1, least = INT64_MAX;
  for (int64_t parts = 1; parts <= 2 * threads && parts <= count; parts++) {
    int64_t cost = (slices * parts + threads - 1) / threads * (WINO_TRANSFORM + (count + parts - 1) / parts);
    if (parts < threads) cost += WINO_FETCH * count * (threads - 1) / threads;
    if (cost < least) { least = cost; best = parts; }
  }
  return best;
}

static void wino_run(const er_call *c, int m) {
  const int32_t *p = c->param;
  int a = m + 2, threads = er_pool_threads(c->pool);
  conv_image x = conv_view(&c->in[0]), y = conv_view(&c->out[0]);
  if (y.n * y.h * y.w * y.c == 0) return;
  int64_t across = (y.w + m - 1) / m, tiles = across * ((y.h + m - 1) / m), block = wino_block(tiles, a, x.c);
  wino_job j = {.c = c, .x = x, .y = y, .v = c->scratch, .across = across, .pt = p[CONV_PT], .pl = p[CONV_PL],
                .slice = wino_slice(a, x.c)};
  j.slices = (y.c + j.slice - 1) / j.slice;
  for (int64_t n = 0; n < y.n; n++)
    for (j.first = 0; j.first < tiles; j.first += block) {
      j.from = (const float *)c->in[0].data + n * x.h * x.w * x.ld;
      j.to = (float *)c->out[0].data + n * y.h * y.w * y.ld;
      j.residual = c->in[3].data ? (const float *)c->in[3].data + n * y.h * y.w * c->in[3].ld : NULL;
      j.count = tiles - j.first < block ? tiles - j.first : block;
      int64_t parts = wino_parts(j.count, j.slices, threads);
      j.part = (j.count + parts - 1) / parts;
      er_parallel(c->pool, m == 4 ? wino4_input : wino2_input, &j, (int)j.count);
      er_parallel(c->pool, m == 4 ? wino4_item : wino2_item, &j,
                  (int)(j.slices * ((j.count + j.part - 1) / j.part)));
    }
}
static void run_wino4_f32(const er_call *c) { wino_run(c, 4); }
static void run_wino2_f32(const er_call *c) { wino_run(c, 2); }
