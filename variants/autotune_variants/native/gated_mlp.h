/* What the forward and the gradients of the gated MLP share. */
#ifndef GATED_MLP_H
#define GATED_MLP_H

#include "arrays.h"
#include "exponential.h"
#include "product.h"

enum { TERMS = 256 }; /* summed from 0 before they are added to the rest */

/* to = tokens times `columns` columns of a matrix of weights, from `first` on; `strips` has room
   for TERMS rows of them. */
static void project(REAL *to, const REAL *tokens, const array *weights, int64_t first,
                    int64_t columns, int64_t rows, REAL *strips)
{
    const int64_t depth = weights->shape[0], padded = multiple(columns, STRIP);
    const int64_t row = weights->strides[0], step = weights->strides[1];
    memset(to, 0, (size_t)(rows * padded) * sizeof(REAL));
    for (int64_t start = 0; start < depth; start += TERMS) {
        const int64_t terms = start + TERMS < depth ? TERMS : depth - start;
        const char *from = weights->data + start * row + first * step;
        rows_to_strips(strips, from, terms, columns, row, step);
        add_product(to, tokens + start, strips, rows, padded, terms, depth);
    }
}

/* line[i] = e**-|u[i]|, of which the sigmoid is made without overflow: with e for it,
   1 / (1 + e) from 0 on, e / (1 + e) below. */
static inline void decays(REAL *line, const REAL *u, int64_t count)
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        const REAL smaller = u[i] < 0 ? u[i] : -u[i];
        line[i] = smaller < LOWEST ? LOWEST : smaller;
    }
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        line[i] = exp_of(line[i]);
}

#endif
