/* The plan: one model compiled for one architecture. Read in place from a mapping; never modified.
 *
 * All integers little-endian, all offsets from the start of the plan. Written by edgerun/plan.py (same field
 * order, tested byte for byte); the prose specification is docs/plan-format.md.
 *
 *   header (128 bytes) | section table | sections, each 64-byte aligned; WEIGHTS last
 */
#ifndef EDGERUN_PLAN_FORMAT_H
#define EDGERUN_PLAN_FORMAT_H
#include <stdint.h>

#define ER_PLAN_MAGIC "EDGEPLAN"
#define ER_PLAN_VERSION 1
#define ER_MAX_RANK 8

enum er_arch { ER_ARCH_X86_64 = 1, ER_ARCH_AARCH64 = 2, ER_ARCH_ARMV7 = 3, ER_ARCH_RISCV64 = 4, ER_ARCH_WASM32 = 5 };

/* The numbers of edgerun/dtypes.py. */
enum er_dtype {
  ER_F32 = 1, ER_F64 = 2, ER_F16 = 3, ER_BF16 = 4,
  ER_I8 = 5, ER_I16 = 6, ER_I32 = 7, ER_I64 = 8,
  ER_U8 = 9, ER_U16 = 10, ER_U32 = 11, ER_U64 = 12,
  ER_BOOL = 13,
  /* One element in a byte, integers in its low bits. Only moved and converted. */
  ER_F8E4M3FN = 17, ER_F8E4M3FNUZ = 18, ER_F8E5M2 = 19, ER_F8E5M2FNUZ = 20, ER_U4 = 21, ER_I4 = 22, ER_F4E2M1 = 23,
  ER_F8E8M0 = 24, ER_U2 = 25, ER_I2 = 26, ER_F6E2M3 = 27, ER_F6E3M2 = 28,
};

enum er_section {
  ER_SEC_DIMS = 1,     /* er_pdim[]: values known from the bound input shapes, evaluated first to last */
  ER_SEC_WORDS = 2,    /* int32_t[]: index lists and kernel parameters that the other sections point into */
  ER_SEC_STRINGS = 3,  /* UTF-8, NUL-terminated, referred to by byte offset; byte 0 is NUL */
  ER_SEC_TENSORS = 4,  /* er_ptensor[] */
  ER_SEC_NODES = 5,    /* er_pnode[] in execution order */
  ER_SEC_KERNELS = 6,  /* uint32_t[]: string offset of each kernel name; er_pnode.kernel indexes this */
  ER_SEC_IO = 7,       /* er_pio[]: inputs first, then outputs */
  ER_SEC_GOLDEN = 8,   /* er_pgolden[] then their bytes */
  ER_SEC_MANIFEST = 9, /* JSON text: model hash, opset, versions, target, budgets, RAM prediction */
  ER_SEC_WEIGHTS = 10, /* tensor bytes, each 64-byte aligned */
  ER_SEC_TOKENIZER = 11, /* of a language model: edgerun/text/vocabulary.py; the runtime does not read it */
};

typedef struct {
  char magic[8];
  uint32_t version, arch;
  uint64_t total_bytes;  /* of the whole plan */
  uint64_t arena_bytes;  /* activations + scratch of single-threaded parts, at the upper bounds of all symbols */
  uint64_t thread_scratch_bytes; /* additional scratch for each thread (the runtime adds it per thread) */
  uint32_t n_symbols;    /* free dims, from the inputs' shapes or from bind_sizes nodes */
  uint32_t n_sections;
  uint64_t checksum;     /* FNV-1a 64 of bytes [128, total_bytes - weights) i.e. everything but header and WEIGHTS */
  uint64_t weights_checksum; /* FNV-1a 64 over 8-byte words of WEIGHTS (zero padded): verified by selftest */
  uint32_t n_inputs, n_outputs;
  uint8_t reserved[56];
} er_pheader;

typedef struct { uint32_t kind, count; uint64_t offset, bytes; } er_psection;

/* One dim value. CONST: v. SYM: symbol number v, bounds in [a, b]. Otherwise op(dims[a], dims[b]); a, b < own index. */
enum er_dimop { ER_DIM_CONST = 0, ER_DIM_SYM, ER_DIM_ADD, ER_DIM_SUB, ER_DIM_MUL, ER_DIM_FLOORDIV, ER_DIM_CEILDIV,
                ER_DIM_MOD, ER_DIM_MIN, ER_DIM_MAX };
typedef struct { uint32_t op; int32_t a, b; uint32_t name; int64_t v; } er_pdim; /* name: of a symbol, STRINGS */

/* In er_ptensor.flags. VIEW: no node writes it; its bytes lie inside tensors that nodes (or the caller) write. */
enum er_tensor_flag { ER_TENSOR_VIEW = 1 };
enum er_space { ER_SPACE_NONE = 0, ER_SPACE_ARENA = 1, ER_SPACE_WEIGHTS = 2 };
typedef struct {
  uint8_t dtype, rank, space, flags;
  uint32_t name;         /* STRINGS */
  uint32_t dims;         /* WORDS index of `rank` dim numbers */
  uint32_t ld;           /* 0: dense; else 1 + dim number of the row stride in elements (a row is the last dim) */
  uint64_t offset;       /* in the arena or in WEIGHTS */
  uint64_t bytes;        /* reserved there; at least what the largest shape needs */
} er_ptensor;

typedef struct {
  uint16_t kernel;       /* index into KERNELS */
  uint16_t max_threads;  /* 0: no limit */
  uint16_t n_in, n_out;
  uint32_t io;           /* WORDS index of n_in + n_out tensor numbers; -1 = absent optional input */
  uint32_t param, n_param; /* WORDS */
  uint32_t patch, n_patch; /* WORDS: n_patch pairs (parameter index, dim number) written at every binding */
  uint32_t name;         /* STRINGS: original node name(s) */
  uint64_t scratch, scratch_bytes; /* arena offset, bytes */
} er_pnode;

typedef struct { uint32_t tensor, name; } er_pio;
/* One golden vector: the bytes of one input or output, replayed by `selftest`. */
typedef struct { uint32_t set, io; uint64_t offset, bytes; float atol, rtol; } er_pgolden;
#define ER_GOLDEN_LAYER 0x80000000u /* bit of io: samples of a node's output 0, see docs/packed-file-format.md */

_Static_assert(sizeof(er_pheader) == 128, "layout");
_Static_assert(sizeof(er_psection) == 24, "layout");
_Static_assert(sizeof(er_pdim) == 24, "layout");
_Static_assert(sizeof(er_ptensor) == 32, "layout");
_Static_assert(sizeof(er_pnode) == 48, "layout");
_Static_assert(sizeof(er_pio) == 8, "layout");
_Static_assert(sizeof(er_pgolden) == 32, "layout");
#endif
