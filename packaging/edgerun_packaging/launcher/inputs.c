/* From --input and --shape to bound shapes and filled input tensors. */
#include <stdlib.h>
#include <string.h>
#include "launcher.h"

/* splitmix64 of the element's number: the same values as edgerun/cli/inputs.py draws. */
static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/* For multiples of 2^-10 in [-1, 1): those are normal numbers or zero in half precision. */
static uint16_t half_from_float(float f) {
  union {
    float f;
    uint32_t u;
  } v = {f};
  uint32_t sign = v.u >> 16 & 0x8000, exponent = v.u >> 23 & 255;
  return (uint16_t)(f == 0 ? sign : sign | ((exponent - 112) << 10) | (v.u >> 13 & 1023));
}

/* Floats: multiples of 2^-10 in [-1, 1), exact in every float type but bf16 (cut off). Bytes: all values. Wider
 * integers and bools: 0 or 1, so that they are valid as indices and masks. */
void fill_random(void *to, int dtype, uint64_t bytes, uint64_t seed) {
  for (uint64_t i = 0, n; i < bytes; i += n) {
    uint64_t index, r;
    float f;
    union {
      float f;
      uint32_t u;
    } word;
    switch (dtype) {
      case ER_F64:
      case ER_I64:
      case ER_U64: n = 8; break;
      case ER_F32:
      case ER_I32:
      case ER_U32: n = 4; break;
      case ER_I8:
      case ER_U8:
      case ER_BOOL: n = 1; break;
      default: n = 2;
    }
    index = i / n;
    r = mix(mix(seed) + index);
    f = (float)((int)(r >> 53) - 1024) / 1024.0f;
    word.f = f;
    void *at = (char *)to + i;
    switch (dtype) {
      case ER_F32: memcpy(at, &f, 4); break;
      case ER_F64: memcpy(at, &(double){f}, 8); break;
      case ER_F16: memcpy(at, &(uint16_t){half_from_float(f)}, 2); break;
      case ER_BF16: memcpy(at, &(uint16_t){(uint16_t)(word.u >> 16)}, 2); break;
      case ER_I8:
      case ER_U8: *(uint8_t *)at = (uint8_t)(r >> 56); break;
      default:
        memset(at, 0, n);
        *(uint8_t *)at = (uint8_t)(r >> 63);
        break; /* little-endian */
    }
  }
}

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
  int is_npz = ends_with(value, ".npz"), is_npy = ends_with(value, ".npy") || !strcmp(value, "-");
  if (!is_npz && !is_npy && !ends_with(value, ".raw") && !ends_with(value, ".bin"))
    fail(EXIT_USAGE, "cannot tell what '%s' is; an input is .npy, .npz, .raw, random, zeros or -", value);
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
  if (f->kind != FROM_FILE) return;
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

static int has_free_dims(const er_io_info *info) {
  for (int k = 0; k < info->rank; k++)
    if (info->dim[k] < 0) return 1;
  return 0;
}

/* The shape input i gets: that of its file, else of --shape, else (without free dimensions) its own. */
static array_type shape_of(const bound *b, int i, const array_type *given, int has_shape) {
  er_io_info info;
  array_type own = {0};
  er_input_info(b->model, i, &info);
  if (b->feeds[i].kind == FROM_FILE && b->feeds[i].type.dtype) return b->feeds[i].type;
  if (has_shape) return *given;
  if (has_free_dims(&info)) {
    char text[128];
    shape_text(text, sizeof text, info.dim, info.rank);
    fail(EXIT_USAGE, "input '%s' has free dimensions %s; give --shape %s=...", info.name, text, info.name);
  }
  own.rank = info.rank;
  memcpy(own.dim, info.dim, sizeof own.dim);
  return own;
}

static void bind_shapes(bound *b, const array_type *given, const int *has_shape) {
  const char *error = NULL;
  int symbolic = 0;
  er_io_info info;
  for (int i = 0; i < b->n_inputs; i++) {
    er_input_info(b->model, i, &info);
    symbolic |= has_free_dims(&info);
  }
  for (int i = 0; i < b->n_inputs; i++) {
    array_type t = shape_of(b, i, &given[i], has_shape[i]);
    er_input_info(b->model, i, &info);
    int fits = t.rank == info.rank;
    for (int k = 0; fits && k < t.rank; k++) fits = info.dim[k] < 0 || info.dim[k] == t.dim[k];
    if (!fits || (symbolic && er_set_input_shape(b->model, i, t.dim, t.rank))) {
      char got[128], want[128];
      shape_text(got, sizeof got, t.dim, t.rank);
      shape_text(want, sizeof want, info.dim, info.rank);
      fail(EXIT_USAGE, "shape %s does not fit input '%s', which takes %s", got, info.name, want);
    }
  }
  if (symbolic && er_bind(b->model, &error))
    fail(EXIT_USAGE, "the shapes do not fit: %s", error ? error : "unknown reason");
}

void bind_inputs(bound *b, er_model *model, const options *o, int default_random) {
  static array_type given[MAX_IO];
  int has_shape[MAX_IO] = {0}, has_feed[MAX_IO] = {0};
  er_io_info info;
  b->model = model;
  b->n_inputs = er_input_count(model);
  b->n_outputs = er_output_count(model);
  if (b->n_inputs > MAX_IO) fail(EXIT_INTERNAL, "the model has more than %d inputs", MAX_IO);
  for (int i = 0; i < o->n_shape; i++) {
    int k = find_input(b, o->shape[i].name);
    parse_shape(o->shape[i].value, &given[k]);
    has_shape[k] = 1;
  }
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
  bind_shapes(b, given, has_shape);
  for (int i = 0; i < b->n_inputs; i++) {
    er_input_info(model, i, &info);
    check_feed(&b->feeds[i], &info);
  }
}

void fill_inputs(bound *b, uint64_t seed) {
  for (int i = 0; i < b->n_inputs; i++) {
    er_io_info info;
    er_input_info(b->model, i, &info);
    void *to = er_input_data(b->model, i);
    feed *f = &b->feeds[i];
    if (f->kind == FROM_ZEROS) memset(to, 0, info.bytes);
    else if (f->kind == FROM_RANDOM) fill_random(to, info.dtype, info.bytes, seed + (uint64_t)i);
    else {
      source again = f->file; /* a file is read anew for every run; a pipe only once */
      source_read(f->file.seekable ? &again : &f->file, to, info.bytes);
    }
  }
}
