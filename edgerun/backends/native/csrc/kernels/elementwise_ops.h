/* The instructions of the elementwise machine, in the order of edgerun/backends/native/ops/elementwise.py (tested).
 * EW_OP(name, operands, floats, integers): which classes have it. Comparisons give 0 or 1 in class i32, as bools are. */
#define EW_BOTH 1, 1
#define EW_FLOAT 1, 0
#define EW_INT 0, 1
#define EW_OPS \
  EW_OP(move, 1, EW_BOTH) EW_OP(add, 2, EW_BOTH) EW_OP(sub, 2, EW_BOTH) EW_OP(mul, 2, EW_BOTH) EW_OP(div, 2, EW_BOTH) \
  EW_OP(mod, 2, EW_BOTH) EW_OP(fmod, 2, EW_BOTH) EW_OP(pow, 2, EW_BOTH) EW_OP(min, 2, EW_BOTH) EW_OP(max, 2, EW_BOTH) \
  EW_OP(neg, 1, EW_BOTH) EW_OP(abs, 1, EW_BOTH) EW_OP(sign, 1, EW_BOTH) EW_OP(reciprocal, 1, EW_BOTH) \
  EW_OP(floor, 1, EW_FLOAT) EW_OP(ceil, 1, EW_FLOAT) EW_OP(round, 1, EW_FLOAT) EW_OP(sqrt, 1, EW_FLOAT) \
  EW_OP(exp, 1, EW_FLOAT) EW_OP(log, 1, EW_FLOAT) EW_OP(sin, 1, EW_FLOAT) EW_OP(cos, 1, EW_FLOAT) \
  EW_OP(tan, 1, EW_FLOAT) EW_OP(asin, 1, EW_FLOAT) EW_OP(acos, 1, EW_FLOAT) EW_OP(atan, 1, EW_FLOAT) \
  EW_OP(sinh, 1, EW_FLOAT) EW_OP(cosh, 1, EW_FLOAT) EW_OP(tanh, 1, EW_FLOAT) EW_OP(asinh, 1, EW_FLOAT) \
  EW_OP(acosh, 1, EW_FLOAT) EW_OP(atanh, 1, EW_FLOAT) EW_OP(erf, 1, EW_FLOAT) EW_OP(sigmoid, 1, EW_FLOAT) \
  EW_OP(softplus, 1, EW_FLOAT) EW_OP(gelu, 1, EW_FLOAT) EW_OP(gelu_tanh, 1, EW_FLOAT) \
  EW_OP(bit_and, 2, EW_INT) EW_OP(bit_or, 2, EW_INT) EW_OP(bit_xor, 2, EW_INT) EW_OP(bit_not, 1, EW_INT) \
  EW_OP(shl, 2, EW_INT) EW_OP(shr, 2, EW_INT) \
  EW_OP(eq, 2, EW_BOTH) EW_OP(ne, 2, EW_BOTH) EW_OP(lt, 2, EW_BOTH) EW_OP(le, 2, EW_BOTH) EW_OP(gt, 2, EW_BOTH) \
  EW_OP(ge, 2, EW_BOTH) EW_OP(is_nan, 1, EW_FLOAT) EW_OP(is_inf, 1, EW_FLOAT) \
  EW_OP(where, 3, EW_BOTH) EW_OP(cast, 1, EW_BOTH) EW_OP(cast_wrap, 1, EW_BOTH)

enum ew_op {
#define EW_OP(name, operands, ...) EW_##name,
  EW_OPS
#undef EW_OP
  EW_COUNT
};
/* Register classes: how the values of a dtype are held while a program runs. bool, i8, u8, i16 and u16 live in EW_I32
 * (results are wrapped by casts that the lowering inserts), f16 and bf16 in EW_F32. */
enum ew_class { EW_F32, EW_F64, EW_I32, EW_I64, EW_U32, EW_U64, EW_CLASSES };
