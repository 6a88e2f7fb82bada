/* The SIMD layer: GCC/Clang vector extensions plus the few operations that need an intrinsic. VL floats a vector.
 * Every kernel source is compiled once per ISA level; nothing here may be used outside kernels/ (see isa.c). */
#ifndef EDGERUN_SIMD_H
#define EDGERUN_SIMD_H
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define VL 16
#elif defined(__AVX__)
#define VL 8
#else
#define VL 4
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#define ER_INLINE static inline __attribute__((always_inline, unused))

typedef float vf __attribute__((vector_size(VL * 4), may_alias));
typedef float vf_unaligned __attribute__((vector_size(VL * 4), aligned(4), may_alias));
typedef int32_t vi __attribute__((vector_size(VL * 4), may_alias));

ER_INLINE vf vload(const float *p) { return (vf)*(const vf_unaligned *)p; }
ER_INLINE void vstore(float *p, vf v) { *(vf_unaligned *)p = (vf_unaligned)v; }

#if VL == 16
/* Loads and stores of the first n lanes cost nothing more than whole ones. */
#define ER_MASKS 1
typedef __mmask16 vmask;
ER_INLINE vmask vmask_first(int64_t n) { return n >= VL ? (vmask)0xffff : (vmask)((1u << n) - 1); }
ER_INLINE vf vload_masked(const float *p, vmask m) { return (vf)_mm512_maskz_loadu_ps(m, p); }
ER_INLINE void vstore_masked(float *p, vf v, vmask m) { _mm512_mask_storeu_ps(p, m, (__m512)v); }
#else
#define ER_MASKS 0
#endif

/* The first n < VL floats of p; the rest is 0. */
ER_INLINE vf vload_part(const float *p, int n) {
#if ER_MASKS
  return vload_masked(p, vmask_first(n));
#else
  float t[VL] = {0};
  memcpy(t, p, sizeof(float) * (size_t)n);
  return vload(t);
#endif
}
ER_INLINE void vstore_part(float *p, vf v, int n) {
#if ER_MASKS
  vstore_masked(p, v, vmask_first(n));
#else
  float t[VL];
  vstore(t, v);
  memcpy(p, t, sizeof(float) * (size_t)n);
#endif
}

/* vsplat: one value in every lane. vat_least(v, low): low where v < low, NaN of v passes; vat_most likewise.
 * (x86 max and min return their second operand when either is NaN.) */
#if VL == 16
#define vsplat(x) ((vf)_mm512_set1_ps(x))
ER_INLINE vf vat_least(vf v, vf low) { return (vf)_mm512_max_ps((__m512)low, (__m512)v); }
ER_INLINE vf vat_most(vf v, vf high) { return (vf)_mm512_min_ps((__m512)high, (__m512)v); }
#elif VL == 8
#define vsplat(x) ((vf)_mm256_set1_ps(x))
ER_INLINE vf vat_least(vf v, vf low) { return (vf)_mm256_max_ps((__m256)low, (__m256)v); }
ER_INLINE vf vat_most(vf v, vf high) { return (vf)_mm256_min_ps((__m256)high, (__m256)v); }
#elif defined(__x86_64__)
#define vsplat(x) ((vf)_mm_set1_ps(x))
ER_INLINE vf vat_least(vf v, vf low) { return (vf)_mm_max_ps((__m128)low, (__m128)v); }
ER_INLINE vf vat_most(vf v, vf high) { return (vf)_mm_min_ps((__m128)high, (__m128)v); }
#elif defined(__ARM_NEON)
#define vsplat(x) ((vf)vdupq_n_f32(x))
ER_INLINE vf vat_least(vf v, vf low) { return (vf)vmaxq_f32((float32x4_t)v, (float32x4_t)low); }
ER_INLINE vf vat_most(vf v, vf high) { return (vf)vminq_f32((float32x4_t)v, (float32x4_t)high); }
#else
#define vsplat(x) ((vf){(x), (x), (x), (x)})
ER_INLINE vf vat_least(vf v, vf low) { vi m = (vi)(v < low); return (vf)((m & (vi)low) | (~m & (vi)v)); }
ER_INLINE vf vat_most(vf v, vf high) { vi m = (vi)(v > high); return (vf)((m & (vi)high) | (~m & (vi)v)); }
#endif

/* acc + b * x for a scalar x, or for lane l of a. The compiler contracts this to one instruction where the ISA has it,
 * except on 32-bit Arm, where the generic vectors never become vmla/vfma. */
#if defined(__ARM_NEON) && !defined(__aarch64__) && defined(__ARM_FEATURE_FMA)
#define vmadd(acc, b, x) ((vf)vfmaq_f32((float32x4_t)(acc), (float32x4_t)(b), vdupq_n_f32(x)))
#elif defined(__ARM_NEON) && !defined(__aarch64__)
#define vmadd(acc, b, x) ((vf)vmlaq_n_f32((float32x4_t)(acc), (float32x4_t)(b), (x)))
#else
#define vmadd(acc, b, x) ((acc) + (b) * vsplat(x))
#endif
#endif
