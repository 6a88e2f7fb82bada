/* The micro-kernel behind convolution and matmul: a tile of MR rows by one packed panel of B.
 *
 * A is read in place: row i of the tile starts at a[i] and consists of `outer` x `inner` segments of k contiguous floats
 * (a matmul has one; a convolution one per kernel row, or per tap), `inner_step` and `outer_step` floats apart.
 * B is packed at plan time into panels [outer * inner * k][width]; width is GEMM_NR, or half of it for the last panel, the
 * same for every ISA level of an architecture. A level whose registers are narrower walks a panel in pieces of NV vectors.
 * Tiles: 14x32 (AVX-512), 6x16 (AVX2), 8x8 (AArch64), 6x4 (Armv7), 4x8 elsewhere. */
#ifndef EDGERUN_GEMM_H
#define EDGERUN_GEMM_H
#include "../kernel.h"
#include "../simd.h"
#include "activation.h"

#if VL == 16
#define GEMM_MR 14
#define GEMM_NV 2
#elif VL == 8
#define GEMM_MR 6
#define GEMM_NV 2
#elif defined(__aarch64__)
#define GEMM_MR 8
#define GEMM_NV 2
#elif defined(__arm__)
#define GEMM_MR 6
#define GEMM_NV 1
#else
#define GEMM_MR 4
#define GEMM_NV 2
#endif
#if defined(__x86_64__)
#define GEMM_NR 32
#elif defined(__arm__)
#define GEMM_NR 4
#else
#define GEMM_NR 8
#endif
#define GEMM_HALF (GEMM_NR > 4 ? GEMM_NR / 2 : GEMM_NR)

typedef struct {
  int64_t outer, inner, k;            /* segments and their length */
  int64_t inner_step, outer_step;     /* floats */
} gemm_shape;

typedef struct {
  const float *bias;                  /* [columns rounded up to the panel] or NULL */
  const float *residual;              /* tile's corner or NULL */
  const float *slope;                 /* [columns], prelu only */
  int64_t residual_ld;
  int act, res;
  float p0, p1;
} gemm_epilogue;

ER_INLINE int64_t gemm_k(const gemm_shape *s) { return s->outer * s->inner * s->k; }
/* Floats of the packed form of an N x K matrix; mirrored by edgerun/backends/native/packing.py. */
ER_INLINE int64_t gemm_panels(int64_t n) { return (n + GEMM_NR - 1) / GEMM_NR; }
ER_INLINE int64_t gemm_columns(int64_t n) {
  int64_t rest = n % GEMM_NR;
  return n - rest + (rest == 0 ? 0 : rest <= GEMM_HALF ? GEMM_HALF : GEMM_NR);
}
ER_INLINE int gemm_width(int64_t n, int64_t first) { return n - first > GEMM_HALF ? GEMM_NR : GEMM_HALF; }

/* Stores `rows` rows of a tile [rows][width] with partial columns or a residual r (rows e->residual_ld apart): one copy of
 * this code for all tile sizes, since the usual case does not come here. */
static __attribute__((noinline)) void gemm_finish(const float *tile, int rows, int width, float *c, int64_t ldc, int columns,
                                                  const float *r, const gemm_epilogue *e) {
  const vf low = vsplat(e->p0), high = vsplat(e->p1);
  int n = columns < width ? columns : width;
  for (int i = 0; i < rows; i++, tile += width, c += ldc, r = r ? r + e->residual_ld : r) {
    for (int j = 0; j < n; j += VL) {
      int left = n - j;
      vf v = vload(tile + j), q = v;
      if (r) q = left >= VL ? vload(r + j) : vload_part(r + j, left);
      if (r && e->res == ER_RES_BEFORE) v += q;
      v = act_apply(e->act, v, low, high);
      if (r && act_in_registers(e->act) && e->res == ER_RES_AFTER) v += q;
      if (left >= VL) vstore(c + j, v); else vstore_part(c + j, v, left);
    }
  }
}

/* One piece: MR rows x NV vectors. b: the piece's first column, rows `width` apart. c: [MR rows, ldc apart][columns]. */
ER_INLINE void gemm_piece(const int MR, const int NV, const float *const *rows, const gemm_shape *s, const float *b,
                          const int width, float *c, int64_t ldc, int columns, const float *bias,
                          const gemm_epilogue *e, int64_t col, const char *prefetch, int64_t prefetch_step) {
  vf acc[GEMM_MR][GEMM_NV];
#pragma GCC unroll 4
  for (int j = 0; j < NV; j++) {
    vf first = bias ? vload(bias + j * VL) : vsplat(0.0f);
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) acc[i][j] = first;
  }
  const float *a[GEMM_MR];
#pragma GCC unroll 16
  for (int i = 0; i < MR; i++) a[i] = rows[i];
  for (int64_t o = 0; o < s->outer; o++) {
    for (int64_t n = 0; n < s->inner; n++) {
      int64_t k = 0;
#if VL == 4
      /* Four k at a time: one load per row, then multiplication by lane. */
      for (; k + 4 <= s->k; k += 4) {
        vf av[GEMM_MR];
#pragma GCC unroll 16
        for (int i = 0; i < MR; i++) av[i] = vload(a[i] + k);
#define GEMM_LANE(l)                                                                        \
  {                                                                                         \
    vf bv[GEMM_NV];                                                                         \
    _Pragma("GCC unroll 4") for (int j = 0; j < NV; j++) bv[j] = vload(b + (l)*width + j * VL); \
    _Pragma("GCC unroll 16") for (int i = 0; i < MR; i++) {                                 \
      _Pragma("GCC unroll 4") for (int j = 0; j < NV; j++) acc[i][j] = vmadd(acc[i][j], bv[j], av[i][l]); \
    }                                                                                       \
  }
        GEMM_LANE(0) GEMM_LANE(1) GEMM_LANE(2) GEMM_LANE(3)
#undef GEMM_LANE
        b += 4 * width;
        __builtin_prefetch(prefetch, 0, 2);
        prefetch += 4 * prefetch_step;
      }
#endif
      for (; k < s->k; k++) {
        vf bv[GEMM_NV];
#pragma GCC unroll 4
        for (int j = 0; j < NV; j++) bv[j] = vload(b + j * VL);
#pragma GCC unroll 16
        for (int i = 0; i < MR; i++) {
#pragma GCC unroll 4
          for (int j = 0; j < NV; j++) acc[i][j] = vmadd(acc[i][j], bv[j], a[i][k]);
        }
        b += width;
#if VL > 4
        __builtin_prefetch(prefetch, 0, 2);
        prefetch += prefetch_step;
#endif
      }
#pragma GCC unroll 16
      for (int i = 0; i < MR; i++) a[i] += s->inner_step;
    }
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) a[i] += s->outer_step - s->inner * s->inner_step;
  }
  const float *r = e->residual ? e->residual + col : NULL;
  const vf low = vsplat(e->p0), high = vsplat(e->p1);
  if (columns >= NV * VL && !r) { /* the usual case, without a branch per vector */
    if (e->act == ER_ACT_CLAMP) {
#pragma GCC unroll 16
      for (int i = 0; i < MR; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < NV; j++) vstore(c + i * ldc + j * VL, vat_most(vat_least(acc[i][j], low), high));
      }
    } else if (e->act == ER_ACT_HARDSWISH) {
#pragma GCC unroll 16
      for (int i = 0; i < MR; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < NV; j++) vstore(c + i * ldc + j * VL, act_hardswish(acc[i][j]));
      }
    } else {
#pragma GCC unroll 16
      for (int i = 0; i < MR; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < NV; j++) vstore(c + i * ldc + j * VL, acc[i][j]);
      }
    }
    return;
  }
  float tile[GEMM_MR * GEMM_NV * VL] __attribute__((aligned(64)));
#pragma GCC unroll 16
  for (int i = 0; i < MR; i++) {
#pragma GCC unroll 4
    for (int j = 0; j < NV; j++) vstore(tile + (i * NV + j) * VL, acc[i][j]);
  }
  gemm_finish(tile, MR, NV * VL, c, ldc, columns, r, e);
}

typedef void (*gemm_fn)(const float *const *, const gemm_shape *, const float *, float *, int64_t, int, const float *,
                        const gemm_epilogue *, const char *, int64_t);

/* A whole panel of WIDTH columns: pieces of NV vectors, the last one perhaps narrower. */
#define GEMM_DEFINE(MR, WIDTH)                                                                                       \
  static __attribute__((noinline)) void gemm_##MR##_##WIDTH(const float *const *rows, const gemm_shape *s, const float *b, \
      float *c, int64_t ldc, int columns, const float *bias, const gemm_epilogue *e, const char *pf, int64_t pfs) {  \
    enum { NV = WIDTH < GEMM_NV * VL ? WIDTH / VL : GEMM_NV };                                                       \
    for (int x = 0; x < columns; x += NV * VL)                                                                       \
      gemm_piece(MR, NV, rows, s, b + x, WIDTH, c + x, ldc, columns - x, bias ? bias + x : NULL, e, x, pf, x ? 0 : pfs); \
  }
#if GEMM_NR > 4
#if defined(__x86_64__)
#define GEMM_BOTH(MR) GEMM_DEFINE(MR, 32) GEMM_DEFINE(MR, 16)
#define GEMM_ROW(MR) {gemm_##MR##_16, gemm_##MR##_32}
#else
#define GEMM_BOTH(MR) GEMM_DEFINE(MR, 8) GEMM_DEFINE(MR, 4)
#define GEMM_ROW(MR) {gemm_##MR##_4, gemm_##MR##_8}
#endif
#else
#define GEMM_BOTH(MR) GEMM_DEFINE(MR, 4)
#define GEMM_ROW(MR) {gemm_##MR##_4, gemm_##MR##_4}
#endif
GEMM_BOTH(1) GEMM_BOTH(2) GEMM_BOTH(3) GEMM_BOTH(4)
#if GEMM_MR > 4
GEMM_BOTH(5) GEMM_BOTH(6)
#endif
#if GEMM_MR > 6
GEMM_BOTH(7) GEMM_BOTH(8)
#endif
#if GEMM_MR > 8
GEMM_BOTH(9) GEMM_BOTH(10) GEMM_BOTH(11) GEMM_BOTH(12) GEMM_BOTH(13) GEMM_BOTH(14)
#endif
static const gemm_fn gemm_table[GEMM_MR + 1][2] = {{NULL, NULL}, GEMM_ROW(1), GEMM_ROW(2), GEMM_ROW(3), GEMM_ROW(4),
#if GEMM_MR > 4
  GEMM_ROW(5), GEMM_ROW(6),
#endif
#if GEMM_MR > 6
  GEMM_ROW(7), GEMM_ROW(8),
#endif
#if GEMM_MR > 8
  GEMM_ROW(9), GEMM_ROW(10), GEMM_ROW(11), GEMM_ROW(12), GEMM_ROW(13), GEMM_ROW(14),
#endif
};

/* One tile: mr rows of A against the panel that starts at column `first` of n. c and e->residual point at the tile. */
ER_INLINE void gemm_tile(int mr, const float *const *rows, const gemm_shape *s, const float *b, float *c, int64_t ldc,
                         int64_t n, int64_t first, const gemm_epilogue *e, const char *prefetch, int64_t prefetch_step) {
  int width = gemm_width(n, first);
  int columns = (int)(n - first < width ? n - first : width);
  const float *bias = e->bias ? e->bias + first : NULL;
  gemm_table[mr][width == GEMM_NR && GEMM_NR != GEMM_HALF](rows, s, b, c, ldc, columns, bias, e, prefetch, prefetch_step);
  if (!act_in_registers(e->act))
    activate_tile(e->act, e->p0, e->p1, e->slope ? e->slope + first : NULL, e->res == ER_RES_AFTER ? e->residual : NULL,
                  e->residual_ld, c, ldc, mr, columns);
}

/* How M x N x K work is cut into items: blocks of row tiles by blocks of panels. */
typedef struct { int64_t tiles, block, blocks, panels, panel_block, panel_blocks; } gemm_split;

#define GEMM_CACHE (320 * 1024) /* bytes of A that stay near while a panel of B streams past */
#define GEMM_SHARE 4            /* tiles that share a panel at least: fewer cannot hide fetching it */
#if defined(__x86_64__)
#define GEMM_NEAR (256 * 1024)  /* bytes of B that stay in the second-level cache while tiles of A pass by */
#else
#define GEMM_NEAR (128 * 1024)
#endif
#define GEMM_SPREAD 4           /* items per thread: evens out cores of different speed */
#define GEMM_ROWS 48            /* rows for each thread that hide fetching B: with fewer, threads share out B instead */
#define GEMM_SERIAL 200000       /* multiply-accumulates that cost as much as waking the pool */

/* a_bytes: all that is read of A; less than m * k * 4 when rows overlap, as those of a convolution do. */
ER_INLINE gemm_split gemm_plan_items(int64_t m, int64_t n, int64_t k, int64_t a_bytes, int threads) {
  gemm_split s;
  s.tiles = (m + GEMM_MR - 1) / GEMM_MR;
  s.panels = gemm_panels(n);
  s.block = GEMM_CACHE / (a_bytes / s.tiles + 1);
  if (s.block < GEMM_SHARE) s.block = GEMM_SHARE;
  if (s.block > s.tiles) s.block = s.tiles;
  s.blocks = (s.tiles + s.block - 1) / s.block;
  s.panel_blocks = 1;
  if (threads > 1 && m * n * k >= GEMM_SERIAL) {
    if (m >= GEMM_ROWS * threads) { /* every thread keeps its rows from layer to layer, and reads all of B */
      s.tiles = (s.tiles + threads - 1) / threads * threads;
      s.blocks = (s.blocks + threads - 1) / threads * threads;
      s.block = (s.tiles + s.blocks - 1) / s.blocks;
      s.blocks = (s.tiles + s.block - 1) / s.block;
    }
    s.panel_blocks = (threads * GEMM_SPREAD + s.blocks - 1) / s.blocks;
    if (s.panel_blocks > s.panels) s.panel_blocks = s.panels;
  }
  s.panel_block = s.panels ? (s.panels + s.panel_blocks - 1) / s.panel_blocks : 1;
  s.panel_blocks = (s.panels + s.panel_block - 1) / s.panel_block;
  return s;
}
/* Panels that are worked together: as many as stay near, so that output rows are written in long pieces. */
ER_INLINE int64_t gemm_panel_group(int64_t k) {
  int64_t group = GEMM_NEAR / (GEMM_NR * k * 4 + 1);
  return group < 1 ? 1 : group;
}
/* Rows [first, first + count) of tile t when m rows are shared evenly by `tiles`. */
ER_INLINE int64_t gemm_tile_first(int64_t m, int64_t tiles, int64_t t) { return t * (m / tiles) + (t < m % tiles ? t : m % tiles); }

#endif
