/* Runs a plan once, for tests under an emulator: run_plan PLAN INPUTS OUTPUTS THREADS [ISA].
 * Both files hold, for each tensor in order: rank and dims as i64, then the data. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "edgerun.h"

static void die(const char *what, const char *why) {
  fprintf(stderr, "%s: %s\n", what, why ? why : "?");
  exit(1);
}

static void must_read(FILE *f, void *to, size_t bytes) {
  if (bytes && fread(to, bytes, 1, f) != 1) die("inputs", "too short");
}

int main(int argc, char **argv) {
  if (argc < 5) return 2;
  int fd = open(argv[1], O_RDONLY);
  struct stat st;
  if (fd < 0 || fstat(fd, &st)) die(argv[1], "cannot be read");
  void *plan = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  er_model *m;
  const char *error;
  if (er_load(plan, (size_t)st.st_size, atoi(argv[4]), &m, &error)) die("load", error);
  if (argc > 5 && er_set_isa(m, argv[5])) die("no level", argv[5]);
  FILE *in = fopen(argv[2], "rb"), *out = fopen(argv[3], "wb");
  if (!in || !out) die("files", "cannot be opened");
  long at[64];
  for (int pass = 0; pass < 2; pass++) { /* shapes first, then data */
    for (int i = 0; i < er_input_count(m) && i < 64; i++) {
      er_io_info info;
      int64_t rank, dim[8];
      if (pass == 1) {
        er_input_info(m, i, &info);
        fseek(in, at[i], SEEK_SET);
        must_read(in, er_input_data(m, i), info.bytes);
        continue;
      }
      must_read(in, &rank, 8);
      must_read(in, dim, 8 * (size_t)rank);
      int64_t bytes = 1;
      er_input_info(m, i, &info);
      static const int item[] = {0, 4, 8, 2, 2, 1, 2, 4, 8, 1, 2, 4, 8, 1};
      for (int k = 0; k < rank; k++) bytes *= dim[k];
      at[i] = ftell(in);
      fseek(in, (long)bytes * item[info.dtype], SEEK_CUR);
      if (er_set_input_shape(m, i, dim, (int)rank)) die("shape of input", info.name);
    }
    if (pass == 0 && er_bind(m, &error)) die("bind", error);
  }
  if (er_run(m, &error)) die("run", error);
  for (int i = 0; i < er_output_count(m); i++) {
    er_io_info info;
    er_output_info(m, i, &info);
    int64_t rank = info.rank;
    fwrite(&rank, 8, 1, out);
    fwrite(info.dim, 8, (size_t)rank, out);
    fwrite(er_output_data(m, i), 1, info.bytes, out);
  }
  fclose(out);
  printf("%s\n", er_isa(m));
  er_free(m);
  return 0;
}
