/* The head of an HTTP/1.1 request (RFC 9112), read strictly: what is ambiguous is refused, not repaired. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "launcher.h"

typedef struct {
  const char *text;
  size_t length;
} piece;

const char *http_status_text(int status) {
  static const struct {
    int status;
    const char *text;
  } table[] = {{200, "OK"},
               {400, "Bad Request"},
               {404, "Not Found"},
               {405, "Method Not Allowed"},
               {408, "Request Timeout"},
               {411, "Length Required"},
               {413, "Content Too Large"},
               {415, "Unsupported Media Type"},
               {422, "Unprocessable Content"},
               {431, "Request Header Fields Too Large"},
               {500, "Internal Server Error"},
               {501, "Not Implemented"},
               {503, "Service Unavailable"},
               {505, "HTTP Version Not Supported"}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (table[i].status == status) return table[i].text;
  return "Error";
}

static int is(piece p, const char *word) { return p.length == strlen(word) && !strncasecmp(p.text, word, p.length); }

/* Whether `word` is in a comma-separated list, parameters after ';' ignored. */
static int lists(piece p, const char *word) {
  size_t n = strlen(word);
  for (size_t i = 0; i < p.length;) {
    while (i < p.length && (p.text[i] == ' ' || p.text[i] == ',' || p.text[i] == '\t')) i++;
    size_t start = i;
    while (i < p.length && p.text[i] != ',') i++;
    size_t length = i - start;
    if (length >= n && !strncasecmp(p.text + start, word, n) &&
        (length == n || p.text[start + n] == ';' || p.text[start + n] == ' '))
      return 1;
  }
  return 0;
}

static int body_type(piece p) {
  if (lists(p, "application/x-npy")) return BODY_NPY;
  return lists(p, "application/json") ? BODY_JSON : BODY_OTHER;
}

/* The next line, without its CRLF; *at moves past it. There is one: the head ends in an empty line. */
static piece next_line(const char **at, const char *end) {
  const char *start = *at;
  const char *stop = memchr(start, '\r', (size_t)(end - start));
  *at = stop + 2;
  return (piece){start, (size_t)(stop - start)};
}

static int request_line(piece line, request *r, const char **reason) {
  const char *space = memchr(line.text, ' ', line.length);
  piece method = {line.text, space ? (size_t)(space - line.text) : 0};
  const char *target = space ? space + 1 : line.text + line.length;
  const char *end = line.text + line.length;
  const char *last = memchr(target, ' ', (size_t)(end - target));
  *reason = "the request line is broken";
  if (!last || target == last || method.length == 0 || *target != '/') return 400;
  piece version = {last + 1, (size_t)(end - last - 1)};
  if (version.length != 8 || memcmp(version.text, "HTTP/", 5) || version.text[6] != '.') return 400;
  *reason = "only HTTP/1.0 and HTTP/1.1 are spoken here";
  if (version.text[5] != '1') return 505;
  r->keep_alive = version.text[7] != '0';
  r->method = is(method, "GET") ? HTTP_GET : is(method, "POST") ? HTTP_POST : HTTP_OTHER;
  size_t n = 0;
  for (const char *c = target; c < last && *c != '?'; c++)
    if (n + 1 < sizeof r->path) r->path[n++] = *c;
  r->path[n] = 0;
  return 0;
}

static int content_length(piece value, request *r, int *seen, const char **reason) {
  uint64_t n = 0;
  *reason = "Content-Length is no number, or there are two";
  if (*seen || value.length == 0 || value.length > 15) return 400;
  for (size_t i = 0; i < value.length; i++) {
    if (value.text[i] < '0' || value.text[i] > '9') return 400;
    n = n * 10 + (uint64_t)(value.text[i] - '0');
  }
  r->body_bytes = n;
  *seen = 1;
  return 0;
}

static int is_token(piece p) {
  for (size_t i = 0; i < p.length; i++)
    if (p.text[i] <= ' ' || p.text[i] >= 127 || strchr("\"(),/:;<=>?@[\\]{}", p.text[i])) return 0;
  return p.length > 0;
}

static piece trimmed(const char *from, const char *to) {
  while (from < to && (*from == ' ' || *from == '\t')) from++;
  while (to > from && (to[-1] == ' ' || to[-1] == '\t')) to--;
  return (piece){from, (size_t)(to - from)};
}

static int header_line(piece line, request *r, int *seen_length, const char **reason) {
  const char *colon = memchr(line.text, ':', line.length);
  piece name = {line.text, colon ? (size_t)(colon - line.text) : 0};
  *reason = "a header line is broken";
  if (!colon || !is_token(name)) return 400;
  piece value = trimmed(colon + 1, line.text + line.length);
  if (is(name, "Content-Length")) return content_length(value, r, seen_length, reason);
  *reason = "bodies need a Content-Length; chunked ones are not read";
  if (is(name, "Transfer-Encoding")) return 411;
  if (is(name, "Content-Type")) r->type = body_type(value);
  if (is(name, "Accept")) r->accept = body_type(value);
  if (is(name, "Expect")) r->expects_continue = is(value, "100-continue");
  if (is(name, "Connection")) {
    if (lists(value, "close")) r->keep_alive = 0;
    if (lists(value, "keep-alive")) r->keep_alive = 1;
  }
  return 0;
}

int http_parse(const char *data, size_t bytes, request *r, const char **reason) {
  size_t end = 0;
  int seen_length = 0, status;
  *r = (request){0};
  *reason = "the head of the request holds control characters";
  for (size_t i = 0; i < bytes && !end; i++) {
    unsigned char c = (unsigned char)data[i];
    if (c == '\n' && (i == 0 || data[i - 1] != '\r')) return 400;
    if (c != '\n' && i > 0 && data[i - 1] == '\r') return 400;
    if ((c < 32 && c != '\r' && c != '\n' && c != '\t') || c == 127) return 400;
    if (c == '\n' && i >= 3 && data[i - 2] == '\n') end = i + 1;
  }
  if (!end) return 0;
  r->head_bytes = end;
  const char *at = data, *stop = data + end - 2;
  if ((status = request_line(next_line(&at, stop), r, reason))) return status;
  while (at < stop)
    if ((status = header_line(next_line(&at, stop), r, &seen_length, reason))) return status;
  *reason = "POST needs a Content-Length";
  return r->method == HTTP_POST && !seen_length ? 411 : 1;
}
