/* Random inputs: the same values as edgerun/samples.py draws. */
#include <string.h>
#include "launcher.h"

/* splitmix64 of the element's number: the same values as edgerun/samples.py draws. */
static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/* For multiples of 2^-10 in [-1, 1): those are normal numbers or zero in half precision. */
static uint16_t half_from_float(float f) {
  union {
    float f;
    uint32_t u;
  } v = {f};
  uint32_t sign = v.u >> 16 & 0x8000, exponent = v.u >> 23 & 255;
  return (uint16_t)(f == 0 ? sign : sign | ((exponent - 112) << 10) | (v.u >> 13 & 1023));
}

/* Floats: multiples of 2^-10 in [-1, 1), exact in every float type but bf16 (cut off). Bytes: all values. Wider
 * integers and bools: 0 or 1, so that they are valid as indices and masks. */
void fill_random(void *to, int dtype, uint64_t bytes, uint64_t seed) {
  for (uint64_t i = 0, n; i < bytes; i += n) {
    uint64_t index, r;
    float f;
    union {
      float f;
      uint32_t u;
    } word;
    switch (dtype) {
      case ER_F64:
      case ER_I64:
      case ER_U64: n = 8; break;
      case ER_F32:
      case ER_I32:
      case ER_U32: n = 4; break;
      case ER_I8:
      case ER_U8:
      case ER_BOOL: n = 1; break;
      default: n = dtype > ER_BOOL ? 1 : 2;
    }
    index = i / n;
    r = mix(mix(seed) + index);
    f = (float)((int)(r >> 53) - 1024) / 1024.0f;
    word.f = f;
    void *at = (char *)to + i;
    switch (dtype) {
      case ER_F32: memcpy(at, &f, 4); break;
      case ER_F64: memcpy(at, &(double){f}, 8); break;
      case ER_F16: memcpy(at, &(uint16_t){half_from_float(f)}, 2); break;
      case ER_BF16: memcpy(at, &(uint16_t){(uint16_t)(word.u >> 16)}, 2); break;
      case ER_I8:
      case ER_U8: *(uint8_t *)at = (uint8_t)(r >> 56); break;
      default:
        memset(at, 0, n);
        *(uint8_t *)at = (uint8_t)(r >> 63);
        break; /* little-endian */
    }
  }
}
