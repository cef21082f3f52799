! Attention: tiles of queries in parallel, an online softmax over tiles of keys.
module attention
#include "arrays.inc"
integer(long), parameter :: strip = 64 / bytes
#include "exponential_names.inc"
public :: attention_tiled
enum, bind(c)
    enumerator :: q = 1, k, v, output, lse, queries, keys, values, scores, sums, stats, lines
end enum
enum, bind(c)
    enumerator :: threads = 1, block_q, block_k, causal
end enum
contains
#include "array_rows.inc"
#include "exponential.inc"
#include "product.inc"

! settings: threads, block_q, block_k, causal. scalars: scale.
subroutine attention_tiled(a, settings, scalars) bind(c, name="attention_tiled")
    use omp_lib, only: omp_get_thread_num
    type(array), intent(in) :: a(lines)
    integer(long), intent(in) :: settings(causal)
    real(c_double), intent(in) :: scalars(1)
    integer(long) :: heads, block, blocks, tasks, task, head, first, count, worker
    heads = a(q)%shape(2)
    block = settings(block_q)
    blocks = (a(q)%shape(3) + block - 1) / block
    tasks = a(q)%shape(1) * heads * blocks
    !$omp parallel num_threads(settings(threads)) private(worker, task, head, first, count)
    worker = omp_get_thread_num()
    ! The last tiles of a head first: with a causal mask they take longest.
    !$omp do schedule(dynamic)
    do task = 0, tasks - 1
        head = modulo(task, tasks / blocks)
        first = (blocks - 1 - task / (tasks / blocks)) * block
        count = min(block, a(q)%shape(3) - first)
        call attend(a, settings, head / heads, modulo(head, heads), first, count, &
            real(scalars(1), r), worker)
    end do
    !$omp end do
    !$omp end parallel
end subroutine attention_tiled

! How many keys query i, counted from 0, attends.
pure integer(long) function visible(i, a, settings)
    integer(long), intent(in) :: i
    type(array), intent(in) :: a(lines)
    integer(long), intent(in) :: settings(causal)
    visible = a(k)%shape(3)
    if (settings(causal) /= 0) visible = max(0_long, min(visible, i + 1 + visible - a(q)%shape(3)))
end function visible

! Out and lse of `count` queries from `first` on, of one head.
subroutine attend(a, settings, b, h, first, count, scale, worker)
    type(array), intent(in) :: a(lines)
    integer(long), intent(in) :: settings(causal), b, h, first, count, worker
    real(r), intent(in) :: scale
    real(r), pointer, contiguous :: query(:, :), key_strips(:), value_strips(:), score(:)
    real(r), pointer, contiguous :: total(:, :), stat(:, :), line(:)
    integer(long) :: depth, width, rows, block, kv, start, there, columns, i, seen
    integer(c_intptr_t) :: key, value
    depth = a(k)%shape(4)
    width = multiple(a(v)%shape(4), strip)
    rows = multiple(count, 8_long)
    block = settings(block_k)
    kv = h / (a(q)%shape(2) / a(k)%shape(2))
    call own_matrix(a(queries), worker, depth, rows, query)
    call own_vector(a(keys), worker, depth * block, key_strips)
    call own_vector(a(values), worker, width * block, value_strips)
    call own_vector(a(scores), worker, rows * block, score)
    call own_matrix(a(sums), worker, width, rows, total)
    call own_matrix(a(stats), worker, settings(block_q), 2_long, stat)
    call own_vector(a(lines), worker, depth, line)
    do i = 1, count
        call copy_row(query(:, i), matrix_at(a(q), b, h) + (first + i - 1) * a(q)%strides(3), &
            a(q)%strides(4), depth)
    end do
    query(:, count + 1 :) = 0
    query = query * scale
    stat(:, 1) = minus_infinity()
    stat(:, 2) = 0
    total = 0
    do start = 0, visible(first + count - 1, a, settings) - 1, block
        there = min(block, a(k)%shape(3) - start)
        columns = multiple(there, strip)
        key = matrix_at(a(k), b, kv) + start * a(k)%strides(3)
        value = matrix_at(a(v), b, kv) + start * a(v)%strides(3)
        call columns_to_strips(key_strips, line, key, depth, there, a(k)%strides(3), &
            a(k)%strides(4))
        call rows_to_strips(value_strips, value, there, a(v)%shape(4), a(v)%strides(3), &
            a(v)%strides(4))
        score(: rows * columns) = 0
        call add_product(score, query, key_strips, rows, columns, depth, depth)
        do i = 1, rows
            seen = max(0_long, min(there, visible(first + i - 1, a, settings) - start))
            call soften(score((i - 1) * columns + 1 : i * columns), seen, columns, stat(i, 1), &
                stat(i, 2), total(:, i), width)
        end do
        call add_product(total, score, value_strips, rows, width, there, columns)
    end do
    call finish(a, b, h, first, count, total, stat)
end subroutine attend

! Rows of a matrix in memory, transposed and cut into strips: strips(j, i, n) = [(n - 1) * strip + j,
! i], 0 behind the last one; `line` has room for a row.
subroutine columns_to_strips(strips, line, from, rows, columns, row, step)
    integer(c_intptr_t), intent(in) :: from
    integer(long), intent(in) :: rows, columns, row, step
    real(r), intent(inout) :: strips(strip, rows, *), line(rows)
    integer(long) :: j, n, column
    do n = 1, (columns + strip - 1) / strip
        do j = 1, strip
            column = (n - 1) * strip + j - 1
            line = 0
            if (column < columns) call copy_row(line, from + column * row, step, rows)
            strips(j, :rows, n) = line
        end do
    end do
end subroutine columns_to_strips

! A row of scores becomes weights relative to the running maximum, 0 behind `count`; the row of sums
! is rescaled. The weights are summed apart, so that rounding errors grow with the number of tiles,
! not of keys.
subroutine soften(scores, count, block, peak, total, sums, width)
    integer(long), intent(in) :: count, block, width
    real(r), intent(inout) :: scores(block), peak, total, sums(width)
    real(r) :: largest, base, shrink, added
    integer(long) :: j
    largest = peak
    !$omp simd reduction(max : largest)
    do j = 1, count
        largest = max(largest, scores(j))
    end do
    base = merge(0.0_r, largest, largest == minus_infinity())
    shrink = exp_negative(peak - base)
    call exponentials(scores, count, base, added)
    scores(count + 1 :) = 0
    sums = sums * shrink
    total = total * shrink + added
    peak = largest
end subroutine soften

! Divide and store; 0 and -inf for rows that attend nothing.
subroutine finish(a, b, h, first, count, sums, stat)
    type(array), intent(in) :: a(lines)
    integer(long), intent(in) :: b, h, first, count
    real(r), intent(inout), contiguous :: sums(:, :)
    real(r), intent(in) :: stat(:, :)
    real(r) :: found(1)
    integer(long) :: i
    do i = 1, count
        found = minus_infinity()
        if (stat(i, 2) /= 0) then
            sums(:, i) = sums(:, i) * (1 / stat(i, 2))
            found = stat(i, 1) + log(stat(i, 2))
        end if
        call store_row(matrix_at(a(output), b, h) + (first + i - 1) * a(output)%strides(3), &
            a(output)%strides(4), sums(:, i), a(v)%shape(4))
        call store_row(matrix_at(a(lse), b, h) + (first + i - 1) * a(lse)%strides(3), bytes, &
            found, 1_long)
    end do
end subroutine finish
end module attention
