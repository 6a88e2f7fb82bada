/* A validated plan: pointers into the mapping, nothing copied. */
#ifndef EDGERUN_PLAN_H
#define EDGERUN_PLAN_H
#include <stddef.h>
#include "kernel.h"

typedef struct {
  const uint8_t *base;
  const er_pheader *header;
  const er_pdim *dims;       uint32_t n_dims;
  const int32_t *words;      uint32_t n_words;
  const char *strings;       uint32_t n_strings; /* bytes */
  const er_ptensor *tensors; uint32_t n_tensors;
  const er_pnode *nodes;     uint32_t n_nodes;
  const uint32_t *kernels;   uint32_t n_kernels;
  const er_pio *io;          uint32_t n_io;
  const uint8_t *weights;    uint64_t weight_bytes;
} er_plan;

enum { ER_MAX_NODE_INPUTS = 4096, ER_MAX_NODE_OUTPUTS = 256, ER_MAX_KERNELS = 1024 };

/* Checks everything that does not depend on shapes: afterwards every number in the plan is a valid index, every offset
 * and size lies inside its section or the arena, every string ends. ER_OK, or ER_BAD_PLAN / ER_UNSUPPORTED with a
 * sentence in er_error_text(). `data` must be 64-byte aligned. Time is linear in the plan without its weights. */
int er_plan_open(er_plan *p, const void *data, size_t bytes);

/* When things are known: 0 once the inputs are bound, i + 1 once node i, a bind_sizes, has run. */
typedef struct { uint32_t *dim, *tensor, *node; } er_stages; /* [n_dims], [n_tensors], [n_nodes] */

/* Whether any size comes from the data: some node is a bind_sizes. */
int er_plan_is_staged(const er_plan *p);

/* Fills the stages. ER_BAD_PLAN when a node comes before the sizes of its tensors or parameters are known. */
int er_plan_stages(const er_plan *p, const er_stages *stages);

/* Evaluates the dims of one stage for the values of the symbols; all dims when `stages` is NULL. ER_BAD_ARGUMENT on
 * overflow or division by zero. */
int er_plan_dims(const er_plan *p, const int64_t *symbols /* [n_symbols] */, const uint32_t *stages /* [n_dims] */,
                 uint32_t stage, int64_t *values /* [n_dims] */);

/* The view of tensor `index` under these dim values, `data` relative to neither space: its byte offset is the plan's.
 * ER_BAD_ARGUMENT when a dim is negative or the tensor needs more than its reserved bytes. *extent: bytes from the
 * first to past the last element. */
int er_plan_view(const er_plan *p, uint32_t index, const int64_t *values, er_view *view, uint64_t *extent);

static inline const char *er_plan_text(const er_plan *p, uint32_t offset) { return p->strings + offset; }
static inline const int32_t *er_plan_inputs(const er_plan *p, const er_pnode *n) { return p->words + n->io; }
static inline const int32_t *er_plan_outputs(const er_plan *p, const er_pnode *n) { return p->words + n->io + n->n_in; }

/* table.c */
extern const char *const er_kernel_names[]; /* in the order of kernels.def */
extern const er_check_fn er_check_functions[];
int er_kernel_count(void);
int er_kernel_find(const char *name); /* -1 when there is none */
/* Kernels on which the interpreter acts itself. */
enum er_flow { ER_FLOW_NONE = 0, ER_FLOW_SKIP = 1 /* skip_unless */, ER_FLOW_FAIL = 2 /* fail */,
               ER_FLOW_SIZES = 3 /* bind_sizes */ };
enum er_flow er_kernel_flow(const char *name);
#endif
