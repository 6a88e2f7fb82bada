/* Tensors made from indices: integers known from shapes, progressions, one-hot rows, triangles, reversed sequences. */
#include "nd.h"

/* fill_integers: -> out, i64 or i32; the parameters are the elements. */
#ifdef ER_BASELINE_CHECKS
static int check_fill_integers(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 0 && c->n_out == 1, "fill_integers gives one tensor");
  ER_REQUIRE(c, c->out[0].dtype == ER_I64 || c->out[0].dtype == ER_I32, "fill_integers gives i32 or i64");
  ER_REQUIRE(c, er_numel(&c->out[0]) == c->n_param && er_is_dense(&c->out[0]), "fill_integers: %d values", c->n_param);
  return 0;
}
#endif
static void run_fill_integers(const er_call *c) {
  for (int i = 0; i < c->n_param; i++) {
    if (c->out[0].dtype == ER_I64) ((int64_t *)c->out[0].data)[i] = c->param[i];
    else ((int32_t *)c->out[0].data)[i] = c->param[i];
  }
}

/* range: start, (limit), delta of one element each -> out; out[i] = start + i * delta. */
#ifdef ER_BASELINE_CHECKS
static int check_range(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 3 && c->n_out == 1 && c->out[0].rank == 1, "range: bad call");
  for (int k = 0; k < 3; k++)
    ER_REQUIRE(c, er_numel(&c->in[k]) == 1 && c->in[k].dtype == c->out[0].dtype, "range: bad input %d", k);
  int t = c->out[0].dtype;
  ER_REQUIRE(c, t == ER_F32 || t == ER_F64 || t == ER_I16 || t == ER_I32 || t == ER_I64, "range: dtype %d", t);
  return 0;
}
#endif
static void run_range(const er_call *c) {
  int64_t n = er_numel(&c->out[0]);
  const void *start = c->in[0].data, *delta = c->in[2].data;
  void *y = c->out[0].data;
#define RANGE_CASE(dtype, T) \
  case dtype: for (int64_t i = 0; i < n; i++) ((T *)y)[i] = (T)(*(const T *)start + (T)i * *(const T *)delta); break
  switch (c->out[0].dtype) {
    RANGE_CASE(ER_F32, float);
    RANGE_CASE(ER_F64, double);
    RANGE_CASE(ER_I16, int16_t);
    RANGE_CASE(ER_I32, int32_t);
    RANGE_CASE(ER_I64, int64_t);
  }
#undef RANGE_CASE
}

static int64_t index_load(const er_view *v, int64_t at) {
  switch (v->dtype) {
    case ER_I64: return ((const int64_t *)v->data)[at];
    case ER_I32: return ((const int32_t *)v->data)[at];
    case ER_F32: { float x = ((const float *)v->data)[at]; return x > -9e18f && x < 9e18f ? (int64_t)x : -1; }
    case ER_F64: { double x = ((const double *)v->data)[at]; return x > -9e18 && x < 9e18 ? (int64_t)x : -1; }
    case ER_I16: return ((const int16_t *)v->data)[at];
    case ER_I8: return ((const int8_t *)v->data)[at];
    case ER_U16: return ((const uint16_t *)v->data)[at];
    case ER_U32: return ((const uint32_t *)v->data)[at];
    default: return ((const uint8_t *)v->data)[at];
  }
}

/* one_hot: indices, values (off, on) -> out with a new axis of `depth`. Parameter: axis. Indices outside: all off. */
#ifdef ER_BASELINE_CHECKS
static int check_one_hot(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 2 && c->n_out == 1 && c->n_param == 1, "one_hot: bad call");
  const er_view *indices = &c->in[0], *out = &c->out[0];
  int axis = c->param[0];
  ER_REQUIRE(c, axis >= 0 && axis < out->rank && out->rank == indices->rank + 1, "one_hot: bad axis");
  ER_REQUIRE(c, er_numel(&c->in[1]) == 2 && c->in[1].dtype == out->dtype && er_itemsize(out->dtype),
             "one_hot: bad values");
  ER_REQUIRE(c,
             er_is_number(indices->dtype) && indices->dtype != ER_F16 && indices->dtype != ER_BF16 &&
                 indices->dtype != ER_U64,
             "one_hot: index dtype %d", indices->dtype);
  for (int d = 0, k = 0; d < out->rank; d++)
    if (d != axis) ER_REQUIRE(c, out->dim[d] == indices->dim[k++], "one_hot: output does not fit the indices");
  ER_REQUIRE(c, er_is_dense(indices) && er_is_dense(out), "one_hot takes dense tensors");
  return 0;
}
#endif
static void run_one_hot(const er_call *c) {
  const er_view *out = &c->out[0];
  int axis = c->param[0];
  int64_t size = er_itemsize(out->dtype), depth = out->dim[axis], inner = nd_product(out, axis + 1, out->rank);
  int64_t outer = nd_product(out, 0, axis);
  const char *off = c->in[1].data, *on = off + size;
  char *y = out->data;
  for (int64_t i = 0; i < outer * depth * inner; i++) memcpy(y + i * size, off, (size_t)size);
  for (int64_t o = 0; o < outer; o++)
    for (int64_t i = 0; i < inner; i++) {
      int64_t k = index_load(&c->in[0], o * inner + i);
      if (k < 0) k += depth;
      if (k >= 0 && k < depth) memcpy(y + ((o * depth + k) * inner + i) * size, on, (size_t)size);
    }
}

/* trilu: x, k? (one i64) -> the triangle on and above (upper) or below diagonal k of the last two dims, else 0.
 * Parameters: upper, k when there is no input k. */
#ifdef ER_BASELINE_CHECKS
static int check_trilu(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 2 && c->n_out == 1 && c->n_param == 2, "trilu: bad call");
  const er_view *in = &c->in[0], *out = &c->out[0];
  ER_REQUIRE(c, in->rank >= 2 && nd_same_shape(in, out) && in->dtype == out->dtype && er_itemsize(in->dtype),
             "trilu: bad tensors");
  ER_REQUIRE(c, er_is_dense(in) && er_is_dense(out), "trilu takes dense tensors");
  ER_REQUIRE(c, !c->in[1].data || (c->in[1].dtype == ER_I64 && er_numel(&c->in[1]) == 1), "trilu: bad diagonal");
  return 0;
}
#endif
static void run_trilu(const er_call *c) {
  const er_view *in = &c->in[0];
  int64_t rows = in->dim[in->rank - 2], n = in->dim[in->rank - 1], size = er_itemsize(in->dtype),
          total = nd_product(in, 0, in->rank - 1);
  int64_t k = c->in[1].data ? *(const int64_t *)c->in[1].data : c->param[1];
  k = nd_max(-rows - 1, nd_min(k, n + 1));
  for (int64_t r = 0; r < total; r++) {
    const char *x = (const char *)in->data + r * n * size;
    char *y = (char *)c->out[0].data + r * n * size;
    int64_t cut = nd_max(0, nd_min(n, r % rows + k + (c->param[0] ? 0 : 1)));
    int64_t from = c->param[0] ? cut : 0, to = c->param[0] ? n : cut;
    if (x != y) memcpy(y + from * size, x + from * size, (size_t)((to - from) * size));
    memset(y, 0, (size_t)(from * size));
    memset(y + to * size, 0, (size_t)((n - to) * size));
  }
}

/* reverse_sequence: x, lengths (i64, one per batch) -> the first lengths[b] steps in reverse. Parameters: batch axis,
 * time axis, which are 0 and 1 in some order. A length outside [0, steps] ends the run. */
#ifdef ER_BASELINE_CHECKS
static int check_reverse_sequence(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 2 && c->n_out == 1 && c->n_param == 2, "reverse_sequence: bad call");
  const er_view *in = &c->in[0], *out = &c->out[0];
  ER_REQUIRE(c, in->rank >= 2 && nd_same_shape(in, out) && in->dtype == out->dtype && er_itemsize(in->dtype),
             "reverse_sequence: bad tensors");
  ER_REQUIRE(c, (c->param[0] == 0 && c->param[1] == 1) || (c->param[0] == 1 && c->param[1] == 0),
             "reverse_sequence: bad axes");
  ER_REQUIRE(c, c->in[1].dtype == ER_I64 && er_numel(&c->in[1]) == in->dim[c->param[0]],
             "reverse_sequence: bad lengths");
  ER_REQUIRE(c, er_is_dense(in) && er_is_dense(out), "reverse_sequence takes dense tensors");
  return 0;
}
#endif
static void run_reverse_sequence(const er_call *c) {
  const er_view *in = &c->in[0];
  int64_t batch = in->dim[c->param[0]], steps = in->dim[c->param[1]],
          bytes = nd_product(in, 2, in->rank) * er_itemsize(in->dtype);
  if (er_numel(in) == 0) return;
  for (int64_t b = 0; b < batch; b++) {
    int64_t length = ((const int64_t *)c->in[1].data)[b];
    if (length < 0 || length > steps) {
      er_report(c, ER_FAULT_LENGTH, length, steps);
      length = 0;
    }
    for (int64_t t = 0; t < steps; t++) {
      int64_t s = t < length ? length - 1 - t : t;
      int64_t to = c->param[0] == 0 ? b * steps + t : t * batch + b,
              from = c->param[0] == 0 ? b * steps + s : s * batch + b;
      memcpy((char *)c->out[0].data + to * bytes, (const char *)in->data + from * bytes, (size_t)bytes);
    }
  }
}

/* nonzero: x -> positions i64 [max(rank, 1), elements], count i64 [1]: column k < count holds the indices of the k-th
 * element that is not zero, in row-major order; the columns after it are not written. NaN is not zero. */
#ifdef ER_BASELINE_CHECKS
static int check_nonzero(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 1 && c->n_out == 2 && c->n_param == 0, "nonzero: bad call");
  const er_view *x = &c->in[0], *at = &c->out[0], *count = &c->out[1];
  ER_REQUIRE(c, er_is_number(x->dtype) && at->dtype == ER_I64 && count->dtype == ER_I64, "nonzero: bad dtypes");
  ER_REQUIRE(c, at->rank == 2 && at->dim[0] == nd_max(x->rank, 1) && at->dim[1] == er_numel(x) && er_numel(count) == 1,
             "nonzero: bad outputs");
  ER_REQUIRE(c, er_is_dense(x) && er_is_dense(at), "nonzero takes dense tensors");
  return 0;
}
#endif
/* Whether element i differs from zero; of floats the sign bit does not count. */
static int nonzero_at(const er_view *x, int64_t i) {
  switch (er_itemsize(x->dtype)) {
    case 1: return ((const uint8_t *)x->data)[i] != 0;
    case 2: return (((const uint16_t *)x->data)[i] & (x->dtype == ER_F16 || x->dtype == ER_BF16 ? 0x7fff : 0xffff)) != 0;
    case 4: return (((const uint32_t *)x->data)[i] & (x->dtype == ER_F32 ? 0x7fffffffu : 0xffffffffu)) != 0;
    default: return (((const uint64_t *)x->data)[i] & (x->dtype == ER_F64 ? INT64_MAX : UINT64_MAX)) != 0;
  }
}
static void run_nonzero(const er_call *c) {
  const er_view *x = &c->in[0];
  int64_t *at = c->out[0].data, total = er_numel(x), found = 0;
  for (int64_t i = 0; i < total; i++) {
    if (!nonzero_at(x, i)) continue;
    int64_t rest = i;
    if (x->rank == 0) at[found] = 0;
    for (int d = x->rank - 1; d >= 0; d--) {
      at[d * total + found] = rest % x->dim[d];
      rest /= x->dim[d];
    }
    found++;
  }
  *(int64_t *)c->out[1].data = found;
}
