/* Decode: the cache cut into splits, each swept once with an online softmax, and combined. */
#include "arrays.h"
#include "exponential.h"
#include "rows.h"

#include <omp.h>

enum { Q, K, V, OUT, PARTS, STATS, QUERIES, WEIGHTS, SUMS, PACKED_KEYS, PACKED_VALUES };
enum { THREADS, BLOCK };

/* weights[i] = query . keys[i], four keys at a time; a ragged end repeats the last one. */
static void dot_products(REAL *weights, const REAL *query, rows keys, int64_t count, int64_t depth)
{
    for (int64_t i = 0; i < count; i += 4) {
        const int64_t last = count - 1, i1 = i + 1 < last ? i + 1 : last;
        const int64_t i2 = i + 2 < last ? i + 2 : last, i3 = i + 3 < last ? i + 3 : last;
        const REAL *k0 = keys.first + i * keys.step, *k1 = keys.first + i1 * keys.step;
        const REAL *k2 = keys.first + i2 * keys.step, *k3 = keys.first + i3 * keys.step;
        REAL s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
        for (int64_t d = 0; d < depth; d++) {
            s0 += query[d] * k0[d];
            s1 += query[d] * k1[d];
            s2 += query[d] * k2[d];
            s3 += query[d] * k3[d];
        }
        weights[i] = s0, weights[i1] = s1, weights[i2] = s2, weights[i3] = s3;
    }
}

/* sums[d] = the sum of weights[i] * values[i, d], four rows at a time. */
static void weighted_sum(REAL *restrict sums, const REAL *weights, rows values, int64_t count,
                         int64_t width)
{
    for (int64_t d = 0; d < width; d++)
        sums[d] = 0;
    for (int64_t i = 0; i < count / 4 * 4; i += 4) {
        const REAL *v = values.first + i * values.step;
        const int64_t step = values.step;
#pragma omp simd
        for (int64_t d = 0; d < width; d++)
            sums[d] += (weights[i] * v[d] + weights[i + 1] * v[step + d]) +
                       (weights[i + 2] * v[2 * step + d] + weights[i + 3] * v[3 * step + d]);
    }
    for (int64_t i = count / 4 * 4; i < count; i++) {
        const REAL *v = values.first + i * values.step;
#pragma omp simd
        for (int64_t d = 0; d < width; d++)
            sums[d] += weights[i] * v[d];
    }
}

/* One block of keys for one query: its weights join the running maximum, sum and part. Each block
   is summed from 0 and then added, so that rounding errors grow with the number of blocks. */
static void join(REAL *part, REAL *peak, REAL *total, REAL *weights, REAL *sums, rows values,
                 int64_t count, int64_t width)
{
    REAL largest = *peak;
#pragma omp simd reduction(max : largest)
    for (int64_t i = 0; i < count; i++)
        largest = weights[i] > largest ? weights[i] : largest;
    const REAL shrink = exp_negative(*peak - largest);
    *total = *total * shrink + exponentials(weights, count, largest);
    *peak = largest;
    weighted_sum(sums, weights, values, count, width);
#pragma omp simd
    for (int64_t d = 0; d < width; d++)
        part[d] = part[d] * shrink + sums[d];
}

/* One split of one key-value head; `task` counts batch, head, split. */
static void attend(const array *a, int64_t task, int64_t worker, int64_t block, REAL scale)
{
    const int64_t heads = a[PARTS].shape[1], splits = a[PARTS].shape[2], group = a[PARTS].shape[3];
    const int64_t depth = a[K].shape[3], width = a[V].shape[3], length = a[K].shape[2];
    const int64_t b = task / (heads * splits), kv = task / splits % heads, split = task % splits;
    const int64_t chunk = (length + splits - 1) / splits;
    const int64_t end = (split + 1) * chunk < length ? (split + 1) * chunk : length;
    REAL *part = (REAL *)a[PARTS].data + task * group * width;
    REAL *peaks = (REAL *)a[STATS].data + task * 2 * group, *totals = peaks + group;
    REAL *queries = (REAL *)a[QUERIES].data + worker * group * depth;
    REAL *weights = (REAL *)a[WEIGHTS].data + worker * group * block;
    REAL *sums = (REAL *)a[SUMS].data + worker * group * width;
    REAL *key_tile = (REAL *)a[PACKED_KEYS].data + worker * block * depth;
    REAL *value_tile = (REAL *)a[PACKED_VALUES].data + worker * block * width;
    for (int64_t g = 0; g < group; g++) {
        REAL *query = queries + g * depth;
        copy_row(query, matrix_at(&a[Q], b, kv * group + g), a[Q].strides[2], depth);
        for (int64_t d = 0; d < depth; d++)
            query[d] *= scale;
        for (int64_t d = 0; d < width; d++)
            part[g * width + d] = 0;
        peaks[g] = -INFINITY, totals[g] = 0;
    }
    for (int64_t start = split * chunk; start < end; start += block) {
        const int64_t count = start + block < end ? block : end - start;
        const int64_t key_row = a[K].strides[2], value_row = a[V].strides[2];
        const rows keys = rows_or_copy(matrix_at(&a[K], b, kv) + start * key_row, key_row,
                                       a[K].strides[3], count, depth, key_tile);
        const rows values = rows_or_copy(matrix_at(&a[V], b, kv) + start * value_row, value_row,
                                         a[V].strides[3], count, width, value_tile);
        for (int64_t g = 0; g < group; g++)
            dot_products(weights + g * block, queries + g * depth, keys, count, depth);
        for (int64_t g = 0; g < group; g++)
            join(part + g * width, peaks + g, totals + g, weights + g * block, sums, values,
                 count, width);
    }
}

/* The output of the query heads of one key-value head, from its splits in their order. */
static void combine(const array *a, int64_t head, REAL *sums)
{
    const int64_t heads = a[PARTS].shape[1], splits = a[PARTS].shape[2], group = a[PARTS].shape[3];
    const int64_t width = a[V].shape[3];
    const REAL *parts = (const REAL *)a[PARTS].data + head * splits * group * width;
    const REAL *stats = (const REAL *)a[STATS].data + head * splits * 2 * group;
    for (int64_t g = 0; g < group; g++) {
        REAL peak = -INFINITY, total = 0;
        for (int64_t s = 0; s < splits; s++)
            peak = stats[s * 2 * group + g] > peak ? stats[s * 2 * group + g] : peak;
        for (int64_t d = 0; d < width; d++)
            sums[d] = 0;
        for (int64_t s = 0; s < splits; s++) {
            const REAL *stat = stats + s * 2 * group + g, *part = parts + (s * group + g) * width;
            if (stat[group] == 0)
                continue; /* a split without keys */
            const REAL weight = exp_negative(stat[0] - peak);
            total += weight * stat[group];
            for (int64_t d = 0; d < width; d++)
                sums[d] += weight * part[d];
        }
        for (int64_t d = 0; d < width; d++)
            sums[d] /= total != 0 ? total : 1;
        char *out = matrix_at(&a[OUT], head / heads, head % heads * group + g);
        store_row(out, a[OUT].strides[2], sums, width);
    }
}

/* settings: threads, block. scalars: scale. */
void decode_split(const array *a, const int64_t *settings, const double *scalars)
{
    const int64_t heads = a[PARTS].shape[0] * a[PARTS].shape[1];
    const int64_t tasks = heads * a[PARTS].shape[2];
#pragma omp parallel num_threads(settings[THREADS])
    {
        const int64_t worker = omp_get_thread_num(), workers = omp_get_num_threads();
        REAL *sums = (REAL *)a[SUMS].data + worker * a[PARTS].shape[3] * a[V].shape[3];
        for (int64_t task = worker; task < tasks; task += workers)
            attend(a, task, worker, settings[BLOCK], (REAL)scalars[0]);
#pragma omp barrier
        for (int64_t head = worker; head < heads; head += workers)
            combine(a, head, sums);
    }
}
