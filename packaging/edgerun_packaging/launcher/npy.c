/* NumPy's .npy (versions 1 to 3) from files, pipes and memory. Every byte is hostile until proved otherwise. */
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
  source s = {STDIN_FILENO, 0, 0, UINT64_MAX, "standard input", NULL};
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

source source_memory(const void *data, uint64_t bytes, const char *name) {
  return (source){-1, 0, 0, bytes, name, data};
}

/* The byte that source_more has read ahead from standard input; -1: none. */
static int ahead = -1;

int source_more(source *s) {
  uint8_t byte;
  ssize_t n;
  if (ahead >= 0) return 1;
  while ((n = read(s->fd, &byte, 1)) < 0 && errno == EINTR) continue;
  if (n < 0) fail(EXIT_IO, "cannot read %s: %s", s->path, strerror(errno));
  if (n == 1) ahead = byte;
  return n == 1;
}

void source_read(source *s, void *to, uint64_t bytes) {
  char *at = to;
  if (bytes > s->left)
    fail(EXIT_IO, "%s ends too early: %llu bytes are missing", s->path, (unsigned long long)(bytes - s->left));
  if (s->memory) {
    if (bytes) memcpy(at, s->memory + s->offset, (size_t)bytes);
    s->offset += bytes;
    s->left -= bytes;
    return;
  }
  if (bytes && !s->seekable && ahead >= 0) {
    *at++ = (char)ahead;
    ahead = -1;
    bytes--;
  }
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
  type->bytes = (uint64_t)dtype_size(type->dtype);
  for (int i = 0; i < type->rank; i++)
    if (__builtin_mul_overflow(type->bytes, (uint64_t)type->dim[i], &type->bytes))
      bad_header(&p, "the array is too large");
  if (s->seekable && s->left != type->bytes)
    fail(EXIT_IO, "%s holds %llu bytes of data, its header says %llu", s->path, (unsigned long long)s->left,
         (unsigned long long)type->bytes);
}

int npy_header(char *to, const er_io_info *info) {
  static const char *const descr[] = {"",    "<f4", "<f8", "<f2", "<V2", "|i1", "<i2",
                                      "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "|b1"};
  char dims[192] = "";
  size_t n = 0;
  for (int i = 0; i < info->rank; i++)
    n += (size_t)snprintf(dims + n, sizeof dims - n, "%lld,%s", (long long)info->dim[i], i + 1 < info->rank ? " " : "");
  if (info->rank > 1) dims[n - 1] = 0; /* (2, 3) but (2,) */
  int length = snprintf(to + 10, NPY_HEADER_LIMIT - 10, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
                        info->dtype > ER_BOOL ? "|u1" : descr[info->dtype], dims);
  int padded = (length + 1 + 10 + 63) / 64 * 64 - 10;
  memset(to + 10 + length, ' ', (size_t)(padded - length));
  to[10 + padded - 1] = '\n';
  memcpy(to, "\x93NUMPY\x01\x00", 8);
  to[8] = (char)(padded & 255);
  to[9] = (char)(padded >> 8);
  return 10 + padded;
}

int ends_with(const char *text, const char *tail) {
  size_t n = strlen(text), m = strlen(tail);
  return n >= m && !strcmp(text + n - m, tail);
}
