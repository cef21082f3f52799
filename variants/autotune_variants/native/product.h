/* Products of small matrices, with their sums in vector registers. */
#ifndef PRODUCT_H
#define PRODUCT_H

#include "arrays.h"

enum { ROWS = 8, STRIP = 64 / sizeof(REAL) };

static inline int64_t multiple(int64_t count, int64_t of)
{
    return (count + of - 1) / of * of;
}

#ifdef __clang__
/* clang does not vectorise a loop around another loop: a strip is a value here. */
typedef REAL strip __attribute__((vector_size(64), aligned(sizeof(REAL)), may_alias));

/* Eight rows of one strip. */
static void add_strip(REAL *restrict c, const REAL *restrict a, const REAL *restrict b,
                      int64_t columns, int64_t terms, int64_t step)
{
    strip sums[ROWS] = {{0}};
    for (int64_t t = 0; t < terms; t++) {
        const strip x = *(const strip *)(b + t * STRIP);
#pragma clang loop unroll(full)
        for (int64_t i = 0; i < ROWS; i++)
            sums[i] += a[i * step + t] * x;
    }
    for (int64_t i = 0; i < ROWS; i++)
        *(strip *)(c + i * columns) += sums[i];
}
#else
/* Eight rows of one strip. */
static void add_strip(REAL *restrict c, const REAL *restrict a, const REAL *restrict b,
                      int64_t columns, int64_t terms, int64_t step)
{
    const REAL *a1 = a + step, *a2 = a1 + step, *a3 = a2 + step, *a4 = a3 + step;
    const REAL *a5 = a4 + step, *a6 = a5 + step, *a7 = a6 + step;
    if (terms < 1)
        return; /* which also tells the compiler that the innermost loop runs */
#pragma omp simd
    for (int64_t j = 0; j < STRIP; j++) {
        REAL s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0;
        for (int64_t t = 0; t < terms; t++) {
            const REAL x = b[t * STRIP + j];
            s0 += a[t] * x;
            s1 += a1[t] * x;
            s2 += a2[t] * x;
            s3 += a3[t] * x;
            s4 += a4[t] * x;
            s5 += a5[t] * x;
            s6 += a6[t] * x;
            s7 += a7[t] * x;
        }
        c[j] += s0;
        c[columns + j] += s1;
        c[2 * columns + j] += s2;
        c[3 * columns + j] += s3;
        c[4 * columns + j] += s4;
        c[5 * columns + j] += s5;
        c[6 * columns + j] += s6;
        c[7 * columns + j] += s7;
    }
}
#endif

/* c += a b: (rows, terms) by (terms, columns), each sum from 0. Rows of c follow each other, those
   of a are `step` apart, and b is cut into strips of STRIP columns, one behind the other. rows are
   a multiple of ROWS, columns of STRIP. */
static void add_product(REAL *c, const REAL *a, const REAL *b, int64_t rows, int64_t columns,
                        int64_t terms, int64_t step)
{
    for (int64_t first = 0; first < columns; first += STRIP)
        for (int64_t i = 0; i < rows; i += ROWS)
            add_strip(c + i * columns + first, a + i * step, b + first * terms, columns, terms,
                      step);
}

/* Rows of a matrix in memory, cut into strips: strips[n, i, j] = [i, n * STRIP + j], 0 behind the
   last column. */
static void rows_to_strips(REAL *strips, const char *from, int64_t rows, int64_t columns,
                           int64_t row, int64_t step)
{
    for (int64_t first = 0; first < columns; first += STRIP) {
        const int64_t width = columns - first < STRIP ? columns - first : STRIP;
        for (int64_t i = 0; i < rows; i++) {
            REAL *to = strips + first * rows + i * STRIP;
            const char *line = from + i * row + first * step;
            if (width == STRIP && step == (int64_t)sizeof(REAL)) {
                memcpy(to, line, STRIP * sizeof(REAL)); /* of constant size: no call */
                continue;
            }
            copy_row(to, line, step, width);
            for (int64_t j = width; j < STRIP; j++)
                to[j] = 0;
        }
    }
}

#endif
