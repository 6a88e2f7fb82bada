/* Gathers: rows of a tensor by index. Indices are i32 or i64, see nd_index. */
#include "nd.h"

#ifdef ER_BASELINE_CHECKS
static int gather_check(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 2 && c->n_out == 1 && c->n_param == 1, "gather: bad call");
  const er_view *x = &c->in[0], *indices = &c->in[1], *out = &c->out[0];
  ER_REQUIRE(c, x->dtype == out->dtype && er_itemsize(x->dtype), "gather: dtypes differ");
  ER_REQUIRE(c, indices->dtype == ER_I32 || indices->dtype == ER_I64, "gather: index dtype %d", indices->dtype);
  ER_REQUIRE(c, er_is_dense(x) && er_is_dense(indices) && er_is_dense(out), "gather takes dense tensors");
  ER_REQUIRE(c, c->param[0] >= 0 && c->param[0] < nd_max(x->rank, 1), "gather: there is no axis %d", c->param[0]);
  return 0;
}
static int check_gather(const er_call *c) {
  if (gather_check(c)) return 1;
  const er_view *x = &c->in[0], *indices = &c->in[1], *out = &c->out[0];
  int axis = c->param[0];
  ER_REQUIRE(c, x->rank > 0 && out->rank == x->rank - 1 + indices->rank, "gather: bad ranks");
  for (int d = 0; d < axis; d++) ER_REQUIRE(c, out->dim[d] == x->dim[d], "gather: dim %d differs", d);
  for (int d = 0; d < indices->rank; d++)
    ER_REQUIRE(c, out->dim[axis + d] == indices->dim[d], "gather: index dim %d differs", d);
  for (int d = axis + 1; d < x->rank; d++)
    ER_REQUIRE(c, out->dim[d - 1 + indices->rank] == x->dim[d], "gather: dim %d differs", d);
  ER_REQUIRE(c, er_numel(out) == 0 || x->dim[axis] > 0, "gather from an empty axis");
  return 0;
}
static int check_gather_elements(const er_call *c) {
  if (gather_check(c)) return 1;
  const er_view *x = &c->in[0], *indices = &c->in[1];
  ER_REQUIRE(c, x->rank > 0 && indices->rank == x->rank && nd_same_shape(indices, &c->out[0]),
             "gather_elements: shapes differ");
  for (int d = 0; d < x->rank; d++)
    ER_REQUIRE(c, d == c->param[0] ? er_numel(indices) == 0 || x->dim[d] > 0 : indices->dim[d] <= x->dim[d],
               "gather_elements: dim %d does not fit", d);
  return 0;
}
/* gather_nd: parameter: batch dims. */
static int check_gather_nd(const er_call *c) {
  const er_view *x = &c->in[0], *indices = &c->in[1], *out = &c->out[0];
  ER_REQUIRE(c, c->n_in == 2 && c->n_out == 1 && c->n_param == 1 && indices->rank >= 1 && x->rank >= 1,
             "gather_nd: bad call");
  if (gather_check(c)) return 1;
  int64_t batch = c->param[0], depth = indices->dim[indices->rank - 1];
  ER_REQUIRE(c, batch < indices->rank && batch + depth <= x->rank, "gather_nd: bad index depth");
  ER_REQUIRE(c, out->rank == indices->rank - 1 + x->rank - batch - depth, "gather_nd: bad output rank");
  for (int d = 0; d < indices->rank - 1; d++)
    ER_REQUIRE(c, out->dim[d] == indices->dim[d], "gather_nd: dim %d differs", d);
  for (int d = 0; d < batch; d++) ER_REQUIRE(c, x->dim[d] == indices->dim[d], "gather_nd: batch dim %d differs", d);
  for (int d = indices->rank - 1, k = (int)(batch + depth); k < x->rank; d++, k++)
    ER_REQUIRE(c, out->dim[d] == x->dim[k], "gather_nd: dim %d differs", d);
  if (er_numel(out)) for (int d = 0; d < x->rank; d++) ER_REQUIRE(c, x->dim[d] > 0, "gather_nd from an empty tensor");
  return 0;
}
#endif

typedef struct { const er_call *c; int64_t outer, n, inner, count; int tasks; } gather_plan;

static void gather_copy(char *y, const char *x, int64_t bytes) {
  switch (bytes) {
    case 4: memcpy(y, x, 4); break;
    case 8: memcpy(y, x, 8); break;
    default: memcpy(y, x, (size_t)bytes);
  }
}

static void gather_task(void *context, int item, int thread) {
  (void)thread;
  const gather_plan *p = context;
  const er_call *c = p->c;
  int64_t from, to, bytes = p->inner * er_itemsize(c->in[0].dtype);
  nd_share(p->outer * p->count, item, p->tasks, &from, &to);
  for (int64_t k = from; k < to; k++) {
    int64_t i = nd_index(c, &c->in[1], k % p->count, p->n);
    gather_copy((char *)c->out[0].data + k * bytes, (const char *)c->in[0].data + (k / p->count * p->n + i) * bytes,
                bytes);
  }
}

static void run_gather(const er_call *c) {
  const er_view *x = &c->in[0];
  int axis = c->param[0];
  if (er_numel(&c->out[0]) == 0) return;
  gather_plan p = {c, nd_product(x, 0, axis), x->dim[axis], nd_product(x, axis + 1, x->rank), er_numel(&c->in[1]), 1};
  p.tasks = nd_tasks(c, p.outer * p.count, p.inner / 2 + 2);
  er_parallel(c->pool, gather_task, &p, p.tasks);
}

static void run_gather_elements(const er_call *c) {
  const er_view *x = &c->in[0], *indices = &c->in[1];
  int axis = c->param[0], size = er_itemsize(x->dtype);
  int64_t stride[ER_MAX_RANK], total = er_numel(indices);
  nd_strides(x, stride);
  for (int64_t k = 0; k < total; k++) {
    int64_t rest = k, at = 0;
    for (int d = x->rank - 1; d >= 0; d--) {
      at += (d == axis ? nd_index(c, indices, k, x->dim[d]) : rest % indices->dim[d]) * stride[d];
      rest /= indices->dim[d];
    }
    gather_copy((char *)c->out[0].data + k * size, (const char *)x->data + at * size, size);
  }
}

static void run_gather_nd(const er_call *c) {
  const er_view *x = &c->in[0], *indices = &c->in[1];
  int batch = c->param[0], depth = (int)indices->dim[indices->rank - 1];
  if (er_numel(&c->out[0]) == 0) return;
  int64_t bytes = nd_product(x, batch + depth, x->rank) * er_itemsize(x->dtype), batches = nd_product(x, 0, batch);
  int64_t points = nd_product(indices, batch, indices->rank - 1), space = nd_product(x, batch, batch + depth);
  for (int64_t k = 0; k < batches * points; k++) {
    int64_t at = 0;
    for (int d = 0; d < depth; d++) at = at * x->dim[batch + d] + nd_index(c, indices, k * depth + d, x->dim[batch + d]);
    gather_copy((char *)c->out[0].data + k * bytes, (const char *)x->data + (k / points * space + at) * bytes, bytes);
  }
}
