/* NumPy's .npy (versions 1 to 3) and .npz with stored members. A file is hostile until proved otherwise. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "launcher.h"

#define HEADER_LIMIT 8192

source source_open(const char *path) {
  source s = {STDIN_FILENO, 0, 0, UINT64_MAX, "standard input"};
  struct stat st;
  if (!strcmp(path, "-")) return s;
  s.path = path;
  s.fd = open(path, O_RDONLY | O_CLOEXEC);
  if (s.fd < 0 || fstat(s.fd, &st) < 0) fail(EXIT_IO, "cannot read %s: %s", path, strerror(errno));
  if (S_ISDIR(st.st_mode)) fail(EXIT_IO, "cannot read %s: it is a folder", path);
  s.seekable = S_ISREG(st.st_mode);
  if (s.seekable) s.left = (uint64_t)st.st_size;
  return s;
}

void source_read(source *s, void *to, uint64_t bytes) {
  char *at = to;
  if (bytes > s->left)
    fail(EXIT_IO, "%s ends too early: %llu bytes are missing", s->path, (unsigned long long)(bytes - s->left));
  while (bytes) {
    size_t chunk = bytes > (1u << 24) ? 1u << 24 : (size_t)bytes;
    ssize_t n = s->seekable ? pread(s->fd, at, chunk, (off_t)s->offset) : read(s->fd, at, chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(EXIT_IO, "cannot read %s: %s", s->path, strerror(errno));
    if (n == 0) fail(EXIT_IO, "%s ends too early: %llu bytes are missing", s->path, (unsigned long long)bytes);
    at += n;
    bytes -= (uint64_t)n;
    s->offset += (uint64_t)n;
    if (s->left != UINT64_MAX) s->left -= (uint64_t)n;
  }
}

/* -- the header: a Python dict literal such as {'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), } */

typedef struct {
  const char *at, *end, *path;
} parser;

static _Noreturn void bad_header(const parser *p, const char *what) {
  fail(EXIT_IO, "%s has a broken .npy header: %s; write it with numpy.save", p->path, what);
}

static void spaces(parser *p) {
  while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\t')) p->at++;
}

static int accept(parser *p, const char *word) {
  size_t n = strlen(word);
  spaces(p);
  if ((size_t)(p->end - p->at) < n || memcmp(p->at, word, n)) return 0;
  p->at += n;
  return 1;
}

static void expect(parser *p, const char *word) {
  if (!accept(p, word)) bad_header(p, "it is not the dictionary that numpy writes");
}

static void parse_text(parser *p, char *to, size_t size) {
  spaces(p);
  char quote = p->at < p->end ? *p->at++ : 0;
  if (quote != '\'' && quote != '"') bad_header(p, "a quoted word is missing");
  size_t n = 0;
  for (; p->at < p->end && *p->at != quote && n + 1 < size; p->at++) to[n++] = *p->at & 0x80 ? '?' : *p->at;
  to[n] = 0;
  if (p->at >= p->end || *p->at++ != quote) bad_header(p, "a word is too long (structured dtypes are not supported)");
}

static void parse_shape(parser *p, array_type *type) {
  expect(p, "(");
  type->rank = 0;
  while (!accept(p, ")")) {
    if (type->rank == ER_MAX_RANK) bad_header(p, "more than 8 dimensions");
    uint64_t n = 0;
    const char *start = p->at;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9') {
      n = n * 10 + (uint64_t)(*p->at++ - '0');
      if (n > INT64_MAX / 16) bad_header(p, "a dimension is too large");
    }
    if (p->at == start) bad_header(p, "a dimension is not a number");
    type->dim[type->rank++] = (int64_t)n;
    if (!accept(p, ",")) {
      expect(p, ")");
      break;
    }
  }
}

static int parse_descr(const parser *p, const char *descr) {
  static const struct {
    const char *name;
    int dtype;
  } table[] = {{"f4", ER_F32}, {"f8", ER_F64}, {"f2", ER_F16}, {"V2", ER_BF16}, {"i1", ER_I8},
               {"i2", ER_I16}, {"i4", ER_I32}, {"i8", ER_I64}, {"u1", ER_U8},   {"u2", ER_U16},
               {"u4", ER_U32}, {"u8", ER_U64}, {"b1", ER_BOOL}};
  if (*descr == '>') fail(EXIT_IO, "%s is big-endian (%s); save it as little-endian", p->path, descr);
  const char *name = *descr == '<' || *descr == '|' || *descr == '=' ? descr + 1 : descr;
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (!strcmp(name, table[i].name)) return table[i].dtype;
  fail(EXIT_IO, "%s holds elements of type '%s', which no input takes", p->path, descr);
}

static void parse_header(parser *p, array_type *type) {
  int seen = 0, fortran = 0;
  char key[32], descr[32];
  expect(p, "{");
  while (!accept(p, "}")) {
    parse_text(p, key, sizeof key);
    expect(p, ":");
    if (!strcmp(key, "descr")) {
      parse_text(p, descr, sizeof descr);
      type->dtype = parse_descr(p, descr);
      seen |= 1;
    } else if (!strcmp(key, "fortran_order")) {
      fortran = accept(p, "True");
      if (!fortran) expect(p, "False");
      seen |= 2;
    } else if (!strcmp(key, "shape")) {
      parse_shape(p, type);
      seen |= 4;
    } else {
      bad_header(p, "it has an unknown key");
    }
    if (!accept(p, ",")) {
      expect(p, "}");
      break;
    }
  }
  if (seen != 7) bad_header(p, "descr, fortran_order or shape is missing");
  if (fortran && type->rank > 1) fail(EXIT_IO, "%s is in Fortran order; save numpy.ascontiguousarray(x)", p->path);
}

void npy_read_header(source *s, array_type *type) {
  static char text[HEADER_LIMIT];
  uint8_t head[12];
  source_read(s, head, 10);
  if (memcmp(head, "\x93NUMPY", 6)) fail(EXIT_IO, "%s is not an .npy file", s->path);
  if (head[6] < 1 || head[6] > 3) fail(EXIT_IO, "%s has .npy version %d; versions 1 to 3 are known", s->path, head[6]);
  uint32_t length = head[8] | (uint32_t)head[9] << 8;
  if (head[6] > 1) {
    source_read(s, head + 10, 2);
    length |= (uint32_t)head[10] << 16 | (uint32_t)head[11] << 24;
  }
  if (length > HEADER_LIMIT)
    fail(EXIT_IO, "%s has an .npy header of %u bytes; at most %d are read", s->path, length, HEADER_LIMIT);
  source_read(s, text, length);
  parser p = {text, text + length, s->path};
  parse_header(&p, type);
  static const uint8_t size[] = {0, 4, 8, 2, 2, 1, 2, 4, 8, 1, 2, 4, 8, 1};
  type->bytes = size[type->dtype];
  for (int i = 0; i < type->rank; i++)
    if (__builtin_mul_overflow(type->bytes, (uint64_t)type->dim[i], &type->bytes))
      bad_header(&p, "the array is too large");
  if (s->left != UINT64_MAX && s->left != type->bytes)
    fail(EXIT_IO, "%s holds %llu bytes of data, its header says %llu", s->path, (unsigned long long)s->left,
         (unsigned long long)type->bytes);
}

/* -- .npz: a zip archive of .npy files */

static uint32_t u16(const uint8_t *p) { return p[0] | (uint32_t)p[1] << 8; }
static uint32_t u32(const uint8_t *p) { return u16(p) | u16(p + 2) << 16; }

static void read_at(const source *s, uint64_t offset, void *to, uint64_t bytes) {
  source part = *s;
  part.offset = offset;
  part.left = offset > s->left ? 0 : s->left - offset;
  source_read(&part, to, bytes);
}

/* Offset of the end record, which an archive comment of up to 64 KiB may follow. */
static uint64_t find_end(const source *s) {
  uint8_t block[22];
  for (uint64_t back = 22; back <= s->left && back <= 22 + 65535; back++) {
    read_at(s, s->left - back, block, 22);
    if (u32(block) == 0x06054b50 && u16(block + 20) == back - 22) return s->left - back;
  }
  fail(EXIT_IO, "%s is not an .npz file", s->path);
}

/* Narrows *s (the whole file) to the data of MEMBER.npy, or to the only member when `member` is NULL. */
int npz_open(source *s, const char *member) {
  if (!s->seekable) fail(EXIT_USAGE, "%s: an .npz is read from a file, not from a pipe", s->path);
  uint8_t end[22], entry[46], local[30];
  char name[256];
  read_at(s, find_end(s), end, 22);
  uint64_t at = u32(end + 16);
  uint32_t count = u16(end + 10);
  if (!member && count != 1) return 0;
  for (uint32_t i = 0; i < count; i++) {
    read_at(s, at, entry, 46);
    if (u32(entry) != 0x02014b50) fail(EXIT_IO, "%s has a broken zip directory", s->path);
    uint32_t length = u16(entry + 28);
    uint32_t kept = length < sizeof name ? length : sizeof name - 1;
    read_at(s, at + 46, name, kept);
    name[kept] = 0;
    at += 46 + length + u16(entry + 30) + u16(entry + 32);
    if (ends_with(name, ".npy")) name[strlen(name) - 4] = 0;
    if (member && strcmp(name, member)) continue;
    if (u16(entry + 10) != 0)
      fail(EXIT_IO, "member %s of %s is compressed; write it with numpy.savez, not savez_compressed", name, s->path);
    uint64_t start = u32(entry + 42), bytes = u32(entry + 20);
    if (bytes == UINT32_MAX || start == UINT32_MAX)
      fail(EXIT_IO, "%s is larger than 4 GB; give the members as .npy", s->path);
    read_at(s, start, local, 30);
    if (u32(local) != 0x04034b50) fail(EXIT_IO, "%s has a broken zip member", s->path);
    start += 30 + u16(local + 26) + u16(local + 28);
    if (start > s->left || bytes > s->left - start) fail(EXIT_IO, "%s is truncated", s->path);
    s->offset = start;
    s->left = bytes;
    return 1;
  }
  return 0;
}

int ends_with(const char *text, const char *tail) {
  size_t n = strlen(text), m = strlen(tail);
  return n >= m && !strcmp(text + n - m, tail);
}

/* -- writing */

void npy_write(const char *directory, const char *name, const er_io_info *info, const void *data, int force) {
  static const char *const descr[] = {"",    "<f4", "<f8", "<f2", "<V2", "|i1", "<i2",
                                      "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "|b1"};
  char path[1024], safe[256], dims[192] = "", head[320];
  size_t n = 0;
  for (const char *c = name; *c && n + 1 < sizeof safe; c++) /* tensor names may hold slashes: keep them out of paths */
    safe[n++] = (*c == '/' || *c == '\\' || (unsigned char)*c < 32) ? '_' : *c;
  safe[n] = 0;
  if (safe[0] == '.') safe[0] = '_';
  if (snprintf(path, sizeof path, "%s/%s.npy", directory, safe) >= (int)sizeof path)
    fail(EXIT_USAGE, "the path of output %s is too long", safe);
  n = 0;
  for (int i = 0; i < info->rank; i++)
    n += (size_t)snprintf(dims + n, sizeof dims - n, "%lld,%s", (long long)info->dim[i], i + 1 < info->rank ? " " : "");
  if (info->rank > 1) dims[n - 1] = 0; /* (2, 3) but (2,) */
  int length = snprintf(head + 10, sizeof head - 10, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
                        descr[info->dtype], dims);
  int padded = (length + 1 + 10 + 63) / 64 * 64 - 10;
  memset(head + 10 + length, ' ', (size_t)(padded - length));
  head[10 + padded - 1] = '\n';
  memcpy(head, "\x93NUMPY\x01\x00", 8);
  head[8] = (char)(padded & 255);
  head[9] = (char)(padded >> 8);
  int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (force ? O_TRUNC : O_EXCL), 0644);
  if (fd < 0)
    fail(EXIT_IO, "cannot write %s: %s%s", path, strerror(errno), errno == EEXIST ? "; use --force to replace it" : "");
  const struct {
    const void *data;
    uint64_t bytes;
  } part[2] = {{head, 10 + (uint64_t)padded}, {data, info->bytes}};
  for (int i = 0; i < 2; i++) {
    for (uint64_t done = 0; done < part[i].bytes;) {
      ssize_t w = write(fd, (const char *)part[i].data + done, (size_t)(part[i].bytes - done));
      if (w < 0 && errno == EINTR) continue;
      if (w <= 0) {
        unlink(path);
        fail(EXIT_IO, "cannot write %s: %s", path, strerror(errno));
      }
      done += (uint64_t)w;
    }
  }
  if (close(fd) < 0) fail(EXIT_IO, "cannot write %s: %s", path, strerror(errno));
}
