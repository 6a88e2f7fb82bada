/* Byte pair encoding in place: edgerun/text/tokenizer.py in C. */
#include "tokenizer.h"
#include <string.h>

#define WORDS 12 /* of the header after the magic */

static const char *token_bytes(const tokenizer *t, uint32_t token, size_t *bytes) {
  uint32_t start = token ? t->ends[token - 1] : 0;
  *bytes = t->ends[token] - start;
  return t->text + start;
}

/* As memcmp, a text before its continuations. */
static int compare(const char *a, size_t m, const char *b, size_t n) {
  int order = memcmp(a, b, m < n ? m : n);
  return order ? order : (m > n) - (m < n);
}

static int all_below(const uint32_t *numbers, uint64_t n, uint64_t step, uint32_t limit) {
  for (uint64_t i = 0; i < n; i++)
    if (numbers[i * step] >= limit) return 0;
  return 1;
}

static const char *check_tokens(const tokenizer *t) {
  uint32_t before = 0;
  for (uint32_t i = 0; i < t->tokens; before = t->ends[i++]) {
    if (t->ends[i] < before || t->ends[i] - before > MAX_TOKEN_BYTES) return "its tokens are malformed";
    if (t->roles[i] > ROLE_BYTE) return "a token has an unknown role";
  }
  if (before != t->text_bytes) return "its tokens are malformed";
  if (!all_below(t->order, t->tokens, 1, t->tokens) || !all_below(t->merges, t->n_merges, 4, t->tokens) ||
      !all_below(t->merges + 1, t->n_merges, 4, t->tokens) || !all_below(t->merges + 3, t->n_merges, 4, t->tokens) ||
      !all_below(t->specials, t->n_specials, 1, t->tokens) || !all_below(t->stops, t->n_stops, 1, t->tokens) ||
      (t->bos >= t->tokens && t->bos != NO_TOKEN))
    return "it names unknown tokens";
  for (uint32_t i = 1; i < t->tokens; i++) {
    size_t m, n;
    const char *a = token_bytes(t, t->order[i - 1], &m), *b = token_bytes(t, t->order[i], &n);
    int order = compare(a, m, b, n);
    if (order > 0 || (order == 0 && t->order[i - 1] >= t->order[i])) return "its index is not sorted";
  }
  for (uint32_t i = 0; i < t->n_specials; i++) {
    size_t n;
    token_bytes(t, t->specials[i], &n);
    if (!n) return "a special token is empty";
  }
  return NULL;
}

static const char *check_merges(const tokenizer *t) {
  for (uint32_t i = 0; i < t->n_merges; i++) {
    const uint32_t *m = t->merges + 4 * i;
    size_t a, b, c;
    const char *left = token_bytes(t, m[0], &a), *right = token_bytes(t, m[1], &b), *both = token_bytes(t, m[3], &c);
    if (i && (m[-4] > m[0] || (m[-4] == m[0] && m[-3] >= m[1]))) return "its merges are not sorted";
    if (a + b != c || memcmp(both, left, a) || memcmp(both + a, right, b))
      return "a merge gives another text than its parts";
  }
  for (uint32_t i = 0; i < t->n_classes; i++) {
    const uint32_t *c = t->classes + 2 * i;
    if (c[0] > (c[1] & 0xffffff) || (i && c[0] <= (c[-1] & 0xffffff))) return "its classes are not sorted";
  }
  return NULL;
}

const char *tokenizer_open(tokenizer *t, const uint8_t *data, uint64_t bytes) {
  uint32_t head[WORDS];
  if (bytes < 8 + sizeof head || memcmp(data, "EDGETOK1", 8)) return "it is no tokenizer";
  memcpy(head, data + 8, sizeof head);
  *t = (tokenizer){.kind = head[0], .split = head[1], .flags = head[2], .tokens = head[3], .n_merges = head[4],
                   .n_classes = head[5], .n_specials = head[6], .n_stops = head[7], .bos = head[8],
                   .text_bytes = head[9], .prefix_bytes = head[10], .suffix_bytes = head[11]};
  uint64_t n = t->tokens, roles = (n + 3) / 4 * 4;
  uint64_t words = 2 * n + 4 * (uint64_t)t->n_merges + 2 * (uint64_t)t->n_classes + t->n_specials + t->n_stops;
  uint64_t total = 8 + sizeof head + 4 * words + roles + t->text_bytes + (uint64_t)t->prefix_bytes + t->suffix_bytes;
  if (total != bytes) return "its size is wrong";
  if (t->kind > TOKENIZER_PIECES || t->split >= SPLITS || !n || n > MAX_VOCABULARY) return "its header is malformed";
  t->ends = (const uint32_t *)(const void *)(data + 8 + sizeof head);
  t->order = t->ends + n;
  t->merges = t->order + n;
  t->classes = t->merges + 4 * (uint64_t)t->n_merges;
  t->specials = t->classes + 2 * (uint64_t)t->n_classes;
  t->stops = t->specials + t->n_specials;
  t->roles = (const uint8_t *)(t->stops + t->n_stops);
  t->text = (const char *)t->roles + roles;
  t->prefix = t->text + t->text_bytes;
  t->suffix = t->prefix + t->prefix_bytes;
  const char *wrong = check_tokens(t);
  return wrong ? wrong : check_merges(t);
}

const char *tokenizer_text(const tokenizer *t, uint32_t token, size_t *bytes) {
  *bytes = 0;
  return token >= t->tokens || t->roles[token] == ROLE_CONTROL ? "" : token_bytes(t, token, bytes);
}

int tokenizer_stops(const tokenizer *t, uint32_t token) {
  for (uint32_t i = 0; i < t->n_stops; i++)
    if (t->stops[i] == token) return 1;
  return 0;
}

/* The token of these bytes: control tokens left out, of equal ones the first that is normal. */
static uint32_t find(const tokenizer *t, const char *text, size_t bytes) {
  uint32_t low = 0, high = t->tokens, spare = NO_TOKEN;
  size_t n;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    const char *at = token_bytes(t, t->order[middle], &n);
    if (compare(at, n, text, bytes) < 0) low = middle + 1;
    else high = middle;
  }
  for (; low < t->tokens; low++) {
    uint32_t token = t->order[low];
    const char *at = token_bytes(t, token, &n);
    if (compare(at, n, text, bytes)) break;
    if (t->roles[token] == ROLE_NORMAL) return token;
    if (t->roles[token] == ROLE_BYTE && spare == NO_TOKEN) spare = token;
  }
  return spare;
}

/* The merge of two tokens, or NULL. */
static const uint32_t *find_merge(const tokenizer *t, uint32_t left, uint32_t right) {
  uint32_t low = 0, high = t->n_merges;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    const uint32_t *m = t->merges + 4 * middle;
    if (m[0] == left && m[1] == right) return m;
    if (m[0] < left || (m[0] == left && m[1] < right)) low = middle + 1;
    else high = middle;
  }
  return NULL;
}

/* Tokens of one word before merging: its bytes, or its characters, and bytes where no token is a character. */
static long symbols_of(const tokenizer *t, const char *word, size_t bytes, uint32_t *to, size_t room) {
  size_t n = 0, length;
  for (size_t i = 0; i < bytes; i += length) {
    length = 1;
    if (t->kind == TOKENIZER_PIECES)
      while (i + length < bytes && ((uint8_t)word[i + length] & 0xc0) == 0x80) length++;
    uint32_t token = find(t, word + i, length);
    for (size_t k = 0; k < length; k++) {
      uint32_t part = token != NO_TOKEN ? token : find(t, word + i + k, 1);
      if (part != NO_TOKEN) {
        if (n == room) return -1;
        to[n++] = part;
      }
      if (token != NO_TOKEN) break;
    }
  }
  return (long)n;
}

/* Merges the pair of least rank, the leftmost of equals, until there is none. */
static size_t merge(const tokenizer *t, uint32_t *symbols, size_t n) {
  static const uint32_t *pairs[MAX_TOKENS]; /* the merge of symbols i and i + 1 */
  for (size_t i = 0; i + 1 < n; i++) pairs[i] = find_merge(t, symbols[i], symbols[i + 1]);
  while (n > 1) {
    size_t best = n;
    for (size_t i = 0; i + 1 < n; i++)
      if (pairs[i] && (best == n || pairs[i][2] < pairs[best][2])) best = i;
    if (best == n) break;
    symbols[best] = pairs[best][3];
    memmove(symbols + best + 1, symbols + best + 2, (n - best - 2) * sizeof *symbols);
    if (n - best > 2) memmove(pairs + best, pairs + best + 1, (n - best - 2) * sizeof *pairs);
    n--;
    if (best) pairs[best - 1] = find_merge(t, symbols[best - 1], symbols[best]);
    if (best + 1 < n) pairs[best] = find_merge(t, symbols[best], symbols[best + 1]);
  }
  return n;
}

/* Text without special tokens. */
static long encode_plain(const tokenizer *t, const char *text, size_t bytes, uint32_t *to, size_t room) {
  size_t n = 0;
  for (size_t at = 0, end; at < bytes; at = end) {
    end = split_word(t, text, at, bytes);
    uint32_t whole = t->flags & TOKENIZER_WHOLE_WORDS ? find(t, text + at, end - at) : NO_TOKEN;
    if (whole != NO_TOKEN) {
      if (n == room) return -1;
      to[n++] = whole;
      continue;
    }
    long count = symbols_of(t, text + at, end - at, to + n, room - n);
    if (count < 0) return -1;
    n += merge(t, to + n, (size_t)count);
  }
  return (long)n;
}

static uint32_t special_at(const tokenizer *t, const char *text, size_t left, size_t *bytes) {
  for (uint32_t i = 0; i < t->n_specials; i++) {
    const char *token = token_bytes(t, t->specials[i], bytes);
    if (*bytes <= left && !memcmp(token, text, *bytes)) return t->specials[i];
  }
  return NO_TOKEN;
}

long tokenizer_encode(const tokenizer *t, const char *text, size_t bytes, uint32_t *to, size_t room) {
  static char spaced[4 * MAX_TOKENS];
  size_t n = 0, length = 0;
  if (room > MAX_TOKENS) room = MAX_TOKENS;
  if (t->flags & TOKENIZER_ADD_BOS && t->bos != NO_TOKEN) to[n++] = t->bos;
  for (size_t start = 0, at = 0; start < bytes;) {
    uint32_t special = NO_TOKEN;
    for (at = start; at < bytes; at++)
      if ((special = special_at(t, text + at, bytes - at, &length)) != NO_TOKEN) break;
    if (at > start) {
      const char *piece = text + start;
      size_t size = at - start;
      if (start == 0 && t->flags & TOKENIZER_ADD_SPACE) {
        if (size + 1 > sizeof spaced) return -1;
        spaced[0] = ' ';
        memcpy(spaced + 1, piece, size++);
        piece = spaced;
      }
      long count = encode_plain(t, piece, size, to + n, room - n);
      if (count < 0) return -1;
      n += (size_t)count;
    }
    if (special != NO_TOKEN) {
      if (n == room) return -1;
      to[n++] = special;
      at += length;
    }
    start = at;
  }
  return (long)n;
}
