/* Rows of a matrix that are read where they are, if they can be. */
#ifndef ROWS_H
#define ROWS_H

#include "arrays.h"

/* A matrix of rows; `step` is the REALs from one to the next. */
typedef struct rows {
    const REAL *first;
    int64_t step;
} rows;

/* `count` rows in memory, `row` bytes apart, of `width` elements that are `step` bytes apart;
   copied to `tile` where these do not lie side by side. */
static inline rows rows_or_copy(const char *from, int64_t row, int64_t step, int64_t count,
                                int64_t width, REAL *tile)
{
    if (plain_rows(from, row, step))
        return (rows){(const REAL *)from, row / (int64_t)sizeof(REAL)};
    for (int64_t i = 0; i < count; i++)
        copy_row(tile + i * width, from + i * row, step, width);
    return (rows){tile, width};
}

#endif
