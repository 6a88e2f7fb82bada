/* Integer matrix products. qmatmul: a [..., M, K] codes, b, a_zero?, b_zero?, column sums?, bias?, a_scale?, b_scale?,
 * y_scale?, y_zero? -> y [..., M, N], i32 sums or, with scales, codes. Parameters: packed, K, N, offset of packed b.
 * Packed: b is one matrix in the layout of qtile.h with its column sums; else b [K, N] or [batch, K, N] is packed into
 * the scratch as it is used. a_zero and a_scale: one, or one for each row of all batches.
 * Scratch for N rounded up to 16 and K to 4, n and kp: 16 n bytes, and n (kp + 4) where b is packed here. Thread
 * scratch: QG_ROWS kp bytes. */
#include "qgemm.h"

#ifdef ER_BASELINE_CHECKS
static int check_qmatmul(const er_call *c) {
  ER_REQUIRE(c, c->n_in == QM_INPUTS && c->n_out == 1 && c->n_param == 4, "qmatmul: bad call");
  const er_view *a = &c->in[QM_A], *b = &c->in[QM_B], *y = &c->out[0];
  int64_t k = c->param[1], n = c->param[2], kp = qg_round4(k), padded = (n + QG_N - 1) / QG_N * QG_N;
  ER_REQUIRE(c, a->rank >= 2 && y->rank == a->rank && k >= 0 && n >= 0, "qmatmul: bad ranks");
  ER_REQUIRE(c, a->dim[a->rank - 1] == k && y->dim[y->rank - 1] == n, "qmatmul: shapes differ");
  for (int d = 0; d < a->rank - 1; d++) ER_REQUIRE(c, a->dim[d] == y->dim[d], "qmatmul: dim %d differs", d);
  int64_t scratch = padded * QG_COLUMN_BYTES;
  if (c->param[0]) {
    ER_REQUIRE(c, b->dtype == ER_I8 && er_numel(b) == padded * kp && c->in[QM_SUMS].data, "qmatmul: bad packed matrix");
  } else {
    ER_REQUIRE(c, qg_is_code(b->dtype) && b->rank >= 2 && b->dim[b->rank - 1] == n && b->dim[b->rank - 2] == k,
               "qmatmul: bad b");
    int64_t batches = nd_product(b, 0, b->rank - 2);
    ER_REQUIRE(c, batches == 1 || batches == nd_product(a, 0, a->rank - 2), "qmatmul: batches differ");
    scratch += padded * (kp + 4);
  }
  ER_REQUIRE(c, (int64_t)c->scratch_bytes >= scratch, "qmatmul: too little scratch");
  ER_REQUIRE(c, (int64_t)c->thread_scratch_bytes >= QG_ROWS * kp, "qmatmul: too little thread scratch");
  return qg_check_parameters(c, k ? er_numel(a) / k : 1, n, padded);
}
#endif

/* b [K, N] to the packed layout, with column sums. */
static void qm_pack(int8_t *to, int32_t *sums, const uint8_t *b, int64_t k, int64_t n, uint8_t flip) {
  int64_t kp = qg_round4(k), padded = (n + QG_N - 1) / QG_N * QG_N;
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
  int64_t k = c->param[1], n = c->param[2], kp = qg_round4(k), rows = nd_product(a, 0, a->rank - 1), start = 0;
  if (rows == 0 || n == 0) return;
  qg_job j;
  memset(&j, 0, sizeof j);
  j.k = k;
  j.groups = 1;
  j.outputs = j.y_ld = n;
  j.panels = (n + QG_N - 1) / QG_N;
  j.shape = (qg_shape){1, kp, &start, kp * QG_N};
  j.a = a->data;
  j.rows = rows;
  j.across[0] = j.across[1] = 1;
  j.across[2] = rows;
  j.step[2] = k;
  int64_t padded = j.panels * QG_N;
  /* Reading whole words must not leave the last row. */
  if (c->param[0]) {
    j.b = b->data;
    qg_prepare(&j, c, c->scratch, c->in[QM_SUMS].data, c->param[3]);
    j.pack = k % 4 != 0 || j.flip;
    qg_run(&j);
    return;
  }
  int64_t batches = nd_product(b, 0, b->rank - 2);
  int is_unsigned = b->dtype == ER_U8;
  int32_t *sums = (int32_t *)((char *)c->scratch + padded * QG_COLUMN_BYTES);
  int8_t *packed = (int8_t *)(sums + padded);
  j.rows = rows / batches;
  j.b = packed;
  for (int64_t i = 0; i < batches; i++) {
    qm_pack(packed, sums, (const uint8_t *)b->data + i * k * n, k, n, is_unsigned ? 0x80 : 0);
    qg_prepare(&j, c, c->scratch, sums, is_unsigned ? 128 : 0);
    j.pack = k % 4 != 0 || j.flip;
    j.a = (const uint8_t *)a->data + i * j.rows * k;
    j.first_row = i * j.rows;
    qg_run(&j);
  }
}
