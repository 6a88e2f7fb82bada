/* Elementary functions of floats, about 2e-7 relative: er_NAME_s for scalars, er_NAME_w for er_w (16 floats; the
 * compiler splits it into the registers of the ISA) and, where simd.h defines vectors of VL floats, er_NAME_v for
 * those. Functions: min max abs copysign exp exp_fast log log1p sigmoid tanh erf gelu gelu_tanh softplus sine. */
#ifndef EDGERUN_VMATH_H
#define EDGERUN_VMATH_H
#include <stdint.h>
#include <string.h>

typedef float er_w __attribute__((vector_size(64)));
typedef int32_t er_wi __attribute__((vector_size(64)));
typedef float er_w_unaligned __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t er_wi_unaligned __attribute__((vector_size(64), aligned(4), may_alias));
#define ER_W 16

#define VM_INLINE static inline __attribute__((always_inline, unused))
#define VM_INFINITY __builtin_inff()
#define VM_TRIG_LIMIT 2048.0f /* beyond, the three-part reduction of `sine` loses digits */

VM_INLINE er_w er_load_w(const float *p) { return (er_w)*(const er_w_unaligned *)p; }
VM_INLINE void er_store_w(float *p, er_w v) { *(er_w_unaligned *)p = (er_w_unaligned)v; }
/* The first n < 16 floats of p, the rest 0. */
VM_INLINE er_w er_load_part_w(const float *p, int n) {
  float t[ER_W] = {0};
  memcpy(t, p, sizeof(float) * (size_t)n);
  return er_load_w(t);
}
VM_INLINE void er_store_part_w(float *p, er_w v, int n) {
  float t[ER_W];
  er_store_w(t, v);
  memcpy(p, t, sizeof(float) * (size_t)n);
}
VM_INLINE er_w er_splat_w(float x) { return (er_w){0} + x; }
VM_INLINE er_w er_select_w(er_wi mask, er_w a, er_w b) { return (er_w)((mask & (er_wi)a) | (~mask & (er_wi)b)); }

VM_INLINE int32_t er_bits_s(float x) { int32_t i; memcpy(&i, &x, 4); return i; }
VM_INLINE float er_float_s(int32_t i) { float x; memcpy(&x, &i, 4); return x; }

#define VM_F float
#define VM_I int32_t
#define VM_(name) er_##name##_s
#define VM_BITS(x) er_bits_s(x)
#define VM_FLOAT(i) er_float_s(i)
#define VM_MASK(cond) (-(int32_t)(cond))
#define VM_TO_FLOAT(i) ((float)(i))
#define VM_AT_LEAST(x, low) VM_SELECT(VM_MASK((x) < (low)), (VM_F){0} + (low), x)
#define VM_AT_MOST(x, high) VM_SELECT(VM_MASK((x) > (high)), (VM_F){0} + (high), x)
#define VM_RECIPROCAL(x) (1.0f / (x))
#include "vmath_template.h"
#undef VM_F
#undef VM_I
#undef VM_
#undef VM_BITS
#undef VM_FLOAT
#undef VM_MASK
#undef VM_TO_FLOAT
#undef VM_AT_LEAST
#undef VM_AT_MOST
#undef VM_RECIPROCAL

#define VM_F er_w
#define VM_I er_wi
#define VM_(name) er_##name##_w
#define VM_BITS(x) ((er_wi)(x))
#define VM_FLOAT(i) ((er_w)(i))
#define VM_MASK(cond) ((er_wi)(cond))
#define VM_TO_FLOAT(i) __builtin_convertvector(i, er_w)
#ifdef __AVX512F__
#include <immintrin.h>
/* The instructions return their second operand when either is NaN. A division takes 16 cycles; an estimate of 14 bits
 * and a step of Newton's reach 1e-7. */
VM_INLINE er_w er_reciprocal_w(er_w x) {
  er_w r = (er_w)_mm512_rcp14_ps((__m512)x);
  return r + r * (1.0f - x * r);
}
#define VM_AT_LEAST(x, low) ((er_w)_mm512_max_ps(_mm512_set1_ps(low), (__m512)(x)))
#define VM_AT_MOST(x, high) ((er_w)_mm512_min_ps(_mm512_set1_ps(high), (__m512)(x)))
#define VM_RECIPROCAL(x) er_reciprocal_w(x)
#else
#define VM_AT_LEAST(x, low) VM_SELECT(VM_MASK((x) < (low)), (VM_F){0} + (low), x)
#define VM_AT_MOST(x, high) VM_SELECT(VM_MASK((x) > (high)), (VM_F){0} + (high), x)
#define VM_RECIPROCAL(x) (1.0f / (x))
#endif
#include "vmath_template.h"
#undef VM_F
#undef VM_I
#undef VM_
#undef VM_BITS
#undef VM_FLOAT
#undef VM_MASK
#undef VM_TO_FLOAT
#undef VM_AT_LEAST
#undef VM_AT_MOST
#undef VM_RECIPROCAL

/* Sums and extremes over the 16 lanes. */
VM_INLINE float er_sum_lanes_w(er_w v) {
  float t[ER_W];
  er_store_w(t, v);
  for (int h = ER_W / 2; h; h /= 2) for (int i = 0; i < h; i++) t[i] += t[i + h];
  return t[0];
}
VM_INLINE float er_max_lanes_w(er_w v) {
  float t[ER_W];
  er_store_w(t, v);
  for (int h = ER_W / 2; h; h /= 2) for (int i = 0; i < h; i++) t[i] = er_max_s(t[i], t[i + h]);
  return t[0];
}
#endif
