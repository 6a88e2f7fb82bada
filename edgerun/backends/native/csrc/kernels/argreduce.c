/* Index of the largest or smallest element along an axis, and hardmax. Ties: the first (or last) index; NaN wins.
 * Parameters: axis, 0 = max / 1 = min, 1 = the last of equals. */
#include "half.h"
#include "nd.h"

#ifdef ER_BASELINE_CHECKS
static int arg_check(const er_call *c, int params) {
  ER_REQUIRE(c, c->n_in == 1 && c->n_out == 1 && c->n_param == params, "argreduce takes one tensor to another");
  const er_view *in = &c->in[0], *out = &c->out[0];
  ER_REQUIRE(c, c->param[0] >= 0 && c->param[0] < in->rank, "argreduce: there is no axis %d", c->param[0]);
  ER_REQUIRE(c, er_is_dense(in) && er_is_dense(out) && er_is_number(in->dtype), "argreduce takes dense tensors");
  return 0;
}
static int check_argreduce(const er_call *c) {
  if (arg_check(c, 3)) return 1;
  const er_view *in = &c->in[0], *out = &c->out[0];
  int64_t n = in->dim[c->param[0]], others = nd_product(in, 0, c->param[0]) * nd_product(in, c->param[0] + 1, in->rank);
  ER_REQUIRE(c, out->dtype == ER_I64 && er_numel(out) == others, "argreduce: bad output");
  ER_REQUIRE(c, n > 0 || others == 0, "argreduce over an empty axis");
  return 0;
}
static int check_hardmax(const er_call *c) {
  if (arg_check(c, 1)) return 1;
  ER_REQUIRE(c, c->in[0].dtype == c->out[0].dtype && c->in[0].dtype >= ER_F32 && c->in[0].dtype <= ER_BF16 &&
             nd_same_shape(&c->in[0], &c->out[0]), "hardmax: bad output");
  return 0;
}
#endif

/* Index in x[0], x[step], ..., x[(n - 1) * step]. */
#define ARG_FIND(name, TYPE, KEY, load) \
  static int64_t name(const void *data, int64_t step, int64_t n, int smallest, int last) { \
    const TYPE *x = data; \
    int64_t best = 0; \
    KEY value = load(x[0]); \
    for (int64_t i = 1; i < n; i++) { \
      KEY v = load(x[i * step]); \
      int better = smallest ? v < value : v > value, equal = v == value, nan = v != v, had = value != value; \
      if (nan ? !had || last : !had && (better || (last && equal))) { best = i; value = v; } \
    } \
    return best; \
  }
#define ARG_SELF(v) (v)
ARG_FIND(arg_f32, float, float, ARG_SELF)
ARG_FIND(arg_f64, double, double, ARG_SELF)
ARG_FIND(arg_f16, uint16_t, float, er_from_f16)
ARG_FIND(arg_bf16, uint16_t, float, er_from_bf16)
ARG_FIND(arg_i8, int8_t, int, ARG_SELF)
ARG_FIND(arg_u8, uint8_t, int, ARG_SELF)
ARG_FIND(arg_i16, int16_t, int, ARG_SELF)
ARG_FIND(arg_u16, uint16_t, int, ARG_SELF)
ARG_FIND(arg_i32, int32_t, int32_t, ARG_SELF)
ARG_FIND(arg_i64, int64_t, int64_t, ARG_SELF)
ARG_FIND(arg_u32, uint32_t, uint32_t, ARG_SELF)
ARG_FIND(arg_u64, uint64_t, uint64_t, ARG_SELF)

static int64_t arg_find(int dtype, const void *data, int64_t step, int64_t n, int smallest, int last) {
  switch (dtype) {
    case ER_F32: return arg_f32(data, step, n, smallest, last);
    case ER_F64: return arg_f64(data, step, n, smallest, last);
    case ER_F16: return arg_f16(data, step, n, smallest, last);
    case ER_BF16: return arg_bf16(data, step, n, smallest, last);
    case ER_I8: return arg_i8(data, step, n, smallest, last);
    case ER_U8: case ER_BOOL: return arg_u8(data, step, n, smallest, last);
    case ER_I16: return arg_i16(data, step, n, smallest, last);
    case ER_U16: return arg_u16(data, step, n, smallest, last);
    case ER_I32: return arg_i32(data, step, n, smallest, last);
    case ER_U32: return arg_u32(data, step, n, smallest, last);
    case ER_U64: return arg_u64(data, step, n, smallest, last);
    default: return arg_i64(data, step, n, smallest, last);
  }
}

/* First index of the largest float of a row: the largest by vectors, then a search. */
static int64_t arg_row_max(const float *x, int64_t n) {
  er_w best = er_splat_w(x[0]);
  int64_t i = 0;
  for (; i + ER_W <= n; i += ER_W) best = er_max_w(best, er_load_w(x + i));
  float m = er_max_lanes_w(best);
  for (; i < n; i++) m = er_max_s(m, x[i]);
  for (i = 0; i < n; i++) if (x[i] == m || (m != m && x[i] != x[i])) return i;
  return 0;
}

typedef struct { const er_call *c; int64_t outer, n, inner; int tasks, hard; } arg_plan;

static void arg_task(void *context, int item, int thread) {
  (void)thread;
  const arg_plan *p = context;
  const er_view *in = &p->c->in[0], *out = &p->c->out[0];
  int64_t from, to, size = er_itemsize(in->dtype);
  int smallest = p->hard ? 0 : p->c->param[1], last = p->hard ? 0 : p->c->param[2];
  nd_share(p->outer * p->inner, item, p->tasks, &from, &to);
  for (int64_t k = from; k < to; k++) {
    int64_t first = k / p->inner * p->n * p->inner + k % p->inner, at;
    const char *x = (const char *)in->data + first * size;
    if (p->inner == 1 && in->dtype == ER_F32 && !smallest && !last) at = arg_row_max((const float *)x, p->n);
    else at = arg_find(in->dtype, x, p->inner, p->n, smallest, last);
    if (!p->hard) {
      ((int64_t *)out->data)[k] = at;
      continue;
    }
    for (int64_t i = 0; i < p->n; i++) {
      int64_t to_at = first + i * p->inner;
      if (in->dtype == ER_F32) ((float *)out->data)[to_at] = i == at;
      else if (in->dtype == ER_F64) ((double *)out->data)[to_at] = i == at;
      else ((uint16_t *)out->data)[to_at] = i == at ? (in->dtype == ER_F16 ? 0x3c00 : 0x3f80) : 0;
    }
  }
}

static void arg_run(const er_call *c, int hard) {
  const er_view *in = &c->in[0];
  int axis = c->param[0];
  arg_plan p = {c, nd_product(in, 0, axis), in->dim[axis], nd_product(in, axis + 1, in->rank), 1, hard};
  if (er_numel(in) == 0) return;
  p.tasks = nd_tasks(c, p.outer * p.inner, 2 * p.n);
  er_parallel(c->pool, arg_task, &p, p.tasks);
}
static void run_argreduce(const er_call *c) { arg_run(c, 0); }
static void run_hardmax(const er_call *c) { arg_run(c, 1); }
