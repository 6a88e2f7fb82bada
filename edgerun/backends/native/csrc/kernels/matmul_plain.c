/* Matrix products of the types that have no fast kernel: f64, and integers, which wrap.
 *
 *   matmul_plain: a [batch..., M, K], b [batch..., K, N] or, with trans_b, [batch..., N, K] -> y [batch..., M, N]; trans_b
 *
 * Batches broadcast. All tensors are dense and of one type: f64, i32, u32, i64 or u64. */
#include "../kernel.h"

#ifdef ER_BASELINE_CHECKS
static int check_matmul_plain(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 2 && c->n_out == 1 && c->n_param == 1, "matmul_plain has 2 inputs and 1 parameter");
  const er_view *a = &c->in[0], *b = &c->in[1], *y = &c->out[0];
  int type = y->dtype, trans = c->param[0] != 0;
  ER_REQUIRE(c, type == ER_F64 || type == ER_I32 || type == ER_U32 || type == ER_I64 || type == ER_U64, "matmul_plain of type %d", type);
  ER_REQUIRE(c, a->data && b->data && y->data && a->dtype == type && b->dtype == type, "matmul_plain of several types");
  ER_REQUIRE(c, a->rank >= 2 && b->rank >= 2 && a->rank <= y->rank && b->rank <= y->rank, "matmul ranks");
  ER_REQUIRE(c, er_is_dense(a) && er_is_dense(b) && er_is_dense(y), "matmul takes dense tensors");
  int64_t m = a->dim[a->rank - 2], k = a->dim[a->rank - 1], n = b->dim[b->rank - (trans ? 2 : 1)];
  ER_REQUIRE(c, b->dim[b->rank - (trans ? 1 : 2)] == k && y->dim[y->rank - 2] == m && y->dim[y->rank - 1] == n, "matmul shapes differ");
  for (int i = 3; i <= y->rank; i++) {
    int64_t d = y->dim[y->rank - i];
    if (a->rank >= i) ER_REQUIRE(c, a->dim[a->rank - i] == d || a->dim[a->rank - i] == 1, "matmul batches differ");
    if (b->rank >= i) ER_REQUIRE(c, b->dim[b->rank - i] == d || b->dim[b->rank - i] == 1, "matmul batches differ");
  }
  ER_REQUIRE(c, n == 0 || er_numel(y) / n < INT32_MAX, "too many rows");
  return 0;
}
#endif

/* y [n] = a [k] times b: rows of b when they are contiguous in n, else columns. */
#define MP_ROW(NAME, T)                                                                                      \
  static void mp_row_##NAME(const void *from, const void *matrix, void *to, int64_t k, int64_t n, int trans) { \
    const T *a = from, *b = matrix;                                                                          \
    T *y = to;                                                                                               \
    for (int64_t j = 0; j < n; j++) y[j] = 0;                                                                \
    if (!trans) {                                                                                            \
      for (int64_t i = 0; i < k; i++)                                                                        \
        for (int64_t j = 0; j < n; j++) y[j] += a[i] * b[i * n + j];                                         \
    } else {                                                                                                 \
      for (int64_t j = 0; j < n; j++)                                                                        \
        for (int64_t i = 0; i < k; i++) y[j] += a[i] * b[j * k + i];                                         \
    }                                                                                                        \
  }
MP_ROW(f64, double) MP_ROW(u32, uint32_t) MP_ROW(u64, uint64_t)

/* Element offset of matrix `index`, counted over y's batch dims, in a view whose batch dims broadcast. */
static int64_t mp_offset(const er_view *v, const er_view *y, int64_t index) {
  int64_t offset = 0, stride = v->dim[v->rank - 1] * v->dim[v->rank - 2];
  for (int i = 3; i <= v->rank; i++) {
    int64_t d = y->dim[y->rank - i], own = v->dim[v->rank - i];
    if (own != 1) offset += index % d * stride;
    index /= d;
    stride *= own;
  }
  return offset;
}

/* One row of one matrix. */
static void mp_task(void *ctx, int item, int thread) {
  const er_call *c = ctx;
  (void)thread;
  const er_view *a = &c->in[0], *b = &c->in[1], *y = &c->out[0];
  int64_t m = y->dim[y->rank - 2], n = y->dim[y->rank - 1], k = a->dim[a->rank - 1], size = er_itemsize(y->dtype);
  const char *from = (const char *)a->data + (mp_offset(a, y, item / m) + item % m * k) * size;
  const char *matrix = (const char *)b->data + mp_offset(b, y, item / m) * size;
  char *to = (char *)y->data + item * n * size;
  if (y->dtype == ER_F64) mp_row_f64(from, matrix, to, k, n, c->param[0]);
  else if (size == 4) mp_row_u32(from, matrix, to, k, n, c->param[0]);
  else mp_row_u64(from, matrix, to, k, n, c->param[0]);
}

static void run_matmul_plain(const er_call *c) {
  const er_view *y = &c->out[0];
  int64_t n = y->dim[y->rank - 1];
  if (n) er_parallel(c->pool, mp_task, (void *)c, (int)(er_numel(y) / n));
}
