/* Text to tokens and back, on the bytes that edgerun/text/vocabulary.py describes, used where they lie in the plan. */
#ifndef EDGERUN_TOKENIZER_H
#define EDGERUN_TOKENIZER_H
#include <stddef.h>
#include <stdint.h>

enum { TOKENIZER_BYTES = 0, TOKENIZER_PIECES = 1 };
enum { SPLIT_NONE, SPLIT_GPT2, SPLIT_DIGITS, SPLIT_LLAMA3, SPLIT_QWEN2, SPLITS };
enum { TOKENIZER_ADD_BOS = 1, TOKENIZER_ADD_SPACE = 2, TOKENIZER_WHOLE_WORDS = 4 };
enum { ROLE_NORMAL, ROLE_CONTROL, ROLE_BYTE };
enum { CLASS_OTHER, CLASS_LETTER, CLASS_NUMBER, CLASS_SPACE };
enum { MAX_TOKENS = 1 << 16 /* of a text */, MAX_VOCABULARY = 1 << 19, MAX_TOKEN_BYTES = 4096 };
#define NO_TOKEN UINT32_MAX

typedef struct {
  uint32_t kind, split, flags, tokens, n_merges, n_classes, n_specials, n_stops, bos, text_bytes, prefix_bytes,
      suffix_bytes;
  const uint32_t *ends;     /* [tokens] */
  const uint32_t *order;    /* [tokens], by bytes */
  const uint32_t *merges;   /* [n_merges][4]: left, right, rank, result */
  const uint32_t *classes;  /* [n_classes][2]: first, last | class << 24 */
  const uint32_t *specials; /* [n_specials], longest first */
  const uint32_t *stops;    /* [n_stops] */
  const uint8_t *roles;     /* [tokens] */
  const char *text, *prefix, *suffix;
} tokenizer;

/* NULL, or what is wrong. `data` is 4-byte aligned. Afterwards every number is a valid index. */
const char *tokenizer_open(tokenizer *t, const uint8_t *data, uint64_t bytes);
/* The tokens of a text into to[0, room); their number, or -1 when there are more. */
long tokenizer_encode(const tokenizer *t, const char *text, size_t bytes, uint32_t *to, size_t room);
/* What a token prints: nothing for control tokens. */
const char *tokenizer_text(const tokenizer *t, uint32_t token, size_t *bytes);
int tokenizer_stops(const tokenizer *t, uint32_t token);

/* split.c: the end of the word that starts at byte `at` of text[0, end). */
size_t split_word(const tokenizer *t, const char *text, size_t at, size_t end);

/* sampling.c */
typedef struct { double temperature, top_p; long top_k; uint64_t state; } sampler;
uint32_t sampler_choose(sampler *s, const float *logits, uint32_t n); /* n at most MAX_VOCABULARY */
#endif
