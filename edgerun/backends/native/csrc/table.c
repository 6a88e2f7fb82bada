/* Names of the kernels. */
#include <string.h>
#include "edgerun.h"
#include "plan.h"

#ifndef ER_KERNEL_TABLE
#define ER_KERNEL_TABLE "kernels.def"
#endif

const char *const er_kernel_names[] = {
#define ER_KERNEL(name, file, contract) #name,
#include ER_KERNEL_TABLE
    NULL,
};

int er_kernel_count(void) { return (int)(sizeof er_kernel_names / sizeof *er_kernel_names) - 1; }

int er_kernel_find(const char *name) {
  for (int i = 0; er_kernel_names[i]; i++)
    if (!strcmp(er_kernel_names[i], name)) return i;
  return -1;
}

enum er_flow er_kernel_flow(const char *name) {
  return !strcmp(name, "skip_unless")  ? ER_FLOW_SKIP
         : !strcmp(name, "fail")       ? ER_FLOW_FAIL
         : !strcmp(name, "bind_sizes") ? ER_FLOW_SIZES
                                       : ER_FLOW_NONE;
}

const char *er_kernel_name(int index) {
  return index < 0 || index >= er_kernel_count() ? NULL : er_kernel_names[index];
}
