/* The recurrent part of lstm, gru and rnn. The input's part of all gates, biases included, is a matrix product done
 * before.
 *
 * Hidden units go in blocks of 16; `blocks` = ceil(H / 16), padded units have zero weights. Inputs:
 *   0, 1  projections [T, B, blocks, G, 16] of the first and (or absent) second direction, G gates: lstm i o f c, gru z
 * r h 2     recurrent weights [D, blocks, H, g, 16]; g = G, or 2 for a gru that resets before the product 3     gru
 * that resets before: candidate weights [D, blocks, H, 1, 16]; gru that resets after: candidate bias [D, blocks, 16] 4
 * lengths [B], i32 or i64;  5, 6  initial h and c [D, B, H];  7  peepholes [D, 3, blocks, 16] (i o f); 3..7 may be
 * absent Outputs: y [T, D, B, H], final h, final c [D, B, H]; each may be absent. Parameters: kind (0 lstm, 1 gru, 2
 * rnn), H, direction (0 forward, 1 reverse, 2 both), flags, clip (0: none), then for each direction three times
 * (activation, alpha, beta). Scratch: 4 D B blocks 16 floats.
 *
 * One step of one block needs no other block's new state, so gates and state update happen in registers. Tasks are
 * directions and batches when there are several (no waiting between steps), else the blocks of every step. */
#include <math.h>
#include "nd.h"
#include "vmath.h"

enum rnn_kind { RNN_LSTM, RNN_GRU, RNN_PLAIN };
enum rnn_flag { RNN_INPUT_FORGET = 1, RNN_RESET_AFTER = 2, RNN_QUANTISE_STATE = 4 };
enum rnn_activation {
  RNN_SIGMOID,
  RNN_TANH,
  RNN_RELU,
  RNN_AFFINE,
  RNN_LEAKY,
  RNN_THRESHOLDED,
  RNN_SCALED_TANH,
  RNN_HARD_SIGMOID,
  RNN_ELU,
  RNN_SOFTSIGN,
  RNN_SOFTPLUS,
  RNN_ACTIVATIONS
};
#define RNN_STEP_COST 400000 /* multiply-adds a step from which waiting for other threads pays */

#ifdef ER_BASELINE_CHECKS
static int rnn_fits(const er_call *c, int k, int64_t n) {
  return !c->in[k].data || (c->in[k].dtype == ER_F32 && er_is_dense(&c->in[k]) && er_numel(&c->in[k]) == n);
}
static int check_rnn(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 8 && c->n_out == 3 && c->n_param >= 5, "rnn: bad call");
  int64_t kind = c->param[0], hidden = c->param[1], flags = c->param[3], directions = c->param[2] == 2 ? 2 : 1;
  ER_REQUIRE(c,
             kind >= RNN_LSTM && kind <= RNN_PLAIN && hidden > 0 && hidden < 1 << 20 && c->param[2] >= 0 &&
                 c->param[2] <= 2 && flags >= 0 && flags < 8 && c->n_param == 5 + 9 * directions,
             "rnn: bad parameters");
  for (int i = 0; i < 3 * directions; i++)
    ER_REQUIRE(c, c->param[5 + 3 * i] >= 0 && c->param[5 + 3 * i] < RNN_ACTIVATIONS, "rnn: bad activation");
  const er_view *x = &c->in[0];
  ER_REQUIRE(c, x->rank == 3 && x->dtype == ER_F32 && er_is_dense(x), "rnn: bad projection");
  int64_t steps = x->dim[0], batch = x->dim[1], blocks = (hidden + 15) / 16,
          gates = kind == RNN_LSTM  ? 4
                  : kind == RNN_GRU ? 3
                                    : 1;
  int before = kind == RNN_GRU && !(flags & RNN_RESET_AFTER), after = kind == RNN_GRU && !before;
  ER_REQUIRE(c, x->dim[2] == blocks * gates * 16, "rnn: the projection has %lld columns", (long long)x->dim[2]);
  ER_REQUIRE(c, (directions == 2) == (c->in[1].data != NULL) && rnn_fits(c, 1, er_numel(x)),
             "rnn: bad second projection");
  ER_REQUIRE(c, c->in[2].data && rnn_fits(c, 2, directions * blocks * hidden * (before ? 2 : gates) * 16),
             "rnn: bad recurrent weights");
  ER_REQUIRE(c, (before || after) == (c->in[3].data != NULL), "rnn: candidate weights or bias");
  ER_REQUIRE(c, rnn_fits(c, 3, directions * blocks * 16 * (before ? hidden : 1)), "rnn: bad candidate weights or bias");
  const er_view *l = &c->in[4];
  ER_REQUIRE(c, !l->data || ((l->dtype == ER_I32 || l->dtype == ER_I64) && er_numel(l) == batch && er_is_dense(l)),
             "rnn: bad lengths");
  ER_REQUIRE(c, rnn_fits(c, 5, directions * batch * hidden) && rnn_fits(c, 6, directions * batch * hidden),
             "rnn: bad initial state");
  ER_REQUIRE(c, rnn_fits(c, 7, directions * 3 * blocks * 16), "rnn: bad peepholes");
  for (int k = 0; k < 3; k++) {
    const er_view *out = &c->out[k];
    if (!out->data) continue;
    int64_t n = directions * batch * hidden * (k ? 1 : steps);
    ER_REQUIRE(c, out->dtype == ER_F32 && er_numel(out) == n && er_is_dense(out), "rnn: output %d needs %lld elements",
               k, (long long)n);
  }
  ER_REQUIRE(c, (int64_t)c->scratch_bytes >= 4 * directions * batch * blocks * 64, "rnn: too little scratch");
  return 0;
}
#endif

typedef struct { int kind; float alpha, beta; } rnn_function;
typedef struct {
  const er_call *c;
  int kind, flags, before, gates, directions, tasks;
  int64_t hidden, blocks, width, steps, batch; /* width = blocks * 16 */
  float clip;
  rnn_function f[2][3];
  float *state; /* [D][B][width] each of: h before and after a step (in turn), c, what the product reads instead of h */
  /* of the current step, when tasks are blocks */
  int64_t step;
  int phase;
} rnn_plan;

static er_w rnn_apply(const rnn_function *f, float clip, er_w x) {
  if (clip > 0) {
    x = er_select_w(x > clip, er_splat_w(clip), x);
    x = er_select_w(x < -clip, er_splat_w(-clip), x);
  }
  switch (f->kind) {
    case RNN_SIGMOID: return er_sigmoid_w(x);
    case RNN_TANH: return er_tanh_w(x);
    case RNN_RELU: return er_max_w(x, er_splat_w(0));
    case RNN_AFFINE: return f->alpha * x + f->beta;
    case RNN_LEAKY: return er_select_w(x < 0.0f, f->alpha * x, x);
    case RNN_THRESHOLDED: return er_select_w(x > f->alpha, x, er_splat_w(0));
    case RNN_SCALED_TANH: return f->alpha * er_tanh_w(f->beta * x);
    case RNN_HARD_SIGMOID: return er_min_w(er_max_w(f->alpha * x + f->beta, er_splat_w(0)), er_splat_w(1));
    case RNN_ELU: return er_select_w(x < 0.0f, f->alpha * (er_exp_w(x) - 1.0f), x);
    case RNN_SOFTSIGN: return x / (1.0f + er_abs_w(x));
    default: return er_softplus_w(x);
  }
}

/* acc[g] += sum over k of h[k] r[k][g], r: [n, gates, 16]. */
#define RNN_DOT(gates) \
  for (int64_t k = 0; k < n; k++, r += gates * ER_W) { \
    er_w x = er_splat_w(h[k]); \
    for (int g = 0; g < gates; g++) acc[g] += x * er_load_w(r + g * ER_W); \
  } \
  break
static void rnn_dot(int gates, er_w *out, const float *r, const float *h, int64_t n) {
  er_w acc[4] = {out[0], out[1], out[2], out[3]};
  switch (gates) {
    case 1: RNN_DOT(1);
    case 2: RNN_DOT(2);
    case 3: RNN_DOT(3);
    default: RNN_DOT(4);
  }
  for (int g = 0; g < gates; g++) out[g] = acc[g];
}

static float *rnn_h(const rnn_plan *p, int64_t parity, int64_t d, int64_t b) {
  return p->state + ((parity * p->directions + d) * p->batch + b) * p->width;
}
static float *rnn_c(const rnn_plan *p, int64_t d, int64_t b) { return rnn_h(p, 2, d, b); }
static float *rnn_other(const rnn_plan *p, int64_t d, int64_t b) { return rnn_h(p, 3, d, b); }
static int64_t rnn_length(const rnn_plan *p, int64_t b) {
  const er_view *l = &p->c->in[4];
  if (!l->data) return p->steps;
  return l->dtype == ER_I64 ? ((const int64_t *)l->data)[b] : ((const int32_t *)l->data)[b];
}
static int64_t rnn_time(const rnn_plan *p, int64_t d, int64_t step) {
  return d == 1 || p->c->param[2] == 1 ? p->steps - 1 - step : step;
}

/* One step of one block of one sequence. Phase 1 is the candidate of a gru that resets before the product; phase 0 of
 * that leaves the update gate in c and the reset state in rnn_other. */
static void rnn_block(const rnn_plan *p, int64_t d, int64_t b, int64_t step, int64_t block, int phase) {
  const er_call *c = p->c;
  int64_t t = rnn_time(p, d, step), n = nd_min(16, p->hidden - block * 16), parity = step & 1, at = block * 16;
  const float *h = rnn_h(p, parity, d, b), *projection = (const float *)c->in[d].data;
  float *h_new = rnn_h(p, !parity, d, b), *cell = rnn_c(p, d, b), *other = rnn_other(p, d, b);
  const rnn_function *f = p->f[d];
  projection += ((t * p->batch + b) * p->blocks + block) * p->gates * 16;
  float *y =
      c->out[0].data ? (float *)c->out[0].data + ((t * p->directions + d) * p->batch + b) * p->hidden + at : NULL;
  if (t >= rnn_length(p, b)) {
    memcpy(h_new + at, h + at, 64);
    if (y) memset(y, 0, (size_t)n * 4);
    return;
  }
  er_w g[4], result;
  int product = p->before ? 2 : p->gates;
  for (int k = 0; k < 4; k++)
    g[k] = k < p->gates && !(p->kind == RNN_GRU && k == 2) ? er_load_w(projection + k * 16) : er_splat_w(0);
  const float *r = (const float *)c->in[2].data + (d * p->blocks + block) * p->hidden * product * 16;
  if (phase == 0) rnn_dot(product, g, r, p->flags & RNN_QUANTISE_STATE ? other : h, p->hidden);
  if (p->kind == RNN_LSTM) {
    er_w previous = er_load_w(cell + at);
    const float *peephole = c->in[7].data ? (const float *)c->in[7].data + d * 3 * p->width + at : NULL;
    if (peephole) {
      g[0] += er_load_w(peephole) * previous;
      g[2] += er_load_w(peephole + 2 * p->width) * previous;
    }
    er_w i = rnn_apply(&f[0], p->clip, g[0]);
    er_w forget = p->flags & RNN_INPUT_FORGET ? 1.0f - i : rnn_apply(&f[0], p->clip, g[2]);
    er_w next = forget * previous + i * rnn_apply(&f[1], p->clip, g[3]);
    if (peephole) g[1] += er_load_w(peephole + p->width) * next;
    er_store_w(cell + at, next);
    result = rnn_apply(&f[0], p->clip, g[1]) * rnn_apply(&f[2], 0, next);
  } else if (p->kind == RNN_PLAIN) {
    result = rnn_apply(&f[0], p->clip, g[0]);
  } else if (p->before && phase == 0) {
    er_store_w(cell + at, rnn_apply(&f[0], p->clip, g[0]));
    er_store_w(other + at, rnn_apply(&f[0], p->clip, g[1]) * er_load_w(h + at));
    return;
  } else {
    er_w z, candidate = er_load_w(projection + 32);
    if (p->before) {
      er_w sum[4] = {er_splat_w(0)};
      rnn_dot(1, sum, (const float *)c->in[3].data + (d * p->blocks + block) * p->hidden * 16, other, p->hidden);
      candidate += sum[0];
      z = er_load_w(cell + at);
    } else {
      er_w bias = er_load_w((const float *)c->in[3].data + d * p->width + at);
      candidate += rnn_apply(&f[0], p->clip, g[1]) * (g[2] + bias);
      z = rnn_apply(&f[0], p->clip, g[0]);
    }
    candidate = rnn_apply(&f[1], p->clip, candidate);
    result = (1.0f - z) * candidate + z * er_load_w(h + at);
  }
  if (n < 16) {
    float kept[16] = {0};
    er_store_part_w(kept, result, (int)n);
    result = er_load_w(kept);
  }
  er_store_w(h_new + at, result);
  if (y) er_store_part_w(y, result, (int)n);
}

/* The state as the quantised layer sees it: 8-bit codes over the range of all sequences, widened to hold 0, read back.
 */
static void rnn_quantise(const rnn_plan *p, int64_t d, int64_t step) {
  float low = 0, high = 0;
  for (int64_t b = 0; b < p->batch; b++) {
    const float *h = rnn_h(p, step & 1, d, b);
    for (int64_t k = 0; k < p->hidden; k++) {
      low = h[k] < low ? h[k] : low;
      high = h[k] > high ? h[k] : high;
    }
  }
  float scale = low == high ? 1 : (high - low) / 255, zero = rintf(-low / scale);
  for (int64_t b = 0; b < p->batch; b++) {
    const float *h = rnn_h(p, step & 1, d, b);
    float *q = rnn_other(p, d, b);
    for (int64_t k = 0; k < p->hidden; k++) {
      float code = rintf(h[k] / scale) + zero;
      code = code < 0 ? 0 : code > 255 ? 255 : code;
      q[k] = (code - zero) * scale;
    }
  }
}

/* All steps of sequences [first, last) in direction d. */
static void rnn_sequences(const rnn_plan *p, int64_t d, int64_t first, int64_t last) {
  for (int64_t step = 0; step < p->steps; step++) {
    if (p->flags & RNN_QUANTISE_STATE) rnn_quantise(p, d, step);
    for (int phase = 0; phase <= p->before; phase++)
      for (int64_t block = 0; block < p->blocks; block++)
        for (int64_t b = first; b < last; b++) rnn_block(p, d, b, step, block, phase);
  }
}

/* Tasks without waiting: a direction and some of the sequences. */
static void rnn_sequences_task(void *context, int item, int thread) {
  (void)thread;
  const rnn_plan *p = context;
  int64_t first, last;
  nd_share(p->batch, item / p->directions, p->tasks, &first, &last);
  rnn_sequences(p, item % p->directions, first, last);
}

/* Tasks of one step: blocks of the only direction, for all sequences. */
static void rnn_blocks_task(void *context, int item, int thread) {
  (void)thread;
  const rnn_plan *p = context;
  int64_t first, last;
  nd_share(p->blocks, item, p->tasks, &first, &last);
  for (int64_t block = first; block < last; block++)
    for (int64_t b = 0; b < p->batch; b++) rnn_block(p, 0, b, p->step, block, p->phase);
}

static void run_rnn(const er_call *c) {
  rnn_plan p;
  memset(&p, 0, sizeof p);
  p.c = c;
  p.kind = c->param[0];
  p.hidden = c->param[1];
  p.directions = c->param[2] == 2 ? 2 : 1;
  p.flags = c->param[3];
  p.clip = er_param_f32(c, 4);
  p.before = p.kind == RNN_GRU && !(p.flags & RNN_RESET_AFTER);
  p.gates = p.kind == RNN_LSTM ? 4 : p.kind == RNN_GRU ? 3 : 1;
  p.blocks = (p.hidden + 15) / 16;
  p.width = p.blocks * 16;
  p.steps = c->in[0].dim[0];
  p.batch = c->in[0].dim[1];
  p.state = c->scratch;
  if (p.batch == 0) return;
  for (int i = 0; i < 3 * p.directions; i++)
    p.f[i / 3][i % 3] = (rnn_function){c->param[5 + 3 * i], er_param_f32(c, 6 + 3 * i), er_param_f32(c, 7 + 3 * i)};
  memset(p.state, 0, (size_t)(4 * p.directions * p.batch * p.width) * 4);
  for (int64_t k = 0; k < p.directions * p.batch; k++) {
    if (c->in[5].data) memcpy(rnn_h(&p, 0, 0, k), (const float *)c->in[5].data + k * p.hidden, (size_t)p.hidden * 4);
    if (c->in[6].data) memcpy(rnn_c(&p, 0, k), (const float *)c->in[6].data + k * p.hidden, (size_t)p.hidden * 4);
  }
  int threads = er_pool_threads(c->pool), whole = (p.flags & RNN_QUANTISE_STATE) != 0;
  int64_t cost = p.batch * p.hidden * p.width * p.gates;
  p.tasks = whole ? 1 : (int)nd_min(p.batch, (threads + p.directions - 1) / p.directions);
  if (threads > 1 && p.tasks * p.directions > 1 && cost * p.steps > 16384) {
    er_parallel(c->pool, rnn_sequences_task, &p, p.tasks * p.directions);
  } else if (threads > 1 && p.directions == 1 && cost > RNN_STEP_COST) {
    p.tasks = (int)nd_min(p.blocks, 2 * threads);
    for (p.step = 0; p.step < p.steps; p.step++) {
      if (whole) rnn_quantise(&p, 0, p.step);
      for (p.phase = 0; p.phase <= p.before; p.phase++) er_parallel(c->pool, rnn_blocks_task, &p, p.tasks);
    }
  } else {
    for (int64_t d = 0; d < p.directions; d++) rnn_sequences(&p, d, 0, p.batch);
  }
  for (int64_t k = 0; k < p.directions * p.batch; k++) {
    if (c->out[1].data)
      memcpy((float *)c->out[1].data + k * p.hidden, rnn_h(&p, p.steps & 1, 0, k), (size_t)p.hidden * 4);
    if (c->out[2].data) memcpy((float *)c->out[2].data + k * p.hidden, rnn_c(&p, 0, k), (size_t)p.hidden * 4);
  }
}
