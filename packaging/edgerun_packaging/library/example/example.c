/* Runs the model once on zeros and prints its ports and the first value of each output.
 *
 *   cc example.c -I. -L. -lmodel -Wl,-rpath,'$ORIGIN' -o example          with the shared library
 *   cc example.c -DSTATIC -I. model.o libedgerun.a -lm -lpthread -ldl -o example    with the static one
 */
#include <stdio.h>
#include <stdlib.h>
#include "edgerun_model.h"

static void fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, edgerun_error());
  exit(1);
}

static void print_port(const char *side, const edgerun_port *port) {
  printf("%s %s: dtype %d, shape", side, port->name, port->dtype);
  for (int k = 0; k < port->rank; k++) printf(" %lld", (long long)port->shape[k]);
  printf("\n");
}

int main(void) {
  edgerun_model *model;
  edgerun_port port;
#ifdef STATIC
  if (edgerun_open(edgerun_plan, (size_t)edgerun_plan_bytes, 1, &model)) fail("open");
#else
  if (edgerun_open(NULL, 0, 1, &model)) fail("open");
#endif
  printf("%s, %llu bytes of memory\n", edgerun_version(), (unsigned long long)edgerun_memory(model));
  int inputs = edgerun_count(model, EDGERUN_INPUT);
  void **values = calloc((size_t)inputs + 1, sizeof *values);
  for (int i = 0; i < inputs; i++) {
    int64_t elements = 1;
    if (edgerun_describe(model, EDGERUN_INPUT, i, &port)) fail("describe");
    for (int k = 0; k < port.rank; k++) {
      if (port.shape[k] < 0) port.shape[k] = 1; /* a free dimension: here 1 */
      elements *= port.shape[k];
    }
    print_port("input", &port);
    values[i] = calloc((size_t)elements, 8);
    if (!values[i] || edgerun_set_input(model, i, values[i], port.shape, port.rank)) fail(port.name);
  }
  if (edgerun_run(model)) fail("run");
  for (int i = 0; i < edgerun_count(model, EDGERUN_OUTPUT); i++) {
    if (edgerun_describe(model, EDGERUN_OUTPUT, i, &port)) fail("describe");
    print_port("output", &port);
    if (port.dtype == EDGERUN_F32 && port.bytes) printf("  first value %g\n", *(const float *)edgerun_output_data(model, i));
  }
  edgerun_close(model);
  for (int i = 0; i < inputs; i++) free(values[i]);
  free(values);
  return 0;
}
