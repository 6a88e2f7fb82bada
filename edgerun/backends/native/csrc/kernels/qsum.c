/* quantised_sum: a and, where given, b of the shape of y, each f32 or 8-bit codes -> y, 8-bit codes:
 *   y = round(clamp(real(a) + real(b), p0, p1) / scale) + zero, saturated; real(codes) = (codes - zero) * scale.
 * In f32, in this order, as the elementwise program does it; NaN becomes the code 0. Parameters: floats a_zero, a_scale,
 * b_zero, b_scale, y_scale, p0, p1; y_zero. */
#include "nd.h"
#include "../simd.h"

enum { QS_A_ZERO, QS_A_SCALE, QS_B_ZERO, QS_B_SCALE, QS_Y_SCALE, QS_LOW, QS_HIGH, QS_Y_ZERO, QS_PARAMS };

#ifdef ER_BASELINE_CHECKS
static int check_quantised_sum(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 2 && c->n_out == 1 && c->n_param == QS_PARAMS, "quantised_sum: bad call");
  const er_view *y = &c->out[0];
  ER_REQUIRE(c, (y->dtype == ER_I8 || y->dtype == ER_U8) && er_is_dense(y), "quantised_sum gives codes");
  for (int i = 0; i < 2; i++) {
    const er_view *x = &c->in[i];
    if (i && !x->data) continue;
    ER_REQUIRE(c, x->dtype == ER_I8 || x->dtype == ER_U8 || x->dtype == ER_F32, "quantised_sum: bad dtype");
    ER_REQUIRE(c, nd_same_shape(x, y) && er_is_dense(x), "quantised_sum takes dense tensors of one shape");
  }
  int least = y->dtype == ER_I8 ? -128 : 0, zero = c->param[QS_Y_ZERO];
  ER_REQUIRE(c, zero >= least && zero <= least + 255, "quantised_sum: bad zero point");
  return 0;
}
#endif

/* The numbers that n <= CODES elements from `at` on stand for; the rest of the lanes hold anything. */
ER_INLINE void qs_real(vf *v, const er_view *x, int64_t at, int64_t n, vf zero, vf scale) {
  if (x->dtype == ER_F32) {
    const float *p = (const float *)x->data + at;
    float rest[CODES];
    if (n < CODES) {
      memset(rest, 0, sizeof rest);
      memcpy(rest, p, (size_t)n * 4);
      p = rest;
    }
#pragma GCC unroll 4
    for (int i = 0; i < CODES / VL; i++) v[i] = vload(p + i * VL);
    return;
  }
  const uint8_t *p = (const uint8_t *)x->data + at;
  uint8_t rest[CODES];
  if (n < CODES) {
    memset(rest, 0, sizeof rest);
    memcpy(rest, p, (size_t)n);
    p = rest;
  }
  vi codes[CODES / VL];
  if (x->dtype == ER_I8) vload_codes(codes, p, 1);
  else vload_codes(codes, p, 0);
#pragma GCC unroll 4
  for (int i = 0; i < CODES / VL; i++) v[i] = (__builtin_convertvector(codes[i], vf) - zero) * scale;
}

typedef struct { const er_call *c; int64_t total; int tasks; } qs_job;

static void qs_task(void *context, int item, int thread) {
  (void)thread;
  const qs_job *j = context;
  const er_call *c = j->c;
  const er_view *a = &c->in[0], *b = c->in[1].data ? &c->in[1] : NULL, *y = &c->out[0];
  int64_t from, to;
  nd_share(j->total, item, j->tasks, &from, &to);
  const int y_zero = c->param[QS_Y_ZERO], least = y->dtype == ER_I8 ? -128 : 0;
  const vf a_zero = vsplat(er_param_f32(c, QS_A_ZERO)), a_scale = vsplat(er_param_f32(c, QS_A_SCALE));
  const vf b_zero = vsplat(er_param_f32(c, QS_B_ZERO)), b_scale = vsplat(er_param_f32(c, QS_B_SCALE));
  const vf scale = vsplat(er_param_f32(c, QS_Y_SCALE)), p0 = vsplat(er_param_f32(c, QS_LOW)), p1 = vsplat(er_param_f32(c, QS_HIGH));
  const vf low = vsplat((float)(least - y_zero)), high = vsplat((float)(least + 255 - y_zero)), none = vsplat((float)-y_zero);
  const vi zero = visplat(y_zero);
  for (int64_t at = from; at < to; at += CODES) {
    int64_t n = nd_min(CODES, to - at);
    vf v[CODES / VL], w[CODES / VL];
    vi codes[CODES / VL];
    qs_real(v, a, at, n, a_zero, a_scale);
    if (b) qs_real(w, b, at, n, b_zero, b_scale);
#pragma GCC unroll 4
    for (int i = 0; i < CODES / VL; i++) {
      vf q = b ? v[i] + w[i] : v[i];
      q = vat_most(vat_least(q, p0), p1) / scale;
      vi number = (vi)(q == q);
      q = vat_most(vat_least(q, low), high);
      q = (vf)((number & (vi)q) | (~number & (vi)none));
      codes[i] = vround(q) + zero;
    }
    uint8_t *out = (uint8_t *)y->data + at;
    if (n == CODES) vstore_codes(out, codes); else vstore_codes_part(out, codes, n);
  }
}

static void run_quantised_sum(const er_call *c) {
  qs_job j = {c, er_numel(&c->out[0]), 1};
  if (j.total == 0) return;
  j.tasks = nd_tasks(c, (j.total + 255) / 256, 64);
  er_parallel(c->pool, qs_task, &j, j.tasks);
}
