/* Integer depthwise convolution, channels last (C = groups = O): inputs as qconv, but w is i16 [pairs][C][2], its zero
 * point subtracted: the taps at rows (2i, 2i + 1) of the kernel and column k, the pair i * kernel width + k, with 0 below
 * the last row of an odd kernel. Column sums: of w, [C]. In up to two spatial dims; pads begin there.
 * Codes of a border are the zero point of x, so that every output is the sum of all taps less zero * sum(w).
 * Scratch: 8 bytes for each channel, and a row and a pixel of zero points. */
#include "qwindow.h"

#define QD_C 16  /* channels worked on at once */
#define QD_STRIP 4 /* outputs of a row that share taps */
#define QD_TAPS 128 /* pairs of taps at most */

#ifdef ER_BASELINE_CHECKS
static int check_qconv_depthwise(const er_call *c) {
  if (qw_check(c)) return 1;
  qw_window w = qw_of(c);
  ER_REQUIRE(c, c->param[QC_GROUPS] == c->param[QC_O] && w.channels == c->param[QC_O], "qconv_depthwise: bad groups");
  int64_t pairs = (w.d[1].kernel + 1) / 2 * w.d[2].kernel;
  ER_REQUIRE(c, c->param[QC_SPATIAL] <= 2 && pairs <= QD_TAPS, "qconv_depthwise: the window is too large");
  ER_REQUIRE(c, c->in[QM_B].dtype == ER_I16 && er_numel(&c->in[QM_B]) == 2 * pairs * w.channels && c->in[QM_SUMS].data,
             "qconv_depthwise: bad filters");
  ER_REQUIRE(c, (int64_t)c->scratch_bytes >= (9 + w.d[2].size) * w.channels, "qconv_depthwise: too little scratch");
  return qg_check_parameters(c, 1, c->param[QC_O], c->param[QC_O]);
}
#endif

typedef struct {
  const er_call *c;
  qw_window w;
  const uint8_t *image;  /* [size, size, C] */
  const int16_t *filters;
  const float *factor;   /* [C] */
  const int32_t *add;    /* [C] */
  const uint8_t *border; /* [size + 1, C]: zero points of x */
  int32_t y_zero;
  int flip, tasks;       /* flip: signed codes become unsigned, 128 higher */
  int64_t first_row;
} qd_job;

/* Sums of QD_C channels. `pair`: codes of two taps as 16-bit halves of a lane. */
typedef struct { vi v[QD_C / VL]; } qd_acc;

ER_INLINE vi qd_dot(vi acc, vi pair, vi w) {
#if defined(__AVX512VNNI__)
  return (vi)_mm512_dpwssd_epi32((__m512i)acc, (__m512i)pair, (__m512i)w);
#elif VL == 16 && defined(__AVX512BW__)
  return acc + (vi)_mm512_madd_epi16((__m512i)pair, (__m512i)w);
#elif defined(__AVXVNNI__)
  return (vi)_mm256_dpwssd_avx_epi32((__m256i)acc, (__m256i)pair, (__m256i)w);
#elif VL == 8
  return acc + (vi)_mm256_madd_epi16((__m256i)pair, (__m256i)w);
#elif defined(__x86_64__)
  return acc + (vi)_mm_madd_epi16((__m128i)pair, (__m128i)w);
#else
  return acc + (pair & 0xffff) * (w << 16 >> 16) + (vi)((pair >> 16) * (w >> 16));
#endif
}
/* Codes of QD_C channels at two rows of the image, as pairs. */
ER_INLINE void qd_pairs(vi *pair, const uint8_t *top, const uint8_t *low, vi flip) {
  vi t[QD_C / VL], l[QD_C / VL];
  vload_codes(t, top, 0);
  vload_codes(l, low, 0);
#pragma GCC unroll 4
  for (int i = 0; i < QD_C / VL; i++) pair[i] = (t[i] | l[i] << 16) ^ flip;
}
ER_INLINE void qd_single(vi *pair, const uint8_t *top, vi flip) {
  vload_codes(pair, top, 0);
#pragma GCC unroll 4
  for (int i = 0; i < QD_C / VL; i++) pair[i] ^= flip;
}
ER_INLINE vi qd_filter(const int16_t *w, int i) { return viload((const int32_t *)(const void *)w + i * VL); }

/* What turns sums into codes; kept in registers, since stores might change the job's members. */
typedef struct { void *to; int sums; vf low, high; vi zero; } qd_out;
ER_INLINE qd_out qd_output(const qd_job *j) {
  const er_view *y = &j->c->out[0];
  int least = y->dtype == ER_I8 ? -128 : 0;
  return (qd_out){y->data, y->dtype == ER_I32, vsplat((float)(least - j->y_zero)), vsplat((float)(least + 255 - j->y_zero)),
                  visplat(j->y_zero)};
}
/* Sums of QD_C channels to element `at` of the output, the first n of them. */
ER_INLINE void qd_finish(const qd_out *out, const vi *acc, const vf *factor, int64_t at, int64_t n) {
  if (out->sums) {
    memcpy((int32_t *)out->to + at, acc, (size_t)nd_min(n, QD_C) * 4);
    return;
  }
  vi v[QD_C / VL];
#pragma GCC unroll 4
  for (int i = 0; i < QD_C / VL; i++) {
    vf q = __builtin_convertvector(acc[i], vf) * factor[i];
    v[i] = vround(vat_most(vat_least(q, out->low), out->high)) + out->zero;
  }
  uint8_t *to = (uint8_t *)out->to + at;
  if (n >= QD_C) vstore_codes(to, v); else vstore_codes_part(to, v, n);
}

/* `strips` times QD_STRIP outputs of QD_C channels for a 3 x 3 window with stride S whose columns are inside the image:
 * row[k] is at the first column and channel, the output's at element `to`. */
ER_INLINE void qd_strips(const int S, const qd_job *j, const uint8_t *const *row, int64_t strips, int64_t channel, int64_t to) {
  const int64_t pixel = j->w.channels;
  const int16_t *w = j->filters + 2 * channel;
  const uint8_t *r0 = row[0], *r1 = row[1], *r2 = row[2];
  const vi both = visplat(j->flip ? 0x00800080 : 0), one = visplat(j->flip ? 0x80 : 0);
  const qd_out out = qd_output(j);
  vi add[QD_C / VL], f[6][QD_C / VL];
  vf factor[QD_C / VL];
#pragma GCC unroll 4
  for (int i = 0; i < QD_C / VL; i++) {
    add[i] = viload(j->add + channel + i * VL);
    factor[i] = vload(j->factor + channel + i * VL);
  }
#pragma GCC unroll 6
  for (int k = 0; k < 6; k++)
#pragma GCC unroll 4
    for (int i = 0; i < QD_C / VL; i++) f[k][i] = qd_filter(w + 2 * k * pixel, i);
  for (int64_t s = 0; s < strips; s++) {
    vi acc[QD_STRIP][QD_C / VL];
#pragma GCC unroll 4
    for (int o = 0; o < QD_STRIP; o++)
#pragma GCC unroll 4
      for (int i = 0; i < QD_C / VL; i++) acc[o][i] = add[i];
#pragma GCC unroll 9
    for (int x = 0; x < 3 * S + 3; x++) {
      vi pair[QD_C / VL], last[QD_C / VL];
      qd_pairs(pair, r0 + x * pixel, r1 + x * pixel, both);
      qd_single(last, r2 + x * pixel, one);
#pragma GCC unroll 4
      for (int o = 0; o < QD_STRIP; o++) {
        int k = x - o * S;
        if (k < 0 || k > 2) continue;
#pragma GCC unroll 4
        for (int i = 0; i < QD_C / VL; i++)
          acc[o][i] = qd_dot(qd_dot(acc[o][i], pair[i], f[k][i]), last[i], f[3 + k][i]);
      }
    }
#pragma GCC unroll 4
    for (int o = 0; o < QD_STRIP; o++) qd_finish(&out, acc[o], factor, to + o * pixel, QD_C);
    r0 += QD_STRIP * S * pixel;
    r1 += QD_STRIP * S * pixel;
    r2 += QD_STRIP * S * pixel;
    to += QD_STRIP * pixel;
  }
}
typedef void (*qd_fn)(const qd_job *, const uint8_t *const *, int64_t, int64_t, int64_t);
static __attribute__((noinline)) void qd_strips_1(const qd_job *j, const uint8_t *const *row, int64_t strips, int64_t channel,
                                                  int64_t to) {
  qd_strips(1, j, row, strips, channel, to);
}
static __attribute__((noinline)) void qd_strips_2(const qd_job *j, const uint8_t *const *row, int64_t strips, int64_t channel,
                                                  int64_t to) {
  qd_strips(2, j, row, strips, channel, to);
}
/* Outputs [from, to) of a row, at least QD_STRIP of them; the last strip may overlap the one before. y: element of the
 * row's first output. */
static void qd_inside(const qd_job *j, const uint8_t *const *rows, int64_t from, int64_t to, int64_t y) {
  const qw_dim *dx = &j->w.d[2];
  const int64_t channels = j->w.channels;
  const qd_fn run = dx->stride == 1 ? qd_strips_1 : qd_strips_2;
  int64_t whole = (to - from) / QD_STRIP;
  for (int64_t channel = 0; channel < channels; channel += QD_C) {
    int64_t at = nd_min(channel, channels - QD_C);
    for (int64_t ox = from, strips = whole; ox < to; strips = 1) {
      const uint8_t *row[3];
      for (int k = 0; k < 3; k++) row[k] = rows[k] + (ox * dx->stride - dx->before) * channels + at;
      run(j, row, strips, at, y + ox * channels + at);
      ox += strips * QD_STRIP;
      if (ox < to) ox = to - QD_STRIP;
    }
  }
}

/* One output, any window: the pairs of taps are at top[] and low[] (of channel 0). */
static __attribute__((noinline)) void qd_pixel(const qd_job *j, const uint8_t *const *top, const uint8_t *const *low,
                                               int pairs, int64_t to) {
  const int64_t channels = j->w.channels;
  const vi both = visplat(j->flip ? 0x00800080 : 0);
  const qd_out out = qd_output(j);
  for (int64_t channel = 0; channel < channels; channel += QD_C) {
    int64_t n = channels - channel;
    vi acc[QD_C / VL];
    vf factor[QD_C / VL];
    if (n < QD_C && channels >= QD_C) { /* the last ones overlap those before */
      channel = channels - QD_C;
      n = QD_C;
    }
    if (n >= QD_C) {
#pragma GCC unroll 4
      for (int i = 0; i < QD_C / VL; i++) acc[i] = viload(j->add + channel + i * VL);
      for (int p = 0; p < pairs; p++) {
        vi pair[QD_C / VL];
        qd_pairs(pair, top[p] + channel, low[p] + channel, both);
        const int16_t *w = j->filters + 2 * (p * channels + channel);
#pragma GCC unroll 4
        for (int i = 0; i < QD_C / VL; i++) acc[i] = qd_dot(acc[i], pair[i], qd_filter(w, i));
      }
#pragma GCC unroll 4
      for (int i = 0; i < QD_C / VL; i++) factor[i] = vload(j->factor + channel + i * VL);
      qd_finish(&out, acc, factor, to + channel, n);
      continue;
    }
    /* Fewer channels than are worked on at once: copies with room behind them. */
    int32_t first[QD_C] = {0};
    float scale[QD_C] = {0};
    memcpy(first, j->add, (size_t)n * 4);
    memcpy(scale, j->factor, (size_t)n * 4);
    for (int i = 0; i < QD_C / VL; i++) acc[i] = viload(first + i * VL);
    for (int p = 0; p < pairs; p++) {
      uint8_t t[QD_C] = {0}, l[QD_C] = {0};
      int16_t w[2 * QD_C] = {0};
      memcpy(t, top[p], (size_t)n);
      memcpy(l, low[p], (size_t)n);
      memcpy(w, j->filters + 2 * p * channels, (size_t)n * 4);
      vi pair[QD_C / VL];
      qd_pairs(pair, t, l, both);
      for (int i = 0; i < QD_C / VL; i++) acc[i] = qd_dot(acc[i], pair[i], qd_filter(w, i));
    }
    for (int i = 0; i < QD_C / VL; i++) factor[i] = vload(scale + i * VL);
    qd_finish(&out, acc, factor, to, n);
  }
}

static void qd_task(void *context, int item, int thread) {
  (void)thread;
  const qd_job *j = context;
  const qw_dim *dy = &j->w.d[1], *dx = &j->w.d[2];
  const int64_t channels = j->w.channels;
  int64_t from, to;
  nd_share(dy->out, item, j->tasks, &from, &to);
  /* Outputs [inside0, inside1) of a row have all their columns inside the image. */
  int64_t reach = (dx->kernel - 1) * dx->dilation;
  int64_t inside0 = nd_min((dx->before + dx->stride - 1) / dx->stride, dx->out);
  int64_t last = dx->size - 1 - reach + dx->before;
  int64_t inside1 = last < 0 ? 0 : nd_min(last / dx->stride + 1, dx->out);
  int strips = dy->kernel == 3 && dx->kernel == 3 && dx->dilation == 1 && dx->stride <= 2 && channels >= QD_C;
  for (int64_t oy = from; oy < to; oy++) {
    const uint8_t *rows[2 * QD_TAPS];
    for (int64_t k = 0; k < dy->kernel; k++) {
      int64_t iy = oy * dy->stride - dy->before + k * dy->dilation;
      rows[k] = iy >= 0 && iy < dy->size ? j->image + iy * dx->size * channels : j->border;
    }
    int64_t y = (j->first_row + oy) * dx->out * channels;
    for (int64_t ox = 0; ox < dx->out;) {
      int64_t column = ox * dx->stride - dx->before;
      if (strips && ox == inside0 && inside1 - inside0 >= QD_STRIP) {
        qd_inside(j, rows, inside0, inside1, y);
        ox = inside1;
        continue;
      }
      const uint8_t *top[QD_TAPS], *low[QD_TAPS];
      int pairs = 0;
      for (int64_t k = 0; k < dy->kernel; k += 2)
        for (int64_t x = 0; x < dx->kernel; x++, pairs++) {
          int64_t ix = column + x * dx->dilation;
          int inside = ix >= 0 && ix < dx->size;
          top[pairs] = inside ? rows[k] + ix * channels : j->border;
          low[pairs] = inside && k + 1 < dy->kernel ? rows[k + 1] + ix * channels : j->border;
        }
      qd_pixel(j, top, low, pairs, y + ox * channels);
      ox++;
    }
  }
}

static void run_qconv_depthwise(const er_call *c) {
  const er_view *in = c->in, *zero = &in[QM_A_ZERO], *scale = &in[QM_B_SCALE], *bias = &in[QM_BIAS];
  qd_job j;
  j.c = c;
  j.w = qw_of(c);
  int64_t channels = j.w.channels, bytes = j.w.d[1].size * j.w.d[2].size * channels;
  if (qw_pixels(&j.w) * channels == 0) return;
  j.flip = in[QM_A].dtype == ER_I8;
  j.filters = in[QM_B].data;
  int32_t za = (zero->data ? qg_code(zero->dtype, zero->data, 0) : 0) + (j.flip ? 128 : 0);
  float *factor = c->scratch;
  int32_t *add = (int32_t *)(factor + channels);
  uint8_t *border = (uint8_t *)(add + channels);
  float a_scale = in[QM_A_SCALE].data ? *(const float *)in[QM_A_SCALE].data : 1;
  float y_scale = in[QM_Y_SCALE].data ? *(const float *)in[QM_Y_SCALE].data : 1;
  int64_t scales = er_numel(scale);
  for (int64_t k = 0; k < channels; k++) {
    float b = scale->data ? ((const float *)scale->data)[scales > 1 ? k : 0] : 1;
    factor[k] = qg_factor(a_scale * b / y_scale);
    uint32_t first = bias->data ? (uint32_t)((const int32_t *)bias->data)[k] : 0;
    add[k] = (int32_t)(first - (uint32_t)za * (uint32_t)((const int32_t *)in[QM_SUMS].data)[k]);
  }
  memset(border, zero->data ? *(const uint8_t *)zero->data : 0, (size_t)((j.w.d[2].size + 1) * channels));
  j.factor = factor;
  j.add = add;
  j.border = border;
  j.y_zero = in[QM_Y_ZERO].data ? qg_code(in[QM_Y_ZERO].dtype, in[QM_Y_ZERO].data, 0) : 0;
  j.tasks = nd_tasks(c, j.w.d[1].out, j.w.d[2].out * channels);
  for (int64_t n = 0; n < j.w.batch; n++) {
    j.image = (const uint8_t *)in[QM_A].data + n * bytes;
    j.first_row = n * j.w.d[1].out;
    er_parallel(c->pool, qd_task, &j, j.tasks);
  }
}
