/* Copies without arithmetic. */
#include <string.h>
#include "../kernel.h"
#include "nd.h"

#ifdef ER_BASELINE_CHECKS
static int check_copy_bytes(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 1 && c->n_out == 1 && c->in[0].data && c->out[0].data,
             "copy_bytes takes one tensor to another");
  ER_REQUIRE(c, er_is_dense(&c->in[0]) && er_is_dense(&c->out[0]), "copy_bytes takes dense tensors");
  int64_t from = er_numel(&c->in[0]) * er_itemsize(c->in[0].dtype);
  int64_t to = er_numel(&c->out[0]) * er_itemsize(c->out[0].dtype);
  ER_REQUIRE(c, from == to, "copy_bytes from %lld to %lld bytes", (long long)from, (long long)to);
  return 0;
}
#endif

static void run_copy_bytes(const er_call *c) {
  size_t bytes = (size_t)(er_numel(&c->in[0]) * er_itemsize(c->in[0].dtype));
  if (c->in[0].data != c->out[0].data && bytes) memcpy(c->out[0].data, c->in[0].data, bytes);
}

/* copy_nd: out (dense) is read from `in` through strides: transposes, slices, expansions, tilings.
 * Parameters: rank, offset, then (size, stride) for each dim of a view of the output, elements of the input. */
#define COPY_MAX_RANK 16

#ifdef ER_BASELINE_CHECKS
static int check_copy_nd(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 1 && c->n_out == 1, "copy_nd takes one tensor to another");
  const er_view *in = &c->in[0], *out = &c->out[0];
  ER_REQUIRE(c, er_is_dense(in) && er_is_dense(out), "copy_nd takes dense tensors");
  ER_REQUIRE(c, er_itemsize(in->dtype) && er_itemsize(in->dtype) == er_itemsize(out->dtype),
             "copy_nd: dtypes differ in size");
  ER_REQUIRE(c,
             c->n_param >= 2 && c->param[0] >= 0 && c->param[0] <= COPY_MAX_RANK && c->n_param == 2 + 2 * c->param[0],
             "copy_nd: bad parameters");
  int64_t n = 1, low = c->param[1], high = c->param[1];
  for (int d = 0; d < c->param[0]; d++) {
    int64_t size = c->param[2 + 2 * d], stride = c->param[3 + 2 * d];
    ER_REQUIRE(c, size >= 0 && (size == 0 || n <= INT64_MAX / size), "copy_nd: bad size");
    n *= size;
    if (size > 0) *(stride < 0 ? &low : &high) += (size - 1) * stride;
  }
  ER_REQUIRE(c, n == er_numel(out), "copy_nd: %lld elements for an output of %lld", (long long)n,
             (long long)er_numel(out));
  ER_REQUIRE(c, n == 0 || (low >= 0 && high < er_numel(in)), "copy_nd reads outside its input");
  return 0;
}
#endif

typedef struct {
  const char *src;
  char *dst;
  int size; /* bytes an element */
  int rank, tasks;
  int across;                   /* the dim of stride 1 that the last dim is transposed with, or -1 */
  int64_t dim[COPY_MAX_RANK];   /* collapsed; dim[rank - 1] is the output's row */
  int64_t from[COPY_MAX_RANK];  /* source strides in bytes */
  int64_t to[COPY_MAX_RANK];    /* output strides in bytes */
  int64_t rows;                 /* product of the dims that tasks share out */
} copy_plan;

typedef uint32_t copy_v4 __attribute__((vector_size(16), aligned(4), may_alias));

/* 4 x 4 words: rows of src (from bytes apart) become columns of dst (to bytes apart). */
static inline void copy_4x4(char *dst, int64_t to, const char *src, int64_t from) {
  copy_v4 a = *(const copy_v4 *)src, b = *(const copy_v4 *)(src + from);
  copy_v4 c = *(const copy_v4 *)(src + 2 * from), d = *(const copy_v4 *)(src + 3 * from);
  copy_v4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  copy_v4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  *(copy_v4 *)dst = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
  *(copy_v4 *)(dst + to) = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
  *(copy_v4 *)(dst + 2 * to) = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
  *(copy_v4 *)(dst + 3 * to) = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

/* dst[i][j] = src[j][i] for i < m (dst rows `to` bytes apart), j < n (src rows `from` bytes apart); elements of TYPE.
 */
#define COPY_TRANSPOSE(name, TYPE) \
  static void name(char *dst, int64_t to, const char *src, int64_t from, int64_t m, int64_t n) { \
    for (int64_t i = 0; i < m; i++) \
      for (int64_t j = 0; j < n; j++) \
        *(TYPE *)(dst + i * to + j * (int64_t)sizeof(TYPE)) = \
            *(const TYPE *)(src + j * from + i * (int64_t)sizeof(TYPE)); \
  }
COPY_TRANSPOSE(copy_transpose_1, uint8_t)
COPY_TRANSPOSE(copy_transpose_2, uint16_t)
COPY_TRANSPOSE(copy_transpose_4, uint32_t)
COPY_TRANSPOSE(copy_transpose_8, uint64_t)

/* Three planes of m words side by side: the image that every vision model starts with. */
static void copy_interleave_3(uint32_t *restrict dst, const uint32_t *a, const uint32_t *b, const uint32_t *c, int64_t m) {
  for (int64_t i = 0; i < m; i++) {
    dst[3 * i] = a[i];
    dst[3 * i + 1] = b[i];
    dst[3 * i + 2] = c[i];
  }
}

static void copy_block(int size, char *dst, int64_t to, const char *src, int64_t from, int64_t m, int64_t n) {
  switch (size) {
    case 1: copy_transpose_1(dst, to, src, from, m, n); break;
    case 2: copy_transpose_2(dst, to, src, from, m, n); break;
    case 8: copy_transpose_8(dst, to, src, from, m, n); break;
    default: {
      int64_t mm = m & ~3, nn = n & ~3;
      for (int64_t i = 0; i < mm; i += 4)
        for (int64_t j = 0; j < nn; j += 4) copy_4x4(dst + i * to + 4 * j, to, src + j * from + 4 * i, from);
      if (nn < n) copy_transpose_4(dst + 4 * nn, to, src + nn * from, from, mm, n - nn);
      if (mm < m) copy_transpose_4(dst + mm * to, to, src + 4 * mm, from, m - mm, n);
    }
  }
}

/* n elements of `size` bytes, `from` bytes apart, to consecutive places. */
static void copy_row(int size, char *dst, const char *src, int64_t from, int64_t n) {
  if (from == size) {
    memcpy(dst, src, (size_t)(n * size));
    return;
  }
  switch (size) {
    case 1:
      if (from == 0) memset(dst, *(const uint8_t *)src, (size_t)n);
      else for (int64_t i = 0; i < n; i++) ((uint8_t *)dst)[i] = *(const uint8_t *)(src + i * from);
      break;
    case 2: for (int64_t i = 0; i < n; i++) ((uint16_t *)dst)[i] = *(const uint16_t *)(src + i * from); break;
    case 4: for (int64_t i = 0; i < n; i++) ((uint32_t *)dst)[i] = *(const uint32_t *)(src + i * from); break;
    default: for (int64_t i = 0; i < n; i++) ((uint64_t *)dst)[i] = *(const uint64_t *)(src + i * from);
  }
}

#define COPY_BLOCK 64 /* columns of a transpose done together: their lines stay in the first-level cache */

static void copy_task(void *context, int item, int thread) {
  (void)thread;
  const copy_plan *p = context;
  int64_t begin, end, index[COPY_MAX_RANK] = {0}, src_at = 0, dst_at = 0;
  nd_share(p->rows, item, p->tasks, &begin, &end);
  int last = p->rank - 1;
  for (int64_t d = last - 1, rest = begin; d >= 0; d--) {
    if (d == p->across) continue;
    index[d] = rest % p->dim[d];
    rest /= p->dim[d];
    src_at += index[d] * p->from[d];
    dst_at += index[d] * p->to[d];
  }
  for (int64_t row = begin; row < end; row++) {
    const char *src = p->src + src_at;
    char *dst = p->dst + dst_at;
    if (p->across >= 0) {
      int64_t m = p->dim[p->across], n = p->dim[last];
      if (n == 3 && p->size == 4 && p->to[p->across] == 12) {
        const char *b = src + p->from[last];
        copy_interleave_3((uint32_t *)dst, (const uint32_t *)src, (const uint32_t *)b,
                          (const uint32_t *)(b + p->from[last]), m);
      } else
      for (int64_t i = 0; i < m; i += COPY_BLOCK)
        for (int64_t j = 0; j < n; j += 16)
          copy_block(p->size, dst + i * p->to[p->across] + j * p->size, p->to[p->across],
                     src + j * p->from[last] + i * p->size, p->from[last], nd_min(COPY_BLOCK, m - i),
                     nd_min(16, n - j));
    } else {
      copy_row(p->size, dst, src, p->from[last], p->dim[last]);
    }
    for (int d = last - 1; d >= 0; d--) {
      if (d == p->across) continue;
      src_at += p->from[d];
      dst_at += p->to[d];
      if (++index[d] < p->dim[d]) break;
      index[d] = 0;
      src_at -= p->from[d] * p->dim[d];
      dst_at -= p->to[d] * p->dim[d];
    }
  }
}

static void run_copy_nd(const er_call *c) {
  copy_plan p;
  if (er_numel(&c->out[0]) == 0) return;
  int size = er_itemsize(c->in[0].dtype), r = 0;
  for (int d = 0; d < c->param[0]; d++) {
    int64_t n = c->param[2 + 2 * d], stride = (int64_t)c->param[3 + 2 * d] * size;
    if (n == 1) continue;
    if (r && p.from[r - 1] == stride * n) p.dim[r - 1] *= n;
    else p.dim[r++] = n;
    p.from[r - 1] = stride;
  }
  if (r == 0) {
    p.dim[0] = 1;
    p.from[0] = size;
    r = 1;
  }
  p.rank = r;
  p.size = size;
  p.src = (const char *)c->in[0].data + (int64_t)c->param[1] * size;
  p.dst = c->out[0].data;
  int64_t step = size;
  for (int d = r - 1; d >= 0; step *= p.dim[d], d--) p.to[d] = step;
  p.across = -1;
  if (p.from[r - 1] != size && p.from[r - 1] != 0) {
    for (int d = 0; d < r - 1; d++) if (p.from[d] == size && p.dim[d] >= 4) p.across = d;
  }
  if (p.across >= 0 && r == 2 && p.dim[0] >= 2 * COPY_BLOCK) {
    /* A plain transpose has one unit; cut the dim of stride 1 so that threads have something to share. */
    int64_t cut = COPY_BLOCK;
    while (p.dim[0] % cut) cut--;
    if (cut >= 16) {
      for (int d = 2; d > 0; d--) {
        p.dim[d] = p.dim[d - 1];
        p.from[d] = p.from[d - 1];
        p.to[d] = p.to[d - 1];
      }
      p.dim[0] = p.dim[1] / cut;
      p.from[0] = p.from[1] * cut;
      p.to[0] = p.to[1] * cut;
      p.dim[1] = cut;
      p.rank = 3;
      p.across = 1;
    }
  }
  p.rows = 1;
  for (int d = 0; d < p.rank - 1; d++) if (d != p.across) p.rows *= p.dim[d];
  p.tasks = nd_tasks(c, p.rows, er_numel(&c->out[0]) / p.rows * 2);
  er_parallel(c->pool, copy_task, &p, p.tasks);
}

/* concat: inputs one after the other along an axis. Parameter: axis. */
#ifdef ER_BASELINE_CHECKS
static int check_concat(const er_call *c) {
  ER_REQUIRE(c, c->n_in >= 1 && c->n_out == 1 && c->n_param == 1, "concat takes tensors to one tensor");
  const er_view *out = &c->out[0];
  int axis = c->param[0];
  ER_REQUIRE(c, axis >= 0 && axis < out->rank && er_is_dense(out) && er_itemsize(out->dtype),
             "concat: bad axis or output");
  int64_t total = 0;
  for (int i = 0; i < c->n_in; i++) {
    const er_view *in = &c->in[i];
    ER_REQUIRE(c, in->rank == out->rank && in->dtype == out->dtype, "concat: input %d has another rank or dtype", i);
    ER_REQUIRE(c, er_is_dense(in) || axis == in->rank - 1, "concat: input %d is strided", i);
    for (int d = 0; d < in->rank; d++)
      ER_REQUIRE(c, d == axis || in->dim[d] == out->dim[d], "concat: input %d differs in dim %d", i, d);
    total += in->dim[axis];
  }
  ER_REQUIRE(c, total == out->dim[axis], "concat: the inputs have %lld, the output %lld", (long long)total,
             (long long)out->dim[axis]);
  return 0;
}
#endif

static void run_concat(const er_call *c) {
  const er_view *out = &c->out[0];
  int axis = c->param[0];
  int64_t size = er_itemsize(out->dtype), outer = nd_product(out, 0, axis),
          inner = nd_product(out, axis + 1, out->rank) * size;
  int64_t pitch = out->dim[axis] * inner, at = 0;
  for (int i = 0; i < c->n_in; i++) {
    const er_view *in = &c->in[i];
    int64_t run = in->dim[axis] * inner, from = axis == in->rank - 1 && in->rank > 1 ? in->ld * size : run;
    char *dst = (char *)out->data + at;
    const char *src = in->data;
    at += run;
    if (run == 0) continue;
    for (int64_t o = 0; o < outer; o++) memcpy(dst + o * pitch, src + o * from, (size_t)run);
  }
}

/* pad: parameters: mode (0 constant, 1 reflect, 2 edge, 3 wrap), then (before, after) for each dim, negative to crop.
 * Inputs: x, and in constant mode optionally the value, one element. */
enum copy_pad_mode { PAD_CONSTANT, PAD_REFLECT, PAD_EDGE, PAD_WRAP };

#ifdef ER_BASELINE_CHECKS
static int check_pad(const er_call *c) {
  const er_view *in = &c->in[0], *out = &c->out[0];
  ER_REQUIRE(c, c->n_in == 2 && c->n_out == 1 && c->n_param == 1 + 2 * in->rank, "pad: bad parameters");
  ER_REQUIRE(c, in->rank == out->rank && in->rank >= 1 && in->dtype == out->dtype && er_itemsize(in->dtype),
             "pad: input and output differ");
  ER_REQUIRE(c, er_is_dense(in) && er_is_dense(out), "pad takes dense tensors");
  ER_REQUIRE(c, c->param[0] >= PAD_CONSTANT && c->param[0] <= PAD_WRAP, "pad: there is no mode %d", c->param[0]);
  ER_REQUIRE(c, c->in[1].data == NULL || (er_numel(&c->in[1]) == 1 && c->in[1].dtype == in->dtype), "pad: bad value");
  for (int d = 0; d < in->rank; d++) {
    int64_t before = c->param[1 + 2 * d], after = c->param[2 + 2 * d];
    ER_REQUIRE(c, in->dim[d] + before + after == out->dim[d], "pad: dim %d does not fit", d);
    int64_t kept = in->dim[d] + nd_min(before, 0) + nd_min(after, 0), most = nd_max(before, after);
    ER_REQUIRE(c, kept >= 0, "pad: dim %d is cropped below nothing", d);
    if (c->param[0] == PAD_CONSTANT || most <= 0) continue;
    ER_REQUIRE(c, kept > (c->param[0] == PAD_REFLECT ? most : 0), "pad: dim %d has too few elements to repeat", d);
  }
  return 0;
}
#endif

/* Source index of output index i along a dim of n elements, or -1 for the constant. */
static int64_t copy_pad_source(int mode, int64_t i, int64_t n) {
  if (i >= 0 && i < n) return i;
  if (mode == PAD_CONSTANT) return -1;
  if (mode == PAD_EDGE || n == 1) return i < 0 ? 0 : n - 1;
  int64_t period = mode == PAD_WRAP ? n : 2 * n - 2;
  i = (i % period + period) % period;
  return i < n ? i : period - i;
}

typedef struct { const er_call *c; int64_t rows; int tasks; } copy_pad_plan;

static void copy_pad_task(void *context, int item, int thread) {
  (void)thread;
  const copy_pad_plan *p = context;
  const er_call *c = p->c;
  const er_view *in = &c->in[0], *out = &c->out[0];
  int mode = c->param[0], last = in->rank - 1, size = er_itemsize(in->dtype);
  char zero[8] = {0};
  const char *value = c->in[1].data ? c->in[1].data : zero;
  int64_t begin, end, n = in->dim[last], m = out->dim[last], before = c->param[1 + 2 * last];
  int64_t copied_from = nd_min(nd_max(before, 0), m), copied_to = nd_max(nd_min(before + n, m), copied_from);
  nd_share(p->rows, item, p->tasks, &begin, &end);
  for (int64_t row = begin; row < end; row++) {
    int64_t rest = row, source = 0, step = 1, outside = 0;
    for (int d = last - 1; d >= 0; d--) {
      int64_t k = copy_pad_source(mode, rest % out->dim[d] - c->param[1 + 2 * d], in->dim[d]);
      rest /= out->dim[d];
      outside |= k < 0;
      source += k * step;
      step *= in->dim[d];
    }
    char *dst = (char *)out->data + row * m * size;
    if (outside) {
      copy_row(size, dst, value, 0, m);
      continue;
    }
    const char *src = (const char *)in->data + source * n * size;
    if (mode == PAD_CONSTANT) {
      copy_row(size, dst, value, 0, copied_from);
      copy_row(size, dst + copied_to * size, value, 0, m - copied_to);
    } else {
      for (int64_t i = 0; i < m; i++) {
        if (i == copied_from) i = copied_to;
        if (i < m) memcpy(dst + i * size, src + copy_pad_source(mode, i - before, n) * size, (size_t)size);
      }
    }
    if (copied_to > copied_from)
      memcpy(dst + copied_from * size, src + (copied_from - before) * size, (size_t)((copied_to - copied_from) * size));
  }
}

static void run_pad(const er_call *c) {
  const er_view *out = &c->out[0];
  if (er_numel(out) == 0) return;
  copy_pad_plan p = {c, nd_product(out, 0, out->rank - 1), 1};
  p.tasks = nd_tasks(c, p.rows, 2 * out->dim[out->rank - 1]);
  er_parallel(c->pool, copy_pad_task, &p, p.tasks);
}
