/* The plan behind the shared library's own file. */
#ifndef __wasm__
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "edgerun.h"
#include "own_plan.h"
#include "pack_format.h"
#include "plan_format.h"

static _Thread_local char message[512];

static int refuse(int status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return status;
}

/* Maps the plan behind the shared library that this function is in. */
int own_plan_open(own_plan *own, const char **error) {
  *error = message;
  Dl_info self;
  if (!dladdr((void *)(uintptr_t)&own_plan_open, &self) || !self.dli_fname)
    return refuse(ER_BAD_PLAN, "this library does not know its own file: give the plan to edgerun_open");
  int fd = open(self.dli_fname, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return refuse(ER_BAD_PLAN, "cannot open %s: %s", self.dli_fname, strerror(errno));
  struct stat st;
  pack_footer f;
  int status = ER_OK;
  if (fstat(fd, &st) < 0 || st.st_size < (off_t)sizeof f ||
      pread(fd, &f, sizeof f, st.st_size - (off_t)sizeof f) != (ssize_t)sizeof f || memcmp(f.magic, PACK_MAGIC, 8)) {
    status = refuse(ER_BAD_PLAN, "%s holds no model: with the static library give edgerun_plan to edgerun_open; "
                    "else the file is truncated or was stripped, pack it again", self.dli_fname);
  } else if (f.checksum != er_fnv1a(&f, offsetof(pack_footer, checksum)) || f.version != PACK_VERSION ||
             f.arch != OWN_ARCH || f.plan_offset % PACK_ALIGNMENT || f.plan_bytes < sizeof(er_pheader) ||
             f.plan_bytes > SIZE_MAX / 2 || f.plan_offset > (uint64_t)st.st_size ||
             f.plan_bytes != (uint64_t)st.st_size - sizeof f - f.plan_offset) {
    status = refuse(ER_BAD_PLAN, "the end of %s is damaged, or it was made for another version or processor; "
                    "copy it again or pack it again", self.dli_fname);
  } else {
    void *map = mmap(NULL, (size_t)f.plan_bytes, PROT_READ, MAP_PRIVATE, fd, (off_t)f.plan_offset);
    if (map == MAP_FAILED) {
      status = refuse(ER_NO_MEMORY, "cannot map %s: %s", self.dli_fname, strerror(errno));
    } else {
      *own = (own_plan){map, (size_t)f.plan_bytes};
      if (f.header_checksum != er_fnv1a(map, sizeof(er_pheader)))
        status = refuse(ER_BAD_PLAN, "the plan in %s is damaged; copy it again", self.dli_fname);
    }
  }
  close(fd);
  return status;
}

void own_plan_close(own_plan *own) {
  if (own->data) munmap(own->data, own->bytes);
  own->data = NULL;
}
#endif
