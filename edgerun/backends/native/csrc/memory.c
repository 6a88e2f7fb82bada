#define _DEFAULT_SOURCE
#include "memory.h"
#include <stdint.h>
#ifdef __wasm__
#include <string.h>

#define WASM_PAGE ((size_t)65536)
enum { MOST_GIVEN = 8 };

/* Memory of a module only grows, and malloc grows it by half as much again as it is asked for: whole pages are taken
 * directly, and those that are given back wait here for the next model. */
static struct { uint8_t *start; size_t bytes; } given[MOST_GIVEN];

static size_t whole_pages(size_t bytes) { return (bytes + WASM_PAGE - 1) / WASM_PAGE * WASM_PAGE; }

void *er_pages_take(size_t bytes) {
  size_t whole = whole_pages(bytes);
  if (whole < bytes) return NULL;
  for (int i = 0; i < MOST_GIVEN; i++) {
    if (given[i].bytes < whole) continue;
    uint8_t *start = given[i].start;
    given[i].start += whole;
    given[i].bytes -= whole;
    return memset(start, 0, bytes);
  }
  size_t before = __builtin_wasm_memory_grow(0, whole / WASM_PAGE);
  return before == SIZE_MAX ? NULL : (void *)(before * WASM_PAGE);
}

void er_pages_give(void *pages, size_t bytes) {
  if (!pages) return;
  for (int i = 0; i < MOST_GIVEN; i++) {
    if (given[i].bytes) continue;
    given[i].start = pages;
    given[i].bytes = whole_pages(bytes);
    return;
  }
}
size_t er_memory_limit(void) { return SIZE_MAX / 2; }
#else
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGES_FROM ((size_t)8 << 20) /* below, rounding up to huge pages costs more memory than it saves time */

#ifdef ER_GUARD_PAGES
/* For the fuzzer: what is taken ends (but for its 64-byte rounding) at a page that cannot be touched. */
static size_t guarded(size_t bytes, size_t *front) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), rounded = (bytes + 63) / 64 * 64;
  size_t whole = (rounded + page - 1) / page * page;
  *front = whole - rounded;
  return whole + page;
}
void *er_pages_take(size_t bytes) {
  size_t front, whole = guarded(bytes, &front), page = (size_t)sysconf(_SC_PAGESIZE);
  uint8_t *pages = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return NULL;
  mprotect(pages + whole - page, page, PROT_NONE);
  return pages + front;
}
void er_pages_give(void *pages, size_t bytes) {
  size_t front, whole = guarded(bytes, &front);
  if (pages) munmap((uint8_t *)pages - front, whole);
}
#else
void *er_pages_take(size_t bytes) {
  void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return NULL;
#ifdef MADV_HUGEPAGE
  if (bytes >= HUGE_PAGES_FROM) madvise(pages, bytes, MADV_HUGEPAGE);
#endif
  return pages;
}

void er_pages_give(void *pages, size_t bytes) {
  if (pages) munmap(pages, bytes);
}
#endif

size_t er_memory_limit(void) {
  long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || size <= 0) return SIZE_MAX / 2;
  return (uint64_t)pages > SIZE_MAX / 2 / (uint64_t)size ? SIZE_MAX / 2 : (size_t)pages * (size_t)size;
}
#endif
