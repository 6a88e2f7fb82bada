/* A matrix product over the pool: what matmul and all convolutions share. */
#ifndef EDGERUN_PRODUCT_H
#define EDGERUN_PRODUCT_H
#include "gemm.h"

typedef struct {
  gemm_shape shape;
  gemm_split split;
  gemm_epilogue epilogue;
  const float *a, *b;
  float *y;
  int64_t m, n, a_ld, y_ld;
  int64_t across, step_x, step_y; /* with across, row i of A is at i / across * step_y + i % across * step_x floats */
} mm_job;

/* Pointers to rows [m, end) of A; their number. */
ER_INLINE int mm_rows(const mm_job *j, int64_t m, int64_t end, const float **rows) {
  int mr = (int)(end - m);
  if (!j->across) {
    for (int i = 0; i < mr; i++) rows[i] = j->a + (m + i) * j->a_ld;
    return mr;
  }
  int64_t oy = m / j->across, ox = m % j->across;
  for (int i = 0; i < mr; i++) {
    rows[i] = j->a + oy * j->step_y + ox * j->step_x;
    if (++ox == j->across) { ox = 0; oy++; }
  }
  return mr;
}

/* One block of row tiles by one block of panels. */
static void mm_item(void *ctx, int item, int thread) {
  const mm_job *j = ctx;
  (void)thread;
  int64_t mb = item / j->split.panel_blocks, nb = item % j->split.panel_blocks, k = gemm_k(&j->shape);
  int64_t t0 = mb * j->split.block, t1 = t0 + j->split.block < j->split.tiles ? t0 + j->split.block : j->split.tiles;
  int64_t p0 = nb * j->split.panel_block, p1 = p0 + j->split.panel_block < j->split.panels ? p0 + j->split.panel_block : j->split.panels;
  int64_t count = t1 - t0, group = gemm_panel_group(k);
  for (int64_t g0 = p0; g0 < p1; g0 += group) {
    int64_t g1 = g0 + group < p1 ? g0 + group : p1;
    const char *next = (const char *)(j->b + g1 * GEMM_NR * k);
    for (int64_t t = t0; t < t1; t++) {
      int64_t m = gemm_tile_first(j->m, j->split.tiles, t);
      const float *rows[GEMM_MR];
      int mr = mm_rows(j, m, gemm_tile_first(j->m, j->split.tiles, t + 1), rows);
      for (int64_t p = g0; p < g1; p++) {
        const char *prefetch = (const char *)rows[0];
        int64_t step = 0, first = p * GEMM_NR;
        if (g1 < j->split.panels) { /* the tiles of this block fetch the next panels between them */
          if (count <= 16) {
            step = GEMM_NR * 4 / count;
            prefetch = next + ((t - t0) * (g1 - g0) + (p - g0)) * k * step;
          }
        } else if (!j->across && p == g0 && t + 1 < t1 && k) { /* the rows of the next tile, which lie right behind these */
          step = mr * j->a_ld * 4 / k;
          prefetch = (const char *)(rows[0] + mr * j->a_ld);
        }
        gemm_epilogue e = j->epilogue;
        if (e.residual) e.residual += m * e.residual_ld + first;
        gemm_tile(mr, rows, &j->shape, j->b + first * k, j->y + m * j->y_ld + first, j->y_ld, j->n, first, &e, prefetch, step);
      }
    }
  }
}

/* One row alone is bound by reading b: several k at a time go into separate sums.
 * One row by one panel of `width` columns: y = bias + a b, k split over GEMV_WAYS sums. */
#define GEMV_WAYS 4
ER_INLINE void gemv_piece(const float *a, const float *b, int64_t k, const int width, const int NV, float *y) {
  vf acc[GEMV_WAYS][GEMM_NV];
#pragma GCC unroll 4
  for (int w = 0; w < GEMV_WAYS; w++) {
#pragma GCC unroll 2
    for (int v = 0; v < NV; v++) acc[w][v] = vsplat(0.0f);
  }
  int64_t i = 0;
  for (; i + GEMV_WAYS <= k; i += GEMV_WAYS) {
#pragma GCC unroll 4
    for (int w = 0; w < GEMV_WAYS; w++) {
#pragma GCC unroll 2
      for (int v = 0; v < NV; v++) acc[w][v] = vmadd(acc[w][v], vload(b + (i + w) * width + v * VL), a[i + w]);
    }
    __builtin_prefetch(b + (i + 32) * width, 0, 2);
  }
  for (; i < k; i++) {
#pragma GCC unroll 2
    for (int v = 0; v < NV; v++) acc[0][v] = vmadd(acc[0][v], vload(b + i * width + v * VL), a[i]);
  }
#pragma GCC unroll 2
  for (int v = 0; v < NV; v++) vstore(y + v * VL, (acc[0][v] + acc[1][v]) + (acc[2][v] + acc[3][v]));
}
#if GEMM_NV * VL == GEMM_HALF
#define GEMV_HALF_NV GEMM_NV
#else
#define GEMV_HALF_NV (GEMM_HALF / VL < GEMM_NV ? GEMM_HALF / VL : GEMM_NV)
#endif

static void gemv_item(void *ctx, int item, int thread) {
  const mm_job *j = ctx;
  (void)thread;
  int64_t p0 = (int64_t)item * j->split.panel_block, k = j->shape.k;
  int64_t p1 = p0 + j->split.panel_block < j->split.panels ? p0 + j->split.panel_block : j->split.panels;
  for (int64_t p = p0; p < p1; p++) {
    int64_t first = p * GEMM_NR;
    int width = gemm_width(j->n, first), columns = (int)(j->n - first < width ? j->n - first : width);
    const float *b = j->b + first * k;
    const gemm_epilogue *e = &j->epilogue;
    float y[GEMM_NR] __attribute__((aligned(64)));
    if (width == GEMM_NR) for (int x = 0; x < GEMM_NR; x += GEMM_NV * VL) gemv_piece(j->a, b + x, k, GEMM_NR, GEMM_NV, y + x);
    else for (int x = 0; x < GEMM_HALF; x += GEMV_HALF_NV * VL) gemv_piece(j->a, b + x, k, GEMM_HALF, GEMV_HALF_NV, y + x);
    const float *r = e->residual ? e->residual + first : NULL;
    float *to = j->y + first;
    for (int i = 0; i < columns; i++) {
      float v = y[i] + (e->bias ? e->bias[first + i] : 0.0f), q = r ? r[i] : 0.0f;
      if (r && e->res == ER_RES_BEFORE) v += q;
      if (e->act == ER_ACT_CLAMP) { v = v < e->p0 ? e->p0 : v; v = v > e->p1 ? e->p1 : v; }
      if (e->act <= ER_ACT_CLAMP && r && e->res == ER_RES_AFTER) v += q;
      y[i] = v;
    }
    if (e->act > ER_ACT_CLAMP)
      activate_row(e->act, e->p0, e->p1, e->slope ? e->slope + first : NULL, r && e->res == ER_RES_AFTER ? r : NULL, y, columns);
    memcpy(to, y, sizeof(float) * (size_t)columns);
  }
}

/* mm_run for a job that one thread does, within an item of another; dense rows only. */
static void mm_run_serial(mm_job *j, int thread) {
  j->split = gemm_plan_items(j->m, j->n, j->shape.k, j->m * j->shape.k * 4, 1);
  for (int i = 0; i < (int)(j->split.blocks * j->split.panel_blocks); i++)
    if (j->m == 1) gemv_item(j, i, thread); else mm_item(j, i, thread);
}

/* y [m, n] = epilogue(a [m, k] * b); a_bytes: all that is read of a. */
static void mm_run(er_pool *pool, mm_job *j, int64_t a_bytes) {
  if (j->m == 0 || j->n == 0) return;
  int64_t k = gemm_k(&j->shape);
  j->split = gemm_plan_items(j->m, j->n, k, a_bytes, er_pool_threads(pool));
  er_parallel(pool, j->m == 1 && k == j->shape.k ? gemv_item : mm_item, j, (int)(j->split.blocks * j->split.panel_blocks));
}
#endif
