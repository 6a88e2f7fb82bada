/* Mutates plans and loads, binds and runs what the validator lets through. A crash, a sanitizer report or a time-out is
 * a bug: the validator promises that no plan can do harm.
 *
 *   fuzz_plan SEED SECONDS PLAN...        prints how many mutants were accepted
 *   fuzz_plan --replay SEED ROUND PLAN... runs one mutant again
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "edgerun.h"
#include "memory.h"
#include "plan_format.h"

#define MAX_BYTES (1u << 18)
#define MAX_PLANS 64
#define RUN_ARENA_LIMIT (1u << 20) /* larger arenas are only loaded */

static uint64_t state;
static uint32_t below(uint32_t n) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (uint32_t)((state >> 11) % n);
}

static uint64_t odd_value(void) {
  static const uint64_t values[] = {
      0, 1, 2, 3, 7, 8, 63, 64, 65, 127, 128, 255, 256, 1000, 4096, 65535, 65536, 0x7fffffff, 0x80000000u,
      0xffffffffu, 0xfffffffeu, 0x7fffffffffffffffu, 0x8000000000000000u, 0xffffffffffffffffu,
      0x3f800000 /* 1.0f */, 0x7fc00000 /* NaN */, 0x7f800000 /* infinity */};
  return values[below(sizeof values / sizeof *values)];
}

/* Most mutations hit the tables; the weights are data, only a few bytes of them matter to the validator. */
static void mutate(uint8_t *plan, uint32_t bytes, uint32_t tables) {
  uint32_t at = below(below(10) ? tables : bytes);
  static const uint32_t widths[] = {1, 2, 4, 4, 4, 8, 8};
  uint32_t width = widths[below(7)];
  at = at / width * width;
  if (at + width > bytes) return;
  uint64_t value = 0;
  memcpy(&value, plan + at, width);
  switch (below(6)) {
    case 0: value = odd_value(); break;
    case 1: value += 1 + below(8); break;
    case 2: value -= 1 + below(8); break;
    case 3: value ^= (uint64_t)1 << below(8 * width); break;
    case 4: memcpy(&value, plan + below(tables - 8), width); break; /* a value from elsewhere in the plan */
    default: value = value * 2 + below(2);
  }
  memcpy(plan + at, &value, width);
}

static void repair_checksum(uint8_t *plan, uint32_t bytes) {
  er_pheader h;
  memcpy(&h, plan, sizeof h);
  uint64_t covered = bytes;
  for (uint32_t i = 0; i < h.n_sections && i < 16; i++) {
    er_psection s;
    if (sizeof h + (i + 1) * sizeof s > bytes) break;
    memcpy(&s, plan + sizeof h + i * sizeof s, sizeof s);
    if (s.kind == ER_SEC_WEIGHTS && s.offset <= bytes && s.offset >= sizeof h) covered = s.offset;
  }
  h.checksum = er_fnv1a(plan + sizeof h, (size_t)covered - sizeof h);
  memcpy(plan, &h, sizeof h);
}

/* Shapes of 1 to 4 where the model leaves them free. */
static int bind_some(er_model *m) {
  er_io_info info;
  for (int i = 0; i < er_input_count(m); i++) {
    if (er_input_info(m, i, &info)) return 1;
    for (int k = 0; k < info.rank; k++)
      if (info.dim[k] < 0) info.dim[k] = 1 + below(4);
    if (er_set_input_shape(m, i, info.dim, info.rank)) return 1;
  }
  return er_bind(m, NULL);
}

static void fill_inputs(er_model *m) {
  er_io_info info;
  for (int i = 0; i < er_input_count(m); i++) {
    er_input_info(m, i, &info);
    uint8_t *to = er_input_data(m, i);
    for (uint64_t k = 0; k < info.bytes; k++) to[k] = (uint8_t)below(256);
  }
}

static int try_plan(const uint8_t *plan, uint32_t bytes) {
  uint8_t *own = er_pages_take(bytes); /* ends at a page that cannot be read */
  er_model *m = NULL;
  const char *error = NULL;
  if (!own) return 0;
  memcpy(own, plan, bytes);
  int status = er_load(own, bytes, 1, &m, &error), accepted = 0;
  if (status && (!error || !*error || m)) abort();
  if (!status && er_arena_bytes(m) <= RUN_ARENA_LIMIT) {
    er_io_info info;
    for (int round = 0; round < 2; round++) {
      if (bind_some(m)) break;
      fill_inputs(m);
      int ran = er_run(m, NULL);
      if (ran && ran != ER_FAILED) abort();
      accepted = 1;
    }
    for (int i = 0; i < er_output_count(m); i++) er_output_info(m, i, &info);
  }
  if (!status) er_free(m);
  er_pages_give(own, bytes);
  return accepted;
}

static uint8_t originals[MAX_PLANS][MAX_BYTES];
static uint32_t sizes[MAX_PLANS];
static int n_plans;

static void read_plans(char **paths, int n) {
  if (n > MAX_PLANS) exit(2);
  for (n_plans = 0; n_plans < n; n_plans++) {
    FILE *f = fopen(paths[n_plans], "rb");
    if (!f) exit(2);
    sizes[n_plans] = (uint32_t)fread(originals[n_plans], 1, MAX_BYTES, f);
    fclose(f);
  }
}

static int one_round(uint64_t seed, uint32_t round) {
  static uint8_t plan[MAX_BYTES];
  state = (seed + 1) * 0x9e3779b97f4a7c15u + round * 0xbf58476d1ce4e5b9u + 1;
  for (int i = 0; i < 8; i++) below(2);
  uint32_t number = below((uint32_t)n_plans), bytes = sizes[number], tables;
  memcpy(plan, originals[number], bytes);
  er_pheader h;
  memcpy(&h, plan, sizeof h);
  tables = bytes;
  for (uint32_t i = 0; i < h.n_sections; i++) {
    er_psection s;
    memcpy(&s, plan + sizeof h + i * sizeof s, sizeof s);
    if (s.kind == ER_SEC_WEIGHTS) tables = (uint32_t)s.offset;
  }
  for (uint32_t n = 1 + below(3); n; n--) mutate(plan, bytes, tables);
  if (below(20) == 0) bytes = below(bytes);
  if (bytes >= sizeof h && below(50)) repair_checksum(plan, bytes);
  return try_plan(plan, bytes);
}

int main(int argc, char **argv) {
  if (argc > 4 && !strcmp(argv[1], "--replay")) {
    read_plans(argv + 4, argc - 4);
    printf("accepted: %d\n", one_round(strtoull(argv[2], NULL, 10), (uint32_t)atoi(argv[3])));
    return 0;
  }
  if (argc < 4) return 2;
  uint64_t seed = strtoull(argv[1], NULL, 10);
  time_t end = time(NULL) + atoi(argv[2]);
  uint32_t rounds = 0, accepted = 0;
  char note[64];
  read_plans(argv + 3, argc - 3);
  state = 88172645463325252u;
  for (int i = 0; i < n_plans; i++) /* the originals are fine */
    if (!try_plan(originals[i], sizes[i])) return printf("%s is refused unchanged\n", argv[i + 3]), 1;
  while (time(NULL) < end)
    for (int k = 0; k < 20; k++) {
      /* For a crash: the last line says which mutant it was. */
      int length = snprintf(note, sizeof note, "\r%u", rounds);
      if (write(2, note, (size_t)length) < 0) return 2;
      alarm(30);
      accepted += (uint32_t)one_round(seed, rounds++);
    }
  printf("%u rounds, %u accepted\n", rounds, accepted);
  return 0;
}
