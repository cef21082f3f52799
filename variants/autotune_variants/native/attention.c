/* Attention: tiles of queries in parallel, an online softmax over tiles of keys. */
#include "arrays.h"
#include "exponential.h"
#include "product.h"

#include <omp.h>

enum { Q, K, V, OUT, LSE, QUERIES, KEYS, VALUES, SCORES, SUMS, STATS, LINES };
enum { THREADS, BLOCK_Q, BLOCK_K, CAUSAL };

/* The temporaries of one worker; peaks and totals are those of the rows so far. */
typedef struct tiles {
    REAL *queries, *keys, *values, *scores, *sums, *peaks, *totals, *line;
} tiles;

/* How many keys query i attends. */
static int64_t visible(int64_t i, int64_t queries, int64_t keys, int64_t causal)
{
    const int64_t last = i + 1 + keys - queries;
    return !causal || last > keys ? keys : last < 0 ? 0 : last;
}

/* Rows of a matrix in memory, transposed and cut into strips: strips[n, i, j] = [n * STRIP + j, i],
   0 behind the last one; `line` has room for a row. */
static void columns_to_strips(REAL *strips, REAL *line, const char *from, int64_t rows,
                              int64_t columns, int64_t row, int64_t step)
{
    for (int64_t column = 0; column < multiple(columns, STRIP); column++) {
        REAL *to = strips + column / STRIP * STRIP * rows + column % STRIP;
        if (column < columns)
            copy_row(line, from + column * row, step, rows);
        for (int64_t i = 0; i < rows; i++)
            to[i * STRIP] = column < columns ? line[i] : 0;
    }
}

/* A row of scores becomes weights relative to the running maximum, 0 from `count` on; the row of
   sums is rescaled. The weights are summed apart, so that rounding errors grow with the number of
   tiles, not of keys. */
static void soften(REAL *scores, int64_t count, int64_t block, REAL *peak, REAL *total, REAL *sums,
                   int64_t width)
{
    REAL largest = *peak;
#pragma omp simd reduction(max : largest)
    for (int64_t j = 0; j < count; j++)
        largest = scores[j] > largest ? scores[j] : largest;
    const REAL base = largest == -INFINITY ? 0 : largest;
    const REAL shrink = exp_negative(*peak - base);
    *total = *total * shrink + exponentials(scores, count, base);
    for (int64_t j = count; j < block; j++)
        scores[j] = 0;
#pragma omp simd
    for (int64_t d = 0; d < width; d++)
        sums[d] *= shrink;
    *peak = largest;
}

/* `count` queries from `first` on, of one head; leaves sums, peaks and totals. */
static void attend(const array *a, const int64_t *settings, int64_t b, int64_t h, int64_t first,
                   int64_t count, REAL scale, const tiles *mine)
{
    const int64_t depth = a[K].shape[3], width = multiple(a[V].shape[3], STRIP);
    const int64_t queries = a[Q].shape[2], keys = a[K].shape[2], causal = settings[CAUSAL];
    const int64_t block = settings[BLOCK_K], rows = multiple(count, ROWS);
    const int64_t kv = h / (a[Q].shape[1] / a[K].shape[1]);
    const char *query = matrix_at(&a[Q], b, h) + first * a[Q].strides[2];
    for (int64_t i = 0; i < rows; i++) {
        REAL *line = mine->queries + i * depth;
        if (i < count)
            copy_row(line, query + i * a[Q].strides[2], a[Q].strides[3], depth);
        for (int64_t d = 0; d < depth; d++)
            line[d] = i < count ? line[d] * scale : 0;
        mine->peaks[i] = -INFINITY, mine->totals[i] = 0;
    }
    memset(mine->sums, 0, (size_t)(rows * width) * sizeof(REAL));
    const int64_t end = visible(first + count - 1, queries, keys, causal);
    for (int64_t start = 0; start < end; start += block) {
        const int64_t there = start + block < keys ? block : keys - start;
        const char *key = matrix_at(&a[K], b, kv) + start * a[K].strides[2];
        const char *value = matrix_at(&a[V], b, kv) + start * a[V].strides[2];
        columns_to_strips(mine->keys, mine->line, key, depth, there, a[K].strides[2],
                          a[K].strides[3]);
        rows_to_strips(mine->values, value, there, a[V].shape[3], a[V].strides[2],
                       a[V].strides[3]);
        const int64_t columns = multiple(there, STRIP);
        memset(mine->scores, 0, (size_t)(rows * columns) * sizeof(REAL));
        add_product(mine->scores, mine->queries, mine->keys, rows, columns, depth, depth);
        for (int64_t i = 0; i < rows; i++) {
            const int64_t seen = visible(first + i, queries, keys, causal) - start;
            soften(mine->scores + i * columns, seen < 0 ? 0 : seen < there ? seen : there, columns,
                   mine->peaks + i, mine->totals + i, mine->sums + i * width, width);
        }
        add_product(mine->sums, mine->scores, mine->values, rows, width, there, columns);
    }
}

/* Out and lse of those queries; 0 and -inf for rows that attend nothing. */
static void finish(const array *a, int64_t b, int64_t h, int64_t first, int64_t count,
                   const tiles *mine)
{
    const int64_t width = multiple(a[V].shape[3], STRIP);
    char *out = matrix_at(&a[OUT], b, h), *lse = matrix_at(&a[LSE], b, h);
    for (int64_t i = 0; i < count; i++) {
        const REAL total = mine->totals[i], factor = 1 / (total != 0 ? total : 1);
        REAL *line = mine->sums + i * width;
        for (int64_t d = 0; d < width; d++)
            line[d] *= factor;
        store_row(out + (first + i) * a[OUT].strides[2], a[OUT].strides[3], line, a[V].shape[3]);
        store(lse + (first + i) * a[LSE].strides[2],
              total != 0 ? mine->peaks[i] + (REAL)log(total) : -INFINITY);
    }
}

/* settings: threads, block_q, block_k, causal. scalars: scale. */
void attention_tiled(const array *a, const int64_t *settings, const double *scalars)
{
    const int64_t heads = a[Q].shape[1], queries = a[Q].shape[2], block = settings[BLOCK_Q];
    const int64_t blocks = (queries + block - 1) / block;
    const int64_t tasks = a[Q].shape[0] * heads * blocks;
#pragma omp parallel num_threads(settings[THREADS])
    {
        const int64_t worker = omp_get_thread_num();
        const tiles mine = {
            own(&a[QUERIES], worker), own(&a[KEYS], worker), own(&a[VALUES], worker),
            own(&a[SCORES], worker),  own(&a[SUMS], worker), own(&a[STATS], worker),
            own(&a[STATS], worker) + block, own(&a[LINES], worker),
        };
        /* The last tiles of a head first: with a causal mask they take longest. */
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < tasks; task++) {
            const int64_t head = task % (tasks / blocks);
            const int64_t first = (blocks - 1 - task / (tasks / blocks)) * block;
            const int64_t count = first + block < queries ? block : queries - first;
            attend(a, settings, head / heads, head % heads, first, count, (REAL)scalars[0], &mine);
            finish(a, head / heads, head % heads, first, count, &mine);
        }
    }
}
