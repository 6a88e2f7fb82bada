/* Activations that need more than a clamp, on a row that was just stored and is still in the first-level cache. */
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

/* x[0..n) = act(x) + residual; slope: [n] for prelu, residual: [n] or NULL. */
static __attribute__((noinline)) void activate_row(int act, float p0, float p1, const float *slope, const float *residual,
                                                   float *x, int n) {
  for (int i = 0; i < n; i += ER_W) {
    int part = n - i;
    er_w v = part >= ER_W ? er_load_w(x + i) : er_load_part_w(x + i, part);
    er_w s = slope ? (part >= ER_W ? er_load_w(slope + i) : er_load_part_w(slope + i, part)) : er_splat_w(0.0f);
    v = activate_w(act, v, s, p0, p1);
    if (residual) v += part >= ER_W ? er_load_w(residual + i) : er_load_part_w(residual + i, part);
    if (part >= ER_W) er_store_w(x + i, v); else er_store_part_w(x + i, v, part);
  }
}
#endif
