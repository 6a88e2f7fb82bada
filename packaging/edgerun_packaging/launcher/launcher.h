/* The program around a packed model: finds the plan behind its own executable and answers info, run, bench, selftest.
 * Every file here allocates nothing but bounded static buffers; tensors live in the runtime's arena. */
#ifndef EDGERUN_LAUNCHER_H
#define EDGERUN_LAUNCHER_H
#include <stddef.h>
#include <stdint.h>
#include "edgerun.h"
#include "plan_format.h"

enum exit_code { EXIT_OK = 0, EXIT_NEGATIVE = 1, EXIT_USAGE = 2, EXIT_HARDWARE = 3, EXIT_IO = 5, EXIT_INTERNAL = 70 };
enum { MAX_IO = 64 };

/* -- text.c: buffered standard output, messages, JSON pieces */
void set_program(const char *argv0);
const char *program(void);                     /* base name of argv[0] */
_Noreturn void fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));     /* one line on standard error */
void out(const char *format, ...) __attribute__((format(printf, 1, 2)));
void out_bytes(const void *data, size_t bytes);
void out_json_text(const char *text, size_t length); /* quoted and escaped; what is no UTF-8 becomes U+FFFD */
void out_json_number(double value);                                           /* "nan", "inf", "-inf" as text */
void out_flush(void);
const char *dtype_name(int dtype);             /* "f32"; "?" when unknown */
void shape_text(char *buffer, size_t size, const int64_t *dim, int rank);     /* [1, 3, 224, 224] */

/* -- packed.c: the footer and the sections of the plan that the launcher itself reads */
typedef struct {
  const uint8_t *plan;      /* mapped read-only, plan_bytes long */
  uint64_t plan_bytes;
  uint64_t file_bytes;
  const er_pheader *header;
  uint64_t stub_bytes;
} packed;
typedef struct { const uint8_t *data; uint64_t bytes; uint32_t count; } section;
void packed_open(packed *p, const char *argv0);                               /* fails with EXIT_IO */
section packed_section(const packed *p, uint32_t kind);                       /* zero when absent */

/* -- json.c: reading the manifest. A path is keys and array indices joined by dots: "golden.0.shapes.input". */
typedef struct { const char *text; size_t length; } json_value;               /* text NULL: absent */
json_value json_find(json_value document, const char *path);
double json_number(json_value v, double otherwise);
json_value json_unquoted(json_value v); /* a string without its quotes, still escaped */
json_value manifest(const packed *p);

/* -- options.c */
typedef struct { const char *name, *value; } named;                           /* name NULL: none was given */
typedef struct {
  const char *verb;
  named input[MAX_IO], shape[MAX_IO];
  int n_input, n_shape;
  const char *output_dir, *threads, *isa;
  int json, layers, force, help;
  uint64_t seed;
  long runs, warmup;
  double seconds;
  const char *prompt;                           /* of generate */
  long limit, top_k;
  double temperature, top_p;
  int chat;
  char shape_names[1024];                       /* storage behind input[].name and shape[].name */
  size_t names_used;
} options;
void parse_options(options *o, int argc, char **argv);                        /* fails with EXIT_USAGE */
long parse_count(const char *text, const char *what, long low, long high);
void print_help(const options *o);

/* -- npy.c: arrays in files */
typedef struct { int dtype, rank; int64_t dim[ER_MAX_RANK]; uint64_t bytes; } array_type;
typedef struct {
  int fd;
  int seekable;
  uint64_t offset;                              /* of the next byte to read */
  uint64_t left;                                /* bytes of this member, UINT64_MAX when unknown (a pipe) */
  const char *path;
} source;
void npy_read_header(source *s, array_type *type); /* fails with EXIT_IO; leaves s at the data */
void source_read(source *s, void *to, uint64_t bytes);                        /* exactly `bytes`, or fails */
void npy_write(const char *directory, const char *name, const er_io_info *info, const void *data, int force);
int npz_open(source *s, const char *member);                                  /* 0: no such member */
source source_open(const char *path);                                         /* "-" is standard input */
int ends_with(const char *text, const char *tail);

/* -- inputs.c: where each input's bytes come from */
typedef struct {
  enum { FROM_ZEROS, FROM_RANDOM, FROM_FILE } kind;
  source file;                                  /* positioned at the data */
  array_type type;
} feed;
typedef struct { er_model *model; feed feeds[MAX_IO]; int n_inputs, n_outputs; } bound;
void bind_inputs(bound *b, er_model *model, const options *o, int default_random);
void fill_inputs(bound *b, uint64_t seed);      /* once before every er_run: the arena may reuse input memory */
void fill_random(void *to, int dtype, uint64_t bytes, uint64_t seed);

/* -- system.c: what the kernel says about this process and board */
typedef struct { int64_t rss_peak, rss, anonymous, file; } memory_use;       /* bytes; -1 when /proc does not say */
typedef struct { double mhz, celsius; int throttled; } clock_state;          /* -1 when /sys does not say */
double seconds_now(void);
memory_use read_memory(void);
clock_state read_clock(void);
int online_cores(void);
void read_text(const char *path, char *buffer, size_t size);                  /* first line, "" when unreadable */

/* -- verbs */
er_model *load_model(const packed *p, const options *o, int threads);
int verb_info(const packed *p, const options *o);
int verb_run(const packed *p, const options *o, double started);
int verb_bench(const packed *p, const options *o, double started);
int verb_selftest(const packed *p, const options *o);
int verb_generate(const packed *p, const options *o);

/* -- verb_generate.c: language models */
int has_text(const packed *p);
int bench_text(const packed *p, const options *o, int cores);
/* -- verb_bench.c */
enum { MAX_COUNTS = 16 };
int thread_counts(const char *text, int cores, int default_count, int *counts);
void print_memory(const packed *p, const options *o, memory_use use);
double element(const void *data, int dtype, uint64_t index);                  /* any dtype as double */
#endif
