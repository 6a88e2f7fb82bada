/* The ten functions of edgerun_model.h over the runtime's interface. */
#include "edgerun_model.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "edgerun.h"
#include "error.h"
#include "own_plan.h"
#include "plan_format.h"

_Static_assert((int)EDGERUN_FAILED == (int)ER_FAILED && (int)EDGERUN_UNSUPPORTED == (int)ER_UNSUPPORTED, "statuses");
_Static_assert((int)EDGERUN_F32 == (int)ER_F32 && (int)EDGERUN_I8 == (int)ER_I8 && (int)EDGERUN_U8 == (int)ER_U8 &&
                   (int)EDGERUN_BOOL == (int)ER_BOOL, "dtypes");

#ifdef __GNUC__
#define PUBLIC __attribute__((visibility("default")))
#else
#define PUBLIC
#endif

struct edgerun_model {
  er_model *runtime;
  own_plan own;           /* empty when the caller gave the plan */
  int bound;              /* the runtime knows the shapes that were set */
  int ran;
  const void **data;      /* [inputs]; NULL: not set */
};

static _Thread_local char message[512];

static int refuse(int status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return status;
}

PUBLIC const char *edgerun_version(void) {
  static char text[32];
  snprintf(text, sizeof text, "edgerun %s", er_version());
  return text;
}

PUBLIC const char *edgerun_error(void) { return message; }

PUBLIC int edgerun_open(const void *plan, size_t bytes, int threads, edgerun_model **model) {
  *model = NULL;
  edgerun_model *m = calloc(1, sizeof *m);
  if (!m) return refuse(EDGERUN_NO_MEMORY, "no memory for a model");
  const char *error = NULL;
  int status = plan ? EDGERUN_OK : own_plan_open(&m->own, &error);
  if (status) refuse(status, "%s", error);
  if (!plan) plan = m->own.data, bytes = m->own.bytes;
  if (!status && (status = er_load(plan, bytes, threads, &m->runtime, &error))) refuse(status, "%s", error);
  if (!status && !(m->data = calloc((size_t)er_input_count(m->runtime) + 1, sizeof *m->data)))
    status = refuse(EDGERUN_NO_MEMORY, "no memory for a model");
  if (status) edgerun_close(m);
  else *model = m;
  return status;
}

PUBLIC void edgerun_close(edgerun_model *m) {
  if (!m) return;
  if (m->runtime) er_free(m->runtime);
  own_plan_close(&m->own);
  free(m->data);
  free(m);
}

PUBLIC int edgerun_count(const edgerun_model *m, enum edgerun_side side) {
  return side == EDGERUN_OUTPUT ? er_output_count(m->runtime) : er_input_count(m->runtime);
}

PUBLIC int edgerun_describe(const edgerun_model *m, enum edgerun_side side, int index, edgerun_port *port) {
  er_io_info info;
  if (index < 0 || index >= edgerun_count(m, side))
    return refuse(EDGERUN_BAD_ARGUMENT, "there is no %s number %d", side == EDGERUN_OUTPUT ? "output" : "input", index);
  int status = side == EDGERUN_OUTPUT ? er_output_info(m->runtime, index, &info) : er_input_info(m->runtime, index, &info);
  if (status) return refuse(status, "the %s cannot be described", side == EDGERUN_OUTPUT ? "output" : "input");
  *port = (edgerun_port){.name = info.name, .dtype = info.dtype, .rank = info.rank, .bytes = info.bytes};
  memcpy(port->shape, info.dim, sizeof port->shape);
  return EDGERUN_OK;
}

PUBLIC int edgerun_set_input(edgerun_model *m, int index, const void *data, const int64_t *shape, int rank) {
  edgerun_port port;
  int status = edgerun_describe(m, EDGERUN_INPUT, index, &port);
  if (status) return status;
  if (!data) return refuse(EDGERUN_BAD_ARGUMENT, "input '%.80s' has no data", port.name);
  if (shape) {
    int same = rank == port.rank;
    for (int i = 0; same && i < rank; i++) same = shape[i] == port.shape[i];
    if (!same) {
      if ((status = er_set_input_shape(m->runtime, index, shape, rank))) return refuse(status, "%s", er_error_text());
      m->bound = m->ran = 0;
    }
  }
  m->data[index] = data;
  return EDGERUN_OK;
}

PUBLIC int edgerun_run(edgerun_model *m) {
  const char *error = NULL;
  int status;
  if (!m->bound && (status = er_bind(m->runtime, &error))) return refuse(status, "%s", error);
  m->bound = 1;
  for (int i = 0; i < er_input_count(m->runtime); i++) {
    er_io_info info;
    er_input_info(m->runtime, i, &info);
    if (!m->data[i]) return refuse(EDGERUN_BAD_ARGUMENT, "input '%.80s' was not set", info.name);
    memcpy(er_input_data(m->runtime, i), m->data[i], (size_t)info.bytes);
  }
  m->ran = 0;
  if ((status = er_run(m->runtime, &error))) return refuse(status, "%s", error);
  m->ran = 1;
  return EDGERUN_OK;
}

PUBLIC const void *edgerun_output_data(const edgerun_model *m, int index) {
  if (index < 0 || index >= er_output_count(m->runtime)) {
    refuse(EDGERUN_BAD_ARGUMENT, "there is no output number %d", index);
    return NULL;
  }
  if (!m->ran) {
    refuse(EDGERUN_BAD_ARGUMENT, "there are no outputs before edgerun_run");
    return NULL;
  }
  return er_output_data(m->runtime, index);
}

PUBLIC uint64_t edgerun_memory(const edgerun_model *m) { return er_arena_bytes(m->runtime); }
