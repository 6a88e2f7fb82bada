/* The C interface of the runtime: what ctypes, the launcher and a user's C program call. Not thread safe per model. */
#ifndef EDGERUN_H
#define EDGERUN_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct er_model er_model;

enum er_status { ER_OK = 0, ER_BAD_PLAN = 1, ER_NO_MEMORY = 2, ER_BAD_ARGUMENT = 3, ER_UNSUPPORTED = 4 };

typedef struct { const char *name; int32_t dtype, rank; int64_t dim[8]; uint64_t bytes; } er_io_info;

/* Validates the whole plan, allocates the arena (one mmap), starts `threads` threads (0: one per big core).
 * `plan` must stay mapped and 64-byte aligned while the model lives. On failure *error gets a sentence (static per thread). */
int er_load(const void *plan, size_t bytes, int threads, er_model **model, const char **error);
void er_free(er_model *model);

int er_input_count(const er_model *model);
int er_output_count(const er_model *model);
int er_input_info(const er_model *model, int index, er_io_info *info);   /* dim: bound value, or -1 while a symbol is unbound */
int er_output_info(const er_model *model, int index, er_io_info *info);
/* Symbolic models: give every input's shape, then bind. Fixed models are bound by er_load. */
int er_set_input_shape(er_model *model, int index, const int64_t *dim, int rank);
int er_bind(er_model *model, const char **error);
void *er_input_data(er_model *model, int index);   /* write `bytes` here before every er_run: the arena may reuse it */
const void *er_output_data(const er_model *model, int index); /* valid until the next er_run */
int er_run(er_model *model, const char **error);

int er_set_threads(er_model *model, int threads);
int er_threads(const er_model *model);
const char *er_isa(const er_model *model);         /* e.g. "avx512", "neon-dotprod" */
int er_set_isa(er_model *model, const char *isa);  /* a level this CPU has; for tests and comparisons */

/* Per-node inspection: names, kernel, and (after er_profile(model, 1)) seconds of the last run. */
int er_node_count(const er_model *model);
const char *er_node_name(const er_model *model, int index);
const char *er_node_kernel(const er_model *model, int index);
double er_node_seconds(const er_model *model, int index);
void er_profile(er_model *model, int on);
/* Copies node `index`'s output `k` right after that node ran, during the next er_run (NULL: stop). For verify and selftest. */
int er_watch(er_model *model, int index, int k, void *destination, size_t bytes);

uint64_t er_arena_bytes(const er_model *model);
uint64_t er_plan_weight_bytes(const er_model *model);
const char *er_version(void);
#ifdef __cplusplus
}
#endif
#endif
