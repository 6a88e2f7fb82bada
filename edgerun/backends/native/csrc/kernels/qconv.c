/* Integer convolution, channels last: x [N, *S, C] codes -> y [N, *T, O]. Inputs as qmatmul; zero point and scale of x
 * are single. Parameters: qwindow.h. w is packed by group, each [panels][kp / 4][16][4]; K is in segments that are
 * rounded up to 4: rows of taps with all channels where those lie together (one group, no dilation along the last dim),
 * else the channels of a tap. The image is copied with its border unless it has none, its codes need no flip and
 * segments end at words.
 * Scratch: 16 bytes for each padded column, 8 for each segment, 4 and those of the image. */
#include "qwindow.h"

/* Number and bytes of the segments of K. */
static int64_t qc_segments(const er_call *c, const qw_window *w, int64_t *length) {
  int64_t per_group = w->channels / c->param[QC_GROUPS];
  int together = c->param[QC_GROUPS] == 1 && w->d[2].dilation == 1;
  *length = together ? w->d[2].kernel * per_group : per_group;
  return together ? w->taps / w->d[2].kernel : w->taps;
}

#ifdef ER_BASELINE_CHECKS
static int check_qconv(const er_call *c) {
  if (qw_check(c)) return 1;
  qw_window w = qw_of(c);
  int64_t groups = c->param[QC_GROUPS], length, segments = qc_segments(c, &w, &length), kp = segments * qg_round4(length);
  int64_t padded = groups * ((c->param[QC_O] / groups + QG_N - 1) / QG_N) * QG_N;
  ER_REQUIRE(c, c->in[QM_B].dtype == ER_I8 && er_numel(&c->in[QM_B]) == padded * kp && c->in[QM_SUMS].data,
             "qconv: bad filters");
  int64_t scratch = padded * QG_COLUMN_BYTES + 8 * segments;
  if (c->param[QC_IMAGE]) {
    scratch += qw_image_bytes(&w) + 4;
  } else {
    ER_REQUIRE(c, !qg_flip(c->in[QM_A].dtype) && length % 4 == 0, "qconv: the image must be copied");
    for (int d = 0; d < 3; d++)
      ER_REQUIRE(c, w.d[d].before == 0 && w.extent[d] <= w.d[d].size, "qconv: the window leaves the image");
  }
  ER_REQUIRE(c, (int64_t)c->scratch_bytes >= scratch, "qconv: too little scratch");
  return qg_check_parameters(c, 1, c->param[QC_O], padded);
}
#endif

static void run_qconv(const er_call *c) {
  const er_view *x = &c->in[QM_A];
  qw_window w = qw_of(c);
  const qw_dim *d = w.d;
  qg_job j;
  memset(&j, 0, sizeof j);
  j.k = c->param[QC_K];
  j.groups = c->param[QC_GROUPS];
  j.y_ld = c->param[QC_O];
  j.outputs = j.y_ld / j.groups;
  j.panels = (j.outputs + QG_N - 1) / QG_N;
  j.rows = qw_pixels(&w);
  if (w.batch == 0 || j.rows == 0 || j.panels == 0) return;
  j.b = c->in[QM_B].data;
  qg_prepare(&j, c, c->scratch, c->in[QM_SUMS].data, c->param[QC_OFFSET]);

  int64_t *offset = (int64_t *)((char *)c->scratch + j.groups * j.panels * QG_N * QG_COLUMN_BYTES), length;
  j.shape.segments = qc_segments(c, &w, &length);
  j.shape.offset = offset;
  j.shape.k = qg_round4(length);
  j.shape.panel = j.shape.segments * j.shape.k * QG_N;
  int image = c->param[QC_IMAGE];
  const int64_t *size = w.extent;
  int64_t inner[3] = {d[0].size, d[1].size, d[2].size};
  if (!image) size = inner;
  int64_t pixel = w.channels, row = size[2] * pixel, plane = size[1] * row, bytes = d[0].size * d[1].size * d[2].size * pixel;
  int64_t *next = offset;
  int64_t across = j.shape.segments == w.taps ? d[2].kernel : 1;
  for (int64_t a = 0; a < d[0].kernel; a++)
    for (int64_t b = 0; b < d[1].kernel; b++)
      for (int64_t k = 0; k < across; k++)
        *next++ = a * d[0].dilation * plane + b * d[1].dilation * row + k * d[2].dilation * pixel;
  j.a_group = pixel / j.groups;
  for (int k = 0; k < 3; k++) j.across[k] = d[k].out;
  j.step[0] = d[0].stride * plane;
  j.step[1] = d[1].stride * row;
  j.step[2] = d[2].stride * pixel;
  const uint8_t *from = x->data;
  if (!image && w.batch > 1 && j.step[2] == pixel && d[2].out * pixel == j.step[1] && d[1].out * j.step[1] == j.step[0] &&
      d[0].out * j.step[0] == bytes) { /* rows follow each other through all images */
    j.rows *= w.batch;
    j.across[0] *= w.batch;
    w.batch = 1;
  }
  uint8_t *copy = (uint8_t *)(offset + j.shape.segments);
  for (int64_t n = 0; n < w.batch; n++) {
    if (image) qw_fill_image(c, &w, from + n * bytes, copy, j.flip);
    j.a = image ? copy : from + n * bytes;
    j.first_row = n * j.rows;
    qg_run(&j);
  }
}
