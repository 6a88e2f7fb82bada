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
