/* Every kernel source, in the one translation unit of each ISA level (see isa.c). Sources whose kernels are ER_KERNEL_DOT
 * stand below; a dot-product level compiles only those. */
#ifndef ER_DOT_ONLY
#include "copy.c"
#include "elementwise.c"
#include "index.c"
#include "pool.c"
#include "norm.c"
#include "softmax.c"
#include "argreduce.c"
#include "reduce.c"
#endif
