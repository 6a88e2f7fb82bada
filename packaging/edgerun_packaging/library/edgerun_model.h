/* A packed model as a C library: ten functions, no global state, no dependency but libc, libm and threads.
 *
 *   edgerun_model *model;
 *   if (edgerun_open(NULL, 0, 0, &model)) fail(edgerun_error());
 *   edgerun_set_input(model, 0, image, (int64_t[]){1, 3, 224, 224}, 4);
 *   if (edgerun_run(model)) fail(edgerun_error());
 *   const float *scores = edgerun_output_data(model, 0);
 *   edgerun_close(model);
 *
 * With the shared library the model is inside it: edgerun_open(NULL, 0, ...). With the static library it is the object
 * file model.o, whose symbols are declared below: edgerun_open(edgerun_plan, edgerun_plan_bytes, ...).
 * A model may be used by one thread at a time; different models are independent of each other. */
#ifndef EDGERUN_MODEL_H
#define EDGERUN_MODEL_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct edgerun_model edgerun_model;

enum edgerun_status {
  EDGERUN_OK = 0,
  EDGERUN_BAD_MODEL = 1,    /* damaged, or made for another version or processor */
  EDGERUN_NO_MEMORY = 2,
  EDGERUN_BAD_ARGUMENT = 3, /* an index, a shape, or an input that was not set */
  EDGERUN_UNSUPPORTED = 4,
  EDGERUN_FAILED = 5        /* the values lead where the model cannot go on, such as an index out of range */
};

enum edgerun_dtype {
  EDGERUN_F32 = 1, EDGERUN_F64 = 2, EDGERUN_F16 = 3, EDGERUN_BF16 = 4,
  EDGERUN_I8 = 5, EDGERUN_I16 = 6, EDGERUN_I32 = 7, EDGERUN_I64 = 8,
  EDGERUN_U8 = 9, EDGERUN_U16 = 10, EDGERUN_U32 = 11, EDGERUN_U64 = 12,
  EDGERUN_BOOL = 13         /* a byte, 0 or 1 */
};

enum edgerun_side { EDGERUN_INPUT = 0, EDGERUN_OUTPUT = 1 };

typedef struct {
  const char *name;         /* valid while the model is open */
  int32_t dtype, rank;
  int64_t shape[8];         /* -1: depends on input shapes that are not given yet */
  uint64_t bytes;           /* dense, row by row; 0 while a dimension is -1 */
} edgerun_port;

/* 1. "edgerun 0.1.0" and the like. */
const char *edgerun_version(void);
/* 2. Why the last call in this thread failed: one sentence, valid until the next call. */
const char *edgerun_error(void);
/* 3. Checks the whole model, takes its memory, starts `threads` threads (0: one per big core). The plan, when given,
 *    must be 64-byte aligned and stay where it is until edgerun_close. */
int edgerun_open(const void *plan, size_t bytes, int threads, edgerun_model **model);
/* 4. NULL is allowed. */
void edgerun_close(edgerun_model *model);
/* 5. How many inputs or outputs there are. */
int edgerun_count(const edgerun_model *model, enum edgerun_side side);
/* 6. Input or output number `index`. */
int edgerun_describe(const edgerun_model *model, enum edgerun_side side, int index, edgerun_port *port);
/* 7. Where edgerun_run reads the values of an input: dense, in the byte order of the machine. `data` must stay valid;
 *    it is not written. `shape` may be NULL when the model fixes the shape. */
int edgerun_set_input(edgerun_model *model, int index, const void *data, const int64_t *shape, int rank);
/* 8. One inference. */
int edgerun_run(edgerun_model *model);
/* 9. The values of an output, valid until the next edgerun_run; NULL before the first, and for a wrong index. */
const void *edgerun_output_data(const edgerun_model *model, int index);
/* 10. Bytes of memory that the open model holds beside the weights, which stay in the file. */
uint64_t edgerun_memory(const edgerun_model *model);

/* model.o, for the static library. */
extern const unsigned char edgerun_plan[];
extern const uint64_t edgerun_plan_bytes;

#ifdef __cplusplus
}
#endif
#endif
