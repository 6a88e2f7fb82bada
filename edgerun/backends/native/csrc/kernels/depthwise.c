/* Depthwise convolution, channels last: one filter per channel.
 *
 *   dwconv_f32: inputs and parameters as conv_f32, with group = C = O
 *   weights: [ceil(C / DW_BLOCK)][1 + KH * KW][DW_BLOCK], bias first; the last block is padded with zeros
 *
 * Channels are the innermost loop, so that images are read and written in long runs. 3x3 and 5x5 filters of stride 1 and
 * 2 run in strips of four outputs of a row; all other filters go output by output. Taps outside the image are left out,
 * which needs no padded copy. */
#include "conv.h"

#if defined(__x86_64__)
#define DW_BLOCK 16
#else
#define DW_BLOCK 4
#endif
#define DW_STRIP 4 /* outputs of a strip */
/* The x86-64 baseline is there to run at all: small rather than fast. */
#if defined(__x86_64__) && VL == 4
#define DW_STRIPS 0
#else
#define DW_STRIPS 1
#endif

#ifdef ER_BASELINE_CHECKS
static int check_dwconv_f32(const er_call *c) {
  if (conv_check_geometry(c, 1)) return 1;
  const int32_t *p = c->param;
  int64_t blocks = (conv_view(&c->in[0]).c + DW_BLOCK - 1) / DW_BLOCK;
  ER_REQUIRE(c, er_numel(&c->in[1]) == blocks * DW_BLOCK * (1 + (int64_t)p[CONV_KH] * p[CONV_KW]), "packed weights of the wrong size");
  ER_REQUIRE(c, !c->in[2].data, "the bias of a depthwise convolution is in its weights");
  return 0;
}
#endif

typedef struct {
  const er_call *c;
  conv_image x, y;
  const float *from, *w;
  int kh, kw, sh, sw, pt, pl, dh, dw, act, res;
  float low, high;                   /* of a clamp */
  int64_t parts, channels, channel_blocks; /* an item: one of `parts` parts of the output rows by `channels` channels */
} dw_job;

/* Outputs of one row from column ox on, channels [c0, c1), filter rows [ky0, ky1): those inside the image. */
typedef struct {
  const float *from;                 /* input at the row of tap 0, column 0, channel 0; may point before the image */
  float *to;                         /* output at column 0, channel 0 of this row */
  const float *residual;             /* likewise, or NULL */
  int64_t ox, c0, c1;
  int ky0, ky1;
} dw_span;

ER_INLINE const float *dw_weights(const dw_job *j, int64_t channel) {
  return j->w + channel / DW_BLOCK * DW_BLOCK * (1 + j->kh * j->kw) + channel % DW_BLOCK;
}

/* Residual and activation of an output; activations that are not done in registers follow. */
static __attribute__((noinline)) vf dw_residual(const dw_job *j, const dw_span *s, int64_t ox, int64_t channel, vf v,
                                                int left) {
  const float *from = s->residual + ox * j->c->in[3].ld + channel;
  vf q = left >= VL ? vload(from) : vload_part(from, left);
  if (j->res == ER_RES_BEFORE) v += q;
  v = act_apply(j->act, v, vsplat(j->low), vsplat(j->high));
  return j->res == ER_RES_AFTER && act_in_registers(j->act) ? v + q : v;
}

ER_INLINE void dw_store(float *to, vf v, int left) {
#if ER_MASKS
  vstore_masked(to, v, vmask_first(left));
#else
  if (left >= VL) vstore(to, v); else vstore_part(to, v, left);
#endif
}

/* N vectors of channels of one output (the last `left` channels where N = 1 and left < VL); any filter. */
ER_INLINE void dw_output(const int N, const dw_job *j, const dw_span *s, int64_t channel, int left, int kx0, int kx1) {
  const float *w[4];
  vf acc[4];
#pragma GCC unroll 4
  for (int i = 0; i < N; i++) {
    w[i] = dw_weights(j, channel + i * VL);
    acc[i] = vload(w[i]);
  }
  const float *column = s->from + (s->ox * j->sw - j->pl) * j->x.ld + channel;
  for (int ky = s->ky0; ky < s->ky1; ky++) {
    const float *in = column + (int64_t)ky * j->dh * j->x.w * j->x.ld;
    for (int kx = kx0; kx < kx1; kx++) {
      const float *p = in + (int64_t)kx * j->dw * j->x.ld;
      int64_t tap = (1 + ky * j->kw + kx) * DW_BLOCK;
#pragma GCC unroll 4
      for (int i = 0; i < N; i++) acc[i] += (left >= VL ? vload(p + i * VL) : vload_part(p, left)) * vload(w[i] + tap);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < N; i++) {
    vf v = s->residual ? dw_residual(j, s, s->ox, channel + i * VL, acc[i], left)
                       : act_apply(j->act, acc[i], vsplat(j->low), vsplat(j->high));
    dw_store(s->to + s->ox * j->y.ld + channel + i * VL, v, left);
  }
}

/* One output from channel `from` on; several vectors together hide the latency of additions. */
static __attribute__((noinline)) void dw_pixel(const dw_job *j, const dw_span *s, int64_t from) {
  int64_t first = s->ox * j->sw - j->pl;
  int kx0 = first < 0 ? (int)((-first + j->dw - 1) / j->dw) : 0, kx1 = j->kw;
  if (first + (int64_t)(kx1 - 1) * j->dw >= j->x.w) kx1 = first < j->x.w ? (int)((j->x.w - first + j->dw - 1) / j->dw) : 0;
  int64_t channel = from;
  for (; channel + 4 * VL <= s->c1; channel += 4 * VL) dw_output(4, j, s, channel, VL, kx0, kx1);
  for (; channel + VL <= s->c1; channel += VL) dw_output(1, j, s, channel, VL, kx0, kx1);
  if (channel < s->c1) dw_output(1, j, s, channel, (int)(s->c1 - channel), kx0, kx1);
}

#if DW_STRIPS
/* Channels that a strip takes: with masks all of them, else whole vectors. */
#if ER_MASKS
#define DW_LOAD(p) vload_masked(p, mask)
#else
#define DW_LOAD(p) vload(p)
#endif

/* `count` times four outputs of a row; compile-time K and S. EDGE: fewer than four, or with taps beside the image.
 * Returns the first channel that is not done. */
ER_INLINE int64_t dw_strip(const int K, const int S, const int EDGE, const dw_job *j, const dw_span *s, int64_t count) {
  /* Copies, since stores through vectors may alias anything. */
  const int64_t pixel = j->x.ld, row = j->x.w * pixel, ld = j->y.ld, c0 = s->c0, c1 = s->c1;
  const int64_t block = (1 + K * K) * DW_BLOCK, column = s->ox * S - j->pl, strips = EDGE ? 1 : count;
  const uint64_t width = (uint64_t)j->x.w;
  const int ky0 = s->ky0, ky1 = s->ky1, act = j->act, residual = s->residual != NULL;
  const float *first = s->from + column * pixel + ky0 * row, *weights = j->w;
  float *to = s->to + s->ox * ld;
  const vf low = vsplat(j->low), high = vsplat(j->high);
  int64_t channel = c0;
  for (int64_t n = 0; n < strips; n++, first += DW_STRIP * S * pixel, to += DW_STRIP * ld) {
    for (channel = c0; channel + (ER_MASKS ? 1 : VL) <= c1; channel += VL) {
      const int left = (int)(c1 - channel < VL ? c1 - channel : VL);
#if ER_MASKS
      const vmask mask = vmask_first(left);
#endif
      const float *w = weights + channel / DW_BLOCK * block + channel % DW_BLOCK, *r = first + channel;
      vf bias = vload(w), acc[DW_STRIP] = {bias, bias, bias, bias};
      w += (1 + ky0 * K) * DW_BLOCK;
      for (int ky = ky0; ky < ky1; ky++, r += row, w += K * DW_BLOCK) {
        vf taps[5];
#pragma GCC unroll 5
        for (int x = 0; x < K; x++) taps[x] = vload(w + x * DW_BLOCK);
#pragma GCC unroll 11
        for (int x = 0; x < 3 * S + K; x++) {
          if (EDGE && (uint64_t)(column + x) >= width) continue;
          vf in = DW_LOAD(r + x * pixel);
#pragma GCC unroll 4
          for (int o = 0; o < DW_STRIP; o++)
            if (x - o * S >= 0 && x - o * S < K) acc[o] += in * taps[x - o * S];
        }
      }
#pragma GCC unroll 4
      for (int o = 0; o < DW_STRIP; o++) {
        if (EDGE && o >= count) break;
        vf v = residual ? dw_residual(j, s, s->ox + n * DW_STRIP + o, channel, acc[o], left)
                        : act_apply(act, acc[o], low, high);
        dw_store(to + o * ld + channel, v, left);
      }
    }
  }
  return channel;
}
typedef int64_t (*dw_fn)(const dw_job *, const dw_span *, int64_t);
#define DW_FORM(K, S, EDGE)                                                                             \
  static __attribute__((noinline)) int64_t dw_strip_##K##_##S##_##EDGE(const dw_job *j, const dw_span *s, \
                                                                       int64_t count) {                 \
    return dw_strip(K, S, EDGE, j, s, count);                                                           \
  }
DW_FORM(3, 1, 0) DW_FORM(3, 1, 1) DW_FORM(3, 2, 0) DW_FORM(3, 2, 1)
DW_FORM(5, 1, 0) DW_FORM(5, 1, 1) DW_FORM(5, 2, 0) DW_FORM(5, 2, 1)
#define DW_PAIR(K, S) {dw_strip_##K##_##S##_0, dw_strip_##K##_##S##_1}
static const dw_fn dw_forms[2][2][2] = {{DW_PAIR(3, 1), DW_PAIR(3, 2)}, {DW_PAIR(5, 1), DW_PAIR(5, 2)}}; /* [K][S][EDGE] */
#endif

/* The activations that are not done in registers, on `count` outputs that were just stored. */
static void dw_activate(const dw_job *j, const dw_span *s, int64_t count) {
  const er_view *residual = &j->c->in[3], *slope = &j->c->in[4];
  activate_tile(j->act, er_param_f32(j->c, CONV_P0), er_param_f32(j->c, CONV_P1),
                slope->data ? (const float *)slope->data + s->c0 : NULL,
                s->residual && j->res == ER_RES_AFTER ? s->residual + s->ox * residual->ld + s->c0 : NULL, residual->ld,
                s->to + s->ox * j->y.ld + s->c0, j->y.ld, (int)count, (int)(s->c1 - s->c0));
}

#define DW_NEAR (16 * 1024)   /* bytes that stay in the first-level cache: of weights, or of outputs to be activated */

/* Output row oy, channels [c0, c1). */
static void dw_row(const dw_job *j, int64_t n, int64_t oy, int64_t c0, int64_t c1) {
  int64_t iy = oy * j->sh - j->pt, at = (n * j->y.h + oy) * j->y.w;
  const er_view *residual = &j->c->in[3];
  dw_span s = {.from = j->from + (n * j->x.h + iy) * j->x.w * j->x.ld, .to = (float *)j->c->out[0].data + at * j->y.ld,
               .residual = residual->data ? (const float *)residual->data + at * residual->ld : NULL, .c0 = c0, .c1 = c1};
  s.ky0 = iy < 0 ? (int)((-iy + j->dh - 1) / j->dh) : 0;
  s.ky1 = j->kh;
  if (iy + (int64_t)(s.ky1 - 1) * j->dh >= j->x.h) s.ky1 = iy < j->x.h ? (int)((j->x.h - iy + j->dh - 1) / j->dh) : 0;
#if DW_STRIPS
  int formed = j->kh == j->kw && (j->kh == 3 || j->kh == 5) && j->sh == j->sw && j->sh <= 2 && j->dh == 1 && j->dw == 1;
  int64_t end = j->x.w + j->pl - j->kw; /* the last output whose taps end inside the row is end / stride */
  int64_t near = 1 + DW_NEAR / (DW_STRIP * 4 * (c1 - c0)); /* strips that an activation finds in the first-level cache */
  end = end < 0 ? 0 : end / j->sw + 1 < j->y.w ? end / j->sw + 1 : j->y.w;
#endif
  while (s.ox < j->y.w) {
    int64_t count = 1;
#if DW_STRIPS
    if (formed) {
      int64_t strips = s.ox * j->sw >= j->pl && end > s.ox ? (end - s.ox) / DW_STRIP : 0, left = j->y.w - s.ox;
      if (!act_in_registers(j->act) && strips > near) strips = near;
      count = strips ? strips * DW_STRIP : left < DW_STRIP ? left : DW_STRIP;
      int64_t rest = dw_forms[j->kh == 5][j->sh == 2][!strips](j, &s, strips ? strips : count);
      dw_span part = s;
      for (int64_t o = 0; rest < c1 && o < count; o++, part.ox++) dw_pixel(j, &part, rest);
    } else
#endif
      dw_pixel(j, &s, c0);
    if (!act_in_registers(j->act)) dw_activate(j, &s, count);
    s.ox += count;
  }
}

static void dw_item(void *ctx, int item, int thread) {
  const dw_job *j = ctx;
  (void)thread;
  int64_t cb = item % j->channel_blocks, rest = item / j->channel_blocks, n = rest / j->parts, part = rest % j->parts;
  int64_t y0 = j->y.h * part / j->parts, y1 = j->y.h * (part + 1) / j->parts;
  int64_t c0 = cb * j->channels, c1 = c0 + j->channels < j->x.c ? c0 + j->channels : j->x.c;
  for (int64_t y = y0; y < y1; y++) dw_row(j, n, y, c0, c1);
}

#define DW_CACHE (512 * 1024) /* bytes of input rows that stay near while a block of channels is done */

static void run_dwconv_f32(const er_call *c) {
  const int32_t *p = c->param;
  dw_job j = {.c = c, .x = conv_view(&c->in[0]), .y = conv_view(&c->out[0]), .from = c->in[0].data, .w = c->in[1].data,
              .kh = p[CONV_KH], .kw = p[CONV_KW], .sh = p[CONV_SH], .sw = p[CONV_SW], .pt = p[CONV_PT], .pl = p[CONV_PL],
              .dh = p[CONV_DH], .dw = p[CONV_DW], .act = p[CONV_ACT], .res = p[CONV_RES]};
  j.low = er_param_f32(c, CONV_P0);
  j.high = er_param_f32(c, CONV_P1);
  if (j.y.n * j.y.h * j.y.w * j.y.c == 0) return;
  int64_t blocks = (j.x.c + DW_BLOCK - 1) / DW_BLOCK;
  int64_t per = DW_CACHE / ((j.x.w + 1) * (j.kh + 1) * 4 * DW_BLOCK);
  int64_t near = DW_NEAR / ((1 + j.kh * j.kw) * 4 * DW_BLOCK);
  per = per > near ? near : per;
  per = per < 1 ? 1 : per > blocks ? blocks : per;
  j.channel_blocks = (blocks + per - 1) / per;
  j.channels = (blocks + j.channel_blocks - 1) / j.channel_blocks * DW_BLOCK;
  j.channel_blocks = (j.x.c + j.channels - 1) / j.channels;
  j.parts = 1;
  int threads = er_pool_threads(c->pool);
  int64_t work = j.y.n * j.y.h * j.y.w * j.y.c * j.kh * j.kw;
  if (threads > 1 && work >= GEMM_SERIAL) { /* by rows, as the products before and after it */
    j.parts = work >= GEMM_SERIAL * threads * GEMM_SPREAD ? threads * GEMM_SPREAD : threads;
    if (j.parts > j.y.h) j.parts = j.y.h;
  }
  er_parallel(c->pool, dw_item, &j, (int)(j.channel_blocks * j.y.n * j.parts));
}
