/* scan: running sum (0) or product (1) along an axis. Parameters: axis, kind, exclusive, reverse. */
#include "nd.h"

#ifdef ER_BASELINE_CHECKS
static int check_scan(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 1 && c->n_out == 1 && c->n_param == 4, "scan: bad call");
  const er_view *in = &c->in[0], *out = &c->out[0];
  ER_REQUIRE(c, nd_same_shape(in, out) && in->dtype == out->dtype && c->param[0] >= 0 && c->param[0] < in->rank,
             "scan: bad tensors");
  ER_REQUIRE(c, in->dtype == ER_F32 || in->dtype == ER_F64 || (in->dtype >= ER_I8 && in->dtype <= ER_U64),
             "scan: dtype %d", in->dtype);
  ER_REQUIRE(c, er_is_dense(in) && er_is_dense(out), "scan takes dense tensors");
  return 0;
}
#endif

/* Integers run unsigned in type W, so that they wrap. */
#define SCAN_LOOP(T, W) \
  for (int64_t o = 0; o < outer; o++) \
    for (int64_t i = 0; i < inner; i++) { \
      const T *x = (const T *)c->in[0].data + o * n * inner + i; \
      T *y = (T *)c->out[0].data + o * n * inner + i, sum = (T)product; \
      for (int64_t k = 0; k < n; k++) { \
        int64_t at = (reverse ? n - 1 - k : k) * inner; \
        T v = x[at], before = sum; \
        sum = product ? (T)((W)sum * (W)v) : (T)((W)sum + (W)v); \
        y[at] = exclusive ? before : sum; \
      } \
    } \
  break

static void run_scan(const er_call *c) {
  const er_view *in = &c->in[0];
  int axis = c->param[0], product = c->param[1], exclusive = c->param[2], reverse = c->param[3];
  int64_t outer = nd_product(in, 0, axis), n = in->dim[axis], inner = nd_product(in, axis + 1, in->rank);
  switch (in->dtype) {
    case ER_F32: SCAN_LOOP(float, float);
    case ER_F64: SCAN_LOOP(double, double);
    case ER_I8: case ER_U8: SCAN_LOOP(uint8_t, uint32_t);
    case ER_I16: case ER_U16: SCAN_LOOP(uint16_t, uint32_t);
    case ER_I32: case ER_U32: SCAN_LOOP(uint32_t, uint32_t);
    default: SCAN_LOOP(uint64_t, uint64_t);
  }
}
