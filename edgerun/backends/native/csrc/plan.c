/* Validation of a plan that may come from anywhere. The order matters: each step uses only what earlier ones proved. */
#include "plan.h"
#include <stdlib.h>
#include <string.h>
#include "edgerun.h"
#include "error.h"

#if defined(__x86_64__)
#define OWN_ARCH ER_ARCH_X86_64
#elif defined(__aarch64__)
#define OWN_ARCH ER_ARCH_AARCH64
#elif defined(__arm__)
#define OWN_ARCH ER_ARCH_ARMV7
#elif defined(__riscv) && __riscv_xlen == 64
#define OWN_ARCH ER_ARCH_RISCV64
#elif defined(__wasm__)
#define OWN_ARCH ER_ARCH_WASM32
#else
#error "no plan architecture for this machine"
#endif

#define SECTION_KINDS ER_SEC_TOKENIZER
#define ALIGNMENT 64
#define REFUSE(...) return er_refuse(ER_BAD_PLAN, __VA_ARGS__)
#define REQUIRE(condition, ...) do { if (!(condition)) REFUSE(__VA_ARGS__); } while (0)
#define CHECK(step) do { int status_ = (step); if (status_) return status_; } while (0)

uint64_t er_fnv1a(const void *data, size_t bytes) {
  const uint8_t *p = data;
  uint64_t h = 0xcbf29ce484222325u;
  for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 0x100000001b3u;
  return h;
}

uint64_t er_fnv1a_words(const void *data, size_t bytes) {
  const uint8_t *p = data;
  uint64_t h = 0xcbf29ce484222325u, word;
  for (size_t i = 0; i < bytes; i += 8) {
    size_t left = bytes - i;
    word = 0;
    memcpy(&word, p + i, left < 8 ? left : 8);
    h = (h ^ word) * 0x100000001b3u;
  }
  return h;
}

static const char *arch_name(uint32_t arch) {
  static const char *const names[] = {"?", "x86_64", "aarch64", "armv7", "riscv64", "wasm32"};
  return names[arch <= ER_ARCH_WASM32 ? arch : 0];
}

static int check_header(const er_pheader *h, size_t bytes) {
  REQUIRE(!memcmp(h->magic, ER_PLAN_MAGIC, 8), "this is not a plan (no EDGEPLAN at its start)");
  REQUIRE(h->version == ER_PLAN_VERSION, "the plan has format version %u, this runtime reads %d", h->version,
          ER_PLAN_VERSION);
  REQUIRE(h->total_bytes == bytes, "the plan says it is %llu bytes long but %zu are there",
          (unsigned long long)h->total_bytes, bytes);
  if (h->arch != OWN_ARCH)
    return er_refuse(ER_UNSUPPORTED, "the plan is for %s, this is %s", arch_name(h->arch), arch_name(OWN_ARCH));
  REQUIRE(h->arena_bytes <= SIZE_MAX / 4 && h->thread_scratch_bytes <= SIZE_MAX / 4 / ER_MAX_THREADS,
          "the arena of %llu bytes does not fit into the address space", (unsigned long long)h->arena_bytes);
  REQUIRE(h->thread_scratch_bytes % ALIGNMENT == 0, "the scratch of a thread is not a multiple of %d bytes", ALIGNMENT);
  return ER_OK;
}

/* Sections are in file order, disjoint, aligned, at most one of a kind; their checksum is right. */
static int check_sections(const uint8_t *base, const er_pheader *h,
                          const er_psection **found /* [SECTION_KINDS + 1], by kind */) {
  uint64_t end = sizeof *h;
  REQUIRE(h->n_sections <= SECTION_KINDS, "the plan has %u sections, at most %d are known", h->n_sections,
          SECTION_KINDS);
  end += (uint64_t)h->n_sections * sizeof(er_psection);
  REQUIRE(end <= h->total_bytes, "the section table does not fit into the plan");
  const er_psection *table = (const er_psection *)(base + sizeof *h);
  uint64_t covered = h->total_bytes;
  for (uint32_t i = 0; i < h->n_sections; i++) {
    const er_psection *s = &table[i];
    REQUIRE(s->kind >= 1 && s->kind <= SECTION_KINDS, "section %u has the unknown kind %u", i, s->kind);
    REQUIRE(!found[s->kind], "section kind %u appears twice", s->kind);
    REQUIRE(s->offset % ALIGNMENT == 0 && s->offset >= end && s->offset <= h->total_bytes &&
                s->bytes <= h->total_bytes - s->offset,
            "section %u lies outside the plan, overlaps another or is not aligned", i);
    end = s->offset + s->bytes;
    found[s->kind] = s;
    if (s->kind == ER_SEC_WEIGHTS) {
      REQUIRE(i + 1 == h->n_sections && end == h->total_bytes, "the weights are not at the end of the plan");
      covered = s->offset;
    }
  }
  REQUIRE(er_fnv1a(base + sizeof *h, (size_t)(covered - sizeof *h)) == h->checksum, "the plan is damaged (checksum)");
  return ER_OK;
}

/* The records of a section of a fixed record size; an absent section has none. */
static int table_of(const uint8_t *base, const er_psection *s, size_t record, const void **records, uint32_t *count) {
  *records = base;
  *count = 0;
  if (!s) return ER_OK;
  REQUIRE(s->bytes == (uint64_t)s->count * record, "section kind %u holds %llu bytes for %u records", s->kind,
          (unsigned long long)s->bytes, s->count);
  *records = base + s->offset;
  *count = s->count;
  return ER_OK;
}

/* Whether all of text[0, n) is well-formed UTF-8 (RFC 3629: no surrogates, no overlong forms). */
static int is_utf8(const uint8_t *text, size_t n) {
  for (size_t i = 0; i < n;) {
    uint8_t c = text[i++], low = 0x80, high = 0xbf;
    int more = c < 0x80 ? 0 : c < 0xc2 ? -1 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : c < 0xf5 ? 3 : -1;
    if (more < 0 || (size_t)more > n - i) return 0;
    if (c == 0xe0) low = 0xa0;
    if (c == 0xed) high = 0x9f;
    if (c == 0xf0) low = 0x90;
    if (c == 0xf4) high = 0x8f;
    for (; more; more--, low = 0x80, high = 0xbf) {
      if (text[i] < low || text[i] > high) return 0;
      i++;
    }
  }
  return 1;
}

/* The strings as a whole are UTF-8, so one that starts between characters is too. */
static int check_text(const er_plan *p, uint32_t offset, const char *what, uint32_t index) {
  REQUIRE(offset < p->n_strings && (p->strings[offset] & 0xc0) != 0x80,
          "the name of %s %u lies outside the strings or starts inside a character", what, index);
  return ER_OK;
}

/* Whether words[at, at + n) exist. */
static int has_words(const er_plan *p, uint64_t at, uint64_t n) { return n == 0 || at + n <= p->n_words; }

static int check_dims(const er_plan *p) {
  uint32_t symbols = 0;
  REQUIRE(p->header->n_symbols <= p->n_dims, "the plan has %u symbols but %u dims", p->header->n_symbols, p->n_dims);
  for (uint32_t i = 0; i < p->n_dims; i++) {
    const er_pdim *d = &p->dims[i];
    switch (d->op) {
      case ER_DIM_CONST: break;
      case ER_DIM_SYM:
        /* Symbols are numbered in the order in which they appear, so each appears once. */
        REQUIRE(d->v == symbols && symbols < p->header->n_symbols, "dim %u names symbol %lld out of order", i,
                (long long)d->v);
        CHECK(check_text(p, d->name, "symbol", symbols));
        REQUIRE(d->a >= 0 && d->a <= d->b, "symbol %u has the bounds %d..%d", symbols, d->a, d->b);
        symbols++;
        break;
      default:
        REQUIRE(d->op <= ER_DIM_MAX, "dim %u has the unknown operation %u", i, d->op);
        REQUIRE(d->a >= 0 && (uint32_t)d->a < i && d->b >= 0 && (uint32_t)d->b < i, "dim %u refers to a later one", i);
    }
  }
  REQUIRE(symbols == p->header->n_symbols, "the plan has %u symbols but dims for %u", p->header->n_symbols, symbols);
  return ER_OK;
}

static int check_tensor(const er_plan *p, uint32_t i) {
  const er_ptensor *t = &p->tensors[i];
  CHECK(check_text(p, t->name, "tensor", i));
  const char *name = er_plan_text(p, t->name);
  REQUIRE(er_itemsize(t->dtype), "tensor '%.80s' has the unknown type %u", name, t->dtype);
  REQUIRE(t->rank <= ER_MAX_RANK, "tensor '%.80s' has rank %u, at most %d is possible", name, t->rank, ER_MAX_RANK);
  REQUIRE((t->flags & ~ER_TENSOR_VIEW) == 0, "tensor '%.80s' has unknown flags", name);
  REQUIRE(has_words(p, t->dims, t->rank), "the dims of tensor '%.80s' lie outside the plan", name);
  for (uint32_t k = 0; k < t->rank; k++) {
    int32_t d = p->words[t->dims + k];
    REQUIRE(d >= 0 && (uint32_t)d < p->n_dims, "tensor '%.80s' has the unknown dim %d", name, d);
  }
  REQUIRE(t->ld <= p->n_dims, "tensor '%.80s' has the unknown row stride %u", name, t->ld);
  REQUIRE(t->space == ER_SPACE_ARENA || t->space == ER_SPACE_WEIGHTS, "tensor '%.80s' is in the unknown space %u", name,
          t->space);
  uint64_t room = t->space == ER_SPACE_ARENA ? p->header->arena_bytes : p->weight_bytes;
  REQUIRE(t->offset <= room && t->bytes <= room - t->offset, "tensor '%.80s' lies outside the %s", name,
          t->space == ER_SPACE_ARENA ? "arena" : "weights");
  unsigned alignment = t->space == ER_SPACE_ARENA ? (unsigned)er_itemsize(t->dtype) : ALIGNMENT;
  if (t->flags & ER_TENSOR_VIEW) alignment = (unsigned)er_itemsize(t->dtype);
  REQUIRE(t->offset % alignment == 0, "tensor '%.80s' is not aligned", name);
  return ER_OK;
}

static int check_kernels(const er_plan *p) {
  REQUIRE(p->n_kernels <= ER_MAX_KERNELS, "the plan names %u kernels", p->n_kernels);
  for (uint32_t i = 0; i < p->n_kernels; i++) {
    CHECK(check_text(p, p->kernels[i], "kernel", i));
    const char *name = er_plan_text(p, p->kernels[i]);
    if (er_kernel_find(name) < 0) return er_refuse(ER_UNSUPPORTED, "this runtime has no kernel '%.80s'", name);
  }
  return ER_OK;
}

/* What the interpreter relies on where it acts itself: the kernels of such nodes cannot see the plan. */
static int check_flow(const er_plan *p, uint32_t i, uint8_t *bound /* by dim: whether a symbol has its value */) {
  const er_pnode *n = &p->nodes[i];
  const char *name = er_plan_text(p, n->name);
  const int32_t *param = n->n_param ? p->words + n->param : NULL;
  switch (er_kernel_flow(er_plan_text(p, p->kernels[n->kernel]))) {
    case ER_FLOW_NONE: break;
    case ER_FLOW_SKIP:
      REQUIRE(n->n_in == 1 && n->n_out == 0 && p->words[n->io] >= 0 && n->n_param == 2 && n->n_patch == 0,
              "node '%.80s' does not take a flag and two numbers", name);
      REQUIRE(param[0] == 0 || param[0] == 1, "node '%.80s' wants %d, a flag is 0 or 1", name, param[0]);
      REQUIRE(param[1] >= 0 && (uint32_t)param[1] < p->n_nodes - i, "node '%.80s' passes over %d nodes, %u follow",
              name, param[1], p->n_nodes - i - 1);
      break;
    case ER_FLOW_SIZES:
      REQUIRE(n->n_in == 1 && n->n_out == 0 && p->words[n->io] >= 0 && n->n_param >= 2 && n->n_patch == 0,
              "node '%.80s' does not take integers for sizes", name);
      for (uint32_t k = 2; k < n->n_param; k++) {
        REQUIRE(param[k] >= 0 && (uint32_t)param[k] < p->n_dims && p->dims[param[k]].op == ER_DIM_SYM && !bound[param[k]],
                "node '%.80s' gives size %u to dim %d, which is not free", name, k - 2, param[k]);
        bound[param[k]] = 1;
      }
      break;
    case ER_FLOW_FAIL:
      REQUIRE(n->n_in == 0 && n->n_out == 0 && n->n_param == 1 && n->n_patch == 0,
              "node '%.80s' has more than a message", name);
      REQUIRE(param[0] >= 0 && (uint32_t)param[0] < p->n_strings && (p->strings[param[0]] & 0xc0) != 0x80,
              "the message of node '%.80s' lies outside the strings or starts inside a character", name);
  }
  return ER_OK;
}

/* The records of one node, and that what it reads exists by then. `state`, by tensor: */
enum { UNWRITTEN = 0, WRITTEN = 1, FROM_OUTSIDE = 2 /* an input, a weight or a view */ };

static int check_node(const er_plan *p, uint32_t i, uint8_t *state, uint8_t *bound) {
  const er_pnode *n = &p->nodes[i];
  CHECK(check_text(p, n->name, "node", i));
  const char *name = er_plan_text(p, n->name);
  REQUIRE(n->kernel < p->n_kernels, "node '%.80s' has the unknown kernel %u", name, n->kernel);
  REQUIRE(n->n_in <= ER_MAX_NODE_INPUTS && n->n_out <= ER_MAX_NODE_OUTPUTS, "node '%.80s' has %u inputs and %u outputs",
          name, n->n_in, n->n_out);
  REQUIRE(has_words(p, n->io, (uint64_t)n->n_in + n->n_out), "the tensors of node '%.80s' lie outside the plan", name);
  REQUIRE(has_words(p, n->param, n->n_param), "the parameters of node '%.80s' lie outside the plan", name);
  REQUIRE(has_words(p, n->patch, 2 * (uint64_t)n->n_patch), "the patches of node '%.80s' lie outside the plan", name);
  for (uint32_t k = 0; k < n->n_patch; k++) {
    const int32_t *pair = p->words + n->patch + 2 * k;
    REQUIRE(pair[0] >= 0 && (uint32_t)pair[0] < n->n_param && pair[1] >= 0 && (uint32_t)pair[1] < p->n_dims,
            "patch %u of node '%.80s' does not exist", k, name);
  }
  REQUIRE(n->scratch % ALIGNMENT == 0 && n->scratch <= p->header->arena_bytes &&
              n->scratch_bytes <= p->header->arena_bytes - n->scratch,
          "the scratch of node '%.80s' lies outside the arena", name);
  CHECK(check_flow(p, i, bound));
  for (uint32_t k = 0; k < (uint32_t)n->n_in + n->n_out; k++) {
    int32_t t = p->words[n->io + k];
    int is_output = k >= n->n_in;
    if (t == -1) continue;
    REQUIRE(t >= 0 && (uint32_t)t < p->n_tensors, "node '%.80s' refers to the unknown tensor %d", name, t);
    const char *tensor = er_plan_text(p, p->tensors[t].name);
    if (is_output) {
      REQUIRE(state[t] == UNWRITTEN,
              "node '%.80s' writes tensor '%.80s', which is an input, a weight or written already", name, tensor);
      state[t] = WRITTEN;
    } else {
      REQUIRE(state[t] != UNWRITTEN, "node '%.80s' reads tensor '%.80s' before it is computed", name, tensor);
    }
  }
  return ER_OK;
}

/* Run-time tables have one entry for each word that is referred to. Without this bound, nodes that share words could
 * make a small plan ask for a lot of memory. */
static int check_table_sizes(const er_plan *p) {
  uint64_t io = 0, params = 0;
  for (uint32_t i = 0; i < p->n_nodes; i++) {
    io += (uint64_t)p->nodes[i].n_in + p->nodes[i].n_out;
    params += p->nodes[i].n_patch ? p->nodes[i].n_param : 0;
  }
  REQUIRE(io <= p->n_words && params <= p->n_words, "nodes share their lists of tensors or parameters");
  return ER_OK;
}

static int check_io(const er_plan *p, uint8_t *state) {
  uint64_t n = (uint64_t)p->header->n_inputs + p->header->n_outputs;
  REQUIRE(n == p->n_io && n <= INT32_MAX, "the plan has %u inputs and outputs but lists %u", (unsigned)n, p->n_io);
  for (uint32_t i = 0; i < p->n_io; i++) {
    const char *what = i < p->header->n_inputs ? "input" : "output";
    CHECK(check_text(p, p->io[i].name, what, i));
    const char *name = er_plan_text(p, p->io[i].name);
    REQUIRE(p->io[i].tensor < p->n_tensors, "%s '%.80s' is the unknown tensor %u", what, name, p->io[i].tensor);
    if (i >= p->header->n_inputs) continue;
    const er_ptensor *t = &p->tensors[p->io[i].tensor];
    REQUIRE(t->space == ER_SPACE_ARENA && !t->ld, "input '%.80s' is not a dense tensor in the arena", name);
    REQUIRE(state[p->io[i].tensor] != FROM_OUTSIDE || (t->flags & ER_TENSOR_VIEW), "input '%.80s' is listed twice",
            name);
    state[p->io[i].tensor] = FROM_OUTSIDE;
  }
  return ER_OK;
}

/* Marks the symbols that are dims of inputs: binding the inputs gives these a value. `bound`: by dim, zero. */
static void mark_bound(const er_plan *p, uint8_t *bound) {
  for (uint32_t i = 0; i < p->header->n_inputs; i++) {
    const er_ptensor *t = &p->tensors[p->io[i].tensor];
    for (uint32_t k = 0; k < t->rank; k++) bound[p->words[t->dims + k]] = 1;
  }
}

/* Every symbol gets its value once: from an input's dim or from a node. */
static int check_symbols_bound(const er_plan *p, const uint8_t *bound) {
  for (uint32_t d = 0; d < p->n_dims; d++)
    REQUIRE(p->dims[d].op != ER_DIM_SYM || bound[d], "no input and no node gives the free dim %u its value", d);
  return ER_OK;
}

static int check_golden(const er_plan *p, const er_psection *s) {
  if (!s) return ER_OK;
  REQUIRE(s->count <= s->bytes / sizeof(er_pgolden), "the golden vectors do not fit into their section");
  const er_pgolden *g = (const er_pgolden *)(p->base + s->offset);
  for (uint32_t i = 0; i < s->count; i++, g++) {
    uint32_t io = g->io & ~ER_GOLDEN_LAYER;
    REQUIRE(io < (g->io & ER_GOLDEN_LAYER ? p->n_nodes : p->n_io), "golden vector %u is of nothing in the plan", i);
    REQUIRE(g->offset % 8 == 0 && g->offset >= s->offset && g->offset - s->offset <= s->bytes &&
                g->bytes <= s->bytes - (g->offset - s->offset),
            "golden vector %u lies outside its section", i);
  }
  return ER_OK;
}

/* `state`: zeros, one byte for each tensor and each dim. */
static int check_records(const er_plan *p, uint8_t *state) {
  CHECK(check_dims(p));
  for (uint32_t i = 0; i < p->n_tensors; i++) {
    CHECK(check_tensor(p, i));
    if (p->tensors[i].space == ER_SPACE_WEIGHTS || (p->tensors[i].flags & ER_TENSOR_VIEW)) state[i] = FROM_OUTSIDE;
  }
  CHECK(check_io(p, state));
  uint8_t *bound = state + p->n_tensors;
  mark_bound(p, bound);
  CHECK(check_kernels(p));
  CHECK(check_table_sizes(p));
  for (uint32_t i = 0; i < p->n_nodes; i++) CHECK(check_node(p, i, state, bound));
  CHECK(check_symbols_bound(p, bound));
  for (uint32_t i = p->header->n_inputs; i < p->n_io; i++)
    REQUIRE(state[p->io[i].tensor] != UNWRITTEN && !p->tensors[p->io[i].tensor].ld,
            "output '%.80s' is never computed or not dense", er_plan_text(p, p->io[i].name));
  return ER_OK;
}

int er_plan_open(er_plan *p, const void *data, size_t bytes) {
  const er_psection *found[SECTION_KINDS + 1] = {0};
  *p = (er_plan){.base = data, .header = data};
  if ((uintptr_t)data % ALIGNMENT) return er_refuse(ER_BAD_ARGUMENT, "the plan is not at a 64-byte aligned address");
  REQUIRE(bytes >= sizeof(er_pheader), "a plan has at least 128 bytes, not %zu", bytes);
  CHECK(check_header(p->header, bytes));
  CHECK(check_sections(data, p->header, found));
#define TABLE(kind, field, count) \
  CHECK(table_of(p->base, found[kind], sizeof *p->field, (const void **)&p->field, &p->count))
  TABLE(ER_SEC_DIMS, dims, n_dims);
  TABLE(ER_SEC_WORDS, words, n_words);
  TABLE(ER_SEC_TENSORS, tensors, n_tensors);
  TABLE(ER_SEC_NODES, nodes, n_nodes);
  TABLE(ER_SEC_KERNELS, kernels, n_kernels);
  TABLE(ER_SEC_IO, io, n_io);
#undef TABLE
  const er_psection *s = found[ER_SEC_STRINGS];
  REQUIRE(s && s->bytes > 0 && s->bytes <= INT32_MAX && !p->base[s->offset] && !p->base[s->offset + s->bytes - 1],
          "the strings do not start and end with NUL");
  p->strings = (const char *)p->base + s->offset;
  p->n_strings = (uint32_t)s->bytes;
  REQUIRE(is_utf8((const uint8_t *)p->strings, p->n_strings), "the strings are not UTF-8");
  REQUIRE(p->n_dims <= INT32_MAX && p->n_tensors <= INT32_MAX && p->n_nodes <= INT32_MAX,
          "the plan has too many records");
  if (found[ER_SEC_WEIGHTS]) {
    p->weights = p->base + found[ER_SEC_WEIGHTS]->offset;
    p->weight_bytes = found[ER_SEC_WEIGHTS]->bytes;
  }
  uint8_t *state = calloc((size_t)p->n_tensors + p->n_dims + 1, 1);
  if (!state) return er_refuse(ER_NO_MEMORY, "no memory for the tables of %u tensors", p->n_tensors);
  int status = check_records(p, state);
  free(state);
  return status ? status : check_golden(p, found[ER_SEC_GOLDEN]);
}
