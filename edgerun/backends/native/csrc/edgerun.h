/* The C interface of the runtime: what ctypes, the launcher and a user's C program call. Not thread safe per model. */
#ifndef EDGERUN_H
#define EDGERUN_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct er_model er_model;

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif
enum er_status { ER_OK = 0, ER_BAD_PLAN = 1, ER_NO_MEMORY = 2, ER_BAD_ARGUMENT = 3, ER_UNSUPPORTED = 4,
                 ER_FAILED = 5 /* the model says so: its values lead where it cannot go on */ };

typedef struct { const char *name; int32_t dtype, rank; int64_t dim[8]; uint64_t bytes; } er_io_info;

/* Validates the whole plan, allocates the arena (one mmap), starts `threads` threads (0: one per big core; at most
 * ER_MAX_THREADS, the caller included). `plan` must stay mapped and 64-byte aligned while the model lives. On failure
 * *error gets a sentence (static per thread). */
#define ER_MAX_THREADS 64
int er_load(const void *plan, size_t bytes, int threads, er_model **model, const char **error);
void er_free(er_model *model);

int er_input_count(const er_model *model);
int er_output_count(const er_model *model);
/* dim: the bound value; -1 (and bytes 0) while it depends on a symbol that is not bound. Sizes of outputs that the data
 * decide are those of the last run. */
int er_input_info(const er_model *model, int index, er_io_info *info);
int er_output_info(const er_model *model, int index, er_io_info *info);
/* Symbolic models: give every input's shape, then bind. Fixed models are bound by er_load. */
int er_set_input_shape(er_model *model, int index, const int64_t *dim, int rank);
int er_bind(er_model *model, const char **error);
void *er_input_data(er_model *model, int index);   /* write `bytes` here before every er_run: the arena may reuse it */
const void *er_output_data(const er_model *model, int index); /* valid until the next er_run or write to an input */
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
/* Output k of node `index`; its name, and the shape it has now. ER_BAD_ARGUMENT when the node has no such output. */
int er_node_output_info(const er_model *model, int index, int k, er_io_info *info);
/* Copies node `index`'s output `k` (dense) right after that node ran, during every er_run (NULL: stop). One at a time;
 * `bytes` is the room at `destination`. For verify and selftest. */
int er_watch(er_model *model, int index, int k, void *destination, size_t bytes);
/* Whether node `index` ran in the last er_run that was profiled or watched: nodes of a branch not taken do not, their
 * seconds are 0 and nothing is copied for a watch. */
int er_node_ran(const er_model *model, int index);

uint64_t er_arena_bytes(const er_model *model);        /* without the scratch of each thread */
uint64_t er_plan_weight_bytes(const er_model *model);
/* Keeps the calling thread on the big cores (a launcher's main thread). The pool's threads are there already. */
void er_prefer_big_cores(void);
uint64_t er_fnv1a(const void *data, size_t bytes);       /* the checksum of the plan's tables */
uint64_t er_fnv1a_words(const void *data, size_t bytes); /* that of the weights: 8-byte words, zero padded */
/* What this build has: names of the ISA levels (best usable last) and of the kernels. NULL past the end. */
const char *er_level_name(int index);
int er_level_usable(int index);
const char *er_kernel_name(int index);
const char *er_version(void);
#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
