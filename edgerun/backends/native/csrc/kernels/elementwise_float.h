/* Instructions of the float classes. n is a multiple of 16. f32 uses the vectors of vmath.h where a loop would not
 * vectorise by itself; the rarer functions and all of f64 call libm. */
#include <math.h>

static float ew_mod_f32(float a, float b) {
  float r = fmodf(a, b);
  if (r == 0) return copysignf(0, b);
  return (r < 0) != (b < 0) ? r + b : r;
}
static double ew_mod_f64(double a, double b) {
  double r = fmod(a, b);
  if (r == 0) return copysign(0, b);
  return (r < 0) != (b < 0) ? r + b : r;
}

static void ew_trig_f32(float *d, const float *a, int n, int quadrant) {
  for (int i = 0; i < n; i += ER_W) {
    er_w x = er_load_w(a + i);
    if (er_max_lanes_w(er_abs_w(x)) <= VM_TRIG_LIMIT) {
      er_store_w(d + i, er_sine_w(x, quadrant));
    } else {
      for (int k = i; k < i + ER_W; k++) d[k] = quadrant ? cosf(a[k]) : sinf(a[k]);
    }
  }
}

static void ew_run_f32(int op, void *dst, const void *pa, const void *pb, const void *pc, int n) {
  float *d = dst;
  int32_t *flag = dst;
  const float *a = pa, *b = pb, *c = pc;
  const int32_t *condition = pa;
  n &= ~15;
#define EW_V1(expr) for (int i = 0; i < n; i += ER_W) { er_w x = er_load_w(a + i); er_store_w(d + i, expr); } break
#define EW_V2(expr) \
  for (int i = 0; i < n; i += ER_W) { \
    er_w x = er_load_w(a + i), y = er_load_w(b + i); \
    er_store_w(d + i, expr); \
  } \
  break
#define EW_S1(f) for (int i = 0; i < n; i++) d[i] = f(a[i]); break
#define EW_S2(f) for (int i = 0; i < n; i++) d[i] = f(a[i], b[i]); break
#define EW_FLAG1(expr) \
  for (int i = 0; i < n; i += ER_W) { \
    er_w x = er_load_w(a + i); \
    *(er_wi_unaligned *)(flag + i) = (er_wi_unaligned)((er_wi)(expr) & 1); \
  } \
  break
#define EW_FLAG2(expr) \
  for (int i = 0; i < n; i += ER_W) { \
    er_w x = er_load_w(a + i), y = er_load_w(b + i); \
    *(er_wi_unaligned *)(flag + i) = (er_wi_unaligned)((er_wi)(expr) & 1); \
  } \
  break
  switch (op) {
    case EW_move: EW_V1(x);
    case EW_add: EW_V2(x + y);
    case EW_sub: EW_V2(x - y);
    case EW_mul: EW_V2(x * y);
    case EW_div: EW_V2(x / y);
    case EW_mod: EW_S2(ew_mod_f32);
    case EW_fmod: EW_S2(fmodf);
    case EW_pow: EW_S2(powf);
    case EW_min: EW_V2(er_min_w(x, y));
    case EW_max: EW_V2(er_max_w(x, y));
    case EW_neg: EW_V1(-x);
    case EW_abs: EW_V1(er_abs_w(x));
    case EW_sign:
      EW_V1(er_select_w(
          x != x, x, (er_w)(((er_wi)(x > 0.0f) & (er_wi)er_splat_w(1)) | ((er_wi)(x < 0.0f) & (er_wi)er_splat_w(-1)))));
    case EW_reciprocal: EW_V1(1.0f / x);
    case EW_floor: EW_V1(__builtin_elementwise_floor(x));
    case EW_ceil: EW_V1(__builtin_elementwise_ceil(x));
    case EW_round: EW_V1(__builtin_elementwise_rint(x));
    case EW_sqrt: EW_V1(__builtin_elementwise_sqrt(x));
    case EW_exp: EW_V1(er_exp_w(x));
    case EW_log: EW_V1(er_log_w(x));
    case EW_sin: ew_trig_f32(d, a, n, 0); break;
    case EW_cos: ew_trig_f32(d, a, n, 1); break;
    case EW_tan: EW_S1(tanf);
    case EW_asin: EW_S1(asinf);
    case EW_acos: EW_S1(acosf);
    case EW_atan: EW_S1(atanf);
    case EW_sinh: EW_S1(sinhf);
    case EW_cosh: EW_S1(coshf);
    case EW_tanh: EW_V1(er_tanh_w(x));
    case EW_asinh: EW_S1(asinhf);
    case EW_acosh: EW_S1(acoshf);
    case EW_atanh: EW_S1(atanhf);
    case EW_erf: EW_V1(er_erf_w(x));
    case EW_sigmoid: EW_V1(er_sigmoid_w(x));
    case EW_softplus: EW_V1(er_softplus_w(x));
    case EW_gelu: EW_V1(er_gelu_w(x));
    case EW_gelu_tanh: EW_V1(er_gelu_tanh_w(x));
    case EW_eq: EW_FLAG2(x == y);
    case EW_ne: EW_FLAG2(x != y);
    case EW_lt: EW_FLAG2(x < y);
    case EW_le: EW_FLAG2(x <= y);
    case EW_gt: EW_FLAG2(x > y);
    case EW_ge: EW_FLAG2(x >= y);
    case EW_is_nan: EW_FLAG1(x != x);
    case EW_is_inf: EW_FLAG1(er_abs_w(x) == VM_INFINITY);
    case EW_where:
      for (int i = 0; i < n; i += ER_W) {
        er_wi m = (er_wi)((er_wi)*(const er_wi_unaligned *)(condition + i) != 0);
        er_store_w(d + i, er_select_w(m, er_load_w(b + i), er_load_w(c + i)));
      }
      break;
    default: break;
  }
#undef EW_V1
#undef EW_V2
#undef EW_S1
#undef EW_S2
#undef EW_FLAG1
#undef EW_FLAG2
}

static double ew_logistic_f64(double x) {
  if (x >= 0) return 1 / (1 + exp(-x));
  double e = exp(x);
  return x != x ? x : e / (1 + e);
}
static double ew_softplus_f64(double x) { return x != x ? x : (x > 0 ? x : 0) + log1p(exp(-fabs(x))); }
static double ew_gelu_f64(double x) { return x == -INFINITY ? 0 : 0.5 * x * (1 + erf(x * 0.70710678118654752440)); }
static double ew_gelu_tanh_f64(double x) {
  return x == -INFINITY ? 0 : 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}
static double ew_sign_f64(double x) { return x != x ? x : (double)((x > 0) - (x < 0)); }

static void ew_run_f64(int op, void *dst, const void *pa, const void *pb, const void *pc, int n) {
  double *d = dst;
  int32_t *flag = dst;
  const double *a = pa, *b = pb, *c = pc;
  const int32_t *condition = pa;
  n &= ~15;
#define EW_LOOP(expr) \
  _Pragma("clang loop unroll(disable) interleave(disable)") for (int i = 0; i < n; i++) d[i] = (expr); \
  break
#define EW_FLAG(expr) \
  _Pragma("clang loop unroll(disable) interleave(disable)") for (int i = 0; i < n; i++) flag[i] = (expr); \
  break
  switch (op) {
    case EW_move: EW_LOOP(a[i]);
    case EW_add: EW_LOOP(a[i] + b[i]);
    case EW_sub: EW_LOOP(a[i] - b[i]);
    case EW_mul: EW_LOOP(a[i] * b[i]);
    case EW_div: EW_LOOP(a[i] / b[i]);
    case EW_mod: EW_LOOP(ew_mod_f64(a[i], b[i]));
    case EW_fmod: EW_LOOP(fmod(a[i], b[i]));
    case EW_pow: EW_LOOP(pow(a[i], b[i]));
    case EW_min: EW_LOOP(a[i] < b[i] || a[i] != a[i] ? a[i] : b[i]);
    case EW_max: EW_LOOP(a[i] > b[i] || a[i] != a[i] ? a[i] : b[i]);
    case EW_neg: EW_LOOP(-a[i]);
    case EW_abs: EW_LOOP(__builtin_fabs(a[i]));
    case EW_sign: EW_LOOP(ew_sign_f64(a[i]));
    case EW_reciprocal: EW_LOOP(1 / a[i]);
    case EW_floor: EW_LOOP(floor(a[i]));
    case EW_ceil: EW_LOOP(ceil(a[i]));
    case EW_round: EW_LOOP(rint(a[i]));
    case EW_sqrt: EW_LOOP(sqrt(a[i]));
    case EW_exp: EW_LOOP(exp(a[i]));
    case EW_log: EW_LOOP(log(a[i]));
    case EW_sin: EW_LOOP(sin(a[i]));
    case EW_cos: EW_LOOP(cos(a[i]));
    case EW_tan: EW_LOOP(tan(a[i]));
    case EW_asin: EW_LOOP(asin(a[i]));
    case EW_acos: EW_LOOP(acos(a[i]));
    case EW_atan: EW_LOOP(atan(a[i]));
    case EW_sinh: EW_LOOP(sinh(a[i]));
    case EW_cosh: EW_LOOP(cosh(a[i]));
    case EW_tanh: EW_LOOP(tanh(a[i]));
    case EW_asinh: EW_LOOP(asinh(a[i]));
    case EW_acosh: EW_LOOP(acosh(a[i]));
    case EW_atanh: EW_LOOP(atanh(a[i]));
    case EW_erf: EW_LOOP(erf(a[i]));
    case EW_sigmoid: EW_LOOP(ew_logistic_f64(a[i]));
    case EW_softplus: EW_LOOP(ew_softplus_f64(a[i]));
    case EW_gelu: EW_LOOP(ew_gelu_f64(a[i]));
    case EW_gelu_tanh: EW_LOOP(ew_gelu_tanh_f64(a[i]));
    case EW_eq: EW_FLAG(a[i] == b[i]);
    case EW_ne: EW_FLAG(a[i] != b[i]);
    case EW_lt: EW_FLAG(a[i] < b[i]);
    case EW_le: EW_FLAG(a[i] <= b[i]);
    case EW_gt: EW_FLAG(a[i] > b[i]);
    case EW_ge: EW_FLAG(a[i] >= b[i]);
    case EW_is_nan: EW_FLAG(a[i] != a[i]);
    case EW_is_inf: EW_FLAG(__builtin_fabs(a[i]) == __builtin_inf());
    case EW_where: EW_LOOP(condition[i] ? b[i] : c[i]);
    default: break;
  }
#undef EW_LOOP
#undef EW_FLAG
}
