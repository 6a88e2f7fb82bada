/* Binding: from the shapes of the inputs to checked views of every node. */
#include <string.h>
#include "cpu.h"
#include "error.h"
#include "model.h"

#define CHECK(step) do { int status_ = (step); if (status_) return status_; } while (0)

static const char *node_name(const er_model *m, uint32_t node) {
  return er_plan_text(&m->plan, m->plan.nodes[node].name);
}

/* Takes the symbols from the inputs' shapes; two inputs that share a symbol must agree. */
static int bind_symbols(er_model *m) {
  const er_plan *p = &m->plan;
  for (uint32_t i = 0; i < p->header->n_symbols; i++) m->symbols[i] = -1;
  for (uint32_t i = 0; i < p->header->n_inputs; i++) {
    const er_ptensor *t = &p->tensors[p->io[i].tensor];
    for (int k = 0; k < t->rank; k++) {
      const er_pdim *d = &p->dims[p->words[t->dims + (uint32_t)k]];
      int64_t size = m->input_shapes[i * ER_MAX_RANK + (uint32_t)k];
      if (d->op != ER_DIM_SYM) continue;
      const char *name = er_plan_text(p, p->io[i].name);
      if (size < 0) return er_refuse(ER_BAD_ARGUMENT, "the shape of input '%.80s' is not set", name);
      if (size < d->a || size > d->b)
        return er_refuse(ER_BAD_ARGUMENT, 
                         "axis %d of input '%.80s' (%.40s) has size %lld; the plan is made for %d to %d", k, name,
                         er_plan_text(p, d->name), (long long)size, d->a, d->b);
      if (m->symbols[d->v] >= 0 && m->symbols[d->v] != size)
        return er_refuse(ER_BAD_ARGUMENT, 
                         "axis %d of input '%.80s' (%.40s) has size %lld, elsewhere it has %lld", k, name,
                         er_plan_text(p, d->name), (long long)size, (long long)m->symbols[d->v]);
      m->symbols[d->v] = size;
    }
  }
  return ER_OK;
}

/* Dims of inputs that are expressions or numbers must come out as the caller said. */
static int check_input_shapes(const er_model *m) {
  const er_plan *p = &m->plan;
  for (uint32_t i = 0; i < p->header->n_inputs; i++) {
    const er_view *v = &m->tensors[p->io[i].tensor];
    for (int k = 0; k < v->rank; k++) {
      int64_t given = m->input_shapes[i * ER_MAX_RANK + (uint32_t)k];
      if (given >= 0 && given != v->dim[k])
        return er_refuse(ER_BAD_ARGUMENT, "axis %d of input '%.80s' has size %lld instead of %lld", k,
                         er_plan_text(p, p->io[i].name), (long long)given, (long long)v->dim[k]);
    }
  }
  return ER_OK;
}

/* Whether entry i of a table of stages belongs to a stage; there is only stage 0 without a table. */
static int in_stage(const uint32_t *table, uint32_t i, uint32_t stage) { return table ? table[i] == stage : !stage; }

static int bind_tensors(er_model *m, uint32_t stage) {
  const er_plan *p = &m->plan;
  uint64_t extent;
  for (uint32_t i = 0; i < p->n_tensors; i++) {
    if (!in_stage(m->stages.tensor, i, stage)) continue;
    CHECK(er_plan_view(p, i, m->dims, &m->tensors[i], &extent));
    const uint8_t *space = p->tensors[i].space == ER_SPACE_ARENA ? m->arena : p->weights;
    m->tensors[i].data = (void *)(uintptr_t)(space + p->tensors[i].offset);
  }
  return ER_OK;
}

typedef struct {
  uint64_t start, end; /* in the arena */
  uint64_t row, width; /* bytes from row to row, and of one row; equal when contiguous */
} range;

static range arena_range(const er_model *m, const er_view *v) {
  uint64_t item = (uint64_t)er_itemsize(v->dtype), rows = 1;
  uint64_t start = (uint64_t)((const uint8_t *)v->data - m->arena);
  for (int k = 0; k + 1 < v->rank; k++) rows *= (uint64_t)v->dim[k];
  uint64_t width = item * (uint64_t)(v->rank ? v->dim[v->rank - 1] : 1), row = item * (uint64_t)v->ld;
  return (range){start, rows && width ? start + (rows - 1) * row + width : start, row, width};
}

static int disjoint(const range *a, const range *b) {
  if (a->end <= b->start || b->end <= a->start) return 1;
  if (a->row != b->row || a->row == a->width || b->row == b->width) return 0;
  /* Columns of the same rows. */
  uint64_t apart = (b->start % a->row + a->row - a->start % a->row) % a->row;
  return apart >= a->width && a->row - apart >= b->width;
}

/* What kernel.h promises about overlaps. Inputs that are the same bytes as an output are in-place operands. */
static int check_overlaps(const er_model *m, uint32_t node) {
  const er_node *n = &m->nodes[node];
  const er_pnode *record = &m->plan.nodes[node];
  range scratch = {record->scratch, record->scratch + record->scratch_bytes, 0, 0};
  for (int o = 0; o < n->call.n_out; o++) {
    const er_view *out = &n->call.out[o];
    if (!out->data) continue;
    range a = arena_range(m, out);
    int fine = disjoint(&a, &scratch);
    for (int k = 0; k < o && fine; k++) {
      range b = arena_range(m, &n->call.out[k]);
      fine = !n->call.out[k].data || disjoint(&a, &b);
    }
    for (int k = 0; k < n->call.n_in && fine; k++) {
      const er_view *in = &n->call.in[k];
      int32_t t = er_plan_inputs(&m->plan, record)[k];
      if (t < 0 || m->plan.tensors[t].space != ER_SPACE_ARENA) continue;
      range b = arena_range(m, in);
      fine = disjoint(&a, &b) || (a.start == b.start && a.end == b.end && a.row == b.row);
      fine = fine && disjoint(&b, &scratch);
    }
    if (!fine)
      return er_refuse(ER_BAD_PLAN, "the output of node '%.80s' overlaps what it works on", node_name(m, node));
  }
  return ER_OK;
}

static int bind_node(er_model *m, uint32_t node) {
  const er_pnode *record = &m->plan.nodes[node];
  er_node *n = &m->nodes[node];
  er_view *views = (er_view *)(uintptr_t)n->call.in;
  const int32_t *numbers = er_plan_inputs(&m->plan, record);
  for (uint32_t k = 0; k < (uint32_t)record->n_in + record->n_out; k++)
    views[k] = numbers[k] < 0 ? (er_view){0} : m->tensors[numbers[k]];
  int32_t *params = (int32_t *)(uintptr_t)n->call.param;
  n->bound = 0;
  for (uint32_t k = 0; k < record->n_patch; k++) {
    const int32_t *pair = m->plan.words + record->patch + 2 * k;
    int64_t value = m->dims[pair[1]];
    if (value < INT32_MIN || value > INT32_MAX)
      return er_refuse(ER_BAD_ARGUMENT, "a parameter of node '%.80s' would be %lld", node_name(m, node),
                       (long long)value);
    params[pair[0]] = (int32_t)value;
  }
  CHECK(check_overlaps(m, node));
  char why[160] = "";
  er_call call = n->call;
  call.error = why;
  call.pool = NULL;
  call.fault = NULL;
  if (er_check_functions[n->kernel](&call))
    return er_refuse(ER_BAD_PLAN, "node '%.80s' (%s): %s", node_name(m, node), er_kernel_names[n->kernel], why);
  n->bound = 1;
  return ER_OK;
}

/* Dims, tensors and nodes of one stage. */
static int bind_stage(er_model *m, uint32_t stage) {
  CHECK(er_plan_dims(&m->plan, m->symbols, m->stages.dim, stage, m->dims));
  CHECK(bind_tensors(m, stage));
  for (uint32_t i = 0; i < m->plan.n_nodes; i++)
    if (in_stage(m->stages.node, i, stage)) CHECK(bind_node(m, i));
  return ER_OK;
}

int er_model_bind(er_model *m) {
  m->bound = 0;
  er_model_unbind_data(m);
  CHECK(bind_symbols(m));
  CHECK(bind_stage(m, 0));
  CHECK(check_input_shapes(m));
  m->bound = 1;
  return ER_OK;
}

void er_model_unbind_data(er_model *m) {
  if (!m->stages.node) return;
  for (uint32_t i = 0; i < m->plan.n_tensors; i++) if (m->stages.tensor[i]) m->tensors[i] = (er_view){0};
  for (uint32_t i = 0; i < m->plan.n_nodes; i++) {
    er_node *n = &m->nodes[i];
    if (!m->stages.node[i]) continue;
    n->bound = 0;
    memset((void *)(uintptr_t)n->call.in, 0, ((size_t)n->call.n_in + (size_t)n->call.n_out) * sizeof(er_view));
  }
}

/* Element k of a dense tensor of integers (control.c checks the dtype); what i64 cannot hold is its largest. */
static int64_t integer_at(const er_view *v, int64_t k) {
  switch (v->dtype) {
    case ER_I64: return ((const int64_t *)v->data)[k];
    case ER_I32: return ((const int32_t *)v->data)[k];
    default: return ((const uint8_t *)v->data)[k];
  }
}

int er_model_bind_data(er_model *m, uint32_t i) {
  const er_plan *p = &m->plan;
  const er_call *c = &m->nodes[i].call;
  for (int k = 2; k < c->n_param; k++) {
    const er_pdim *d = &p->dims[c->param[k]];
    int64_t raw = integer_at(&c->in[0], k - 2), value;
    if (__builtin_add_overflow(raw, (int64_t)c->param[1], &value)) value = raw < 0 ? INT64_MIN : INT64_MAX;
    if (c->param[0]) value = value < d->a ? d->a : value > d->b ? d->b : value;
    if (value < d->a || value > d->b)
      return er_refuse(ER_FAILED, "node '%.80s': %.60s is %lld; the plan is made for %lld to %lld", node_name(m, i),
                       er_plan_text(p, d->name), (long long)raw, (long long)d->a - c->param[1],
                       (long long)d->b - c->param[1]);
    m->symbols[d->v] = value;
  }
  return bind_stage(m, i + 1) ? ER_FAILED : ER_OK;
}

void er_model_connect(er_model *m) {
  for (uint32_t i = 0; i < m->plan.n_nodes; i++) {
    er_node *n = &m->nodes[i];
    n->call.pool = &m->pool;
    n->call.scratch = m->arena + m->plan.nodes[i].scratch;
    n->call.scratch_bytes = (size_t)m->plan.nodes[i].scratch_bytes;
    n->call.thread_scratch = m->thread_scratch;
    n->call.thread_scratch_bytes = (size_t)m->plan.header->thread_scratch_bytes;
    n->call.fault = &m->fault;
    n->run = er_level_run(m->isa, n->kernel);
  }
}
