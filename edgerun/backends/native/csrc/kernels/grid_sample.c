/* grid_sample: x f32 [N, C, S...], grid f32 [N, O..., n] -> y f32 [N, C, O...], n = 1 to 3 spatial axes. The last axis of
 * the grid names a place, the coordinate of the last spatial axis first; -1 and 1 are the centres of the corner cells
 * (align) or their outer edges. Parameters: mode (0 nearest, 1 linear, 2 cubic), padding (0 zeros, 1 border,
 * 2 reflection), align. */
#include <math.h>
#include "nd.h"

#define GS_AXES 3
#define GS_CELLS 64 /* 4 along each axis */
#define GS_CUBIC (-0.75f)
enum { GS_NEAREST, GS_LINEAR, GS_CUBIC_MODE };
enum { GS_ZEROS, GS_BORDER, GS_REFLECTION };

#ifdef ER_BASELINE_CHECKS
static int check_grid_sample(const er_call *c) {
  ER_REQUIRE(c, c->n_in == 2 && c->n_out == 1 && c->n_param == 3, "grid_sample: bad call");
  const er_view *x = &c->in[0], *grid = &c->in[1], *y = &c->out[0];
  ER_REQUIRE(c, x->dtype == ER_F32 && grid->dtype == ER_F32 && y->dtype == ER_F32, "grid_sample takes f32");
  ER_REQUIRE(c, x->rank >= 3 && x->rank <= 2 + GS_AXES && grid->rank == x->rank && y->rank == x->rank,
             "grid_sample: bad ranks");
  ER_REQUIRE(c, er_is_dense(x) && er_is_dense(grid) && er_is_dense(y), "grid_sample takes dense tensors");
  ER_REQUIRE(c, grid->dim[0] == x->dim[0] && y->dim[0] == x->dim[0] && y->dim[1] == x->dim[1] &&
                    grid->dim[x->rank - 1] == x->rank - 2,
             "grid_sample: bad shapes");
  for (int d = 2; d < x->rank; d++)
    ER_REQUIRE(c, y->dim[d] == grid->dim[d - 1] && x->dim[d] > 0, "grid_sample: dim %d does not fit", d);
  ER_REQUIRE(c, c->param[0] >= 0 && c->param[0] <= 2 && c->param[1] >= 0 && c->param[1] <= 2 &&
                    (c->param[2] == 0 || c->param[2] == 1),
             "grid_sample: bad parameters");
  return 0;
}
#endif

typedef struct { int64_t cell[4]; float weight[4]; uint8_t inside[4]; int taps; } gs_axis;
typedef struct { const er_call *c; int64_t points, channels, cells; int axes, tasks; } gs_plan;

/* x folded back into [low, high] as often as needed. */
static float gs_reflected(float x, float low, float high) {
  float span = high - low;
  if (span <= 0) return low;
  float t = fmodf(x - low, 2 * span);
  if (t < 0) t += 2 * span;
  return low + (t > span ? 2 * span - t : t);
}

static float gs_far(float d) { return ((GS_CUBIC * d - 5 * GS_CUBIC) * d + 8 * GS_CUBIC) * d - 4 * GS_CUBIC; }
static float gs_near(float d) { return ((GS_CUBIC + 2) * d - (GS_CUBIC + 3)) * d * d + 1; }

static void gs_taps(gs_axis *a, float place, int64_t length, const int32_t *param) {
  int mode = param[0], padding = param[1], align = param[2];
  float n = (float)length, low = align ? 0 : -0.5f, high = align ? n - 1 : n - 0.5f;
  float at = align ? (place + 1) / 2 * (n - 1) : ((place + 1) * n - 1) / 2;
  if (mode == GS_NEAREST) at = rintf(at);
  /* Cubic weights belong to the place as given: there only the cells are moved. */
  if (padding != GS_ZEROS && mode != GS_CUBIC_MODE && (at < low || at > high))
    at = padding == GS_BORDER ? fminf(fmaxf(at, 0), n - 1) : gs_reflected(at, low, high);
  float base = floorf(at), t = at - base;
  a->taps = mode == GS_NEAREST ? 1 : mode == GS_LINEAR ? 2 : 4;
  a->weight[0] = 1;
  if (mode == GS_LINEAR) {
    a->weight[0] = 1 - t;
    a->weight[1] = t;
  } else if (mode == GS_CUBIC_MODE) {
    a->weight[0] = gs_far(1 + t);
    a->weight[1] = gs_near(t);
    a->weight[2] = gs_near(1 - t);
    a->weight[3] = gs_far(2 - t);
  }
  /* Far-off and NaN places stay outside. */
  base = base != base ? -9 : fminf(fmaxf(base, -9), n + 9);
  for (int k = 0; k < a->taps; k++) {
    float cell = base + (float)(k - (mode == GS_CUBIC_MODE));
    a->inside[k] = padding != GS_ZEROS || (cell >= 0 && cell < n);
    if (padding == GS_REFLECTION) cell = rintf(gs_reflected(cell, low, high));
    a->cell[k] = (int64_t)fminf(fmaxf(cell, 0), n - 1);
  }
}

/* The cells of one place and their weights: at most GS_CELLS. */
static int gs_place(const gs_plan *p, const float *place, int64_t *index, float *weight) {
  const er_view *x = &p->c->in[0];
  int count = 1;
  index[0] = 0;
  weight[0] = 1;
  for (int k = 0; k < p->axes; k++) {
    gs_axis a;
    int64_t length = x->dim[2 + k], old[GS_CELLS];
    float factor[GS_CELLS];
    gs_taps(&a, place[p->axes - 1 - k], length, p->c->param);
    memcpy(old, index, (size_t)count * sizeof *old);
    memcpy(factor, weight, (size_t)count * sizeof *factor);
    int made = 0;
    for (int i = 0; i < count; i++)
      for (int t = 0; t < a.taps; t++) {
        if (!a.inside[t]) continue;
        index[made] = old[i] * length + a.cell[t];
        weight[made++] = factor[i] * a.weight[t];
      }
    count = made;
  }
  return count;
}

static void gs_task(void *context, int item, int thread) {
  (void)thread;
  const gs_plan *p = context;
  const er_view *x = &p->c->in[0];
  int64_t from, to, index[GS_CELLS];
  float weight[GS_CELLS];
  nd_share(x->dim[0] * p->points, item, p->tasks, &from, &to);
  for (int64_t k = from; k < to; k++) {
    int64_t image = k / p->points, point = k % p->points;
    int count = gs_place(p, (const float *)p->c->in[1].data + k * p->axes, index, weight);
    for (int64_t channel = 0; channel < p->channels; channel++) {
      const float *map = (const float *)x->data + (image * p->channels + channel) * p->cells;
      float sum = 0;
      for (int i = 0; i < count; i++)
        sum += p->c->param[0] == GS_NEAREST ? map[index[i]] : map[index[i]] * weight[i];
      ((float *)p->c->out[0].data)[(image * p->channels + channel) * p->points + point] = sum;
    }
  }
}

static void run_grid_sample(const er_call *c) {
  const er_view *x = &c->in[0], *grid = &c->in[1];
  if (er_numel(&c->out[0]) == 0) return;
  gs_plan p = {c, nd_product(grid, 1, grid->rank - 1), x->dim[1], nd_product(x, 2, x->rank), x->rank - 2, 1};
  p.tasks = nd_tasks(c, x->dim[0] * p.points, p.channels * 8 + 50);
  er_parallel(c->pool, gs_task, &p, p.tasks);
}
