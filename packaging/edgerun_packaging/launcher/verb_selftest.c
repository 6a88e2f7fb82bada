/* `selftest`: are the weights intact, and does this machine compute what the reference computed at pack time? */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "launcher.h"

typedef struct {
  int sets, values, wrong;
  double worst;
} tally;

static int is_close(double got, double want, float atol, float rtol) {
  if (isnan(want)) return isnan(got);
  if (isinf(want) || isinf(got)) return got == want;
  return fabs(got - want) <= atol + rtol * fabs(want);
}

static const void *golden_data(const packed *p, const er_pgolden *g, uint64_t want_bytes, const char *name) {
  if (g->bytes != want_bytes || g->offset > p->plan_bytes || g->bytes > p->plan_bytes - g->offset || g->offset % 8)
    fail(EXIT_IO, "the golden vector of '%s' does not fit the model; pack it again", name);
  return p->plan + g->offset;
}

/* The shapes of a set with free dimensions are in the manifest: golden.SET.shapes.INPUT.AXIS. */
static void bind_set(bound *b, const packed *p, uint32_t set) {
  const char *error = NULL;
  char path[64];
  for (int i = 0; i < b->n_inputs; i++) {
    int64_t dim[ER_MAX_RANK];
    er_io_info info;
    er_input_info(b->model, i, &info);
    for (int k = 0; k < info.rank; k++) {
      snprintf(path, sizeof path, "golden.%u.shapes.%d.%d", set, i, k);
      double d = json_number(json_find(manifest(p), path), -1);
      if (d < 0) return; /* a model of fixed shapes is bound already */
      dim[k] = (int64_t)d;
    }
    if (er_set_input_shape(b->model, i, dim, info.rank))
      fail(EXIT_IO, "golden set %u has a shape the model refuses", set);
  }
  if (er_bind(b->model, &error)) fail(EXIT_IO, "golden set %u does not fit: %s", set, error ? error : "unknown reason");
}

/* Evenly spread float samples of a tensor too large to store: u64 element count, then the samples; sample s of k is
 * element s * count / k. */
typedef struct {
  const float *want;
  uint64_t count;
} sampled;

static sampled golden_samples(const packed *p, const er_pgolden *g, uint64_t elements, const char *name) {
  uint64_t stored = 0;
  int fits = g->bytes >= 12 && g->bytes % 4 == 0 && g->offset % 8 == 0 && g->offset <= p->plan_bytes &&
             g->bytes <= p->plan_bytes - g->offset;
  if (fits) memcpy(&stored, p->plan + g->offset, 8);
  if (!fits || stored != elements || elements == 0)
    fail(EXIT_IO, "the golden vector of '%s' does not fit the model; pack it again", name);
  return (sampled){(const float *)(p->plan + g->offset + 8), (g->bytes - 8) / 4};
}

/* The whole output when all of it is stored, else its samples. */
static void compare(const packed *p, const er_io_info *info, const er_pgolden *g, const void *got, tally *t) {
  uint64_t elements = 1, wrong = 0, first = 0;
  for (int i = 0; i < info->rank; i++) elements *= (uint64_t)info->dim[i];
  int whole = g->bytes >= info->bytes;
  const void *all = whole ? golden_data(p, g, info->bytes, info->name) : NULL;
  sampled some = whole ? (sampled){NULL, elements} : golden_samples(p, g, elements, info->name);
  uint64_t n = some.count;
  for (uint64_t s = 0; s < n; s++) {
    uint64_t i = whole ? s : s * elements / n;
    double a = element(got, info->dtype, i), b = whole ? element(all, info->dtype, i) : (double)some.want[s];
    double error = fabs(a - b);
    if (error > t->worst) t->worst = error;
    if (!is_close(a, b, g->atol, g->rtol) && wrong++ == 0) first = s;
  }
  t->values += (int)n;
  if (wrong && t->wrong++ == 0) {
    uint64_t i = whole ? first : first * elements / n;
    note(
        "output '%s' of golden set %u is wrong: element %llu is %.7g, expected %.7g (%llu of %llu differ by more than "
        "%g + %g*|x|)",
        info->name, g->set, (unsigned long long)i, element(got, info->dtype, i),
        whole ? element(all, info->dtype, i) : (double)some.want[first], (unsigned long long)wrong,
        (unsigned long long)n, (double)g->atol, (double)g->rtol);
  }
}

/* Inputs that were drawn at pack time are stored as nothing but their seed. */
static void fill_set(bound *b, const packed *p, const er_pgolden *golden, uint32_t n, uint32_t set) {
  er_io_info info;
  char path[32];
  snprintf(path, sizeof path, "golden.%u.seed", set);
  double seed = json_number(json_find(manifest(p), path), -1);
  for (uint32_t i = 0; i < n; i++) {
    if (golden[i].set != set || golden[i].io >= (uint32_t)b->n_inputs) continue;
    int k = (int)golden[i].io;
    er_input_info(b->model, k, &info);
    if (golden[i].bytes == 0 && seed >= 0)
      fill_random(er_input_data(b->model, k), info.dtype, info.bytes, (uint64_t)seed + golden[i].io);
    else memcpy(er_input_data(b->model, k), golden_data(p, &golden[i], info.bytes, info.name), info.bytes);
  }
}

static void run_set(bound *b, uint32_t set) {
  const char *error = NULL;
  if (er_run(b->model, &error))
    fail(EXIT_NEGATIVE, "golden set %u: the model failed: %s", set, error ? error : "unknown reason");
}

/* Runs the set once more, watching one node. Returns whether its samples are right; tells when not. */
static int layer_is_right(bound *b, const packed *p, const er_pgolden *all, uint32_t n, const er_pgolden *g) {
  int node = (int)(g->io & ~ER_GOLDEN_LAYER);
  er_io_info info;
  uint64_t elements = 1;
  if (er_node_output_info(b->model, node, 0, &info) || info.bytes == 0)
    fail(EXIT_IO, "the golden vectors name a layer %d that the model does not have; pack it again", node);
  for (int i = 0; i < info.rank; i++) elements *= (uint64_t)info.dim[i];
  sampled some = golden_samples(p, g, elements, er_node_name(b->model, node));
  void *copy = mmap(NULL, (size_t)info.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED) fail(EXIT_HARDWARE, "not enough memory to look at layer %d", node);
  int right = 1;
  if (er_watch(b->model, node, 0, copy, (size_t)info.bytes) == 0) {
    fill_set(b, p, all, n, g->set);
    run_set(b, g->set);
    er_watch(b->model, node, 0, NULL, 0);
    /* A layer in a branch that these inputs do not take computes nothing. */
    if (!er_node_ran(b->model, node)) some.count = 0;
    for (uint64_t s = 0; right && s < some.count; s++) {
      uint64_t i = s * elements / some.count;
      double got = element(copy, info.dtype, i);
      right = is_close(got, some.want[s], g->atol, g->rtol);
      if (!right)
        note("the first wrong layer is %d, '%s' (kernel %s): element %llu is %.7g, expected %.7g", node,
             er_node_name(b->model, node), er_node_kernel(b->model, node), (unsigned long long)i, got, (double)some.want[s]);
    }
  }
  munmap(copy, (size_t)info.bytes);
  return right;
}

static void replay(bound *b, const packed *p, const er_pgolden *golden, uint32_t n, uint32_t set, tally *t) {
  er_io_info info;
  int wrong_before = t->wrong;
  bind_set(b, p, set);
  fill_set(b, p, golden, n, set);
  run_set(b, set);
  for (uint32_t i = 0; i < n; i++) {
    uint32_t k = golden[i].io - (uint32_t)b->n_inputs;
    if (golden[i].set != set || golden[i].io < (uint32_t)b->n_inputs || golden[i].io & ER_GOLDEN_LAYER) continue;
    if (k >= (uint32_t)b->n_outputs)
      fail(EXIT_IO, "golden set %u names an output that does not exist; pack it again", set);
    er_output_info(b->model, (int)k, &info);
    compare(p, &info, &golden[i], er_output_data(b->model, (int)k), t);
  }
  t->sets++;
  if (t->wrong == wrong_before) return;
  for (uint32_t i = 0; i < n; i++)
    if (golden[i].set == set && golden[i].io & ER_GOLDEN_LAYER && !layer_is_right(b, p, golden, n, &golden[i])) return;
}

int verb_selftest(const packed *p, const options *o) {
  static bound b;
  tally t = {0};
  section stored = packed_section(p, ER_SEC_GOLDEN);
  int weights_ok = weights_intact(p);
  int signature_ok = !p->is_signed || plan_signed(p->fd, p->plan_offset, p->plan_bytes, &p->signature);
  er_model *model = load_model(p, o, o->threads ? (int)parse_count(o->threads, "--threads", 1, 1024) : 0);
  const er_pgolden *golden = (const er_pgolden *)stored.data;
  if (stored.count > stored.bytes / sizeof(er_pgolden))
    fail(EXIT_IO, "the golden vectors are damaged; copy the file again");
  b.model = model;
  b.n_inputs = er_input_count(model);
  b.n_outputs = er_output_count(model);
  if (!weights_ok) note("the weights are damaged: their checksum differs; copy the file again");
  for (uint32_t i = 0; i < stored.count; i++)
    if (i == 0 || golden[i].set != golden[i - 1].set) replay(&b, p, golden, stored.count, golden[i].set, &t);
  if (!signature_ok) note("the signature is wrong: the model was changed after it was signed");
  int ok = weights_ok && signature_ok && !t.wrong;
  const char *signature = !p->is_signed ? "null" : signature_ok ? "true" : "false";
  if (o->json)
    out("{\"ok\": %s, \"weights_ok\": %s, \"signature\": %s, \"golden_sets\": %d, \"values\": %d, \"wrong_outputs\": %d, "
        "\"max_abs_error\": %.9g, "
        "\"isa\": \"%s\"}\n",
        ok ? "true" : "false", weights_ok ? "true" : "false", signature, t.sets, t.values, t.wrong, t.worst, er_isa(model));
  else
    out("weights %s%s; %d golden set(s), %d values, largest difference %.3g on %s: %s\n",
        weights_ok ? "intact" : "DAMAGED", !p->is_signed ? "" : signature_ok ? ", signature right" : ", signature WRONG", t.sets, t.values, t.worst, er_isa(model), ok ? "passed" : "FAILED");
  er_free(model);
  return ok ? EXIT_OK : EXIT_NEGATIVE;
}
