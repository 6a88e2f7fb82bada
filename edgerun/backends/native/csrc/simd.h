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

/* -- 8-bit codes. CODES lanes of i32 are worked on at once: CODES / VL vectors. */
#define CODES 16
typedef int32_t vi_unaligned __attribute__((vector_size(VL * 4), aligned(4), may_alias));
ER_INLINE vi viload(const int32_t *p) { return (vi)*(const vi_unaligned *)p; }
ER_INLINE void vistore(int32_t *p, vi v) { *(vi_unaligned *)p = (vi_unaligned)v; }
#define visplat(x) ((vi)vsplat(0.0f) + (int32_t)(x))

/* To the nearest integer, halves to even; |v| < 2^21. */
ER_INLINE vi vround(vf v) {
#if VL == 16
  return (vi)_mm512_cvtps_epi32((__m512)v);
#elif VL == 8
  return (vi)_mm256_cvtps_epi32((__m256)v);
#elif defined(__x86_64__)
  return (vi)_mm_cvtps_epi32((__m128)v);
#elif defined(__aarch64__)
  return (vi)vcvtnq_s32_f32((float32x4_t)v);
#else
  const vf magic = vsplat(12582912.0f); /* 3 * 2^22: the sum has no bits for fractions */
  return (vi)(v + magic) - (vi)magic;
#endif
}

/* The low bytes of CODES lanes. */
ER_INLINE void vstore_codes(uint8_t *p, const vi *v) {
#if VL == 16
  _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8((__m512i)v[0]));
#elif VL == 8 /* lanes hold 0..255 or -128..127: the low byte survives two packings of masked numbers */
  const __m256i byte = _mm256_set1_epi32(255);
  __m256i pairs = _mm256_packus_epi32(_mm256_and_si256((__m256i)v[0], byte), _mm256_and_si256((__m256i)v[1], byte));
  pairs = _mm256_permute4x64_epi64(pairs, 0xd8);
  _mm_storeu_si128((__m128i *)p, _mm_packus_epi16(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1)));
#else
  typedef int32_t wide __attribute__((vector_size(64)));
  typedef uint8_t codes __attribute__((vector_size(16), aligned(1), may_alias));
  wide all;
  memcpy(&all, v, sizeof all);
  *(codes *)p = (codes)__builtin_convertvector(all, codes);
#endif
}
/* The first n < CODES of them. */
ER_INLINE void vstore_codes_part(uint8_t *p, const vi *v, int64_t n) {
  uint8_t t[CODES];
  vstore_codes(t, v);
  memcpy(p, t, (size_t)n);
}

#if VL == 16
/* 32 lanes each of two rows, not above 2^30, plus `zero` (16-bit lanes), saturated to codes. Where both go to the same
 * place, the top row stays. */
ER_INLINE void vstore_codes_rows(uint8_t *top, uint8_t *low, const vi *t, const vi *l, __m512i zero, int is_signed) {
  __m512i a = _mm512_adds_epi16(_mm512_packs_epi32((__m512i)t[0], (__m512i)t[1]), zero);
  __m512i b = _mm512_adds_epi16(_mm512_packs_epi32((__m512i)l[0], (__m512i)l[1]), zero);
  a = is_signed ? _mm512_packs_epi16(a, b) : _mm512_packus_epi16(a, b);
  /* Packing works within lanes of 128 bits. */
  a = _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), a);
  _mm256_storeu_si256((__m256i *)low, _mm512_extracti64x4_epi64(a, 1));
  _mm256_storeu_si256((__m256i *)top, _mm512_castsi512_si256(a));
}
#endif

/* CODES bytes as i32, of sign or without. */
ER_INLINE void vload_codes(vi *v, const uint8_t *p, int is_signed) {
#if VL == 16
  __m128i x = _mm_loadu_si128((const __m128i *)p);
  v[0] = (vi)(is_signed ? _mm512_cvtepi8_epi32(x) : _mm512_cvtepu8_epi32(x));
#elif VL == 8
  __m128i x = _mm_loadu_si128((const __m128i *)p), y = _mm_srli_si128(x, 8);
  v[0] = (vi)(is_signed ? _mm256_cvtepi8_epi32(x) : _mm256_cvtepu8_epi32(x));
  v[1] = (vi)(is_signed ? _mm256_cvtepi8_epi32(y) : _mm256_cvtepu8_epi32(y));
#else
  typedef int32_t wide __attribute__((vector_size(64)));
  typedef uint8_t ubytes __attribute__((vector_size(16), aligned(1), may_alias));
  typedef int8_t sbytes __attribute__((vector_size(16), aligned(1), may_alias));
  wide all = is_signed ? __builtin_convertvector(*(const sbytes *)p, wide) : __builtin_convertvector(*(const ubytes *)p, wide);
  memcpy(v, &all, sizeof all);
#endif
}
#endif
