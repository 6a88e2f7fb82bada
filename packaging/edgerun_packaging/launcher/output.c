/* Results as .npy files, as one .npz, or as a stream on standard output. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "launcher.h"

/* A file that is being written; it is removed again when that fails. */
typedef struct {
  int fd;
  const char *path;
  uint64_t offset;
} sink;

static sink sink_open(const char *path, int force) {
  int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (force ? O_TRUNC : O_EXCL), 0644);
  if (fd < 0)
    fail(EXIT_IO, "cannot write %s: %s%s", path, strerror(errno), errno == EEXIST ? "; use --force to replace it" : "");
  return (sink){fd, path, 0};
}

static void sink_write(sink *s, const void *data, uint64_t bytes) {
  for (uint64_t done = 0; done < bytes;) {
    size_t chunk = bytes - done > 1u << 30 ? 1u << 30 : (size_t)(bytes - done);
    ssize_t w = write(s->fd, (const char *)data + done, chunk);
    if (w < 0 && errno == EINTR) continue;
    if (w <= 0) {
      unlink(s->path);
      fail(EXIT_IO, "cannot write %s: %s", s->path, strerror(errno));
    }
    done += (uint64_t)w;
  }
  s->offset += bytes;
}

static void sink_close(sink *s) {
  if (close(s->fd) < 0) fail(EXIT_IO, "cannot write %s: %s", s->path, strerror(errno));
}

/* Tensor names may hold slashes and worse: keep them out of paths. */
static void safe_name(const char *name, char *to, size_t size) {
  size_t n = 0;
  for (const char *c = name; *c && n + 1 < size; c++)
    to[n++] = (*c == '/' || *c == '\\' || (unsigned char)*c < 32) ? '_' : *c;
  to[n] = 0;
  if (to[0] == '.') to[0] = '_';
}

void write_folder(const bound *b, const char *directory, int force) {
  char path[1024], safe[256], head[NPY_HEADER_LIMIT];
  er_io_info info;
  if (mkdir(directory, 0777) && errno != EEXIST)
    fail(EXIT_IO, "cannot make the folder %s: %s", directory, strerror(errno));
  for (int i = 0; i < b->n_outputs; i++) {
    er_output_info(b->model, i, &info);
    safe_name(info.name, safe, sizeof safe);
    if (snprintf(path, sizeof path, "%s/%s.npy", directory, safe) >= (int)sizeof path)
      fail(EXIT_USAGE, "the path of output %s is too long", safe);
    sink s = sink_open(path, force);
    sink_write(&s, head, (uint64_t)npy_header(head, &info));
    sink_write(&s, er_output_data(b->model, i), info.bytes);
    sink_close(&s);
  }
}

/* -- .npz: local header and data of each member, then the directory */

static uint32_t crc32_of(uint32_t crc, const uint8_t *data, uint64_t bytes) {
  static const uint32_t nibble[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
                                      0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                      0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
  crc = ~crc;
  for (uint64_t i = 0; i < bytes; i++) {
    crc ^= data[i];
    crc = crc >> 4 ^ nibble[crc & 15];
    crc = crc >> 4 ^ nibble[crc & 15];
  }
  return ~crc;
}

static void put(uint8_t **at, uint32_t value, int bytes) {
  for (int i = 0; i < bytes; i++) *(*at)++ = (uint8_t)(value >> (8 * i));
}

/* The fields that local header and directory entry share: version needed to name length. 26 bytes. */
static void put_common(uint8_t **at, uint32_t crc, uint32_t size, size_t name_length) {
  put(at, 20, 2);
  put(at, 0x800, 2);        /* names are UTF-8 */
  put(at, 0, 2);            /* stored */
  put(at, 0x00210000, 4);   /* 1980-01-01 */
  put(at, crc, 4);
  put(at, size, 4);
  put(at, size, 4);
  put(at, (uint32_t)name_length, 2);
  put(at, 0, 2);            /* extra field */
}

typedef struct {
  uint32_t crc, size, offset;
  char name[256];
} member;

static void write_member(sink *s, member *m, const er_io_info *info, const void *data) {
  char head[NPY_HEADER_LIMIT];
  uint8_t local[30], *at = local;
  uint64_t length = (uint64_t)npy_header(head, info);
  if (length + info->bytes > UINT32_MAX || s->offset > UINT32_MAX / 2)
    fail(EXIT_USAGE, "%s would be larger than 4 GB; use --output-dir", s->path);
  char safe[250];
  safe_name(info->name, safe, sizeof safe);
  snprintf(m->name, sizeof m->name, "%s.npy", safe);
  m->size = (uint32_t)(length + info->bytes);
  m->offset = (uint32_t)s->offset;
  m->crc = crc32_of(crc32_of(0, (const uint8_t *)head, length), data, info->bytes);
  put(&at, 0x04034b50, 4);
  put_common(&at, m->crc, m->size, strlen(m->name));
  sink_write(s, local, sizeof local);
  sink_write(s, m->name, strlen(m->name));
  sink_write(s, head, length);
  sink_write(s, data, info->bytes);
}

static void write_npz(const bound *b, const char *path, int force) {
  static member members[MAX_IO];
  uint8_t block[46], *at;
  er_io_info info;
  int n = b->n_outputs < MAX_IO ? b->n_outputs : MAX_IO;
  if (b->n_outputs > MAX_IO) fail(EXIT_USAGE, "the model has more than %d outputs; use --output-dir", MAX_IO);
  sink s = sink_open(path, force);
  for (int i = 0; i < n; i++) {
    er_output_info(b->model, i, &info);
    write_member(&s, &members[i], &info, er_output_data(b->model, i));
  }
  uint64_t start = s.offset;
  for (int i = 0; i < n; i++) {
    at = block;
    put(&at, 0x02014b50, 4);
    put(&at, 20, 2);
    put_common(&at, members[i].crc, members[i].size, strlen(members[i].name));
    put(&at, 0, 2); /* comment */
    put(&at, 0, 2); /* disk */
    put(&at, 0, 2);
    put(&at, 0, 4); /* attributes */
    put(&at, members[i].offset, 4);
    sink_write(&s, block, sizeof block);
    sink_write(&s, members[i].name, strlen(members[i].name));
  }
  uint64_t end = s.offset;
  at = block;
  put(&at, 0x06054b50, 4);
  put(&at, 0, 4);
  put(&at, (uint32_t)n, 2);
  put(&at, (uint32_t)n, 2);
  put(&at, (uint32_t)(end - start), 4);
  put(&at, (uint32_t)start, 4);
  put(&at, 0, 2);
  sink_write(&s, block, 22);
  sink_close(&s);
}

int is_standard_output(const char *destination) {
  return destination && (!strcmp(destination, "-") || !strcmp(destination, "raw:-"));
}

void write_outputs(const bound *b, const char *destination, int force) {
  char head[NPY_HEADER_LIMIT];
  er_io_info info;
  if (!is_standard_output(destination)) {
    if (!ends_with(destination, ".npz"))
      fail(EXIT_USAGE, "--output takes FILE.npz, - (npy on standard output) or raw:- (plain bytes), not '%s'",
           destination);
    write_npz(b, destination, force);
    return;
  }
  for (int i = 0; i < b->n_outputs; i++) {
    er_output_info(b->model, i, &info);
    if (*destination == '-') out_bytes(head, (size_t)npy_header(head, &info));
    out_bytes(er_output_data(b->model, i), (size_t)info.bytes);
  }
  out_flush(); /* whoever reads the stream may wait for this record */
}
