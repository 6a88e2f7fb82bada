/* From --input and --shape to bound shapes and filled input tensors. */
#include <stdlib.h>
#include <string.h>
#include "launcher.h"

static int find_input(const bound *b, const char *name) {
  er_io_info info;
  if (!name) {
    if (b->n_inputs == 1) return 0;
    fail(EXIT_USAGE, "the model has %d inputs; write --input NAME=... for each (see info)", b->n_inputs);
  }
  for (int i = 0; i < b->n_inputs; i++)
    if (er_input_info(b->model, i, &info) == 0 && !strcmp(info.name, name)) return i;
  er_input_info(b->model, 0, &info);
  fail(EXIT_USAGE, "there is no input '%s'; the first of %d is '%s' (see info)", name, b->n_inputs, info.name);
}

static void parse_shape(const char *text, array_type *type) {
  type->rank = 0;
  while (*text) {
    char *end;
    long n = strtol(text, &end, 10);
    if (end == text || n < 0 || type->rank == ER_MAX_RANK || (*end && *end != ','))
      fail(EXIT_USAGE, "--shape takes numbers such as x=1,3,224,224, not '%s'", text);
    type->dim[type->rank++] = n;
    text = *end ? end + 1 : end;
  }
}

static void open_feed(feed *f, const char *value, const char *input_name) {
  if (!strcmp(value, "zeros") || !strcmp(value, "random")) {
    f->kind = *value == 'z' ? FROM_ZEROS : FROM_RANDOM;
    return;
  }
  if (!strcmp(value, "-") || !strcmp(value, "raw:-")) {
    f->kind = *value == '-' ? FROM_NPY_STREAM : FROM_RAW_STREAM;
    f->file = source_open("-");
    return;
  }
  int is_npz = ends_with(value, ".npz"), is_npy = ends_with(value, ".npy");
  if (!is_npz && !is_npy && !ends_with(value, ".raw") && !ends_with(value, ".bin"))
    fail(EXIT_USAGE, "cannot tell what '%s' is; an input is .npy, .npz, .raw, random, zeros, - or raw:-", value);
  f->kind = FROM_FILE;
  f->file = source_open(value);
  if (is_npz) {
    source whole = f->file;
    if (!npz_open(&f->file, input_name)) {
      f->file = whole;
      if (!npz_open(&f->file, NULL)) fail(EXIT_USAGE, "%s has no member '%s'", value, input_name);
    }
  }
  if (is_npz || is_npy) {
    npy_read_header(&f->file, &f->type);
  } else {
    f->type.dtype = 0;
    f->type.bytes = f->file.left;
  }
}

static void check_feed(const feed *f, const er_io_info *info) {
  char got[128], want[128];
  if (f->type.dtype == 0) {
    if (f->type.bytes != info->bytes)
      fail(EXIT_USAGE, "%s holds %llu bytes, input '%s' takes %llu", f->file.path, (unsigned long long)f->type.bytes,
           info->name, (unsigned long long)info->bytes);
    return;
  }
  if (f->type.dtype != info->dtype)
    fail(EXIT_USAGE, "%s holds %s, input '%s' takes %s; convert it with numpy's astype", f->file.path,
         dtype_name(f->type.dtype), info->name, dtype_name(info->dtype));
  int same = f->type.rank == info->rank;
  for (int i = 0; same && i < info->rank; i++) same = f->type.dim[i] == info->dim[i];
  if (same) return;
  shape_text(got, sizeof got, f->type.dim, f->type.rank);
  shape_text(want, sizeof want, info->dim, info->rank);
  fail(EXIT_USAGE, "%s has shape %s, input '%s' takes %s", f->file.path, got, info->name, want);
}

static int has_free_dims(const array_type *t) {
  for (int k = 0; k < t->rank; k++)
    if (t->dim[k] < 0) return 1;
  return 0;
}

/* The shape input i gets: that of its array, else of --shape, else (without free dimensions) its own. */
static const array_type *shape_of(const bound *b, int i) {
  er_io_info info;
  const feed *f = &b->feeds[i];
  er_input_info(b->model, i, &info);
  if ((f->kind == FROM_FILE || f->kind == FROM_MEMORY || i == b->leader) && f->type.dtype) return &f->type;
  if (b->has_shape[i]) return &b->given[i];
  if (has_free_dims(&b->own[i])) {
    char text[128];
    shape_text(text, sizeof text, b->own[i].dim, b->own[i].rank);
    fail(EXIT_USAGE, "input '%s' has free dimensions %s; give --shape %s=...", info.name, text, info.name);
  }
  return &b->own[i];
}

void bind_shapes(bound *b) {
  const char *error = NULL;
  er_io_info info;
  for (int i = 0; i < b->n_inputs; i++) {
    const array_type *t = shape_of(b, i), *own = &b->own[i];
    er_input_info(b->model, i, &info);
    int fits = t->rank == own->rank;
    for (int k = 0; fits && k < t->rank; k++) fits = own->dim[k] < 0 || own->dim[k] == t->dim[k];
    if (!fits || (b->symbolic && er_set_input_shape(b->model, i, t->dim, t->rank))) {
      char got[128], want[128];
      shape_text(got, sizeof got, t->dim, t->rank);
      shape_text(want, sizeof want, own->dim, own->rank);
      fail(EXIT_USAGE, "shape %s does not fit input '%s', which takes %s", got, info.name, want);
    }
  }
  if (b->symbolic && er_bind(b->model, &error))
    fail(EXIT_USAGE, "the shapes do not fit: %s", error ? error : "unknown reason");
  for (int i = 0; i < b->n_inputs; i++) {
    er_input_info(b->model, i, &info);
    if (b->feeds[i].kind == FROM_FILE || b->feeds[i].kind == FROM_MEMORY || i == b->leader)
      check_feed(&b->feeds[i], &info);
  }
}

void bound_open(bound *b, er_model *model) {
  er_io_info info;
  b->model = model;
  b->n_inputs = er_input_count(model);
  b->n_outputs = er_output_count(model);
  b->leader = -1;
  if (b->n_inputs > MAX_IO) fail(EXIT_INTERNAL, "the model has more than %d inputs", MAX_IO);
  for (int i = 0; i < b->n_inputs; i++) {
    er_input_info(model, i, &info);
    b->own[i].rank = info.rank;
    memcpy(b->own[i].dim, info.dim, sizeof info.dim);
    b->symbolic |= has_free_dims(&b->own[i]);
  }
}

static void take_shapes(bound *b, const options *o) {
  for (int i = 0; i < o->n_shape; i++) {
    int k = find_input(b, o->shape[i].name);
    parse_shape(o->shape[i].value, &b->given[k]);
    b->has_shape[k] = 1;
  }
}

int is_stream(const feed *f) { return f->kind == FROM_NPY_STREAM || f->kind == FROM_RAW_STREAM; }

/* An .npy on standard input may decide the shape of a free input: then its header is read before the shapes are bound,
 * which works for one such input only, because the next header follows the data. */
static void find_leader(bound *b) {
  int streams = 0;
  er_io_info info;
  for (int i = 0; i < b->n_inputs; i++) streams += is_stream(&b->feeds[i]);
  for (int i = 0; i < b->n_inputs; i++) {
    er_input_info(b->model, i, &info);
    if (b->feeds[i].kind != FROM_NPY_STREAM || b->has_shape[i] || !has_free_dims(&b->own[i])) continue;
    if (streams > 1)
      fail(EXIT_USAGE, "several inputs come from standard input: give --shape %s=... for those with free dimensions",
           info.name);
    b->leader = i;
    npy_read_header(&b->feeds[i].file, &b->feeds[i].type);
  }
}

void bind_inputs(bound *b, er_model *model, const options *o, int default_random) {
  int has_feed[MAX_IO] = {0};
  er_io_info info;
  bound_open(b, model);
  take_shapes(b, o);
  for (int i = 0; i < o->n_input; i++) {
    const named *n = &o->input[i];
    int for_all =
        !n->name && (ends_with(n->value, ".npz") || !strcmp(n->value, "random") || !strcmp(n->value, "zeros"));
    int first = for_all ? 0 : find_input(b, n->name);
    for (int k = first; k < (for_all ? b->n_inputs : first + 1); k++) {
      er_input_info(model, k, &info);
      open_feed(&b->feeds[k], n->value, info.name);
      has_feed[k] = 1;
    }
  }
  for (int i = 0; i < b->n_inputs; i++) {
    if (has_feed[i]) continue;
    er_input_info(model, i, &info);
    if (!default_random)
      fail(EXIT_USAGE, "input '%s' is missing; give --input %s=FILE.npy (or random, zeros)", info.name, info.name);
    b->feeds[i].kind = FROM_RANDOM;
  }
  find_leader(b);
  bind_shapes(b);
}

int next_record(bound *b) {
  for (int i = 0; i < b->n_inputs; i++) {
    feed *f = &b->feeds[i];
    if (!is_stream(f)) continue;
    if (!source_more(&f->file)) return 0;
    if (b->leader < 0) return 1;
    array_type before = b->feeds[b->leader].type;
    npy_read_header(&b->feeds[b->leader].file, &b->feeds[b->leader].type);
    if (memcmp(&before, &b->feeds[b->leader].type, sizeof before)) bind_shapes(b);
    return 1;
  }
  return 0;
}

static void read_stream(bound *b, int i, const er_io_info *info) {
  feed *f = &b->feeds[i];
  if (f->kind == FROM_NPY_STREAM && i != b->leader) {
    npy_read_header(&f->file, &f->type);
    check_feed(f, info);
  }
  source_read(&f->file, er_input_data(b->model, i), info->bytes);
}

void fill_inputs(bound *b, uint64_t seed) {
  for (int i = 0; i < b->n_inputs; i++) {
    er_io_info info;
    er_input_info(b->model, i, &info);
    void *to = er_input_data(b->model, i);
    feed *f = &b->feeds[i];
    source again = f->file; /* a file is read anew for every run; a stream goes on */
    switch (f->kind) {
      case FROM_ZEROS: memset(to, 0, info.bytes); break;
      case FROM_RANDOM: fill_random(to, info.dtype, info.bytes, seed + (uint64_t)i); break;
      case FROM_NPY_STREAM:
      case FROM_RAW_STREAM: read_stream(b, i, &info); break;
      default: source_read(f->file.seekable ? &again : &f->file, to, info.bytes);
    }
  }
}
