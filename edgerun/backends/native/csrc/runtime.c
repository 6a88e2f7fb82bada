/* The C interface: edgerun.h. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "denormals.h"
#include "cpu.h"
#include "error.h"
#include "memory.h"
#include "model.h"

#define VERSION "0.1.0"
#define CHECK(step) do { int status_ = (step); if (status_) return status_; } while (0)

static int explain(int status, const char **error) {
  if (error) *error = status ? er_error_text() : NULL;
  return status;
}

static size_t arena_pages(const er_model *m) {
  uint64_t bytes = m->plan.header->arena_bytes;
  return bytes ? (size_t)bytes : 64;
}

/* -- loading */

/* All tables of the model. Their sizes are bounded by the plan's (plan.c). */
static int take_tables(er_model *m) {
  const er_plan *p = &m->plan;
  size_t views = 0, params = 0;
  for (uint32_t i = 0; i < p->n_nodes; i++) {
    views += (size_t)p->nodes[i].n_in + p->nodes[i].n_out;
    params += p->nodes[i].n_patch ? p->nodes[i].n_param : 0;
  }
  m->nodes = calloc((size_t)p->n_nodes + 1, sizeof *m->nodes);
  m->views = calloc(views + 1, sizeof *m->views);
  m->tensors = calloc((size_t)p->n_tensors + 1, sizeof *m->tensors);
  m->dims = calloc((size_t)p->n_dims + 1, sizeof *m->dims);
  m->symbols = calloc((size_t)p->header->n_symbols + 1, sizeof *m->symbols);
  m->input_shapes = malloc(((size_t)p->header->n_inputs + 1) * ER_MAX_RANK * sizeof *m->input_shapes);
  m->params = calloc(params + 1, sizeof *m->params);
  if (!m->nodes || !m->views || !m->tensors || !m->dims || !m->symbols || !m->input_shapes || !m->params)
    return er_refuse(ER_NO_MEMORY, "no memory for the tables of %u nodes", p->n_nodes);
  memset(m->input_shapes, -1, (size_t)p->header->n_inputs * ER_MAX_RANK * sizeof *m->input_shapes);
  return ER_OK;
}

/* When each dim, tensor and node is known; nothing for the usual plan, whose sizes the inputs' shapes decide. */
static int take_stages(er_model *m) {
  const er_plan *p = &m->plan;
  if (!er_plan_is_staged(p)) return ER_OK;
  uint32_t *all = calloc((size_t)p->n_dims + p->n_tensors + p->n_nodes + 1, sizeof *all);
  if (!all) return er_refuse(ER_NO_MEMORY, "no memory for the tables of %u nodes", p->n_nodes);
  m->stages = (er_stages){all, all + p->n_dims, all + p->n_dims + p->n_tensors};
  return er_plan_stages(p, &m->stages);
}

/* Whether no dim of an input is free. */
static int has_fixed_inputs(const er_plan *p) {
  for (uint32_t i = 0; i < p->header->n_inputs; i++) {
    const er_ptensor *t = &p->tensors[p->io[i].tensor];
    for (uint32_t k = 0; k < t->rank; k++) if (p->dims[p->words[t->dims + k]].op != ER_DIM_CONST) return 0;
  }
  return 1;
}

static void fill_nodes(er_model *m) {
  const er_plan *p = &m->plan;
  er_view *views = m->views;
  int32_t *params = m->params;
  for (uint32_t i = 0; i < p->n_nodes; i++) {
    const er_pnode *record = &p->nodes[i];
    er_node *n = &m->nodes[i];
    n->kernel = er_kernel_find(er_plan_text(p, p->kernels[record->kernel]));
    n->flow = (uint8_t)er_kernel_flow(er_kernel_names[n->kernel]);
    n->max_threads = record->max_threads;
    n->call = (er_call){.in = views, .out = views + record->n_in, .n_in = record->n_in, .n_out = record->n_out};
    n->call.param = p->words + record->param;
    n->call.n_param = (int)record->n_param;
    views += (size_t)record->n_in + record->n_out;
    if (!record->n_patch) continue;
    n->call.param = memcpy(params, p->words + record->param, record->n_param * sizeof *params);
    params += record->n_param;
  }
}

static int take_arena(er_model *m) {
  size_t bytes = arena_pages(m);
  if (bytes > er_memory_limit())
    return er_refuse(ER_NO_MEMORY, "the model needs an arena of %zu bytes, the machine has %zu bytes of memory", bytes,
                     er_memory_limit());
  m->arena = er_pages_take(bytes);
  return m->arena ? ER_OK : er_refuse(ER_NO_MEMORY, "no memory for an arena of %zu bytes", bytes);
}

static int set_threads(er_model *m, int threads) {
  if (threads < 0 || threads > ER_MAX_THREADS)
    return er_refuse(ER_BAD_ARGUMENT, "%d threads; between 1 and %d are possible", threads, ER_MAX_THREADS);
  if (!threads) threads = er_default_threads();
#ifdef ER_NO_THREADS
  threads = 1;
#endif
  if (threads == m->threads) return ER_OK;
  size_t bytes = (size_t)m->plan.header->thread_scratch_bytes * (size_t)threads;
  uint8_t *scratch = NULL;
  if (bytes > er_memory_limit() || (bytes && !(scratch = er_pages_take(bytes))))
    return er_refuse(ER_NO_MEMORY, "no memory for %zu bytes of scratch for %d threads", bytes, threads);
  er_team *team = NULL;
  if (threads > 1 && !(team = er_team_start(threads))) {
    er_pages_give(scratch, bytes);
    return er_refuse(ER_NO_MEMORY, "the system did not start %d threads", threads);
  }
  er_team_stop(m->pool.team);
  er_pages_give(m->thread_scratch, m->thread_scratch_bytes);
  m->pool.team = team;
  m->threads = threads;
  m->thread_scratch = scratch;
  m->thread_scratch_bytes = bytes;
  er_model_connect(m);
  return ER_OK;
}

static int load(er_model *m, const void *plan, size_t bytes, int threads) {
  if (er_cpu_missing()) return er_refuse(ER_UNSUPPORTED, "this CPU has no %s", er_cpu_missing());
  m->isa = er_level_best();
  if (m->isa < 0) return er_refuse(ER_UNSUPPORTED, "ER_ISA names a level that this CPU does not have");
  CHECK(er_plan_open(&m->plan, plan, bytes));
  CHECK(take_tables(m));
  CHECK(take_stages(m));
  CHECK(take_arena(m));
  fill_nodes(m);
  CHECK(set_threads(m, threads));
  return has_fixed_inputs(&m->plan) ? er_model_bind(m) : ER_OK;
}

int er_load(const void *plan, size_t bytes, int threads, er_model **model, const char **error) {
  er_model *m = calloc(1, sizeof *m);
  int status = m ? load(m, plan, bytes, threads) : er_refuse(ER_NO_MEMORY, "no memory for a model");
  if (status) {
    er_free(m);
    m = NULL;
  }
  *model = m;
  return explain(status, error);
}

void er_free(er_model *m) {
  if (!m) return;
  er_team_stop(m->pool.team);
  er_pages_give(m->thread_scratch, m->thread_scratch_bytes);
  if (m->arena) er_pages_give(m->arena, arena_pages(m));
  free(m->stages.dim);
  free(m->params);
  free(m->input_shapes);
  free(m->symbols);
  free(m->dims);
  free(m->tensors);
  free(m->views);
  free(m->nodes);
  free(m);
}

/* -- inputs and outputs */

int er_input_count(const er_model *m) { return (int)m->plan.header->n_inputs; }
int er_output_count(const er_model *m) { return (int)m->plan.header->n_outputs; }

/* Shape and type of tensor `t`; dims that are not known are -1. */
static void describe(const er_model *m, uint32_t t, const char *name, er_io_info *info) {
  const er_plan *p = &m->plan;
  const er_ptensor *record = &p->tensors[t];
  *info = (er_io_info){.name = name, .dtype = record->dtype, .rank = record->rank};
  const er_view *v = &m->tensors[t];
  if (m->bound && v->dtype) {
    memcpy(info->dim, v->dim, sizeof info->dim);
    info->bytes = (uint64_t)er_numel(v) * (uint64_t)er_itemsize(v->dtype);
    return;
  }
  for (int k = 0; k < record->rank; k++) {
    const er_pdim *d = &p->dims[p->words[record->dims + (uint32_t)k]];
    info->dim[k] = d->op == ER_DIM_CONST ? d->v : -1;
  }
}

static int io_info(const er_model *m, int64_t index, int64_t count, int64_t first, er_io_info *info) {
  if (index < 0 || index >= count) return er_refuse(ER_BAD_ARGUMENT, "there is no input or output %d", (int)index);
  const er_pio *io = &m->plan.io[first + index];
  describe(m, io->tensor, er_plan_text(&m->plan, io->name), info);
  return ER_OK;
}

int er_input_info(const er_model *m, int index, er_io_info *info) {
  return io_info(m, index, er_input_count(m), 0, info);
}

int er_output_info(const er_model *m, int index, er_io_info *info) {
  return io_info(m, index, er_output_count(m), er_input_count(m), info);
}

int er_set_input_shape(er_model *m, int index, const int64_t *dim, int rank) {
  er_io_info info;
  CHECK(er_input_info(m, index, &info));
  if (rank != info.rank)
    return er_refuse(ER_BAD_ARGUMENT, "input '%.80s' has rank %d, not %d", info.name, info.rank, rank);
  const er_ptensor *t = &m->plan.tensors[m->plan.io[index].tensor];
  for (int k = 0; k < rank; k++) {
    const er_pdim *d = &m->plan.dims[m->plan.words[t->dims + (uint32_t)k]];
    if (dim[k] < 0 || (d->op == ER_DIM_CONST && dim[k] != d->v))
      return er_refuse(ER_BAD_ARGUMENT, "axis %d of input '%.80s' cannot have size %lld", k, info.name,
                       (long long)dim[k]);
  }
  memcpy(m->input_shapes + (size_t)index * ER_MAX_RANK, dim, (size_t)rank * sizeof *dim);
  m->bound = 0;
  return ER_OK;
}

int er_bind(er_model *m, const char **error) { return explain(er_model_bind(m), error); }

static void *io_data(const er_model *m, int64_t index, int64_t count, int64_t first) {
  if (index < 0 || index >= count) return NULL;
  const er_ptensor *t = &m->plan.tensors[m->plan.io[first + index].tensor];
  const uint8_t *space = t->space == ER_SPACE_ARENA ? m->arena : m->plan.weights;
  return (void *)(uintptr_t)(space + t->offset);
}

void *er_input_data(er_model *m, int index) { return io_data(m, index, er_input_count(m), 0); }
const void *er_output_data(const er_model *m, int index) {
  return io_data(m, index, er_output_count(m), er_input_count(m));
}

/* -- running */

static double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int report_fault(er_model *m, const er_node *n) {
  er_fault fault = m->fault;
  m->fault.kind = ER_FAULT_NONE;
  const char *what = fault.kind == ER_FAULT_INDEX ? "index %lld is outside an axis of %lld elements"
                                                  : "length %lld is outside 0..%lld";
  char text[120];
  snprintf(text, sizeof text, what, (long long)fault.value, (long long)fault.size);
  return er_refuse(ER_FAILED, "node '%.80s': %s", er_node_name(m, (int)(n - m->nodes)), text);
}

static int run_node(er_model *m, er_node *n) {
  if (!n->bound)
    return er_refuse(ER_FAILED, "node '%.80s' comes before its sizes are known", er_node_name(m, (int)(n - m->nodes)));
  m->pool.threads = n->max_threads && n->max_threads < m->threads ? n->max_threads : m->threads;
  n->run(&n->call);
  return m->fault.kind ? report_fault(m, n) : ER_OK;
}

/* Copies a view without its row gaps. */
static void copy_dense(const er_view *v, uint8_t *to) {
  size_t width = (size_t)(v->rank ? v->dim[v->rank - 1] : 1) * (size_t)er_itemsize(v->dtype);
  size_t stride = (size_t)v->ld * (size_t)er_itemsize(v->dtype), rows = 1;
  for (int k = 0; k + 1 < v->rank; k++) rows *= (size_t)v->dim[k];
  for (size_t r = 0; r < rows && width; r++) memcpy(to + r * width, (const uint8_t *)v->data + r * stride, width);
}

static int copy_watched(const er_model *m, const er_view *v) {
  if ((uint64_t)er_numel(v) * (uint64_t)er_itemsize(v->dtype) > m->watch_bytes)
    return er_refuse(ER_BAD_ARGUMENT, "the watched output does not fit into %zu bytes", m->watch_bytes);
  copy_dense(v, m->watch_to);
  return ER_OK;
}

/* How many nodes to pass over after this skip_unless; within the plan (plan.c). */
static uint32_t nodes_skipped(const er_node *n) {
  int flag = *(const uint8_t *)n->call.in[0].data != 0;
  return flag == n->call.param[0] ? 0 : (uint32_t)n->call.param[1];
}

static int refuse_at(const er_model *m, uint32_t i) {
  const er_plan *p = &m->plan;
  return er_refuse(ER_FAILED, "node '%.80s': %.300s", er_plan_text(p, p->nodes[i].name),
                   er_plan_text(p, (uint32_t)m->nodes[i].call.param[0]));
}

/* A node on which the interpreter acts itself; *i moves past nodes that do not run. */
static int run_flow(er_model *m, uint32_t *i) {
  const er_node *n = &m->nodes[*i];
  if (n->flow == ER_FLOW_FAIL) return refuse_at(m, *i);
  if (!n->bound) return er_refuse(ER_FAILED, "node '%.80s' comes before its sizes are known", er_node_name(m, (int)*i));
  if (n->flow == ER_FLOW_SIZES) return er_model_bind_data(m, *i);
  *i += nodes_skipped(n);
  return ER_OK;
}

static int run_plain(er_model *m) {
  for (uint32_t i = 0; i < m->plan.n_nodes; i++) {
    er_node *n = &m->nodes[i];
    if (n->flow == ER_FLOW_NONE) CHECK(run_node(m, n));
    else CHECK(run_flow(m, &i));
  }
  return ER_OK;
}

static int run_observed(er_model *m) {
  for (uint32_t i = 0; i < m->plan.n_nodes; i++) {
    m->nodes[i].ran = 0;
    if (m->profile) m->nodes[i].seconds = 0;
  }
  for (uint32_t i = 0; i < m->plan.n_nodes; i++) {
    er_node *n = &m->nodes[i];
    uint32_t at = i;
    double start = m->profile ? seconds_now() : 0;
    if (n->flow == ER_FLOW_NONE) CHECK(run_node(m, n));
    else CHECK(run_flow(m, &i));
    if (m->profile) n->seconds = seconds_now() - start;
    n->ran = 1;
    if (m->watch_to && m->watch_node == (int)at) CHECK(copy_watched(m, &n->call.out[m->watch_output]));
  }
  return ER_OK;
}

int er_run(er_model *m, const char **error) {
  if (!m->bound) return explain(er_refuse(ER_BAD_ARGUMENT, "the shapes of the inputs are not bound"), error);
  er_model_unbind_data(m);
  er_float_mode floats = er_flush_denormals();
  int status = m->profile || m->watch_to ? run_observed(m) : run_plain(m);
  er_restore_floats(floats);
  return explain(status, error);
}

/* -- settings and inspection */

int er_set_threads(er_model *m, int threads) { return set_threads(m, threads); }
int er_threads(const er_model *m) { return m->threads; }
const char *er_isa(const er_model *m) { return er_level_at(m->isa)->level->isa; }

int er_set_isa(er_model *m, const char *isa) {
  int level = er_level_find(isa);
  if (!er_level_usable(level)) return er_refuse(ER_BAD_ARGUMENT, "this CPU or this build has no level '%.40s'", isa);
  m->isa = level;
  er_model_connect(m);
  return ER_OK;
}

int er_node_count(const er_model *m) { return (int)m->plan.n_nodes; }
static int has_node(const er_model *m, int index) { return index >= 0 && index < er_node_count(m); }
const char *er_node_name(const er_model *m, int index) {
  return has_node(m, index) ? er_plan_text(&m->plan, m->plan.nodes[index].name) : "";
}
const char *er_node_kernel(const er_model *m, int index) {
  return has_node(m, index) ? er_kernel_names[m->nodes[index].kernel] : "";
}
int er_node_ran(const er_model *m, int index) { return has_node(m, index) && m->nodes[index].ran; }
double er_node_seconds(const er_model *m, int index) { return has_node(m, index) ? m->nodes[index].seconds : 0; }
void er_profile(er_model *m, int on) { m->profile = on; }

/* The tensor number of a node's output, -1 when there is none. */
static int32_t output_tensor(const er_model *m, int index, int k) {
  if (!has_node(m, index) || k < 0 || k >= m->plan.nodes[index].n_out) return -1;
  return er_plan_outputs(&m->plan, &m->plan.nodes[index])[k];
}

int er_node_output_info(const er_model *m, int index, int k, er_io_info *info) {
  int32_t t = output_tensor(m, index, k);
  if (t < 0) return er_refuse(ER_BAD_ARGUMENT, "node %d has no output %d", index, k);
  describe(m, (uint32_t)t, er_plan_text(&m->plan, m->plan.tensors[t].name), info);
  return ER_OK;
}

int er_watch(er_model *m, int index, int k, void *destination, size_t bytes) {
  if (destination && output_tensor(m, index, k) < 0)
    return er_refuse(ER_BAD_ARGUMENT, "node %d has no output %d", index, k);
  m->watch_node = index;
  m->watch_output = k;
  m->watch_to = destination;
  m->watch_bytes = bytes;
  return ER_OK;
}

uint64_t er_arena_bytes(const er_model *m) { return m->plan.header->arena_bytes; }
uint64_t er_plan_weight_bytes(const er_model *m) { return m->plan.weight_bytes; }
const char *er_version(void) { return VERSION; }
const char *er_level_name(int index) {
  return index < 0 || index >= er_level_count() ? NULL : er_level_at(index)->level->isa;
}
