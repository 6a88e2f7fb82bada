/* `generate`: text from a language model; and one token of it, for bench. */
#include <stdlib.h>
#include <string.h>
#include "launcher.h"
#include "tokenizer.h"

typedef struct {
  er_model *model;
  tokenizer words;
  int tokens_input, position_input, logits_output;
  uint32_t vocabulary;
  long context, chunk;
  int64_t bound; /* tokens of a run, as bound now */
} writer;

static uint32_t tokens[MAX_TOKENS];
static char prompt[4 * MAX_TOKENS], written[16 * MAX_TOKENS]; /* written: the text, for --json */
static size_t written_bytes;

static int find_port(er_model *model, int outputs, const char *name, int dtype, int rank) {
  er_io_info info;
  int n = outputs ? er_output_count(model) : er_input_count(model);
  for (int i = 0; i < n; i++)
    if (!(outputs ? er_output_info : er_input_info)(model, i, &info) && !strcmp(info.name, name) &&
        info.dtype == dtype && info.rank == rank)
      return i;
  fail(EXIT_USAGE, "this model does not generate text: it has no %s '%s'", outputs ? "output" : "input", name);
}

int has_text(const packed *p) { return packed_section(p, ER_SEC_TOKENIZER).bytes > 0; }

static void open_writer(writer *w, const packed *p, er_model *model) {
  section s = packed_section(p, ER_SEC_TOKENIZER);
  er_io_info info;
  const char *wrong = tokenizer_open(&w->words, s.data, s.bytes);
  if (wrong) fail(EXIT_IO, "the tokenizer in this file is not valid: %s; pack it again", wrong);
  w->model = model;
  w->tokens_input = find_port(w->model, 0, "tokens", ER_I64, 1);
  w->position_input = find_port(w->model, 0, "position", ER_I64, 1);
  w->logits_output = find_port(w->model, 1, "logits", ER_F32, 2);
  er_output_info(w->model, w->logits_output, &info);
  if (info.dim[0] != 1 || info.dim[1] < w->words.tokens || info.dim[1] > MAX_VOCABULARY)
    fail(EXIT_IO, "the tokenizer has %u tokens, the model %lld; pack it again", w->words.tokens,
         (long long)info.dim[1]);
  w->vocabulary = (uint32_t)info.dim[1];
  w->context = (long)json_number(json_find(manifest(p), "text.context"), 0);
  w->chunk = (long)json_number(json_find(manifest(p), "text.chunk"), 0);
  if (w->context < 1 || w->chunk < 1) fail(EXIT_IO, "the model does not say how long its context is; pack it again");
  w->bound = 0;
}

/* Runs n tokens that stand at `position` onwards; the logits after the last of them. */
static const float *run_tokens(writer *w, const uint32_t *from, int64_t n, int64_t position) {
  const char *error = NULL;
  if (w->bound != n) {
    if (er_set_input_shape(w->model, w->tokens_input, &n, 1) ||
        er_set_input_shape(w->model, w->position_input, &(int64_t){1}, 1) || er_bind(w->model, &error))
      fail(EXIT_IO, "the model does not take %lld tokens: %s", (long long)n, error ? error : "unknown reason");
    w->bound = n;
  }
  int64_t *to = er_input_data(w->model, w->tokens_input);
  for (int64_t i = 0; i < n; i++) to[i] = from[i];
  *(int64_t *)er_input_data(w->model, w->position_input) = position;
  if (er_run(w->model, &error)) fail(EXIT_NEGATIVE, "the model failed: %s", error ? error : "unknown reason");
  return er_output_data(w->model, w->logits_output);
}

static const float *run_prompt(writer *w, long n) {
  const float *logits = NULL;
  for (long at = 0; at < n; at += w->chunk)
    logits = run_tokens(w, tokens + at, n - at < w->chunk ? n - at : w->chunk, at);
  return logits;
}

static long encode_prompt(writer *w, const options *o) {
  const tokenizer *t = &w->words;
  size_t before = o->chat ? t->prefix_bytes : 0, after = o->chat ? t->suffix_bytes : 0, n = strlen(o->prompt);
  if (o->chat && !before && !after) fail(EXIT_USAGE, "this model has no chat template; leave --chat out");
  if (before + n + after > sizeof prompt) fail(EXIT_USAGE, "the prompt is longer than %zu bytes", sizeof prompt);
  memcpy(prompt, t->prefix, before);
  memcpy(prompt + before, o->prompt, n);
  memcpy(prompt + before + n, t->suffix, after);
  long count = tokenizer_encode(t, prompt, before + n + after, tokens, MAX_TOKENS);
  if (count == 0) fail(EXIT_USAGE, "the prompt is empty");
  if (count < 0 || count >= w->context)
    fail(EXIT_USAGE, "the prompt has %ld tokens, the context %ld; convert with a longer --context",
         count < 0 ? (long)MAX_TOKENS : count, w->context);
  return count;
}

/* Prints what the token says; without --json at once. The first space of a SentencePiece text is dropped. */
static void print_token(const writer *w, uint32_t token, int *first, const options *o) {
  size_t n;
  const char *text = tokenizer_text(&w->words, token, &n);
  if (n && *first) {
    *first = 0;
    if (w->words.flags & TOKENIZER_ADD_SPACE && *text == ' ') text++, n--;
  }
  if (o->json) {
    if (n > sizeof written - written_bytes) fail(EXIT_USAGE, "the text is longer than %zu bytes", sizeof written);
    memcpy(written + written_bytes, text, n);
    written_bytes += n;
    return;
  }
  out_bytes(text, n);
  out_flush();
}

static double rate(long count, double seconds) { return count > 0 && seconds > 0 ? (double)count / seconds : 0; }

int verb_generate(const packed *p, const options *o) {
  static writer w;
  sampler s = {o->temperature, o->top_p, o->top_k, o->seed};
  if (!o->prompt) fail(EXIT_USAGE, "generate takes a prompt: %s generate \"Once upon a time\"", program());
  if (!has_text(p)) fail(EXIT_USAGE, "this model does not generate text: it has no tokenizer");
  open_writer(&w, p, load_model(p, o, o->threads ? (int)parse_count(o->threads, "--threads", 1, ER_MAX_THREADS) : 0));
  long n = encode_prompt(&w, o), made = 0, position = n;
  int first = 1, stopped = 0;
  double start = seconds_now();
  const float *logits = run_prompt(&w, n);
  double prompt_seconds = seconds_now() - start, seconds = 0;
  start = seconds_now();
  for (;;) {
    uint32_t token = sampler_choose(&s, logits, w.vocabulary);
    if (tokenizer_stops(&w.words, token)) {
      stopped = 1;
      break;
    }
    made++;
    print_token(&w, token, &first, o);
    if (made >= o->limit || position >= w.context) break;
    logits = run_tokens(&w, &token, 1, position++);
    seconds = seconds_now() - start;
  }
  const char *finish = stopped ? "stop" : "length";
  if (o->json) {
    out("{\"text\": ");
    out_json_text(written, written_bytes);
    out(", \"prompt_tokens\": %ld, \"prompt_seconds\": %.6f, \"prompt_tokens_per_second\": %.3f", n, prompt_seconds,
        rate(n, prompt_seconds));
    out(", \"tokens\": %ld, \"seconds\": %.6f, \"tokens_per_second\": %.3f, \"finish\": \"%s\"", made, seconds,
        rate(made - 1, seconds), finish);
    out(", \"threads\": %d, \"isa\": \"%s\"}\n", er_threads(w.model), er_isa(w.model));
  } else {
    out("\n");
    out_flush();
    note("prompt %ld tokens (%.1f/s), text %ld tokens (%.1f/s), %s; %s, %d thread%s", n, rate(n, prompt_seconds), made,
         rate(made - 1, seconds), finish, er_isa(w.model), er_threads(w.model), er_threads(w.model) == 1 ? "" : "s");
  }
  er_free(w.model);
  return EXIT_OK;
}

/* -- what bench measures: tokens after a prompt as long as a chunk */
static writer benched;
static const float *benched_logits;
static long benched_position;

void bench_text_open(const packed *p, er_model *model) {
  open_writer(&benched, p, model);
  long n = benched.chunk < benched.context ? benched.chunk : benched.context - 1;
  for (long i = 0; i < n; i++) tokens[i] = (uint32_t)(i * 37 % benched.words.tokens);
}

double bench_text_prompt(void) {
  double start = seconds_now();
  benched_position = benched.chunk < benched.context ? benched.chunk : benched.context - 1;
  benched_logits = run_prompt(&benched, benched_position);
  return (double)benched_position / (seconds_now() - start);
}

double bench_text_step(void) {
  sampler greedy = {.top_p = 1};
  if (!benched_logits || benched_position >= benched.context) bench_text_prompt();
  double start = seconds_now();
  uint32_t token = sampler_choose(&greedy, benched_logits, benched.vocabulary);
  benched_logits = run_tokens(&benched, &token, 1, benched_position++);
  return (seconds_now() - start) * 1e3;
}
