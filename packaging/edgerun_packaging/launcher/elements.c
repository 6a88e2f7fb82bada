/* Numbers of any dtype: read as double, written from text, printed as JSON. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "launcher.h"

int dtype_size(int dtype) {
  static const uint8_t size[] = {0, 4, 8, 2, 2, 1, 2, 4, 8, 1, 2, 4, 8, 1};
  if (dtype >= ER_F8E4M3FN && dtype <= ER_F6E3M2) return 1;
  return dtype > 0 && dtype <= ER_BOOL ? size[dtype] : 0;
}

uint64_t element_count(const er_io_info *info) {
  uint64_t n = 1;
  for (int i = 0; i < info->rank; i++) n *= (uint64_t)info->dim[i];
  return n;
}

static double half(uint16_t h) {
  int exponent = h >> 10 & 31, fraction = h & 1023;
  double sign = h & 0x8000 ? -1 : 1;
  if (exponent == 31) return fraction ? (double)NAN : sign * (double)INFINITY;
  return exponent ? sign * ldexp(1024 + fraction, exponent - 25) : sign * ldexp(fraction, -24);
}

double element(const void *data, int dtype, uint64_t i) {
  union {
    uint32_t u;
    float f;
  } word;
  switch (dtype) {
    case ER_F32: return ((const float *)data)[i];
    case ER_F64: return ((const double *)data)[i];
    case ER_F16: return half(((const uint16_t *)data)[i]);
    case ER_BF16: word.u = (uint32_t)((const uint16_t *)data)[i] << 16; return word.f;
    case ER_I8: return ((const int8_t *)data)[i];
    case ER_I16: return ((const int16_t *)data)[i];
    case ER_I32: return ((const int32_t *)data)[i];
    case ER_I64: return (double)((const int64_t *)data)[i];
    case ER_U16: return ((const uint16_t *)data)[i];
    case ER_U32: return ((const uint32_t *)data)[i];
    case ER_U64: return (double)((const uint64_t *)data)[i];
    default: return ((const uint8_t *)data)[i];
  }
}

void out_element(const void *data, int dtype, uint64_t i) {
  if (dtype == ER_I64) out("%lld", (long long)((const int64_t *)data)[i]);
  else if (dtype == ER_U64) out("%llu", (unsigned long long)((const uint64_t *)data)[i]);
  else if (dtype == ER_BOOL) out(((const uint8_t *)data)[i] ? "true" : "false");
  else out_json_number(element(data, dtype, i));
}

void out_array_json(const er_io_info *info, const void *data) {
  uint64_t n = element_count(info);
  out("{\"name\": ");
  out_json_text(info->name, strlen(info->name));
  out(", \"dtype\": \"%s\", \"shape\": [", dtype_name(info->dtype));
  for (int k = 0; k < info->rank; k++) out("%s%lld", k ? ", " : "", (long long)info->dim[k]);
  out("]");
  if (data) {
    out(", \"values\": [");
    for (uint64_t i = 0; i < n; i++) {
      if (i) out(", ");
      out_element(data, info->dtype, i);
    }
    out("]");
  }
  out("}");
}

/* To the nearest half, ties to even. */
static uint16_t to_half(double x) {
  uint16_t sign = signbit(x) ? 0x8000 : 0;
  double a = fabs(x);
  int exponent;
  if (isnan(x)) return 0x7e00;
  if (a >= 65520) return sign | 0x7c00;
  if (a < 0x1p-14) return sign | (uint16_t)rint(a * 0x1p24); /* subnormal; 1024 is the smallest normal number */
  double fraction = frexp(a, &exponent); /* in [0.5, 1) */
  return sign | (uint16_t)(((exponent + 13) << 10) + (int)rint((fraction * 2 - 1) * 1024));
}

/* To the nearest bfloat16, ties to even. */
static uint16_t to_bfloat(double x) {
  union {
    float f;
    uint32_t u;
  } word = {(float)x};
  if (isnan(x)) return 0x7fc0;
  return (uint16_t)((word.u + 0x7fff + (word.u >> 16 & 1)) >> 16);
}

static int is_integer_dtype(int dtype) { return dtype >= ER_I8; }

const char *set_element(void *data, int dtype, uint64_t i, const char *number) {
  char *end;
  char *at = (char *)data + i * (uint64_t)dtype_size(dtype);
  if (!is_integer_dtype(dtype)) {
    double x = strtod(number, &end);
    if (end == number || *end) return "is no number";
    switch (dtype) {
      case ER_F32: memcpy(at, &(float){(float)x}, 4); break;
      case ER_F64: memcpy(at, &x, 8); break;
      case ER_F16: memcpy(at, &(uint16_t){to_half(x)}, 2); break;
      default: memcpy(at, &(uint16_t){to_bfloat(x)}, 2);
    }
    return NULL;
  }
  if (dtype == ER_BOOL && (!strcmp(number, "true") || !strcmp(number, "false"))) {
    *at = *number == 't';
    return NULL;
  }
  int size = dtype_size(dtype), is_signed = dtype <= ER_I64;
  errno = 0;
  if (!is_signed && *number == '-') return "is negative";
  uint64_t value = is_signed ? (uint64_t)strtoll(number, &end, 10) : strtoull(number, &end, 10);
  if (end == number || *end) return "is no whole number";
  int64_t high = dtype == ER_BOOL ? 1 : size == 8 ? INT64_MAX : (1ll << (8 * size - is_signed)) - 1;
  int too_large = is_signed ? (int64_t)value > high || (int64_t)value < -high - 1
                            : (size < 8 || dtype == ER_BOOL) && value > (uint64_t)high;
  if (errno || too_large) return "is out of range";
  memcpy(at, &value, (size_t)size); /* little-endian */
  return NULL;
}
