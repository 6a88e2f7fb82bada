/* code_table: x, 8-bit codes, and table [256] by the bits of a code -> y of x's shape, bytes or f32. */
#include "nd.h"

#ifdef ER_BASELINE_CHECKS
static int check_code_table(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 2 && c->n_out == 1 && c->n_param == 0, "code_table: bad call");
  const er_view *x = &c->in[0], *table = &c->in[1], *y = &c->out[0];
  ER_REQUIRE(c, (x->dtype == ER_I8 || x->dtype == ER_U8) && er_is_dense(x), "code_table takes dense codes");
  ER_REQUIRE(c, y->dtype == ER_I8 || y->dtype == ER_U8 || y->dtype == ER_F32, "code_table gives bytes or f32");
  ER_REQUIRE(c, nd_same_shape(x, y) && er_is_dense(y), "code_table: shapes differ");
  ER_REQUIRE(c, table->dtype == y->dtype && er_numel(table) == 256 && er_is_dense(table), "code_table: bad table");
  return 0;
}
#endif

typedef struct { const er_call *c; int64_t total; int tasks; } code_table_job;

static void code_table_task(void *context, int item, int thread) {
  (void)thread;
  const code_table_job *j = context;
  const uint8_t *x = j->c->in[0].data;
  int64_t from, to;
  nd_share(j->total, item, j->tasks, &from, &to);
  if (j->c->out[0].dtype == ER_F32) {
    const float *table = j->c->in[1].data;
    float *y = j->c->out[0].data;
    for (int64_t i = from; i < to; i++) y[i] = table[x[i]];
    return;
  }
  uint8_t table[256]; /* a copy: y may not change it */
  memcpy(table, j->c->in[1].data, sizeof table);
  uint8_t *y = j->c->out[0].data;
  int64_t i = from;
  for (; i + 8 <= to; i += 8) {
    uint64_t in, out = 0;
    memcpy(&in, x + i, 8);
#pragma GCC unroll 8
    for (int k = 0; k < 64; k += 8) out |= (uint64_t)table[in >> k & 255] << k;
    memcpy(y + i, &out, 8);
  }
  for (; i < to; i++) y[i] = table[x[i]];
}

static void run_code_table(const er_call *c) {
  code_table_job j = {c, er_numel(&c->in[0]), 1};
  if (j.total == 0) return;
  j.tasks = nd_tasks(c, (j.total + 255) / 256, 256);
  er_parallel(c->pool, code_table_task, &j, j.tasks);
}
