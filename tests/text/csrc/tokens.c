/* The launcher's tokenizer and sampler on standard input, for tests. Records, all integers u32:
 *   0, bytes, tokenizer          opens it and prints "ok" or what is wrong
 *   1, bytes, text               prints its tokens, then the bytes of their text in hexadecimal
 *   2, n, k, p (f32), t (f32), seed, logits f32 [n]   prints 20 drawn tokens */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tokenizer.h"

static uint32_t take(void) {
  uint32_t v = 0;
  if (fread(&v, 4, 1, stdin) != 1) exit(0);
  return v;
}
static float take_float(void) {
  uint32_t v = take();
  float f;
  memcpy(&f, &v, 4);
  return f;
}
static void *block(size_t bytes) { /* exactly as large: a step beyond it is seen by a checking allocator */
  void *p = malloc(bytes ? bytes : 1);
  if (bytes && fread(p, 1, bytes, stdin) != bytes) exit(1);
  return p;
}

int main(void) {
  static uint32_t tokens[MAX_TOKENS];
  tokenizer t;
  void *data = NULL;
  const char *wrong = "nothing";
  for (;;) {
    uint32_t kind = take(), bytes = take();
    if (kind == 0) {
      free(data);
      data = block(bytes);
      wrong = tokenizer_open(&t, data, bytes);
      puts(wrong ? wrong : "ok");
    } else if (kind == 1) {
      char *text = block(bytes);
      long n = wrong ? 0 : tokenizer_encode(&t, text, bytes, tokens, MAX_TOKENS);
      for (long i = 0; i < n; i++) printf("%u ", tokens[i]);
      printf("|");
      for (long i = 0; i < n; i++) {
        size_t length;
        const char *part = tokenizer_text(&t, tokens[i], &length);
        for (size_t k = 0; k < length; k++) printf("%02x", (unsigned char)part[k]);
      }
      printf("\n");
      free(text);
    } else {
      sampler s = {.top_k = (long)take()};
      s.top_p = take_float();
      s.temperature = take_float();
      s.state = take();
      float *logits = block(4 * (size_t)bytes);
      for (int i = 0; i < 20; i++) printf("%u ", sampler_choose(&s, logits, bytes));
      printf("\n");
      free(logits);
    }
  }
}
