/* The end of a packed file: ELF | padding | plan at a page boundary | 64-byte footer. docs/packed-file-format.md is the
 * specification, edgerun/packed.py the writer. */
#ifndef EDGERUN_PACK_FORMAT_H
#define EDGERUN_PACK_FORMAT_H
#include <stdint.h>

#define PACK_MAGIC "EDGEPACK"
#define PACK_VERSION 1
/* The largest page size of this architecture's kernels. */
#ifdef __aarch64__
#define PACK_ALIGNMENT 65536
#else
#define PACK_ALIGNMENT 4096
#endif

typedef struct {
  char magic[8];
  uint32_t version, arch;
  uint64_t plan_offset, plan_bytes;
  uint64_t header_checksum; /* FNV-1a 64 of the plan's 128-byte header, which the plan's own checksum leaves out */
  uint64_t stub_bytes;
  uint64_t signature_bytes; /* 0, or of the block between plan and footer */
  uint64_t checksum; /* FNV-1a 64 of the 56 bytes before */
} pack_footer;
_Static_assert(sizeof(pack_footer) == 64, "layout");

/* The message is PACK_SIGNED_WORDS and the SHA-512 of the plan. */
#define PACK_SIGNATURE_MAGIC "EDGESIGN"
#define PACK_SIGNED_WORDS "edgerun plan v1" /* and its NUL: 16 bytes */
typedef struct {
  char magic[8];
  uint32_t version, required; /* 1; whether every start verifies */
  uint8_t key[32], signature[64]; /* Ed25519 */
  uint8_t zeros[16];
} pack_signature;
_Static_assert(sizeof(pack_signature) == 128, "layout");

#if defined(__x86_64__)
#define OWN_ARCH ER_ARCH_X86_64
#define OWN_ARCH_NAME "x86_64"
#elif defined(__aarch64__)
#define OWN_ARCH ER_ARCH_AARCH64
#define OWN_ARCH_NAME "aarch64"
#elif defined(__arm__)
#define OWN_ARCH ER_ARCH_ARMV7
#define OWN_ARCH_NAME "armv7"
#elif defined(__riscv) && __riscv_xlen == 64
#define OWN_ARCH ER_ARCH_RISCV64
#define OWN_ARCH_NAME "riscv64"
#else
#error "no plan architecture for this machine"
#endif
#endif
