/* Integer products of 8-bit codes: rows of A against panels of 16 columns of B, sums in i32 modulo 2^32.
 *
 * B is packed [panels][kp / 4][16][4] as i8, kp = K rounded up to 4, zeros beyond K and N; unsigned codes have 128
 * subtracted. A rows are packed [rows][kp] as the ISA's dot product wants them: unsigned on x86, signed elsewhere (the
 * top bit flipped where the codes are not). With a' = a + oa and b' = b - ob the result is sum (a - za)(b - zb) = sum
 * a' b' - (za + oa) colsum(b') - (zb - ob) (rowsum(a') - K (za + oa)). */
#ifndef EDGERUN_QGEMM_H
#define EDGERUN_QGEMM_H
#include "nd.h"
#include "vmath.h"
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#define QG_N 16
#define QG_ROWS 32 /* rows of A packed together */
#if defined(__ARM_NEON) || defined(__wasm__) || defined(__riscv)
#define QG_A_SIGNED 1
#else
#define QG_A_SIGNED 0
#endif

#define QG_INLINE static inline __attribute__((always_inline, unused))
QG_INLINE int32_t qg_word(const uint8_t *p) { int32_t w; memcpy(&w, p, 4); return w; }

/* One group of `mr` rows (a constant) against one panel: acc [mr][16]. a: rows kp apart. */
#if defined(__AVX512VNNI__)
#define QG_MR 8
QG_INLINE void qg_panel(const int mr, int32_t *acc, const uint8_t *a, int64_t kp, const int8_t *b) {
  __m512i s[QG_MR];
  for (int r = 0; r < mr; r++) s[r] = _mm512_setzero_si512();
  for (int64_t k = 0; k < kp; k += 4, b += 64) {
    __m512i v = _mm512_loadu_si512(b);
    for (int r = 0; r < mr; r++) s[r] = _mm512_dpbusd_epi32(s[r], _mm512_set1_epi32(qg_word(a + r * kp + k)), v);
  }
  for (int r = 0; r < mr; r++) _mm512_storeu_si512(acc + r * QG_N, s[r]);
}
#elif defined(__AVX512BW__)
#define QG_MR 4
QG_INLINE void qg_panel(const int mr, int32_t *acc, const uint8_t *a, int64_t kp, const int8_t *b) {
  __m512i s[QG_MR][2];
  for (int r = 0; r < mr; r++) s[r][0] = s[r][1] = _mm512_setzero_si512();
  for (int64_t k = 0; k < kp; k += 4, b += 64) {
    __m512i v0 = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)b));
    __m512i v1 = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(b + 32)));
    for (int r = 0; r < mr; r++) {
      __m128i word = _mm_cvtepu8_epi16(_mm_cvtsi32_si128(qg_word(a + r * kp + k)));
      __m512i x = _mm512_broadcastq_epi64(word);
      s[r][0] = _mm512_add_epi32(s[r][0], _mm512_madd_epi16(x, v0));
      s[r][1] = _mm512_add_epi32(s[r][1], _mm512_madd_epi16(x, v1));
    }
  }
  for (int r = 0; r < mr; r++) {
    int32_t t[32];
    _mm512_storeu_si512(t, s[r][0]);
    _mm512_storeu_si512(t + 16, s[r][1]);
    for (int j = 0; j < QG_N; j++) acc[r * QG_N + j] = t[2 * j] + t[2 * j + 1];
  }
}
#elif defined(__AVXVNNI__)
#define QG_MR 4
QG_INLINE void qg_panel(const int mr, int32_t *acc, const uint8_t *a, int64_t kp, const int8_t *b) {
  __m256i s[QG_MR][2];
  for (int r = 0; r < mr; r++) s[r][0] = s[r][1] = _mm256_setzero_si256();
  for (int64_t k = 0; k < kp; k += 4, b += 64) {
    __m256i v0 = _mm256_loadu_si256((const __m256i *)b), v1 = _mm256_loadu_si256((const __m256i *)(b + 32));
    for (int r = 0; r < mr; r++) {
      __m256i x = _mm256_set1_epi32(qg_word(a + r * kp + k));
      s[r][0] = _mm256_dpbusd_avx_epi32(s[r][0], x, v0);
      s[r][1] = _mm256_dpbusd_avx_epi32(s[r][1], x, v1);
    }
  }
  for (int r = 0; r < mr; r++) {
    _mm256_storeu_si256((__m256i *)(acc + r * QG_N), s[r][0]);
    _mm256_storeu_si256((__m256i *)(acc + r * QG_N + 8), s[r][1]);
  }
}
#elif defined(__AVX2__)
#define QG_MR 2
QG_INLINE void qg_panel(const int mr, int32_t *acc, const uint8_t *a, int64_t kp, const int8_t *b) {
  __m256i s[QG_MR][4];
  for (int r = 0; r < mr; r++) for (int j = 0; j < 4; j++) s[r][j] = _mm256_setzero_si256();
  for (int64_t k = 0; k < kp; k += 4, b += 64) {
    __m256i x[QG_MR];
    for (int r = 0; r < mr; r++)
      x[r] = _mm256_broadcastq_epi64(_mm_cvtepu8_epi16(_mm_cvtsi32_si128(qg_word(a + r * kp + k))));
    for (int j = 0; j < 4; j++) {
      __m256i v = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(b + 16 * j)));
      for (int r = 0; r < mr; r++) s[r][j] = _mm256_add_epi32(s[r][j], _mm256_madd_epi16(x[r], v));
    }
  }
  for (int r = 0; r < mr; r++) {
    int32_t t[32];
    for (int j = 0; j < 4; j++) _mm256_storeu_si256((__m256i *)(t + 8 * j), s[r][j]);
    for (int j = 0; j < QG_N; j++) acc[r * QG_N + j] = t[2 * j] + t[2 * j + 1];
  }
}
#elif defined(__x86_64__)
#define QG_MR 1
QG_INLINE void qg_panel(const int mr, int32_t *acc, const uint8_t *a, int64_t kp, const int8_t *b) {
  (void)mr;
  __m128i s[8], zero = _mm_setzero_si128();
  for (int j = 0; j < 8; j++) s[j] = zero;
  for (int64_t k = 0; k < kp; k += 4, b += 64) {
    __m128i word = _mm_unpacklo_epi8(_mm_cvtsi32_si128(qg_word(a + k)), zero), x = _mm_unpacklo_epi64(word, word);
    for (int j = 0; j < 4; j++) {
      __m128i v = _mm_loadu_si128((const __m128i *)(b + 16 * j)), sign = _mm_cmpgt_epi8(zero, v);
      s[2 * j] = _mm_add_epi32(s[2 * j], _mm_madd_epi16(x, _mm_unpacklo_epi8(v, sign)));
      s[2 * j + 1] = _mm_add_epi32(s[2 * j + 1], _mm_madd_epi16(x, _mm_unpackhi_epi8(v, sign)));
    }
  }
  int32_t t[32];
  for (int j = 0; j < 8; j++) _mm_storeu_si128((__m128i *)(t + 4 * j), s[j]);
  for (int j = 0; j < QG_N; j++) acc[j] = t[2 * j] + t[2 * j + 1];
}
#elif defined(__ARM_FEATURE_DOTPROD)
#define QG_MR 4
QG_INLINE void qg_panel(const int mr, int32_t *acc, const uint8_t *a, int64_t kp, const int8_t *b) {
  int32x4_t s[QG_MR][4];
  for (int r = 0; r < mr; r++) for (int j = 0; j < 4; j++) s[r][j] = vdupq_n_s32(0);
  for (int64_t k = 0; k < kp; k += 4, b += 64) {
    int8x16_t v[4] = {vld1q_s8(b), vld1q_s8(b + 16), vld1q_s8(b + 32), vld1q_s8(b + 48)};
    for (int r = 0; r < mr; r++) {
      int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(qg_word(a + r * kp + k)));
      for (int j = 0; j < 4; j++) s[r][j] = vdotq_s32(s[r][j], v[j], x);
    }
  }
  for (int r = 0; r < mr; r++) for (int j = 0; j < 4; j++) vst1q_s32(acc + r * QG_N + 4 * j, s[r][j]);
}
#elif defined(__ARM_NEON)
#define QG_MR 1
QG_INLINE void qg_panel(const int mr, int32_t *acc, const uint8_t *a, int64_t kp, const int8_t *b) {
  (void)mr;
  int32x4_t s[8];
  for (int j = 0; j < 8; j++) s[j] = vdupq_n_s32(0);
  for (int64_t k = 0; k < kp; k += 4, b += 64) {
    int8x8_t x = vreinterpret_s8_s32(vdup_n_s32(qg_word(a + k)));
    for (int j = 0; j < 8; j++) s[j] = vpadalq_s16(s[j], vmull_s8(vld1_s8(b + 8 * j), x)); /* columns 2j, 2j + 1 */
  }
  for (int j = 0; j < 8; j++) {
    acc[2 * j] = vgetq_lane_s32(s[j], 0) + vgetq_lane_s32(s[j], 1);
    acc[2 * j + 1] = vgetq_lane_s32(s[j], 2) + vgetq_lane_s32(s[j], 3);
  }
}
#else
#define QG_MR 1
QG_INLINE void qg_panel(const int mr, int32_t *acc, const uint8_t *a, int64_t kp, const int8_t *b) {
  (void)mr;
  uint32_t s[QG_N] = {0};
  for (int64_t k = 0; k < kp; k += 4, b += 64)
    for (int j = 0; j < QG_N; j++)
      for (int i = 0; i < 4; i++)
        s[j] += (uint32_t)((QG_A_SIGNED ? (int)(int8_t)a[k + i] : (int)a[k + i]) * b[4 * j + i]);
  for (int j = 0; j < QG_N; j++) acc[j] = (int32_t)s[j];
}
#endif

/* rows <= QG_ROWS rows against one panel: acc [rows][16]. */
static void qg_rows(int32_t *acc, const uint8_t *a, int rows, int64_t kp, const int8_t *b) {
  int r = 0;
  for (; r + QG_MR <= rows; r += QG_MR) qg_panel(QG_MR, acc + r * QG_N, a + r * kp, kp, b);
#if QG_MR >= 8
  for (; r + 4 <= rows; r += 4) qg_panel(4, acc + r * QG_N, a + r * kp, kp, b);
#endif
#if QG_MR >= 2
  for (; r < rows; r++) qg_panel(1, acc + r * QG_N, a + r * kp, kp, b);
#endif
}

/* n codes with the top bit flipped or not, then zeros up to `padded`; returns the sum of what was written, as i32. */
static int32_t qg_pack_row(uint8_t *to, const uint8_t *from, int64_t n, int64_t padded, uint8_t flip, int want_sum) {
  for (int64_t i = 0; i < n; i++) to[i] = from[i] ^ flip;
  memset(to + n, 0, (size_t)(padded - n));
  int32_t sum = 0;
  if (want_sum) for (int64_t i = 0; i < n; i++) sum += QG_A_SIGNED ? (int32_t)(int8_t)to[i] : (int32_t)to[i];
  return sum;
}

/* Where the sums go. Zero points are already shifted by the packing (za + oa, zb - ob). */
typedef struct {
  const er_view *out;
  const int32_t *column_sum; /* [panels * 16] of b'; NULL: zero point of a subtracted already */
  const int32_t *bias;       /* [n] or NULL */
  const void *b_zero;        /* of dtype b_dtype: 1 or n; NULL = 0 */
  const float *b_scale;      /* 1 or n; NULL for i32 output */
  int b_dtype, b_zeros, b_scales, b_offset;
  float y_scale;
  int32_t y_zero;
  int64_t k;
} qg_epilogue;

static int32_t qg_code(int dtype, const void *data, int64_t at) {
  return dtype == ER_I8 ? ((const int8_t *)data)[at] : ((const uint8_t *)data)[at];
}

/* One row of sums, columns [n0, n0 + n) of the weights: to element `at` of the output. */
static void qg_store(const qg_epilogue *e, const int32_t *acc, int64_t at, int64_t n0, int64_t n, int32_t za,
                     int32_t row_sum, float a_scale) {
  int32_t v[QG_N];
  for (int64_t j = 0; j < n; j++) {
    uint32_t zb =
        (uint32_t)((e->b_zero ? qg_code(e->b_dtype, e->b_zero, e->b_zeros > 1 ? n0 + j : 0) : 0) - e->b_offset);
    uint32_t s = (uint32_t)acc[j] - (e->column_sum ? (uint32_t)za * (uint32_t)e->column_sum[n0 + j] : 0);
    s -= zb * ((uint32_t)row_sum - (uint32_t)e->k * (uint32_t)za);
    v[j] = (int32_t)(s + (e->bias ? (uint32_t)e->bias[n0 + j] : 0));
  }
  if (e->out->dtype == ER_I32) {
    memcpy((int32_t *)e->out->data + at, v, (size_t)n * 4);
    return;
  }
  float low = e->out->dtype == ER_I8 ? -128 : 0, high = e->out->dtype == ER_I8 ? 127 : 255;
  uint8_t *y = (uint8_t *)e->out->data + at;
  for (int64_t j = 0; j < n; j++) {
    float multiplier = a_scale * e->b_scale[e->b_scales > 1 ? n0 + j : 0] / e->y_scale;
    float q = __builtin_rintf((float)v[j] * multiplier) + (float)e->y_zero;
    q = q == q ? q : (float)e->y_zero;
    y[j] = (uint8_t)(int32_t)(q < low ? low : q > high ? high : q);
  }
}
#endif
