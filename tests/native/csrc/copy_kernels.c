/* The one kernel of runtime tests that other compilers build. */
#include <string.h>
#include "kernel.h"

#ifdef ER_BASELINE_CHECKS
static int check_copy_bytes(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 1 && c->n_out == 1 && c->in[0].data && c->out[0].data, "one tensor to another");
  ER_REQUIRE(c, er_is_dense(&c->in[0]) && er_is_dense(&c->out[0]), "dense tensors");
  ER_REQUIRE(c, er_numel(&c->in[0]) * er_itemsize(c->in[0].dtype) == er_numel(&c->out[0]) * er_itemsize(c->out[0].dtype),
             "other sizes");
  return 0;
}
#endif

static void run_copy_bytes(const er_call *c) {
  size_t bytes = (size_t)(er_numel(&c->in[0]) * er_itemsize(c->in[0].dtype));
  if (bytes) memmove(c->out[0].data, c->in[0].data, bytes);
  if (c->scratch_bytes) memset(c->scratch, 0xaa, c->scratch_bytes);
  if (c->thread_scratch_bytes) memset(c->thread_scratch, 0xbb, c->thread_scratch_bytes);
}
