! Gradients of the gated MLP: shares of the tokens in parallel, each with sums of its own for the
! weights, which are added up in the order of the shares.
module gated_mlp_gradients
#include "arrays.inc"
#include "gated_mlp_names.inc"
public :: gated_mlp_backward_splits, gated_mlp_train_splits
enum, bind(c)
    enumerator :: x = 1, gate, up, down, above
end enum
enum, bind(c)
    enumerator :: grad_x = 1, grad_gate, grad_up, grad_down, parts, tokens, columns, strips, &
        activations, lines, sums
end enum
enum, bind(c)
    enumerator :: threads = 1, tile, block
end enum

! The temporaries of one worker, for a tile of `rows` tokens: x and the gradient of the output by
! rows and by columns; U, V and the gradient of H, which become those of U and V, and H; out and the
! gradient of x. And its share's sums for the three matrices of weights.
type :: tiles
    integer(long) :: rows
    real(r), pointer, contiguous :: token(:, :), column(:, :), activation(:, :), total(:, :)
    real(r), pointer, contiguous :: packed(:), line(:), part(:, :)
end type tiles
contains
#include "array_rows.inc"
#include "gated_mlp.inc"

! settings: threads, tokens of a tile, hidden features of a block.
subroutine gated_mlp_backward_splits(a, settings, scalars) bind(c, name="gated_mlp_backward_splits")
    type(array), intent(in) :: a(above + sums)
    integer(long), intent(in) :: settings(block)
    type(c_ptr), value :: scalars ! there are none
    call gradients(a(:above), a(above + 1 :), settings)
end subroutine gated_mlp_backward_splits

! The same, and out.
subroutine gated_mlp_train_splits(a, settings, scalars) bind(c, name="gated_mlp_train_splits")
    type(array), intent(in) :: a(above + 1 + sums)
    integer(long), intent(in) :: settings(block)
    type(c_ptr), value :: scalars ! there are none
    call gradients(a(:above), a(above + 2 :), settings, a(above + 1))
end subroutine gated_mlp_train_splits

subroutine gradients(given, found, settings, output)
    use omp_lib, only: omp_get_num_threads, omp_get_thread_num
    type(array), intent(in) :: given(above), found(sums)
    integer(long), intent(in) :: settings(block)
    type(array), intent(in), optional :: output
    integer(long) :: worker, workers, share, first
    !$omp parallel num_threads(settings(threads)) private(worker, workers, share, first)
    worker = omp_get_thread_num()
    workers = omp_get_num_threads()
    do share = worker, found(parts)%shape(1) - 1, workers
        call work_on_share(given, found, settings, share, worker, output)
    end do
    !$omp barrier
    !$omp do
    do first = 0, given(gate)%shape(2) - 1, strip
        call sum_strip(given, found, settings(block), first)
    end do
    !$omp end do
    !$omp end parallel
end subroutine gradients

! The tiles of one share of the tokens, in order.
subroutine work_on_share(given, found, settings, share, worker, output)
    type(array), intent(in) :: given(above), found(sums)
    integer(long), intent(in) :: settings(block), share, worker
    type(array), intent(in), optional :: output
    type(tiles) :: mine
    integer(long) :: depth, width, blocks, shares, number, first, count
    depth = given(x)%shape(2)
    width = multiple(depth, strip)
    call own_matrix(found(parts), share, part_size(found(parts)), 3_long, mine%part)
    call own_matrix(found(tokens), worker, depth * settings(tile), 2_long, mine%token)
    call own_matrix(found(columns), worker, multiple(depth, 8_long) * settings(tile), 2_long, &
        mine%column)
    call own_matrix(found(activations), worker, settings(tile) * settings(block), 3_long, &
        mine%activation)
    call own_matrix(found(sums), worker, width * settings(tile), 2_long, mine%total)
    call own_vector(found(strips), worker, settings(block) * max(most, width), mine%packed)
    call own_vector(found(lines), worker, settings(block), mine%line)
    mine%part = 0
    blocks = (given(x)%shape(1) + settings(tile) - 1) / settings(tile)
    shares = found(parts)%shape(1)
    do number = share * blocks / shares, (share + 1) * blocks / shares - 1
        first = number * settings(tile)
        count = min(settings(tile), given(x)%shape(1) - first)
        mine%rows = multiple(count, 8_long)
        call work_on_tile(given, found(grad_x), settings(block), first, count, mine, output)
    end do
end subroutine work_on_share

! Elements of the sums for one matrix of weights: by block of hidden features, in which they are
! those of a matrix with rows of hidden features, one for each of `multiple(depth, 8)`.
pure integer(long) function part_size(a)
    type(array), intent(in) :: a
    part_size = a%shape(3) * a%shape(4) * a%shape(5)
end function part_size

! `count` tokens from `first` on.
subroutine work_on_tile(given, grad, block_size, first, count, mine, output)
    type(array), intent(in) :: given(above), grad
    integer(long), intent(in) :: block_size, first, count
    type(tiles), intent(in) :: mine
    type(array), intent(in), optional :: output
    integer(long) :: start
    call load_rows(given(x), first, count, mine%rows, mine%token(:, 1), mine%column(:, 1))
    call load_rows(given(above), first, count, mine%rows, mine%token(:, 2), mine%column(:, 2))
    mine%total = 0
    do start = 0, given(gate)%shape(2) - 1, block_size
        call work_on_block(given, start, min(block_size, given(gate)%shape(2) - start), &
            present(output), mine)
    end do
    if (present(output)) call store_rows(output, first, count, mine%total(:, 1))
    call store_rows(grad, first, count, mine%total(:, 2))
end subroutine work_on_tile

! `count` rows of a matrix from `first` on, as rows and as columns; 0 up to `padded` rows, and in
! columns that make the last one a multiple of eight.
subroutine load_rows(from, first, count, padded, rows, columns)
    type(array), intent(in) :: from
    integer(long), intent(in) :: first, count, padded
    real(r), intent(inout) :: rows(from%shape(2), padded)
    real(r), intent(inout) :: columns(padded, multiple(from%shape(2), 8_long))
    integer(c_intptr_t) :: start
    integer(long) :: i
    start = from%data + first * from%strides(1)
    rows(:, count + 1 :) = 0
    do i = 1, count
        call copy_row(rows(:, i), start + (i - 1) * from%strides(1), from%strides(2), from%shape(2))
    end do
    columns = 0
    do i = 1, from%shape(2)
        call copy_row(columns(:, i), start + (i - 1) * from%strides(2), from%strides(1), count)
    end do
end subroutine load_rows

subroutine store_rows(to, first, count, total)
    type(array), intent(in) :: to
    integer(long), intent(in) :: first, count
    real(r), intent(in) :: total(multiple(to%shape(2), strip), count)
    integer(long) :: i
    do i = 1, count
        call store_row(to%data + (first + i - 1) * to%strides(1), to%strides(2), total(:, i), &
            to%shape(2))
    end do
end subroutine store_rows

! Everything about one tile and `there` hidden features from `start` on.
subroutine work_on_block(given, start, there, with_out, mine)
    type(array), intent(in) :: given(above)
    integer(long), intent(in) :: start, there
    logical, intent(in) :: with_out
    type(tiles), intent(in) :: mine
    integer(long) :: rows, depth, padded, from, to, i
    rows = mine%rows
    depth = given(x)%shape(2)
    padded = multiple(there, strip)
    call project(mine%activation(:, 1), given(gate), start, there, mine%token(:, 1), rows, &
        mine%packed)
    call project(mine%activation(:, 2), given(up), start, there, mine%token(:, 1), rows, &
        mine%packed)
    call project(mine%activation(:, 3), transposed(given(down)), start, there, mine%token(:, 2), &
        rows, mine%packed)
    do i = 0, rows - 1
        from = i * padded + 1
        to = from + padded - 1
        call activate(mine%activation(from : to, 1), mine%activation(from : to, 2), &
            mine%activation(from : to, 3), mine%line, padded)
    end do
    if (with_out) call add_back(mine%total(:, 1), mine%activation(:, 3), given(down), start, &
        there, mine)
    call add_back(mine%total(:, 2), mine%activation(:, 1), transposed(given(gate)), start, there, &
        mine)
    call add_back(mine%total(:, 2), mine%activation(:, 2), transposed(given(up)), start, there, &
        mine)
    do i = 1, 3
        from = start * multiple(depth, 8_long) + 1
        to = from + padded * multiple(depth, 8_long) - 1
        call add_part(mine%part(from : to, i), mine%column(:, (i + 1) / 2), mine%activation(:, i), &
            multiple(depth, 8_long), padded, mine)
    end do
end subroutine work_on_block

pure type(array) function transposed(a)
    type(array), intent(in) :: a
    transposed = a
    transposed%shape(:2) = a%shape(2 : 1 : -1)
    transposed%strides(:2) = a%strides(2 : 1 : -1)
end function transposed

! For one row, with s the sigmoid of u: h, the gradient of H, becomes H = u s v, and u and v become
! their own gradients, h v s (1 + u (1 - s)) and h u s.
subroutine activate(u, v, h, line, count)
    integer(long), intent(in) :: count
    real(r), intent(inout) :: u(count), v(count), h(count), line(count)
    real(r) :: one, rest, s, silu, grad
    integer(long) :: i
    call decays(line, u, count)
    !$omp simd private(one, rest, s, silu, grad)
    do i = 1, count
        one = 1 / (1 + line(i))
        rest = line(i) * one
        s = merge(rest, one, u(i) < 0)
        silu = u(i) * s
        grad = h(i)
        h(i) = silu * v(i)
        u(i) = grad * v(i) * (s + silu * merge(one, rest, u(i) < 0))
        v(i) = grad * silu
    end do
end subroutine activate

! total += activations of a block times `there` rows of a matrix of weights, from `start` on.
subroutine add_back(total, activation, weights, start, there, mine)
    real(r), intent(inout) :: total(*)
    real(r), intent(in) :: activation(*)
    type(array), intent(in) :: weights
    integer(long), intent(in) :: start, there
    type(tiles), intent(in) :: mine
    call rows_to_strips(mine%packed, weights%data + start * weights%strides(1), there, &
        weights%shape(2), weights%strides(1), weights%strides(2))
    call add_product(total, activation, mine%packed, mine%rows, &
        multiple(weights%shape(2), strip), there, multiple(there, strip))
end subroutine add_back

! A block of the sums for one matrix of weights += columns of the tile times activations.
subroutine add_part(part, column, activation, depth, padded, mine)
    integer(long), intent(in) :: depth, padded
    real(r), intent(inout) :: part(padded, depth)
    real(r), intent(in) :: column(*), activation(*)
    type(tiles), intent(in) :: mine
    call rows_to_strips(mine%packed, address(activation), mine%rows, padded, padded * bytes, bytes)
    call add_product(part, column, mine%packed, depth, padded, mine%rows, mine%rows)
end subroutine add_part

! The gradients of the weights for a strip of hidden features, from the shares in their order.
subroutine sum_strip(given, found, block_size, first)
    type(array), intent(in) :: given(above), found(sums)
    integer(long), intent(in) :: block_size, first
    type(array) :: target
    real(r), pointer, contiguous :: part(:, :, :)
    real(r) :: total(strip)
    integer(long) :: shares, start, padded, at, weight, d, share
    shares = found(parts)%shape(1)
    call c_f_pointer(transfer(found(parts)%data, c_null_ptr), part, &
        [part_size(found(parts)), 3_long, shares])
    start = first / block_size * block_size
    padded = multiple(min(block_size, given(gate)%shape(2) - start), strip)
    do weight = 1, 3
        target = found(grad_x + weight)
        if (weight == 3) target = transposed(target)
        do d = 0, given(x)%shape(2) - 1
            at = start * multiple(given(x)%shape(2), 8_long) + d * padded + first - start
            total = 0
            do share = 1, shares
                total = total + part(at + 1 : at + strip, weight, share)
            end do
            call store_row(target%data + d * target%strides(1) + first * target%strides(2), &
                target%strides(2), total, min(strip, given(gate)%shape(2) - first))
        end do
    end do
end subroutine sum_strip
end module gated_mlp_gradients
