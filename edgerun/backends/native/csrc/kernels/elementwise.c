/* Elementwise programs over broadcast inputs: a register machine whose registers are tiles of a few hundred elements.
 *
 * Output and inputs are first collapsed to the fewest dims that all of them can be walked by. A tile is a piece of one
 * row (the last collapsed dim) when rows are long, else a number of whole rows. An input enters a tile as a pointer
 * where its elements lie together and need no conversion; scalars and row patterns are spread once per task; the rest
 * is copied in. Parameters: registers, constants, instructions; then per constant (register, class, low word, high
 * word); then per instruction (op | class << 8 | aux << 16, dst | a << 8 | b << 16 | c << 24); aux is the target dtype
 * of casts (+ 32 to round up, + 64 down: f8e8m0) and the bit width of shifts. Registers 0 .. n_in - 1 are the inputs; the last instruction is the output. */
#include "elementwise_ops.h"
#include "half.h"
#include "nd.h"
#include "small_float.h"
#include "elementwise_float.h"

#define EW_MAX_IN 24
#define EW_MAX_REGISTERS 128
#define EW_STACK 32768

#define EW_T int32_t
#define EW_UT uint32_t
#define EW_SIGNED 1
#define EW_RUN ew_run_i32
#include "elementwise_int.h"
#undef EW_T
#undef EW_UT
#undef EW_RUN
#define EW_T int64_t
#define EW_UT uint64_t
#define EW_RUN ew_run_i64
#include "elementwise_int.h"
#undef EW_T
#undef EW_UT
#undef EW_SIGNED
#undef EW_RUN
#define EW_T uint32_t
#define EW_UT uint32_t
#define EW_SIGNED 0
#define EW_RUN ew_run_u32
#include "elementwise_int.h"
#undef EW_T
#undef EW_UT
#undef EW_RUN
#define EW_T uint64_t
#define EW_UT uint64_t
#define EW_RUN ew_run_u64
#include "elementwise_int.h"
#undef EW_T
#undef EW_UT
#undef EW_SIGNED
#undef EW_RUN

static const uint8_t ew_class_size[EW_CLASSES] = {4, 8, 4, 8, 4, 8};

static int ew_class_of(int dtype) {
  switch (dtype) {
    case ER_F32: case ER_F16: case ER_BF16: return EW_F32;
    case ER_F64: return EW_F64;
    case ER_I64: return EW_I64;
    case ER_U32: return EW_U32;
    case ER_U64: return EW_U64;
    case ER_I32: case ER_I8: case ER_U8: case ER_I16: case ER_U16: case ER_BOOL: return EW_I32;
    case ER_I4: case ER_U4: case ER_I2: case ER_U2: return EW_I32;
    default: return er_itemsize(dtype) ? EW_F32 : -1;
  }
}
static int ew_is_direct(int dtype) { return er_itemsize(dtype) >= 4; }

/* The low bits of v as a type of 2 or 4 bits; v itself for wider ones. */
static int64_t ew_low_bits(int64_t v, int dtype) {
  switch (dtype) {
    case ER_U4: return v & 15;
    case ER_I4: return ((v & 15) ^ 8) - 8;
    case ER_U2: return v & 3;
    case ER_I2: return ((v & 3) ^ 2) - 2;
    default: return v;
  }
}

/* Bytes to floats and back, with the values as they are. */
static void ew_widen_small(int dtype, float *f, const uint8_t *src, int64_t n) {
  er_small_float format = er_small_format(dtype);
  if (dtype == ER_F8E8M0) for (int64_t k = 0; k < n; k++) f[k] = er_from_e8m0(src[k]);
  else for (int64_t k = 0; k < n; k++) f[k] = er_from_small(format, src[k]);
}
static void ew_narrow_small(int dtype, uint8_t *dst, const float *f, int64_t n) {
  er_small_float format = er_small_format(dtype);
  if (dtype == ER_F8E8M0) for (int64_t k = 0; k < n; k++) dst[k] = er_to_e8m0(f[k], 0);
  else for (int64_t k = 0; k < n; k++) dst[k] = er_to_small(format, f[k], 0);
}
/* f[0, n) rounded to a small float type; rule: of f8e8m0. */
static void ew_round_small(int dtype, int saturate, int rule, float *f, int n) {
  er_small_float format = er_small_format(dtype);
  for (int i = 0; i < n; i++)
    f[i] = dtype == ER_F8E8M0 ? er_from_e8m0(er_to_e8m0(f[i], rule))
                              : er_from_small(format, er_to_small(format, f[i], saturate));
}

/* n elements of a narrow dtype into a register, and back. */
static void ew_widen(int dtype, void *dst, const void *src, int64_t n) {
  int32_t *i = dst;
  float *f = dst;
  switch (dtype) {
    case ER_I8: for (int64_t k = 0; k < n; k++) i[k] = ((const int8_t *)src)[k]; break;
    case ER_U8: case ER_BOOL: for (int64_t k = 0; k < n; k++) i[k] = ((const uint8_t *)src)[k]; break;
    case ER_I16: for (int64_t k = 0; k < n; k++) i[k] = ((const int16_t *)src)[k]; break;
    case ER_U16: for (int64_t k = 0; k < n; k++) i[k] = ((const uint16_t *)src)[k]; break;
    case ER_F16: for (int64_t k = 0; k < n; k++) f[k] = er_from_f16(((const uint16_t *)src)[k]); break;
    case ER_BF16: for (int64_t k = 0; k < n; k++) f[k] = er_from_bf16(((const uint16_t *)src)[k]); break;
    case ER_I4: case ER_U4: case ER_I2: case ER_U2:
      for (int64_t k = 0; k < n; k++) i[k] = (int32_t)ew_low_bits(((const uint8_t *)src)[k], dtype);
      break;
    default:
      if (!er_is_number(dtype)) ew_widen_small(dtype, f, src, n);
      else memcpy(dst, src, (size_t)(n * er_itemsize(dtype)));
  }
}
static void ew_narrow(int dtype, void *dst, const void *src, int64_t n) {
  const int32_t *i = src;
  const float *f = src;
  switch (dtype) {
    case ER_I8: case ER_U8: case ER_BOOL: for (int64_t k = 0; k < n; k++) ((uint8_t *)dst)[k] = (uint8_t)i[k]; break;
    case ER_I16: case ER_U16: for (int64_t k = 0; k < n; k++) ((uint16_t *)dst)[k] = (uint16_t)i[k]; break;
    case ER_F16: for (int64_t k = 0; k < n; k++) ((uint16_t *)dst)[k] = er_to_f16(f[k]); break;
    case ER_BF16: for (int64_t k = 0; k < n; k++) ((uint16_t *)dst)[k] = er_to_bf16(f[k]); break;
    case ER_I4: case ER_U4: case ER_I2: case ER_U2:
      for (int64_t k = 0; k < n; k++) ((uint8_t *)dst)[k] = (uint8_t)ew_low_bits(i[k], dtype);
      break;
    default:
      if (!er_is_number(dtype)) ew_narrow_small(dtype, dst, f, n);
      else memcpy(dst, src, (size_t)(n * er_itemsize(dtype)));
  }
}
/* The first element of src in n places of a register. */
static void ew_spread(int size, void *dst, const void *src, int64_t n) {
  if (size == 8) {
    uint64_t v;
    memcpy(&v, src, 8);
    for (int64_t k = 0; k < n; k++) ((uint64_t *)dst)[k] = v;
  } else {
    uint32_t v;
    memcpy(&v, src, 4);
    for (int64_t k = 0; k < n; k++) ((uint32_t *)dst)[k] = v;
  }
}

static const double ew_low[] = {
  [ER_I8] = -128, [ER_I16] = -32768, [ER_I32] = -2147483648.0, [ER_I64] = -0x1p63, [ER_U64] = 0};
static const double ew_high[] = {
  [ER_I8] = 127, [ER_U8] = 255, [ER_I16] = 32767, [ER_U16] = 65535, [ER_I32] = 2147483647.0, [ER_U32] = 4294967295.0,
  [ER_I64] = 0x1p63, [ER_U64] = 0x1p64};

/* Float to integer: truncate, saturate, NaN = 0. */
static int64_t ew_saturate(double x, int dtype) {
  if (x != x) return 0;
  if (dtype > ER_BOOL) { /* 2 or 4 bits: what does not fit gives 0 */
    int64_t whole = ew_saturate(x, ER_I64);
    return ew_low_bits(whole, dtype) == whole ? whole : 0;
  }
  if (x <= ew_low[dtype]) return dtype == ER_I64 ? INT64_MIN : (int64_t)ew_low[dtype];
  if (x >= ew_high[dtype]) return dtype == ER_I64 ? INT64_MAX : dtype == ER_U64 ? -1 : (int64_t)ew_high[dtype];
  return dtype == ER_U64 ? (int64_t)(uint64_t)x : (int64_t)x;
}
/* Float to integer modulo 2^64 for magnitudes that i64 or u64 hold; beyond, and for NaN, 0. */
static int64_t ew_wrapped(double x) {
  if (!(x > -0x1p63 && x < 0x1p64)) return x == -0x1p63 ? INT64_MIN : 0;
  return x >= 0x1p63 ? (int64_t)(uint64_t)x : (int64_t)x;
}
/* The integer v as it reads in an integer dtype. */
static int64_t ew_truncate(int64_t v, int dtype) {
  switch (dtype) {
    case ER_BOOL: return v != 0;
    case ER_I8: return (int8_t)v;
    case ER_U8: return (uint8_t)v;
    case ER_I16: return (int16_t)v;
    case ER_U16: return (uint16_t)v;
    case ER_I32: return (int32_t)v;
    case ER_U32: return (uint32_t)v;
    default: return ew_low_bits(v, dtype);
  }
}

static void ew_cast_to_int(int wrap, int from, int dtype, void *dst, const void *src, int n) {
  int wide = ew_class_size[ew_class_of(dtype)] == 8;
  if (from == EW_F32 && !wrap && dtype < ER_BOOL && !wide && ew_high[dtype] <= 65535) {
    float low = (float)ew_low[dtype], high = (float)ew_high[dtype];
    const float *x = src;
    int32_t *y = dst;
    for (int i = 0; i < n; i += ER_W) {
      er_w v = er_load_w(x + i);
      v = er_select_w(v == v, v, er_splat_w(0));
      v = er_select_w(v < low, er_splat_w(low), v);
      v = er_select_w(v > high, er_splat_w(high), v);
      *(er_wi_unaligned *)(y + i) = (er_wi_unaligned)__builtin_convertvector(v, er_wi);
    }
    return;
  }
  if (from == EW_I32 && !wide && dtype <= ER_BOOL) { /* the common wrap after narrow arithmetic */
    const int32_t *x = src;
    int32_t *y = dst;
    switch (dtype) {
      case ER_I8: for (int i = 0; i < n; i++) y[i] = (int8_t)x[i]; return;
      case ER_U8: for (int i = 0; i < n; i++) y[i] = (uint8_t)x[i]; return;
      case ER_I16: for (int i = 0; i < n; i++) y[i] = (int16_t)x[i]; return;
      case ER_U16: for (int i = 0; i < n; i++) y[i] = (uint16_t)x[i]; return;
      case ER_BOOL: for (int i = 0; i < n; i++) y[i] = x[i] != 0; return;
      default: memcpy(dst, src, 4 * (size_t)n); return;
    }
  }
  for (int i = 0; i < n; i++) {
    int64_t v;
    switch (from) {
      case EW_F32: case EW_F64: {
        double x = from == EW_F32 ? ((const float *)src)[i] : ((const double *)src)[i];
        v = dtype == ER_BOOL ? x != 0 : wrap ? ew_truncate(ew_wrapped(x), dtype) : ew_saturate(x, dtype);
        break;
      }
      case EW_I32: v = ew_truncate(((const int32_t *)src)[i], dtype); break;
      case EW_U32: v = ew_truncate(((const uint32_t *)src)[i], dtype); break;
      default: v = ew_truncate(((const int64_t *)src)[i], dtype);
    }
    if (wide) ((int64_t *)dst)[i] = v;
    else ((int32_t *)dst)[i] = (int32_t)v;
  }
}

static void ew_cast(int wrap, int from, int dtype, void *dst, const void *src, int n) {
  float *f = dst;
  double *d = dst;
  n &= ~15;
  if (dtype == ER_F64) {
    switch (from) {
      case EW_F32: for (int i = 0; i < n; i++) d[i] = ((const float *)src)[i]; break;
      case EW_F64: memcpy(dst, src, 8 * (size_t)n); break;
      case EW_I32: for (int i = 0; i < n; i++) d[i] = ((const int32_t *)src)[i]; break;
      case EW_I64: for (int i = 0; i < n; i++) d[i] = (double)((const int64_t *)src)[i]; break;
      case EW_U32: for (int i = 0; i < n; i++) d[i] = ((const uint32_t *)src)[i]; break;
      default: for (int i = 0; i < n; i++) d[i] = (double)((const uint64_t *)src)[i];
    }
    return;
  }
  int rule = dtype >> 5;
  dtype &= 31;
  if (ew_class_of(dtype) != EW_F32) {
    ew_cast_to_int(wrap, from, dtype, dst, src, n);
    return;
  }
  switch (from) {
    case EW_F32: if (dst != src) memcpy(dst, src, 4 * (size_t)n); break;
    case EW_F64: for (int i = 0; i < n; i++) f[i] = (float)((const double *)src)[i]; break;
    case EW_I32: for (int i = 0; i < n; i++) f[i] = (float)((const int32_t *)src)[i]; break;
    case EW_I64: for (int i = 0; i < n; i++) f[i] = (float)((const int64_t *)src)[i]; break;
    case EW_U32: for (int i = 0; i < n; i++) f[i] = (float)((const uint32_t *)src)[i]; break;
    default: for (int i = 0; i < n; i++) f[i] = (float)((const uint64_t *)src)[i];
  }
  if (!er_is_number(dtype)) ew_round_small(dtype, !wrap, rule, f, n);
  if (dtype == ER_F16) for (int i = 0; i < n; i++) f[i] = er_from_f16(er_to_f16(f[i]));
  if (dtype == ER_BF16) for (int i = 0; i < n; i++) f[i] = er_from_bf16(er_to_bf16(f[i]));
}

static int ew_is_flag(int op) { return op >= EW_eq && op <= EW_is_inf; }
/* Class of the result of an instruction. */
static int ew_result_class(int op, int cls, int aux) {
  if (op == EW_cast || op == EW_cast_wrap) return aux >> 5 && ((aux & 31) != ER_F8E8M0 || aux >> 5 > 2) ? -1 : ew_class_of(aux & 31);
  return ew_is_flag(op) ? EW_I32 : cls;
}

static void ew_step(int op, int cls, int aux, void *d, const void *a, const void *b, const void *c, int n) {
  if (op == EW_cast || op == EW_cast_wrap) { ew_cast(op == EW_cast_wrap, cls, aux, d, a, n); return; }
  switch (cls) {
    case EW_F32: ew_run_f32(op, d, a, b, c, n); break;
    case EW_F64: ew_run_f64(op, d, a, b, c, n); break;
    case EW_I32: ew_run_i32(op, aux, d, a, b, c, n); break;
    case EW_I64: ew_run_i64(op, aux, d, a, b, c, n); break;
    case EW_U32: ew_run_u32(op, aux, d, a, b, c, n); break;
    default: ew_run_u64(op, aux, d, a, b, c, n);
  }
}

/* Any n: whole groups of 16 in place, the rest through buffers, because operands may end at the end of a tensor. */
static void ew_instruction(int op, int cls, int aux, char *d, const char *a, const char *b, const char *c, int n) {
  int whole = n & ~15, rest = n - whole;
  if (whole) ew_step(op, cls, aux, d, a, b, c, whole);
  if (!rest) return;
  _Alignas(64) char ta[128], tb[128], tc[128], td[128];
  size_t size = ew_class_size[cls], size_a = op == EW_where ? 4 : size;
  size_t size_d = ew_class_size[ew_result_class(op, cls, aux)];
  memset(ta, 0, sizeof ta);
  memset(tb, 0, sizeof tb);
  memset(tc, 0, sizeof tc);
  memcpy(ta, a + (size_t)whole * size_a, (size_t)rest * size_a);
  if (b) memcpy(tb, b + (size_t)whole * size, (size_t)rest * size);
  if (c) memcpy(tc, c + (size_t)whole * size, (size_t)rest * size);
  ew_step(op, cls, aux, td, ta, tb, tc, 16);
  memcpy(d + (size_t)whole * size_d, td, (size_t)rest * size_d);
}

static const struct { uint8_t operands, floats, integers; } ew_table[EW_COUNT] = {
#define EW_OP(name, operands, ...) {operands, __VA_ARGS__},
  EW_OPS
#undef EW_OP
};

#ifdef ER_BASELINE_CHECKS
static int check_elementwise(const er_call *c) {
  ER_REQUIRE(c, c->n_in <= EW_MAX_IN && c->n_out == 1, "elementwise takes up to %d inputs and gives one output",
             EW_MAX_IN);
  ER_REQUIRE(c, c->n_param >= 3, "elementwise needs a program");
  int64_t registers = c->param[0], constants = c->param[1], count = c->param[2];
  ER_REQUIRE(c,
             registers >= c->n_in && registers <= EW_MAX_REGISTERS && constants >= 0 && constants <= registers &&
                 count >= 1 && count <= 100000 && c->n_param == 3 + 4 * constants + 2 * count,
             "elementwise: bad program size");
  const er_view *out = &c->out[0];
  int8_t classes[EW_MAX_REGISTERS];
  memset(classes, -1, sizeof classes);
  for (int i = 0; i < c->n_in; i++) {
    const er_view *in = &c->in[i];
    classes[i] = (int8_t)ew_class_of(in->dtype);
    ER_REQUIRE(c, classes[i] >= 0, "elementwise: input %d has dtype %d", i, in->dtype);
    ER_REQUIRE(c, in->rank <= out->rank, "elementwise: input %d has a higher rank than the output", i);
    for (int d = 0; d < in->rank; d++) {
      int64_t n = in->dim[d], m = out->dim[out->rank - in->rank + d];
      ER_REQUIRE(c, n == m || n == 1, "elementwise: input %d does not broadcast (%lld to %lld)", i, (long long)n,
                 (long long)m);
    }
  }
  const int32_t *p = c->param + 3;
  uint8_t fixed[EW_MAX_REGISTERS] = {0};
  for (int i = 0; i < constants; i++, p += 4) {
    fixed[p[0] & (EW_MAX_REGISTERS - 1)] = 1;
    ER_REQUIRE(c, p[0] >= c->n_in && p[0] < registers && p[1] >= 0 && p[1] < EW_CLASSES, "elementwise: bad constant");
    classes[p[0]] = (int8_t)p[1];
  }
  for (int i = 0; i < count; i++, p += 2) {
    int op = p[0] & 255, cls = p[0] >> 8 & 255, aux = p[0] >> 16 & 255;
    int operand[3] = {p[1] >> 8 & 255, p[1] >> 16 & 255, (int)((uint32_t)p[1] >> 24)}, dst = p[1] & 255;
    ER_REQUIRE(c, op < EW_COUNT && cls < EW_CLASSES, "elementwise: bad instruction");
    ER_REQUIRE(c, cls <= EW_F64 ? ew_table[op].floats : ew_table[op].integers, "elementwise: op %d has no class %d", op,
               cls);
    ER_REQUIRE(c, dst >= c->n_in && dst < registers && !fixed[dst], "elementwise: bad result register");
    for (int k = 0; k < ew_table[op].operands; k++) {
      int wanted = op == EW_where && k == 0 ? EW_I32 : cls;
      ER_REQUIRE(c, operand[k] < registers && classes[operand[k]] == wanted,
                 "elementwise: bad operand of instruction %d", i);
    }
    int result = ew_result_class(op, cls, aux);
    ER_REQUIRE(c, result >= 0, "elementwise: cast to dtype %d", aux);
    classes[dst] = (int8_t)result;
    if (i == count - 1)
      ER_REQUIRE(c, result == ew_class_of(out->dtype), "elementwise: the result is not the output's dtype");
  }
  return 0;
}
#endif

enum ew_mode { EW_DIRECT, EW_ONCE /* spread or patterned at the start of a task */, EW_COPIED };
typedef struct {
  const er_call *c;
  int rank, tile, tasks, long_rows;
  int64_t dim[ER_MAX_RANK];                      /* collapsed */
  int64_t stride[EW_MAX_IN + 1][ER_MAX_RANK];    /* elements; the output comes last */
  int64_t row, rows, units;                      /* last dim; product of the others; tiles */
  int64_t rows_a_tile, tiles_a_row;
  int mode[EW_MAX_IN + 1];
  int slot_bytes;
} ew_plan;

/* Dims and strides of output and inputs, neighbouring dims joined where every operand allows. */
static void ew_collapse(ew_plan *p) {
  const er_call *c = p->c;
  const er_view *out = &c->out[0];
  int n = c->n_in + 1, rank = out->rank, r = 0;
  int64_t full[EW_MAX_IN + 1][ER_MAX_RANK];
  for (int k = 0; k < n; k++) {
    const er_view *v = k == n - 1 ? out : &c->in[k];
    int64_t s[ER_MAX_RANK];
    nd_strides(v, s);
    for (int d = 0; d < rank; d++) {
      int own = d - (rank - v->rank);
      full[k][d] = own < 0 || v->dim[own] == 1 ? 0 : s[own];
    }
  }
  for (int d = 0; d < rank; d++) {
    if (out->dim[d] == 1) continue;
    int join = r > 0;
    for (int k = 0; k < n && join; k++) join = p->stride[k][r - 1] == full[k][d] * out->dim[d];
    if (join) p->dim[r - 1] *= out->dim[d];
    else p->dim[r++] = out->dim[d];
    for (int k = 0; k < n; k++) p->stride[k][r - 1] = full[k][d];
  }
  /* Rows of one element that lie apart leave a last dim with a step; then each is a row of its own. */
  int apart = r == 0;
  for (int k = 0; k < n && r > 0; k++) apart |= p->stride[k][r - 1] > 1;
  if (apart) {
    p->dim[r] = 1;
    for (int k = 0; k < n; k++) p->stride[k][r] = 0;
    r++;
  }
  p->rank = r;
}

static int ew_is_contiguous(const ew_plan *p, int k) {
  int64_t step = 1;
  for (int d = p->rank - 1; d >= 0; step *= p->dim[d], d--) if (p->stride[k][d] != step && p->dim[d] != 1) return 0;
  return 1;
}
static int ew_outer_is_fixed(const ew_plan *p, int k) {
  for (int d = 0; d < p->rank - 1; d++) if (p->stride[k][d]) return 0;
  return 1;
}

static void ew_task(void *context, int item, int thread) {
  (void)thread;
  const ew_plan *p = context;
  const er_call *c = p->c;
  _Alignas(64) char stack[EW_STACK];
  char *at[EW_MAX_REGISTERS];
  int n_in = c->n_in, registers = c->param[0], constants = c->param[1], count = c->param[2];
  const int32_t *constant = c->param + 3, *code = constant + 4 * constants;
  int last = code[2 * (count - 1) + 1] & 255;
  const er_view *out = &c->out[0];
  size_t out_size = (size_t)er_itemsize(out->dtype);
  int store = !ew_is_direct(out->dtype) || p->mode[n_in] == EW_COPIED;
  int64_t filled = p->tile;
  for (int r = 0; r < registers; r++) at[r] = stack + r * p->slot_bytes;
  for (int i = 0; i < constants; i++)
    ew_spread(ew_class_size[constant[4 * i + 1]], at[constant[4 * i]], &constant[4 * i + 2], filled);

  int64_t from, to, index[ER_MAX_RANK] = {0}, offset[EW_MAX_IN + 1] = {0};
  nd_share(p->units, item, p->tasks, &from, &to);
  if (from >= to) return;
  int64_t row = p->long_rows ? from / p->tiles_a_row : from * p->rows_a_tile;
  int64_t piece = p->long_rows ? from % p->tiles_a_row : 0;
  for (int64_t d = p->rank - 2, rest = row; d >= 0; d--) {
    index[d] = rest % p->dim[d];
    rest /= p->dim[d];
    for (int k = 0; k <= n_in; k++) offset[k] += index[d] * p->stride[k][d];
  }
  for (int k = 0; k < n_in; k++) {
    if (p->mode[k] != EW_ONCE) continue;
    const er_view *v = &c->in[k];
    size_t width = (size_t)ew_class_size[ew_class_of(v->dtype)];
    if (p->stride[k][p->rank - 1] == 0) {
      char first[8];
      ew_widen(v->dtype, first, v->data, 1);
      ew_spread((int)width, at[k], first, filled);
    } else {
      for (int64_t j = 0; j + p->row <= filled; j += p->row)
        ew_widen(v->dtype, at[k] + (size_t)j * width, v->data, p->row);
    }
  }
  for (int64_t unit = from; unit < to; unit++) {
    int64_t first = piece * p->tile;
    int64_t rows = p->long_rows ? 1 : nd_min(p->rows_a_tile, p->rows - row);
    int64_t n = p->long_rows ? nd_min(p->tile, p->row - first) : rows * p->row;
    for (int k = 0; k < n_in; k++) {
      const er_view *v = &c->in[k];
      if (p->mode[k] == EW_ONCE) continue;
      int64_t inner = p->stride[k][p->rank - 1];
      const char *src = (const char *)v->data + (size_t)(offset[k] + inner * first) * (size_t)er_itemsize(v->dtype);
      if (p->mode[k] == EW_DIRECT) {
        if (ew_is_direct(v->dtype)) at[k] = (char *)(uintptr_t)src;
        else ew_widen(v->dtype, at[k], src, n);
      } else if (p->long_rows) {
        char value[8];
        if (piece && unit != from) continue; /* one value a row: already there */
        ew_widen(v->dtype, value, src, 1);
        ew_spread(ew_class_size[ew_class_of(v->dtype)], at[k], value, nd_min(p->tile, p->row));
      }
    }
    int64_t out_at = offset[n_in] + p->stride[n_in][p->rank - 1] * first;
    char *dst = (char *)out->data + (size_t)out_at * out_size;
    if (!p->long_rows) {
      for (int64_t j = 0; j < rows; j++) {
        for (int k = 0; k < n_in; k++) {
          if (p->mode[k] != EW_COPIED) continue;
          const er_view *v = &c->in[k];
          size_t width = (size_t)ew_class_size[ew_class_of(v->dtype)];
          const char *src = (const char *)v->data + (size_t)offset[k] * (size_t)er_itemsize(v->dtype);
          char *to_at = at[k] + (size_t)(j * p->row) * width;
          if (p->stride[k][p->rank - 1]) {
            ew_widen(v->dtype, to_at, src, p->row);
          } else {
            char value[8];
            ew_widen(v->dtype, value, src, 1);
            ew_spread((int)width, to_at, value, p->row);
          }
        }
        for (int d = p->rank - 2; d >= 0; d--) {
          for (int k = 0; k <= n_in; k++) offset[k] += p->stride[k][d];
          if (++index[d] < p->dim[d]) break;
          index[d] = 0;
          for (int k = 0; k <= n_in; k++) offset[k] -= p->stride[k][d] * p->dim[d];
        }
      }
    }
    char *result = store ? stack + last * p->slot_bytes : dst;
    for (int i = 0; i < count; i++) {
      uint32_t word = (uint32_t)code[2 * i], regs = (uint32_t)code[2 * i + 1];
      int op = word & 255, operands = ew_table[op].operands;
      ew_instruction(op, word >> 8 & 255, word >> 16 & 255, i == count - 1 ? result : at[regs & 255],
                     at[regs >> 8 & 255], operands > 1 ? at[regs >> 16 & 255] : NULL,
                     operands > 2 ? at[regs >> 24] : NULL, (int)n);
    }
    if (store && p->mode[n_in] != EW_COPIED) {
      ew_narrow(out->dtype, dst, result, n);
    } else if (store && p->long_rows) {
      ew_narrow(out->dtype, dst, result, n);
    } else if (store) {
      size_t width = (size_t)ew_class_size[ew_class_of(out->dtype)];
      for (int64_t j = 0; j < rows; j++) {
        int64_t rest = row + j, position = 0;
        for (int d = p->rank - 2; d >= 0; d--) {
          position += rest % p->dim[d] * p->stride[n_in][d];
          rest /= p->dim[d];
        }
        ew_narrow(out->dtype, (char *)out->data + (size_t)position * out_size, result + (size_t)(j * p->row) * width,
                  p->row);
      }
    }
    if (p->long_rows) {
      if (++piece == p->tiles_a_row) {
        piece = 0;
        row++;
        for (int d = p->rank - 2; d >= 0; d--) {
          for (int k = 0; k <= n_in; k++) offset[k] += p->stride[k][d];
          if (++index[d] < p->dim[d]) break;
          index[d] = 0;
          for (int k = 0; k <= n_in; k++) offset[k] -= p->stride[k][d] * p->dim[d];
        }
      }
    } else {
      row += rows;
    }
  }
}

static void run_elementwise(const er_call *c) {
  if (er_numel(&c->out[0]) == 0) return;
  ew_plan p;
  memset(&p, 0, sizeof p);
  p.c = c;
  ew_collapse(&p);
  int registers = c->param[0], count = c->param[2], wide = 0;
  for (int i = 0; i < c->n_in; i++) wide |= ew_class_size[ew_class_of(c->in[i].dtype)] == 8;
  const int32_t *code = c->param + 3;
  for (int i = 0; i < c->param[1]; i++, code += 4) wide |= ew_class_size[code[1]] == 8;
  for (int i = 0; i < count; i++) {
    int op = code[2 * i] & 255, cls = code[2 * i] >> 8 & 255, aux = code[2 * i] >> 16 & 255;
    wide |= ew_class_size[ew_result_class(op, cls, aux)] == 8;
  }
  p.slot_bytes = (int)nd_min(EW_STACK / registers / 128 * 128, 4096);
  int capacity = p.slot_bytes / (wide ? 8 : 4);
  p.row = p.dim[p.rank - 1];
  p.rows = 1;
  for (int d = 0; d < p.rank - 1; d++) p.rows *= p.dim[d];
  p.long_rows = p.rank == 1 || p.row * 2 > capacity;
  if (p.long_rows) {
    p.tile = capacity;
    p.tiles_a_row = (p.row + capacity - 1) / capacity;
    p.units = p.rows * p.tiles_a_row;
  } else {
    p.rows_a_tile = capacity / p.row;
    p.tile = (int)(p.rows_a_tile * p.row);
    p.units = (p.rows + p.rows_a_tile - 1) / p.rows_a_tile;
  }
  for (int k = 0; k <= c->n_in; k++) {
    int64_t inner = p.stride[k][p.rank - 1];
    if (p.long_rows) p.mode[k] = inner ? EW_DIRECT : ew_outer_is_fixed(&p, k) ? EW_ONCE : EW_COPIED;
    else p.mode[k] = ew_is_contiguous(&p, k) ? EW_DIRECT : ew_outer_is_fixed(&p, k) ? EW_ONCE : EW_COPIED;
  }
  if (p.long_rows) p.mode[c->n_in] = EW_DIRECT;
  p.tasks = nd_tasks(c, p.units, (int64_t)p.tile * (1 + count));
  er_parallel(c->pool, ew_task, &p, p.tasks);
}
