! Decode: the cache cut into splits, each swept once with an online softmax, and combined.
module decode
#include "arrays.inc"
#include "exponential_names.inc"
public :: decode_split
enum, bind(c)
    enumerator :: q = 1, k, v, output, parts, stats, queries, weights, sums
    enumerator :: packed_keys, packed_values
end enum
contains
#include "array_rows.inc"
#include "exponential.inc"
#include "rows.inc"

! settings: threads, block. scalars: scale.
subroutine decode_split(a, settings, scalars) bind(c, name="decode_split")
    use omp_lib, only: omp_get_num_threads, omp_get_thread_num
    type(array), intent(in) :: a(packed_values)
    integer(long), intent(in) :: settings(2)
    real(c_double), intent(in) :: scalars(1)
    integer(long) :: heads, splits, worker, workers, task
    heads = a(parts)%shape(1) * a(parts)%shape(2)
    splits = a(parts)%shape(3)
    !$omp parallel num_threads(settings(1)) private(worker, workers, task)
    worker = omp_get_thread_num()
    workers = omp_get_num_threads()
    do task = worker, heads * splits - 1, workers
        call attend(a, task, worker, settings(2), real(scalars(1), r))
    end do
    !$omp barrier
    do task = worker, heads - 1, workers
        call combine_head(a, task, worker)
    end do
    !$omp end parallel
end subroutine decode_split

! One split of one key-value head; `task` counts batch, head, split.
subroutine attend(a, task, worker, block, scale)
    type(array), intent(in) :: a(packed_values)
    integer(long), intent(in) :: task, worker, block
    real(r), intent(in) :: scale
    real(r), pointer, contiguous :: part(:, :), stat(:, :), query(:, :), weight(:, :), line(:)
    real(r), pointer, contiguous :: key_tile(:, :), value_tile(:, :), keys(:, :), values(:, :)
    integer(long) :: heads, splits, group, depth, width, length, chunk
    integer(long) :: b, kv, split, first, last, start, count, g
    heads = a(parts)%shape(2)
    splits = a(parts)%shape(3)
    group = a(parts)%shape(4)
    length = a(k)%shape(3)
    depth = a(k)%shape(4)
    width = a(v)%shape(4)
    b = task / (heads * splits)
    kv = modulo(task / splits, heads)
    split = modulo(task, splits)
    chunk = (length + splits - 1) / splits
    first = split * chunk
    last = min(first + chunk, length)
    call matrix_of(a(parts), task, width, group, part)
    call matrix_of(a(stats), task, group, 2_long, stat)
    call matrix_of(a(queries), worker, depth, group, query)
    call matrix_of(a(weights), worker, block, group, weight)
    call vector_of(a(sums), worker * group, width, line)
    call matrix_of(a(packed_keys), worker, depth, block, key_tile)
    call matrix_of(a(packed_values), worker, width, block, value_tile)
    do g = 1, group
        call copy_row(query(:, g), matrix_at(a(q), b, kv * group + g - 1), a(q)%strides(3), depth)
    end do
    query = query * scale
    part = 0
    stat(:, 1) = minus_infinity()
    stat(:, 2) = 0
    do start = first, last - 1, block
        count = min(block, last - start)
        call rows_or_copy(matrix_at(a(k), b, kv) + start * a(k)%strides(3), a(k)%strides(3), &
            a(k)%strides(4), count, depth, key_tile, keys)
        call rows_or_copy(matrix_at(a(v), b, kv) + start * a(v)%strides(3), a(v)%strides(3), &
            a(v)%strides(4), count, width, value_tile, values)
        do g = 1, group
            call dot_products(weight(:, g), query(:, g), keys, size(keys, 1, long), count, depth)
            call join(part(:, g), stat(g, 1), stat(g, 2), weight(:, g), line, values, &
                size(values, 1, long), count, width)
        end do
    end do
end subroutine attend

! weights(i) = query . keys(:, i), four keys at a time; a ragged end repeats the last one.
subroutine dot_products(weights, query, keys, step, count, depth)
    integer(long), intent(in) :: step, count, depth
    real(r), intent(inout) :: weights(count)
    real(r), intent(in) :: query(depth), keys(step, count)
    real(r) :: s0, s1, s2, s3
    integer(long) :: i, i1, i2, i3, d
    do i = 1, count, 4
        i1 = min(i + 1, count)
        i2 = min(i + 2, count)
        i3 = min(i + 3, count)
        s0 = 0
        s1 = 0
        s2 = 0
        s3 = 0
        !$omp simd reduction(+ : s0, s1, s2, s3)
        do d = 1, depth
            s0 = s0 + query(d) * keys(d, i)
            s1 = s1 + query(d) * keys(d, i1)
            s2 = s2 + query(d) * keys(d, i2)
            s3 = s3 + query(d) * keys(d, i3)
        end do
        weights(i) = s0
        weights(i1) = s1
        weights(i2) = s2
        weights(i3) = s3
    end do
end subroutine dot_products

! One block of keys for one query: its weights join the running maximum, sum and part. Each block is
! summed from 0 and then added, so that rounding errors grow with the number of blocks.
subroutine join(part, peak, total, weights, sums, values, step, count, width)
    integer(long), intent(in) :: step, count, width
    real(r), intent(inout) :: part(width), peak, total, weights(count), sums(width)
    real(r), intent(in) :: values(step, count)
    real(r) :: largest, shrink, added
    integer(long) :: i, d
    largest = peak
    !$omp simd reduction(max : largest)
    do i = 1, count
        largest = max(largest, weights(i))
    end do
    shrink = exp_negative(peak - largest)
    call exponentials(weights, count, largest, added)
    total = total * shrink + added
    peak = largest
    call weighted_sum(sums, weights, values, step, count, width)
    !$omp simd
    do d = 1, width
        part(d) = part(d) * shrink + sums(d)
    end do
end subroutine join

! sums = the sum of weights(i) * values(:, i), four rows at a time.
subroutine weighted_sum(sums, weights, values, step, count, width)
    integer(long), intent(in) :: step, count, width
    real(r), intent(inout) :: sums(width)
    real(r), intent(in) :: weights(count), values(step, count)
    integer(long) :: i, d
    sums = 0
    do i = 1, count / 4 * 4, 4
        !$omp simd
        do d = 1, width
            sums(d) = sums(d) + ((weights(i) * values(d, i) + weights(i + 1) * values(d, i + 1)) &
                + (weights(i + 2) * values(d, i + 2) + weights(i + 3) * values(d, i + 3)))
        end do
    end do
    do i = count / 4 * 4 + 1, count
        !$omp simd
        do d = 1, width
            sums(d) = sums(d) + weights(i) * values(d, i)
        end do
    end do
end subroutine weighted_sum

! The output of the query heads of one key-value head.
subroutine combine_head(a, head, worker)
    type(array), intent(in) :: a(packed_values)
    integer(long), intent(in) :: head, worker
    real(r), pointer, contiguous :: part(:, :), stat(:, :), line(:)
    integer(long) :: heads, splits, group, width, g
    heads = a(parts)%shape(2)
    splits = a(parts)%shape(3)
    group = a(parts)%shape(4)
    width = a(v)%shape(4)
    call matrix_of(a(parts), head, width, group * splits, part)
    call matrix_of(a(stats), head, group, 2 * splits, stat)
    call vector_of(a(sums), worker * group, width, line)
    do g = 1, group
        call combine(line, part, stat, group, splits, g)
        call store_row(matrix_at(a(output), head / heads, modulo(head, heads) * group + g - 1), &
            a(output)%strides(3), line, width)
    end do
end subroutine combine_head

! Query g's output from the splits, in their order.
subroutine combine(line, part, stat, group, splits, g)
    integer(long), intent(in) :: group, splits, g
    real(r), intent(inout) :: line(:)
    real(r), intent(in) :: part(:, :), stat(:, :)
    real(r) :: peak, total, weight
    integer(long) :: s
    peak = maxval(stat(g, 1 : 2 * splits : 2))
    total = 0
    line = 0
    do s = 1, splits
        if (stat(g, 2 * s) == 0) cycle ! a split without keys
        weight = exp_negative(stat(g, 2 * s - 1) - peak)
        total = total + weight * stat(g, 2 * s)
        line = line + weight * part(:, (s - 1) * group + g)
    end do
    if (total /= 0) line = line / total
end subroutine combine

! A temporary array, of rows * columns reals each time, as its index-th (from 0) matrix.
subroutine matrix_of(a, index, rows, columns, matrix)
    type(array), intent(in) :: a
    integer(long), intent(in) :: index, rows, columns
    real(r), pointer, contiguous, intent(out) :: matrix(:, :)
    integer(c_intptr_t) :: place
    place = a%data + index * rows * columns * bytes
    call c_f_pointer(transfer(place, c_null_ptr), matrix, [rows, columns])
end subroutine matrix_of

! The same for vectors of `length` reals.
subroutine vector_of(a, index, length, vector)
    type(array), intent(in) :: a
    integer(long), intent(in) :: index, length
    real(r), pointer, contiguous, intent(out) :: vector(:)
    integer(c_intptr_t) :: place
    place = a%data + index * length * bytes
    call c_f_pointer(transfer(place, c_null_ptr), vector, [length])
end subroutine vector_of
end module decode
