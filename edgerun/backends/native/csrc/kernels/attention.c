/* Scaled dot-product attention over complete keys and values, f32.
 * Inputs: q [B, H, Sq, D], k [B, G, T, D], v [B, G, T, Dv], mask? (bool or f32, broadcast to [B, H, Sq, T]), nonpad?
 * [B], offset? [B] (i32 or i64), sink? [H]. Outputs: y [B, H, Sq, Dv], scores? [B, H, Sq, T]. Parameters: scale,
 * softcap, causal, left, right, scores (0 raw, 1 capped, 2 biased, 3 weights), past (steps before the keys of this
 * call, or -1: none, so that `nonpad` places the queries). A task is a head and ATT_CHUNK queries. Up to ATT_FEW queries
 * use keys and values as they lie. For more, keys are transposed and values copied into the panels of gemm.h, once for
 * all tasks of a head that a thread does one after the other; logits and sums of values are then matrix products.
 * Thread scratch in floats: ATT_CHUNK (Tp + D), and for many queries Tp (D + Dvp), with T and Dv rounded up to whole
 * panels of at least 16. */
#include <math.h>
#include "../edgerun.h"
#include "gemm.h"
#include "nd.h"
#include "vmath.h"

#define ATT_CHUNK 28 /* two tiles of 14 rows */
#define ATT_FEW 3
#define ATT_PAD (GEMM_NR > 16 ? GEMM_NR : 16)

enum { ATT_IN_Q, ATT_IN_K, ATT_IN_V, ATT_IN_MASK, ATT_IN_NONPAD, ATT_IN_OFFSET, ATT_IN_SINK, ATT_INPUTS };
enum { ATT_SCALE, ATT_SOFTCAP, ATT_CAUSAL, ATT_LEFT, ATT_RIGHT, ATT_SCORES, ATT_PAST, ATT_PARAMS };

ER_INLINE int64_t att_padded(int64_t n) { return (n + ATT_PAD - 1) / ATT_PAD * ATT_PAD; }

#ifdef ER_BASELINE_CHECKS
static int check_attention(const er_call *c) {
  ER_REQUIRE(c, c->n_in == ATT_INPUTS && c->n_out == 2 && c->n_param == ATT_PARAMS, "attention: bad call");
  const er_view *q = &c->in[0], *k = &c->in[1], *v = &c->in[2], *y = &c->out[0], *scores = &c->out[1],
                *mask = &c->in[3];
  const er_view *all[] = {q, k, v, y};
  for (int i = 0; i < 4; i++)
    ER_REQUIRE(c, all[i]->rank == 4 && all[i]->dtype == ER_F32 && er_is_dense(all[i]),
               "attention takes dense f32 of rank 4");
  ER_REQUIRE(c, k->dim[1] > 0 && q->dim[1] % k->dim[1] == 0 && q->dim[0] == k->dim[0] && q->dim[0] == v->dim[0],
             "attention: heads or batches differ");
  ER_REQUIRE(c, q->dim[3] == k->dim[3] && k->dim[2] == v->dim[2] && k->dim[1] == v->dim[1],
             "attention: keys and values differ");
  ER_REQUIRE(c, y->dim[0] == q->dim[0] && y->dim[1] == q->dim[1] && y->dim[2] == q->dim[2] && y->dim[3] == v->dim[3],
             "attention: bad output");
  ER_REQUIRE(c,
             !scores->data ||
                 (scores->dtype == ER_F32 && er_numel(scores) == q->dim[0] * q->dim[1] * q->dim[2] * k->dim[2] &&
                  er_is_dense(scores)),
             "attention: bad scores");
  if (mask->data) {
    ER_REQUIRE(
        c, (mask->dtype == ER_BOOL || mask->dtype == ER_F32) && mask->rank <= 4 && mask->rank >= 1 && er_is_dense(mask),
        "attention: bad mask");
    int64_t full[4] = {q->dim[0], q->dim[1], q->dim[2], k->dim[2]};
    for (int d = 0; d < mask->rank; d++) {
      int64_t n = mask->dim[d], m = full[4 - mask->rank + d];
      ER_REQUIRE(c, n == 1 || n == m || (d == mask->rank - 1 && n <= m), "attention: the mask does not broadcast");
    }
  }
  for (int i = ATT_IN_NONPAD; i <= ATT_IN_OFFSET; i++) {
    const er_view *p = &c->in[i];
    ER_REQUIRE(c,
               !p->data || ((p->dtype == ER_I32 || p->dtype == ER_I64) && er_numel(p) == q->dim[0] && er_is_dense(p)),
               "attention: bad lengths");
  }
  const er_view *sink = &c->in[ATT_IN_SINK];
  ER_REQUIRE(c, !sink->data || (sink->dtype == ER_F32 && er_numel(sink) == q->dim[1]), "attention: bad sink");
  int64_t padded = att_padded(k->dim[2]), panels = q->dim[2] > ATT_FEW ? padded * (q->dim[3] + att_padded(v->dim[3])) : 0;
  ER_REQUIRE(c, (int64_t)c->thread_scratch_bytes >= 4 * (ATT_CHUNK * (padded + q->dim[3]) + panels),
             "attention: too little thread scratch");
  return 0;
}
#endif

typedef struct {
  const er_call *c;
  int64_t batch, heads, groups, steps, size, padded, value_size, chunks;
  int64_t length, total; /* keys there are, and those before which some query sees any */
  int64_t mask_stride[4], mask_width;
  float scale, softcap;
  int64_t packed[ER_MAX_THREADS]; /* 1 + the head whose keys and values a thread has packed */
} att_plan;

static int64_t att_integer(const er_view *v, int64_t at) {
  return v->dtype == ER_I64 ? ((const int64_t *)v->data)[at] : ((const int32_t *)v->data)[at];
}

/* 16 x 16 floats transposed by exchanging ever larger blocks: bit s of the row against bit s of the lane. */
#define ATT_EXCHANGE(s, low, high)                                            \
  for (int i = 0; i < 16; i++)                                                \
    if (!(i & s)) {                                                           \
      er_w a = r[i], b = r[i + s];                                            \
      r[i] = __builtin_shufflevector(a, b, low);                              \
      r[i + s] = __builtin_shufflevector(a, b, high);                         \
    }
#define ATT_LOW1 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30
#define ATT_HIGH1 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31
#define ATT_LOW2 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define ATT_HIGH2 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define ATT_LOW4 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27
#define ATT_HIGH4 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31
#define ATT_LOW8 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define ATT_HIGH8 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31
VM_INLINE void att_transpose(er_w *r) {
#pragma GCC unroll 16
  ATT_EXCHANGE(1, ATT_LOW1, ATT_HIGH1)
#pragma GCC unroll 16
  ATT_EXCHANGE(2, ATT_LOW2, ATT_HIGH2)
#pragma GCC unroll 16
  ATT_EXCHANGE(4, ATT_LOW4, ATT_HIGH4)
#pragma GCC unroll 16
  ATT_EXCHANGE(8, ATT_LOW8, ATT_HIGH8)
}

/* Keys [T, D] to the panels of their transpose, D x T. */
static __attribute__((noinline)) void att_pack_keys(const att_plan *p, float *to, const float *k) {
  enum { PIECE = GEMM_HALF < 16 ? GEMM_HALF : 16 };
  const int64_t columns = gemm_columns(p->total), size = p->size;
  for (int64_t j = 0; j < columns; j += 16)
    for (int64_t d = 0; d < size; d += 16) {
      int depth = (int)nd_min(16, size - d);
      er_w r[16];
      for (int i = 0; i < 16; i++) {
        const float *from = k + (j + i) * size + d;
        r[i] = j + i >= p->total ? er_splat_w(0) : depth == 16 ? er_load_w(from) : er_load_part_w(from, depth);
      }
      att_transpose(r);
      for (int x = 0; x < 16 && j + x < columns; x += PIECE) {
        int64_t first = (j + x) / GEMM_NR * GEMM_NR, width = gemm_width(p->total, first);
        float *piece = to + first * size + d * width + (j + x - first);
        for (int i = 0; i < depth; i++) memcpy(piece + i * width, (const float *)&r[i] + x, PIECE * sizeof(float));
      }
    }
}

/* Values [T, Dv] to their panels. */
static void att_pack_values(const att_plan *p, float *to, const float *v) {
  for (int64_t first = 0; first < p->value_size; first += GEMM_NR) {
    int width = gemm_width(p->value_size, first);
    size_t columns = (size_t)nd_min(width, p->value_size - first);
    for (int64_t j = 0; j < p->total; j++, to += width) {
      memcpy(to, v + j * p->value_size + first, columns * sizeof(float));
      if (columns < (size_t)width) memset(to + columns, 0, ((size_t)width - columns) * sizeof(float));
    }
  }
}

/* y [n][ld] = a [n][a_ld] times the first k rows of packed b, `depth` x `columns`. */
static void att_product(const float *a, int64_t a_ld, int64_t n, int64_t k, const float *b, int64_t depth, int64_t columns,
                        float *y, int64_t ld) {
  const gemm_shape shape = {1, 1, k, 0, 0};
  const gemm_epilogue none = {.act = ER_ACT_NONE};
  int64_t tiles = (n + GEMM_MR - 1) / GEMM_MR;
  for (int64_t first = 0; first < columns; first += GEMM_NR)
    for (int64_t t = 0; t < tiles; t++) {
      int64_t at = gemm_tile_first(n, tiles, t);
      int mr = (int)(gemm_tile_first(n, tiles, t + 1) - at);
      const float *rows[GEMM_MR];
      for (int i = 0; i < mr; i++) rows[i] = a + (at + i) * a_ld;
      gemm_tile(mr, rows, &shape, b + first * depth, y + at * ld + first, ld, columns, first, &none, (const char *)rows[0], 0);
    }
}

/* logits[j] = scale q . k[j] for one query against keys as they lie. */
static void att_direct(const att_plan *p, float *logits, const float *q, const float *k) {
  for (int64_t j = 0; j < p->total; j++, k += p->size) {
    er_w acc = er_splat_w(0);
    float rest = 0;
    int64_t d = 0;
    for (; d + ER_W <= p->size; d += ER_W) acc += er_load_w(q + d) * er_load_w(k + d);
    for (; d < p->size; d++) rest += q[d] * k[d];
    logits[j] = (rest + er_sum_lanes_w(acc)) * p->scale;
  }
}

/* The keys that query i of batch b may see, masks aside: [low, high). */
static void att_window(const att_plan *p, int64_t b, int64_t i, int64_t *low, int64_t *high) {
  const er_call *c = p->c;
  int64_t n = p->total, valid = c->in[ATT_IN_NONPAD].data ? att_integer(&c->in[ATT_IN_NONPAD], b) : n;
  int64_t first = c->param[ATT_PAST] >= 0 ? c->param[ATT_PAST] : 0;
  if (c->in[ATT_IN_OFFSET].data) first = att_integer(&c->in[ATT_IN_OFFSET], b);
  else if (c->in[ATT_IN_NONPAD].data && c->param[ATT_PAST] < 0) first = valid - p->steps;
  int64_t place = first + i, from = 0, to = nd_min(n, valid);
  if (c->param[ATT_CAUSAL]) to = nd_min(to, place + 1);
  if (c->param[ATT_RIGHT] >= 0) to = nd_min(to, place + c->param[ATT_RIGHT] + 1);
  if (c->param[ATT_LEFT] >= 0) from = nd_max(from, place - c->param[ATT_LEFT]);
  *low = nd_max(0, nd_min(from, n));
  *high = nd_max(*low, nd_min(to, n));
}

/* Softcap, masks and softmax of the first `to` logits of a row, a multiple of 16; those beyond are not seen. Scores are
 * copied out at the stage asked for. Returns the factor by which the weights, which are then not divided yet, give the sum 1. */
static float att_softmax(const att_plan *p, float *x, int64_t b, int64_t h, int64_t i, int64_t to) {
  const er_call *c = p->c;
  int64_t n = p->total, row = ((b * p->heads + h) * p->steps + i) * n, low, high;
  int stage = c->param[ATT_SCORES];
  float *scores = c->out[1].data ? (float *)c->out[1].data + row : NULL;
  if (scores && stage == 0) memcpy(scores, x, (size_t)n * 4);
  if (p->softcap != 0) {
    for (int64_t j = 0; j < to; j += ER_W)
      er_store_w(x + j, p->softcap * er_tanh_w(er_load_w(x + j) / p->softcap)); /* rows are padded */
  }
  if (scores && stage == 1) memcpy(scores, x, (size_t)n * 4);
  att_window(p, b, i, &low, &high);
  const er_view *mask = &c->in[ATT_IN_MASK];
  if (mask->data) {
    int64_t at = b * p->mask_stride[0] + h * p->mask_stride[1] + i * p->mask_stride[2], step = p->mask_stride[3];
    if (p->mask_width > 1) high = nd_max(low, nd_min(high, p->mask_width));
    if (mask->dtype == ER_BOOL) {
      const uint8_t *m = (const uint8_t *)mask->data + at;
      for (int64_t j = low; j < high; j++) x[j] = m[j * step] ? x[j] : -INFINITY;
    } else {
      const float *m = (const float *)mask->data + at;
      for (int64_t j = low; j < high; j++) x[j] = m[j * step] == -INFINITY ? -INFINITY : x[j] + m[j * step];
    }
  }
  for (int64_t j = 0; j < low; j++) x[j] = -INFINITY;
  for (int64_t j = high; j < to; j++) x[j] = -INFINITY;
  if (scores && stage == 2) memcpy(scores, x, (size_t)n * 4);
  er_w m = er_splat_w(-INFINITY), sum = er_splat_w(0);
  for (int64_t j = 0; j < to; j += ER_W) m = er_max_w(m, er_load_w(x + j));
  float largest = er_max_lanes_w(m),
        sink = c->in[ATT_IN_SINK].data ? ((const float *)c->in[ATT_IN_SINK].data)[h] : -INFINITY;
  largest = er_max_s(largest, sink);
  if (largest == -INFINITY) largest = 0;
  for (int64_t j = 0; j < to; j += ER_W) {
    er_w e = er_exp_fast_w(er_load_w(x + j) - largest);
    sum += e;
    er_store_w(x + j, e);
  }
  float total = er_sum_lanes_w(sum) + (c->in[ATT_IN_SINK].data ? er_exp_s(sink - largest) : 0),
        scale = total == 0 ? 1 : 1 / total;
  if (scores && stage == 3)
    for (int64_t j = 0; j < n; j++) scores[j] = x[j] * scale;
  return scale;
}

/* y = scale times the sum over j of weights[j] v[j]. */
static void att_values(const att_plan *p, float *y, const float *weights, const float *v, float scale) {
  for (int64_t d = 0; d < p->value_size; d += ER_W) {
    int part = (int)nd_min(ER_W, p->value_size - d);
    er_w acc = er_splat_w(0);
    const float *at = v + d;
    for (int64_t j = 0; j < p->total; j++, at += p->value_size)
      acc += weights[j] * (part == ER_W ? er_load_w(at) : er_load_part_w(at, part));
    if (part == ER_W) er_store_w(y + d, acc * scale);
    else er_store_part_w(y + d, acc * scale, part);
  }
}

/* Queries [from, to), few: keys k and values v as they lie. */
static void att_few(const att_plan *p, float *logits, const float *q, const float *k, const float *v, float *y, int64_t b,
                    int64_t h, int64_t from, int64_t to) {
  for (int64_t i = from; i < to; i++) {
    att_direct(p, logits, q + i * p->size, k);
    float scale = att_softmax(p, logits, b, h, i, (p->total + 15) / 16 * 16);
    att_values(p, y + i * p->value_size, logits, v, scale);
  }
}

static void att_task(void *context, int item, int thread) {
  att_plan *p = context;
  const er_call *c = p->c;
  int64_t from, to, head = item / p->chunks, b = head / p->heads, h = head % p->heads,
                    g = b * p->groups + h * p->groups / p->heads;
  nd_share(p->steps, (int)(item % p->chunks), (int)p->chunks, &from, &to);
  const float *q = (const float *)c->in[ATT_IN_Q].data + head * p->steps * p->size;
  const float *k = (const float *)c->in[ATT_IN_K].data + g * p->length * p->size;
  const float *v = (const float *)c->in[ATT_IN_V].data + g * p->length * p->value_size;
  float *y = (float *)c->out[0].data + head * p->steps * p->value_size;
  float *logits = er_thread_scratch(c, thread), *scaled = logits + ATT_CHUNK * p->padded;
  float *keys = scaled + ATT_CHUNK * p->size, *values = keys + p->padded * p->size;
  if (p->steps <= ATT_FEW) {
    att_few(p, logits, q, k, v, y, b, h, from, to);
    return;
  }
  if (p->packed[thread] != 1 + g) {
    att_pack_keys(p, keys, k);
    att_pack_values(p, values, v);
    p->packed[thread] = 1 + g;
  }
  int64_t n = to - from, low, seen = p->total; /* keys that the last query sees: the others see no later ones */
  if (!c->out[1].data) att_window(p, b, to - 1, &low, &seen);
  int64_t columns = nd_min(gemm_columns(p->total), (seen + GEMM_NR - 1) / GEMM_NR * GEMM_NR);
  int64_t width = (columns + 15) / 16 * 16;
  for (int64_t i = 0; i < n * p->size; i++) scaled[i] = q[from * p->size + i] * p->scale;
  att_product(scaled, p->size, n, p->size, keys, p->size, columns, logits, p->padded);
  float scale[ATT_CHUNK];
  for (int64_t i = 0; i < n; i++) scale[i] = att_softmax(p, logits + i * p->padded, b, h, from + i, width);
  y += from * p->value_size;
  att_product(logits, p->padded, n, seen, values, p->total, p->value_size, y, p->value_size);
  for (int64_t i = 0; i < n; i++)
    for (int64_t d = 0; d < p->value_size; d++) y[i * p->value_size + d] *= scale[i];
}

static void run_attention(const er_call *c) {
  const er_view *q = &c->in[0], *k = &c->in[1], *mask = &c->in[ATT_IN_MASK];
  att_plan p;
  memset(&p, 0, sizeof p);
  p.c = c;
  p.batch = q->dim[0];
  p.heads = q->dim[1];
  p.steps = q->dim[2];
  p.size = q->dim[3];
  p.groups = k->dim[1];
  p.length = p.total = k->dim[2];
  p.value_size = c->in[2].dim[3];
  p.scale = er_param_f32(c, ATT_SCALE);
  p.softcap = er_param_f32(c, ATT_SOFTCAP);
  int64_t step = 1;
  for (int d = mask->rank - 1; d >= 0; d--) {
    p.mask_stride[4 - mask->rank + d] = mask->dim[d] == 1 ? 0 : step;
    step *= mask->dim[d];
  }
  if (mask->data) p.mask_width = mask->dim[mask->rank - 1];
  if (p.batch * p.heads * p.steps == 0) return;
  if (!c->out[1].data) { /* keys after those of the last queries count for nothing: most of a cache */
    int64_t low, high, most = 0;
    for (int64_t b = 0; b < p.batch; b++) {
      att_window(&p, b, p.steps - 1, &low, &high);
      most = nd_max(most, high);
    }
    p.total = most;
  }
  p.padded = att_padded(p.total);
  p.chunks = (p.steps + ATT_CHUNK - 1) / ATT_CHUNK;
  er_parallel(c->pool, att_task, &p, (int)(p.batch * p.heads * p.chunks));
}

/* rotary: x [B, H, S, D], cos, sin [B or 1, S, R / 2], f32: pairs of the first R features rotated. Parameter:
 * interleaved. */
#ifdef ER_BASELINE_CHECKS
static int check_rotary(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 3 && c->n_out == 1 && c->n_param == 1, "rotary: bad call");
  const er_view *x = &c->in[0], *cosine = &c->in[1], *sine = &c->in[2];
  ER_REQUIRE(c, x->rank == 4 && cosine->rank == 3 && nd_same_shape(cosine, sine) && nd_same_shape(x, &c->out[0]),
             "rotary: bad shapes");
  ER_REQUIRE(c, x->dtype == ER_F32 && cosine->dtype == ER_F32 && sine->dtype == ER_F32 && c->out[0].dtype == ER_F32,
             "rotary takes f32");
  ER_REQUIRE(c, er_is_dense(x) && er_is_dense(cosine) && er_is_dense(sine) && er_is_dense(&c->out[0]),
             "rotary takes dense tensors");
  ER_REQUIRE(c,
             (cosine->dim[0] == 1 || cosine->dim[0] == x->dim[0]) && cosine->dim[1] == x->dim[2] &&
                 2 * cosine->dim[2] <= x->dim[3],
             "rotary: angles do not fit");
  return 0;
}
#endif
static void run_rotary(const er_call *c) {
  const er_view *x = &c->in[0], *cosine = &c->in[1];
  int64_t half = cosine->dim[2], size = x->dim[3], steps = x->dim[2], rows = nd_product(x, 0, 3),
          first = c->param[0] ? 2 : 1;
  int64_t second = c->param[0] ? 1 : half, each = cosine->dim[0] > 1;
  for (int64_t r = 0; r < rows; r++) {
    int64_t at = (each ? r / steps / x->dim[1] * steps : 0) + r % steps;
    const float *a = (const float *)x->data + r * size, *cs = (const float *)cosine->data + at * half;
    const float *sn = (const float *)c->in[2].data + at * half;
    float *y = (float *)c->out[0].data + r * size;
    for (int64_t i = 0; i < half; i++) {
      float p = a[i * first], q = a[i * first + second];
      y[i * first] = cs[i] * p - sn[i] * q;
      y[i * first + second] = sn[i] * p + cs[i] * q;
    }
    if (y != a) memcpy(y + 2 * half, a + 2 * half, (size_t)(size - 2 * half) * 4);
  }
}

/* cache_update: past [B, G, P, D], new [B, G, S, D], offset [B] -> out [B, G, L, D], L >= P: past, zeros, new at
 * offset[b]. */
#ifdef ER_BASELINE_CHECKS
static int check_cache_update(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 3 && c->n_out == 1, "cache_update: bad call");
  const er_view *past = &c->in[0], *new = &c->in[1], *offset = &c->in[2], *out = &c->out[0];
  ER_REQUIRE(c,
             past->rank == 4 && new->rank == 4 && out->rank == 4 && past->dtype == out->dtype &&
                 new->dtype == out->dtype && er_itemsize(out->dtype),
             "cache_update: bad tensors");
  for (int d = 0; d < 4; d++)
    ER_REQUIRE(c, d == 2 || (past->dim[d] == out->dim[d] && new->dim[d] == out->dim[d]), "cache_update: dim %d differs",
               d);
  ER_REQUIRE(c, past->dim[2] <= out->dim[2], "cache_update: the past is longer than the cache");
  ER_REQUIRE(c, (offset->dtype == ER_I32 || offset->dtype == ER_I64) && er_numel(offset) == out->dim[0],
             "cache_update: bad offset");
  ER_REQUIRE(c, er_is_dense(past) && er_is_dense(new) && er_is_dense(out), "cache_update takes dense tensors");
  return 0;
}
#endif
static void run_cache_update(const er_call *c) {
  const er_view *past = &c->in[0], *new = &c->in[1], *out = &c->out[0];
  int64_t row = out->dim[3] * er_itemsize(out->dtype), length = out->dim[2], old = past->dim[2] * row;
  if (er_numel(out) == 0) return;
  for (int64_t i = 0; i < out->dim[0] * out->dim[1]; i++) {
    char *y = (char *)out->data + i * length * row;
    if (old && y != (const char *)past->data + i * old) memmove(y, (const char *)past->data + i * old, (size_t)old);
    memset(y + old, 0, (size_t)(length * row - old));
    int64_t at = att_integer(&c->in[2], i / out->dim[1]);
    int64_t count = nd_min(new->dim[2], length - at);
    if (at >= 0 && count > 0)
      memcpy(y + at * row, (const char *)new->data + i * new->dim[2] * row, (size_t)(count * row));
  }
}
