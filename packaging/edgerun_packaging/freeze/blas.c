/* The products that NumPy asks of a BLAS, small instead of fast: 20 KB in place of the 29 MB of OpenBLAS, for files
 * whose models run on the native kernels. Row-major and column-major, 64-bit sizes, the names of scipy-openblas.
 * Functions that are not here end the program with a message (blas.py generates those). */
#include <stdint.h>
#include <string.h>

typedef int64_t Int;
enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112 };

/* C[m, n] = alpha * op(A)[m, k] op(B)[k, n] + beta * C; op(A)[i, q] is at A[i * ai + q * aq]. */
#define DEFINE(T, p)                                                                                                  \
  void scipy_cblas_##p##gemm64_(int order, int ta, int tb, Int m, Int n, Int k, T alpha, const T *A, Int lda,         \
                                const T *B, Int ldb, T beta, T *C, Int ldc) {                                         \
    if (order != ROW_MAJOR) { /* the transposed product of the same memory */                                         \
      scipy_cblas_##p##gemm64_(ROW_MAJOR, tb, ta, n, m, k, alpha, B, ldb, A, lda, beta, C, ldc);                      \
      return;                                                                                                         \
    }                                                                                                                 \
    Int ai = ta == NO_TRANSPOSE ? lda : 1, aq = ta == NO_TRANSPOSE ? 1 : lda;                                         \
    for (Int i = 0; i < m; i++) {                                                                                     \
      T *c = C + i * ldc;                                                                                             \
      if (beta == 0) memset(c, 0, (size_t)n * sizeof(T)); /* C may hold NaN */                                        \
      else                                                                                                            \
        for (Int j = 0; j < n; j++) c[j] *= beta;                                                                     \
      if (tb == NO_TRANSPOSE) {                                                                                       \
        for (Int q = 0; q < k; q++) {                                                                                 \
          T x = alpha * A[i * ai + q * aq];                                                                           \
          const T *b = B + q * ldb;                                                                                   \
          for (Int j = 0; j < n; j++) c[j] += x * b[j];                                                               \
        }                                                                                                             \
      } else {                                                                                                        \
        for (Int j = 0; j < n; j++) {                                                                                 \
          T sum = 0;                                                                                                  \
          const T *b = B + j * ldb;                                                                                   \
          for (Int q = 0; q < k; q++) sum += A[i * ai + q * aq] * b[q];                                               \
          c[j] += alpha * sum;                                                                                        \
        }                                                                                                             \
      }                                                                                                               \
    }                                                                                                                 \
  }                                                                                                                   \
  /* y = alpha * op(A) x + beta * y; A[m, n] in its own order. */                                                     \
  void scipy_cblas_##p##gemv64_(int order, int ta, Int m, Int n, T alpha, const T *A, Int lda, const T *x, Int ix,    \
                                T beta, T *y, Int iy) {                                                               \
    int transposed = ta != NO_TRANSPOSE;                                                                              \
    Int outs = transposed ? n : m, ins = transposed ? m : n;                                                          \
    int along = transposed != (order == ROW_MAJOR); /* whether the summed index is the contiguous one */              \
    Int so = along ? lda : 1, si = along ? 1 : lda;                                                                   \
    for (Int i = 0; i < outs; i++) {                                                                                  \
      T sum = 0;                                                                                                      \
      for (Int q = 0; q < ins; q++) sum += A[i * so + q * si] * x[q * ix];                                            \
      y[i * iy] = (beta == 0 ? 0 : beta * y[i * iy]) + alpha * sum;                                                   \
    }                                                                                                                 \
  }                                                                                                                   \
  T scipy_cblas_##p##dot64_(Int n, const T *x, Int ix, const T *y, Int iy) {                                          \
    T sum = 0;                                                                                                        \
    for (Int i = 0; i < n; i++) sum += x[i * ix] * y[i * iy];                                                         \
    return sum;                                                                                                       \
  }                                                                                                                   \
  void scipy_cblas_##p##axpy64_(Int n, T a, const T *x, Int ix, T *y, Int iy) {                                       \
    for (Int i = 0; i < n; i++) y[i * iy] += a * x[i * ix];                                                           \
  }                                                                                                                   \
  /* C[n, n] = alpha * A A^T + beta * C (or A^T A); both triangles are written. */                                    \
  void scipy_cblas_##p##syrk64_(int order, int triangle, int ta, Int n, Int k, T alpha, const T *A, Int lda, T beta,  \
                                T *C, Int ldc) {                                                                      \
    (void)triangle;                                                                                                   \
    int along = (ta == NO_TRANSPOSE) == (order == ROW_MAJOR);                                                         \
    Int so = along ? lda : 1, si = along ? 1 : lda;                                                                   \
    for (Int i = 0; i < n; i++)                                                                                       \
      for (Int j = 0; j < n; j++) {                                                                                   \
        T sum = 0;                                                                                                    \
        for (Int q = 0; q < k; q++) sum += A[i * so + q * si] * A[j * so + q * si];                                   \
        C[i * ldc + j] = (beta == 0 ? 0 : beta * C[i * ldc + j]) + alpha * sum;                                       \
      }                                                                                                               \
  }

DEFINE(float, s)
DEFINE(double, d)
