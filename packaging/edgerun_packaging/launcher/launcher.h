/* The program around a packed model: finds the plan behind its own executable and answers info, run, bench,
 * selftest, serve.
 * Every file here allocates nothing but bounded static buffers; tensors live in the runtime's arena. */
#ifndef EDGERUN_LAUNCHER_H
#define EDGERUN_LAUNCHER_H
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include "edgerun.h"
#include "pack_format.h"
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
void out_capture(char *to, size_t size);       /* from now on `out` writes there; NULL: to standard output again */
size_t out_captured(void);                      /* bytes so far; more than `size` when they did not fit */
/* Between catch_failures and release_failures a failure comes back as a `failure` instead of ending the process:
 *   if (setjmp(f.back)) ... else { catch_failures(&f); ...; } release_failures(); */
typedef struct { jmp_buf back; int code; char text[512]; } failure;
void catch_failures(failure *f);
void release_failures(void);
const char *dtype_name(int dtype);             /* "f32"; "?" when unknown */
void shape_text(char *buffer, size_t size, const int64_t *dim, int rank);     /* [1, 3, 224, 224] */

/* -- packed.c: the footer and the sections of the plan that the launcher itself reads */
typedef struct {
  const uint8_t *plan;      /* mapped read-only, plan_bytes long */
  uint64_t plan_bytes;
  uint64_t file_bytes;
  const er_pheader *header;
  uint64_t stub_bytes;
  uint64_t plan_offset;
  int fd;                   /* of the file itself */
  int is_signed;
  pack_signature signature; /* when is_signed */
} packed;
typedef struct { const uint8_t *data; uint64_t bytes; uint32_t count; } section;
void packed_open(packed *p, const char *argv0);                               /* fails with EXIT_IO */
section packed_section(const packed *p, uint32_t kind);                       /* zero when absent */
int weights_intact(const packed *p);                                          /* their checksum is right */

/* -- signature.c */
int plan_signed(int fd, uint64_t offset, uint64_t bytes, const pack_signature *block); /* by the owner of its key */

/* -- json.c: reading the manifest. A path is keys and array indices joined by dots: "golden.0.shapes.input". */
typedef struct { const char *text; size_t length; } json_value;               /* text NULL: absent */
json_value json_find(json_value document, const char *path);
double json_number(json_value v, double otherwise);
json_value json_unquoted(json_value v); /* a string without its quotes, still escaped */
json_value manifest(const packed *p);
int json_equals(json_value text, const char *plain);                          /* escapes undone */
int json_valid(json_value v);                   /* strictly one JSON value, nested at most 64 deep */
void out_json_or_null(json_value v);            /* a text as it stands, null for anything else */

/* -- options.c */
typedef struct { const char *name, *value; } named;                           /* name NULL: none was given */
typedef struct {
  const char *verb;
  named input[MAX_IO], shape[MAX_IO];
  int n_input, n_shape;
  const char *output_dir, *output, *threads, *isa, *listen;
  int json, layers, force, help, stream, allow_throttled, no_memory_check;
  long max_body;                                /* bytes; 0: what the largest inputs need */
  uint64_t seed;
  long runs, warmup;
  double seconds, timeout;
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

/* -- npy.c, npz.c: arrays in files, streams and memory */
typedef struct { int dtype, rank; int64_t dim[ER_MAX_RANK]; uint64_t bytes; } array_type;
typedef struct {
  int fd;
  int seekable;
  uint64_t offset;                              /* of the next byte to read */
  uint64_t left;                                /* bytes of this member, UINT64_MAX when unknown (a pipe) */
  const char *path;
  const uint8_t *memory;                        /* read from here instead of fd when not NULL */
} source;
source source_open(const char *path);           /* "-" is standard input */
source source_memory(const void *data, uint64_t bytes, const char *name);
void source_read(source *s, void *to, uint64_t bytes);                        /* exactly `bytes`, or fails */
int source_more(source *s);                     /* whether another byte follows */
void npy_read_header(source *s, array_type *type); /* fails with EXIT_IO; leaves s at the data */
enum { NPY_HEADER_LIMIT = 320 };
int npy_header(char *to, const er_io_info *info);  /* at most NPY_HEADER_LIMIT bytes; returns how many */
int npz_open(source *s, const char *member);    /* 0: no such member */
int ends_with(const char *text, const char *tail);

/* -- elements.c: numbers of any dtype */
int dtype_size(int dtype);
double element(const void *data, int dtype, uint64_t index);
void out_element(const void *data, int dtype, uint64_t index);                /* as JSON */
const char *set_element(void *data, int dtype, uint64_t index, const char *number); /* NULL, or what is wrong */
uint64_t element_count(const er_io_info *info);
void out_array_json(const er_io_info *info, const void *data);                /* {"name", "dtype", "shape"[, "values"]} */

/* -- inputs.c: where each input's bytes come from */
typedef struct {
  enum { FROM_ZEROS, FROM_RANDOM, FROM_FILE, FROM_NPY_STREAM, FROM_RAW_STREAM, FROM_MEMORY } kind;
  source file;                                  /* positioned at the data */
  array_type type;                              /* dtype 0: plain bytes, the model decides what they mean */
} feed;
typedef struct {
  er_model *model;
  feed feeds[MAX_IO];
  array_type own[MAX_IO];                       /* the model's shapes, -1 for free dimensions */
  array_type given[MAX_IO];                     /* --shape, where has_shape */
  int has_shape[MAX_IO];
  int n_inputs, n_outputs;
  int symbolic;                                 /* some input has free dimensions */
  int leader;                                   /* the input whose stream decides its shape; -1: none */
} bound;
void bound_open(bound *b, er_model *model);     /* counts only; feeds are the caller's */
void bind_inputs(bound *b, er_model *model, const options *o, int default_random);
void bind_shapes(bound *b);                     /* shapes of the feeds into the model */
int is_stream(const feed *f);
int next_record(bound *b);                      /* of the streams; 0 at their end or without any */
void fill_inputs(bound *b, uint64_t seed);      /* once before every er_run: the arena may reuse input memory */
void fill_random(void *to, int dtype, uint64_t bytes, uint64_t seed);         /* samples.c */

/* -- output.c: results as files and streams */
void write_folder(const bound *b, const char *directory, int force);          /* NAME.npy for each output */
void write_outputs(const bound *b, const char *destination, int force);       /* "-", "raw:-" or FILE.npz */
int is_standard_output(const char *destination);

/* -- system.c */
double seconds_now(void);
int online_cores(void);
size_t read_file(const char *path, char *buffer, size_t size);               /* NUL added; "" when unreadable */
void read_text(const char *path, char *buffer, size_t size);                  /* its first line */
void print_machine_json(int cores);

extern const char __executable_start[], _end[]; /* of the linker: all of the stub in memory */

/* -- ram.c: memory of this process, in bytes; -1 when /proc does not say */
typedef struct { int64_t rss_peak, rss, anonymous, file; } memory_use;
memory_use read_memory(void);
double ram_predicted(const packed *p, int threads);                           /* -1: the manifest has none */
void print_memory(const packed *p, int json, int threads, int parts);         /* beside the prediction */

/* -- limits.c */
void check_memory_limits(const packed *p, int threads);                       /* fails with EXIT_HARDWARE */

/* -- clock.c: what happened to the clock during a measurement; -1 when /sys does not say */
enum { THROTTLE_REASONS = 6 };
extern const char *const throttle_reason[THROTTLE_REASONS];
typedef struct {
  double mhz_min, mhz_max; /* of the fastest core, at each sample */
  double celsius_max;      /* of the hottest zone */
  int known;               /* whether anything tells about throttling */
  unsigned reasons;        /* bit i: throttle_reason[i] was seen */
  unsigned pi_before;
  uint64_t counters_before;
  double sampled;          /* seconds_now() of the last sample */
} clock_watch;
void clock_start(clock_watch *w);
void clock_sample(clock_watch *w);

/* -- http.c: one request's head */
typedef struct {
  enum { HTTP_OTHER, HTTP_GET, HTTP_POST } method;
  char path[128];
  enum { BODY_OTHER, BODY_JSON, BODY_NPY } type, accept;  /* accept BODY_OTHER: the same as the request */
  uint64_t body_bytes;
  size_t head_bytes;
  int keep_alive, expects_continue;
} request;
/* 0: more bytes are needed; 1: *r is filled; else the HTTP status that refuses the request, *reason says why. */
int http_parse(const char *data, size_t bytes, request *r, const char **reason);
const char *http_status_text(int status);

/* -- infer.c: the answer to one body */
typedef struct { char *data; size_t room, used; const char *type; } answer;
int infer(bound *b, const request *r, const uint8_t *body, answer *to);       /* returns the HTTP status */
uint64_t largest_request(const packed *p);      /* bytes of JSON for the largest inputs the plan allows */
uint64_t largest_answer(const packed *p);

/* -- verbs */
er_model *load_model(const packed *p, const options *o, int threads);  /* 0: one for each big core */
int verb_info(const packed *p, const options *o);
void print_info_json(const packed *p, er_model *model);
int verb_run(const packed *p, const options *o, double started);
int verb_bench(const packed *p, const options *o, double started);
int verb_selftest(const packed *p, const options *o);
int verb_serve(const packed *p, const options *o);
int verb_generate(const packed *p, const options *o);

/* -- verb_generate.c: language models */
int has_text(const packed *p);
void bench_text_open(const packed *p, er_model *model);
double bench_text_prompt(void); /* runs a prompt; its tokens a second */
double bench_text_step(void);   /* runs one token more, from the start again when the context is full; milliseconds */
#endif
