/* Control flow. The interpreter (runtime.c) acts on skip_unless, fail and bind_sizes itself; a plan's checks know them too (plan.c).
 * What passed-over nodes would have computed holds stale bytes: select reads only the result of the branch that ran. */
#include <string.h>
#include "../kernel.h"

/* skip_unless: flag (one bool); parameters: wanted value, number of nodes to pass over when the flag differs. */
#ifdef ER_BASELINE_CHECKS
static int check_skip_unless(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 1 && c->n_out == 0 && c->n_param == 2, "skip_unless takes a flag");
  ER_REQUIRE(c, c->in[0].data && c->in[0].dtype == ER_BOOL && er_numel(&c->in[0]) == 1,
             "skip_unless: the flag is not one bool");
  return 0;
}

/* bind_sizes: integers (i64, i32, u8 or bool) become the values of symbols. Parameters: 1 = hold them to the symbol's
 * bounds, what to add to each, then the dim number of the symbol of each element (plan.c checks these). */
static int check_bind_sizes(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 1 && c->n_out == 0 && c->n_param >= 2 && (c->param[0] == 0 || c->param[0] == 1),
             "bind_sizes takes one tensor");
  const er_view *in = &c->in[0];
  ER_REQUIRE(c, in->data && (in->dtype == ER_I64 || in->dtype == ER_I32 || in->dtype == ER_U8 || in->dtype == ER_BOOL),
             "bind_sizes: dtype %d", in->dtype);
  ER_REQUIRE(c, er_is_dense(in) && er_numel(in) == c->n_param - 2, "bind_sizes: %lld elements for %d symbols",
             (long long)er_numel(in), c->n_param - 2);
  return 0;
}

/* expect: parameters: pairs of numbers that must be equal once the sizes are known. It has nothing to run. */
static int check_expect(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 0 && c->n_out == 0 && c->n_param % 2 == 0, "expect has pairs of numbers");
  for (int k = 0; k < c->n_param; k += 2)
    ER_REQUIRE(c, c->param[k] == c->param[k + 1], "a size is %d where the model declares %d", c->param[k],
               c->param[k + 1]);
  return 0;
}

/* fail: the parameter is the offset of the message in STRINGS. */
static int check_fail(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 0 && c->n_out == 0 && c->n_param == 1, "fail has nothing but a message");
  return 0;
}

/* select: flag (one bool), a, b -> out, the bytes of a where the flag is true, else of b. */
static int check_select(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 3 && c->n_out == 1 && c->n_param == 0, "select takes a flag and two tensors");
  ER_REQUIRE(c, c->in[0].data && c->in[0].dtype == ER_BOOL && er_numel(&c->in[0]) == 1,
             "select: the flag is not one bool");
  const er_view *out = &c->out[0];
  for (int k = 1; k < 3; k++) {
    const er_view *in = &c->in[k];
    ER_REQUIRE(c, in->data && out->data && er_is_dense(in) && er_is_dense(out), "select takes dense tensors");
    ER_REQUIRE(c, in->dtype == out->dtype && er_numel(in) == er_numel(out), "select: input %d is not like the output", k);
  }
  return 0;
}
#endif

static void run_skip_unless(const er_call *c) { (void)c; }
static void run_fail(const er_call *c) { (void)c; }
static void run_bind_sizes(const er_call *c) { (void)c; }
static void run_expect(const er_call *c) { (void)c; }

static void run_select(const er_call *c) {
  const er_view *from = &c->in[*(const uint8_t *)c->in[0].data ? 1 : 2], *out = &c->out[0];
  size_t bytes = (size_t)(er_numel(out) * er_itemsize(out->dtype));
  if (from->data != out->data && bytes) memcpy(out->data, from->data, bytes);
}
