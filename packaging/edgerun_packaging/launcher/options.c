/* The command line. The words and flags are those of the Python tool. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "launcher.h"

static const char *const verbs[] = {"info", "run", "generate", "bench", "selftest", "serve"};

/* Edit distance of two short words, for "did you mean". */
static int distance(const char *a, const char *b) {
  int row[24];
  int n = (int)strlen(b);
  if (n >= 23) return 99;
  for (int j = 0; j <= n; j++) row[j] = j;
  for (int i = 1; a[i - 1]; i++) {
    int diagonal = row[0];
    row[0] = i;
    for (int j = 1; j <= n; j++) {
      int change = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      int best = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
      row[j] = change < best ? change : best;
    }
  }
  return row[n];
}

static const char *check_verb(const char *word) {
  const char *near = NULL;
  for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
    if (!strcmp(word, verbs[i])) return verbs[i];
    if (distance(word, verbs[i]) <= 2) near = verbs[i];
  }
  if (near) fail(EXIT_USAGE, "there is no command '%s'; did you mean '%s'?", word, near);
  fail(EXIT_USAGE, "there is no command '%s'; the commands are info, run, generate, bench, selftest, serve (see --help)",
       word);
}

long parse_count(const char *text, const char *what, long low, long high) {
  char *end;
  errno = 0;
  long n = strtol(text, &end, 10);
  if (end == text || *end || errno || n < low || n > high)
    fail(EXIT_USAGE, "%s takes a whole number from %ld to %ld, not '%s'", what, low, high, text);
  return n;
}

static double parse_seconds(const char *text, const char *what, double high) {
  char *end;
  double s = strtod(text, &end);
  if (end == text || *end || !(s > 0) || s > high)
    fail(EXIT_USAGE, "%s takes a number of seconds above 0 and up to %.0f, not '%s'", what, high, text);
  return s;
}

/* NAME=VALUE; a value alone gets name NULL. Tensor names may hold '=' no more than file names may. */
static void add_named(options *o, named *list, int *count, const char *text, const char *flag) {
  if (*count == MAX_IO) fail(EXIT_USAGE, "%s is given more than %d times", flag, MAX_IO);
  const char *equals = strchr(text, '=');
  named *entry = &list[(*count)++];
  entry->name = NULL;
  entry->value = equals ? equals + 1 : text;
  if (!equals) return;
  size_t n = (size_t)(equals - text);
  if (n + 1 > sizeof o->shape_names - o->names_used) fail(EXIT_USAGE, "the names given with %s are too long", flag);
  memcpy(o->shape_names + o->names_used, text, n);
  o->shape_names[o->names_used + n] = 0;
  entry->name = o->shape_names + o->names_used;
  o->names_used += n + 1;
}

static void set_format(options *o, const char *value) {
  o->json = !strcmp(value, "json");
  if (!o->json && strcmp(value, "table")) fail(EXIT_USAGE, "--format takes table or json here, not '%s'", value);
}

/* The value of option `flag` if argv[*i] is that option, as `--flag value` or `--flag=value`. */
static const char *value_of(const char *flag, int argc, char **argv, int *i) {
  size_t n = strlen(flag);
  if (strncmp(argv[*i], flag, n)) return NULL;
  if (argv[*i][n] == '=') return argv[*i] + n + 1;
  if (argv[*i][n]) return NULL;
  if (*i + 1 >= argc) fail(EXIT_USAGE, "%s needs a value", flag);
  return argv[++*i];
}

/* A number from low to high. */
static double parse_number(const char *text, const char *what, double low, double high) {
  char *end;
  double x = strtod(text, &end);
  if (end == text || *end || !(x >= low && x <= high))
    fail(EXIT_USAGE, "%s takes a number from %g to %g, not '%s'", what, low, high, text);
  return x;
}

/* Those of generate. Returns whether argv[*i] is one. */
static int parse_text_option(options *o, int argc, char **argv, int *i) {
  const char *v;
  if (!strcmp(argv[*i], "--chat")) o->chat = 1;
  else if ((v = value_of("--tokens", argc, argv, i)) || (v = value_of("-n", argc, argv, i)))
    o->limit = parse_count(v, "--tokens", 1, 1000000);
  else if ((v = value_of("--temperature", argc, argv, i))) o->temperature = parse_number(v, "--temperature", 0, 1e6);
  else if ((v = value_of("--top-k", argc, argv, i))) o->top_k = parse_count(v, "--top-k", 0, 1000000000);
  else if ((v = value_of("--top-p", argc, argv, i))) o->top_p = parse_number(v, "--top-p", 1e-9, 1);
  else return 0;
  return 1;
}

static void parse_option(options *o, int argc, char **argv, int *i) {
  const char *v;
  const char *flag = argv[*i];
  if (!strcmp(flag, "--help") || !strcmp(flag, "-h")) o->help = 1;
  else if (!strcmp(flag, "--json")) o->json = 1;
  else if (!strcmp(flag, "--layers")) o->layers = 1;
  else if (!strcmp(flag, "--force")) o->force = 1;
  else if (!strcmp(flag, "--stream")) o->stream = 1;
  else if (!strcmp(flag, "--allow-throttled")) o->allow_throttled = 1;
  else if (!strcmp(flag, "--no-memory-check")) o->no_memory_check = 1;
  else if ((v = value_of("--format", argc, argv, i))) set_format(o, v);
  else if ((v = value_of("--input", argc, argv, i))) add_named(o, o->input, &o->n_input, v, "--input");
  else if ((v = value_of("--shape", argc, argv, i))) add_named(o, o->shape, &o->n_shape, v, "--shape");
  else if ((v = value_of("--output-dir", argc, argv, i))) o->output_dir = v;
  else if ((v = value_of("--output", argc, argv, i))) o->output = v;
  else if ((v = value_of("--listen", argc, argv, i))) o->listen = v;
  else if ((v = value_of("--max-body", argc, argv, i))) o->max_body = parse_count(v, "--max-body", 1024, 1 << 30);
  else if ((v = value_of("--timeout", argc, argv, i))) o->timeout = parse_seconds(v, "--timeout", 3600);
  else if ((v = value_of("--threads", argc, argv, i))) o->threads = v;
  else if ((v = value_of("--isa", argc, argv, i))) o->isa = v;
  else if ((v = value_of("--seed", argc, argv, i))) o->seed = (uint64_t)parse_count(v, "--seed", 0, 1000000000);
  else if ((v = value_of("--runs", argc, argv, i))) o->runs = parse_count(v, "--runs", 1, 1000000);
  else if ((v = value_of("--warmup", argc, argv, i))) o->warmup = parse_count(v, "--warmup", 0, 1000000);
  else if ((v = value_of("--seconds", argc, argv, i))) o->seconds = parse_seconds(v, "--seconds", 86400);
  else if (!parse_text_option(o, argc, argv, i)) fail(EXIT_USAGE, "there is no option '%s'; see --help", flag);
}

void parse_options(options *o, int argc, char **argv) {
  o->warmup = 3;
  o->seconds = 2;
  o->limit = 128;
  o->top_p = 1;
  o->timeout = 10;
  for (int i = 1; i < argc; i++) {
    if (argv[i][0] == '-' && argv[i][1]) parse_option(o, argc, argv, &i);
    else if (!o->verb) o->verb = check_verb(argv[i]);
    else if (!strcmp(o->verb, "generate") && !o->prompt) o->prompt = argv[i];
    else fail(EXIT_USAGE, "'%s' is one word too many; see --help", argv[i]);
  }
}

static const char help_general[] =
    "A packed model: one file that runs itself.\n\n"
    "  $ %1$s run --input random\n\n"
    "  info       what is inside: model, target, inputs, outputs, memory\n"
    "  run        run once on given inputs\n"
    "  generate   continue a text (language models)\n"
    "  bench      latency percentiles and memory\n"
    "  selftest   check weights and golden vectors\n"
    "  serve      answer HTTP requests\n\n"
    "`%1$s COMMAND --help` tells more.\n";

static const char help_info[] =
    "Show what is inside: model, target, inputs, outputs, memory.\n\n"
    "  $ %1$s info\n"
    "  $ %1$s info --json\n";

static const char help_run[] =
    "Run the model once, or for every record on standard input.\n\n"
    "  $ %1$s run --input x=photo.npy --output-dir results\n"
    "  $ %1$s run --input random --json\n"
    "  $ cat *.npy | %1$s run --stream --input - --output - > results.npys\n\n"
    "  --input [NAME=]SOURCE   file.npy, file.npz (stored), file.raw (plain bytes), random, zeros, or standard input:\n"
    "                          - (npy), raw:- (plain bytes); without NAME: the only input, or every member of an .npz\n"
    "  --shape NAME=1,3,8,8    shape of an input whose dimensions are free (random, zeros, raw)\n"
    "  --stream                go on until standard input ends, which holds one record after another;\n"
    "                          without --output one JSON document a line\n"
    "  --output DEST           FILE.npz, or standard output: - (npy, one array after another), raw:- (plain bytes)\n"
    "  --output-dir DIR        write each output to DIR/NAME.npy\n"
    "  --force                 replace files that exist\n"
    "  --seed N                for random inputs (default 0)\n";

static const char help_generate[] =
    "Continue a text, printing it as it comes.\n\n"
    "  $ %1$s generate \"The capital of France is\"\n"
    "  $ %1$s generate \"Write a haiku\" --chat --temperature 0.8 --top-p 0.95 --seed 7\n\n"
    "  --tokens N, -n N        at most so many tokens (default 128)\n"
    "  --temperature T         0: always the most likely token (default)\n"
    "  --top-k K, --top-p P    draw from the K most likely, or from the fewest with probability P together\n"
    "  --seed N                for drawing (default 0)\n"
    "  --chat                  the prompt is a message to an assistant\n";

static const char help_bench[] =
    "Measure latency and memory; load, first run and steady runs apart.\n\n"
    "  $ %1$s bench\n"
    "  $ %1$s bench --threads sweep --layers\n\n"
    "  --threads N|sweep|1,2   thread counts to measure (default: one per big core)\n"
    "  --runs N                timed runs (default: as many as fit into --seconds)\n"
    "  --seconds S             time of the steady phase (default 2)\n"
    "  --warmup N              untimed runs before it (default 3)\n"
    "  --layers                time of every layer\n"
    "  --allow-throttled       accept runs during which the CPU was throttled\n"
    "  --input, --shape        as for run (default random)\n\n"
    "Exit status 1 when the median is over the latency budget given at pack time, or the CPU was throttled.\n";

static const char help_serve[] =
    "Answer HTTP requests: GET /healthz, GET /metadata, POST /infer (JSON or npy).\n\n"
    "  $ %1$s serve\n"
    "  $ curl -H 'Content-Type: application/x-npy' --data-binary @x.npy http://127.0.0.1:8080/infer\n\n"
    "  --listen [HOST:]PORT    address (default 127.0.0.1:8080; 0.0.0.0:8080 for everybody; port 0: any free one)\n"
    "  --max-body BYTES        largest request (default: what the largest inputs need)\n"
    "  --timeout S             time a client has for its request, and to take the answer (default 10)\n\n"
    "SIGTERM ends it after the requests in progress. There is no encryption and no password: put a proxy in front.\n";

static const char help_selftest[] =
    "Check the weights and replay the stored golden vectors; exit 1 when an output is wrong.\n\n"
    "  $ %1$s selftest\n";

static const char help_common[] =
    "\nFor all commands: --format table|json (--json), --threads N, --isa LEVEL, --no-memory-check, --help, --version\n"
    "Exit status: 0 ok, 1 negative result, 2 usage, 3 hardware absent, 5 file error, 70 internal error\n";

void print_help(const options *o) {
  static const char *const pages[] = {help_info, help_run, help_generate, help_bench, help_selftest, help_serve};
  const char *page = help_general;
  for (size_t i = 0; o->verb && i < sizeof verbs / sizeof *verbs; i++)
    if (!strcmp(o->verb, verbs[i])) page = pages[i];
  for (const char *name; (name = strstr(page, "%1$s")); page = name + 4) { /* the only placeholder */
    out_bytes(page, (size_t)(name - page));
    out("%s", program());
  }
  out("%s%s", page, help_common);
}
