/* The plan that belongs to this library: behind its file, or in its memory (WebAssembly). */
#ifndef EDGERUN_OWN_PLAN_H
#define EDGERUN_OWN_PLAN_H
#include <stddef.h>

typedef struct {
  void *data;  /* the plan; NULL: none is open */
  size_t bytes;
} own_plan;

/* A status of edgerun.h; on failure *error gets a sentence (static per thread). */
int own_plan_open(own_plan *own, const char **error);
void own_plan_close(own_plan *own);
#endif
