/* Index arithmetic that the kernels share: strides of views, broadcasting, collapsing, splitting of work. */
#ifndef EDGERUN_ND_H
#define EDGERUN_ND_H
#include <string.h>
#include "../kernel.h"

#define ND_INLINE static inline __attribute__((unused))

ND_INLINE int64_t nd_min(int64_t a, int64_t b) { return a < b ? a : b; }
ND_INLINE int64_t nd_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* Element strides of a view, whose rows may be `ld` apart. */
ND_INLINE void nd_strides(const er_view *v, int64_t *stride) {
  int64_t step = 1;
  for (int d = v->rank - 1; d >= 0; d--) {
    stride[d] = step;
    step = d == v->rank - 1 && v->rank > 1 ? v->ld : step * v->dim[d];
  }
}
ND_INLINE int nd_is_dense(const er_view *v) {
  return v->rank < 2 || v->ld == v->dim[v->rank - 1] || er_numel(v) <= v->dim[v->rank - 1];
}

ND_INLINE int nd_same_shape(const er_view *a, const er_view *b) {
  if (a->rank != b->rank) return 0;
  for (int d = 0; d < a->rank; d++) if (a->dim[d] != b->dim[d]) return 0;
  return 1;
}
/* Product of dims [from, to). */
ND_INLINE int64_t nd_product(const er_view *v, int from, int to) {
  int64_t n = 1;
  for (int d = from; d < to; d++) n *= v->dim[d];
  return n;
}

/* Element `at` of an i32 or i64 index tensor into n elements; negative ones count from the end. An index outside ends
 * the run with an error; until the kernel returns it is held to 0, so that nothing outside the tensor is touched. */
ND_INLINE int64_t nd_index(const er_call *c, const er_view *v, int64_t at, int64_t n) {
  int64_t given = v->dtype == ER_I64 ? ((const int64_t *)v->data)[at] : ((const int32_t *)v->data)[at];
  int64_t i = given < 0 ? given + n : given;
  if (i >= 0 && i < n) return i;
  er_report(c, ER_FAULT_INDEX, given, n);
  return 0;
}

/* How many tasks to cut `units` units of about `cost` element operations each into: one when small, a few a thread. */
ND_INLINE int nd_tasks(const er_call *c, int64_t units, int64_t cost) {
  int threads = er_pool_threads(c->pool);
  if (threads <= 1 || units <= 1) return 1;
  int64_t by_cost = units * nd_max(cost, 1) / 16384;
  return (int)nd_max(1, nd_min(nd_min(by_cost, units), 4 * (int64_t)threads));
}
/* The units [*from, *to) of task `item` of `tasks`. */
ND_INLINE void nd_share(int64_t units, int item, int tasks, int64_t *from, int64_t *to) {
  *from = units * item / tasks;
  *to = units * (item + 1) / tasks;
}
#endif
