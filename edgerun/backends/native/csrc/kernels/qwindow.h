/* What integer convolutions share: the window over an image, channels last. Parameters: groups, K = taps * C / groups,
 * O, offset of packed w, whether the image is copied with its border, spatial rank (1..3), then for each dim (kernel,
 * stride, pad begin, dilation). */
#ifndef EDGERUN_QWINDOW_H
#define EDGERUN_QWINDOW_H
#include "qgemm.h"

enum { QC_GROUPS, QC_K, QC_O, QC_OFFSET, QC_IMAGE, QC_SPATIAL, QC_DIMS };

typedef struct { int64_t size, out, kernel, stride, before, dilation; } qw_dim;
typedef struct {
  qw_dim d[3];            /* leading ones where there are fewer dims */
  int64_t batch, channels, taps;
  int64_t extent[3];      /* of the image that the windows read, borders included */
} qw_window;

static qw_window qw_of(const er_call *c) {
  const er_view *x = &c->in[QM_A], *y = &c->out[0];
  qw_window w;
  int spatial = c->param[QC_SPATIAL];
  for (int k = 0; k < 3; k++) w.d[k] = (qw_dim){1, 1, 1, 1, 0, 1};
  w.taps = 1;
  for (int k = 0; k < spatial; k++) {
    const int32_t *p = c->param + QC_DIMS + 4 * k;
    w.d[3 - spatial + k] = (qw_dim){x->dim[1 + k], y->dim[1 + k], p[0], p[1], p[2], p[3]};
    w.taps *= p[0];
  }
  w.batch = x->dim[0];
  w.channels = x->dim[x->rank - 1];
  for (int k = 0; k < 3; k++)
    w.extent[k] = nd_max(0, (w.d[k].out - 1) * w.d[k].stride + (w.d[k].kernel - 1) * w.d[k].dilation + 1);
  return w;
}
ER_INLINE int64_t qw_image_bytes(const qw_window *w) { return w->extent[0] * w->extent[1] * w->extent[2] * w->channels; }
ER_INLINE int64_t qw_pixels(const qw_window *w) { return w->d[0].out * w->d[1].out * w->d[2].out; }

#ifdef ER_BASELINE_CHECKS
static int qw_check(const er_call *c) {
  ER_REQUIRE(c, c->n_in == QM_INPUTS && c->n_out == 1 && c->n_param >= QC_DIMS, "qconv: bad call");
  const er_view *x = &c->in[QM_A], *y = &c->out[0];
  int64_t spatial = c->param[QC_SPATIAL], groups = c->param[QC_GROUPS];
  ER_REQUIRE(c, spatial >= 1 && spatial <= 3 && c->n_param == QC_DIMS + 4 * spatial, "qconv: bad parameters");
  ER_REQUIRE(c, x->rank == spatial + 2 && y->rank == x->rank && x->dim[0] == y->dim[0] && groups > 0,
             "qconv: bad ranks");
  for (int d = 0; d < spatial; d++) {
    const int32_t *w = c->param + QC_DIMS + 4 * d;
    ER_REQUIRE(c, w[0] > 0 && w[0] < 4096 && w[1] > 0 && w[1] < 1 << 20 && w[2] >= 0 && w[3] > 0 && w[3] < 1 << 20,
               "qconv: bad window");
    ER_REQUIRE(c, y->dim[1 + d] < 1 << 28, "qconv: bad size");
  }
  int64_t channels = x->dim[x->rank - 1];
  ER_REQUIRE(c, channels % groups == 0 && c->param[QC_O] % groups == 0 && y->dim[y->rank - 1] == c->param[QC_O],
             "qconv: bad channels");
  qw_window w = qw_of(c);
  ER_REQUIRE(c, c->param[QC_K] == w.taps * (channels / groups), "qconv: bad filter size");
  ER_REQUIRE(c, er_numel(&c->in[QM_A_ZERO]) == 1 && er_numel(&c->in[QM_A_SCALE]) == 1,
             "qconv takes one zero point and scale of x");
  return 0;
}
#endif

/* The image with its border in the scratch, bits flipped as the micro-kernel wants them. */
typedef struct { const er_call *c; const qw_window *w; const uint8_t *from; uint8_t *to, fill; int flip, tasks; } qw_copy;

static void qw_copy_task(void *context, int item, int thread) {
  (void)thread;
  const qw_copy *p = context;
  const qw_dim *d = p->w->d;
  int64_t first, last, channels = p->w->channels, length = p->w->extent[2] * channels;
  nd_share(p->w->extent[0] * p->w->extent[1], item, p->tasks, &first, &last);
  int64_t before = nd_min(d[2].before * channels, length);
  int64_t inside = nd_max(0, nd_min(length - before, d[2].size * channels));
  for (int64_t row = first; row < last; row++) {
    int64_t i0 = row / p->w->extent[1] - d[0].before, i1 = row % p->w->extent[1] - d[1].before;
    uint8_t *to = p->to + row * length;
    if (i0 < 0 || i0 >= d[0].size || i1 < 0 || i1 >= d[1].size) {
      memset(to, p->fill, (size_t)length);
      continue;
    }
    memset(to, p->fill, (size_t)before);
    qg_flip_copy(to + before, p->from + (i0 * d[1].size + i1) * d[2].size * channels, inside, p->flip);
    memset(to + before + inside, p->fill, (size_t)(length - before - inside));
  }
}
static void qw_fill_image(const er_call *c, const qw_window *w, const uint8_t *from, uint8_t *to, int flip) {
  const er_view *zero = &c->in[QM_A_ZERO];
  int64_t rows = w->extent[0] * w->extent[1];
  uint8_t fill = zero->data ? *(const uint8_t *)zero->data : 0;
  qw_copy p = {c, w, from, to, (uint8_t)(fill ^ flip), flip, nd_tasks(c, rows, w->extent[2] * w->channels / 8)};
  er_parallel(c->pool, qw_copy_task, &p, p.tasks);
}
#endif
