/* WebAssembly: the packer puts the plan into the module as a data segment above the initial memory, and writes its place
 * into the slot below (edgerun_packaging/wasm_module.py). */
#ifdef __wasm__
#include "edgerun.h"
#include <stdint.h>
#include "own_plan.h"

static const volatile struct {
  char magic[16];
  uint32_t address, bytes;
} slot __attribute__((aligned(8))) = {"edgerun: plan at", 0, 0};

int own_plan_open(own_plan *own, const char **error) {
  *error = "this module holds no model: it was not packed";
  if (!slot.address) return ER_BAD_PLAN;
  *own = (own_plan){(void *)(uintptr_t)slot.address, slot.bytes};
  return ER_OK;
}

void own_plan_close(own_plan *own) { own->data = NULL; }
#endif
