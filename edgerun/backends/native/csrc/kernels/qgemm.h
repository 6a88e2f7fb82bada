/* Integer products over the pool: what qmatmul and qconv share. Rows of A against panels of 16 columns of B (qtile.h),
 * then zero points, bias and requantisation.
 *
 * With codes shifted by the packing, a' = a + oa and b' = b - ob, the result is sum (a - za)(b - zb) =
 * sum a' b' - (za + oa) (colsum(b') - K (zb - ob)) - (zb - ob) rowsum(a'). Rows of A that share a zero point start from
 * the second term; row sums are made only where a zero point of B remains. */
#ifndef EDGERUN_QGEMM_H
#define EDGERUN_QGEMM_H
#include "nd.h"
#include "qtile.h"

/* The inputs of all kernels of this kind. */
enum { QM_A, QM_B, QM_A_ZERO, QM_B_ZERO, QM_SUMS, QM_BIAS, QM_A_SCALE, QM_B_SCALE, QM_Y_SCALE, QM_Y_ZERO, QM_INPUTS };

ER_INLINE int qg_is_code(int dtype) { return dtype == ER_I8 || dtype == ER_U8; }
ER_INLINE int32_t qg_code(int dtype, const void *data, int64_t at) {
  return dtype == ER_I8 ? ((const int8_t *)data)[at] : ((const uint8_t *)data)[at];
}
/* What turns a code of A into what the micro-kernel multiplies: bits flipped, and the number that adds. */
ER_INLINE int qg_flip(int dtype) { return (dtype == ER_I8) == QG_A_SIGNED ? 0 : 0x80; }
ER_INLINE int qg_offset(int dtype) { return (dtype == ER_I8) == QG_A_SIGNED ? 0 : QG_A_SIGNED ? -128 : 128; }

/* A factor that gives the same codes as m for every sum, also where m is no number or infinite: 0 * inf is a code of 0. */
ER_INLINE float qg_factor(float m) { return m != m ? 0 : m > 3.4e38f ? 3.4e38f : m < -3.4e38f ? -3.4e38f : m; }

/* Numbers per column, [padded] each, in the scratch: columns of group g start at g * panels * 16. */
typedef struct {
  float *factor;   /* a_scale * b_scale / y_scale; b_scale where a_scale differs by row */
  int32_t *add;    /* bias and zero point of A */
  int32_t *zero;   /* zb - ob; NULL when all are 0 */
  int32_t *sum;    /* colsum(b') - K * (zb - ob), for rows with a zero point each */
} qg_columns;
#define QG_COLUMN_BYTES 16 /* of scratch for each padded column */

typedef struct {
  const er_call *c;
  qg_columns columns;
  qg_shape shape;
  const int8_t *b;         /* packed, of all groups */
  const uint8_t *a;        /* first row */
  int64_t rows, k;         /* k: codes of a row without padding */
  int64_t groups, outputs, panels;  /* columns and panels of a group */
  int64_t a_group;         /* bytes between the rows of two groups */
  int64_t across[3], step[3]; /* row m is at steps of its mixed-radix digits, most significant first, bytes */
  int64_t first_row;       /* of the output and of the parameters of rows */
  int64_t y_ld, blocks, panel_blocks;
  int flip, per_row, pack; /* pack: rows of A are copied to the thread scratch, flipped and padded */
  float y_scale;
  int32_t y_zero, za;      /* za: for all rows */
} qg_job;

#define QG_ROWS 56 /* rows of A that are packed together */
ER_INLINE int64_t qg_round4(int64_t k) { return (k + 3) / 4 * 4; }

#ifdef ER_BASELINE_CHECKS
static int qg_one_of(const er_view *v, int dtype, int64_t n, int64_t m) {
  return !v->data || (v->dtype == dtype && er_is_dense(v) && (er_numel(v) == n || er_numel(v) == m));
}
/* Everything but the shapes: inputs 2.. for `rows` rows (1: a single parameter) and n columns. */
static int qg_check_parameters(const er_call *c, int64_t rows, int64_t n, int64_t padded) {
  const er_view *in = c->in, *y = &c->out[0];
  ER_REQUIRE(c, qg_is_code(in[QM_A].dtype) && er_is_dense(&in[QM_A]) && er_is_dense(&in[QM_B]) && er_is_dense(y),
             "qmatmul takes dense i8 or u8");
  ER_REQUIRE(c, qg_one_of(&in[QM_A_ZERO], in[QM_A].dtype, 1, rows), "qmatmul: bad zero point of a");
  ER_REQUIRE(c, !in[QM_B_ZERO].data || qg_is_code(in[QM_B_ZERO].dtype), "qmatmul: bad zero point of b");
  ER_REQUIRE(c, qg_one_of(&in[QM_B_ZERO], in[QM_B_ZERO].dtype, 1, n), "qmatmul: bad zero point of b");
  ER_REQUIRE(c, qg_one_of(&in[QM_SUMS], ER_I32, padded, padded) && qg_one_of(&in[QM_BIAS], ER_I32, n, n),
             "qmatmul: bad sums or bias");
  if (y->dtype == ER_I32) return 0;
  ER_REQUIRE(c,
             qg_is_code(y->dtype) && in[QM_A_SCALE].data && in[QM_B_SCALE].data && in[QM_Y_SCALE].data &&
                 in[QM_Y_ZERO].data,
             "qmatmul: scales are missing");
  ER_REQUIRE(c,
             qg_one_of(&in[QM_A_SCALE], ER_F32, 1, rows) && qg_one_of(&in[QM_B_SCALE], ER_F32, 1, n) &&
                 qg_one_of(&in[QM_Y_SCALE], ER_F32, 1, 1) && qg_one_of(&in[QM_Y_ZERO], y->dtype, 1, 1),
             "qmatmul: bad scales");
  return 0;
}
#endif

/* Numbers per column into `scratch`, QG_COLUMN_BYTES * groups * panels * 16 bytes; sums: column sums of b', padded;
 * b_offset: ob. Sets everything of the job that does not depend on where the rows are. */
static void qg_prepare(qg_job *j, const er_call *c, void *scratch, const int32_t *sums, int b_offset) {
  const er_view *in = c->in, *zero = &in[QM_B_ZERO], *bias = &in[QM_BIAS];
  int64_t padded = j->groups * j->panels * QG_N;
  j->c = c;
  j->flip = qg_flip(in[QM_A].dtype);
  j->per_row = er_numel(&in[QM_A_ZERO]) > 1 || er_numel(&in[QM_A_SCALE]) > 1;
  j->za = (in[QM_A_ZERO].data ? qg_code(in[QM_A_ZERO].dtype, in[QM_A_ZERO].data, 0) : 0) + qg_offset(in[QM_A].dtype);
  j->y_scale = in[QM_Y_SCALE].data ? *(const float *)in[QM_Y_SCALE].data : 1;
  j->y_zero = in[QM_Y_ZERO].data ? qg_code(in[QM_Y_ZERO].dtype, in[QM_Y_ZERO].data, 0) : 0;
  qg_columns *to = &j->columns;
  to->factor = scratch;
  to->add = (int32_t *)(to->factor + padded);
  to->zero = to->add + padded;
  to->sum = to->zero + padded;
  float a_scale = in[QM_A_SCALE].data && !j->per_row ? *(const float *)in[QM_A_SCALE].data : 1;
  const float *b_scale = in[QM_B_SCALE].data;
  int64_t zeros = er_numel(zero), scales = er_numel(&in[QM_B_SCALE]);
  int any = 0;
  for (int64_t g = 0; g < j->groups; g++)
    for (int64_t i = 0; i < j->panels * QG_N; i++) {
      int64_t at = g * j->panels * QG_N + i, column = g * j->outputs + nd_min(i, j->outputs - 1);
      uint32_t zb = (uint32_t)((zero->data ? qg_code(zero->dtype, zero->data, zeros > 1 ? column : 0) : 0) - b_offset);
      uint32_t sum = (sums ? (uint32_t)sums[at] : 0) - (uint32_t)j->k * zb;
      uint32_t first = bias->data ? (uint32_t)((const int32_t *)bias->data)[column] : 0;
      to->zero[at] = (int32_t)zb;
      to->sum[at] = (int32_t)sum;
      to->add[at] = (int32_t)(j->per_row ? first : first - (uint32_t)j->za * sum);
      float scale = b_scale ? b_scale[scales > 1 ? column : 0] : 1;
      to->factor[at] = j->per_row ? scale : qg_factor(a_scale * scale / j->y_scale);
      any |= zb != 0;
    }
  if (!any) to->zero = NULL;
}

/* acc [rows][width] of columns from `padded` on, without what differs by row: subtract it. row: of the output. */
static __attribute__((noinline)) void qg_row_terms(const qg_job *j, int32_t *acc, int rows, int width, int64_t padded,
                                                   int64_t row, const int32_t *row_sum) {
  const er_view *zero = &j->c->in[QM_A_ZERO];
  int64_t zeros = er_numel(zero);
  for (int r = 0; r < rows; r++) {
    uint32_t za = 0, sum = j->columns.zero ? (uint32_t)row_sum[r] : 0;
    if (j->per_row)
      za = (uint32_t)((zero->data ? qg_code(zero->dtype, zero->data, zeros > 1 ? row + r : 0) : 0) +
                      qg_offset(j->c->in[QM_A].dtype));
    for (int i = 0; i < width; i++) {
      uint32_t v = (uint32_t)acc[r * width + i] - za * (uint32_t)j->columns.sum[padded + i];
      if (j->columns.zero) v -= sum * (uint32_t)j->columns.zero[padded + i];
      acc[r * width + i] = (int32_t)v;
    }
  }
}

/* Sums [rows][width] by `factor` to codes at y, columns [0, n), rows `ld` apart; width is a constant. */
ER_INLINE void qg_codes(const int width, const int32_t *acc, int rows, const float *factor, const vf low, const vf high,
                        const vi zero, uint8_t *y, int64_t ld, int64_t n) {
#pragma GCC unroll 2
  for (int at = 0; at < width; at += CODES) {
    vf f[CODES / VL];
#pragma GCC unroll 4
    for (int i = 0; i < CODES / VL; i++) f[i] = vload(factor + at + i * VL);
    uint8_t *to = y + at;
    for (int r = 0; r < rows; r++, to += ld) {
      vi v[CODES / VL];
#pragma GCC unroll 4
      for (int i = 0; i < CODES / VL; i++) {
        vf q = __builtin_convertvector(viload(acc + r * width + at + i * VL), vf) * f[i];
        v[i] = vround(vat_most(vat_least(q, low), high)) + zero;
      }
      if (n - at >= CODES) vstore_codes(to, v); else vstore_codes_part(to, v, n - at);
    }
  }
}

#if VL == 16 && QG_NV == 2
/* The same for 32 columns and an even number of rows; behind an odd last one is room for another, which is not stored. */
ER_INLINE void qg_codes_wide(const int32_t *acc, int rows, const float *factor, int zero, const int is_signed, uint8_t *y,
                             int64_t ld) {
  const vf f0 = vload(factor), f1 = vload(factor + VL), high = vsplat(1073741824.0f);
  const __m512i zeros = _mm512_set1_epi16((short)zero);
  for (int r = 0; r < rows; r += 2, acc += 4 * QG_N) {
    vi v[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
      vf q = __builtin_convertvector(viload(acc + i * VL), vf) * (i % 2 ? f1 : f0);
      v[i] = vround(vat_most(q, high)); /* far below the range stays far below */
    }
    uint8_t *to = y + r * ld;
    vstore_codes_rows(to, r + 1 < rows ? to + ld : to, v, v + 2, zeros, is_signed);
  }
}
#endif

/* Sums [rows][width] to rows of the output, columns [column, column + n). */
static void qg_store(const qg_job *j, const int32_t *acc, int rows, int width, int64_t padded, int64_t row,
                     int64_t column, int64_t n) {
  const er_view *y = &j->c->out[0];
  if (y->dtype == ER_I32) {
    for (int r = 0; r < rows; r++)
      memcpy((int32_t *)y->data + (row + r) * j->y_ld + column, acc + r * width, (size_t)n * 4);
    return;
  }
  int least = y->dtype == ER_I8 ? -128 : 0;
  const vf low = vsplat((float)(least - j->y_zero)), high = vsplat((float)(least + 255 - j->y_zero));
  const vi zero = visplat(j->y_zero);
  const float *factor = j->columns.factor + padded;
  uint8_t *to = (uint8_t *)y->data + row * j->y_ld + column;
  if (!j->per_row) {
#if QG_NV > 1
    if (n == 2 * QG_N && rows > 1) {
      if (y->dtype == ER_I8) qg_codes_wide(acc, rows, factor, j->y_zero, 1, to, j->y_ld);
      else qg_codes_wide(acc, rows, factor, j->y_zero, 0, to, j->y_ld);
      return;
    }
    if (width > QG_N) {
      qg_codes(QG_NV * QG_N, acc, rows, factor, low, high, zero, to, j->y_ld, n);
      return;
    }
#endif
    qg_codes(QG_N, acc, rows, factor, low, high, zero, to, j->y_ld, n);
    return;
  }
  const er_view *scale = &j->c->in[QM_A_SCALE];
  float scaled[QG_N];
  for (int r = 0; r < rows; r++, to += j->y_ld) {
    float a = ((const float *)scale->data)[er_numel(scale) > 1 ? row + r : 0];
    for (int i = 0; i < n; i += QG_N) {
      for (int k = 0; k < QG_N; k++) scaled[k] = qg_factor(a * factor[i + k] / j->y_scale);
      qg_codes(QG_N, acc + r * width + i, 1, scaled, low, high, zero, to + i, 0, n - i);
    }
  }
}

/* Pointers to rows [m, m + count) of A. */
ER_INLINE void qg_pointers(const qg_job *j, const uint8_t *a, int64_t m, int count, const uint8_t **rows) {
  int64_t x = m % j->across[2], y = m / j->across[2] % j->across[1], z = m / j->across[2] / j->across[1];
  for (int i = 0; i < count; i++) {
    rows[i] = a + z * j->step[0] + y * j->step[1] + x * j->step[2];
    if (++x < j->across[2]) continue;
    x = 0;
    if (++y < j->across[1]) continue;
    y = 0;
    z++;
  }
}
/* The sum of the codes of a row, as the micro-kernel sees them. */
static int32_t qg_row_sum(const qg_job *j, const uint8_t *row) {
  int64_t length = j->k / j->shape.segments;
  uint32_t sum = 0;
  for (int64_t s = 0; s < j->shape.segments; s++) {
    const uint8_t *p = row + j->shape.offset[s];
    for (int64_t i = 0; i < length; i++) sum += (uint32_t)(QG_A_SIGNED ? (int32_t)(int8_t)p[i] : (int32_t)p[i]);
  }
  return (int32_t)sum;
}
static void qg_flip_copy(uint8_t *to, const uint8_t *from, int64_t n, int flip) {
  if (!flip) memcpy(to, from, (size_t)n);
  else for (int64_t i = 0; i < n; i++) to[i] = from[i] ^ 0x80;
}

#define QG_NEAR (128 * 1024) /* bytes of B that stay near while tiles of A pass by */

/* Tiles of rows [from, to) by panels [p0, p1) of one group. */
static void qg_work(const qg_job *j, int64_t group, int64_t from, int64_t to, int64_t p0, int64_t p1, uint8_t *packed) {
  const int64_t kp = j->shape.panel / QG_N;
  int64_t near = nd_max(QG_NV, QG_NEAR / (j->shape.panel + 1) / QG_NV * QG_NV);
  int64_t tiles = (to - from + QG_MR - 1) / QG_MR;
  const uint8_t *a = j->a + group * j->a_group;
  int32_t acc[QG_MR * QG_NV * QG_N] __attribute__((aligned(64)));
  for (int64_t g0 = p0; g0 < p1; g0 += near)
    for (int64_t t = 0; t < tiles; t++) {
      int64_t m = from + (to - from) * t / tiles;
      int rows = (int)(from + (to - from) * (t + 1) / tiles - m);
      const uint8_t *at[QG_MR + 1];
      int32_t row_sum[QG_MR];
      if (j->pack) for (int r = 0; r < rows; r++) at[r] = packed + (m - from + r) * kp;
      else qg_pointers(j, a, m, rows, at);
      if (j->columns.zero) for (int r = 0; r < rows; r++) row_sum[r] = qg_row_sum(j, at[r]);
      for (int64_t p = g0; p < nd_min(g0 + near, p1); p += QG_NV) {
        int nv = (int)nd_min(QG_NV, p1 - p), width = nv * QG_N;
        int64_t padded = (group * j->panels + p) * QG_N, n = nd_min(width, j->outputs - p * QG_N);
        qg_tile(rows, nv, at, &j->shape, j->b + (group * j->panels + p) * j->shape.panel, j->columns.add + padded, acc);
        int64_t row = j->first_row + m;
        if (j->per_row || j->columns.zero) qg_row_terms(j, acc, rows, width, padded, row, row_sum);
        qg_store(j, acc, rows, width, padded, row, group * j->outputs + p * QG_N, n);
      }
    }
}

static void qg_task(void *context, int item, int thread) {
  const qg_job *j = context;
  int64_t from, to, p0, p1, group = item / (j->blocks * j->panel_blocks);
  int64_t steps = (j->panels + QG_NV - 1) / QG_NV;
  nd_share(j->rows, (int)(item / j->panel_blocks % j->blocks), (int)j->blocks, &from, &to);
  nd_share(steps, (int)(item % j->panel_blocks), (int)j->panel_blocks, &p0, &p1);
  p0 *= QG_NV;
  p1 = nd_min(p1 * QG_NV, j->panels);
  if (!j->pack) {
    qg_work(j, group, from, to, p0, p1, NULL);
    return;
  }
  const int64_t kp = j->shape.panel / QG_N;
  uint8_t *packed = er_thread_scratch(j->c, thread);
  for (int64_t m = from; m < to; m += QG_ROWS) {
    int64_t end = nd_min(m + QG_ROWS, to);
    for (int64_t r = m; r < end; r++) {
      const uint8_t *row;
      qg_pointers(j, j->a + group * j->a_group, r, 1, &row);
      qg_flip_copy(packed + (r - m) * kp, row, j->k, j->flip);
      memset(packed + (r - m) * kp + j->k, 0, (size_t)(kp - j->k));
    }
    qg_work(j, group, m, end, p0, p1, packed);
  }
}

/* All rows and panels, spread over the pool. */
static void qg_run(qg_job *j) {
  if (j->rows == 0 || j->panels == 0) return;
  int64_t tiles = (j->rows + QG_MR - 1) / QG_MR, steps = (j->panels + QG_NV - 1) / QG_NV;
  int64_t tasks = nd_tasks(j->c, tiles * steps * j->groups, QG_MR * QG_NV * j->shape.panel / 16);
  tasks = (tasks + j->groups - 1) / j->groups;
  j->blocks = nd_min(tasks, tiles);
  j->panel_blocks = nd_min((tasks + j->blocks - 1) / j->blocks, steps);
  er_parallel(j->c->pool, qg_task, j, (int)(j->groups * j->blocks * j->panel_blocks));
}
#endif
