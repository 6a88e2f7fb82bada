/* matmul_group: a [..., K] f32, rounded to 8 bits in blocks of 32, times weights of 4 or 8 bits with a scale (and
 * minimum) for each 32 of K; rows_group: rows of such weights by index.
 *
 * Weights are packed in tiles of 16 rows of W [N, K], rows beyond N zero: [N / 16][K / 32] blocks of
 *   codes: 8 bits [8][16][4] (k = 4 g + i of each row), 4 bits [4][16][4], k = 4 g + i in the lower and 16 + 4 g + i in
 *   the upper half of a byte; scales [16]; minima [16] when there are any; both f16, or f32 when `wide`.
 * With `halves` (8 bits, no minima) there are two rows of scales, for the first and the last 16 of the block.
 * A weight is scale * code + minimum; without minima it is scale * (code - 2^(bits - 1)).
 *
 * A row of a becomes q = round(127 / m a) with m its largest magnitude in the block, standing for q * f16(m / 127), as
 * the Q8 blocks of ggml. A block with a value that is not finite makes its row NaN. */
#include "half.h"
#include "nd.h"
#include "vmath.h"
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#define MG_INLINE static inline __attribute__((always_inline, unused))

enum { MG_K, MG_N, MG_BITS, MG_MINIMA, MG_WIDE, MG_HALVES, MG_PARAMS };
enum { MG_BLOCK = 32, MG_ROWS = 16, MG_MR = 4 /* rows of a that share a pass over the weights */ };

typedef struct {
  const er_call *c;
  int64_t k, n, blocks, rows, block_bytes;
  int bits, minima, wide, halves;
  const int8_t *q;    /* [rows][K] */
  const float *scale; /* [rows][K / 32] */
  const float *sum;   /* [rows][K / 16]: scale * sum of q */
  int tasks;
} mg_plan;

MG_INLINE int64_t mg_block_bytes(const int32_t *param) {
  return MG_ROWS * (MG_BLOCK * param[MG_BITS] / 8 + (1 + param[MG_MINIMA] + param[MG_HALVES]) * (param[MG_WIDE] ? 4 : 2));
}

#ifdef ER_BASELINE_CHECKS
/* The parameters and the packed weights, for both kernels. */
static int check_group_weights(const er_call *c, const er_view *w) {
  ER_REQUIRE(c, c->n_param == MG_PARAMS, "group: bad call");
  int64_t k = c->param[MG_K], n = c->param[MG_N];
  int bits = c->param[MG_BITS], minima = c->param[MG_MINIMA], wide = c->param[MG_WIDE], halves = c->param[MG_HALVES];
  ER_REQUIRE(c, (bits == 4 || bits == 8) && k > 0 && k % MG_BLOCK == 0 && n > 0, "group: bad sizes");
  ER_REQUIRE(c, ((minima | wide | halves) & ~1) == 0 && (!halves || (bits == 8 && !minima)), "group: bad layout");
  int64_t tiles = (n + MG_ROWS - 1) / MG_ROWS;
  ER_REQUIRE(c, w->dtype == ER_U8 && er_is_dense(w) && er_numel(w) == tiles * (k / MG_BLOCK) * mg_block_bytes(c->param),
             "group: bad weights");
  return 0;
}

static int check_matmul_group(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 3 && c->n_out == 1, "matmul_group: bad call");
  const er_view *a = &c->in[0], *bias = &c->in[2], *y = &c->out[0];
  if (check_group_weights(c, &c->in[1])) return 1;
  int64_t k = c->param[MG_K], n = c->param[MG_N];
  ER_REQUIRE(c, a->rank >= 1 && y->rank == a->rank && a->dtype == ER_F32 && y->dtype == ER_F32, "matmul_group: bad types");
  ER_REQUIRE(c, er_is_dense(a) && er_is_dense(y), "matmul_group takes dense tensors");
  ER_REQUIRE(c, a->dim[a->rank - 1] == k && y->dim[y->rank - 1] == n && er_numel(a) / k == er_numel(y) / n,
             "matmul_group: shapes differ");
  ER_REQUIRE(c, !bias->data || (bias->dtype == ER_F32 && er_is_dense(bias) && er_numel(bias) == n),
             "matmul_group: bad bias");
  ER_REQUIRE(c, (int64_t)c->scratch_bytes >= er_numel(a) + er_numel(a) / 8 * 3, "matmul_group: too little scratch");
  return 0;
}

static int check_rows_group(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 2 && c->n_out == 1, "rows_group: bad call");
  const er_view *index = &c->in[1], *y = &c->out[0];
  if (check_group_weights(c, &c->in[0])) return 1;
  ER_REQUIRE(c, (index->dtype == ER_I32 || index->dtype == ER_I64) && er_is_dense(index), "rows_group: bad index");
  ER_REQUIRE(c,
             y->dtype == ER_F32 && y->rank == index->rank + 1 && er_is_dense(y) &&
                 y->dim[y->rank - 1] == c->param[MG_K] && er_numel(y) == er_numel(index) * c->param[MG_K],
             "rows_group: bad output");
  return 0;
}
#endif

/* 16 numbers, f16 or f32. */
MG_INLINE er_w mg_numbers(const uint8_t *p, int wide) {
  if (wide) return er_load_w((const float *)p);
#if defined(__AVX512F__)
  return (er_w)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
#elif defined(__F16C__)
  __m256 low = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
  __m256 high = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 16)));
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#else
  float t[16];
  for (int i = 0; i < 16; i++) {
    uint16_t h;
    memcpy(&h, p + 2 * i, 2);
    t[i] = er_from_f16(h);
  }
  return er_load_w(t);
#endif
}

/* -- sums of 4 products for each of 16 rows: an accumulator, what adds to it, and its 16 sums as floats */
typedef int32_t mg_i16 __attribute__((vector_size(64)));
MG_INLINE int32_t mg_word(const int8_t *q) { int32_t w; memcpy(&w, q, 4); return w; }

#if defined(__AVX512VNNI__)
#define MG_SIGNED 0
typedef __m512i mg_codes;
typedef __m512i mg_acc;
MG_INLINE mg_acc mg_zero(void) { return _mm512_setzero_si512(); }
MG_INLINE mg_codes mg_load(const uint8_t *p) { return _mm512_loadu_si512(p); }
MG_INLINE mg_codes mg_low(mg_codes v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
MG_INLINE mg_codes mg_high(mg_codes v) { return _mm512_and_si512(_mm512_srli_epi16(v, 4), _mm512_set1_epi8(15)); }
MG_INLINE mg_acc mg_add(mg_acc s, mg_codes w, int32_t a) { return _mm512_dpbusd_epi32(s, w, _mm512_set1_epi32(a)); }
MG_INLINE er_w mg_sums(mg_acc s) { return (er_w)_mm512_cvtepi32_ps(s); }
#elif defined(__AVX2__)
/* Eight rows a register. Codes of 8 bits become signed: products of unsigned ones do not fit 16 bits in pairs. */
typedef struct { __m256i v[2]; } mg_codes;
typedef struct { __m256i v[2]; } mg_acc;
#ifdef __AVXVNNI__
#define MG_SIGNED 0
MG_INLINE __m256i mg_dot(__m256i s, __m256i w, __m256i a) { return _mm256_dpbusd_avx_epi32(s, w, a); }
#else
#define MG_SIGNED 1
MG_INLINE __m256i mg_dot(__m256i s, __m256i w, __m256i a) {
  __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
  return _mm256_add_epi32(s, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
#endif
MG_INLINE mg_acc mg_zero(void) { return (mg_acc){{_mm256_setzero_si256(), _mm256_setzero_si256()}}; }
MG_INLINE mg_codes mg_load(const uint8_t *p) {
  return (mg_codes){{_mm256_loadu_si256((const __m256i *)p), _mm256_loadu_si256((const __m256i *)(p + 32))}};
}
MG_INLINE mg_codes mg_low(mg_codes c) {
  __m256i mask = _mm256_set1_epi8(15);
  return (mg_codes){{_mm256_and_si256(c.v[0], mask), _mm256_and_si256(c.v[1], mask)}};
}
MG_INLINE mg_codes mg_high(mg_codes c) {
  return mg_low((mg_codes){{_mm256_srli_epi16(c.v[0], 4), _mm256_srli_epi16(c.v[1], 4)}});
}
#if MG_SIGNED
MG_INLINE mg_codes mg_flip(mg_codes c) {
  __m256i bit = _mm256_set1_epi8((char)0x80);
  return (mg_codes){{_mm256_xor_si256(c.v[0], bit), _mm256_xor_si256(c.v[1], bit)}};
}
#endif
MG_INLINE mg_acc mg_add(mg_acc s, mg_codes w, int32_t a) {
  __m256i x = _mm256_set1_epi32(a);
  return (mg_acc){{mg_dot(s.v[0], w.v[0], x), mg_dot(s.v[1], w.v[1], x)}};
}
MG_INLINE er_w mg_sums(mg_acc s) {
  return __builtin_shufflevector(_mm256_cvtepi32_ps(s.v[0]), _mm256_cvtepi32_ps(s.v[1]), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9,
                                 10, 11, 12, 13, 14, 15);
}
#elif defined(__ARM_NEON)
/* Four rows a register; without dot products the sums of a row's pairs stay apart until the end. */
#define MG_SIGNED 1
typedef struct { int8x16_t v[4]; } mg_codes;
MG_INLINE mg_codes mg_load(const uint8_t *p) {
  mg_codes c;
  for (int j = 0; j < 4; j++) c.v[j] = vreinterpretq_s8_u8(vld1q_u8(p + 16 * j));
  return c;
}
MG_INLINE mg_codes mg_low(mg_codes c) {
  for (int j = 0; j < 4; j++) c.v[j] = vandq_s8(c.v[j], vdupq_n_s8(15));
  return c;
}
MG_INLINE mg_codes mg_high(mg_codes c) {
  for (int j = 0; j < 4; j++) c.v[j] = vreinterpretq_s8_u8(vshrq_n_u8(vreinterpretq_u8_s8(c.v[j]), 4));
  return c;
}
MG_INLINE mg_codes mg_flip(mg_codes c) {
  for (int j = 0; j < 4; j++) c.v[j] = veorq_s8(c.v[j], vdupq_n_s8(-128));
  return c;
}
#ifdef __ARM_FEATURE_DOTPROD
typedef struct { int32x4_t v[4]; } mg_acc;
MG_INLINE mg_acc mg_zero(void) {
  int32x4_t z = vdupq_n_s32(0);
  return (mg_acc){{z, z, z, z}};
}
MG_INLINE mg_acc mg_add(mg_acc s, mg_codes w, int32_t a) {
  int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(a));
  for (int j = 0; j < 4; j++) s.v[j] = vdotq_s32(s.v[j], w.v[j], x);
  return s;
}
MG_INLINE er_w mg_sums(mg_acc s) {
  float t[16];
  for (int j = 0; j < 4; j++) vst1q_f32(t + 4 * j, vcvtq_f32_s32(s.v[j]));
  return er_load_w(t);
}
#else
typedef struct { int32x4_t v[8]; } mg_acc;
MG_INLINE mg_acc mg_zero(void) {
  int32x4_t z = vdupq_n_s32(0);
  return (mg_acc){{z, z, z, z, z, z, z, z}};
}
MG_INLINE mg_acc mg_add(mg_acc s, mg_codes w, int32_t a) {
  int8x8_t x = vreinterpret_s8_s32(vdup_n_s32(a));
  for (int j = 0; j < 4; j++) {
    s.v[2 * j] = vpadalq_s16(s.v[2 * j], vmull_s8(vget_low_s8(w.v[j]), x));
    s.v[2 * j + 1] = vpadalq_s16(s.v[2 * j + 1], vmull_s8(vget_high_s8(w.v[j]), x));
  }
  return s;
}
MG_INLINE er_w mg_sums(mg_acc s) {
  float t[16];
  for (int j = 0; j < 8; j++) {
    int32x2_t pair = vpadd_s32(vget_low_s32(s.v[j]), vget_high_s32(s.v[j]));
    vst1_f32(t + 2 * j, vcvt_f32_s32(pair));
  }
  return er_load_w(t);
}
#endif
#else
#define MG_SIGNED 0
typedef struct { uint8_t v[64]; } mg_codes;
typedef mg_i16 mg_acc;
MG_INLINE mg_acc mg_zero(void) { return (mg_acc){0}; }
MG_INLINE mg_codes mg_load(const uint8_t *p) { mg_codes c; memcpy(c.v, p, 64); return c; }
MG_INLINE mg_codes mg_low(mg_codes c) { for (int i = 0; i < 64; i++) c.v[i] &= 15; return c; }
MG_INLINE mg_codes mg_high(mg_codes c) { for (int i = 0; i < 64; i++) c.v[i] >>= 4; return c; }
MG_INLINE mg_acc mg_add(mg_acc s, mg_codes w, int32_t a) {
  int8_t x[4];
  memcpy(x, &a, 4);
  for (int r = 0; r < 16; r++)
    for (int i = 0; i < 4; i++) s[r] += w.v[4 * r + i] * x[i];
  return s;
}
MG_INLINE er_w mg_sums(mg_acc s) { return __builtin_convertvector(s, er_w); }
#endif
/* Loops over the vectors of a block, where each is a few instructions. */
#if defined(__AVX2__) || defined(__ARM_NEON)
#define MG_UNROLL _Pragma("GCC unroll 4")
#else
#define MG_UNROLL
#endif
#if !MG_SIGNED
MG_INLINE mg_codes mg_flip(mg_codes c) { return c; }
#endif

/* y [mr][16]: `mr` rows of a (a constant) from row r on against one tile; `halves` is a constant too. */
MG_INLINE void mg_tile(const mg_plan *p, const int mr, const int bits, const int halves, const uint8_t *w, int64_t row,
                       er_w *y) {
  const int8_t *q = p->q + row * p->k;
  const float *scale = p->scale + row * p->blocks, *sum = p->sum + 2 * row * p->blocks;
  const int numbers = p->wide ? 64 : 32; /* bytes of 16 */
  /* What codes are short of: 8-bit codes that are signed already have their zero point. */
  const float zero = bits == 8 ? (MG_SIGNED ? 0.0f : 128.0f) : 8.0f, flipped = bits == 8 && MG_SIGNED ? 128.0f : 0.0f;
MG_UNROLL
  for (int r = 0; r < mr; r++) y[r] = er_splat_w(0);
  for (int64_t b = 0; b < p->blocks; b++, w += p->block_bytes) {
    mg_acc s[MG_MR];
    const uint8_t *after = w + MG_ROWS * MG_BLOCK * bits / 8;
    er_w d = mg_numbers(after, p->wide);
MG_UNROLL
    for (int o = 0; o < 256; o += 64) __builtin_prefetch(w + 4 * 320 + o);
MG_UNROLL
    for (int r = 0; r < mr; r++) s[r] = mg_zero();
MG_UNROLL
    for (int g = 0; g < bits; g++) { /* 4 or 8 vectors of codes */
      mg_codes v = mg_load(w + 64 * g);
      if (bits == 8) {
        v = mg_flip(v);
MG_UNROLL
        for (int r = 0; r < mr; r++) s[r] = mg_add(s[r], v, mg_word(q + r * p->k + b * 32 + 4 * g));
      } else {
        mg_codes low = mg_low(v), high = mg_high(v);
MG_UNROLL
        for (int r = 0; r < mr; r++) {
          s[r] = mg_add(s[r], low, mg_word(q + r * p->k + b * 32 + 4 * g));
          s[r] = mg_add(s[r], high, mg_word(q + r * p->k + b * 32 + 16 + 4 * g));
        }
      }
      if (halves && g % 4 == 3) {
MG_UNROLL
        for (int r = 0; r < mr; r++) {
          y[r] += mg_sums(s[r]) * (d * scale[r * p->blocks + b]) - d * (zero * sum[2 * (r * p->blocks + b) + g / 4]);
          s[r] = mg_zero();
        }
        d = mg_numbers(after + numbers, p->wide);
      }
    }
    if (halves) continue;
    er_w m = p->minima ? mg_numbers(after + numbers, p->wide) + d * flipped : d * -zero;
MG_UNROLL
    for (int r = 0; r < mr; r++) {
      const float *both = sum + 2 * (r * p->blocks + b);
      y[r] += mg_sums(s[r]) * (d * scale[r * p->blocks + b]) + m * (both[0] + both[1]);
    }
  }
}

/* A tile's columns of the rows from `row` on. */
MG_INLINE void mg_store(const mg_plan *p, int64_t tile, int64_t row, int mr, const er_w *y) {
  const float *bias = p->c->in[2].data;
  int64_t first = tile * MG_ROWS, count = nd_min(MG_ROWS, p->n - first);
  for (int r = 0; r < mr; r++) {
    float t[MG_ROWS], *out = (float *)p->c->out[0].data + (row + r) * p->n + first;
    er_store_w(t, y[r]);
    for (int64_t i = 0; i < count; i++) out[i] = t[i] + (bias ? bias[first + i] : 0);
  }
}

MG_INLINE void mg_tiles(const mg_plan *p, const int bits, const int halves, int64_t from, int64_t to) {
  const uint8_t *weights = p->c->in[1].data;
  for (int64_t tile = from; tile < to; tile++) {
    const uint8_t *w = weights + tile * p->blocks * p->block_bytes;
    er_w y[MG_MR];
    int64_t row = 0;
    for (; row + MG_MR <= p->rows; row += MG_MR) {
      mg_tile(p, MG_MR, bits, halves, w, row, y);
      mg_store(p, tile, row, MG_MR, y);
    }
    for (; row < p->rows; row++) {
      mg_tile(p, 1, bits, halves, w, row, y);
      mg_store(p, tile, row, 1, y);
    }
  }
}

static void mg_task(void *context, int item, int thread) {
  (void)thread;
  const mg_plan *p = context;
  int64_t from, to;
  nd_share((p->n + MG_ROWS - 1) / MG_ROWS, item, p->tasks, &from, &to);
  if (p->bits == 4) mg_tiles(p, 4, 0, from, to);
  else if (p->halves) mg_tiles(p, 8, 1, from, to);
  else mg_tiles(p, 8, 0, from, to);
}

/* 32 values to codes; scale, and scale * sum of the codes of each half [2]. */
static void mg_round(const float *a, int8_t *q, float *scale, float *sum) {
  float most = 0, bad = 0;
  int32_t total[2] = {0};
  for (int i = 0; i < MG_BLOCK; i++) {
    float m = a[i] < 0 ? -a[i] : a[i];
    most = m > most ? m : most;
    bad += a[i] * 0; /* NaN when a value is not finite */
  }
  float factor = most > 0 && bad == 0 ? 127 / most : 0;
  if (!(factor < 3.4e38f)) factor = 0; /* denormals */
  for (int i = 0; i < MG_BLOCK; i++) {
    /* Adding 1.5 * 2^23 rounds to nearest even and leaves the integer in the low bits. */
    int32_t code = er_bits_s(a[i] * factor + 12582912.0f) - 0x4b400000;
    code = bad == 0 ? code : 0;
    q[i] = (int8_t)code;
    total[i / 16] += code;
  }
  *scale = er_from_f16(er_to_f16(most / 127)) + bad;
  for (int h = 0; h < 2; h++) sum[h] = *scale * (float)total[h];
}

static void run_matmul_group(const er_call *c) {
  mg_plan p = {.c = c, .k = c->param[MG_K], .n = c->param[MG_N], .bits = c->param[MG_BITS]};
  p.minima = c->param[MG_MINIMA];
  p.wide = c->param[MG_WIDE];
  p.halves = c->param[MG_HALVES];
  p.blocks = p.k / MG_BLOCK;
  p.rows = er_numel(&c->in[0]) / p.k;
  p.block_bytes = mg_block_bytes(c->param);
  if (p.rows == 0) return;
  int8_t *q = c->scratch;
  float *scale = (float *)(q + p.rows * p.k), *sum = scale + p.rows * p.blocks;
  const float *a = c->in[0].data;
  for (int64_t i = 0; i < p.rows * p.blocks; i++) mg_round(a + i * MG_BLOCK, q + i * MG_BLOCK, scale + i, sum + 2 * i);
  p.q = q;
  p.scale = scale;
  p.sum = sum;
  int64_t tiles = (p.n + MG_ROWS - 1) / MG_ROWS;
  p.tasks = nd_tasks(c, tiles, p.rows * p.k);
  er_parallel(c->pool, mg_task, &p, p.tasks);
}

static void run_rows_group(const er_call *c) {
  int64_t k = c->param[MG_K], n = c->param[MG_N], blocks = k / MG_BLOCK, count = er_numel(&c->in[1]);
  int bits = c->param[MG_BITS], minima = c->param[MG_MINIMA], wide = c->param[MG_WIDE], halves = c->param[MG_HALVES];
  int64_t bytes = mg_block_bytes(c->param);
  for (int64_t i = 0; i < count; i++) {
    int64_t row = nd_index(c, &c->in[1], i, n), lane = row % MG_ROWS;
    const uint8_t *w = (const uint8_t *)c->in[0].data + row / MG_ROWS * blocks * bytes;
    float *y = (float *)c->out[0].data + i * k;
    for (int64_t b = 0; b < blocks; b++, w += bytes, y += MG_BLOCK) {
      float first[MG_ROWS], second[MG_ROWS]; /* scales; scales or minima */
      const uint8_t *numbers = w + MG_ROWS * MG_BLOCK * bits / 8;
      er_store_w(first, mg_numbers(numbers, wide));
      if (minima || halves) er_store_w(second, mg_numbers(numbers + (wide ? 64 : 32), wide));
      for (int j = 0; j < MG_BLOCK; j++) {
        float scale = halves && j >= 16 ? second[lane] : first[lane];
        float add = minima ? second[lane] : scale * -(float)(1 << (bits - 1));
        int upper = bits == 4 && j >= 16, g = bits == 4 ? j % 16 / 4 : j / 4;
        int code = w[64 * g + 4 * lane + j % 4];
        y[j] = scale * (float)(bits == 8 ? code : upper ? code >> 4 : code & 15) + add;
      }
    }
  }
}
