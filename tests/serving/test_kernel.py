"""Kernel: what a bound kernel accepts and returns, and what happens when its variant fails."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from autotune import dispatch
from autotune.errors import NoPolicyError, ShapeError, UnknownNameError, UserError


def test_outputs_residuals_and_out(bench) -> None:
    kernel = dispatch(bench.operation, (3, 8))
    x, y = bench.arrays()
    expected = 8 * (x + y)
    assert isinstance(kernel(x, y), np.ndarray)
    total, peak = kernel(x, y, residuals=True)
    np.testing.assert_allclose(total, expected, rtol=1e-6)
    np.testing.assert_allclose(peak, expected.max(axis=1), rtol=1e-6)
    target = np.full((3, 8), np.nan, np.float32)
    assert kernel(x, y, out=target) is target
    np.testing.assert_allclose(target, expected, rtol=1e-6)
    rows = np.full(3, np.nan, np.float32)
    kernel(x, y, out=(target, rows))
    np.testing.assert_allclose(rows, expected.max(axis=1), rtol=1e-6)


def test_scalars_can_be_bound_or_given_with_the_call(bench) -> None:
    x, y = bench.arrays()
    np.testing.assert_allclose(
        dispatch(bench.operation, (3, 8), factor=2.0)(x, y), 2 * (x + y), rtol=1e-6
    )
    np.testing.assert_allclose(
        dispatch(bench.operation, (3, 8))(x, y, factor=0.5), (x + y) / 2, rtol=1e-6
    )
    with pytest.raises(UnknownNameError, match="did you mean 'factor'"):
        dispatch(bench.operation, (3, 8))(x, y, facter=0.5)
    with pytest.raises(UserError, match=r"factor of .* is a number, got 'a'"):
        dispatch(bench.operation, (3, 8))(x, y, factor="a")
    with pytest.raises(UserError, match=r"factor of .* is a number"):
        dispatch(bench.operation, (3, 8), factor="1")


def test_strided_arrays_give_what_packed_ones_give(bench) -> None:
    x, y = bench.arrays(8, 3)
    kernel = dispatch(bench.operation, x.T, y.T[::-1, ::-1])
    assert kernel.problem.layout == "strided"
    np.testing.assert_allclose(
        kernel(x.T, y.T[::-1, ::-1]), kernel(x.T.copy(), y.T[::-1, ::-1].copy()), rtol=1e-6
    )


def test_wrong_arrays_are_named(bench) -> None:
    kernel = dispatch(bench.operation, (3, 8))
    x, y = bench.arrays()
    with pytest.raises(ValueError, match=r"N is 8 in x\[M,N\] but 4 in y\[M,N\]"):
        kernel(x, y[:, :4])
    with pytest.raises(ShapeError, match=r"x has N=4 \(dispatched for 8\)"):
        kernel(x[:, :4], y[:, :4])
    with pytest.raises(ShapeError, match="y is float64, dispatched for float32"):
        kernel(x, y.astype("float64"))
    with pytest.raises(ShapeError, match="takes 2 arrays"):
        kernel(x)
    with pytest.raises(ShapeError, match=r"total\[M,N\] must be float32 \(3, 8\)"):
        kernel(x, y, out=np.empty((3, 8)))


def test_a_variant_that_fails_is_set_aside_and_the_next_best_serves(bench, caplog) -> None:
    bench.keep((3, 8), {"breaks": 1e-6, "plain": 2e-6})
    kernel = dispatch(bench.operation, (3, 8))
    assert kernel.variant == "breaks"
    x, y = bench.arrays()
    with caplog.at_level(logging.WARNING, logger="autotune"):
        for _ in range(3):
            np.testing.assert_allclose(kernel(x, y), 8 * (x + y), rtol=1e-6)
    assert kernel.variant == "plain"
    assert len(caplog.records) == 1
    assert "this one breaks when it is called" in caplog.records[0].getMessage()


def test_in_place_operations_run_once_on_the_callers_array(bench) -> None:
    x = np.ones(8, np.float32)
    kernel = dispatch("served_double", (8,))
    assert kernel(x) is x
    assert (x == 2).all()
    assert (dispatch("served_double", x)(x) == 4).all()


def test_repr_tells_problem_variant_and_origin(bench) -> None:
    text = repr(dispatch(bench.operation, (3, 8)))
    assert "served_sum M=3,N=8" in text
    assert "(predicted)" in text


def test_a_read_only_output_is_the_callers_mistake_and_costs_no_variant(bench) -> None:
    kernel = dispatch(bench.operation, (3, 8))
    x, y = bench.arrays()
    target = np.empty((3, 8), np.float32)
    target.flags.writeable = False
    before = kernel.variant
    with pytest.raises(ShapeError, match="read-only"):
        kernel(x, y, out=target)
    assert kernel.variant == before


def test_every_call_is_checked_also_after_one_that_fitted(bench) -> None:
    kernel = dispatch(bench.operation, (3, 8))
    x, y = bench.arrays()
    total, peak = kernel(x, y, residuals=True)
    for _ in range(2):
        kernel(x, y, out=(total, peak))
        kernel(x, y, out=total)
        with pytest.raises(ShapeError, match="takes 2 arrays"):
            kernel(x, out=y)
        with pytest.raises(ShapeError, match="takes 2 arrays"):
            kernel(x, y, total, out=peak)
        with pytest.raises(ShapeError, match="out takes total, peak; got 3 arrays"):
            kernel(x, y, out=(total, peak, total))
        with pytest.raises(ShapeError, match=r"peak\[M\] must be float32 \(3,\)"):
            kernel(x, y, out=(total, total))
        for flags in (total.flags, peak.flags):
            flags.writeable = False
            with pytest.raises(ShapeError, match="read-only"):
                kernel(x, y, out=(total, peak))
            flags.writeable = True


def test_a_variant_that_fails_on_given_outputs_is_set_aside(bench) -> None:
    bench.keep((3, 8), {"plain": 1e-6})
    kernel = dispatch(bench.operation, (3, 8))
    x, y = bench.arrays()
    total, peak = kernel(x, y, residuals=True)
    assert kernel.variant == "plain"

    def broken(*_: object) -> None:
        raise RuntimeError("broke at a later call")

    kernel._seat.call = broken
    total[...] = 0
    assert kernel(x, y, out=(total, peak)) is total
    assert kernel.variant != "plain"
    np.testing.assert_allclose(total, 8 * (x + y), rtol=1e-6)


def test_a_strict_kernel_stays_strict_when_its_variant_fails(bench) -> None:
    bench.keep((3, 8), {"breaks": 1e-6})
    kernel = dispatch(bench.operation, (3, 8), strict=True)
    with pytest.raises(NoPolicyError):
        kernel(*bench.arrays())


def test_a_workspace_holds_the_temporaries(bench) -> None:
    bench.keep((3, 8), {"roomy": 1e-6})
    kernel = dispatch(bench.operation, (3, 8))
    assert (kernel.variant, kernel.workspace_bytes) == ("roomy", 512)  # 3 * 8 * 4 of 4 bytes
    x, y = bench.arrays()
    workspace = np.zeros(512, np.uint8)
    np.testing.assert_allclose(kernel(x, y, workspace=workspace), 8 * (x + y), rtol=1e-6)
    with pytest.raises(ShapeError, match="at least 512 bytes"):
        kernel(x, y, workspace=workspace[:511])
    assert kernel.variant == "roomy"


def test_things_that_are_no_arrays_are_named(bench) -> None:
    kernel = dispatch(bench.operation, (3, 8))
    with pytest.raises(ShapeError, match="got a list among them"):
        kernel([[1.0]], [[2.0]])
    with pytest.raises(ShapeError, match="takes 2 arrays"):
        kernel()


def test_arrays_by_name_are_told_the_order(bench) -> None:
    kernel = dispatch(bench.operation, (3, 8))
    x, y = bench.arrays()
    with pytest.raises(ShapeError, match=r"served_sum takes its arrays in order: \(x, y\)"):
        kernel(x=x, y=y)
