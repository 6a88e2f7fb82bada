/* Copies without arithmetic. */
#include <string.h>
#include "../kernel.h"

#ifdef ER_BASELINE_CHECKS
static int check_copy_bytes(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 1 && c->n_out == 1 && c->in[0].data && c->out[0].data, "copy_bytes takes one tensor to another");
  ER_REQUIRE(c, er_is_dense(&c->in[0]) && er_is_dense(&c->out[0]), "copy_bytes takes dense tensors");
  int64_t from = er_numel(&c->in[0]) * er_itemsize(c->in[0].dtype);
  int64_t to = er_numel(&c->out[0]) * er_itemsize(c->out[0].dtype);
  ER_REQUIRE(c, from == to, "copy_bytes from %lld to %lld bytes", (long long)from, (long long)to);
  return 0;
}
#endif

static void run_copy_bytes(const er_call *c) {
  size_t bytes = (size_t)(er_numel(&c->in[0]) * er_itemsize(c->in[0].dtype));
  if (c->in[0].data != c->out[0].data && bytes) memcpy(c->out[0].data, c->in[0].data, bytes);
}
