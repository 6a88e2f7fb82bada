/* The elementary functions for one type; included by vmath.h with these macros defined:
 *   VM_F, VM_I        a float type (scalar or vector) and the int32 type of the same shape
 *   VM_(name)         the name of an instance
 *   VM_BITS(x)        float bits as VM_I;  VM_FLOAT(i) the inverse
 *   VM_MASK(cond)     a comparison as a mask of all ones or all zeros in each lane
 *   VM_AT_LEAST(x, low), VM_AT_MOST(x, high)   clamps by a constant that pass NaN;  VM_RECIPROCAL(x) for x >= 1
 * Straight-line code without branches, so that the vector instances stay vectors on every ISA. Coefficients are minimax
 * fits on the stated intervals; errors are relative unless said otherwise, measured over the whole range by the tests.
 */

#define VM_SELECT(mask, a, b) VM_FLOAT(((mask) & VM_BITS(a)) | (~(mask) & VM_BITS(b)))

/* Smaller and larger with NaN from either side. */
VM_INLINE VM_F VM_(min)(VM_F a, VM_F b) {
  VM_I take_a = VM_MASK(a < b) | VM_MASK(a != a);
  return VM_SELECT(take_a, a, b);
}
VM_INLINE VM_F VM_(max)(VM_F a, VM_F b) {
  VM_I take_a = VM_MASK(a > b) | VM_MASK(a != a);
  return VM_SELECT(take_a, a, b);
}
VM_INLINE VM_F VM_(abs)(VM_F x) { return VM_FLOAT(VM_BITS(x) & 0x7fffffff); }
/* |magnitude| with the sign of `sign`. */
VM_INLINE VM_F VM_(copysign)(VM_F magnitude, VM_F sign) {
  return VM_FLOAT((VM_BITS(magnitude) & 0x7fffffff) | (VM_BITS(sign) & (int32_t)0x80000000));
}

/* e^x, 1.2e-7: x = k ln 2 + r, |r| <= ln 2 / 2; 2^k in two factors reaches infinity and the denormals. */
VM_INLINE VM_F VM_(exp)(VM_F x) {
  VM_F t = VM_AT_MOST(VM_AT_LEAST(x, -104.0f), 89.0f);
  VM_F shifted = t * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: the integer is in the low bits */
  VM_F k = shifted - 12582912.0f;
  VM_I n = VM_BITS(shifted) - 0x4b400000;
  VM_F r = (t - k * 0.693359375f) + k * 2.12194440e-4f;
  VM_F p = r * 1.9917893e-4f + 1.3946993e-3f;
  p = p * r + 8.3332658e-3f;
  p = p * r + 4.1666258e-2f;
  p = p * r + 0.16666667f;
  p = p * r + 0.5f;
  p = p * (r * r) + r + 1.0f;
  VM_I half = n >> 1;
  return p * VM_FLOAT((half + 127) << 23) * VM_FLOAT((n - half + 127) << 23);
}

/* e^x for softmax and the like, where x <= 0 and not NaN matters only as NaN: results below 2^-126 may be 0. 1.2e-7. */
VM_INLINE VM_F VM_(exp_fast)(VM_F x) {
  VM_F t = VM_AT_MOST(VM_AT_LEAST(x, -87.3f), 88.0f);
  VM_F shifted = t * 1.44269504f + 12582912.0f;
  VM_F k = shifted - 12582912.0f;
  VM_I n = VM_BITS(shifted) - 0x4b400000;
  VM_F r = (t - k * 0.693359375f) + k * 2.12194440e-4f;
  VM_F p = r * 1.9917893e-4f + 1.3946993e-3f;
  p = p * r + 8.3332658e-3f;
  p = p * r + 4.1666258e-2f;
  p = p * r + 0.16666667f;
  p = p * r + 0.5f;
  p = p * (r * r) + r + 1.0f;
  VM_F y = p * VM_FLOAT((n + 127) << 23);
  return VM_SELECT(VM_MASK(x < -87.3f), (VM_F){0}, y);
}

/* Natural logarithm, 1.2e-7: x = 2^e m, m in [sqrt 1/2, sqrt 2). log 0 = -infinity, negative = NaN. */
VM_INLINE VM_F VM_(log)(VM_F x) {
  VM_I tiny = VM_MASK(x < 1.17549435e-38f);
  VM_F scaled = VM_SELECT(tiny, x * 8388608.0f, x);
  VM_I bits = VM_BITS(scaled);
  VM_I above = bits - 0x3f3504f3; /* sqrt 1/2 */
  VM_I e = above >> 23;
  VM_F m = VM_FLOAT(bits - (e << 23));
  e -= tiny & 23;
  VM_F z = m - 1.0f;
  VM_F p = z * 6.9155246e-2f - 0.11788776f;
  p = p * z + 0.11872321f;
  p = p * z - 0.12384499f;
  p = p * z + 0.14218779f;
  p = p * z - 0.16669245f;
  p = p * z + 0.20002219f;
  p = p * z - 0.24999987f;
  p = p * z + 0.33333310f;
  VM_F k = VM_TO_FLOAT(e), zz = z * z;
  VM_F y = p * z * zz - k * 2.12194440e-4f - 0.5f * zz + z + k * 0.693359375f;
  y = VM_SELECT(VM_MASK(x == VM_INFINITY), x, y);
  y = VM_SELECT(VM_MASK(x == 0.0f), (VM_F){0} - VM_INFINITY, y);
  VM_I invalid = ~VM_MASK(x >= 0.0f); /* negative or NaN */
  return VM_SELECT(invalid, (VM_F){0} + __builtin_nanf(""), y);
}

/* log(1 + x) for x >= 0: the correction x / (w - 1) restores what rounding 1 + x lost. */
VM_INLINE VM_F VM_(log1p)(VM_F x) {
  VM_F w = x + 1.0f;
  VM_F d = w - 1.0f;
  VM_F y = VM_(log)(w) * (x / d);
  return VM_SELECT(VM_MASK(d == 0.0f) | VM_MASK(w == VM_INFINITY), x, y);
}

/* 1 / (1 + e^-x), 2e-7. */
VM_INLINE VM_F VM_(sigmoid)(VM_F x) {
  VM_F t = VM_AT_LEAST(x, -88.0f); /* e^88 is the last finite power needed */
  VM_F y = VM_RECIPROCAL(1.0f + VM_(exp_fast)(-t));
  return VM_SELECT(VM_MASK(x != x), x, y);
}

/* Hyperbolic tangent, 2e-7: odd polynomial below 0.625, else 1 - 2 / (e^2|x| + 1). */
VM_INLINE VM_F VM_(tanh)(VM_F x) {
  VM_F a = VM_(abs)(x), u = x * x;
  VM_F p = u * -6.0622268e-3f + 2.0975010e-2f;
  p = p * u - 5.3846695e-2f;
  p = p * u + 0.13332747f;
  p = p * u - 0.33333328f;
  VM_F small = p * u * x + x;
  VM_F capped = VM_AT_MOST(a, 10.0f);
  VM_F large = VM_(copysign)(1.0f - 2.0f * VM_RECIPROCAL(VM_(exp_fast)(capped + capped) + 1.0f), x);
  VM_F y = VM_SELECT(VM_MASK(a < 0.625f), small, large);
  return VM_SELECT(VM_MASK(x != x), x, y);
}

/* Error function, 2e-7: x P(x^2) below 1, else 1 - e^Q(|x|) with Q = log erfc. */
VM_INLINE VM_F VM_(erf)(VM_F x) {
  VM_F a = VM_(abs)(x), u = x * x;
  VM_F p = u * 7.8891157e-5f - 8.0208405e-4f;
  p = p * u + 5.1895352e-3f;
  p = p * u - 2.6854444e-2f;
  p = p * u + 0.11283600f;
  p = p * u - 0.37612626f;
  p = p * u + 1.1283791f;
  VM_F small = p * x;
  VM_F t = VM_AT_MOST(a, 4.0f);
  VM_F q = t * -1.6972090e-7f - 1.9263081e-5f;
  q = q * t + 4.2650747e-4f;
  q = q * t - 4.1537830e-3f;
  q = q * t + 2.5101775e-2f;
  q = q * t - 0.10827851f;
  q = q * t - 0.63333285f;
  q = q * t - 1.1295273f;
  q = q * t + 1.7812525e-4f;
  VM_F large = VM_(copysign)(1.0f - VM_(exp_fast)(q), x);
  VM_F y = VM_SELECT(VM_MASK(a < 1.0f), small, large);
  return VM_SELECT(VM_MASK(x != x), x, y);
}

VM_INLINE VM_F VM_(gelu)(VM_F x) {
  VM_F y = 0.5f * x * (1.0f + VM_(erf)(x * 0.70710678f));
  return VM_SELECT(VM_MASK(x == -VM_INFINITY), (VM_F){0}, y);
}
VM_INLINE VM_F VM_(gelu_tanh)(VM_F x) {
  VM_F y = 0.5f * x * (1.0f + VM_(tanh)(0.79788456f * (x + 0.044715f * x * x * x)));
  return VM_SELECT(VM_MASK(x == -VM_INFINITY), (VM_F){0}, y);
}

/* log(1 + e^x) without overflow. */
VM_INLINE VM_F VM_(softplus)(VM_F x) {
  VM_F y = VM_SELECT(VM_MASK(x > 0.0f), x, (VM_F){0}) + VM_(log1p)(VM_(exp_fast)(-VM_(abs)(x)));
  return VM_SELECT(VM_MASK(x != x), x, y);
}

/* Sine (quadrant 0) or cosine (quadrant 1) of |x| <= VM_TRIG_LIMIT, 2e-7 absolute: x = k pi/2 + r. */
VM_INLINE VM_F VM_(sine)(VM_F x, int quadrant) {
  VM_F shifted = x * 0.63661977f + 12582912.0f;
  VM_F k = shifted - 12582912.0f;
  VM_I n = VM_BITS(shifted) - 0x4b400000 + quadrant;
  VM_F r = x - k * 1.5703125f;
  r = r - k * 0.0004837512969970703f;
  r = r - k * 7.54979013e-08f;
  VM_F u = r * r;
  VM_F s = u * 2.7237163e-6f - 1.9839985e-4f;
  s = s * u + 8.3333319e-3f;
  s = s * u - 0.16666667f;
  s = s * u * r + r;
  VM_F c = u * -2.7288138e-7f + 2.4800491e-5f;
  c = c * u - 1.3888887e-3f;
  c = c * u + 4.1666668e-2f;
  c = c * u * u - 0.5f * u + 1.0f;
  VM_F y = VM_SELECT(-(n & 1), c, s);
  return VM_FLOAT(VM_BITS(y) ^ ((n & 2) << 30));
}
#undef VM_SELECT
