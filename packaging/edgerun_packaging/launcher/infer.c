/* One request to /infer: its body into the inputs, the outputs into its answer.
 *
 * npy: one array for each input, one after another, in the order of the inputs. JSON:
 * {"inputs": [{"name": "x", "shape": [1, 3], "values": [1, 2, 3]}]}; "name" may be left out for a single input, "shape"
 * where the model has no free dimensions; values may be nested. The answer has the fields of `run --json`. */
#include <string.h>
#include "launcher.h"

enum { NUMBER_LIMIT = 40, JSON_BYTES_PER_VALUE = 32, JSON_BYTES_PER_ARRAY = 1024 };

/* -- npy */

/* Every array's header, and where its data is. The caller has zeroed the feeds. */
static void scan_npy(bound *b, const uint8_t *body, uint64_t bytes) {
  source s = source_memory(body, bytes, "the body");
  for (int i = 0; i < b->n_inputs; i++) {
    feed *f = &b->feeds[i];
    f->kind = FROM_MEMORY;
    npy_read_header(&s, &f->type);
    if (f->type.bytes > s.left) fail(EXIT_USAGE, "the body ends before array %d of %d does", i + 1, b->n_inputs);
    f->file = s;
    s.offset += f->type.bytes;
    s.left -= f->type.bytes;
  }
  if (s.left) fail(EXIT_USAGE, "%llu bytes follow the last array", (unsigned long long)s.left);
}

/* -- JSON */

static int input_of(const bound *b, json_value entry) {
  json_value name = json_find(entry, "name");
  er_io_info info;
  if (!name.text && b->n_inputs == 1) return 0;
  for (int i = 0; name.text && i < b->n_inputs; i++)
    if (er_input_info(b->model, i, &info) == 0 && json_equals(name, info.name)) return i;
  er_input_info(b->model, 0, &info);
  fail(EXIT_USAGE, "an entry of \"inputs\" names no input of the model; the first of %d is '%s' (see /metadata)",
       b->n_inputs, info.name);
}

static void read_shape(json_value shape, array_type *type) {
  char key[16] = "0";
  for (type->rank = 0;; type->rank++) {
    key[0] = (char)('0' + type->rank);
    json_value dim = json_find(shape, key);
    if (!dim.text) return;
    double d = json_number(dim, -1);
    if (type->rank == ER_MAX_RANK || d < 0 || d > 1e15 || d != (double)(int64_t)d)
      fail(EXIT_USAGE, "\"shape\" is a list of up to %d whole numbers", ER_MAX_RANK);
    type->dim[type->rank] = (int64_t)d;
  }
}

/* The entry of every input, and its shape. */
static void scan_json(bound *b, json_value document, json_value *values) {
  er_io_info info;
  char path[24];
  if (!json_valid(document)) fail(EXIT_USAGE, "the body is no valid JSON");
  json_value list = json_find(document, "inputs");
  if (!list.text || *list.text != '[') fail(EXIT_USAGE, "the body has no list \"inputs\"");
  for (int i = 0; i < MAX_IO; i++) {
    path[0] = (char)('0' + i / 10), path[1] = (char)('0' + i % 10), path[2] = 0;
    json_value entry = json_find(list, path + (i < 10)), shape;
    if (!entry.text) break;
    int k = input_of(b, entry);
    feed *f = &b->feeds[k];
    er_input_info(b->model, k, &info);
    if (values[k].text) fail(EXIT_USAGE, "input '%s' is given twice", info.name);
    values[k] = json_find(entry, "values");
    if (!values[k].text || *values[k].text != '[') fail(EXIT_USAGE, "input '%s' has no list \"values\"", info.name);
    f->kind = FROM_ZEROS; /* until the values are read: the shapes of all inputs come first */
    shape = json_find(entry, "shape");
    b->has_shape[k] = shape.text != NULL;
    if (shape.text) read_shape(shape, &b->given[k]);
    else if (b->symbolic) fail(EXIT_USAGE, "input '%s' needs a \"shape\": the model has free dimensions", info.name);
  }
  for (int i = 0; i < b->n_inputs; i++) {
    er_input_info(b->model, i, &info);
    if (!values[i].text) fail(EXIT_USAGE, "input '%s' is missing in \"inputs\"", info.name);
  }
}

/* Numbers, true, false, and the texts "nan", "inf", "-inf", brackets between them ignored. */
static void read_values(const bound *b, int input, json_value v) {
  er_io_info info;
  char number[NUMBER_LIMIT];
  er_input_info(b->model, input, &info);
  void *to = er_input_data(b->model, input);
  uint64_t want = element_count(&info), n = 0;
  const char *at = v.text, *end = v.text + v.length;
  while (at < end) {
    if (strchr("[], \t\r\n", *at)) {
      at++;
      continue;
    }
    size_t length = 0;
    int quoted = *at == '"';
    at += quoted;
    while (at < end && !strchr(quoted ? "\"" : "[], \t\r\n", *at)) {
      if (length + 1 == sizeof number) fail(EXIT_USAGE, "a value of input '%s' is too long", info.name);
      number[length++] = *at++;
    }
    at += quoted;
    number[length] = 0;
    if (n == want) fail(EXIT_USAGE, "input '%s' has more values than its shape", info.name);
    int is_word = !strcmp(number, "nan") || !strcmp(number, "inf") || !strcmp(number, "-inf");
    const char *wrong = quoted && !is_word ? "is no number" : set_element(to, info.dtype, n, number);
    if (wrong) fail(EXIT_USAGE, "value %llu of input '%s' %s (%s takes %s)", (unsigned long long)n, info.name, wrong,
                    info.name, dtype_name(info.dtype));
    n++;
  }
  if (n != want)
    fail(EXIT_USAGE, "input '%s' has %llu values, its shape takes %llu", info.name, (unsigned long long)n,
         (unsigned long long)want);
}

/* -- the answer */

static void answer_npy(const bound *b, answer *to) {
  char head[NPY_HEADER_LIMIT];
  er_io_info info;
  for (int i = 0; i < b->n_outputs; i++) {
    er_output_info(b->model, i, &info);
    out_bytes(head, (size_t)npy_header(head, &info));
    out_bytes(er_output_data(b->model, i), (size_t)info.bytes);
  }
  to->type = "application/x-npy";
}

static void answer_json(const bound *b, double ms, answer *to) {
  er_io_info info;
  out("{\"run_ms\": %.3f, \"outputs\": [", ms);
  for (int i = 0; i < b->n_outputs; i++) {
    er_output_info(b->model, i, &info);
    if (i) out(", ");
    out_array_json(&info, er_output_data(b->model, i));
  }
  out("]}\n");
  to->type = "application/json";
}

static void infer_or_fail(bound *b, const request *r, const uint8_t *body, answer *to) {
  json_value values[MAX_IO] = {{0}};
  const char *error = NULL;
  memset(b->feeds, 0, sizeof b->feeds);
  memset(b->has_shape, 0, sizeof b->has_shape);
  if (r->type == BODY_NPY) scan_npy(b, body, r->body_bytes);
  else scan_json(b, (json_value){(const char *)body, (size_t)r->body_bytes}, values);
  bind_shapes(b);
  for (int i = 0; i < b->n_inputs; i++)
    if (r->type == BODY_JSON) read_values(b, i, values[i]);
  if (r->type == BODY_NPY) fill_inputs(b, 0);
  double start = seconds_now();
  if (er_run(b->model, &error)) fail(EXIT_NEGATIVE, "the model failed: %s", error ? error : "unknown reason");
  double ms = (seconds_now() - start) * 1e3;
  out_capture(to->data, to->room);
  if ((r->accept == BODY_OTHER ? (int)r->type : (int)r->accept) == BODY_NPY) answer_npy(b, to);
  else answer_json(b, ms, to);
}

int infer(bound *b, const request *r, const uint8_t *body, answer *to) {
  static failure f;
  if (setjmp(f.back)) {
    out_capture(to->data, to->room);
    out("{\"error\": ");
    out_json_text(f.text, strlen(f.text));
    out("}\n");
    to->used = out_captured();
    out_capture(NULL, 0);
    to->type = "application/json";
    return f.code == EXIT_NEGATIVE ? 422 : f.code == EXIT_USAGE || f.code == EXIT_IO ? 400 : 500;
  }
  catch_failures(&f);
  infer_or_fail(b, r, body, to);
  release_failures();
  to->used = out_captured();
  out_capture(NULL, 0);
  return 200;
}

/* Bytes of JSON (or npy, which is smaller) for the arrays of one side at their largest shapes. */
static uint64_t largest(const packed *p, uint32_t first, uint32_t count) {
  const er_pio *io = (const er_pio *)packed_section(p, ER_SEC_IO).data;
  const er_ptensor *tensors = (const er_ptensor *)packed_section(p, ER_SEC_TENSORS).data;
  uint64_t total = JSON_BYTES_PER_ARRAY;
  for (uint32_t i = first; i < first + count; i++) { /* the plan was validated when it was loaded */
    const er_ptensor *t = &tensors[io[i].tensor];
    total += t->bytes / (uint64_t)dtype_size(t->dtype) * JSON_BYTES_PER_VALUE + JSON_BYTES_PER_ARRAY;
  }
  return total;
}

uint64_t largest_request(const packed *p) { return largest(p, 0, p->header->n_inputs); }
uint64_t largest_answer(const packed *p) { return largest(p, p->header->n_inputs, p->header->n_outputs); }
