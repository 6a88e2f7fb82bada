/* Values of dims and views of tensors, once the shapes of the inputs are known. */
#include "edgerun.h"
#include "error.h"
#include "plan.h"

/* a / b rounded down, as in Python. b is not 0, and not -1 with the smallest a. */
static int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

/* 0, or 1 on overflow or division by zero. */
static int apply(uint32_t op, int64_t a, int64_t b, int64_t *value) {
  int division = op == ER_DIM_FLOORDIV || op == ER_DIM_CEILDIV || op == ER_DIM_MOD;
  if (division && (b == 0 || (b == -1 && a == INT64_MIN))) return 1;
  switch (op) {
    case ER_DIM_ADD: return __builtin_add_overflow(a, b, value);
    case ER_DIM_SUB: return __builtin_sub_overflow(a, b, value);
    case ER_DIM_MUL: return __builtin_mul_overflow(a, b, value);
    case ER_DIM_FLOORDIV: return *value = floor_divide(a, b), 0;
    case ER_DIM_CEILDIV: return *value = floor_divide(a, b) + (a % b != 0), 0;
    case ER_DIM_MOD: return *value = a - b * floor_divide(a, b), 0;
    case ER_DIM_MIN: return *value = a < b ? a : b, 0;
    default: return *value = a > b ? a : b, 0;
  }
}

int er_plan_dims(const er_plan *p, const int64_t *symbols, const uint32_t *stages, uint32_t stage, int64_t *values) {
  for (uint32_t i = 0; i < p->n_dims; i++) {
    const er_pdim *d = &p->dims[i];
    if (stages && stages[i] != stage) continue;
    if (d->op == ER_DIM_CONST) values[i] = d->v;
    else if (d->op == ER_DIM_SYM) values[i] = symbols[d->v];
    else if (apply(d->op, values[d->a], values[d->b], &values[i]))
      return er_refuse(ER_BAD_ARGUMENT, "a size (dim %u) overflows or divides by zero", i);
  }
  return ER_OK;
}

int er_plan_view(const er_plan *p, uint32_t index, const int64_t *values, er_view *view, uint64_t *extent) {
  const er_ptensor *t = &p->tensors[index];
  const char *name = er_plan_text(p, t->name);
  int64_t rows = 1, width = 1, elements, bytes;
  *view = (er_view){.dtype = t->dtype, .rank = t->rank};
  for (int k = 0; k < t->rank; k++) {
    int64_t dim = values[p->words[t->dims + (uint32_t)k]];
    if (dim < 0 || dim > INT32_MAX)
      return er_refuse(ER_BAD_ARGUMENT, "tensor '%.80s' would have the size %lld on axis %d", name, (long long)dim, k);
    view->dim[k] = dim;
    if (k == t->rank - 1) width = dim;
    else if (__builtin_mul_overflow(rows, dim, &rows)) goto too_large;
  }
  view->ld = t->ld ? values[t->ld - 1] : width;
  if (view->ld < width || view->ld > INT32_MAX)
    return er_refuse(ER_BAD_ARGUMENT, "tensor '%.80s' would have rows of %lld elements %lld apart", name,
                     (long long)width, (long long)view->ld);
  if (__builtin_mul_overflow(rows, view->ld, &elements)) goto too_large;
  elements = rows && width ? elements - view->ld + width : 0;
  if (__builtin_mul_overflow(elements, (int64_t)er_itemsize(t->dtype), &bytes)) goto too_large;
  if ((uint64_t)bytes > t->bytes) goto too_large;
  *extent = (uint64_t)bytes;
  return ER_OK;
too_large:
  return er_refuse(ER_BAD_ARGUMENT, "tensor '%.80s' needs more than the %llu bytes that the plan reserves for it", name,
                   (unsigned long long)t->bytes);
}

static int is_sizes(const er_plan *p, uint32_t node) {
  return er_kernel_flow(er_plan_text(p, p->kernels[p->nodes[node].kernel])) == ER_FLOW_SIZES;
}

int er_plan_is_staged(const er_plan *p) {
  for (uint32_t i = 0; i < p->n_nodes; i++) if (is_sizes(p, i)) return 1;
  return 0;
}

static uint32_t later(uint32_t a, uint32_t b) { return a > b ? a : b; }

int er_plan_stages(const er_plan *p, const er_stages *s) {
  for (uint32_t i = 0; i < p->n_nodes; i++) {
    const er_pnode *n = &p->nodes[i];
    for (uint32_t k = 2; k < n->n_param && is_sizes(p, i); k++) s->dim[p->words[n->param + k]] = i + 1;
  }
  for (uint32_t i = 0; i < p->n_dims; i++) {
    const er_pdim *d = &p->dims[i];
    if (d->op > ER_DIM_SYM) s->dim[i] = later(s->dim[d->a], s->dim[d->b]);
  }
  for (uint32_t i = 0; i < p->n_tensors; i++) {
    const er_ptensor *t = &p->tensors[i];
    uint32_t stage = t->ld ? s->dim[t->ld - 1] : 0;
    for (uint32_t k = 0; k < t->rank; k++) stage = later(stage, s->dim[p->words[t->dims + k]]);
    s->tensor[i] = stage;
  }
  for (uint32_t i = 0; i < p->n_nodes; i++) {
    const er_pnode *n = &p->nodes[i];
    uint32_t stage = 0;
    for (uint32_t k = 0; k < (uint32_t)n->n_in + n->n_out; k++) {
      int32_t t = p->words[n->io + k];
      if (t >= 0) stage = later(stage, s->tensor[t]);
    }
    for (uint32_t k = 0; k < n->n_patch; k++) stage = later(stage, s->dim[p->words[n->patch + 2 * k + 1]]);
    if (stage > i)
      return er_refuse(ER_BAD_PLAN, "node '%.80s' comes before its sizes are known", er_plan_text(p, n->name));
    s->node[i] = stage;
  }
  for (uint32_t i = 0; i < p->header->n_inputs; i++)
    if (s->tensor[p->io[i].tensor])
      return er_refuse(ER_BAD_PLAN, "input '%.80s' has a size that a node decides", er_plan_text(p, p->io[i].name));
  return ER_OK;
}
