/* One ISA level: all kernels, compiled once more with this level's instruction set. The compiler is told the level by
 * -DER_ISA=avx2 (symbol suffix) and -DER_ISA_NAME='"avx2"'; the weakest level also gets -DER_BASELINE_CHECKS and holds
 * the check functions. -DER_WIDE_ONLY, -DER_DOT_ONLY: only kernels that gain from wider vectors, or from integer dot
 * products. */
#include "kernel.h"

/* A test may compile another list of kernels. */
#ifndef ER_KERNEL_SOURCES
#define ER_KERNEL_SOURCES "kernels/all.c"
#define ER_KERNEL_TABLE "kernels.def"
#endif
#if defined(ER_BASELINE_CHECKS) && defined(__clang__)
/* Checks run while a plan is loaded: small code matters more than speed. */
#define ER_KERNEL(name, file, contract) static int check_##name(const er_call *c) __attribute__((minsize));
#include ER_KERNEL_TABLE
#endif
#include ER_KERNEL_SOURCES

#define ER_JOIN2(a, b) a##_##b
#define ER_JOIN(a, b) ER_JOIN2(a, b)

static const er_run_fn run_functions[] = {
#if defined(ER_DOT_ONLY) || defined(ER_WIDE_ONLY)
#define ER_KERNEL(name, file, contract) NULL,
#else
#define ER_KERNEL(name, file, contract) run_##name,
#endif
#ifdef ER_DOT_ONLY
#define ER_KERNEL_WIDE(name, file, contract) NULL,
#else
#define ER_KERNEL_WIDE(name, file, contract) run_##name,
#endif
#ifdef ER_WIDE_ONLY
#define ER_KERNEL_DOT(name, file, contract) NULL,
#else
#define ER_KERNEL_DOT(name, file, contract) run_##name,
#endif
#include ER_KERNEL_TABLE
    NULL,
};
extern const er_isa_level ER_JOIN(er_level, ER_ISA);
const er_isa_level ER_JOIN(er_level, ER_ISA) = {ER_ISA_NAME, run_functions};

#ifdef ER_BASELINE_CHECKS
extern const er_check_fn er_check_functions[];
const er_check_fn er_check_functions[] = {
#define ER_KERNEL(name, file, contract) check_##name,
#include ER_KERNEL_TABLE
    NULL,
};
#endif
