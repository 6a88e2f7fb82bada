/* What every kernel sees. A kernel is two functions: `check`, compiled once for the baseline ISA and run whenever the
 * shapes are (re)bound, and `run`, compiled for every ISA level. After a successful check, run must not touch memory
 * outside its views and its scratch. Neither allocates. */
#ifndef EDGERUN_KERNEL_H
#define EDGERUN_KERNEL_H
#include <stddef.h>
#include <stdint.h>
#include "plan_format.h"

typedef struct er_pool er_pool;

/* A tensor as a kernel sees it: dim[0..rank) in elements, last dim contiguous; 0 <= dim[i] <= INT32_MAX and the product
 * fits int64_t. `ld` is the distance in elements between consecutive rows of the last dim; dim[rank-1] when dense (1 for
 * rank 0). A kernel that supports only dense views must say so in its check. `data` is aligned to the element size, no
 * more; weights to 64 bytes. Outputs never overlap each other or the scratch, and overlap an input only when both are the
 * same bytes (in place) or interleaved columns of one buffer. Absent optional tensor: data NULL, dtype 0, rank 0. */
typedef struct {
  void *data;
  int32_t dtype, rank;
  int64_t dim[ER_MAX_RANK];
  int64_t ld;
} er_view;

/* What a kernel found wrong with values while it ran; the runtime ends the run with an error after the node. */
enum er_fault_kind { ER_FAULT_NONE = 0, ER_FAULT_INDEX = 1 /* value is no index of `size` elements */,
                     ER_FAULT_LENGTH = 2 /* value is no length of at most `size` */ };
typedef struct { int32_t kind; int64_t value, size; } er_fault;

typedef struct {
  const er_view *in, *out;
  int n_in, n_out;
  const int32_t *param; /* floats are stored by bit pattern: er_param_f32() */
  int n_param;
  void *scratch;        /* 64-byte aligned */
  size_t scratch_bytes;
  void *thread_scratch; /* er_pool_threads() pieces of thread_scratch_bytes, one after the other; 64-byte aligned */
  size_t thread_scratch_bytes;
  er_pool *pool;        /* already limited to the threads this node may use; NULL in check, which must not depend on it */
  char *error;          /* check: on failure, a sentence of at most 160 bytes goes here */
  er_fault *fault;      /* run: see er_report; NULL in check */
} er_call;

typedef int (*er_check_fn)(const er_call *c); /* 0 = valid, else c->error is set */
typedef void (*er_run_fn)(const er_call *c);

/* fn(ctx, item, thread) for every item in [0, n), spread over the pool; returns when all are done. thread <
 * er_pool_threads(). Not to be nested. Workers have 256 KiB of stack: keep local arrays below 64 KiB. */
typedef void (*er_task_fn)(void *ctx, int item, int thread);
void er_parallel(er_pool *p, er_task_fn fn, void *ctx, int n);
int er_pool_threads(const er_pool *p); /* at least 1; only those this node may use */
static inline void *er_thread_scratch(const er_call *c, int thread) {
  return (char *)c->thread_scratch + (size_t)thread * c->thread_scratch_bytes;
}

/* Reports a value that ends the run. Any thread; the first report stays. */
static inline void er_report(const er_call *c, int kind, int64_t value, int64_t size) {
  int32_t none = ER_FAULT_NONE;
  if (!c->fault || !__atomic_compare_exchange_n(&c->fault->kind, &none, kind, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
    return;
  c->fault->value = value;
  c->fault->size = size;
}

static inline float er_param_f32(const er_call *c, int i) {
  union { int32_t i; float f; } u = { c->param[i] };
  return u.f;
}
static inline int64_t er_numel(const er_view *v) {
  int64_t n = 1;
  for (int i = 0; i < v->rank; i++) n *= v->dim[i];
  return n;
}
static inline int er_is_dense(const er_view *v) { return v->rank == 0 || v->ld == v->dim[v->rank - 1]; }
static inline int er_itemsize(int dtype) {
  switch (dtype) {
    case ER_F64: case ER_I64: case ER_U64: return 8;
    case ER_F32: case ER_I32: case ER_U32: return 4;
    case ER_F16: case ER_BF16: case ER_I16: case ER_U16: return 2;
    case ER_I8: case ER_U8: case ER_BOOL: return 1;
    default: return dtype >= ER_F8E4M3FN && dtype <= ER_F6E3M2;
  }
}
/* Whether kernels compute in a dtype: those of less than 8 bits and small floats are only moved and converted. */
static inline int er_is_number(int dtype) { return dtype >= ER_F32 && dtype <= ER_BOOL; }
/* For check functions: ER_REQUIRE(c, condition, "sentence %d", x); returns 1 from the caller when it does not hold. */
int er_fail(const er_call *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define ER_REQUIRE(c, cond, ...) do { if (!(cond)) return er_fail((c), __VA_ARGS__); } while (0)

/* Fused activations of convolution and matmul epilogues; p0 and p1 are parameters. The enum of edgerun/ops/activation.py. */
enum er_act {
  ER_ACT_NONE = 0, ER_ACT_CLAMP = 1 /* [p0, p1], NaN passes */, ER_ACT_LEAKY = 2 /* slope p0 */, ER_ACT_SIGMOID = 3, ER_ACT_SILU = 4,
  ER_ACT_HARDSIGMOID = 5 /* clamp(p0 x + p1, 0, 1) */, ER_ACT_HARDSWISH = 6 /* x clamp(x/6 + 1/2, 0, 1) */, ER_ACT_GELU = 7 /* erf form */,
  ER_ACT_GELU_TANH = 8, ER_ACT_TANH = 9, ER_ACT_ELU = 10 /* alpha p0 */, ER_ACT_PRELU = 11 /* slope per channel: extra input */,
};
/* Where the residual input enters: v = acc + bias; BEFORE: act(v + res); AFTER: act(v) + res. */
enum er_res { ER_RES_NONE = 0, ER_RES_BEFORE = 1, ER_RES_AFTER = 2 };

/* The kernel table: kernels.def lists every kernel once, as ER_KERNEL(name, file, "contract"), ER_KERNEL_WIDE where wider
 * vectors and ER_KERNEL_DOT where integer dot products have much to gain. Each ISA level has its own array of run functions in that order
 * (NULL: as in the level it extends); the check functions are shared. */
typedef struct { const char *isa; const er_run_fn *run; } er_isa_level;
#endif
