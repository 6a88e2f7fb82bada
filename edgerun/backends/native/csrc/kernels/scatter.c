/* Scatters: out = data with updates written at indices, in order. Indices as in nd_index.
 * Reductions: 0 none, 1 add, 2 mul, 3 min, 4 max. */
#include "half.h"
#include "nd.h"

enum scatter_reduction { SCATTER_NONE, SCATTER_ADD, SCATTER_MUL, SCATTER_MIN, SCATTER_MAX };

#ifdef ER_BASELINE_CHECKS
static int scatter_check(const er_call *c) {
  const er_view *data = &c->in[0], *indices = &c->in[1], *updates = &c->in[2], *out = &c->out[0];
  ER_REQUIRE(c, c->n_in == 3 && c->n_out == 1 && c->n_param == 2, "scatter: bad call");
  ER_REQUIRE(c, data->dtype == out->dtype && updates->dtype == out->dtype && er_is_number(out->dtype),
             "scatter: dtypes differ");
  ER_REQUIRE(c, indices->dtype == ER_I32 || indices->dtype == ER_I64, "scatter: index dtype %d", indices->dtype);
  ER_REQUIRE(c, nd_same_shape(data, out) && data->rank >= 1, "scatter: data and output differ");
  ER_REQUIRE(c, er_is_dense(data) && er_is_dense(indices) && er_is_dense(updates) && er_is_dense(out),
             "scatter takes dense tensors");
  ER_REQUIRE(c, c->param[1] >= SCATTER_NONE && c->param[1] <= SCATTER_MAX, "scatter: there is no reduction %d",
             c->param[1]);
  return 0;
}
static int check_scatter_elements(const er_call *c) {
  if (scatter_check(c)) return 1;
  const er_view *data = &c->in[0], *indices = &c->in[1];
  ER_REQUIRE(c, c->param[0] >= 0 && c->param[0] < data->rank && indices->rank == data->rank,
             "scatter_elements: bad axis or rank");
  ER_REQUIRE(c, nd_same_shape(indices, &c->in[2]), "scatter_elements: indices and updates differ");
  for (int d = 0; d < data->rank; d++)
    ER_REQUIRE(c, d == c->param[0] ? er_numel(indices) == 0 || data->dim[d] > 0 : indices->dim[d] <= data->dim[d],
               "scatter_elements: dim %d does not fit", d);
  return 0;
}
static int check_scatter_nd(const er_call *c) {
  if (scatter_check(c)) return 1;
  const er_view *data = &c->in[0], *indices = &c->in[1], *updates = &c->in[2];
  ER_REQUIRE(c, indices->rank >= 1 && indices->dim[indices->rank - 1] <= data->rank, "scatter_nd: bad index depth");
  int depth = (int)indices->dim[indices->rank - 1];
  ER_REQUIRE(c, updates->rank == indices->rank - 1 + data->rank - depth, "scatter_nd: bad rank of updates");
  for (int d = 0; d < indices->rank - 1; d++)
    ER_REQUIRE(c, updates->dim[d] == indices->dim[d], "scatter_nd: dim %d differs", d);
  for (int d = indices->rank - 1, k = depth; k < data->rank; d++, k++)
    ER_REQUIRE(c, updates->dim[d] == data->dim[k], "scatter_nd: dim %d differs", d);
  if (er_numel(updates))
    for (int d = 0; d < data->rank; d++) ER_REQUIRE(c, data->dim[d] > 0, "scatter_nd into an empty tensor");
  return 0;
}
#endif

#define SCATTER_COMBINE(T, load, store) \
  do { \
    T *y = (T *)to; const T *x = (const T *)from; \
    for (int64_t i = 0; i < n; i++) switch (reduction) { \
      case SCATTER_ADD: y[i] = store(load(y[i]) + load(x[i])); break; \
      case SCATTER_MUL: y[i] = store(load(y[i]) * load(x[i])); break; \
      case SCATTER_MIN: y[i] = load(x[i]) < load(y[i]) || load(x[i]) != load(x[i]) ? x[i] : y[i]; break; \
      default: y[i] = load(x[i]) > load(y[i]) || load(x[i]) != load(x[i]) ? x[i] : y[i]; \
    } \
  } while (0)
#define SCATTER_SELF(v) (v)

/* n consecutive elements. Signed sums and products are done unsigned, so that they wrap. */
static void scatter_combine(int dtype, int reduction, char *to, const char *from, int64_t n) {
  int arithmetic = reduction == SCATTER_ADD || reduction == SCATTER_MUL;
  if (reduction == SCATTER_NONE) {
    memcpy(to, from, (size_t)(n * er_itemsize(dtype)));
    return;
  }
  switch (dtype) {
    case ER_F32: SCATTER_COMBINE(float, SCATTER_SELF, SCATTER_SELF); break;
    case ER_F64: SCATTER_COMBINE(double, SCATTER_SELF, SCATTER_SELF); break;
    case ER_F16: SCATTER_COMBINE(uint16_t, er_from_f16, er_to_f16); break;
    case ER_BF16: SCATTER_COMBINE(uint16_t, er_from_bf16, er_to_bf16); break;
    case ER_I8: SCATTER_COMBINE(int8_t, SCATTER_SELF, (int8_t)); break;
    case ER_I16: SCATTER_COMBINE(int16_t, SCATTER_SELF, (int16_t)); break;
    case ER_BOOL: case ER_U8: SCATTER_COMBINE(uint8_t, SCATTER_SELF, (uint8_t)); break;
    case ER_U16: SCATTER_COMBINE(uint16_t, (uint32_t), (uint16_t)); break;
    case ER_I32: if (!arithmetic) { SCATTER_COMBINE(int32_t, SCATTER_SELF, SCATTER_SELF); break; } /* fall through */
    case ER_U32: SCATTER_COMBINE(uint32_t, SCATTER_SELF, SCATTER_SELF); break;
    case ER_I64: if (!arithmetic) { SCATTER_COMBINE(int64_t, SCATTER_SELF, SCATTER_SELF); break; } /* fall through */
    default: SCATTER_COMBINE(uint64_t, SCATTER_SELF, SCATTER_SELF);
  }
}

static void scatter_start(const er_call *c) {
  if (c->in[0].data != c->out[0].data)
    memcpy(c->out[0].data, c->in[0].data, (size_t)(er_numel(&c->out[0]) * er_itemsize(c->out[0].dtype)));
}

/* scatter_elements: data, indices, updates -> out. Parameters: axis, reduction. */
static void run_scatter_elements(const er_call *c) {
  const er_view *out = &c->out[0], *indices = &c->in[1];
  int axis = c->param[0], size = er_itemsize(out->dtype);
  int64_t stride[ER_MAX_RANK], total = er_numel(indices);
  if (er_numel(out) == 0) return;
  scatter_start(c);
  nd_strides(out, stride);
  for (int64_t k = 0; k < total; k++) {
    int64_t rest = k, at = 0;
    for (int d = out->rank - 1; d >= 0; d--) {
      at += (d == axis ? nd_index(c, indices, k, out->dim[d]) : rest % indices->dim[d]) * stride[d];
      rest /= indices->dim[d];
    }
    scatter_combine(out->dtype, c->param[1], (char *)out->data + at * size, (const char *)c->in[2].data + k * size, 1);
  }
}

/* scatter_nd: data, indices [..., depth], updates -> out. Parameters: 0, reduction. */
static void run_scatter_nd(const er_call *c) {
  const er_view *out = &c->out[0], *indices = &c->in[1];
  if (er_numel(out) == 0) return;
  scatter_start(c);
  int depth = (int)indices->dim[indices->rank - 1];
  int64_t n = nd_product(out, depth, out->rank), bytes = n * er_itemsize(out->dtype),
          points = nd_product(indices, 0, indices->rank - 1);
  for (int64_t k = 0; k < points; k++) {
    int64_t at = 0;
    for (int d = 0; d < depth; d++) at = at * out->dim[d] + nd_index(c, indices, k * depth + d, out->dim[d]);
    scatter_combine(out->dtype, c->param[1], (char *)out->data + at * bytes, (const char *)c->in[2].data + k * bytes,
                    n);
  }
}
