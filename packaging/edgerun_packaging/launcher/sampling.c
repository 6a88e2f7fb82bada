/* Choosing the next token: edgerun/text/sampling.py in C. */
#include <math.h>
#include <stdlib.h>
#include "tokenizer.h"

static const float *compared; /* the logits that by_logit sorts by: qsort passes no context */

/* Largest first, of equals the first. */
static int by_logit(const void *a, const void *b) {
  uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
  float x = compared[i], y = compared[k];
  return x > y ? -1 : x < y ? 1 : (i > k) - (i < k);
}

/* The next number in [0, 1): splitmix64, upper 53 bits. */
static double uniform(sampler *s) {
  uint64_t z = s->state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

uint32_t sampler_choose(sampler *s, const float *logits, uint32_t n) {
  static uint32_t order[MAX_VOCABULARY];
  static double total[MAX_VOCABULARY];
  uint32_t best = 0;
  if (s->temperature == 0) {
    for (uint32_t i = 1; i < n; i++)
      if (logits[i] > logits[best]) best = i;
    return best;
  }
  for (uint32_t i = 0; i < n; i++) order[i] = i;
  compared = logits;
  qsort(order, n, sizeof *order, by_logit);
  uint32_t kept = s->top_k && s->top_k < (long)n ? (uint32_t)s->top_k : n, at = 0;
  double largest = (double)logits[order[0]] / s->temperature, sum = 0;
  for (uint32_t i = 0; i < kept; i++) total[i] = sum += exp((double)logits[order[i]] / s->temperature - largest);
  if (s->top_p < 1) {
    double wanted = s->top_p * total[kept - 1];
    for (at = 0; at + 1 < kept && total[at] < wanted;) at++;
    kept = at + 1;
  }
  double drawn = uniform(s) * total[kept - 1];
  for (at = 0; at + 1 < kept && total[at] <= drawn;) at++;
  return order[at];
}
