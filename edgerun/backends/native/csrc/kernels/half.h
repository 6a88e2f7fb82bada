/* Conversions between floats and the 16-bit float formats, round to nearest even. Branch-free: loops over them
 * vectorise. */
#ifndef EDGERUN_HALF_H
#define EDGERUN_HALF_H
#include "vmath.h"

VM_INLINE float er_from_f16(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = (uint32_t)(h & 0x7fff) << 13;
  /* Rebias the exponent by 112 through a multiplication, which also normalises denormals. */
  float y = er_float_s((int32_t)rest) * 0x1p112f;
  uint32_t special = (h & 0x7c00) == 0x7c00 ? 0x7f800000u | rest : (uint32_t)er_bits_s(y);
  return er_float_s((int32_t)(special | sign));
}
VM_INLINE uint16_t er_to_f16(float x) {
  uint32_t bits = (uint32_t)er_bits_s(x), sign = bits >> 16 & 0x8000, a = bits & 0x7fffffff;
  uint32_t odd = a >> 13 & 1;
  uint32_t normal = (a - (112u << 23) + 0xfff + odd) >> 13;
  /* Below 2^-14: adding 0.5 leaves the denormal's integer in the low bits, rounded by the addition itself. */
  uint32_t tiny = (uint32_t)er_bits_s(er_float_s((int32_t)a) + 0.5f) - 0x3f000000;
  uint32_t y = a < 0x38800000 ? tiny : normal;
  y = a >= 0x477ff000 ? 0x7c00 : y;
  y = a > 0x7f800000 ? 0x7e00 : y;
  return (uint16_t)(y | sign);
}
VM_INLINE float er_from_bf16(uint16_t h) { return er_float_s((int32_t)((uint32_t)h << 16)); }
VM_INLINE uint16_t er_to_bf16(float x) {
  uint32_t bits = (uint32_t)er_bits_s(x);
  uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16 | 0x40) : rounded);
}
#endif
