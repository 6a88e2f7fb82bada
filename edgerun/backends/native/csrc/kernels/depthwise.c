/* Depthwise convolution, channels last: one filter per channel.
 *
 *   dwconv_f32: inputs and parameters as conv_f32, with group = C = O
 *   weights: [ceil(C / DW_BLOCK)][1 + KH * KW][DW_BLOCK], bias first; the last block is padded with zeros
 *
 * 3x3 and 5x5 filters of stride 1 and 2 run in strips of four outputs; everything else goes tap by tap. */
#include "conv.h"

#if defined(__x86_64__)
#define DW_BLOCK 16
#else
#define DW_BLOCK 4
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
  float p0, p1;
  int64_t rows, channels, channel_blocks; /* an item: `rows` output rows by `channels` channels */
} dw_job;

/* The tail of an output: residual and clamp; other activations follow per row. */
ER_INLINE void dw_store(const dw_job *j, float *to, const float *residual, vf v, int left) {
  int full = left >= VL, simple = j->act <= ER_ACT_CLAMP;
  vf q = v;
  if (residual) q = full ? vload(residual) : vload_part(residual, left);
  if (residual && j->res == ER_RES_BEFORE) v += q;
  if (j->act == ER_ACT_CLAMP) v = vat_most(vat_least(v, vsplat(j->p0)), vsplat(j->p1));
  if (residual && simple && j->res == ER_RES_AFTER) v += q;
  if (full) vstore(to, v); else vstore_part(to, v, left);
}

/* The work of a strip: VL channels (the first `left` where fewer) of neighbouring outputs in one row. */
typedef struct {
  const dw_job *j;
  const float *rows[5];              /* input at column 0 under each kernel row; NULL above and below the image */
  const float *w;                    /* bias, then taps */
  float *to;                         /* output at column 0 */
  const float *residual;             /* likewise, or NULL */
  int left;
} dw_span;

ER_INLINE vf dw_load(const int FULL, const float *p, int left) { return FULL ? vload(p) : vload_part(p, left); }

ER_INLINE void dw_put(const int FULL, const dw_span *s, int64_t ox, vf v) {
  const float *residual = s->residual ? s->residual + ox * s->j->c->in[3].ld : NULL;
  dw_store(s->j, s->to + ox * s->j->y.ld, residual, v, FULL ? VL : s->left);
}

/* `count` times four outputs from column ox on, all taps inside the image. Compile-time K, S and FULL. */
ER_INLINE void dw_strip(const int K, const int S, const int FULL, const dw_span *s, int64_t ox, int64_t count) {
  const int64_t pixel = s->j->x.ld, first = ox * S - s->j->pl;
  const float *w = s->w;
  vf taps[9];
  if (K == 3) {
#pragma GCC unroll 9
    for (int i = 0; i < 9; i++) taps[i] = vload(w + (1 + i) * DW_BLOCK);
  }
  vf bias = vload(w);
  for (int64_t n = 0; n < count; n++) {
    vf acc[4] = {bias, bias, bias, bias};
#pragma GCC unroll 5
    for (int y = 0; y < K; y++) {
      const float *r = s->rows[y] + (first + n * 4 * S) * pixel;
      vf in[11];
#pragma GCC unroll 11
      for (int x = 0; x < 3 * S + K; x++) in[x] = dw_load(FULL, r + x * pixel, s->left);
#pragma GCC unroll 5
      for (int x = 0; x < K; x++) {
        vf t = K == 3 ? taps[y * 3 + x] : vload(w + (1 + y * K + x) * DW_BLOCK);
#pragma GCC unroll 4
        for (int o = 0; o < 4; o++) acc[o] += in[o * S + x] * t;
      }
    }
#pragma GCC unroll 4
    for (int o = 0; o < 4; o++) dw_put(FULL, s, ox + n * 4 + o, acc[o]);
  }
}

/* `count` (at most four) outputs from column ox on, with taps outside the image. */
ER_INLINE void dw_edge(const int K, const int S, const int FULL, const dw_span *s, int64_t ox, int64_t count) {
  const int64_t pixel = s->j->x.ld, first = ox * S - s->j->pl;
  const uint64_t width = (uint64_t)s->j->x.w;
  vf bias = vload(s->w), acc[4] = {bias, bias, bias, bias};
#pragma GCC unroll 5
  for (int y = 0; y < K; y++) {
    const float *r = s->rows[y];
    if (!r) continue;
    vf in[11];
#pragma GCC unroll 11
    for (int x = 0; x < 3 * S + K; x++)
      in[x] = (uint64_t)(first + x) < width ? dw_load(FULL, r + (first + x) * pixel, s->left) : vsplat(0.0f);
#pragma GCC unroll 5
    for (int x = 0; x < K; x++) {
      vf t = vload(s->w + (1 + y * K + x) * DW_BLOCK);
#pragma GCC unroll 4
      for (int o = 0; o < 4; o++) acc[o] += in[o * S + x] * t;
    }
  }
#pragma GCC unroll 4
  for (int o = 0; o < 4; o++)
    if (o < count) dw_put(FULL, s, ox + o, acc[o]);
}

typedef void (*dw_fn)(const dw_span *, int64_t ox, int64_t count);
#define DW_FORM(NAME, K, S, FULL)                                                                              \
  static __attribute__((noinline)) void dw_##NAME##_##K##_##S##_##FULL(const dw_span *s, int64_t ox, int64_t count) { \
    dw_##NAME(K, S, FULL, s, ox, count);                                                                       \
  }
#define DW_FORMS(K, S) DW_FORM(strip, K, S, 0) DW_FORM(strip, K, S, 1) DW_FORM(edge, K, S, 0) DW_FORM(edge, K, S, 1)
DW_FORMS(3, 1) DW_FORMS(3, 2) DW_FORMS(5, 1) DW_FORMS(5, 2)
#define DW_ROW(K, S) {{dw_strip_##K##_##S##_0, dw_edge_##K##_##S##_0}, {dw_strip_##K##_##S##_1, dw_edge_##K##_##S##_1}}
static const dw_fn dw_forms[2][2][2][2] = {{DW_ROW(3, 1), DW_ROW(3, 2)}, {DW_ROW(5, 1), DW_ROW(5, 2)}}; /* [K][S][FULL][edge] */

/* All outputs of a row: strips where every tap is inside, edges around them. */
static void dw_span_run(const dw_span *s, const dw_fn *form) {
  const dw_job *j = s->j;
  int64_t end = j->x.w + j->pl - j->kw; /* the last output whose taps end inside the image is end / stride */
  int inside = end >= 0;
  for (int y = 0; y < j->kh; y++) inside &= s->rows[y] != NULL;
  end = !inside ? 0 : end / j->sw + 1 < j->y.w ? end / j->sw + 1 : j->y.w;
  for (int64_t ox = 0; ox < j->y.w;) {
    int64_t strips = ox * j->sw >= j->pl && end > ox ? (end - ox) / 4 : 0, count = j->y.w - ox < 4 ? j->y.w - ox : 4;
    if (strips) form[0](s, ox, strips);
    else form[1](s, ox, count);
    ox += strips ? strips * 4 : count;
  }
}

/* One output pixel, any kernel, only taps inside the input. w: first weight (bias) of these VL channels. */
static __attribute__((noinline)) void dw_pixel(const dw_job *j, int64_t n, int64_t oy, int64_t ox, int64_t channel,
                                               const float *w, int left) {
  vf acc = vload(w);
  for (int ky = 0; ky < j->kh; ky++) {
    int64_t iy = oy * j->sh - j->pt + (int64_t)ky * j->dh;
    if (iy < 0 || iy >= j->x.h) continue;
    for (int kx = 0; kx < j->kw; kx++) {
      int64_t ix = ox * j->sw - j->pl + (int64_t)kx * j->dw;
      if (ix < 0 || ix >= j->x.w) continue;
      const float *from = j->from + ((n * j->x.h + iy) * j->x.w + ix) * j->x.ld + channel;
      acc += (left >= VL ? vload(from) : vload_part(from, left)) * vload(w + (1 + ky * j->kw + kx) * DW_BLOCK);
    }
  }
  int64_t at = (n * j->y.h + oy) * j->y.w + ox;
  const er_view *r = &j->c->in[3];
  dw_store(j, (float *)j->c->out[0].data + at * j->y.ld + channel, r->data ? (const float *)r->data + at * r->ld + channel : NULL, acc, left);
}

/* Output row oy, channels [c0, c1). */
static void dw_row(const dw_job *j, int64_t n, int64_t oy, int64_t c0, int64_t c1) {
  int formed = j->kh == j->kw && (j->kh == 3 || j->kh == 5) && j->sh == j->sw && j->sh <= 2 && j->dh == 1 && j->dw == 1;
  int64_t iy = oy * j->sh - j->pt, at = (n * j->y.h + oy) * j->y.w, block = (int64_t)(1 + j->kh * j->kw) * DW_BLOCK;
  const er_view *residual = &j->c->in[3];
  for (int64_t ch = c0; ch < c1; ch += VL) {
    dw_span s = {.j = j, .w = j->w + ch / DW_BLOCK * block + ch % DW_BLOCK, .left = (int)(c1 - ch < VL ? c1 - ch : VL)};
    if (!formed) {
      for (int64_t ox = 0; ox < j->y.w; ox++) dw_pixel(j, n, oy, ox, ch, s.w, s.left);
      continue;
    }
    for (int y = 0; y < j->kh; y++)
      s.rows[y] = iy + y < 0 || iy + y >= j->x.h ? NULL : j->from + (n * j->x.h + iy + y) * j->x.w * j->x.ld + ch;
    s.to = (float *)j->c->out[0].data + at * j->y.ld + ch;
    s.residual = residual->data ? (const float *)residual->data + at * residual->ld + ch : NULL;
    dw_span_run(&s, dw_forms[j->kh == 5][j->sh == 2][s.left == VL]);
  }
  if (j->act > ER_ACT_CLAMP)
    for (int64_t ox = 0; ox < j->y.w; ox++) {
      int64_t at = (n * j->y.h + oy) * j->y.w + ox;
      const er_view *r = &j->c->in[3], *s = &j->c->in[4];
      activate_row(j->act, j->p0, j->p1, s->data ? (const float *)s->data + c0 : NULL,
                   r->data && j->res == ER_RES_AFTER ? (const float *)r->data + at * r->ld + c0 : NULL,
                   (float *)j->c->out[0].data + at * j->y.ld + c0, (int)(c1 - c0));
    }
}

static void dw_item(void *ctx, int item, int thread) {
  const dw_job *j = ctx;
  (void)thread;
  int64_t row_blocks = (j->y.h + j->rows - 1) / j->rows;
  int64_t cb = item % j->channel_blocks, rest = item / j->channel_blocks;
  int64_t n = rest / row_blocks, y0 = rest % row_blocks * j->rows, y1 = y0 + j->rows < j->y.h ? y0 + j->rows : j->y.h;
  int64_t c0 = cb * j->channels, c1 = c0 + j->channels < j->x.c ? c0 + j->channels : j->x.c;
  for (int64_t y = y0; y < y1; y++) dw_row(j, n, y, c0, c1);
}

#define DW_CACHE (512 * 1024) /* bytes of input rows that stay near while a block of channels is done */

static void run_dwconv_f32(const er_call *c) {
  const int32_t *p = c->param;
  dw_job j = {.c = c, .x = conv_view(&c->in[0]), .y = conv_view(&c->out[0]), .from = c->in[0].data, .w = c->in[1].data,
              .kh = p[CONV_KH], .kw = p[CONV_KW], .sh = p[CONV_SH], .sw = p[CONV_SW], .pt = p[CONV_PT], .pl = p[CONV_PL],
              .dh = p[CONV_DH], .dw = p[CONV_DW], .act = p[CONV_ACT], .res = p[CONV_RES],
              .p0 = er_param_f32(c, CONV_P0), .p1 = er_param_f32(c, CONV_P1)};
  if (j.y.n * j.y.h * j.y.w * j.y.c == 0) return;
  int64_t blocks = (j.x.c + DW_BLOCK - 1) / DW_BLOCK;
  int64_t per = DW_CACHE / ((j.x.w + 1) * (j.kh + 1) * 4 * DW_BLOCK);
  per = per < 1 ? 1 : per > blocks ? blocks : per;
  j.channel_blocks = (blocks + per - 1) / per;
  j.channels = (blocks + j.channel_blocks - 1) / j.channel_blocks * DW_BLOCK;
  j.channel_blocks = (j.x.c + j.channels - 1) / j.channels;
  j.rows = j.y.h;
  int threads = er_pool_threads(c->pool);
  int64_t work = j.y.n * j.y.h * j.y.w * j.y.c * j.kh * j.kw;
  if (threads > 1 && work >= GEMM_SERIAL) {
    int64_t want = (int64_t)threads * GEMM_SPREAD, have = j.channel_blocks * j.y.n;
    if (have < want) {
      int64_t parts = (want + have - 1) / have;
      j.rows = parts >= j.y.h ? 1 : (j.y.h + parts - 1) / parts;
    }
  }
  er_parallel(c->pool, dw_item, &j, (int)(j.channel_blocks * j.y.n * ((j.y.h + j.rows - 1) / j.rows)));
}
