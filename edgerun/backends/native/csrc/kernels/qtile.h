/* The micro-kernel of integer products: a tile of MR rows of 8-bit codes by NV panels of 16 columns, sums in i32 modulo
 * 2^32.
 *
 * B is packed [panels][kp / 4][16][4] as i8, the same for every ISA level; unsigned codes have 128 subtracted. Row i of
 * A consists of segments of k bytes (a multiple of 4) at a[i] + offset[s], read in place: unsigned codes on x86, signed
 * ones elsewhere. Where B is zero, A may hold anything.
 * Tiles: 14 x 32 (AVX-512 VNNI), 6 x 16 (AVX-VNNI), 4 x 16 (AVX2, AArch64 with dot products), 2 x 16 (SSE2, AArch64),
 * 1 x 16 elsewhere. Without dot products, codes are widened to 16 bits before they are multiplied: nothing saturates. */
#ifndef EDGERUN_QTILE_H
#define EDGERUN_QTILE_H
#include "../kernel.h"
#include "../simd.h"

#define QG_N 16 /* columns of a panel */
#if defined(__AVX512VNNI__)
#define QG_MR 14
#define QG_NV 2
#elif defined(__AVXVNNI__)
#define QG_MR 6
#define QG_NV 1
#elif defined(__AVX2__) || defined(__ARM_FEATURE_DOTPROD)
#define QG_MR 4
#define QG_NV 1
#elif defined(__x86_64__) || defined(__aarch64__)
#define QG_MR 2
#define QG_NV 1
#else
#define QG_MR 1
#define QG_NV 1
#endif
#if defined(__x86_64__)
#define QG_A_SIGNED 0
#else
#define QG_A_SIGNED 1
#endif

typedef struct {
  int64_t segments, k;   /* number and bytes of the segments of a row */
  const int64_t *offset; /* [segments] */
  int64_t panel;         /* bytes of a panel: segments * k * 16 */
} qg_shape;

ER_INLINE int32_t qg_word(const uint8_t *p) { int32_t w; memcpy(&w, p, 4); return w; }

/* acc [mr][nv * 16] = add + a b; add: [nv * 16]. mr and nv are constants. */
ER_INLINE void qg_body(const int mr, const int nv, const uint8_t *const *a, const qg_shape *s, const int8_t *b,
                       const int32_t *add, int32_t *acc) {
#if defined(__AVX512VNNI__)
  __m512i c[QG_MR][QG_NV];
#pragma GCC unroll 2
  for (int v = 0; v < nv; v++) {
    __m512i first = _mm512_loadu_si512(add + v * QG_N);
#pragma GCC unroll 16
    for (int r = 0; r < mr; r++) c[r][v] = first;
  }
  const int64_t panel = s->panel, length = s->k;
  for (int64_t i = 0; i < s->segments; i++) {
    const int64_t at = s->offset[i];
    for (int64_t k = at; k < at + length; k += 4, b += 64) {
      __m512i w[QG_NV];
#pragma GCC unroll 2
      for (int v = 0; v < nv; v++) w[v] = _mm512_loadu_si512(b + v * panel);
#pragma GCC unroll 16
      for (int r = 0; r < mr; r++) {
        __m512i x = _mm512_set1_epi32(qg_word(a[r] + k));
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++) c[r][v] = _mm512_dpbusd_epi32(c[r][v], x, w[v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < mr; r++)
#pragma GCC unroll 2
    for (int v = 0; v < nv; v++) _mm512_storeu_si512(acc + (r * nv + v) * QG_N, c[r][v]);
#elif defined(__AVX2__)
  (void)nv;
  __m256i c[QG_MR][2];
#pragma GCC unroll 8
  for (int r = 0; r < mr; r++)
    for (int h = 0; h < 2; h++) c[r][h] = _mm256_loadu_si256((const __m256i *)(add + 8 * h));
  const int64_t length = s->k;
  for (int64_t i = 0; i < s->segments; i++) {
    const int64_t at = s->offset[i];
    for (int64_t k = at; k < at + length; k += 4, b += 64) {
      __m256i w0 = _mm256_loadu_si256((const __m256i *)b), w1 = _mm256_loadu_si256((const __m256i *)(b + 32));
#if defined(__AVXVNNI__)
#pragma GCC unroll 8
      for (int r = 0; r < mr; r++) {
        __m256i x = _mm256_set1_epi32(qg_word(a[r] + k));
        c[r][0] = _mm256_dpbusd_avx_epi32(c[r][0], x, w0);
        c[r][1] = _mm256_dpbusd_avx_epi32(c[r][1], x, w1);
      }
#else
      /* Even and odd bytes as 16-bit numbers: each product of pairs is a sum of two of the four products. */
      __m256i e0 = _mm256_srai_epi16(_mm256_slli_epi16(w0, 8), 8), o0 = _mm256_srai_epi16(w0, 8);
      __m256i e1 = _mm256_srai_epi16(_mm256_slli_epi16(w1, 8), 8), o1 = _mm256_srai_epi16(w1, 8);
#pragma GCC unroll 8
      for (int r = 0; r < mr; r++) {
        __m256i x = _mm256_set1_epi32(qg_word(a[r] + k));
        __m256i even = _mm256_and_si256(x, _mm256_set1_epi32(0x00ff00ff)), odd = _mm256_srli_epi16(x, 8);
        __m256i p0 = _mm256_add_epi32(_mm256_madd_epi16(even, e0), _mm256_madd_epi16(odd, o0));
        __m256i p1 = _mm256_add_epi32(_mm256_madd_epi16(even, e1), _mm256_madd_epi16(odd, o1));
        c[r][0] = _mm256_add_epi32(c[r][0], p0);
        c[r][1] = _mm256_add_epi32(c[r][1], p1);
      }
#endif
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < mr; r++)
    for (int h = 0; h < 2; h++) _mm256_storeu_si256((__m256i *)(acc + r * QG_N + 8 * h), c[r][h]);
#elif defined(__x86_64__)
  (void)nv;
  __m128i c[QG_MR][4];
  for (int r = 0; r < mr; r++)
    for (int h = 0; h < 4; h++) c[r][h] = _mm_loadu_si128((const __m128i *)(add + 4 * h));
  for (int64_t i = 0; i < s->segments; i++)
    for (int64_t k = s->offset[i], end = k + s->k; k < end; k += 4, b += 64) {
      __m128i even[QG_MR], odd[QG_MR];
      for (int r = 0; r < mr; r++) {
        __m128i x = _mm_set1_epi32(qg_word(a[r] + k));
        even[r] = _mm_and_si128(x, _mm_set1_epi32(0x00ff00ff));
        odd[r] = _mm_srli_epi16(x, 8);
      }
      for (int h = 0; h < 4; h++) {
        __m128i w = _mm_loadu_si128((const __m128i *)(b + 16 * h));
        __m128i e = _mm_srai_epi16(_mm_slli_epi16(w, 8), 8), o = _mm_srai_epi16(w, 8);
        for (int r = 0; r < mr; r++)
          c[r][h] = _mm_add_epi32(c[r][h], _mm_add_epi32(_mm_madd_epi16(even[r], e), _mm_madd_epi16(odd[r], o)));
      }
    }
  for (int r = 0; r < mr; r++)
    for (int h = 0; h < 4; h++) _mm_storeu_si128((__m128i *)(acc + r * QG_N + 4 * h), c[r][h]);
#elif defined(__ARM_FEATURE_MATMUL_INT8)
  /* Products of 2 x 8 by 8 x 2 codes. Two groups of four k of B, zipped, give two columns with eight k each. */
  (void)nv;
  int32x4_t c[(QG_MR + 1) / 2][8];
#pragma GCC unroll 2
  for (int p = 0; p < (mr + 1) / 2; p++)
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) c[p][j] = vdupq_n_s32(0);
  for (int64_t i = 0; i < s->segments; i++)
    for (int64_t k = s->offset[i], end = k + s->k; k < end;) {
      int whole = k + 8 <= end;
      int32x4_t x[(QG_MR + 1) / 2];
#pragma GCC unroll 2
      for (int p = 0; p < (mr + 1) / 2; p++) {
        const uint8_t *top = a[2 * p] + k, *low = a[2 * p + 1 < mr ? 2 * p + 1 : 2 * p] + k;
        int32x2_t t = vset_lane_s32(qg_word(top), vdup_n_s32(0), 0), l = vset_lane_s32(qg_word(low), vdup_n_s32(0), 0);
        if (whole) { t = vset_lane_s32(qg_word(top + 4), t, 1); l = vset_lane_s32(qg_word(low + 4), l, 1); }
        x[p] = vcombine_s32(t, l);
      }
#pragma GCC unroll 4
      for (int j = 0; j < 4; j++) {
        int32x4_t w0 = vreinterpretq_s32_s8(vld1q_s8(b + 16 * j)), w1 = vdupq_n_s32(0);
        if (whole) w1 = vreinterpretq_s32_s8(vld1q_s8(b + 64 + 16 * j));
        int8x16_t left = vreinterpretq_s8_s32(vzip1q_s32(w0, w1)), right = vreinterpretq_s8_s32(vzip2q_s32(w0, w1));
#pragma GCC unroll 2
        for (int p = 0; p < (mr + 1) / 2; p++) {
          c[p][2 * j] = vmmlaq_s32(c[p][2 * j], vreinterpretq_s8_s32(x[p]), left);
          c[p][2 * j + 1] = vmmlaq_s32(c[p][2 * j + 1], vreinterpretq_s8_s32(x[p]), right);
        }
      }
      k += whole ? 8 : 4;
      b += whole ? 128 : 64;
    }
#pragma GCC unroll 4
  for (int r = 0; r < mr; r++)
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
      int32x4_t t = c[r / 2][2 * j], u = c[r / 2][2 * j + 1];
      int32x4_t sum = r % 2 ? vcombine_s32(vget_high_s32(t), vget_high_s32(u)) : vcombine_s32(vget_low_s32(t), vget_low_s32(u));
      vst1q_s32(acc + r * QG_N + 4 * j, vaddq_s32(sum, vld1q_s32(add + 4 * j)));
    }
#elif defined(__ARM_FEATURE_DOTPROD)
  (void)nv;
  int32x4_t c[QG_MR][4];
#pragma GCC unroll 4
  for (int r = 0; r < mr; r++)
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) c[r][j] = vld1q_s32(add + 4 * j);
  for (int64_t i = 0; i < s->segments; i++) {
    int64_t k = s->offset[i], end = k + s->k;
    for (; k + 16 <= end; k += 16, b += 256) {
      int8x16_t x[QG_MR];
#pragma GCC unroll 4
      for (int r = 0; r < mr; r++) x[r] = vld1q_s8((const int8_t *)a[r] + k);
#define QG_LANE(l)                                                                                     \
  _Pragma("GCC unroll 4") for (int j = 0; j < 4; j++) {                                                \
    int8x16_t w = vld1q_s8(b + 64 * (l) + 16 * j);                                                     \
    _Pragma("GCC unroll 4") for (int r = 0; r < mr; r++) c[r][j] = vdotq_laneq_s32(c[r][j], w, x[r], l); \
  }
      QG_LANE(0) QG_LANE(1) QG_LANE(2) QG_LANE(3)
#undef QG_LANE
    }
    for (; k < end; k += 4, b += 64)
#pragma GCC unroll 4
      for (int j = 0; j < 4; j++) {
        int8x16_t w = vld1q_s8(b + 16 * j);
#pragma GCC unroll 4
        for (int r = 0; r < mr; r++)
          c[r][j] = vdotq_s32(c[r][j], w, vreinterpretq_s8_s32(vdupq_n_s32(qg_word(a[r] + k))));
      }
  }
#pragma GCC unroll 4
  for (int r = 0; r < mr; r++)
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) vst1q_s32(acc + r * QG_N + 4 * j, c[r][j]);
#elif defined(__ARM_NEON)
  /* Products of 8 bits in 16, pairs of them added to sums of 32 bits: c[r][j] has columns 2j and 2j + 1, two sums each. */
  (void)nv;
  int32x4_t c[QG_MR][8];
#pragma GCC unroll 2
  for (int r = 0; r < mr; r++)
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) c[r][j] = vdupq_n_s32(0);
  for (int64_t i = 0; i < s->segments; i++)
    for (int64_t k = s->offset[i], end = k + s->k; k < end; k += 4, b += 64) {
      int8x8_t x[QG_MR];
#pragma GCC unroll 2
      for (int r = 0; r < mr; r++) x[r] = vreinterpret_s8_s32(vdup_n_s32(qg_word(a[r] + k)));
#pragma GCC unroll 4
      for (int j = 0; j < 4; j++) {
        int8x16_t w = vld1q_s8(b + 16 * j);
#pragma GCC unroll 2
        for (int r = 0; r < mr; r++) {
          c[r][2 * j] = vpadalq_s16(c[r][2 * j], vmull_s8(vget_low_s8(w), x[r]));
          c[r][2 * j + 1] = vpadalq_s16(c[r][2 * j + 1], vmull_s8(vget_high_s8(w), x[r]));
        }
      }
    }
#pragma GCC unroll 2
  for (int r = 0; r < mr; r++)
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
      int32x4_t t = c[r][2 * j], u = c[r][2 * j + 1];
      int32x4_t sum = vcombine_s32(vpadd_s32(vget_low_s32(t), vget_high_s32(t)), vpadd_s32(vget_low_s32(u), vget_high_s32(u)));
      vst1q_s32(acc + r * QG_N + 4 * j, vaddq_s32(sum, vld1q_s32(add + 4 * j)));
    }
#else
  (void)nv;
  for (int r = 0; r < mr; r++) {
    uint32_t c[QG_N];
    const int8_t *w = b;
    for (int j = 0; j < QG_N; j++) c[j] = (uint32_t)add[j];
    for (int64_t i = 0; i < s->segments; i++)
      for (int64_t k = s->offset[i], end = k + s->k; k < end; k += 4, w += 64)
        for (int j = 0; j < QG_N; j++)
          for (int t = 0; t < 4; t++)
            c[j] += (uint32_t)((QG_A_SIGNED ? (int)(int8_t)a[r][k + t] : (int)a[r][k + t]) * w[4 * j + t]);
    for (int j = 0; j < QG_N; j++) acc[r * QG_N + j] = (int32_t)c[j];
  }
#endif
}

typedef void (*qg_fn)(const uint8_t *const *, const qg_shape *, const int8_t *, const int32_t *, int32_t *);
#define QG_DEFINE(MR, NV)                                                                                          \
  static __attribute__((noinline)) void qg_tile_##MR##_##NV(const uint8_t *const *a, const qg_shape *s, const int8_t *b, \
                                                            const int32_t *add, int32_t *acc) {                    \
    qg_body(MR, NV, a, s, b, add, acc);                                                                            \
  }
#if QG_NV > 1
#define QG_BOTH(MR) QG_DEFINE(MR, 1) QG_DEFINE(MR, 2)
#define QG_ROW(MR) {qg_tile_##MR##_1, qg_tile_##MR##_2}
#else
#define QG_BOTH(MR) QG_DEFINE(MR, 1)
#define QG_ROW(MR) {qg_tile_##MR##_1}
#endif
/* One row, and even numbers of rows: an odd tile computes its last row twice. */
QG_BOTH(1)
#if QG_MR > 1
QG_BOTH(2)
#endif
#if QG_MR > 2
QG_BOTH(4)
#endif
#if QG_MR > 4
QG_BOTH(6)
#endif
#if QG_MR > 6
QG_BOTH(8) QG_BOTH(10) QG_BOTH(12) QG_BOTH(14)
#endif
static const qg_fn qg_tiles[QG_MR / 2 + 1][QG_NV] = {QG_ROW(1),
#if QG_MR > 1
  QG_ROW(2),
#endif
#if QG_MR > 2
  QG_ROW(4),
#endif
#if QG_MR > 4
  QG_ROW(6),
#endif
#if QG_MR > 6
  QG_ROW(8), QG_ROW(10), QG_ROW(12), QG_ROW(14),
#endif
};

/* acc [rows made even unless 1][nv * 16] = add + a b for 1 <= rows <= QG_MR. a has room for one pointer more. */
ER_INLINE void qg_tile(int rows, int nv, const uint8_t **a, const qg_shape *s, const int8_t *b, const int32_t *add,
                       int32_t *acc) {
  if (rows & 1 && rows > 1) a[rows] = a[rows - 1];
  qg_tiles[rows == 1 ? 0 : (rows + 1) / 2][nv - 1](a, s, b, add, acc);
}
#endif
