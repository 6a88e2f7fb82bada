/* One kernel for runtime tests that other compilers build, and those that the interpreter acts on itself. */
#include <string.h>
#include "kernels/control.c"

#ifdef ER_BASELINE_CHECKS
static int check_copy_bytes(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 1 && c->n_out == 1 && c->in[0].data && c->out[0].data, "one tensor to another");
  ER_REQUIRE(c, er_is_dense(&c->in[0]) && er_is_dense(&c->out[0]), "dense tensors");
  int64_t from = er_numel(&c->in[0]) * er_itemsize(c->in[0].dtype);
  ER_REQUIRE(c, from == er_numel(&c->out[0]) * er_itemsize(c->out[0].dtype), "other sizes");
  return 0;
}
#endif

static void run_copy_bytes(const er_call *c) {
  size_t bytes = (size_t)(er_numel(&c->in[0]) * er_itemsize(c->in[0].dtype));
  if (bytes) memmove(c->out[0].data, c->in[0].data, bytes);
  /* The ends of the scratch are writable; what lies between may be gigabytes that a hostile plan asks for. */
  char *scratch = c->scratch, *own = er_thread_scratch(c, er_pool_threads(c->pool) - 1);
  if (c->scratch_bytes) scratch[0] = scratch[c->scratch_bytes - 1] = 1;
  if (c->thread_scratch_bytes) own[0] = own[c->thread_scratch_bytes - 1] = 1;
}
