/* Scaled dot-product attention over complete keys and values, f32.
 * Inputs: q [B, H, Sq, D], k [B, G, T, D], v [B, G, T, Dv], mask? (bool or f32, broadcast to [B, H, Sq, T]), nonpad?
 * [B], offset? [B] (i32 or i64), sink? [H]. Outputs: y [B, H, Sq, Dv], scores? [B, H, Sq, T]. Parameters: scale,
 * softcap, causal, left, right, scores (0 raw, 1 capped, 2 biased, 3 weights), past (steps before the keys of this
 * call, or -1: none, so that `nonpad` places the queries). A task is a head and ATT_CHUNK queries. Keys are transposed
 * once a task, [T / 16][D][16], so that 16 logits of a few queries grow in registers; then comes the softmax, then the
 * sum over values. Thread scratch: 4 (Tp (D + ATT_Q) + 64) bytes with Tp = T rounded up to 16. */
#include <math.h>
#include "nd.h"
#include "vmath.h"

#define ATT_CHUNK 32
#ifdef __AVX512F__
#define ATT_Q 8
#else
#define ATT_Q 4
#endif
#define ATT_MAX_Q 8

enum { ATT_IN_Q, ATT_IN_K, ATT_IN_V, ATT_IN_MASK, ATT_IN_NONPAD, ATT_IN_OFFSET, ATT_IN_SINK, ATT_INPUTS };
enum { ATT_SCALE, ATT_SOFTCAP, ATT_CAUSAL, ATT_LEFT, ATT_RIGHT, ATT_SCORES, ATT_PAST, ATT_PARAMS };

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
  int64_t padded = (k->dim[2] + 15) / 16 * 16;
  ER_REQUIRE(c, (int64_t)c->thread_scratch_bytes >= 4 * (padded * (q->dim[3] + ATT_MAX_Q) + 64),
             "attention: too little thread scratch");
  return 0;
}
#endif

typedef struct {
  const er_call *c;
  int64_t batch, heads, groups, steps, size, total, padded, value_size, chunks;
  int64_t mask_stride[4], mask_width;
  float scale, softcap;
} att_plan;

static int64_t att_integer(const er_view *v, int64_t at) {
  return v->dtype == ER_I64 ? ((const int64_t *)v->data)[at] : ((const int32_t *)v->data)[at];
}

/* Keys [T, D] to [T / 16][D][16]; keys beyond T are zero. */
static void att_transpose(const att_plan *p, float *to, const float *k) {
  for (int64_t j = 0; j < p->padded; j += 16)
    for (int64_t d = 0; d < p->size; d++)
      for (int64_t i = 0; i < 16; i++) to[(j * p->size) + d * 16 + i] = j + i < p->total ? k[(j + i) * p->size + d] : 0;
}

/* logits[r][j] = scale q[r] . k[j] for n queries. */
static void att_products(const att_plan *p, float *logits, const float *q, const float *keys, int n) {
  for (int64_t j = 0; j < p->padded; j += 16) {
    const float *k = keys + j * p->size;
    er_w acc[ATT_Q];
    for (int r = 0; r < ATT_Q; r++) acc[r] = er_splat_w(0);
    if (n == ATT_Q) {
      for (int64_t d = 0; d < p->size; d++) {
        er_w x = er_load_w(k + d * 16);
        for (int r = 0; r < ATT_Q; r++) acc[r] += q[r * p->size + d] * x;
      }
    } else {
      for (int r = 0; r < n; r++)
        for (int64_t d = 0; d < p->size; d++) acc[r] += q[r * p->size + d] * er_load_w(k + d * 16);
    }
    for (int r = 0; r < n; r++) er_store_w(logits + r * p->padded + j, acc[r] * p->scale);
  }
}

/* The same for one query against keys as they lie. */
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

/* Softcap, masks and softmax of one row of logits; scores are copied out at the stage asked for. */
static void att_softmax(const att_plan *p, float *x, int64_t b, int64_t h, int64_t i) {
  const er_call *c = p->c;
  int64_t n = p->total, row = ((b * p->heads + h) * p->steps + i) * n, low = 0, high = n;
  int stage = c->param[ATT_SCORES];
  float *scores = c->out[1].data ? (float *)c->out[1].data + row : NULL;
  if (scores && stage == 0) memcpy(scores, x, (size_t)n * 4);
  if (p->softcap != 0) {
    for (int64_t j = 0; j < n; j += ER_W)
      er_store_w(x + j, p->softcap * er_tanh_w(er_load_w(x + j) / p->softcap)); /* rows are padded */
  }
  if (scores && stage == 1) memcpy(scores, x, (size_t)n * 4);
  int64_t valid = c->in[ATT_IN_NONPAD].data ? att_integer(&c->in[ATT_IN_NONPAD], b) : n;
  high = nd_min(high, valid);
  int64_t first = c->param[ATT_PAST] >= 0 ? c->param[ATT_PAST] : 0;
  if (c->in[ATT_IN_OFFSET].data) first = att_integer(&c->in[ATT_IN_OFFSET], b);
  else if (c->in[ATT_IN_NONPAD].data && c->param[ATT_PAST] < 0) first = valid - p->steps;
  int64_t place = first + i;
  if (c->param[ATT_CAUSAL]) high = nd_min(high, place + 1);
  if (c->param[ATT_RIGHT] >= 0) high = nd_min(high, place + c->param[ATT_RIGHT] + 1);
  if (c->param[ATT_LEFT] >= 0) low = nd_max(low, place - c->param[ATT_LEFT]);
  low = nd_max(0, nd_min(low, n));
  high = nd_max(low, nd_min(high, n));
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
  for (int64_t j = high; j < p->padded; j++) x[j] = -INFINITY;
  if (scores && stage == 2) memcpy(scores, x, (size_t)n * 4);
  er_w m = er_splat_w(-INFINITY), sum = er_splat_w(0);
  for (int64_t j = 0; j < p->padded; j += ER_W) m = er_max_w(m, er_load_w(x + j));
  float largest = er_max_lanes_w(m),
        sink = c->in[ATT_IN_SINK].data ? ((const float *)c->in[ATT_IN_SINK].data)[h] : -INFINITY;
  largest = er_max_s(largest, sink);
  if (largest == -INFINITY) largest = 0;
  for (int64_t j = 0; j < p->padded; j += ER_W) {
    er_w e = er_exp_fast_w(er_load_w(x + j) - largest);
    sum += e;
    er_store_w(x + j, e);
  }
  float total = er_sum_lanes_w(sum) + (c->in[ATT_IN_SINK].data ? er_exp_s(sink - largest) : 0),
        scale = total == 0 ? 1 : 1 / total;
  for (int64_t j = 0; j < p->padded; j++) x[j] *= scale;
  if (scores && stage == 3) memcpy(scores, x, (size_t)n * 4);
}

/* y[r] = sum over j of weights[r][j] v[j] for n <= ATT_Q queries. */
static void att_values(const att_plan *p, float *y, const float *weights, const float *v, int n) {
  for (int64_t d = 0; d < p->value_size; d += ER_W) {
    int part = (int)nd_min(ER_W, p->value_size - d);
    er_w acc[ATT_Q];
    for (int r = 0; r < ATT_Q; r++) acc[r] = er_splat_w(0);
    for (int64_t j = 0; j < p->total; j++) {
      const float *at = v + j * p->value_size + d;
      er_w x = part == ER_W ? er_load_w(at) : er_load_part_w(at, part);
      if (n == ATT_Q) for (int r = 0; r < ATT_Q; r++) acc[r] += weights[r * p->padded + j] * x;
      else for (int r = 0; r < n; r++) acc[r] += weights[r * p->padded + j] * x;
    }
    for (int r = 0; r < n; r++) {
      if (part == ER_W) er_store_w(y + r * p->value_size + d, acc[r]);
      else er_store_part_w(y + r * p->value_size + d, acc[r], part);
    }
  }
}

static void att_task(void *context, int item, int thread) {
  const att_plan *p = context;
  const er_call *c = p->c;
  int64_t from, to, head = item / p->chunks, b = head / p->heads, h = head % p->heads,
                    g = b * p->groups + h * p->groups / p->heads;
  nd_share(p->steps, (int)(item % p->chunks), (int)p->chunks, &from, &to);
  const float *q = (const float *)c->in[ATT_IN_Q].data + head * p->steps * p->size;
  const float *k = (const float *)c->in[ATT_IN_K].data + g * p->total * p->size;
  const float *v = (const float *)c->in[ATT_IN_V].data + g * p->total * p->value_size;
  float *y = (float *)c->out[0].data + head * p->steps * p->value_size;
  float *logits = er_thread_scratch(c, thread), *keys = logits + ATT_MAX_Q * p->padded;
  int transposed = to - from >= 4;
  if (transposed) att_transpose(p, keys, k);
  for (int64_t i = from; i < to; i += ATT_Q) {
    int n = (int)nd_min(ATT_Q, to - i);
    if (transposed) att_products(p, logits, q + i * p->size, keys, n);
    else for (int r = 0; r < n; r++) att_direct(p, logits + r * p->padded, q + (i + r) * p->size, k);
    for (int r = 0; r < n; r++) att_softmax(p, logits + r * p->padded, b, h, i + r);
    att_values(p, y + i * p->value_size, logits, v, n);
  }
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
  p.total = k->dim[2];
  p.padded = (p.total + 15) / 16 * 16;
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
