/* RMS normalisation and its gradients: tiles of tokens in parallel, every token read once. */
#include "rows.h"

#include <math.h>
#include <omp.h>

enum { X, WEIGHT, OUT, TOKENS, LINES, INVERSES };
enum { ABOVE = 2, GRAD_X, GRAD_WEIGHT, PARTS, GRADIENT_TOKENS, GRADIENT_LINES, NUMBERS };
enum { THREADS, TILE };
enum { STRIP = 64 / sizeof(REAL) };

/* `count` rows of a matrix from `first` on. */
static rows rows_of(const array *a, int64_t first, int64_t count, REAL *tile)
{
    const char *from = a->data + first * a->strides[0];
    return rows_or_copy(from, a->strides[0], a->strides[1], count, a->shape[1], tile);
}

/* Row i of a matrix to write to: where it is in memory, or `line`, to be stored afterwards. */
static REAL *row_or_line(const array *a, int64_t i, REAL *line)
{
    char *to = a->data + i * a->strides[0];
    return plain_rows(to, 0, a->strides[1]) ? (REAL *)to : line;
}

static void store_line(const array *a, int64_t i, const REAL *line)
{
    store_row(a->data + i * a->strides[0], a->strides[1], line, a->shape[1]);
}

/* inverse[i] = 1 / sqrt(mean of x[i]**2 + eps), four tokens at a time; a ragged end repeats the
   last one. */
static void inverse_rms(rows x, int64_t count, int64_t depth, REAL eps, REAL *inverse)
{
    for (int64_t i = 0; i < count; i += 4) {
        const int64_t last = count - 1, i1 = i + 1 < last ? i + 1 : last;
        const int64_t i2 = i + 2 < last ? i + 2 : last, i3 = i + 3 < last ? i + 3 : last;
        const REAL *x0 = x.first + i * x.step, *x1 = x.first + i1 * x.step;
        const REAL *x2 = x.first + i2 * x.step, *x3 = x.first + i3 * x.step;
        REAL s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
        for (int64_t d = 0; d < depth; d++) {
            s0 += x0[d] * x0[d];
            s1 += x1[d] * x1[d];
            s2 += x2[d] * x2[d];
            s3 += x3[d] * x3[d];
        }
        inverse[i] = s0, inverse[i1] = s1, inverse[i2] = s2, inverse[i3] = s3;
    }
    for (int64_t i = 0; i < count; i++)
        inverse[i] = 1 / (REAL)sqrt(inverse[i] / (REAL)depth + eps);
}

/* settings: threads, tokens of a tile. scalars: eps. */
void rmsnorm_tiled(const array *a, const int64_t *settings, const double *scalars)
{
    const int64_t tokens = a[X].shape[0], depth = a[X].shape[1], tile = settings[TILE];
#pragma omp parallel num_threads(settings[THREADS])
    {
        const int64_t worker = omp_get_thread_num();
        REAL *weight = own(&a[LINES], worker), *line = weight + depth;
        REAL *inverse = own(&a[INVERSES], worker);
        copy_row(weight, a[WEIGHT].data, a[WEIGHT].strides[0], depth);
#pragma omp for schedule(dynamic)
        for (int64_t first = 0; first < tokens; first += tile) {
            const int64_t count = first + tile < tokens ? tile : tokens - first;
            const rows x = rows_of(&a[X], first, count, own(&a[TOKENS], worker));
            inverse_rms(x, count, depth, (REAL)scalars[0], inverse);
            for (int64_t i = 0; i < count; i++) {
                const REAL *token = x.first + i * x.step, scale = inverse[i];
                REAL *result = row_or_line(&a[OUT], first + i, line);
#pragma omp simd
                for (int64_t d = 0; d < depth; d++)
                    result[d] = token[d] * scale * weight[d];
                if (result == line)
                    store_line(&a[OUT], first + i, line);
            }
        }
    }
}

/* slope[i] = the mean of grad[i] * weight * x[i], over the mean square; as inverse_rms does it. */
static void slopes(rows x, rows grad, const REAL *weight, int64_t count, int64_t depth,
                   const REAL *inverse, REAL *slope)
{
    for (int64_t i = 0; i < count; i += 2) {
        const int64_t i1 = i + 1 < count ? i + 1 : i;
        const REAL *x0 = x.first + i * x.step, *x1 = x.first + i1 * x.step;
        const REAL *g0 = grad.first + i * grad.step, *g1 = grad.first + i1 * grad.step;
        REAL s0 = 0, s1 = 0;
#pragma omp simd reduction(+ : s0, s1)
        for (int64_t d = 0; d < depth; d++) {
            s0 += g0[d] * weight[d] * x0[d];
            s1 += g1[d] * weight[d] * x1[d];
        }
        slope[i] = s0, slope[i1] = s1;
    }
    for (int64_t i = 0; i < count; i++)
        slope[i] *= inverse[i] * inverse[i] / (REAL)depth;
}

/* The temporaries of one worker. */
typedef struct tiles {
    REAL *tokens, *above, *weight, *line, *inverse, *slope;
} tiles;

/* grad_x of `count` tokens from `first` on; `sums` get their part of the weight's gradient. */
static void tile_gradients(const array *a, int64_t first, int64_t count, REAL eps, REAL *sums,
                           const tiles *mine)
{
    const int64_t depth = a[X].shape[1];
    const rows x = rows_of(&a[X], first, count, mine->tokens);
    const rows above = rows_of(&a[ABOVE], first, count, mine->above);
    inverse_rms(x, count, depth, eps, mine->inverse);
    slopes(x, above, mine->weight, count, depth, mine->inverse, mine->slope);
    memset(sums, 0, (size_t)depth * sizeof(REAL));
    for (int64_t i = 0; i < count; i++) {
        const REAL *token = x.first + i * x.step, *grad = above.first + i * above.step;
        const REAL *weight = mine->weight, scale = mine->inverse[i], slope = mine->slope[i];
        REAL *result = row_or_line(&a[GRAD_X], first + i, mine->line);
#pragma omp simd
        for (int64_t d = 0; d < depth; d++) {
            sums[d] += grad[d] * token[d] * scale;
            result[d] = scale * (grad[d] * weight[d] - token[d] * slope);
        }
        if (result == mine->line)
            store_line(&a[GRAD_X], first + i, result);
    }
}

/* The tiles of one share of the tokens, in order. Each is summed in the second row of the share's
   parts and added to the first, so that rounding errors grow with the number of tiles, not of
   tokens. */
static void share_gradients(const array *a, int64_t share, int64_t tile, REAL eps,
                            const tiles *mine)
{
    const int64_t tokens = a[X].shape[0], depth = a[X].shape[1], shares = a[PARTS].shape[0] / 2;
    const int64_t count = (tokens + tile - 1) / tile, end = (share + 1) * count / shares * tile;
    REAL *sums = own(&a[PARTS], 2 * share), *some = own(&a[PARTS], 2 * share + 1);
    memset(sums, 0, (size_t)depth * sizeof(REAL));
    for (int64_t first = share * count / shares * tile; first < end; first += tile) {
        tile_gradients(a, first, first + tile < tokens ? tile : tokens - first, eps, some, mine);
        for (int64_t d = 0; d < depth; d++)
            sums[d] += some[d];
    }
}

/* The weight's gradient for a strip of features, from the shares in their order. */
static void sum_strip(const array *a, int64_t first)
{
    const array *grad = &a[GRAD_WEIGHT];
    const int64_t left = a[X].shape[1] - first, count = left < STRIP ? left : STRIP;
    REAL sums[STRIP] = {0};
    for (int64_t row = 0; row < a[PARTS].shape[0]; row += 2)
        for (int64_t d = 0; d < count; d++)
            sums[d] += own(&a[PARTS], row)[first + d];
    store_row(grad->data + first * grad->strides[0], grad->strides[0], sums, count);
}

/* settings: threads, tokens of a tile. scalars: eps. */
void rmsnorm_backward_tiled(const array *a, const int64_t *settings, const double *scalars)
{
    const int64_t depth = a[X].shape[1], tile = settings[TILE];
#pragma omp parallel num_threads(settings[THREADS])
    {
        const int64_t worker = omp_get_thread_num(), workers = omp_get_num_threads();
        REAL *tokens = own(&a[GRADIENT_TOKENS], worker), *weight = own(&a[GRADIENT_LINES], worker);
        REAL *inverse = own(&a[NUMBERS], worker);
        const tiles mine = {tokens,         tokens + tile * depth, weight,
                            weight + depth, inverse,               inverse + tile};
        copy_row(weight, a[WEIGHT].data, a[WEIGHT].strides[0], depth);
        for (int64_t share = worker; share < a[PARTS].shape[0] / 2; share += workers)
            share_gradients(a, share, tile, (REAL)scalars[0], &mine);
#pragma omp barrier
#pragma omp for
        for (int64_t first = 0; first < depth; first += STRIP)
            sum_strip(a, first);
    }
}
