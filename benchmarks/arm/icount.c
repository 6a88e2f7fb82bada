/* A plugin for qemu-user (TCG plugin API version 1): exact counts of executed guest instructions, by class for AArch64.
 *
 *   qemu-aarch64 -plugin ./libicount.so,out=counts.json PROGRAM
 *
 * Counts are sums over all virtual CPUs; they are deterministic for a single-threaded program. The declarations below
 * are those parts of the plugin API that are used, so no qemu headers are needed.
 * Classes by the encoding index of the Arm Architecture Reference Manual (DDI 0487), section C4.1. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t qemu_plugin_id_t;
typedef struct {
  const char *target_name;
  struct { int min, cur; } version;
  bool system_emulation;
  union { struct { int smp_vcpus, max_vcpus; } system; };
} qemu_info_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, void (*)(unsigned, void *), int, void *);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, void *), void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

enum { TOTAL, BRANCH, LOAD_STORE, VECTOR_LOAD_STORE, VECTOR, MULTIPLY_ADD, DOT, INTEGER, OTHER, CLASSES };
static const char *names[CLASSES] = {"total",  "branch",       "load_store", "vector_load_store", "vector",
                                     "multiply_add", "dot", "integer",    "other"};
enum { CPUS = 64 };
static uint64_t counts[CPUS][CLASSES]; /* a row per virtual CPU; no two write the same row */
static bool is_aarch64;
static const char *out_path;

/* Fused multiply-adds: FMLA/FMLS vector and by element (single, half), FMADD and its kin. */
static bool is_multiply_add(uint32_t i) {
  return (i & 0xbf20fc00) == 0x0e20cc00 || (i & 0xbf80f400) == 0x0f801000 || (i & 0xff200000) == 0x1f000000 ||
         (i & 0xbfe0fc00) == 0x0e400c00 || (i & 0xbf80f400) == 0x0f001000;
}
/* SDOT/UDOT vector and by element, SMMLA/UMMLA/USMMLA, BFMMLA. */
static bool is_dot(uint32_t i) {
  return (i & 0x9fe0fc00) == 0x0e809400 || (i & 0x9fc0f400) == 0x0f80e000 || (i & 0xdfe0fc00) == 0x4e80a400 ||
         (i & 0xffe0fc00) == 0x4e80ac00 || (i & 0xffe0fc00) == 0x6e40ec00;
}
static int class_of(uint32_t i) {
  uint32_t group = i >> 25 & 15;
  if ((group & 14) == 10) return BRANCH;
  if ((group & 5) == 4) return i >> 26 & 1 ? VECTOR_LOAD_STORE : LOAD_STORE;
  if ((group & 7) == 7) return is_multiply_add(i) ? MULTIPLY_ADD : is_dot(i) ? DOT : VECTOR;
  if ((group & 14) == 8 || (group & 7) == 5) return INTEGER;
  return OTHER;
}

/* What one translated block adds: one count per class. Blocks live as long as the process. */
typedef struct { uint32_t add[CLASSES]; } block;

static void on_block(unsigned cpu, void *data) {
  const block *b = data;
  uint64_t *row = counts[cpu % CPUS];
  for (int i = 0; i < CLASSES; i++) row[i] += b->add[i];
}
static void on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
  (void)id;
  size_t n = qemu_plugin_tb_n_insns(tb);
  block *b = calloc(1, sizeof *b);
  if (!b) abort();
  b->add[TOTAL] = (uint32_t)n;
  for (size_t i = 0; is_aarch64 && i < n; i++) {
    uint32_t word;
    memcpy(&word, qemu_plugin_insn_data(qemu_plugin_tb_get_insn(tb, i)), sizeof word);
    b->add[class_of(word)]++;
  }
  qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, 0, b);
}
static void when_done(qemu_plugin_id_t id, void *data) {
  (void)id, (void)data;
  FILE *file = out_path ? fopen(out_path, "w") : stderr;
  if (!file) return;
  for (int c = 0; c < (is_aarch64 ? CLASSES : 1); c++) {
    uint64_t sum = 0;
    for (int cpu = 0; cpu < CPUS; cpu++) sum += counts[cpu][c];
    fprintf(file, "%s\"%s\": %" PRIu64, c ? ", " : "{", names[c], sum);
  }
  fprintf(file, "}\n");
  if (file != stderr) fclose(file);
}

__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc,
                                                               char **argv) {
  is_aarch64 = !strcmp(info->target_name, "aarch64");
  for (int i = 0; i < argc; i++)
    if (!strncmp(argv[i], "out=", 4)) out_path = strdup(argv[i] + 4);
  qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
  qemu_plugin_register_atexit_cb(id, when_done, NULL);
  return 0;
}
