/* matmul_nbits: a [..., K] f32 times weights of 2, 4 or 8 bits, [N, K] in blocks of K with a scale and zero point each.
 * Inputs: a, codes u8 [N, blocks, block * bits / 8] (least significant bits first), scales f32 [N, blocks], zeros f32
 * [N, blocks], block of each k (i32 [K])?, bias f32 [N]? -> y f32 [..., N]. Parameters: K, N, bits, block.
 * A row of weights is read back once into the thread scratch (4 * blocks * block bytes) and used for every row of a. */
#include "nd.h"
#include "vmath.h"

#ifdef ER_BASELINE_CHECKS
static int check_matmul_nbits(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 6 && c->n_out == 1 && c->n_param == 4, "matmul_nbits: bad call");
  const er_view *a = &c->in[0], *y = &c->out[0], *index = &c->in[4];
  int64_t k = c->param[0], n = c->param[1], bits = c->param[2], block = c->param[3];
  ER_REQUIRE(c, (bits == 2 || bits == 4 || bits == 8) && block >= 16 && block % 16 == 0 && k > 0 && n > 0,
             "matmul_nbits: bad parameters");
  int64_t blocks = (k + block - 1) / block;
  for (int i = 0; i < 6; i++)
    ER_REQUIRE(c, er_is_dense(&c->in[i]) || !c->in[i].data, "matmul_nbits takes dense tensors");
  ER_REQUIRE(c, a->rank >= 1 && y->rank == a->rank && a->dtype == ER_F32 && y->dtype == ER_F32 && er_is_dense(y),
             "matmul_nbits: bad tensors");
  ER_REQUIRE(c, a->dim[a->rank - 1] == k && y->dim[y->rank - 1] == n && er_numel(a) / k == er_numel(y) / n,
             "matmul_nbits: shapes differ");
  ER_REQUIRE(c, c->in[1].dtype == ER_U8 && er_numel(&c->in[1]) == n * blocks * block * bits / 8,
             "matmul_nbits: bad codes");
  for (int i = 2; i < 4; i++)
    ER_REQUIRE(c, c->in[i].dtype == ER_F32 && er_numel(&c->in[i]) == n * blocks, "matmul_nbits: bad scales");
  ER_REQUIRE(c, !c->in[5].data || (c->in[5].dtype == ER_F32 && er_numel(&c->in[5]) == n), "matmul_nbits: bad bias");
  ER_REQUIRE(c, !index->data || (index->dtype == ER_I32 && er_numel(index) == k), "matmul_nbits: bad block index");
  for (int64_t i = 0; index->data && i < k; i++) {
    int32_t b = ((const int32_t *)index->data)[i];
    ER_REQUIRE(c, b >= 0 && b < blocks, "matmul_nbits: block %d of %lld", b, (long long)blocks);
  }
  ER_REQUIRE(c, (int64_t)c->thread_scratch_bytes >= 4 * blocks * block, "matmul_nbits: too little thread scratch");
  return 0;
}
#endif

typedef struct { const er_call *c; int64_t rows; int tasks; } nbits_plan;

static void nbits_task(void *context, int item, int thread) {
  const nbits_plan *p = context;
  const er_call *c = p->c;
  int64_t k = c->param[0], n = c->param[1], bits = c->param[2], block = c->param[3], blocks = (k + block - 1) / block,
          from, to;
  float *w = er_thread_scratch(c, thread);
  const int32_t *index = c->in[4].data;
  nd_share(n, item, p->tasks, &from, &to);
  for (int64_t j = from; j < to; j++) {
    const uint8_t *code = (const uint8_t *)c->in[1].data + j * blocks * block * bits / 8;
    const float *scale = (const float *)c->in[2].data + j * blocks, *zero = (const float *)c->in[3].data + j * blocks;
    int64_t total = blocks * block;
    switch (bits) {
      case 8: for (int64_t i = 0; i < total; i++) w[i] = code[i]; break;
      case 4: for (int64_t i = 0; i < total / 2; i++) { w[2 * i] = code[i] & 15; w[2 * i + 1] = code[i] >> 4; } break;
      default: for (int64_t i = 0; i < total; i++) w[i] = code[i / 4] >> (i % 4 * 2) & 3;
    }
    if (index) {
      for (int64_t i = 0; i < k; i++) w[i] = (w[i] - zero[index[i]]) * scale[index[i]];
    } else {
      for (int64_t b = 0; b < blocks; b++)
        for (int64_t i = b * block; i < (b + 1) * block; i++) w[i] = (w[i] - zero[b]) * scale[b];
    }
    float bias = c->in[5].data ? ((const float *)c->in[5].data)[j] : 0;
    for (int64_t r = 0; r < p->rows; r++) {
      const float *a = (const float *)c->in[0].data + r * k;
      er_w s0 = er_splat_w(0), s1 = s0;
      float rest = 0;
      int64_t i = 0;
      for (; i + 2 * ER_W <= k; i += 2 * ER_W) {
        s0 += er_load_w(a + i) * er_load_w(w + i);
        s1 += er_load_w(a + i + ER_W) * er_load_w(w + i + ER_W);
      }
      for (; i < k; i++) rest += a[i] * w[i];
      ((float *)c->out[0].data)[r * n + j] = rest + er_sum_lanes_w(s0 + s1) + bias;
    }
  }
}

static void run_matmul_nbits(const er_call *c) {
  nbits_plan p = {c, er_numel(&c->in[0]) / c->param[0], 1};
  if (p.rows == 0) return;
  p.tasks = nd_tasks(c, c->param[1], (p.rows + 2) * c->param[0]);
  er_parallel(c->pool, nbits_task, &p, p.tasks);
}
