/* levels.def, of which LEVEL sees the lines of the architecture that is being compiled. No include guard. */
#ifdef __x86_64__
#define ER_X86_64 LEVEL
#else
#define ER_X86_64 NONE
#endif
#ifdef __aarch64__
#define ER_AARCH64 LEVEL
#else
#define ER_AARCH64 NONE
#endif
#ifdef __arm__
#define ER_ARMV7 LEVEL
#else
#define ER_ARMV7 NONE
#endif
#if defined(__riscv) && __riscv_xlen == 64
#define ER_RISCV64 LEVEL
#else
#define ER_RISCV64 NONE
#endif
#ifdef __wasm__
#define ER_WASM32 LEVEL
#else
#define ER_WASM32 NONE
#endif
#include "levels.def"
