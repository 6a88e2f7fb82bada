/* Text out: one static buffer in front of standard output, so that no stdio stream (and no heap) is needed. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "launcher.h"

static const char *name_of_program = "model";
static char buffer[4096];
static size_t used;
static struct {
  char *to; /* NULL: nothing is captured */
  size_t size, used;
} capture;
static failure *catcher;

void set_program(const char *argv0) {
  if (!argv0 || !*argv0) return;
  const char *slash = strrchr(argv0, '/');
  name_of_program = slash && slash[1] ? slash + 1 : argv0;
}

const char *program(void) { return name_of_program; }

static void write_all(int fd, const char *data, size_t bytes) {
  while (bytes) {
    ssize_t n = write(fd, data, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      if (fd == STDERR_FILENO) return;
      used = 0;
      if (errno == EPIPE) _exit(EXIT_IO); /* the reader has left: nothing more to say */
      fail(EXIT_IO, "cannot write to standard output: %s", strerror(errno));
    }
    data += n;
    bytes -= (size_t)n;
  }
}

/* Names in a hostile file must not steer the terminal or break the line. */
static void without_control_bytes(char *text) {
  for (; *text; text++)
    if ((unsigned char)*text < 32 || *text == 127) *text = '?';
}

static void message(const char *format, va_list arguments) {
  char line[1024];
  int n = snprintf(line, sizeof line, "%s: ", name_of_program);
  if (n < 0 || n > 256) n = 0;
  int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, format, arguments);
  if (m < 0) return;
  without_control_bytes(line);
  size_t length = strlen(line);
  line[length++] = '\n';
  write_all(STDERR_FILENO, line, length);
}

void catch_failures(failure *f) { catcher = f; }
void release_failures(void) { catcher = NULL; }

_Noreturn void fail(int code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  if (catcher) {
    failure *f = catcher;
    catcher = NULL;
    f->code = code;
    vsnprintf(f->text, sizeof f->text, format, arguments);
    va_end(arguments);
    without_control_bytes(f->text);
    longjmp(f->back, 1);
  }
  out_flush();
  message(format, arguments);
  va_end(arguments);
  _exit(code);
}

void note(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  message(format, arguments);
  va_end(arguments);
}

void out_flush(void) {
  size_t n = used;
  used = 0;
  write_all(STDOUT_FILENO, buffer, n);
}

void out_capture(char *to, size_t size) {
  capture.to = to;
  capture.size = size;
  capture.used = 0;
}

size_t out_captured(void) { return capture.used; }

void out_bytes(const void *data, size_t bytes) {
  if (capture.to) {
    if (capture.used <= capture.size && bytes <= capture.size - capture.used)
      memcpy(capture.to + capture.used, data, bytes);
    capture.used += bytes;
    return;
  }
  if (bytes > sizeof buffer - used) out_flush();
  if (bytes > sizeof buffer) {
    write_all(STDOUT_FILENO, data, bytes);
    return;
  }
  memcpy(buffer + used, data, bytes);
  used += bytes;
}

void out(const char *format, ...) {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  int n = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (n < 0) return;
  out_bytes(line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

/* Bytes of the character at text[0, left); *valid: whether it is UTF-8 (RFC 3629). What is not counts as far as it could
 * have been the start of one, as Python and browsers do. */
static size_t character_bytes(const char *text, size_t left, int *valid) {
  const unsigned char *p = (const unsigned char *)text;
  unsigned char c = *p, low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80, high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
  size_t n = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0, i = 1;
  for (; i < n && i < left && p[i] >= low && p[i] <= high; i++, low = 0x80) high = 0xbf;
  *valid = i == n;
  return i;
}

void out_json_text(const char *text, size_t length) {
  out_bytes("\"", 1);
  for (size_t i = 0, n; i < length; i += n) {
    unsigned char c = (unsigned char)text[i];
    int valid;
    n = character_bytes(text + i, length - i, &valid);
    if (!valid) out("\\ufffd");
    else if (c == '"' || c == '\\') out("\\%c", c);
    else if (c < 32) out("\\u%04x", c);
    else out_bytes(text + i, n);
  }
  out_bytes("\"", 1);
}

void out_json_number(double value) {
  if (isnan(value)) out("\"nan\"");
  else if (isinf(value)) out(value > 0 ? "\"inf\"" : "\"-inf\"");
  else if (value == floor(value) && fabs(value) < 1e15) out("%.0f", value);
  else out("%.9g", value);
}

const char *dtype_name(int dtype) {
  static const char *const names[] = {
      "?",   "f32",      "f64",        "f16",    "bf16",       "i8", "i16", "i32",    "i64",    "u8", "u16", "u32",
      "u64", "bool",     "?",          "?",      "?",          "f8e4m3fn",  "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz",
      "u4",  "i4",       "f4e2m1",     "f8e8m0", "u2",         "i2", "f6e2m3", "f6e3m2"};
  return dtype > 0 && dtype <= ER_F6E3M2 ? names[dtype] : "?";
}

void shape_text(char *to, size_t size, const int64_t *dim, int rank) {
  size_t n = (size_t)snprintf(to, size, "[");
  for (int i = 0; i < rank && n < size; i++) {
    if (dim[i] < 0) n += (size_t)snprintf(to + n, size - n, "%s?", i ? ", " : "");
    else n += (size_t)snprintf(to + n, size - n, "%s%lld", i ? ", " : "", (long long)dim[i]);
  }
  if (n < size) snprintf(to + n, size - n, "]");
}
