/* Gradients of the gated MLP: shares of the tokens in parallel, each with sums of its own for the
   weights, which are added up in the order of the shares. */
#include "gated_mlp.h"

#include <omp.h>

enum { X, GATE, UP, DOWN, ABOVE };
enum { GRAD_X, GRAD_GATE, GRAD_UP, GRAD_DOWN, PARTS };
enum { TOKENS = PARTS + 1, COLUMNS, STRIPS, ACTIVATIONS, LINES, SUMS };
enum { THREADS, TILE, BLOCK };

/* Inputs; out, or NULL where nobody wants it; gradients and temporaries. Tokens of a tile, hidden
   features of a block. */
typedef struct call {
    const array *given, *out, *found;
    int64_t tokens, hidden;
} call;

/* The temporaries of one worker, for a tile of `rows` tokens: x and the gradient of the output by
   rows and by columns, U, V and the gradient of H, which become those of U and V, and H. */
typedef struct tiles {
    REAL *tokens, *above, *token_columns, *above_columns, *strips, *u, *v, *h, *line, *out, *grad_x;
    int64_t rows;
} tiles;

static array transposed(const array *a)
{
    return (array){a->data, {a->shape[1], a->shape[0]}, {a->strides[1], a->strides[0]}};
}

static tiles tiles_of(const call *call, int64_t worker, int64_t count)
{
    const array *found = call->found;
    const int64_t depth = call->given[X].shape[1], rows = multiple(count, ROWS);
    const int64_t sums = call->tokens * multiple(depth, STRIP), block = call->tokens * call->hidden;
    REAL *tokens = own(&found[TOKENS], worker), *columns = own(&found[COLUMNS], worker);
    REAL *u = own(&found[ACTIVATIONS], worker), *out = own(&found[SUMS], worker);
    return (tiles){
        .tokens = tokens, .above = tokens + call->tokens * depth,
        .token_columns = columns, .above_columns = columns + multiple(depth, ROWS) * call->tokens,
        .strips = own(&found[STRIPS], worker), .line = own(&found[LINES], worker),
        .u = u, .v = u + block, .h = u + 2 * block,
        .out = out, .grad_x = out + sums, .rows = rows,
    };
}

/* Elements of the sums for one matrix of weights: by block of hidden features, in which they are
   those of a matrix with `multiple(depth, ROWS)` rows. */
static int64_t part_size(const array *parts)
{
    return parts->shape[2] * parts->shape[3] * parts->shape[4];
}

/* `count` rows of a matrix from `first` on, as rows and as columns; 0 up to `padded` rows, and in
   columns that make the last one a multiple of ROWS. */
static void load_rows(const array *from, int64_t first, int64_t count, int64_t padded, REAL *rows,
                      REAL *columns)
{
    const int64_t depth = from->shape[1], row = from->strides[0], step = from->strides[1];
    const char *start = from->data + first * row;
    for (int64_t i = 0; i < count; i++)
        copy_row(rows + i * depth, start + i * row, step, depth);
    memset(rows + count * depth, 0, (size_t)((padded - count) * depth) * sizeof(REAL));
    memset(columns, 0, (size_t)(multiple(depth, ROWS) * padded) * sizeof(REAL));
    for (int64_t d = 0; d < depth; d++)
        copy_row(columns + d * padded, start + d * step, row, count);
}

/* For one row, with s the sigmoid of u: h, the gradient of H, becomes H = u s v, and u and v become
   their own gradients, h v s (1 + u (1 - s)) and h u s. */
static void activate(REAL *u, REAL *v, REAL *h, REAL *line, int64_t count)
{
    decays(line, u, count);
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        const REAL part = 1 / (1 + line[i]), rest = line[i] * part;
        const REAL s = u[i] < 0 ? rest : part, silu = u[i] * s, grad = h[i];
        h[i] = silu * v[i];
        u[i] = grad * v[i] * (s + silu * (u[i] < 0 ? part : rest));
        v[i] = grad * silu;
    }
}

/* sums += activations of a block times `there` rows of a matrix of weights, from `start` on. */
static void add_back(REAL *sums, const REAL *activations, const array *weights, int64_t start,
                     int64_t there, const tiles *mine)
{
    const int64_t depth = weights->shape[1];
    rows_to_strips(mine->strips, weights->data + start * weights->strides[0], there, depth,
                   weights->strides[0], weights->strides[1]);
    add_product(sums, activations, mine->strips, mine->rows, multiple(depth, STRIP), there,
                multiple(there, STRIP));
}

/* A block of the sums for one matrix of weights += columns of the tile times activations. */
static void add_part(REAL *part, const REAL *columns, const REAL *activations, int64_t depth,
                     int64_t padded, const tiles *mine)
{
    rows_to_strips(mine->strips, (const char *)activations, mine->rows, padded,
                   padded * (int64_t)sizeof(REAL), sizeof(REAL));
    add_product(part, columns, mine->strips, multiple(depth, ROWS), padded, mine->rows, mine->rows);
}

/* Everything about one tile and a block of hidden features; `part` is where the block's sums for
   w_gate are, and `step` elements behind each other those for w_up and for w_down, transposed. */
static void work_on_block(const call *call, int64_t start, REAL *part, int64_t step,
                          const tiles *mine)
{
    const array *given = call->given;
    const int64_t depth = given[X].shape[1], hidden = given[GATE].shape[1], rows = mine->rows;
    const int64_t there = start + call->hidden < hidden ? call->hidden : hidden - start;
    const int64_t padded = multiple(there, STRIP);
    const array gate = transposed(&given[GATE]), up = transposed(&given[UP]);
    const array down = transposed(&given[DOWN]);
    project(mine->u, mine->tokens, &given[GATE], start, there, rows, mine->strips);
    project(mine->v, mine->tokens, &given[UP], start, there, rows, mine->strips);
    project(mine->h, mine->above, &down, start, there, rows, mine->strips);
    for (int64_t i = 0; i < rows; i++)
        activate(mine->u + i * padded, mine->v + i * padded, mine->h + i * padded, mine->line,
                 padded);
    if (call->out)
        add_back(mine->out, mine->h, &given[DOWN], start, there, mine);
    add_back(mine->grad_x, mine->u, &gate, start, there, mine);
    add_back(mine->grad_x, mine->v, &up, start, there, mine);
    add_part(part, mine->token_columns, mine->u, depth, padded, mine);
    add_part(part + step, mine->token_columns, mine->v, depth, padded, mine);
    add_part(part + 2 * step, mine->above_columns, mine->h, depth, padded, mine);
}

/* `count` tokens from `first` on; `parts` are the sums of their share. */
static void work_on_tile(const call *call, int64_t first, int64_t count, REAL *parts,
                         const tiles *mine)
{
    const array *given = call->given, *found = call->found;
    const int64_t depth = given[X].shape[1], hidden = given[GATE].shape[1];
    const int64_t width = multiple(depth, STRIP), columns = multiple(depth, ROWS);
    const size_t sums = (size_t)(mine->rows * width) * sizeof(REAL);
    load_rows(&given[X], first, count, mine->rows, mine->tokens, mine->token_columns);
    load_rows(&given[ABOVE], first, count, mine->rows, mine->above, mine->above_columns);
    memset(mine->out, 0, sums);
    memset(mine->grad_x, 0, sums);
    for (int64_t start = 0; start < hidden; start += call->hidden)
        work_on_block(call, start, parts + start * columns, part_size(&found[PARTS]), mine);
    for (int64_t i = first; i < first + count; i++) {
        if (call->out)
            store_row(call->out->data + i * call->out->strides[0], call->out->strides[1],
                      mine->out + (i - first) * width, depth);
        store_row(found[GRAD_X].data + i * found[GRAD_X].strides[0], found[GRAD_X].strides[1],
                  mine->grad_x + (i - first) * width, depth);
    }
}

/* The tiles of one share of the tokens, in order. */
static void work_on_share(const call *call, int64_t share, int64_t worker)
{
    const array *parts = &call->found[PARTS];
    const int64_t tokens = call->given[X].shape[0], block = call->tokens;
    const int64_t blocks = (tokens + block - 1) / block, shares = parts->shape[0];
    const int64_t end = (share + 1) * blocks / shares * block;
    memset(own(parts, share), 0, (size_t)(3 * part_size(parts)) * sizeof(REAL));
    for (int64_t first = share * blocks / shares * block; first < end; first += block) {
        const int64_t count = first + block < tokens ? block : tokens - first;
        const tiles mine = tiles_of(call, worker, count);
        work_on_tile(call, first, count, own(parts, share), &mine);
    }
}

/* The gradients of the weights for a strip of hidden features, from the shares in their order. */
static void sum_strip(const call *call, int64_t first)
{
    const array *parts = &call->found[PARTS];
    const int64_t depth = call->given[X].shape[1], hidden = call->given[GATE].shape[1];
    const int64_t start = first / call->hidden * call->hidden;
    const int64_t there = start + call->hidden < hidden ? call->hidden : hidden - start;
    const int64_t padded = multiple(there, STRIP);
    const int64_t offset = start * multiple(depth, ROWS) + first - start;
    for (int64_t weight = 0; weight < 3; weight++) {
        const array *grad = &call->found[GRAD_GATE + weight];
        const array target = weight == 2 ? transposed(grad) : *grad;
        for (int64_t d = 0; d < depth; d++) {
            REAL sums[STRIP] = {0};
            for (int64_t share = 0; share < parts->shape[0]; share++) {
                const REAL *part = own(parts, share) + weight * part_size(parts);
                const REAL *line = part + offset + d * padded;
                for (int64_t j = 0; j < STRIP; j++)
                    sums[j] += line[j];
            }
            store_row(target.data + d * target.strides[0] + first * target.strides[1],
                      target.strides[1], sums, hidden - first < STRIP ? hidden - first : STRIP);
        }
    }
}

static void gradients(const call *call, int64_t threads)
{
    const int64_t shares = call->found[PARTS].shape[0], hidden = call->given[GATE].shape[1];
#pragma omp parallel num_threads(threads)
    {
        const int64_t worker = omp_get_thread_num(), workers = omp_get_num_threads();
        for (int64_t share = worker; share < shares; share += workers)
            work_on_share(call, share, worker);
#pragma omp barrier
#pragma omp for
        for (int64_t first = 0; first < hidden; first += STRIP)
            sum_strip(call, first);
    }
}

/* settings: threads, tokens of a tile, hidden features of a block. */
void gated_mlp_backward_splits(const array *a, const int64_t *settings, const double *scalars)
{
    const call call = {a, NULL, a + ABOVE + 1, settings[TILE], settings[BLOCK]};
    (void)scalars;
    gradients(&call, settings[THREADS]);
}

/* The same, and out. */
void gated_mlp_train_splits(const array *a, const int64_t *settings, const double *scalars)
{
    const call call = {a, a + ABOVE + 1, a + ABOVE + 2, settings[TILE], settings[BLOCK]};
    (void)scalars;
    gradients(&call, settings[THREADS]);
}
