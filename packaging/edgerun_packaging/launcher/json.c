/* Enough JSON to look values up in the manifest. Never recurses, never reads past `length`, tolerates anything. */
#include <stdlib.h>
#include <string.h>
#include "launcher.h"

typedef struct {
  const char *at, *end;
} cursor;

static void skip_space(cursor *c) {
  while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t' || *c->at == '\r')) c->at++;
}

/* Moves past a string whose opening quote is at the cursor. */
static int skip_string(cursor *c) {
  for (c->at++; c->at < c->end; c->at++) {
    if (*c->at == '\\') c->at++;
    else if (*c->at == '"') return c->at++, 1;
  }
  c->at = c->end;
  return 0;
}

/* Moves past one value; brackets are counted, so nesting costs no stack. */
static int skip_value(cursor *c) {
  int depth = 0;
  skip_space(c);
  while (c->at < c->end) {
    char k = *c->at;
    if (k == '"') {
      if (!skip_string(c)) return 0;
    } else {
      if (depth == 0 && (k == ',' || k == '}' || k == ']')) return 1;
      if (k == '{' || k == '[') depth++;
      if (k == '}' || k == ']') depth--;
      c->at++;
    }
    if (depth == 0) {
      char next = c->at < c->end ? *c->at : ',';
      if (k == '"' || k == '}' || k == ']') return 1;
      if (next == ',' || next == '}' || next == ']' || next == ' ' || next == '\n') return 1;
    }
  }
  return depth == 0;
}

/* The member called `key` of an object, or element number `key` of an array. */
static json_value member(json_value v, const char *key, size_t key_length) {
  json_value none = {0};
  cursor c = {v.text, v.text + v.length};
  skip_space(&c);
  if (c.at >= c.end || (*c.at != '{' && *c.at != '[')) return none;
  int is_object = *c.at++ == '{';
  for (unsigned long index = 0;; index++) {
    int found = 0;
    skip_space(&c);
    if (c.at >= c.end || *c.at == '}' || *c.at == ']') return none;
    if (is_object) {
      const char *start = c.at + 1;
      if (*c.at != '"' || !skip_string(&c)) return none;
      found = (size_t)(c.at - 1 - start) == key_length && !memcmp(start, key, key_length);
      skip_space(&c);
      if (c.at >= c.end || *c.at++ != ':') return none;
    } else {
      found = strtoul(key, NULL, 10) == index;
    }
    skip_space(&c);
    const char *start = c.at;
    if (!skip_value(&c)) return none;
    if (found) return (json_value){start, (size_t)(c.at - start)};
    skip_space(&c);
    if (c.at >= c.end || *c.at++ != ',') return none;
  }
}

json_value json_find(json_value v, const char *path) {
  while (v.text && *path) {
    size_t n = strcspn(path, ".");
    v = member(v, path, n);
    path += n + (path[n] == '.');
  }
  return v;
}

double json_number(json_value v, double otherwise) {
  char digits[40];
  if (!v.text || v.length == 0 || v.length >= sizeof digits) return otherwise;
  memcpy(digits, v.text, v.length);
  digits[v.length] = 0;
  char *end;
  double x = strtod(digits, &end);
  return end == digits ? otherwise : x;
}

json_value json_unquoted(json_value v) {
  if (!v.text || v.length < 2 || *v.text != '"') return (json_value){0};
  return (json_value){v.text + 1, v.length - 2};
}

json_value manifest(const packed *p) {
  section s = packed_section(p, ER_SEC_MANIFEST);
  const char *text = (const char *)s.data;
  const char *end = text ? memchr(text, 0, s.bytes) : NULL;
  return (json_value){text, end ? (size_t)(end - text) : s.bytes};
}

void out_json_or_null(json_value v) {
  if (v.text && v.length >= 2 && *v.text == '"') out_bytes(v.text, v.length);
  else out("null");
}

/* -- texts with escapes */

static unsigned hex4(const char *at) {
  unsigned v = 0;
  for (int i = 0; i < 4; i++) {
    char k = at[i];
    v = v << 4 | (unsigned)(k <= '9' ? k - '0' : (k | 32) - 'a' + 10);
  }
  return v;
}

/* The UTF-8 of the escape at *at (a valid text's), which moves past it. Returns its length. */
static int unescape(const char **at, const char *end, char *to) {
  static const char from[] = "bfnrt", into[] = "\b\f\n\r\t";
  const char *found = strchr(from, (*at)[1]);
  if ((*at)[1] != 'u') {
    to[0] = found ? into[found - from] : (*at)[1];
    *at += 2;
    return 1;
  }
  unsigned c = hex4(*at + 2);
  *at += 6;
  if (c >= 0xd800 && c < 0xdc00 && end - *at >= 6 && (*at)[0] == '\\' && (*at)[1] == 'u') {
    c = 0x10000 + ((c - 0xd800) << 10 | (hex4(*at + 2) & 0x3ff));
    *at += 6;
  }
  int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
  for (int i = n - 1; i > 0; i--, c >>= 6) to[i] = (char)(0x80 | (c & 0x3f));
  to[0] = (char)(lead[n] | c);
  return n;
}

int json_equals(json_value text, const char *plain) {
  json_value v = json_unquoted(text);
  const char *at = v.text, *end = at + v.length;
  if (!at) return 0;
  while (at < end) {
    char piece[4];
    int n = 1;
    if (*at == '\\') n = unescape(&at, end, piece);
    else piece[0] = *at++;
    if (strncmp(plain, piece, (size_t)n)) return 0;
    plain += n;
  }
  return *plain == 0;
}

/* -- strict checking of what a stranger sent */

static int valid_string(cursor *c) {
  for (c->at++; c->at < c->end; c->at++) {
    unsigned char k = (unsigned char)*c->at;
    if (k == '"') return c->at++, 1;
    if (k < 32) return 0;
    if (k != '\\') continue;
    if (++c->at >= c->end) return 0;
    if (*c->at != 'u') {
      if (!strchr("\"\\/bfnrt", *c->at) || !*c->at) return 0;
      continue;
    }
    for (int i = 0; i < 4; i++)
      if (++c->at >= c->end || !strchr("0123456789abcdefABCDEF", *c->at) || !*c->at) return 0;
  }
  return 0;
}

static int digits(cursor *c) {
  const char *start = c->at;
  while (c->at < c->end && *c->at >= '0' && *c->at <= '9') c->at++;
  return c->at > start;
}

static int valid_scalar(cursor *c) {
  static const char *const words[] = {"true", "false", "null"};
  if (*c->at == '"') return valid_string(c);
  for (size_t i = 0; i < 3; i++) {
    size_t n = strlen(words[i]);
    if ((size_t)(c->end - c->at) >= n && !memcmp(c->at, words[i], n)) return c->at += n, 1;
  }
  if (*c->at == '-') c->at++;
  const char *first = c->at;
  if (!digits(c) || (*first == '0' && c->at - first > 1)) return 0;
  if (c->at < c->end && *c->at == '.' && (c->at++, !digits(c))) return 0;
  if (c->at < c->end && (*c->at == 'e' || *c->at == 'E')) {
    c->at++;
    if (c->at < c->end && (*c->at == '+' || *c->at == '-')) c->at++;
    if (!digits(c)) return 0;
  }
  return 1;
}

static int valid_key(cursor *c) {
  skip_space(c);
  if (c->at >= c->end || *c->at != '"' || !valid_string(c)) return 0;
  skip_space(c);
  return c->at < c->end && *c->at++ == ':';
}

int json_valid(json_value v) {
  cursor c = {v.text, v.text + v.length};
  char closer[64];
  int depth = 0;
  for (;;) { /* a value follows */
    skip_space(&c);
    if (c.at >= c.end) return 0;
    if (*c.at == '[' || *c.at == '{') {
      if (depth == (int)sizeof closer) return 0;
      char close = closer[depth++] = *c.at++ == '[' ? ']' : '}';
      skip_space(&c);
      if (c.at < c.end && *c.at == close) depth--, c.at++;
      else if (close == '}' && !valid_key(&c)) return 0;
      else continue;
    } else if (!valid_scalar(&c)) {
      return 0;
    }
    for (;;) { /* a value has ended */
      skip_space(&c);
      if (depth == 0) return c.at == c.end;
      if (c.at >= c.end) return 0;
      char k = *c.at++;
      if (k == ',') {
        if (closer[depth - 1] == '}' && !valid_key(&c)) return 0;
        break;
      }
      if (k != closer[--depth]) return 0;
    }
  }
}
