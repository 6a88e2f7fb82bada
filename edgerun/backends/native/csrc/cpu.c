/* Detection by cpuid and getauxval alone: the compiler's own (__builtin_cpu_supports, target_clones) are stubs in some
 * freestanding tool chains. A level is usable when the CPU has its instructions and the kernel saves its registers. */
#include "cpu.h"
#include "edgerun.h"
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__linux__) && (defined(__aarch64__) || defined(__arm__))
#include <sys/auxv.h>
#endif

enum feature {
  HAS_BASELINE = 1 << 0,
  HAS_AVX2_FMA = 1 << 1, /* x86-64-v3 */
  HAS_AVX512 = 1 << 2,   /* x86-64-v4: F BW CD DQ VL */
  HAS_AVX_VNNI = 1 << 3,
  HAS_AVX512_VNNI = 1 << 4,
  HAS_DOTPROD = 1 << 5, /* with fp16 arithmetic: Armv8.2 */
  HAS_I8MM = 1 << 6,
  HAS_VFPV4 = 1 << 7,
};

#if defined(__x86_64__)
static unsigned detect(void) {
  unsigned a, b, c, d, found = HAS_BASELINE, low, high;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return found;
  const unsigned v3 = bit_FMA | bit_MOVBE | bit_OSXSAVE | bit_AVX | bit_F16C | bit_SSE4_2 | bit_POPCNT;
  if ((c & v3) != v3) return found;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & 0x6) != 0x6) return found; /* the OS saves XMM and YMM */
  int saves_zmm = (low & 0xe6) == 0xe6;
  unsigned la, lb, lc, ld;
  if (!__get_cpuid(0x80000001, &la, &lb, &lc, &ld) || !(lc & bit_LZCNT)) return found;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return found;
  const unsigned v3_7 = bit_AVX2 | bit_BMI | bit_BMI2;
  if ((b & v3_7) != v3_7) return found;
  found |= HAS_AVX2_FMA;
  const unsigned v4 = bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL;
  unsigned leaf7_c = c;
  if (saves_zmm && (b & v4) == v4) {
    found |= HAS_AVX512;
    if (leaf7_c & 1u << 11) found |= HAS_AVX512_VNNI;
  }
  if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4)) found |= HAS_AVX_VNNI;
  return found;
}
#elif defined(__aarch64__) && defined(__linux__)
#define ER_HWCAP_ASIMDHP (1ul << 10)
#define ER_HWCAP_ASIMDDP (1ul << 20)
#define ER_HWCAP2_I8MM (1ul << 13)
static unsigned detect(void) {
  unsigned found = HAS_BASELINE;
  unsigned long one = getauxval(AT_HWCAP), two = getauxval(26 /* AT_HWCAP2 */);
  if ((one & ER_HWCAP_ASIMDHP) && (one & ER_HWCAP_ASIMDDP)) {
    found |= HAS_DOTPROD;
    if (two & ER_HWCAP2_I8MM) found |= HAS_I8MM;
  }
  return found;
}
#elif defined(__arm__) && defined(__linux__)
#define ER_HWCAP_NEON (1ul << 12)
#define ER_HWCAP_VFPV4 (1ul << 16)
static unsigned detect(void) {
  unsigned long one = getauxval(AT_HWCAP);
  if (!(one & ER_HWCAP_NEON)) return 0;
  return HAS_BASELINE | (one & ER_HWCAP_VFPV4 ? HAS_VFPV4 : 0);
}
#else
static unsigned detect(void) { return HAS_BASELINE; }
#endif

/* cpuid is slow in virtual machines: it is asked once. Two threads that race here find the same. */
static unsigned features(void) {
  static _Atomic unsigned known; /* 0: not asked yet */
  const unsigned asked = 1u << 31;
  unsigned found = known;
  if (!found) known = found = detect() | asked;
  return found;
}

/* levels.def is read three times, each time only the lines of this architecture. */
#define NONE(symbol, name, cpu, extends, needs, extent)
#define DECLARE(symbol, name, cpu, extends, needs, extent) extern const er_isa_level er_level_##symbol OPTIONAL;
#define LIST(symbol, name, cpu, extends, needs, extent) {&er_level_##symbol, extends},
#define NEEDS(symbol, name, cpu, extends, needs, extent) needs,

/* ER_ONLY_BASELINE: for compilers that build one level only, such as gcc with sanitizers. */
#ifdef ER_ONLY_BASELINE
#define OPTIONAL __attribute__((weak))
#else
#define OPTIONAL
#endif
#define LEVEL DECLARE
#include "own_levels.h"
#undef LEVEL
static const er_level levels[] = {
#define LEVEL LIST
#include "own_levels.h"
#undef LEVEL
};
static const unsigned needed[] = {
#define LEVEL NEEDS
#include "own_levels.h"
#undef LEVEL
};

#ifdef ER_ONLY_BASELINE
int er_level_count(void) { return 1; }
#else
int er_level_count(void) { return (int)(sizeof levels / sizeof *levels); }
#endif

const er_level *er_level_at(int index) { return &levels[index]; }

int er_level_usable(int index) {
  return index >= 0 && index < er_level_count() && (features() & needed[index]) == needed[index];
}

int er_level_find(const char *name) {
  for (int i = 0; i < er_level_count(); i++)
    if (!strcmp(levels[i].level->isa, name)) return i;
  return -1;
}

int er_level_best(void) {
  const char *wanted = getenv("ER_ISA");
  if (wanted && *wanted) {
    int found = er_level_find(wanted);
    return er_level_usable(found) ? found : -1;
  }
  for (int i = er_level_count() - 1; i > 0; i--)
    if (er_level_usable(i)) return i;
  return 0;
}

er_run_fn er_level_run(int index, int kernel) {
  while (index >= 0 && !levels[index].level->run[kernel]) index = levels[index].parent;
  return index >= 0 ? levels[index].level->run[kernel] : NULL;
}

const char *er_cpu_missing(void) { return features() & HAS_BASELINE ? NULL : "NEON"; }
