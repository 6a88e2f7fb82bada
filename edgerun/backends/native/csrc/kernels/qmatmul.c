/* Integer matrix products. qmatmul: a [..., M, K] codes, b, a_zero?, b_zero?, column sums?, bias?, a_scale?, b_scale?,
 * y_scale?, y_zero? -> y [..., M, N], i32 sums or, with scales, codes. Parameters: packed, K, N, offset of packed b.
 * Packed: b is one matrix in the layout of qgemm.h with its column sums; else b [K, N] or [batch, K, N] is packed into
 * the scratch as it is used: (16 ceil(N / 16)) (kp + 4) bytes. a_zero and a_scale: one, or one for each row of all
 * batches. Thread scratch: QG_ROWS (kp + 68) bytes. */
#include "qgemm.h"

enum { QM_A, QM_B, QM_A_ZERO, QM_B_ZERO, QM_SUMS, QM_BIAS, QM_A_SCALE, QM_B_SCALE, QM_Y_SCALE, QM_Y_ZERO, QM_INPUTS };

static int qm_is_code(int dtype) { return dtype == ER_I8 || dtype == ER_U8; }

#ifdef ER_BASELINE_CHECKS
static int qm_one_of(const er_view *v, int dtype, int64_t n, int64_t m) {
  return !v->data || (v->dtype == dtype && er_is_dense(v) && (er_numel(v) == n || er_numel(v) == m));
}
/* Everything but the shapes: inputs 2.. for `rows` rows (1: a single parameter) and n columns. */
static int qm_check_parameters(const er_call *c, int64_t rows, int64_t n, int64_t padded) {
  const er_view *in = c->in, *y = &c->out[0];
  ER_REQUIRE(c, qm_is_code(in[QM_A].dtype) && er_is_dense(&in[QM_A]) && er_is_dense(&in[QM_B]) && er_is_dense(y),
             "qmatmul takes dense i8 or u8");
  ER_REQUIRE(c, qm_one_of(&in[QM_A_ZERO], in[QM_A].dtype, 1, rows), "qmatmul: bad zero point of a");
  ER_REQUIRE(c, !in[QM_B_ZERO].data || qm_is_code(in[QM_B_ZERO].dtype), "qmatmul: bad zero point of b");
  ER_REQUIRE(c, qm_one_of(&in[QM_B_ZERO], in[QM_B_ZERO].dtype, 1, n), "qmatmul: bad zero point of b");
  ER_REQUIRE(c, qm_one_of(&in[QM_SUMS], ER_I32, padded, padded) && qm_one_of(&in[QM_BIAS], ER_I32, n, n),
             "qmatmul: bad sums or bias");
  if (y->dtype == ER_I32) return 0;
  ER_REQUIRE(c,
             qm_is_code(y->dtype) && in[QM_A_SCALE].data && in[QM_B_SCALE].data && in[QM_Y_SCALE].data &&
                 in[QM_Y_ZERO].data,
             "qmatmul: scales are missing");
  ER_REQUIRE(c,
             qm_one_of(&in[QM_A_SCALE], ER_F32, 1, rows) && qm_one_of(&in[QM_B_SCALE], ER_F32, 1, n) &&
                 qm_one_of(&in[QM_Y_SCALE], ER_F32, 1, 1) && qm_one_of(&in[QM_Y_ZERO], y->dtype, 1, 1),
             "qmatmul: bad scales");
  return 0;
}
static int check_qmatmul(const er_call *c) {
  ER_REQUIRE(c, c->n_in == QM_INPUTS && c->n_out == 1 && c->n_param == 4, "qmatmul: bad call");
  const er_view *a = &c->in[QM_A], *b = &c->in[QM_B], *y = &c->out[0];
  int64_t k = c->param[1], n = c->param[2], kp = (k + 3) / 4 * 4, padded = (n + QG_N - 1) / QG_N * QG_N;
  ER_REQUIRE(c, a->rank >= 2 && y->rank == a->rank && k >= 0 && n >= 0, "qmatmul: bad ranks");
  ER_REQUIRE(c, a->dim[a->rank - 1] == k && y->dim[y->rank - 1] == n, "qmatmul: shapes differ");
  for (int d = 0; d < a->rank - 1; d++) ER_REQUIRE(c, a->dim[d] == y->dim[d], "qmatmul: dim %d differs", d);
  if (c->param[0]) {
    ER_REQUIRE(c, b->dtype == ER_I8 && er_numel(b) == padded * kp && c->in[QM_SUMS].data, "qmatmul: bad packed matrix");
  } else {
    ER_REQUIRE(c, qm_is_code(b->dtype) && b->rank >= 2 && b->dim[b->rank - 1] == n && b->dim[b->rank - 2] == k,
               "qmatmul: bad b");
    int64_t batches = nd_product(b, 0, b->rank - 2);
    ER_REQUIRE(c, batches == 1 || batches == nd_product(a, 0, a->rank - 2), "qmatmul: batches differ");
    ER_REQUIRE(c, (int64_t)c->scratch_bytes >= padded * (kp + 4), "qmatmul: too little scratch");
  }
  ER_REQUIRE(c, (int64_t)c->thread_scratch_bytes >= QG_ROWS * (kp + 68), "qmatmul: too little thread scratch");
  return qm_check_parameters(c, k ? er_numel(a) / k : 1, n, padded);
}
#endif

static int qm_flip(int dtype) { return (dtype == ER_I8) == QG_A_SIGNED ? 0 : 0x80; }
/* What packing adds to a code of a. */
static int qm_offset(int dtype) { return (dtype == ER_I8) == QG_A_SIGNED ? 0 : QG_A_SIGNED ? -128 : 128; }

static qg_epilogue qm_epilogue(const er_call *c, int64_t k, int b_offset) {
  const er_view *in = c->in;
  qg_epilogue e = {&c->out[0],
                   in[QM_SUMS].data,
                   in[QM_BIAS].data,
                   in[QM_B_ZERO].data,
                   in[QM_B_SCALE].data,
                   in[QM_B_ZERO].dtype,
                   (int)er_numel(&in[QM_B_ZERO]),
                   (int)er_numel(&in[QM_B_SCALE]),
                   b_offset,
                   1,
                   0,
                   k};
  if (in[QM_Y_SCALE].data) e.y_scale = *(const float *)in[QM_Y_SCALE].data;
  if (in[QM_Y_ZERO].data) e.y_zero = qg_code(in[QM_Y_ZERO].dtype, in[QM_Y_ZERO].data, 0);
  return e;
}
/* Whether row sums of a are needed. */
static int qm_wants_row_sums(const qg_epilogue *e) {
  if (!e->b_zero) return e->b_offset != 0;
  for (int j = 0; j < e->b_zeros; j++) if (qg_code(e->b_dtype, e->b_zero, j) != e->b_offset) return 1;
  return 0;
}

typedef struct {
  const er_call *c;
  qg_epilogue e;
  const int8_t *b;
  int64_t first_row, rows, n, kp, panels;
  int row_blocks, column_blocks, sums;
} qm_plan;

static void qm_task(void *context, int item, int thread) {
  const qm_plan *p = context;
  const er_call *c = p->c;
  const er_view *a = &c->in[QM_A], *zero = &c->in[QM_A_ZERO], *scale = &c->in[QM_A_SCALE];
  int64_t from, to, k = p->e.k;
  nd_share(p->panels, item % p->column_blocks, p->column_blocks, &from, &to);
  int64_t row = (int64_t)(item / p->column_blocks) * QG_ROWS;
  int rows = (int)nd_min(QG_ROWS, p->rows - row);
  int32_t *acc = er_thread_scratch(c, thread), *row_sum = acc + QG_ROWS * QG_N;
  uint8_t *packed = (uint8_t *)(row_sum + QG_ROWS);
  row += p->first_row;
  for (int r = 0; r < rows; r++)
    row_sum[r] = qg_pack_row(packed + r * p->kp, (const uint8_t *)a->data + (row + r) * k, k, p->kp,
                             (uint8_t)qm_flip(a->dtype), p->sums);
  for (int64_t panel = from; panel < to; panel++) {
    qg_rows(acc, packed, rows, p->kp, p->b + panel * p->kp * QG_N);
    for (int r = 0; r < rows; r++) {
      int64_t at = er_numel(zero) > 1 ? row + r : 0;
      int32_t za = (zero->data ? qg_code(zero->dtype, zero->data, at) : 0) + qm_offset(a->dtype);
      float sa = scale->data ? ((const float *)scale->data)[er_numel(scale) > 1 ? row + r : 0] : 1;
      qg_store(&p->e, acc + r * QG_N, (row + r) * p->n + panel * QG_N, panel * QG_N, nd_min(QG_N, p->n - panel * QG_N),
               za, row_sum[r], sa);
    }
  }
}

static void qm_rows(qm_plan *p) {
  p->sums = qm_wants_row_sums(&p->e);
  p->row_blocks = (int)((p->rows + QG_ROWS - 1) / QG_ROWS);
  int tasks = nd_tasks(p->c, p->rows * p->panels, p->kp);
  p->column_blocks = (int)nd_min(p->panels, nd_max(1, (tasks + p->row_blocks - 1) / nd_max(1, p->row_blocks)));
  er_parallel(p->c->pool, qm_task, p, p->row_blocks * p->column_blocks);
}

/* b [K, N] to the packed layout, with column sums. */
static void qm_pack(int8_t *to, int32_t *sums, const uint8_t *b, int64_t k, int64_t n, uint8_t flip) {
  int64_t kp = (k + 3) / 4 * 4, padded = (n + QG_N - 1) / QG_N * QG_N;
  for (int64_t column = 0; column < padded; column += QG_N, sums += QG_N) {
    int64_t width = nd_min(QG_N, n - column);
    int32_t total[QG_N] = {0};
    for (int64_t i = 0; i < kp; i += 4, to += 4 * QG_N) {
      int8_t rows[4][QG_N] = {{0}};
      for (int64_t r = 0; r < 4 && i + r < k; r++) {
        const uint8_t *from = b + (i + r) * n + column;
        if (width == QG_N) for (int j = 0; j < QG_N; j++) rows[r][j] = (int8_t)(from[j] ^ flip);
        else for (int64_t j = 0; j < width; j++) rows[r][j] = (int8_t)(from[j] ^ flip);
      }
      for (int j = 0; j < QG_N; j++) {
        for (int r = 0; r < 4; r++) to[4 * j + r] = rows[r][j];
        total[j] += rows[0][j] + rows[1][j] + rows[2][j] + rows[3][j];
      }
    }
    memcpy(sums, total, sizeof total);
  }
}

static void run_qmatmul(const er_call *c) {
  const er_view *a = &c->in[QM_A], *b = &c->in[QM_B];
  int64_t k = c->param[1], n = c->param[2], rows = nd_product(a, 0, a->rank - 1);
  if (rows == 0 || n == 0) return;
  qm_plan p = {c, qm_epilogue(c, k, c->param[3]), b->data, 0, rows, n, (k + 3) / 4 * 4, (n + QG_N - 1) / QG_N, 0, 0, 0};
  if (c->param[0]) {
    qm_rows(&p);
    return;
  }
  int64_t batches = nd_product(b, 0, b->rank - 2);
  int is_unsigned = b->dtype == ER_U8;
  p.rows = rows / batches;
  p.b = (const int8_t *)((char *)c->scratch + p.panels * QG_N * 4);
  p.e.column_sum = c->scratch;
  p.e.b_offset = is_unsigned ? 128 : 0;
  for (int64_t i = 0; i < batches; i++) {
    qm_pack((int8_t *)(uintptr_t)p.b, c->scratch, (const uint8_t *)b->data + i * k * n, k, n, is_unsigned ? 0x80 : 0);
    p.first_row = i * p.rows;
    qm_rows(&p);
  }
}
