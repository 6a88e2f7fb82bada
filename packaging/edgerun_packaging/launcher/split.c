/* Cutting a text into words as the regular expressions of known tokenizers do; edgerun/text/split.py has them. */
#include <string.h>
#include "tokenizer.h"

/* The character at text[at], at < end: its code point and length. A byte that starts none counts for itself. */
static uint32_t character(const char *text, size_t at, size_t end, size_t *length) {
  const uint8_t *p = (const uint8_t *)text + at;
  uint32_t c = p[0];
  size_t n = c < 0xc2 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 1;
  *length = 1;
  if (n == 1 || n > end - at) return c < 0x80 ? c : 0xfffd;
  c &= 0x7fu >> n;
  for (size_t i = 1; i < n; i++) {
    if ((p[i] & 0xc0) != 0x80) return 0xfffd;
    c = c << 6 | (p[i] & 0x3f);
  }
  *length = n;
  return c;
}

static int class_of(const tokenizer *t, uint32_t code) {
  uint32_t low = 0, high = t->n_classes;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (t->classes[2 * middle] <= code) low = middle + 1;
    else high = middle;
  }
  if (!low) return CLASS_OTHER;
  uint32_t last = t->classes[2 * (low - 1) + 1];
  return code <= (last & 0xffffff) ? (int)(last >> 24) : CLASS_OTHER;
}

static int class_at(const tokenizer *t, const char *text, size_t at, size_t end, size_t *length) {
  return class_of(t, character(text, at, end, length));
}

/* The end of the characters of one class from `at` on; *last: where the last of them starts. */
static size_t run(const tokenizer *t, const char *text, size_t at, size_t end, size_t *last) {
  size_t length;
  int kind = class_at(t, text, at, end, &length);
  for (*last = at, at += length; at < end; *last = at, at += length)
    if (class_at(t, text, at, end, &length) != kind) break;
  return at;
}

/* The length of 's, 't, 're, 've, 'm, 'll or 'd at text[at], 0 when there is none. */
static size_t contraction(const char *text, size_t at, size_t end, int any_case) {
  static const char *const endings[] = {"s", "t", "re", "ve", "m", "ll", "d"};
  if (text[at] != '\'') return 0;
  for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
    size_t n = strlen(endings[i]), k = 0;
    if (n > end - at - 1) continue;
    for (; k < n; k++) {
      char c = text[at + 1 + k];
      if (any_case && c >= 'A' && c <= 'Z') c = (char)(c + 32);
      if (c != endings[i][k]) break;
    }
    if (k == n) return 1 + n;
  }
  return 0;
}

/* White space, but for the last character when a word follows. */
static size_t white(const tokenizer *t, const char *text, size_t at, size_t end) {
  size_t last, stop = run(t, text, at, end, &last);
  return stop == end || last == at ? stop : last;
}

static size_t gpt2(const tokenizer *t, const char *text, size_t at, size_t end) {
  size_t n = contraction(text, at, end, 0), length, last;
  if (n) return at + n;
  size_t start = at + (text[at] == ' ');
  if (start < end && class_at(t, text, start, end, &length) != CLASS_SPACE) return run(t, text, start, end, &last);
  return white(t, text, at, end);
}

static int is_newline(char c) { return c == '\r' || c == '\n'; }

static size_t llama3(const tokenizer *t, const char *text, size_t at, size_t end) {
  size_t n = contraction(text, at, end, 1), length, second, last;
  if (n) return at + n;
  int kind = class_at(t, text, at, end, &length);
  if (kind == CLASS_LETTER) return run(t, text, at, end, &last);
  if (kind == CLASS_NUMBER) {
    size_t stop = at;
    for (int i = 0; i < (t->split == SPLIT_LLAMA3 ? 3 : 1) && stop < end; i++, stop += length)
      if (class_at(t, text, stop, end, &length) != CLASS_NUMBER) break;
    return stop;
  }
  if (!is_newline(text[at]) && at + length < end && class_at(t, text, at + length, end, &second) == CLASS_LETTER)
    return run(t, text, at + length, end, &last);
  size_t start = at + (text[at] == ' ');
  if (start < end && class_at(t, text, start, end, &length) == CLASS_OTHER) {
    size_t stop = run(t, text, start, end, &last);
    while (stop < end && is_newline(text[stop])) stop++;
    return stop;
  }
  size_t stop = run(t, text, at, end, &last), newline = stop;
  while (newline > at && !is_newline(text[newline - 1])) newline--;
  return newline > at ? newline : white(t, text, at, end);
}

size_t split_word(const tokenizer *t, const char *text, size_t at, size_t end) {
  size_t length, stop = end;
  if (t->split == SPLIT_NONE) return end;
  if (t->split == SPLIT_DIGITS) { /* every number alone, the rest as pieces of their own */
    if (class_at(t, text, at, end, &length) == CLASS_NUMBER) return at + length;
    for (stop = at; stop < end; stop += length)
      if (class_at(t, text, stop, end, &length) == CLASS_NUMBER) break;
  }
  return t->split == SPLIT_GPT2 || t->split == SPLIT_DIGITS ? gpt2(t, text, at, stop) : llama3(t, text, at, stop);
}
