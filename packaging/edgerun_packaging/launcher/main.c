/* Entry point of a packed model. */
#include <string.h>
#include "launcher.h"
#include "pool.h"

er_model *load_model(const packed *p, const options *o, int threads) {
  er_model *model = NULL;
  int tests = !strcmp(o->verb, "selftest"), runs = strcmp(o->verb, "info") != 0;
  if (runs && !o->no_memory_check) check_memory_limits(p, threads ? threads : er_default_threads());
  if (runs && !tests && !weights_intact(p))
    fail(EXIT_IO, "the weights in this file are damaged (checksum); copy it again");
  er_prefer_big_cores();
  const char *error = NULL;
  int status = er_load(p->plan, (size_t)p->plan_bytes, threads, &model, &error);
  if (!error) error = "unknown reason";
  if (status == ER_NO_MEMORY)
    fail(EXIT_HARDWARE, "not enough memory for %llu bytes of activations: %s",
         (unsigned long long)p->header->arena_bytes, error);
  if (status == ER_UNSUPPORTED) fail(EXIT_HARDWARE, "this machine cannot run the model: %s", error);
  if (status != ER_OK) fail(EXIT_IO, "the plan in this file is not valid: %s; pack it again", error);
  if (o->isa && er_set_isa(model, o->isa))
    fail(EXIT_HARDWARE, "this CPU has no level '%s'; it would choose %s", o->isa, er_isa(model));
  return model;
}

int main(int argc, char **argv) {
  static options o;
  static packed p;
  double started = seconds_now();
  int status = EXIT_OK;
  set_program(argc > 0 ? argv[0] : NULL);
  if (argc == 2 && !strcmp(argv[1], "--version")) {
    out("edgerun %s\n", er_version());
    out_flush();
    return EXIT_OK;
  }
  parse_options(&o, argc, argv);
  if (o.help || !o.verb) {
    print_help(&o);
    status = o.help || argc == 1 ? EXIT_OK : EXIT_USAGE;
  } else {
    packed_open(&p, argc > 0 ? argv[0] : NULL);
    if (!strcmp(o.verb, "info")) status = verb_info(&p, &o);
    else if (!strcmp(o.verb, "run")) status = verb_run(&p, &o, started);
    else if (!strcmp(o.verb, "generate")) status = verb_generate(&p, &o);
    else if (!strcmp(o.verb, "bench")) status = verb_bench(&p, &o, started);
    else if (!strcmp(o.verb, "serve")) status = verb_serve(&p, &o);
    else status = verb_selftest(&p, &o);
  }
  out_flush();
  return status;
}
