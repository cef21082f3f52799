! The gated MLP: tiles of tokens in parallel, the hidden features in blocks that stay near.
module gated_mlp
#include "arrays.inc"
#include "gated_mlp_names.inc"
public :: gated_mlp_tiled
enum, bind(c)
    enumerator :: x = 1, gate, up, down, output, tokens, strips, gates, ups, lines, sums
end enum
enum, bind(c)
    enumerator :: threads = 1, block_n, block_f
end enum
contains
#include "array_rows.inc"
#include "gated_mlp.inc"

! settings: threads, block_n, block_f.
subroutine gated_mlp_tiled(a, settings, scalars) bind(c, name="gated_mlp_tiled")
    use omp_lib, only: omp_get_thread_num
    type(array), intent(in) :: a(sums)
    integer(long), intent(in) :: settings(block_f)
    type(c_ptr), value :: scalars ! there are none
    integer(long) :: first, count, worker
    !$omp parallel num_threads(settings(threads)) private(first, count, worker)
    worker = omp_get_thread_num()
    !$omp do schedule(dynamic)
    do first = 0, a(x)%shape(1) - 1, settings(block_n)
        count = min(settings(block_n), a(x)%shape(1) - first)
        call transform(a, settings, first, count, worker)
    end do
    !$omp end do
    !$omp end parallel
end subroutine gated_mlp_tiled

! `count` tokens from `first` on.
subroutine transform(a, settings, first, count, worker)
    type(array), intent(in) :: a(sums)
    integer(long), intent(in) :: settings(block_f), first, count, worker
    real(r), pointer, contiguous :: token(:, :), packed(:), u(:), v(:), line(:), total(:, :)
    integer(long) :: depth, hidden, block, rows, width, start, there, padded, i
    depth = a(x)%shape(2)
    hidden = a(gate)%shape(2)
    block = settings(block_f)
    rows = multiple(count, 8_long)
    width = multiple(depth, strip)
    call own_matrix(a(tokens), worker, depth, rows, token)
    call own_vector(a(strips), worker, block * max(most, width), packed)
    call own_vector(a(gates), worker, rows * block, u)
    call own_vector(a(ups), worker, rows * block, v)
    call own_vector(a(lines), worker, block, line)
    call own_matrix(a(sums), worker, width, rows, total)
    do i = 1, count
        call copy_row(token(:, i), a(x)%data + (first + i - 1) * a(x)%strides(1), &
            a(x)%strides(2), depth)
    end do
    token(:, count + 1 :) = 0
    total = 0
    do start = 0, hidden - 1, block
        there = min(block, hidden - start)
        padded = multiple(there, strip)
        call project(u, a(gate), start, there, token, rows, packed)
        call project(v, a(up), start, there, token, rows, packed)
        do i = 0, rows - 1
            call activate(u(i * padded + 1 : (i + 1) * padded), v(i * padded + 1 : (i + 1) * padded), &
                line, padded)
        end do
        call rows_to_strips(packed, a(down)%data + start * a(down)%strides(1), there, depth, &
            a(down)%strides(1), a(down)%strides(2))
        call add_product(total, u, packed, rows, width, there, padded)
    end do
    do i = 1, count
        call store_row(a(output)%data + (first + i - 1) * a(output)%strides(1), &
            a(output)%strides(2), total(:, i), depth)
    end do
end subroutine transform

! gates = SiLU(gates) * ups for one row; SiLU(u) = u / (1 + e**-u), by way of e**-|u|.
subroutine activate(gates, ups, line, count)
    integer(long), intent(in) :: count
    real(r), intent(inout) :: gates(count), line(count)
    real(r), intent(in) :: ups(count)
    integer(long) :: i
    call decays(line, gates, count)
    !$omp simd
    do i = 1, count
        gates(i) = gates(i) * (merge(line(i), 1.0_r, gates(i) < 0) / (1 + line(i))) * ups(i)
    end do
end subroutine activate
end module gated_mlp
