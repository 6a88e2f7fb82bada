/* Integer convolution, channels last: x [N, *S, C] codes -> y [N, *T, O]. Inputs and epilogue as qmatmul; zero points
 * and scales of x are single. Parameters: groups, K of a group = taps * C / groups, O, offset of packed w, spatial rank
 * (1..3), then for each dim (kernel, stride, pad begin, dilation). qconv: w packed by group, each [panels][kp /
 * 4][16][4], K in the order (taps, channels); rows of A are gathered into the thread scratch, QG_ROWS (kp + 68) + K
 * bytes. qconv_depthwise (C = groups = O): w i16 [taps, C], zero point subtracted. */
#include "qgemm.h"

enum { QC_GROUPS, QC_K, QC_O, QC_OFFSET, QC_SPATIAL, QC_DIMS };

#ifdef ER_BASELINE_CHECKS
static int qc_check(const er_call *c) {
  ER_REQUIRE(c, c->n_in == QM_INPUTS && c->n_out == 1 && c->n_param >= QC_DIMS, "qconv: bad call");
  const er_view *x = &c->in[QM_A], *y = &c->out[0];
  int64_t spatial = c->param[QC_SPATIAL], groups = c->param[QC_GROUPS], taps = 1;
  ER_REQUIRE(c, spatial >= 1 && spatial <= 3 && c->n_param == QC_DIMS + 4 * spatial, "qconv: bad parameters");
  ER_REQUIRE(c, x->rank == spatial + 2 && y->rank == x->rank && x->dim[0] == y->dim[0] && groups > 0,
             "qconv: bad ranks");
  for (int d = 0; d < spatial; d++) {
    const int32_t *w = c->param + QC_DIMS + 4 * d;
    ER_REQUIRE(c, w[0] > 0 && w[0] < 4096 && w[1] > 0 && w[1] < 1 << 20 && w[3] > 0 && w[3] < 1 << 20,
               "qconv: bad window");
    taps *= w[0];
  }
  int64_t channels = x->dim[x->rank - 1];
  ER_REQUIRE(c, channels % groups == 0 && c->param[QC_O] % groups == 0 && y->dim[y->rank - 1] == c->param[QC_O],
             "qconv: bad channels");
  ER_REQUIRE(c, c->param[QC_K] == taps * (channels / groups), "qconv: bad filter size");
  ER_REQUIRE(c, er_numel(&c->in[QM_A_ZERO]) == 1 && er_numel(&c->in[QM_A_SCALE]) == 1,
             "qconv takes one zero point and scale of x");
  return 0;
}
static int check_qconv(const er_call *c) {
  if (qc_check(c)) return 1;
  int64_t groups = c->param[QC_GROUPS], k = c->param[QC_K], kp = (k + 3) / 4 * 4;
  int64_t panels = (c->param[QC_O] / groups + QG_N - 1) / QG_N;
  ER_REQUIRE(c,
             c->in[QM_B].dtype == ER_I8 && er_numel(&c->in[QM_B]) == groups * panels * QG_N * kp && c->in[QM_SUMS].data,
             "qconv: bad filters");
  ER_REQUIRE(c, (int64_t)c->thread_scratch_bytes >= QG_ROWS * (kp + 68) + k, "qconv: too little thread scratch");
  return qm_check_parameters(c, 1, c->param[QC_O], groups * panels * QG_N);
}
static int check_qconv_depthwise(const er_call *c) {
  if (qc_check(c)) return 1;
  ER_REQUIRE(c, c->param[QC_GROUPS] == c->param[QC_O] && c->in[QM_A].dim[c->in[QM_A].rank - 1] == c->param[QC_O],
             "qconv_depthwise: bad groups");
  ER_REQUIRE(c, c->in[QM_B].dtype == ER_I16 && er_numel(&c->in[QM_B]) == c->param[QC_K] * c->param[QC_O],
             "qconv_depthwise: bad filters");
  return qm_check_parameters(c, 1, c->param[QC_O], c->param[QC_O]);
}
#endif

typedef struct { int64_t size, out, kernel, stride, before, dilation; } qc_dim;
typedef struct {
  const er_call *c;
  qg_epilogue e;
  qc_dim d[3];
  int64_t channels, per_group, outputs, panels, kp, pixels;
  int groups, row_blocks, column_blocks, sums, tasks;
  int32_t za;
  float a_scale;
} qc_plan;

/* The codes under the window of output pixel `pixel`, channels [c0, c0 + n), zero points where it leaves the image. */
static void qc_gather(const qc_plan *p, uint8_t *to, int64_t pixel, int64_t c0, int64_t n) {
  const er_view *x = &p->c->in[QM_A], *zero = &p->c->in[QM_A_ZERO];
  int fill = zero->data ? qg_code(zero->dtype, zero->data, 0) : 0;
  const qc_dim *d = p->d;
  int64_t o2 = pixel % d[2].out, o1 = pixel / d[2].out % d[1].out, o0 = pixel / d[2].out / d[1].out % d[0].out;
  int64_t batch = pixel / d[2].out / d[1].out / d[0].out;
  for (int64_t a = 0; a < d[0].kernel; a++)
    for (int64_t b = 0; b < d[1].kernel; b++) {
      int64_t i0 = o0 * d[0].stride - d[0].before + a * d[0].dilation,
              i1 = o1 * d[1].stride - d[1].before + b * d[1].dilation;
      int inside = i0 >= 0 && i0 < d[0].size && i1 >= 0 && i1 < d[1].size;
      const uint8_t *row =
          (const uint8_t *)x->data + ((batch * d[0].size + i0) * d[1].size + i1) * d[2].size * p->channels + c0;
      for (int64_t k = 0; k < d[2].kernel; k++, to += n) {
        int64_t i2 = o2 * d[2].stride - d[2].before + k * d[2].dilation;
        if (inside && i2 >= 0 && i2 < d[2].size) memcpy(to, row + i2 * p->channels, (size_t)n);
        else memset(to, fill, (size_t)n);
      }
    }
}

static void qc_task(void *context, int item, int thread) {
  const qc_plan *p = context;
  const er_call *c = p->c;
  int64_t from, to, k = p->e.k;
  int group = item / p->column_blocks % p->groups;
  nd_share(p->panels, item % p->column_blocks, p->column_blocks, &from, &to);
  int64_t pixel = (int64_t)(item / p->column_blocks / p->groups) * QG_ROWS, outputs = p->outputs / p->groups;
  int rows = (int)nd_min(QG_ROWS, p->pixels - pixel), flip = qm_flip(c->in[QM_A].dtype);
  int32_t *acc = er_thread_scratch(c, thread), *row_sum = acc + QG_ROWS * QG_N;
  uint8_t *packed = (uint8_t *)(row_sum + QG_ROWS), *window = packed + QG_ROWS * p->kp;
  for (int r = 0; r < rows; r++) {
    qc_gather(p, window, pixel + r, group * p->per_group, p->per_group);
    row_sum[r] = qg_pack_row(packed + r * p->kp, window, k, p->kp, (uint8_t)flip, p->sums);
  }
  /* The epilogue counts columns over all groups; sums are padded by group. */
  qg_epilogue e = p->e;
  e.column_sum += group * (p->panels * QG_N - outputs);
  for (int64_t panel = from; panel < to; panel++) {
    qg_rows(acc, packed, rows, p->kp, (const int8_t *)c->in[QM_B].data + (group * p->panels + panel) * p->kp * QG_N);
    int64_t column = group * outputs + panel * QG_N, n = nd_min(QG_N, outputs - panel * QG_N);
    for (int r = 0; r < rows; r++)
      qg_store(&e, acc + r * QG_N, (pixel + r) * p->outputs + column, column, n, p->za, row_sum[r], p->a_scale);
  }
}

static qc_plan qc_geometry(const er_call *c) {
  const er_view *x = &c->in[QM_A], *y = &c->out[0];
  qc_plan p;
  memset(&p, 0, sizeof p);
  int spatial = c->param[QC_SPATIAL];
  p.c = c;
  p.e = qm_epilogue(c, c->param[QC_K], c->param[QC_OFFSET]);
  for (int k = 0; k < 3; k++) p.d[k] = (qc_dim){1, 1, 1, 1, 0, 1};
  for (int k = 0; k < spatial; k++) {
    const int32_t *w = c->param + QC_DIMS + 4 * k;
    p.d[3 - spatial + k] = (qc_dim){x->dim[1 + k], y->dim[1 + k], w[0], w[1], w[2], w[3]};
  }
  p.groups = c->param[QC_GROUPS];
  p.channels = x->dim[x->rank - 1];
  p.per_group = p.channels / p.groups;
  p.outputs = c->param[QC_O];
  p.panels = (p.outputs / p.groups + QG_N - 1) / QG_N;
  p.kp = (c->param[QC_K] + 3) / 4 * 4;
  p.pixels = nd_product(y, 0, y->rank - 1);
  if (c->in[QM_A_ZERO].data) p.za = qg_code(c->in[QM_A_ZERO].dtype, c->in[QM_A_ZERO].data, 0);
  p.a_scale = c->in[QM_A_SCALE].data ? *(const float *)c->in[QM_A_SCALE].data : 1;
  return p;
}

static void run_qconv(const er_call *c) {
  qc_plan p = qc_geometry(c);
  if (p.pixels == 0 || p.panels == 0) return;
  p.za += qm_offset(c->in[QM_A].dtype);
  p.sums = qm_wants_row_sums(&p.e);
  p.row_blocks = (int)((p.pixels + QG_ROWS - 1) / QG_ROWS);
  int tasks = nd_tasks(c, p.pixels * p.panels, p.kp);
  p.column_blocks = (int)nd_min(p.panels, nd_max(1, (tasks + p.row_blocks * p.groups - 1) / (p.row_blocks * p.groups)));
  er_parallel(c->pool, qc_task, &p, p.row_blocks * p.column_blocks * p.groups);
}

#define QC_LANES 32 /* channels of a depthwise convolution done at once */

static void qc_depthwise_task(void *context, int item, int thread) {
  (void)thread;
  const qc_plan *p = context;
  const er_call *c = p->c;
  const er_view *x = &c->in[QM_A];
  const qc_dim *d = p->d;
  const int16_t *w = c->in[QM_B].data;
  int64_t from, to, channels = p->channels;
  nd_share(p->pixels, item, p->tasks, &from, &to);
  for (int64_t pixel = from; pixel < to; pixel++) {
    int64_t o2 = pixel % d[2].out, o1 = pixel / d[2].out % d[1].out, o0 = pixel / d[2].out / d[1].out % d[0].out;
    int64_t batch = pixel / d[2].out / d[1].out / d[0].out;
    for (int64_t c0 = 0; c0 < channels; c0 += QC_LANES) {
      int64_t n = nd_min(QC_LANES, channels - c0), tap = 0;
      int32_t acc[QC_LANES] = {0};
      for (int64_t a = 0; a < d[0].kernel; a++)
        for (int64_t b = 0; b < d[1].kernel; b++)
          for (int64_t k = 0; k < d[2].kernel; k++, tap++) {
            int64_t i0 = o0 * d[0].stride - d[0].before + a * d[0].dilation,
                    i1 = o1 * d[1].stride - d[1].before + b * d[1].dilation;
            int64_t i2 = o2 * d[2].stride - d[2].before + k * d[2].dilation;
            if (i0 < 0 || i0 >= d[0].size || i1 < 0 || i1 >= d[1].size || i2 < 0 || i2 >= d[2].size) continue;
            const uint8_t *q = (const uint8_t *)x->data +
                               (((batch * d[0].size + i0) * d[1].size + i1) * d[2].size + i2) * channels + c0;
            const int16_t *f = w + tap * channels + c0;
            if (x->dtype == ER_I8) for (int64_t j = 0; j < n; j++) acc[j] += (int16_t)((int8_t)q[j] - p->za) * f[j];
            else for (int64_t j = 0; j < n; j++) acc[j] += (int16_t)(q[j] - p->za) * f[j];
          }
      for (int64_t j = 0; j < n; j += QG_N) {
        qg_epilogue e = p->e;
        e.b_zero = NULL; /* subtracted already, as is the zero point of x */
        e.b_offset = 0;
        e.column_sum = NULL;
        qg_store(&e, acc + j, pixel * p->outputs + c0 + j, c0 + j, nd_min(QG_N, n - j), 0, 0, p->a_scale);
      }
    }
  }
}

static void run_qconv_depthwise(const er_call *c) {
  qc_plan p = qc_geometry(c);
  if (p.pixels == 0) return;
  p.tasks = nd_tasks(c, p.pixels, p.e.k * p.channels);
  er_parallel(c->pool, qc_depthwise_task, &p, p.tasks);
}
