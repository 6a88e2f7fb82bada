/* `info`: what the file holds. */
#include <string.h>
#include "launcher.h"

static void print_io(const er_model *model, int outputs, int json) {
  er_io_info info;
  char shape[160];
  int n = outputs ? er_output_count(model) : er_input_count(model);
  for (int i = 0; i < n; i++) {
    if (outputs) er_output_info(model, i, &info);
    else er_input_info(model, i, &info);
    if (json) {
      out(i ? ", {\"name\": " : "{\"name\": ");
      out_json_text(info.name, strlen(info.name));
      out(", \"dtype\": \"%s\", \"shape\": [", dtype_name(info.dtype));
      for (int k = 0; k < info.rank; k++)
        out(info.dim[k] < 0 ? "%snull" : "%s%lld", k ? ", " : "", (long long)info.dim[k]);
      out("]}");
    } else {
      shape_text(shape, sizeof shape, info.dim, info.rank);
      out("%-12s %s: %s%s\n", outputs ? "output" : "input", info.name, dtype_name(info.dtype), shape);
    }
  }
}

static void print_text(const char *label, json_value v) {
  json_value plain = json_unquoted(v);
  if (plain.text) v = plain;
  if (!v.text || !v.length || (v.length == 4 && !memcmp(v.text, "null", 4))) return;
  out("%-12s ", label);
  for (size_t i = 0; i < v.length; i++) { /* control bytes of a hostile manifest stay off the terminal */
    unsigned char c = (unsigned char)v.text[i];
    out("%c", c < 32 || c == 127 ? '?' : c);
  }
  out("\n");
}

static void print_ram(json_value m) {
  char path[32] = "ram.0.bytes";
  double total = json_number(json_find(m, "ram_bytes"), -1);
  if (total < 0) return;
  out("%-12s %.2f MB predicted at its peak\n", "ram", total / 1e6);
  for (int i = 0; i < 10; i++) {
    path[4] = (char)('0' + i);
    memcpy(path + 6, "bytes", 6);
    double bytes = json_number(json_find(m, path), -1);
    if (bytes < 0) break;
    memcpy(path + 6, "part", 5);
    json_value part = json_unquoted(json_find(m, path));
    out("  %-24.*s %10.3f MB\n", (int)(part.length > 24 ? 24 : part.length), part.text ? part.text : "", bytes / 1e6);
  }
}

void print_info_json(const packed *p, er_model *model) {
  json_value m = manifest(p);
  out("{\"version\": \"%s\", \"isa\": \"%s\", \"nodes\": %d, \"file_bytes\": %llu, \"plan_bytes\": %llu, ",
      er_version(), er_isa(model), er_node_count(model), (unsigned long long)p->file_bytes,
      (unsigned long long)p->plan_bytes);
  out("\"weight_bytes\": %llu, \"arena_bytes\": %llu, \"inputs\": [", (unsigned long long)er_plan_weight_bytes(model),
      (unsigned long long)er_arena_bytes(model));
  print_io(model, 0, 1);
  out("], \"outputs\": [");
  print_io(model, 1, 1);
  out("], \"manifest\": ");
  if (m.text) out_bytes(m.text, m.length);
  else out("null");
  out("}\n");
}

int verb_info(const packed *p, const options *o) {
  json_value m = manifest(p);
  er_model *model = load_model(p, o, 1);
  if (o->json) {
    print_info_json(p, model);
  } else {
    print_text("model", json_find(m, "model.name"));
    print_text("source", json_find(m, "model.file"));
    print_text("sha256", json_find(m, "model.sha256"));
    print_text("opset", json_find(m, "model.opset"));
    print_text("target", json_find(m, "target.name"));
    print_text("packed by", json_find(m, "packed_by"));
    out("%-12s %s\n%-12s %s\n%-12s %d\n", "runtime", er_version(), "isa", er_isa(model), "nodes", er_node_count(model));
    print_io(model, 0, 0);
    print_io(model, 1, 0);
    out("%-12s %.2f MB (weights %.2f MB)\n", "file", (double)p->file_bytes / 1e6,
        (double)er_plan_weight_bytes(model) / 1e6);
    print_ram(m);
  }
  er_free(model);
  return EXIT_OK;
}
