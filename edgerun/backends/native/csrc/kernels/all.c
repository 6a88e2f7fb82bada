/* Every kernel source, in the one translation unit of each ISA level (see isa.c): those that all levels share first, then
 * those whose kernels are ER_KERNEL_WIDE, then ER_KERNEL_DOT. */
#if !defined(ER_WIDE_ONLY) && !defined(ER_DOT_ONLY)
#include "copy.c"
#include "elementwise.c"
#include "tree.c"
#include "resize.c"
#include "nbits.c"
#include "quant.c"
#include "qtable.c"
#include "rnn.c"
#include "pool.c"
#include "reduce.c"
/* Kernels that move indices about rather than compute: small code matters more than speed. */
#ifdef __clang__
#pragma clang attribute push(__attribute__((minsize)), apply_to = function)
#endif
#include "topk.c"
#include "scan.c"
#include "scatter.c"
#include "gather.c"
#include "index.c"
#include "control.c"
#include "argreduce.c"
#include "conv_direct.c"
#include "matmul_plain.c"
#include "grid_sample.c"
#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
#ifndef ER_DOT_ONLY
#include "attention.c"
#include "norm.c"
#include "softmax.c"
#include "matmul.c"
#include "conv.c"
#include "depthwise.c"
#include "conv_transpose.c"
#include "winograd.c"
#endif
#ifndef ER_WIDE_ONLY
#include "qmatmul.c"
#include "group.c"
#include "qconv.c"
#include "qdepthwise.c"
#include "qsum.c"
#endif
