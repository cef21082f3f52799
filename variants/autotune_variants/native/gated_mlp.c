/* The gated MLP: tiles of tokens in parallel, the hidden features in blocks that stay near. */
#include "gated_mlp.h"

#include <omp.h>

enum { X, GATE, UP, DOWN, OUT, TOKENS, STRIPS, GATES, UPS, LINES, SUMS };
enum { THREADS, BLOCK_N, BLOCK_F };

/* The temporaries of one worker. */
typedef struct tiles {
    REAL *tokens, *strips, *gates, *ups, *line, *sums;
} tiles;

/* gates = SiLU(gates) * ups for one row; SiLU(u) = u / (1 + e**-u), by way of e**-|u|. */
static void activate(REAL *gates, const REAL *ups, REAL *line, int64_t count)
{
    decays(line, gates, count);
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        const REAL share = gates[i] < 0 ? line[i] : 1;
        gates[i] = gates[i] * (share / (1 + line[i])) * ups[i];
    }
}

/* `count` tokens from `first` on. */
static void transform(const array *a, const int64_t *settings, int64_t first, int64_t count,
                      const tiles *mine)
{
    const int64_t depth = a[X].shape[1], hidden = a[GATE].shape[1], block = settings[BLOCK_F];
    const int64_t rows = multiple(count, ROWS), width = multiple(depth, STRIP);
    for (int64_t i = 0; i < rows; i++)
        if (i < count)
            copy_row(mine->tokens + i * depth, a[X].data + (first + i) * a[X].strides[0],
                     a[X].strides[1], depth);
        else
            memset(mine->tokens + i * depth, 0, (size_t)depth * sizeof(REAL));
    memset(mine->sums, 0, (size_t)(rows * width) * sizeof(REAL));
    for (int64_t start = 0; start < hidden; start += block) {
        const int64_t there = start + block < hidden ? block : hidden - start;
        const int64_t padded = multiple(there, STRIP);
        project(mine->gates, mine->tokens, &a[GATE], start, there, rows, mine->strips);
        project(mine->ups, mine->tokens, &a[UP], start, there, rows, mine->strips);
        for (int64_t i = 0; i < rows; i++)
            activate(mine->gates + i * padded, mine->ups + i * padded, mine->line, padded);
        rows_to_strips(mine->strips, a[DOWN].data + start * a[DOWN].strides[0], there, depth,
                       a[DOWN].strides[0], a[DOWN].strides[1]);
        add_product(mine->sums, mine->gates, mine->strips, rows, width, there, padded);
    }
    for (int64_t i = 0; i < count; i++)
        store_row(a[OUT].data + (first + i) * a[OUT].strides[0], a[OUT].strides[1],
                  mine->sums + i * width, depth);
}

/* settings: threads, block_n, block_f. */
void gated_mlp_tiled(const array *a, const int64_t *settings, const double *scalars)
{
    const int64_t tokens = a[X].shape[0], block = settings[BLOCK_N];
    (void)scalars;
#pragma omp parallel num_threads(settings[THREADS])
    {
        const int64_t worker = omp_get_thread_num();
        const tiles mine = {
            own(&a[TOKENS], worker), own(&a[STRIPS], worker), own(&a[GATES], worker),
            own(&a[UPS], worker),    own(&a[LINES], worker),  own(&a[SUMS], worker),
        };
#pragma omp for schedule(dynamic)
        for (int64_t first = 0; first < tokens; first += block)
            transform(a, settings, first, first + block < tokens ? block : tokens - first, &mine);
    }
}
