/* Conversions between real and quantised numbers. Rounding is to nearest, halves to even; NaN quantises like 0.
 * A parameter (scale, zero point) is one for the tensor, one per index of an axis, or one per block of an axis: element
 * (o, i, k) of x seen as [outer, n, inner] has parameter (o * m + i / block) * inner' + k'; see quant_geometry. */
#include <math.h>
#include "half.h"
#include "nd.h"

#ifdef ER_BASELINE_CHECKS
static int quant_check(const er_call *c, const er_view *real, const er_view *codes) {
  ER_REQUIRE(c, c->n_in == 3 && c->n_out == 1 && c->n_param == 4, "quantisation: bad call");
  const er_view *x = &c->in[0], *scale = &c->in[1], *zero = &c->in[2];
  ER_REQUIRE(c, nd_same_shape(x, &c->out[0]) && er_is_dense(x) && er_is_dense(&c->out[0]),
             "quantisation: shapes differ");
  ER_REQUIRE(c, real->dtype == ER_F32 && scale->dtype == ER_F32, "quantisation: real numbers are f32");
  int t = codes->dtype;
  ER_REQUIRE(c, t == ER_I8 || t == ER_U8 || t == ER_I16 || t == ER_U16 || t == ER_I32, "quantisation: dtype %d", t);
  ER_REQUIRE(c, !zero->data || (zero->dtype == t && er_numel(zero) == er_numel(scale) && er_is_dense(zero)),
             "quantisation: bad zero point");
  ER_REQUIRE(c, c->param[2] <= c->param[3], "quantisation: bad range");
  int axis = c->param[0], block = c->param[1];
  int64_t n = er_numel(scale);
  ER_REQUIRE(c, er_is_dense(scale), "quantisation: the scale is strided");
  if (n == 1 && scale->rank <= 1 && !block) return 0;
  ER_REQUIRE(c, axis >= 0 && axis < x->rank && block >= 0, "quantisation: there is no axis %d", axis);
  int64_t expected =
      block ? nd_product(x, 0, axis) * ((x->dim[axis] + block - 1) / block) * nd_product(x, axis + 1, x->rank)
            : x->dim[axis];
  ER_REQUIRE(c, n == expected, "quantisation: %lld scales, expected %lld", (long long)n, (long long)expected);
  return 0;
}
static int check_quantize(const er_call *c) { return quant_check(c, &c->in[0], &c->out[0]); }
static int check_dequantize(const er_call *c) { return quant_check(c, &c->out[0], &c->in[0]); }
static int check_requantize_dynamic(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 1 && c->n_out == 1 && nd_same_shape(&c->in[0], &c->out[0]), "requantize_dynamic: bad call");
  ER_REQUIRE(c, c->in[0].dtype == ER_F32 && c->out[0].dtype == ER_F32, "requantize_dynamic takes f32");
  ER_REQUIRE(c, er_is_dense(&c->in[0]) && er_is_dense(&c->out[0]), "requantize_dynamic takes dense tensors");
  return 0;
}
static int check_dynamic_quantize(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 1 && c->n_out == 3 && nd_same_shape(&c->in[0], &c->out[0]), "dynamic_quantize: bad call");
  ER_REQUIRE(c, c->in[0].dtype == ER_F32 && c->out[0].dtype == ER_U8, "dynamic_quantize gives u8 for f32");
  ER_REQUIRE(c,
             c->out[1].dtype == ER_F32 && er_numel(&c->out[1]) == 1 && c->out[2].dtype == ER_U8 &&
                 er_numel(&c->out[2]) == 1,
             "dynamic_quantize: bad scale or zero point");
  ER_REQUIRE(c, er_is_dense(&c->in[0]) && er_is_dense(&c->out[0]), "dynamic_quantize takes dense tensors");
  return 0;
}
#endif

/* Runs of elements: `inner` consecutive ones share a parameter (spread) or have one each, consecutively. */
typedef struct {
  const er_call *c;
  int64_t rows, inner, n, block; /* rows = outer * n */
  int each, tasks;
} quant_plan;

static quant_plan quant_geometry(const er_call *c) {
  const er_view *x = &c->in[0];
  int axis = c->param[0];
  int64_t scales = er_numel(&c->in[1]);
  quant_plan p = {c, 1, er_numel(x), 1, 0, 0, 1};
  if (scales == 1 && c->in[1].rank <= 1 && !c->param[1]) {
    /* One parameter: cut into rows for the threads. */
    p.rows = nd_max(1, p.inner / 8192);
    return p;
  }
  p.n = x->dim[axis];
  p.inner = nd_product(x, axis + 1, x->rank);
  p.rows = nd_product(x, 0, axis) * p.n;
  p.block = c->param[1];
  p.each = p.block > 0;
  if (!p.block && p.inner == 1 && p.n > 1) { /* the axis is the last: rows of n elements with n parameters */
    p.inner = p.n;
    p.rows /= p.n;
    p.n = 1;
    p.each = 1;
  }
  return p;
}
/* First parameter of a row. */
static int64_t quant_parameter(const quant_plan *p, int64_t row) {
  if (p->block) return (row / p->n * ((p->n + p->block - 1) / p->block) + row % p->n / p->block) * p->inner;
  return p->each ? 0 : row % p->n;
}
/* Elements of a row: rows of a tensor with one parameter need not be equal. */
static void quant_row(const quant_plan *p, int64_t row, int64_t *from, int64_t *to) {
  if (p->n == 1 && !p->each) nd_share(p->inner, (int)row, (int)p->rows, from, to);
  else {
    *from = row * p->inner;
    *to = *from + p->inner;
  }
}

static int32_t quant_load(int dtype, const void *data, int64_t at) {
  switch (dtype) {
    case ER_I8: return ((const int8_t *)data)[at];
    case ER_U8: return ((const uint8_t *)data)[at];
    case ER_I16: return ((const int16_t *)data)[at];
    case ER_U16: return ((const uint16_t *)data)[at];
    default: return ((const int32_t *)data)[at];
  }
}

#define QUANT_CHUNK 256

/* Codes of n <= QUANT_CHUNK numbers as i32; scale and zero are one (each = 0) or n. */
static void quant_codes(int32_t *y, const float *x, int64_t n, const float *scale, const int32_t *zero, int each,
                        float low, float high) {
  for (int64_t i = 0; i < n; i += ER_W) {
    int part = (int)nd_min(ER_W, n - i);
    er_w v = part == ER_W ? er_load_w(x + i) : er_load_part_w(x + i, part);
    er_w s = !each ? er_splat_w(scale[0]) : part == ER_W ? er_load_w(scale + i) : er_load_part_w(scale + i, part);
    er_wi z = {0};
    if (!each) z += zero[0];
    else if (part == ER_W) z = (er_wi)*(const er_wi_unaligned *)(zero + i);
    else memcpy(&z, zero + i, (size_t)part * 4);
    v = v / s;
    v = er_select_w(v == v, v, er_splat_w(0));
    v = __builtin_elementwise_rint(v) + __builtin_convertvector(z, er_w);
    v = er_select_w(v < low, er_splat_w(low), v);
    v = er_select_w(v > high, er_splat_w(high), v);
    er_wi code = __builtin_convertvector(v, er_wi);
    if (part == ER_W) *(er_wi_unaligned *)(y + i) = (er_wi_unaligned)code;
    else memcpy(y + i, &code, (size_t)part * 4);
  }
}
static void quant_store(int dtype, void *data, int64_t at, const int32_t *y, int64_t n) {
  switch (er_itemsize(dtype)) {
    case 1: for (int64_t i = 0; i < n; i++) ((uint8_t *)data)[at + i] = (uint8_t)y[i]; break;
    case 2: for (int64_t i = 0; i < n; i++) ((uint16_t *)data)[at + i] = (uint16_t)y[i]; break;
    default: for (int64_t i = 0; i < n; i++) ((int32_t *)data)[at + i] = y[i];
  }
}

/* quantize: x f32, scale f32, zero? -> codes. dequantize: codes, scale, zero? -> f32. Parameters: axis, block, low,
 * high. */
static void quantize_task(void *context, int item, int thread) {
  (void)thread;
  const quant_plan *p = context;
  const er_call *c = p->c;
  int64_t first, last;
  int32_t codes[QUANT_CHUNK], zeros[QUANT_CHUNK];
  float low = (float)c->param[2], high = (float)c->param[3];
  nd_share(p->rows, item, p->tasks, &first, &last);
  for (int64_t row = first; row < last; row++) {
    int64_t from, to, at = quant_parameter(p, row);
    quant_row(p, row, &from, &to);
    for (int64_t i = from; i < to; i += QUANT_CHUNK) {
      int64_t n = nd_min(QUANT_CHUNK, to - i), k = at + (p->each ? i - from : 0), count = p->each ? n : 1;
      for (int64_t j = 0; j < count; j++)
        zeros[j] = c->in[2].data ? quant_load(c->in[2].dtype, c->in[2].data, k + j) : 0;
      quant_codes(codes, (const float *)c->in[0].data + i, n, (const float *)c->in[1].data + k, zeros, p->each, low,
                  high);
      quant_store(c->out[0].dtype, c->out[0].data, i, codes, n);
    }
  }
}

static void dequantize_task(void *context, int item, int thread) {
  (void)thread;
  const quant_plan *p = context;
  const er_call *c = p->c;
  const er_view *x = &c->in[0], *zero = &c->in[2];
  int64_t first, last;
  int32_t codes[QUANT_CHUNK];
  nd_share(p->rows, item, p->tasks, &first, &last);
  for (int64_t row = first; row < last; row++) {
    int64_t from, to, at = quant_parameter(p, row);
    quant_row(p, row, &from, &to);
    for (int64_t i = from; i < to; i += QUANT_CHUNK) {
      int64_t n = nd_min(QUANT_CHUNK, to - i), k = at + (p->each ? i - from : 0);
      float *y = (float *)c->out[0].data + i;
      const float *scale = (const float *)c->in[1].data + k;
      switch (x->dtype) {
        case ER_I8: for (int64_t j = 0; j < n; j++) codes[j] = ((const int8_t *)x->data)[i + j]; break;
        case ER_U8: for (int64_t j = 0; j < n; j++) codes[j] = ((const uint8_t *)x->data)[i + j]; break;
        default: for (int64_t j = 0; j < n; j++) codes[j] = quant_load(x->dtype, x->data, i + j);
      }
      if (p->each) {
        for (int64_t j = 0; j < n; j++) {
          uint32_t z = zero->data ? (uint32_t)quant_load(zero->dtype, zero->data, k + j) : 0;
          y[j] = (float)(int32_t)((uint32_t)codes[j] - z) * scale[j];
        }
      } else {
        uint32_t z = zero->data ? (uint32_t)quant_load(zero->dtype, zero->data, k) : 0;
        for (int64_t j = 0; j < n; j++) y[j] = (float)(int32_t)((uint32_t)codes[j] - z) * scale[0];
      }
    }
  }
}

static void run_quantize(const er_call *c) {
  if (er_numel(&c->in[0]) == 0) return;
  quant_plan p = quant_geometry(c);
  p.tasks = nd_tasks(c, p.rows, 4 * er_numel(&c->in[0]) / p.rows);
  er_parallel(c->pool, quantize_task, &p, p.tasks);
}
static void run_dequantize(const er_call *c) {
  if (er_numel(&c->in[0]) == 0) return;
  quant_plan p = quant_geometry(c);
  p.tasks = nd_tasks(c, p.rows, 2 * er_numel(&c->in[0]) / p.rows);
  er_parallel(c->pool, dequantize_task, &p, p.tasks);
}

/* Scale and zero point of 8 unsigned bits over the range of n numbers, widened to hold 0. */
static void quant_range(const float *x, int64_t n, float *scale, int32_t *zero) {
  er_w low = er_splat_w(0), high = low;
  float l = 0, h = 0;
  int64_t i = 0;
  for (; i + ER_W <= n; i += ER_W) {
    er_w v = er_load_w(x + i);
    low = er_select_w(v < low, v, low);
    high = er_select_w(v > high, v, high);
  }
  for (; i < n; i++) {
    l = x[i] < l ? x[i] : l;
    h = x[i] > h ? x[i] : h;
  }
  float most = er_max_lanes_w(high), least = -er_max_lanes_w(-low);
  l = least < l ? least : l;
  h = most > h ? most : h;
  *scale = l == h ? 1 : (h - l) / 255;
  float z = rintf(-l / *scale);
  *zero = z > 255 ? 255 : z > 0 ? (int32_t)z : 0;
}

/* dynamic_quantize: x -> u8 codes, scale, zero point. */
static void run_dynamic_quantize(const er_call *c) {
  const float *x = c->in[0].data;
  int64_t total = er_numel(&c->in[0]);
  float scale;
  int32_t zero, codes[QUANT_CHUNK];
  quant_range(x, total, &scale, &zero);
  *(float *)c->out[1].data = scale;
  *(uint8_t *)c->out[2].data = (uint8_t)zero;
  for (int64_t i = 0; i < total; i += QUANT_CHUNK) {
    int64_t n = nd_min(QUANT_CHUNK, total - i);
    quant_codes(codes, x + i, n, &scale, &zero, 0, 0, 255);
    quant_store(ER_U8, c->out[0].data, i, codes, n);
  }
}

/* requantize_dynamic: x -> the same through 8-bit codes and back. */
static void run_requantize_dynamic(const er_call *c) {
  const float *x = c->in[0].data;
  float *y = c->out[0].data, scale;
  int64_t total = er_numel(&c->in[0]);
  int32_t zero, codes[QUANT_CHUNK];
  quant_range(x, total, &scale, &zero);
  for (int64_t i = 0; i < total; i += QUANT_CHUNK) {
    int64_t n = nd_min(QUANT_CHUNK, total - i);
    quant_codes(codes, x + i, n, &scale, &zero, 0, 0, 255);
    for (int64_t j = 0; j < n; j++) y[i + j] = (float)(codes[j] - zero) * scale;
  }
}
