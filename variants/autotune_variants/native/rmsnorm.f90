! RMS normalisation and its gradients: tiles of tokens in parallel, every token read once.
module rmsnorm
#include "arrays.inc"
public :: rmsnorm_tiled, rmsnorm_backward_tiled
integer(long), parameter :: strip = 64 / bytes
enum, bind(c)
    enumerator :: x = 1, weight, output, tokens, lines, inverses
end enum
enum, bind(c)
    enumerator :: above = 3, grad_x, grad_weight, parts, gradient_tokens, gradient_lines, numbers
end enum
enum, bind(c)
    enumerator :: threads = 1, tile
end enum

! The temporaries of one worker: the weight, a line; the inverse and the slope of every token.
type :: tiles
    real(r), pointer, contiguous :: token(:, :), grad(:, :), line(:, :), number(:, :)
end type tiles
contains
#include "array_rows.inc"
#include "rows.inc"

! settings: threads, tokens of a tile. scalars: eps.
subroutine rmsnorm_tiled(a, settings, scalars) bind(c, name="rmsnorm_tiled")
    use omp_lib, only: omp_get_thread_num
    type(array), intent(in) :: a(inverses)
    integer(long), intent(in) :: settings(tile)
    real(c_double), intent(in) :: scalars(1)
    real(r), pointer, contiguous :: token(:, :), line(:, :), inverse(:)
    integer(long) :: worker, depth, first, count
    depth = a(x)%shape(2)
    !$omp parallel num_threads(settings(threads)) &
    !$omp& private(worker, token, line, inverse, first, count)
    worker = omp_get_thread_num()
    call own_matrix(a(tokens), worker, depth, settings(tile), token)
    call own_matrix(a(lines), worker, depth, 2_long, line)
    call own_vector(a(inverses), worker, settings(tile), inverse)
    call copy_row(line(:, 1), a(weight)%data, a(weight)%strides(1), depth)
    !$omp do schedule(dynamic)
    do first = 0, a(x)%shape(1) - 1, settings(tile)
        count = min(settings(tile), a(x)%shape(1) - first)
        call normalise(a, first, count, real(scalars(1), r), token, line, inverse)
    end do
    !$omp end do
    !$omp end parallel
end subroutine rmsnorm_tiled

! Out of `count` tokens from `first` on.
subroutine normalise(a, first, count, eps, tile_of_x, line, inverse)
    type(array), intent(in) :: a(inverses)
    integer(long), intent(in) :: first, count
    real(r), intent(in) :: eps
    real(r), pointer, contiguous, intent(in) :: tile_of_x(:, :), line(:, :), inverse(:)
    real(r), pointer, contiguous :: token(:, :), result(:)
    integer(long) :: i
    logical :: direct
    call rows_of(a(x), first, count, tile_of_x, token)
    call inverse_rms(token, size(token, 1, long), count, a(x)%shape(2), eps, inverse)
    do i = 1, count
        call row_or_line(a(output), first + i - 1, line, result, direct)
        call scale_token(token(:, i), line(:, 1), inverse(i), a(x)%shape(2), result)
        if (.not. direct) call store_line(a(output), first + i - 1, result)
    end do
end subroutine normalise

! `count` rows of a matrix from `first` on.
subroutine rows_of(a, first, count, tile_of_rows, rows)
    type(array), intent(in) :: a
    integer(long), intent(in) :: first, count
    real(r), pointer, contiguous, intent(in) :: tile_of_rows(:, :)
    real(r), pointer, contiguous, intent(out) :: rows(:, :)
    call rows_or_copy(a%data + first * a%strides(1), a%strides(1), a%strides(2), count, &
        a%shape(2), tile_of_rows, rows)
end subroutine rows_of

! Row i of a matrix, counted from 0, to write to: where it is in memory, or the second line, to be
! stored afterwards.
subroutine row_or_line(a, i, line, row, direct)
    type(array), intent(in) :: a
    integer(long), intent(in) :: i
    real(r), pointer, contiguous, intent(in) :: line(:, :)
    real(r), pointer, contiguous, intent(out) :: row(:)
    logical, intent(out) :: direct
    integer(c_intptr_t) :: to
    to = a%data + i * a%strides(1)
    direct = plain_rows(to, a%shape(2) * bytes, a%strides(2), a%shape(2))
    if (direct) then
        call c_f_pointer(transfer(to, c_null_ptr), row, [a%shape(2)])
    else
        row => line(:, 2)
    end if
end subroutine row_or_line

subroutine store_line(a, i, line)
    type(array), intent(in) :: a
    integer(long), intent(in) :: i
    real(r), intent(in) :: line(a%shape(2))
    call store_row(a%data + i * a%strides(1), a%strides(2), line, a%shape(2))
end subroutine store_line

! inverse(i) = 1 / sqrt(mean of token(:, i)**2 + eps), four tokens at a time; a ragged end repeats
! the last one.
subroutine inverse_rms(token, step, count, depth, eps, inverse)
    integer(long), intent(in) :: step, count, depth
    real(r), intent(in) :: token(step, count), eps
    real(r), intent(inout) :: inverse(count)
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
            s0 = s0 + token(d, i) * token(d, i)
            s1 = s1 + token(d, i1) * token(d, i1)
            s2 = s2 + token(d, i2) * token(d, i2)
            s3 = s3 + token(d, i3) * token(d, i3)
        end do
        inverse(i) = s0
        inverse(i1) = s1
        inverse(i2) = s2
        inverse(i3) = s3
    end do
    inverse = 1 / sqrt(inverse / real(depth, r) + eps)
end subroutine inverse_rms

subroutine scale_token(token, scales, inverse, depth, result)
    integer(long), intent(in) :: depth
    real(r), intent(in) :: token(depth), scales(depth), inverse
    real(r), intent(inout) :: result(depth)
    integer(long) :: d
    !$omp simd
    do d = 1, depth
        result(d) = token(d) * inverse * scales(d)
    end do
end subroutine scale_token

! settings: threads, tokens of a tile. scalars: eps.
subroutine rmsnorm_backward_tiled(a, settings, scalars) bind(c, name="rmsnorm_backward_tiled")
    use omp_lib, only: omp_get_num_threads, omp_get_thread_num
    type(array), intent(in) :: a(numbers)
    integer(long), intent(in) :: settings(tile)
    real(c_double), intent(in) :: scalars(1)
    integer(long) :: worker, workers, share, first
    !$omp parallel num_threads(settings(threads)) private(worker, workers, share, first)
    worker = omp_get_thread_num()
    workers = omp_get_num_threads()
    do share = worker, a(parts)%shape(1) / 2 - 1, workers
        call share_gradients(a, share, settings(tile), real(scalars(1), r), worker)
    end do
    !$omp barrier
    !$omp do
    do first = 0, a(x)%shape(2) - 1, strip
        call sum_strip(a, first)
    end do
    !$omp end do
    !$omp end parallel
end subroutine rmsnorm_backward_tiled

! The tiles of one share of the tokens, in order. Each is summed in the second row of the share's
! parts and added to the first, so that rounding errors grow with the number of tiles, not of tokens.
subroutine share_gradients(a, share, block, eps, worker)
    type(array), intent(in) :: a(numbers)
    integer(long), intent(in) :: share, block, worker
    real(r), intent(in) :: eps
    type(tiles) :: mine
    real(r), pointer, contiguous :: every(:, :), total(:, :)
    integer(long) :: depth, blocks, shares, number, first
    depth = a(x)%shape(2)
    call own_matrix(a(gradient_tokens), worker, depth, 2 * block, every)
    mine%token => every(:, : block)
    mine%grad => every(:, block + 1 :)
    call own_matrix(a(gradient_lines), worker, depth, 2_long, mine%line)
    call own_matrix(a(numbers), worker, block, 2_long, mine%number)
    call own_matrix(a(parts), 2 * share, depth, 2_long, total)
    call copy_row(mine%line(:, 1), a(weight)%data, a(weight)%strides(1), depth)
    total = 0
    blocks = (a(x)%shape(1) + block - 1) / block
    shares = a(parts)%shape(1) / 2
    do number = share * blocks / shares, (share + 1) * blocks / shares - 1
        first = number * block
        call tile_gradients(a, first, min(block, a(x)%shape(1) - first), eps, total(:, 2), mine)
        total(:, 1) = total(:, 1) + total(:, 2)
    end do
end subroutine share_gradients

! grad_x of `count` tokens from `first` on; `total` gets their part of the weight's gradient.
subroutine tile_gradients(a, first, count, eps, total, mine)
    type(array), intent(in) :: a(numbers)
    integer(long), intent(in) :: first, count
    real(r), intent(in) :: eps
    real(r), intent(inout) :: total(a(x)%shape(2))
    type(tiles), intent(in) :: mine
    real(r), pointer, contiguous :: token(:, :), grad(:, :), result(:)
    integer(long) :: depth, i
    logical :: direct
    depth = a(x)%shape(2)
    call rows_of(a(x), first, count, mine%token, token)
    call rows_of(a(above), first, count, mine%grad, grad)
    call inverse_rms(token, size(token, 1, long), count, depth, eps, mine%number(:, 1))
    call slopes(token, size(token, 1, long), grad, size(grad, 1, long), count, depth, &
        mine%line(:, 1), mine%number(:, 1), mine%number(:, 2))
    total = 0
    do i = 1, count
        call row_or_line(a(grad_x), first + i - 1, mine%line, result, direct)
        call token_gradients(token(:, i), grad(:, i), mine%line(:, 1), mine%number(i, 1), &
            mine%number(i, 2), depth, result, total)
        if (.not. direct) call store_line(a(grad_x), first + i - 1, result)
    end do
end subroutine tile_gradients

! slope(i) = the mean of grad(:, i) * weight * token(:, i), over the mean square; two at a time.
subroutine slopes(token, step, grad, grad_step, count, depth, scales, inverse, slope)
    integer(long), intent(in) :: step, grad_step, count, depth
    real(r), intent(in) :: token(step, count), grad(grad_step, count), scales(depth), inverse(count)
    real(r), intent(inout) :: slope(count)
    real(r) :: s0, s1
    integer(long) :: i, i1, d
    do i = 1, count, 2
        i1 = min(i + 1, count)
        s0 = 0
        s1 = 0
        !$omp simd reduction(+ : s0, s1)
        do d = 1, depth
            s0 = s0 + grad(d, i) * scales(d) * token(d, i)
            s1 = s1 + grad(d, i1) * scales(d) * token(d, i1)
        end do
        slope(i) = s0
        slope(i1) = s1
    end do
    slope = slope * (inverse * inverse / real(depth, r))
end subroutine slopes

! grad_x of one token; adds what it has of the weight's gradient.
subroutine token_gradients(token, grad, scales, inverse, slope, depth, result, total)
    integer(long), intent(in) :: depth
    real(r), intent(in) :: token(depth), grad(depth), scales(depth), inverse, slope
    real(r), intent(inout) :: result(depth), total(depth)
    integer(long) :: d
    !$omp simd
    do d = 1, depth
        total(d) = total(d) + grad(d) * token(d) * inverse
        result(d) = inverse * (grad(d) * scales(d) - token(d) * slope)
    end do
end subroutine token_gradients

! The weight's gradient for a strip of features, from the shares in their order.
subroutine sum_strip(a, first)
    type(array), intent(in) :: a(numbers)
    integer(long), intent(in) :: first
    real(r), pointer, contiguous :: part(:, :)
    real(r) :: total(strip)
    integer(long) :: count, row
    call own_matrix(a(parts), 0_long, a(x)%shape(2), a(parts)%shape(1), part)
    count = min(strip, a(x)%shape(2) - first)
    total = 0
    do row = 1, a(parts)%shape(1), 2
        total(:count) = total(:count) + part(first + 1 : first + count, row)
    end do
    call store_row(a(grad_weight)%data + first * a(grad_weight)%strides(1), &
        a(grad_weight)%strides(1), total, count)
end subroutine sum_strip
end module rmsnorm
