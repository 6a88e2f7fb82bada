/* Activations of stored tiles: those of a few instructions in registers, the others on rows that were just stored and
 * are still in the first-level cache. */
#ifndef EDGERUN_ACTIVATION_H
#define EDGERUN_ACTIVATION_H
#include "../kernel.h"
#include "../simd.h"
#include "vmath.h"

VM_INLINE er_w activate_w(int act, er_w x, er_w slope, float p0, float p1) {
  er_w zero = er_splat_w(0.0f), one = er_splat_w(1.0f);
  switch (act) {
    case ER_ACT_LEAKY: return er_select_w(x < zero, x * p0, x);
    case ER_ACT_SIGMOID: return er_sigmoid_w(x);
    case ER_ACT_SILU: return x * er_sigmoid_w(x);
    case ER_ACT_HARDSIGMOID: return er_min_w(er_max_w(x * p0 + p1, zero), one);
    case ER_ACT_HARDSWISH: return x * er_min_w(er_max_w(x * (1.0f / 6.0f) + 0.5f, zero), one);
    case ER_ACT_GELU: return er_gelu_w(x);
    case ER_ACT_GELU_TANH: return er_gelu_tanh_w(x);
    case ER_ACT_TANH: return er_tanh_w(x);
    case ER_ACT_ELU: { /* e^x - 1 = 2 t / (1 - t), t = tanh(x / 2), keeps its digits near 0 */
      er_w t = er_tanh_w(x * 0.5f);
      return er_select_w(x < zero, (t + t) / (one - t) * p0, x);
    }
    case ER_ACT_PRELU: return er_select_w(x < zero, x * slope, x);
    default: return x;
  }
}

/* The activations that are done in registers. */
ER_INLINE int act_in_registers(int act) { return act <= ER_ACT_CLAMP || act == ER_ACT_HARDSWISH; }
ER_INLINE vf act_hardswish(vf v) {
  return v * vat_most(vat_least(v * vsplat(1.0f / 6.0f) + vsplat(0.5f), vsplat(0.0f)), vsplat(1.0f));
}
/* low, high: the parameters of a clamp. */
ER_INLINE vf act_apply(int act, vf v, vf low, vf high) {
  if (act == ER_ACT_CLAMP) return vat_most(vat_least(v, low), high);
  return act == ER_ACT_HARDSWISH ? act_hardswish(v) : v;
}

/* x = act(x) + residual for `rows` rows of n, a multiple of 16, ld and residual_ld floats apart; slope: [n] for prelu. */
static __attribute__((noinline)) void act_rows(int act, float p0, float p1, const float *slope, const float *residual,
                                               int64_t residual_ld, float *x, int64_t ld, int rows, int n) {
#define ACT_CASE(name)                                                                 \
  case name:                                                                           \
    for (int r = 0; r < rows; r++, x += ld) {                                          \
      for (int i = 0; i < n; i += ER_W) {                                              \
        er_w s = name == ER_ACT_PRELU ? er_load_w(slope + i) : er_splat_w(0.0f);       \
        er_w v = activate_w(name, er_load_w(x + i), s, p0, p1);                        \
        if (residual) v += er_load_w(residual + i);                                    \
        er_store_w(x + i, v);                                                          \
      }                                                                                \
      if (residual) residual += residual_ld;                                           \
    }                                                                                  \
    break;
  switch (act) {
    ACT_CASE(ER_ACT_LEAKY)
    ACT_CASE(ER_ACT_SIGMOID)
    ACT_CASE(ER_ACT_SILU)
    ACT_CASE(ER_ACT_HARDSIGMOID)
    ACT_CASE(ER_ACT_HARDSWISH)
    ACT_CASE(ER_ACT_GELU)
    ACT_CASE(ER_ACT_GELU_TANH)
    ACT_CASE(ER_ACT_TANH)
    ACT_CASE(ER_ACT_ELU)
    ACT_CASE(ER_ACT_PRELU)
  }
#undef ACT_CASE
}

/* The same for any n: the columns beyond a multiple of 16 are padded, row by row. */
static __attribute__((noinline)) void activate_tile(int act, float p0, float p1, const float *slope, const float *residual,
                                                    int64_t residual_ld, float *x, int64_t ld, int rows, int n) {
  int whole = n / ER_W * ER_W;
  size_t rest = (size_t)(n - whole) * sizeof(float);
  if (whole) act_rows(act, p0, p1, slope, residual, residual_ld, x, ld, rows, whole);
  if (!rest) return;
  float t[ER_W] = {0}, q[ER_W] = {0}, s[ER_W] = {0};
  if (slope) memcpy(s, slope + whole, rest);
  for (int r = 0; r < rows; r++, x += ld) {
    memcpy(t, x + whole, rest);
    if (residual) memcpy(q, residual + r * residual_ld + whole, rest);
    act_rows(act, p0, p1, s, q, 0, t, 0, 1, ER_W);
    memcpy(x + whole, t, rest);
  }
}

/* x[0..n) = act(x) + residual; slope: [n] for prelu, residual: [n] or NULL. */
ER_INLINE void activate_row(int act, float p0, float p1, const float *slope, const float *residual, float *x, int n) {
  activate_tile(act, p0, p1, slope, residual, 0, x, 0, 1, n);
}
#endif
