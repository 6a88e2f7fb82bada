/* NumPy's .npz with stored members, which is a zip archive of .npy files. The directory of the archive is hostile. */
#include <stdio.h>
#include <string.h>
#include "launcher.h"

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
