/* Floats of 8 bits or less, one in a byte. Rounding is to nearest even; f8e8m0 holds a power of two alone. */
#ifndef EDGERUN_SMALL_FLOAT_H
#define EDGERUN_SMALL_FLOAT_H
#include "vmath.h"

/* Codes of magnitudes, without the sign bit `sign`: `most` is the largest number, `over` what larger ones become without
 * saturation, `nan` NaN (0 where there is none). `unsigned_zero`: the code of minus zero is NaN. */
typedef struct { uint8_t mantissa, bias, most, over, nan, sign, unsigned_zero; } er_small_float;

VM_INLINE er_small_float er_small_format(int dtype) {
  switch (dtype) {
    case ER_F8E4M3FN: return (er_small_float){3, 7, 0x7e, 0x7f, 0x7f, 0x80, 0};
    case ER_F8E4M3FNUZ: return (er_small_float){3, 8, 0x7f, 0x80, 0x80, 0x80, 1};
    case ER_F8E5M2: return (er_small_float){2, 15, 0x7b, 0x7c, 0x7e, 0x80, 0};
    case ER_F8E5M2FNUZ: return (er_small_float){2, 16, 0x7f, 0x80, 0x80, 0x80, 1};
    case ER_F4E2M1: return (er_small_float){1, 1, 7, 7, 0, 8, 0};
    case ER_F6E2M3: return (er_small_float){3, 1, 0x1f, 0x1f, 0, 0x20, 0};
    default: return (er_small_float){2, 3, 0x1f, 0x1f, 0, 0x20, 0}; /* F6E3M2 */
  }
}
VM_INLINE int er_is_small_float(int dtype) {
  return (dtype >= ER_F8E4M3FN && dtype <= ER_F8E5M2FNUZ) || dtype == ER_F4E2M1 || dtype >= ER_F6E2M3;
}

VM_INLINE float er_from_small(er_small_float f, uint8_t code) {
  int32_t magnitude = code & (f.sign - 1), sign = code & f.sign ? INT32_MIN : 0;
  int32_t exponent = magnitude >> f.mantissa, rest = magnitude & ((1 << f.mantissa) - 1);
  if (f.unsigned_zero ? code == f.sign : f.nan && magnitude > f.most)
    return er_float_s(sign | (!f.unsigned_zero && f.over != f.nan && magnitude == f.over ? 0x7f800000 : 0x7fc00000));
  float step = er_float_s((128 - f.bias - f.mantissa) << 23); /* between the numbers next to zero */
  float v = exponent ? er_float_s((exponent - f.bias + 127) << 23 | rest << (23 - f.mantissa)) : (float)rest * step;
  return er_float_s(er_bits_s(v) | sign);
}

VM_INLINE uint8_t er_to_small(er_small_float f, float x, int saturate) {
  int32_t bits = er_bits_s(x), a = bits & 0x7fffffff, code;
  if (a > 0x7f800000) return f.nan;
  if (a < (128 - f.bias) << 23) { /* below the normal numbers: whole steps, rounded by the addition */
    float steps = er_float_s(a) * er_float_s((126 + f.bias + f.mantissa) << 23);
    code = er_bits_s(steps + 0x1p23f) - er_bits_s(0x1p23f);
  } else {
    int shift = 23 - f.mantissa;
    int64_t rounded = (int64_t)a + (1 << (shift - 1)) - 1 + (a >> shift & 1);
    code = (int32_t)(rounded >> shift) - ((127 - f.bias) << f.mantissa);
  }
  if (code > f.most) code = saturate ? f.most : f.over;
  if (f.unsigned_zero && (code == 0 || code == f.nan)) return (uint8_t)code;
  return (uint8_t)(code | (bits < 0 ? f.sign : 0));
}

VM_INLINE float er_from_e8m0(uint8_t code) { /* 2^(code - 127) */
  return er_float_s(code == 255 ? 0x7fc00000 : code ? code << 23 : 0x400000);
}
/* rule: 0 nearest, halves up; 1 up; 2 down. The sign is dropped. */
VM_INLINE uint8_t er_to_e8m0(float x, int rule) {
  int32_t a = er_bits_s(x) & 0x7fffffff, code = a >> 23, rest = a & 0x7fffff;
  if (a >= 0x7f800000) return a == 0x7f800000 ? 254 : 255;
  if (!code) rest = a < 0x400000 ? 0 : (a - 0x400000) << 1; /* above 2^-127 */
  code += rule == 0 ? rest >= 0x400000 : rule == 1 && rest > 0;
  return (uint8_t)(code > 254 ? 254 : code);
}
#endif
