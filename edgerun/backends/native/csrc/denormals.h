/* Denormal floats count as zero while kernels run: operations on them cost a hundred times more on many cores, and decaying
 * activations run into them. The caller's mode is restored after the run. */
#ifndef EDGERUN_DENORMALS_H
#define EDGERUN_DENORMALS_H
#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
typedef uint32_t er_float_mode;
/* Flush-to-zero (bit 15) and denormals-are-zero (bit 6) of MXCSR. */
static inline er_float_mode er_flush_denormals(void) {
  er_float_mode old = _mm_getcsr();
  _mm_setcsr(old | 0x8040u);
  return old;
}
static inline void er_restore_floats(er_float_mode old) { _mm_setcsr(old); }
#elif defined(__aarch64__)
typedef uint64_t er_float_mode;
/* FZ (bit 24) of FPCR. */
static inline er_float_mode er_flush_denormals(void) {
  er_float_mode old;
  __asm__ volatile("mrs %0, fpcr" : "=r"(old));
  __asm__ volatile("msr fpcr, %0" : : "r"(old | (UINT64_C(1) << 24)));
  return old;
}
static inline void er_restore_floats(er_float_mode old) { __asm__ volatile("msr fpcr, %0" : : "r"(old)); }
#elif defined(__arm__) && defined(__ARM_FP)
typedef uint32_t er_float_mode;
/* FZ (bit 24) of FPSCR; NEON flushes always. */
static inline er_float_mode er_flush_denormals(void) {
  er_float_mode old;
  __asm__ volatile("vmrs %0, fpscr" : "=r"(old));
  __asm__ volatile("vmsr fpscr, %0" : : "r"(old | (1u << 24)));
  return old;
}
static inline void er_restore_floats(er_float_mode old) { __asm__ volatile("vmsr fpscr, %0" : : "r"(old)); }
#else
typedef int er_float_mode;
static inline er_float_mode er_flush_denormals(void) { return 0; }
static inline void er_restore_floats(er_float_mode old) { (void)old; }
#endif
#endif
