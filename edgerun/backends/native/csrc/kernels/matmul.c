/* Matrix products.
 *
 *   matmul_f32:     a [..., M, K], packed b (one matrix), bias, residual, slope -> y [..., M, N]; K, N, act, p0, p1, res
 *   matmul_dyn_f32: a [batch..., M, K], b [batch..., K, N] or, with trans_b, [batch..., N, K] -> y; trans_b, act, p0, p1, res
 *                   inputs as above; batches broadcast; each b is packed first: into the scratch, or where a thread's
 *                   scratch is large enough into that, a thread then doing a whole batch
 */
#include "product.h"

enum { MM_K, MM_N, MM_ACT, MM_P0, MM_P1, MM_RES, MM_PARAMS };
enum { MMD_TRANS_B, MMD_ACT, MMD_P0, MMD_P1, MMD_RES, MMD_PARAMS };

#ifdef ER_BASELINE_CHECKS
/* Epilogue inputs 2..4 of a product with n columns. */
static int mm_check_epilogue(const er_call *c, int64_t n, int act, int res, int padded_bias) {
  const er_view *y = &c->out[0], *bias = &c->in[2], *residual = &c->in[3], *slope = &c->in[4];
  ER_REQUIRE(c, act >= 0 && act <= ER_ACT_PRELU && res >= 0 && res <= 2, "unknown epilogue");
  if (bias->data) ER_REQUIRE(c, bias->dtype == ER_F32 && er_numel(bias) >= (padded_bias ? gemm_columns(n) : n), "too few biases");
  ER_REQUIRE(c, (res != ER_RES_NONE) == (residual->data != NULL), "residual without a mode");
  if (residual->data) {
    ER_REQUIRE(c, residual->dtype == ER_F32 && residual->rank == y->rank, "residual of another type");
    for (int i = 0; i < y->rank; i++) ER_REQUIRE(c, residual->dim[i] == y->dim[i], "residual of another shape");
  }
  ER_REQUIRE(c, (act == ER_ACT_PRELU) == (slope->data != NULL), "slopes without prelu");
  if (slope->data) ER_REQUIRE(c, slope->dtype == ER_F32 && er_numel(slope) >= n, "too few slopes");
  return 0;
}

static int check_matmul_f32(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 5 && c->n_out == 1 && c->n_param == MM_PARAMS, "matmul has 5 inputs and %d parameters", MM_PARAMS);
  const er_view *a = &c->in[0], *b = &c->in[1], *y = &c->out[0];
  ER_REQUIRE(c, a->data && b->data && y->data && a->dtype == ER_F32 && b->dtype == ER_F32 && y->dtype == ER_F32, "matmul takes f32");
  ER_REQUIRE(c, a->rank >= 1 && y->rank == a->rank, "matmul of rank %d to %d", a->rank, y->rank);
  int64_t k = c->param[MM_K], n = c->param[MM_N];
  ER_REQUIRE(c, k >= 0 && n >= 0 && a->dim[a->rank - 1] == k && y->dim[y->rank - 1] == n, "matmul shapes differ");
  for (int i = 0; i + 1 < a->rank; i++) ER_REQUIRE(c, a->dim[i] == y->dim[i], "matmul shapes differ");
  ER_REQUIRE(c, er_numel(b) == gemm_columns(n) * k, "packed matrix of the wrong size");
  ER_REQUIRE(c, k == 0 || er_numel(a) / k < INT32_MAX, "too many rows");
  return mm_check_epilogue(c, n, c->param[MM_ACT], c->param[MM_RES], 1);
}

/* Batch dims of b broadcast to those of y. */
static int check_matmul_dyn_f32(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 5 && c->n_out == 1 && c->n_param == MMD_PARAMS, "matmul has 5 inputs and %d parameters", MMD_PARAMS);
  const er_view *a = &c->in[0], *b = &c->in[1], *y = &c->out[0];
  ER_REQUIRE(c, a->data && b->data && y->data && a->dtype == ER_F32 && b->dtype == ER_F32 && y->dtype == ER_F32, "matmul takes f32");
  ER_REQUIRE(c, a->rank >= 2 && b->rank >= 2 && y->rank >= 2 && a->rank <= y->rank && b->rank <= y->rank, "matmul ranks");
  ER_REQUIRE(c, er_is_dense(a) && er_is_dense(b) && er_is_dense(y), "matmul takes dense tensors");
  int trans = c->param[MMD_TRANS_B] != 0;
  int64_t m = a->dim[a->rank - 2], k = a->dim[a->rank - 1];
  int64_t n = b->dim[b->rank - (trans ? 2 : 1)];
  ER_REQUIRE(c, b->dim[b->rank - (trans ? 1 : 2)] == k && y->dim[y->rank - 2] == m && y->dim[y->rank - 1] == n, "matmul shapes differ");
  for (int i = 3; i <= y->rank; i++) {
    int64_t d = y->dim[y->rank - i];
    if (a->rank >= i) ER_REQUIRE(c, a->dim[a->rank - i] == d || a->dim[a->rank - i] == 1, "matmul batches differ");
    if (b->rank >= i) ER_REQUIRE(c, b->dim[b->rank - i] == d || b->dim[b->rank - i] == 1, "matmul batches differ");
  }
  uint64_t room = c->scratch_bytes > c->thread_scratch_bytes ? c->scratch_bytes : c->thread_scratch_bytes;
  ER_REQUIRE(c, (uint64_t)(gemm_columns(n) * k + gemm_columns(n)) * 4 <= room, "too little scratch");
  if (c->in[3].data) ER_REQUIRE(c, er_is_dense(&c->in[3]), "residual must be dense");
  return mm_check_epilogue(c, n, c->param[MMD_ACT], c->param[MMD_RES], 0);
}
#endif

static void run_matmul_f32(const er_call *c) {
  const er_view *a = &c->in[0], *y = &c->out[0];
  int64_t k = c->param[MM_K], m = 1;
  for (int i = 0; i + 1 < a->rank; i++) m *= a->dim[i];
  mm_job j = {.shape = {1, 1, k, 0, 0}, .a = a->data, .b = c->in[1].data, .y = y->data, .m = m, .n = c->param[MM_N], .a_ld = a->ld, .y_ld = y->ld};
  j.epilogue = (gemm_epilogue){c->in[2].data, c->in[3].data, c->in[4].data, c->in[3].ld, c->param[MM_ACT], c->param[MM_RES],
                               er_param_f32(c, MM_P0), er_param_f32(c, MM_P1)};
  mm_run(c->pool, &j, m * k * 4);
}

/* Packs one panel of b [K, N] (or [N, K] with trans) at the given row stride. */
typedef struct { const float *b; float *to; int64_t k, n, ld; int trans; } mm_pack_job;
static void mm_pack_panel(void *ctx, int p, int thread) {
  const mm_pack_job *j = ctx;
  (void)thread;
  int64_t first = (int64_t)p * GEMM_NR;
  int width = gemm_width(j->n, first), columns = (int)(j->n - first < width ? j->n - first : width);
  float *to = j->to + first * j->k;
  if (!j->trans) {
    for (int64_t k = 0; k < j->k; k++, to += width) {
      memcpy(to, j->b + k * j->ld + first, sizeof(float) * (size_t)columns);
      for (int x = columns; x < width; x++) to[x] = 0.0f;
    }
  } else {
    for (int x = 0; x < width; x++) {
      const float *from = j->b + (first + x) * j->ld;
      if (x < columns) for (int64_t k = 0; k < j->k; k++) to[k * width + x] = from[k];
      else for (int64_t k = 0; k < j->k; k++) to[k * width + x] = 0.0f;
    }
  }
}

/* Element offset of batch `index` (counted over y's batch dims) in a view whose batch dims broadcast. */
ER_INLINE int64_t mm_batch_offset(const er_view *v, const er_view *y, int64_t index) {
  int64_t offset = 0, stride = 1;
  for (int i = 3; i <= y->rank; i++) {
    int64_t d = y->dim[y->rank - i], at = index % d;
    index /= d;
    if (v->rank >= i) {
      int64_t own = v->dim[v->rank - i];
      if (own != 1) offset += at * stride;
      stride *= own;
    }
  }
  return offset;
}

/* Batch `index` of a product: packs its b into `packed`, unless it is the one that lies there already. Returns the job. */
static mm_job mm_batch(const er_call *c, int64_t index, er_pool *pool, float *packed, int64_t *last) {
  const er_view *a = &c->in[0], *b = &c->in[1], *y = &c->out[0], *residual = &c->in[3];
  int trans = c->param[MMD_TRANS_B] != 0;
  int64_t m = a->dim[a->rank - 2], k = a->dim[a->rank - 1], n = y->dim[y->rank - 1], at = mm_batch_offset(b, y, index);
  if (at != *last) {
    mm_pack_job pack = {(const float *)b->data + at * k * n, packed, k, n, trans ? k : n, trans};
    if (pool) er_parallel(pool, mm_pack_panel, &pack, (int)gemm_panels(n));
    else for (int p = 0; p < (int)gemm_panels(n); p++) mm_pack_panel(&pack, p, 0);
    *last = at;
  }
  float *bias = NULL;
  if (c->in[2].data) { /* the micro-kernel reads biases by whole vectors */
    bias = packed + gemm_columns(n) * k;
    memcpy(bias, c->in[2].data, sizeof(float) * (size_t)n);
    for (int64_t i = n; i < gemm_columns(n); i++) bias[i] = 0.0f;
  }
  mm_job j = {.shape = {1, 1, k, 0, 0}, .a = (const float *)a->data + mm_batch_offset(a, y, index) * m * k, .b = packed,
              .y = (float *)y->data + index * m * n, .m = m, .n = n, .a_ld = k, .y_ld = n};
  j.epilogue = (gemm_epilogue){bias, residual->data ? (const float *)residual->data + index * m * n : NULL, c->in[4].data, n,
                               c->param[MMD_ACT], c->param[MMD_RES], er_param_f32(c, MMD_P0), er_param_f32(c, MMD_P1)};
  return j;
}

/* Batches [first, first + per) of a product, by one thread. */
typedef struct { const er_call *c; int64_t batches, per; } mm_batches;
static void mm_batches_item(void *ctx, int item, int thread) {
  const mm_batches *all = ctx;
  int64_t last = -1, end = (item + 1) * all->per < all->batches ? (item + 1) * all->per : all->batches;
  for (int64_t i = item * all->per; i < end; i++) {
    mm_job j = mm_batch(all->c, i, NULL, er_thread_scratch(all->c, thread), &last);
    mm_run_serial(&j, thread);
  }
}

static void run_matmul_dyn_f32(const er_call *c) {
  const er_view *a = &c->in[0], *y = &c->out[0];
  int64_t m = a->dim[a->rank - 2], k = a->dim[a->rank - 1], n = y->dim[y->rank - 1], batches = 1;
  for (int i = 0; i + 2 < y->rank; i++) batches *= y->dim[i];
  if (m == 0 || n == 0 || batches == 0) return;
  int64_t need = (gemm_columns(n) * k + gemm_columns(n)) * 4, threads = er_pool_threads(c->pool);
  int roomy = (uint64_t)need <= c->thread_scratch_bytes;
  if (roomy && batches >= threads && batches > 1) {
    int64_t items = m * n * k * batches < GEMM_SERIAL ? 1 : batches < threads * GEMM_SPREAD ? batches : threads * GEMM_SPREAD;
    mm_batches all = {c, batches, (batches + items - 1) / items};
    er_parallel(c->pool, mm_batches_item, &all, (int)((batches + all.per - 1) / all.per));
    return;
  }
  int64_t last = -1;
  for (int64_t i = 0; i < batches; i++) {
    mm_job j = mm_batch(c, i, c->pool, (uint64_t)need <= c->scratch_bytes ? c->scratch : c->thread_scratch, &last);
    mm_run(c->pool, &j, m * k * 4);
  }
}
