/* Instructions of one integer class; included with EW_T (the type), EW_UT (its unsigned twin), EW_RUN (the function's
 * name), EW_SIGNED (0 or 1). n is a multiple of 16. Results wrap: arithmetic is unsigned. `width` is the bits of the
 * dtype. */
static void EW_RUN(int op, int width, void *dst, const void *pa, const void *pb, const void *pc, int n) {
  EW_T *d = dst;
  int32_t *flag = dst;
  const EW_T *a = pa, *b = pb, *c = pc;
  const int32_t *condition = pa;
  n &= ~15;
#define EW_LOOP(expr) \
  _Pragma("clang loop unroll(disable) interleave(disable)") for (int i = 0; i < n; i++) d[i] = (EW_T)(expr); \
  break
#define EW_FLAG(expr) \
  _Pragma("clang loop unroll(disable) interleave(disable)") for (int i = 0; i < n; i++) flag[i] = (expr); \
  break
  switch (op) {
    case EW_move: EW_LOOP(a[i]);
    case EW_add: EW_LOOP((EW_UT)a[i] + (EW_UT)b[i]);
    case EW_sub: EW_LOOP((EW_UT)a[i] - (EW_UT)b[i]);
    case EW_mul: EW_LOOP((EW_UT)a[i] * (EW_UT)b[i]);
    case EW_div:
      for (int i = 0; i < n; i++)
        d[i] = b[i] == 0 ? 0 : EW_SIGNED && b[i] == (EW_T)-1 ? (EW_T)(0 - (EW_UT)a[i]) : a[i] / b[i];
      break;
    case EW_mod:
      for (int i = 0; i < n; i++) {
        EW_T r = b[i] == 0 || (EW_SIGNED && b[i] == (EW_T)-1) ? 0 : a[i] % b[i];
        d[i] = EW_SIGNED && r != 0 && ((r < 0) != (b[i] < 0)) ? (EW_T)((EW_UT)r + (EW_UT)b[i]) : r;
      }
      break;
    case EW_fmod:
      for (int i = 0; i < n; i++) d[i] = b[i] == 0 || (EW_SIGNED && b[i] == (EW_T)-1) ? 0 : a[i] % b[i];
      break;
    case EW_pow:
      for (int i = 0; i < n; i++) {
        EW_UT base = (EW_UT)a[i], y = 1;
        if (EW_SIGNED && b[i] < 0) { /* 1 / a^-b, truncated */
          d[i] = a[i] == 1 ? 1 : a[i] == (EW_T)-1 ? (b[i] & 1 ? (EW_T)-1 : 1) : 0;
          continue;
        }
        for (EW_UT e = (EW_UT)b[i]; e; e >>= 1, base *= base) if (e & 1) y *= base;
        d[i] = (EW_T)y;
      }
      break;
    case EW_min: EW_LOOP(a[i] < b[i] ? a[i] : b[i]);
    case EW_max: EW_LOOP(a[i] > b[i] ? a[i] : b[i]);
    case EW_neg: EW_LOOP(0 - (EW_UT)a[i]);
    case EW_abs: EW_LOOP(EW_SIGNED && a[i] < 0 ? 0 - (EW_UT)a[i] : (EW_UT)a[i]);
    case EW_sign: EW_LOOP((a[i] > 0) - (EW_SIGNED && a[i] < 0));
    case EW_reciprocal: EW_LOOP(a[i] == 1 ? 1 : EW_SIGNED && a[i] == (EW_T)-1 ? (EW_T)-1 : 0);
    case EW_bit_and: EW_LOOP(a[i] & b[i]);
    case EW_bit_or: EW_LOOP(a[i] | b[i]);
    case EW_bit_xor: EW_LOOP(a[i] ^ b[i]);
    case EW_bit_not: EW_LOOP(~a[i]);
    case EW_shl: EW_LOOP((EW_UT)b[i] < (EW_UT)width ? (EW_UT)a[i] << ((EW_UT)b[i] & (sizeof(EW_T) * 8 - 1)) : 0);
    case EW_shr: EW_LOOP((EW_UT)b[i] < (EW_UT)width ? a[i] >> ((EW_UT)b[i] & (sizeof(EW_T) * 8 - 1))
                                                       : EW_SIGNED && a[i] < 0 ? (EW_T)-1 : 0);
    case EW_eq: EW_FLAG(a[i] == b[i]);
    case EW_ne: EW_FLAG(a[i] != b[i]);
    case EW_lt: EW_FLAG(a[i] < b[i]);
    case EW_le: EW_FLAG(a[i] <= b[i]);
    case EW_gt: EW_FLAG(a[i] > b[i]);
    case EW_ge: EW_FLAG(a[i] >= b[i]);
    case EW_where: EW_LOOP(condition[i] ? b[i] : c[i]);
    default: break;
  }
#undef EW_LOOP
#undef EW_FLAG
}
