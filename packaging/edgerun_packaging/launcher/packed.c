/* Opening oneself: ELF | padding | plan at a page boundary | 64-byte footer. docs/packed-file-format.md. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "launcher.h"

/* /proc may be missing (early boot, chroot, sandbox): the kernel also passes the path it executed. */
static int open_self(const char *argv0) {
  int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  const char *executed = (const char *)getauxval(AT_EXECFN);
  if (fd < 0 && executed) fd = open(executed, O_RDONLY | O_CLOEXEC);
  if (fd < 0 && argv0) fd = open(argv0, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    fail(EXIT_IO, "cannot open this executable to read its model: %s; mount /proc or call it by its path",
         strerror(errno));
  return fd;
}

/* Returns whether the file ends in a footer; fills *f. */
static int read_footer(int fd, uint64_t file_bytes, pack_footer *f) {
  if (file_bytes < sizeof *f) return 0;
  ssize_t n = pread(fd, f, sizeof *f, (off_t)(file_bytes - sizeof *f));
  return n == (ssize_t)sizeof *f && memcmp(f->magic, PACK_MAGIC, sizeof f->magic) == 0;
}

static void read_signature(packed *p) {
  pack_signature *s = &p->signature;
  if (pread(p->fd, s, sizeof *s, (off_t)(p->plan_offset + p->plan_bytes)) != (ssize_t)sizeof *s)
    fail(EXIT_IO, "cannot read the signature: %s", strerror(errno));
  if (memcmp(s->magic, PACK_SIGNATURE_MAGIC, sizeof s->magic) || s->version != 1)
    fail(EXIT_IO, "the signature of this file is of an unknown kind; pack it again");
  p->is_signed = 1;
  if (s->required && !plan_signed(p->fd, p->plan_offset, p->plan_bytes, s))
    fail(EXIT_IO, "the signature of the model is wrong: it was changed after it was signed; copy the file again");
}

void packed_open(packed *p, const char *argv0) {
  int fd = open_self(argv0);
  struct stat st;
  pack_footer f;
  if (fstat(fd, &st) < 0) fail(EXIT_IO, "cannot read this executable: %s", strerror(errno));
  p->file_bytes = (uint64_t)st.st_size;
  if (!read_footer(fd, p->file_bytes, &f))
    fail(EXIT_IO,
         "this executable holds no model: its end is missing (an empty stub, a truncated copy, or stripped or "
         "compressed after packing); pack it again or copy it again");
  if (f.checksum != er_fnv1a(&f, offsetof(pack_footer, checksum)))
    fail(EXIT_IO, "the footer of this file is damaged (checksum); copy it again");
  if (f.version != PACK_VERSION)
    fail(EXIT_IO, "this file has packed-file version %u, the launcher reads version %d; pack it again", f.version,
         PACK_VERSION);
  if (f.arch != OWN_ARCH)
    fail(EXIT_IO, "the plan was made for another architecture (%u) than this launcher (%d); pack it again", f.arch,
         OWN_ARCH);
  if (f.plan_offset % PACK_ALIGNMENT || f.plan_offset < f.stub_bytes || f.plan_bytes < sizeof(er_pheader) ||
      f.plan_offset > p->file_bytes || (f.signature_bytes && f.signature_bytes != sizeof(pack_signature)) ||
      p->file_bytes - f.plan_offset < sizeof f + f.signature_bytes ||
      f.plan_bytes != p->file_bytes - sizeof f - f.signature_bytes - f.plan_offset)
    fail(EXIT_IO, "the footer does not fit the size of this file (truncated or changed); copy it again");
  if (f.plan_bytes > SIZE_MAX / 2) fail(EXIT_IO, "the model does not fit into this machine's address space");
  void *map = mmap(NULL, (size_t)f.plan_bytes, PROT_READ, MAP_PRIVATE, fd, (off_t)f.plan_offset);
  if (map == MAP_FAILED)
    fail(errno == ENOMEM ? EXIT_HARDWARE : EXIT_IO, "cannot map the model's %.2f MB: %s%s", (double)f.plan_bytes / 1e6,
         strerror(errno), errno == ENOMEM ? "; raise RLIMIT_AS (ulimit -v)" : "");
  p->fd = fd;
  p->plan_offset = f.plan_offset;
  p->plan = map;
  p->plan_bytes = f.plan_bytes;
  p->stub_bytes = f.stub_bytes;
  p->header = map;
  if (f.header_checksum != er_fnv1a(map, sizeof(er_pheader)))
    fail(EXIT_IO, "the plan's header is damaged (checksum); copy the file again");
  if (memcmp(p->header->magic, ER_PLAN_MAGIC, 8) || p->header->total_bytes != p->plan_bytes)
    fail(EXIT_IO, "the model inside this file is not a plan of the size the footer says; pack it again");
  if (f.signature_bytes) read_signature(p);
}

section packed_section(const packed *p, uint32_t kind) {
  section none = {0};
  uint64_t n = p->header->n_sections;
  if (n > (p->plan_bytes - sizeof(er_pheader)) / sizeof(er_psection)) return none;
  const er_psection *table = (const er_psection *)(p->plan + sizeof(er_pheader));
  for (uint64_t i = 0; i < n; i++) {
    if (table[i].kind != kind) continue;
    if (table[i].offset > p->plan_bytes || table[i].bytes > p->plan_bytes - table[i].offset || table[i].offset % 8)
      fail(EXIT_IO, "section %u of the plan lies outside the file; copy the file again", kind);
    return (section){p->plan + table[i].offset, table[i].bytes, table[i].count};
  }
  return none;
}

/* Reads the file instead of the mapping: the pages come into the page cache, where the first run finds them, but they
 * do not count as this process's memory before a kernel touches them. */
int weights_intact(const packed *p) {
  static uint64_t block[4096];
  section weights = packed_section(p, ER_SEC_WEIGHTS);
  uint64_t hash = 0xcbf29ce484222325u, at = p->plan_offset + (uint64_t)(weights.data ? weights.data - p->plan : 0);
  for (uint64_t left = weights.bytes; left;) {
    size_t n = left < sizeof block ? (size_t)left : sizeof block;
    block[(n - 1) / 8] = 0; /* the last word is padded with zeros */
    for (size_t got = 0; got < n;) {
      ssize_t r = pread(p->fd, (char *)block + got, n - got, (off_t)(at + got));
      if (r < 0 && errno == EINTR) continue;
      if (r <= 0) fail(EXIT_IO, "cannot read the weights: %s", r ? strerror(errno) : "the file has become shorter");
      got += (size_t)r;
    }
    for (size_t i = 0; i < (n + 7) / 8; i++) hash = (hash ^ block[i]) * 0x100000001b3u;
    at += n;
    left -= n;
  }
  return hash == p->header->weights_checksum;
}
