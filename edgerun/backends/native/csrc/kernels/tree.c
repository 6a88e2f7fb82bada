/* Ensembles of decision trees, see edgerun/ops/ml_tree.py. Inputs: x [N, F] f32 or f64, roots, features, modes,
 * thresholds, yes, no, missing, offsets, targets, weights (all constants) -> y [N, width]. Parameters: aggregate (0
 * sum, 1 average, 2 min, 3 max). Thread scratch: 16 bytes for each output. Sums are in double. */
#include <math.h>
#include "nd.h"

enum {
  TREE_X,
  TREE_ROOTS,
  TREE_FEATURES,
  TREE_MODES,
  TREE_THRESHOLDS,
  TREE_YES,
  TREE_NO,
  TREE_MISSING,
  TREE_OFFSETS,
  TREE_TARGETS,
  TREE_WEIGHTS,
  TREE_INPUTS
};
enum { TREE_SUM, TREE_AVERAGE, TREE_MIN, TREE_MAX };

#ifdef ER_BASELINE_CHECKS
static int check_tree_ensemble(const er_call *c) {
  ER_REQUIRE(c,
             c->n_in == TREE_INPUTS && c->n_out == 1 && c->n_param == 1 && c->param[0] >= 0 && c->param[0] <= TREE_MAX,
             "trees: bad call");
  const er_view *x = &c->in[TREE_X], *y = &c->out[0];
  int t = x->dtype;
  ER_REQUIRE(c, x->rank == 2 && y->rank == 2 && x->dim[0] == y->dim[0] && (t == ER_F32 || t == ER_F64) && y->dtype == t,
             "trees: bad tensors");
  static const int dtypes[TREE_INPUTS] = {0, ER_I32, ER_I32, ER_U8, 0, ER_I32, ER_I32, ER_BOOL, ER_I32, ER_I32, 0};
  for (int i = 0; i < TREE_INPUTS; i++)
    ER_REQUIRE(c, c->in[i].data && er_is_dense(&c->in[i]) && c->in[i].dtype == (dtypes[i] ? dtypes[i] : t),
               "trees: bad table %d", i);
  int64_t nodes = er_numel(&c->in[TREE_FEATURES]), leaves = er_numel(&c->in[TREE_OFFSETS]) - 1,
          votes = er_numel(&c->in[TREE_TARGETS]);
  for (int i = TREE_FEATURES; i <= TREE_MISSING; i++)
    ER_REQUIRE(c, er_numel(&c->in[i]) == nodes, "trees: table %d has another size", i);
  ER_REQUIRE(c, leaves >= 0 && er_numel(&c->in[TREE_WEIGHTS]) == votes && er_is_dense(y), "trees: bad leaves");
  ER_REQUIRE(c, (int64_t)c->thread_scratch_bytes >= 16 * y->dim[1], "trees: too little thread scratch");
  const int32_t *features = c->in[TREE_FEATURES].data, *offsets = c->in[TREE_OFFSETS].data,
                *targets = c->in[TREE_TARGETS].data;
  const uint8_t *modes = c->in[TREE_MODES].data;
  for (int64_t i = 0; i < nodes; i++)
    ER_REQUIRE(c, features[i] >= 0 && features[i] < x->dim[1] && modes[i] < 6, "trees: bad node");
  static const int references[] = {TREE_ROOTS, TREE_YES, TREE_NO};
  for (int k = 0; k < 3; k++) {
    const int32_t *r = c->in[references[k]].data;
    for (int64_t i = 0; i < er_numel(&c->in[references[k]]); i++)
      ER_REQUIRE(c, r[i] >= 0 ? r[i] < nodes : -1 - (int64_t)r[i] < leaves, "trees: bad reference");
  }
  ER_REQUIRE(c, offsets[0] >= 0 && offsets[leaves] <= votes, "trees: bad offsets");
  for (int64_t i = 0; i < leaves; i++) ER_REQUIRE(c, offsets[i] <= offsets[i + 1], "trees: bad offsets");
  for (int64_t i = 0; i < votes; i++) ER_REQUIRE(c, targets[i] >= 0 && targets[i] < y->dim[1], "trees: bad target");
  return 0;
}
#endif

static int tree_holds(double v, double limit, int mode) {
  switch (mode) {
    case 0: return v <= limit;
    case 1: return v < limit;
    case 2: return v >= limit;
    case 3: return v > limit;
    case 4: return v == limit;
    default: return v != limit;
  }
}
static double tree_number(const er_view *v, int64_t at) {
  return v->dtype == ER_F32 ? ((const float *)v->data)[at] : ((const double *)v->data)[at];
}

typedef struct { const er_call *c; int64_t rows; int tasks; } tree_plan;

static void tree_task(void *context, int item, int thread) {
  const tree_plan *p = context;
  const er_call *c = p->c;
  const er_view *x = &c->in[TREE_X], *y = &c->out[0];
  const int32_t *roots = c->in[TREE_ROOTS].data, *features = c->in[TREE_FEATURES].data, *yes = c->in[TREE_YES].data,
                *no = c->in[TREE_NO].data;
  const int32_t *offsets = c->in[TREE_OFFSETS].data, *targets = c->in[TREE_TARGETS].data;
  const uint8_t *modes = c->in[TREE_MODES].data, *missing = c->in[TREE_MISSING].data;
  int64_t from, to, width = y->dim[1], trees = er_numel(&c->in[TREE_ROOTS]), nodes = er_numel(&c->in[TREE_FEATURES]);
  double *sum = er_thread_scratch(c, thread), *touched = sum + width;
  int aggregate = c->param[0];
  nd_share(p->rows, item, p->tasks, &from, &to);
  for (int64_t row = from; row < to; row++) {
    for (int64_t j = 0; j < width; j++) {
      sum[j] = aggregate == TREE_MIN ? INFINITY : aggregate == TREE_MAX ? -INFINITY : 0;
      touched[j] = 0;
    }
    for (int64_t t = 0; t < trees; t++) {
      int32_t r = roots[t];
      for (int64_t step = 0; r >= 0 && step < nodes; step++) { /* a cycle ends here without a leaf */
        double v = tree_number(x, row * x->dim[1] + features[r]);
        r = tree_holds(v, tree_number(&c->in[TREE_THRESHOLDS], r), modes[r]) || (missing[r] && v != v) ? yes[r] : no[r];
      }
      if (r >= 0) continue;
      int64_t leaf = -1 - (int64_t)r;
      for (int32_t k = offsets[leaf]; k < offsets[leaf + 1]; k++) {
        double w = tree_number(&c->in[TREE_WEIGHTS], k), *s = &sum[targets[k]];
        touched[targets[k]] = 1;
        if (aggregate <= TREE_AVERAGE) *s += w;
        else *s = aggregate == TREE_MIN ? (w < *s ? w : *s) : w > *s ? w : *s;
      }
    }
    for (int64_t j = 0; j < width; j++) {
      double v = aggregate == TREE_AVERAGE                  ? sum[j] / (double)trees
                 : aggregate == TREE_SUM || touched[j] != 0 ? sum[j]
                                                            : 0;
      if (y->dtype == ER_F32) ((float *)y->data)[row * width + j] = (float)v;
      else ((double *)y->data)[row * width + j] = v;
    }
  }
}

static void run_tree_ensemble(const er_call *c) {
  tree_plan p = {c, c->in[TREE_X].dim[0], 1};
  if (p.rows == 0) return;
  p.tasks = nd_tasks(c, p.rows, 32 * er_numel(&c->in[TREE_ROOTS]));
  er_parallel(c->pool, tree_task, &p, p.tasks);
}
