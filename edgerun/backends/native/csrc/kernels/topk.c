/* topk: the k largest or smallest of each line along an axis, with their indices; k is the output's size there.
 * Ties go to the lower index; NaN counts as the largest. Parameters: axis, largest, sorted. Thread scratch: 16 bytes
 * for each element of a line: (key, index) entries, of which a heap keeps the best k. */
#include "half.h"
#include "nd.h"

typedef struct { uint64_t key; int64_t index; } topk_entry; /* better = larger key, then lower index */

#ifdef ER_BASELINE_CHECKS
static int check_topk(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 1 && c->n_out == 2 && c->n_param == 3, "topk: bad call");
  const er_view *in = &c->in[0], *values = &c->out[0], *indices = &c->out[1];
  int axis = c->param[0];
  ER_REQUIRE(c, axis >= 0 && axis < in->rank && values->rank == in->rank && nd_same_shape(values, indices),
             "topk: bad shapes");
  ER_REQUIRE(c, values->dtype == in->dtype && er_is_number(in->dtype) && indices->dtype == ER_I64, "topk: bad dtypes");
  for (int d = 0; d < in->rank; d++)
    ER_REQUIRE(c, d == axis ? values->dim[d] <= in->dim[d] : values->dim[d] == in->dim[d], "topk: dim %d does not fit",
               d);
  ER_REQUIRE(c, er_is_dense(in) && er_is_dense(values) && er_is_dense(indices), "topk takes dense tensors");
  ER_REQUIRE(c, (int64_t)c->thread_scratch_bytes >= in->dim[axis] * (int64_t)sizeof(topk_entry),
             "topk: too little scratch");
  return 0;
}
#endif

/* A key whose unsigned order is the order of the elements. */
static uint64_t topk_key(int dtype, const void *x, int64_t at) {
  switch (dtype) {
    case ER_F32: case ER_F16: case ER_BF16: {
      float v = dtype == ER_F32   ? ((const float *)x)[at]
                : dtype == ER_F16 ? er_from_f16(((const uint16_t *)x)[at])
                                  : er_from_bf16(((const uint16_t *)x)[at]);
      if (v != v) return UINT32_MAX;
      int32_t bits = er_bits_s(v + 0.0f); /* -0 becomes 0 */
      return bits < 0 ? ~(uint32_t)bits : (uint32_t)bits | 0x80000000u;
    }
    case ER_F64: {
      double v = ((const double *)x)[at] + 0.0;
      uint64_t bits;
      memcpy(&bits, &v, 8);
      return v != v ? UINT64_MAX : bits >> 63 ? ~bits : bits | (uint64_t)1 << 63;
    }
    case ER_I8: return (uint64_t)((const int8_t *)x)[at] ^ (uint64_t)1 << 63;
    case ER_I16: return (uint64_t)((const int16_t *)x)[at] ^ (uint64_t)1 << 63;
    case ER_I32: return (uint64_t)((const int32_t *)x)[at] ^ (uint64_t)1 << 63;
    case ER_I64: return (uint64_t)((const int64_t *)x)[at] ^ (uint64_t)1 << 63;
    case ER_U16: return ((const uint16_t *)x)[at];
    case ER_U32: return ((const uint32_t *)x)[at];
    case ER_U64: return ((const uint64_t *)x)[at];
    default: return ((const uint8_t *)x)[at];
  }
}

static int topk_better(const topk_entry *a, const topk_entry *b) {
  return a->key > b->key || (a->key == b->key && a->index < b->index);
}
/* Restore the heap of n entries, the worst on top, below position i. */
static void topk_sift(topk_entry *heap, int64_t n, int64_t i) {
  topk_entry moving = heap[i];
  for (int64_t child; (child = 2 * i + 1) < n; i = child) {
    if (child + 1 < n && topk_better(&heap[child], &heap[child + 1])) child++;
    if (!topk_better(&moving, &heap[child])) break;
    heap[i] = heap[child];
  }
  heap[i] = moving;
}

typedef struct { const er_call *c; int64_t outer, n, k, inner; int tasks; } topk_plan;

static void topk_task(void *context, int item, int thread) {
  const topk_plan *p = context;
  const er_call *c = p->c;
  const er_view *in = &c->in[0];
  topk_entry *heap = er_thread_scratch(c, thread);
  int64_t from, to, k = p->k, size = er_itemsize(in->dtype);
  uint64_t flip = c->param[1] ? 0 : UINT64_MAX;
  nd_share(p->outer * p->inner, item, p->tasks, &from, &to);
  for (int64_t line = from; line < to; line++) {
    int64_t base = line / p->inner * p->n * p->inner + line % p->inner;
    for (int64_t i = 0; i < p->n; i++) {
      topk_entry e = {topk_key(in->dtype, in->data, base + i * p->inner) ^ flip, i};
      if (i < k) {
        heap[i] = e;
        if (i == k - 1) for (int64_t j = k / 2 - 1; j >= 0; j--) topk_sift(heap, k, j);
      } else if (topk_better(&e, &heap[0])) {
        heap[0] = e;
        topk_sift(heap, k, 0);
      }
    }
    /* Always sorted: an order is then defined whether or not one was asked for. */
    for (int64_t n = k - 1; n > 0; n--) {
      topk_entry worst = heap[0];
      heap[0] = heap[n];
      heap[n] = worst;
      topk_sift(heap, n, 0);
    }
    int64_t out = line / p->inner * k * p->inner + line % p->inner;
    for (int64_t j = 0; j < k; j++, out += p->inner) {
      memcpy((char *)c->out[0].data + out * size, (const char *)in->data + (base + heap[j].index * p->inner) * size,
             (size_t)size);
      ((int64_t *)c->out[1].data)[out] = heap[j].index;
    }
  }
}

static void run_topk(const er_call *c) {
  const er_view *in = &c->in[0];
  int axis = c->param[0];
  if (er_numel(&c->out[0]) == 0) return;
  topk_plan p = {c, nd_product(in, 0, axis), in->dim[axis], c->out[0].dim[axis], nd_product(in, axis + 1, in->rank), 1};
  p.tasks = nd_tasks(c, p.outer * p.inner, 4 * p.n);
  er_parallel(c->pool, topk_task, &p, p.tasks);
}
