/* The run-time state of a loaded model, shared by bind.c (shapes) and runtime.c (the interface). */
#ifndef EDGERUN_MODEL_H
#define EDGERUN_MODEL_H
#include "edgerun.h"
#include "plan.h"
#include "pool.h"

typedef struct {
  er_run_fn run;
  er_call call;        /* in, out, param point into the model's tables or the plan */
  int32_t kernel;      /* in the order of kernels.def */
  int32_t max_threads; /* 0: no limit */
  uint8_t flow;        /* enum er_flow */
  uint8_t bound;       /* views and parameters are those of the current sizes, and checked */
  uint8_t ran;         /* in the last profiled or watched run */
  double seconds;      /* of the last profiled run */
} er_node;

struct er_model {
  er_plan plan;
  er_node *nodes;        /* [n_nodes] */
  er_view *views;        /* [sum of n_in + n_out], node after node */
  er_view *tensors;      /* [n_tensors], valid while bound */
  int64_t *dims;         /* [n_dims], valid while bound */
  int64_t *symbols;      /* [n_symbols] */
  int64_t *input_shapes; /* [n_inputs][ER_MAX_RANK], -1 where er_set_input_shape was not called */
  int32_t *params;       /* copies of the parameters of nodes with patches */
  er_stages stages;      /* NULL where no size comes from the data */
  er_fault fault;
  uint8_t *arena, *thread_scratch;
  size_t thread_scratch_bytes; /* of all threads together */
  er_pool pool;          /* pool.team has `threads` threads */
  int threads;
  int isa;
  int bound;
  int profile;
  int watch_node, watch_output;
  void *watch_to;        /* NULL: no watch */
  size_t watch_bytes;
};

/* Evaluates shapes from input_shapes, fills all views and patches that they decide, and asks every kernel. */
int er_model_bind(er_model *m);
/* At the start of a run: forgets the sizes that came from the data of the last one. */
void er_model_unbind_data(er_model *m);
/* Gives the symbols of node `i`, a bind_sizes, their values and binds what depends on them. ER_FAILED with a sentence. */
int er_model_bind_data(er_model *m, uint32_t i);
/* Points every node at its scratch and its kernel at the current ISA level. */
void er_model_connect(er_model *m);
#endif
