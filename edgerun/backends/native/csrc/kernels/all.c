/* Every kernel source, in the one translation unit of each ISA level (see isa.c). Sources whose kernels are ER_KERNEL_DOT
 * stand below; a dot-product level compiles only those. */
#ifndef ER_DOT_ONLY
#include "copy.c"
#include "elementwise.c"
#include "quant.c"
#include "rnn.c"
#include "topk.c"
#include "scan.c"
#include "scatter.c"
#include "gather.c"
#include "index.c"
#include "pool.c"
#include "norm.c"
#include "softmax.c"
#include "argreduce.c"
#include "reduce.c"
#include "matmul.c"
#include "conv.c"
#include "depthwise.c"
#include "conv_direct.c"
#include "conv_transpose.c"
#include "winograd.c"
#endif
