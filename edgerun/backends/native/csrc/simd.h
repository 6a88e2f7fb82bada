/* The SIMD layer: GCC/Clang vector extensions plus the few operations that need an intrinsic. VL floats a vector.
 * Every kernel source is compiled once per ISA level; nothing here may be used outside kernels/ (see isa.c). */
#ifndef EDGERUN_SIMD_H
#define EDGERUN_SIMD_H
#endif
