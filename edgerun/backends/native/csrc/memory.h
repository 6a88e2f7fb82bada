/* Zeroed pages from the system: the arena and what else a model holds. */
#ifndef EDGERUN_MEMORY_H
#define EDGERUN_MEMORY_H
#include <stddef.h>
void *er_pages_take(size_t bytes); /* NULL when there is no memory; 64-byte aligned at least; bytes > 0 */
void er_pages_give(void *pages, size_t bytes);
size_t er_memory_limit(void);      /* physical memory of the machine; more than that is refused */
#endif
