"""What predict() says of each pass: elements, workers, steps, what a shared cache delivers."""

from __future__ import annotations

import pytest

from autotune.errors import DeclarationError
from autotune.model import (
    Intermediate,
    Operation,
    Pass,
    Problem,
    Published,
    Unit,
    Variant,
    predict,
)
from autotune.model.operation import parse_tensors


def product(**fields: object) -> Operation:
    """out = a b."""
    given: dict[str, object] = {
        "name": "product",
        "dims": ("M", "N", "K"),
        "inputs": parse_tensors("a[M,K] b[K,N]"),
        "outputs": parse_tensors("out[M,N]"),
        "reference": lambda a, b: a,
        "plain": lambda a, b: a,
        "flops": "2*M*N*K",
    }
    return Operation(**(given | fields))  # type: ignore[arg-type]


def declared(*passes: Pass, **fields: object) -> Variant:
    return Variant("v", product(), lambda problem, config: None, passes=passes, **fields)  # type: ignore[arg-type]


PROBLEM = Problem.of(product(), (100, 64, 32), "float64")
TILED = Pass(
    "tiles",
    parallel={"M": 16, "N": 32},
    sequential={"K": 8},
    reads=("a", "b"),
    writes={"out": "owned"},
    flops="2*M*N*K",
)


def test_workers_are_tiles_and_steps_what_each_takes() -> None:
    (counts,) = predict(declared(TILED), PROBLEM, {}).passes
    assert counts.workers == 7 * 2
    assert counts.steps == 4
    assert counts.flops == 2 * 100 * 64 * 32


def test_a_cache_delivers_what_each_worker_reads_of_its_tiles() -> None:
    (counts,) = predict(declared(TILED), PROBLEM, {}).passes
    assert counts.elements_read == 100 * 32 + 32 * 64
    assert counts.bytes_read == 8 * counts.elements_read
    assert counts.cache_bytes == 8 * 14 * (16 * 32 + 32 * 32)


def test_element_by_element_names_no_workers() -> None:
    plain = Pass("copy", parallel=("M",), reads=("a",), writes={"out": "owned"})
    (counts,) = predict(declared(plain), PROBLEM, {}).passes
    assert counts.workers is None
    assert counts.steps == 1
    assert counts.cache_bytes == counts.bytes_read


def test_a_worker_steps_through_its_own_tile_of_a_split_axis() -> None:
    split = Pass("split", parallel={"M": 50}, sequential={"M": 8}, reads=("a",))
    (counts,) = predict(declared(split), PROBLEM, {}).passes
    assert (counts.workers, counts.steps) == (2, 7)


def test_an_array_of_another_layout_is_read_once() -> None:
    parts = Intermediate("parts", ("M*K",))
    each = Pass("p", parallel={"M": 10}, sequential={"K": 8}, reads=("parts",))
    (counts,) = predict(declared(each, intermediates=(parts,)), PROBLEM, {}).passes
    assert counts.cache_bytes == counts.bytes_read == 8 * 3200


def test_empty_sizes_have_nothing_to_do() -> None:
    empty = Problem.of(product(), (0, 64, 0), "float64")
    split = Pass("s", parallel={"K": "K"}, sequential={"K": "K"}, reads=("a",), writes={})
    (counts,) = predict(declared(split), empty, {}).passes
    assert (counts.workers, counts.steps, counts.bytes_read) == (0, 0, 0)


def test_totals_are_the_sums_of_the_passes() -> None:
    twice = predict(declared(TILED, TILED), PROBLEM, {})
    assert twice.elements_read == sum(each.elements_read for each in twice.passes)
    assert twice.elements_written == 2 * 100 * 64
    assert twice.flops == 2 * PROBLEM.flops


def test_a_published_count_is_of_elements_at_the_problems_dtype() -> None:
    count = Published("as printed", "a paper", "M*K + M*N", read="M*K", atomics="M*N*K")
    found = count.count(PROBLEM.names)
    assert found.bytes_moved == 8 * (3200 + 6400)
    assert (found.bytes_read, found.bytes_written) == (8 * 3200, None)
    assert found.atomics == 100 * 64 * 32


def test_a_published_count_names_dims_only() -> None:
    with pytest.raises(DeclarationError, match="published count 'odd' uses the undeclared name Z"):
        product(published=(Published("odd", "a paper", "Z*K"),))


def test_blas_is_a_matrix_unit_and_else_there_are_loops() -> None:
    assert declared(blas="serial").arithmetic == Unit("matrix")
    assert declared().arithmetic == Unit("loop")
    assert declared(unit=Unit("matrix", "tf32", 3)).arithmetic.times == 3
    with pytest.raises(DeclarationError, match="a unit is loop, vector or matrix"):
        Unit("gpu")  # type: ignore[arg-type]
