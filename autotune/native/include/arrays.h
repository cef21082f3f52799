/* What a kernel in C is given of a NumPy array; REAL is the type of its elements. */
#ifndef AUTOTUNE_ARRAYS_H
#define AUTOTUNE_ARRAYS_H

#include <stdint.h>
#include <string.h>

#define DIMS 6

/* Strides are in bytes, may be negative, and need not be multiples of an element. */
typedef struct array {
    char *data;
    int64_t shape[DIMS];
    int64_t strides[DIMS];
} array;

static inline REAL load(const char *from)
{
    REAL value;
    memcpy(&value, from, sizeof value);
    return value;
}

static inline void store(char *to, REAL value)
{
    memcpy(to, &value, sizeof value);
}

/* The matrix at [i, j] of an array with four dims. */
static inline char *matrix_at(const array *a, int64_t i, int64_t j)
{
    return a->data + i * a->strides[0] + j * a->strides[1];
}

/* A worker's part of a temporary array whose first dim counts workers. */
static inline REAL *own(const array *a, int64_t worker)
{
    return (REAL *)(a->data + worker * a->strides[0]);
}

/* Whether rows, so many bytes apart, can be read as they are: REALs in a row, aligned. */
static inline int plain_rows(const char *from, int64_t row, int64_t step)
{
    const int64_t size = sizeof(REAL);
    return step == size && row % size == 0 && (intptr_t)from % size == 0;
}

/* to[i] = the i-th of `count` elements that are `step` bytes apart. */
static inline void copy_row(REAL *to, const char *from, int64_t step, int64_t count)
{
    if (step == (int64_t)sizeof(REAL)) {
        memcpy(to, from, (size_t)count * sizeof(REAL));
        return;
    }
    for (int64_t i = 0; i < count; i++)
        to[i] = load(from + i * step);
}

/* The opposite. */
static inline void store_row(char *to, int64_t step, const REAL *from, int64_t count)
{
    if (step == (int64_t)sizeof(REAL)) {
        memcpy(to, from, (size_t)count * sizeof(REAL));
        return;
    }
    for (int64_t i = 0; i < count; i++)
        store(to + i * step, from[i]);
}

#endif
