"""Cases DSP-1 to DSP-6: what is served for which call, and what it may do to the caller."""

from __future__ import annotations

import logging
import time
from typing import Any

import numpy as np
import pytest
from case_lab import (
    OWNED,
    clean_registry,
    doubling,
    with_variants,
)
from command_line import Run
from dispatch_lab import ONES, double, double_slowly, in_place, keep, new_process, restart

import autotune
from autotune import dispatch, lookup
from autotune.errors import ShapeError, UserError
from autotune.registry import operation, registry, variant
from autotune.serving import server
from autotune.settings import settings

__all__ = ["clean_registry", "new_process"]


__all__ = ["clean_registry"]


def test_dsp_1_tuning_at_the_first_call_leaves_the_callers_data_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = in_place("dsp_1")

    @variant(target, "a")
    def a(x: Any) -> None:
        x *= 2

    @variant(target, "b")
    def b(x: Any) -> None:
        np.multiply(x, 2, out=x)

    monkeypatch.setattr("autotune.on_miss.BUDGET", "0.3s")
    x = np.ones(8, np.float32)
    for expected in (2, 4, 8):
        kernel = dispatch(target, x.shape, dtype="float32", tune_on_miss=True)
        assert kernel(x) is x
        assert (x == expected).all()
    assert kernel.origin == "tuned"


def test_dsp_1_inputs_and_outputs_may_overlap() -> None:
    @operation(inputs="x[N] y[N]", outputs="z[N]", name="dsp_1_sums")
    def sums(x: Any, y: Any) -> Any:
        """Running sums of x, plus y backwards."""
        return np.cumsum(x) + y[::-1]

    @variant(sums, "in_order")
    def in_order(x: Any, y: Any, z: Any) -> None:
        total = 0.0
        for i in range(len(x)):
            total += x[i]
            z[i] = total + y[len(x) - 1 - i]

    memory = np.arange(12, dtype="f8")
    for out in (memory[:8], memory[4:], memory[2:10], memory[::-1][:8]):
        memory[...] = np.arange(12)
        x, y = memory[:8], memory[4:]
        expected = sums.reference(x, y)
        kernel = dispatch(sums, (8,), dtype="float64")
        assert kernel(x, y, out=out) is out
        np.testing.assert_array_equal(out, expected)


def test_dsp_1_what_is_written_to_must_be_writable_and_apart() -> None:
    @operation(inputs="x[N] y[N]", outputs="x[N] y[N]", name="dsp_1_swap")
    def swap(x: Any, y: Any) -> Any:
        """Each in the other's place."""
        return y, x

    @variant(swap, "by_copy")
    def by_copy(x: Any, y: Any) -> None:
        x[...], y[...] = y.copy(), x.copy()

    kernel = dispatch(swap, (4,), dtype="float32")
    memory = np.arange(6, dtype="f4")
    with pytest.raises(ShapeError, match="two arrays that it writes to share memory"):
        kernel(memory[:4], memory[2:])
    frozen = np.arange(4, dtype="f4")
    frozen.flags.writeable = False
    with pytest.raises(ShapeError, match="y is updated in place and is read-only"):
        kernel(memory[:4], frozen)
    assert kernel.variant == "by_copy"


def test_dsp_2_a_dtype_is_part_of_the_key_however_it_is_spelled() -> None:
    target = doubling("dsp_2", dtypes=("float16", "float32"))
    variant(target, "half_only", dtypes=["float16"], passes=OWNED)(double)
    variant(target, "any", passes=OWNED)(double_slowly)
    keep(target, {"half_only": 1e-6, "any": 2e-6}, dtype="float16")
    half = dispatch(target, (8,), dtype="float16")
    assert (half.variant, half.origin) == ("half_only", "tuned")
    for spelling in (np.float16, "<f2", "fp16", np.dtype("float16"), "f2"):
        assert dispatch(target, (8,), dtype=spelling) is half
    other = dispatch(target, (8,), dtype="float32")
    assert (other.variant, other.origin == "tuned") == ("any", False)
    assert dispatch(target, ONES).variant == "any"
    for spelling in (">f2", "float8", "complex64", "int8", np.dtype(">f4")):
        with pytest.raises(UserError, match="dtype"):
            dispatch(target, (8,), dtype=spelling)
    with pytest.raises(UserError, match=r"'>f4'.* is not in this machine's byte order"):
        dispatch(target, ONES.astype(">f4"))


def test_dsp_3_flags_layouts_and_scalars_are_part_of_the_key() -> None:
    @operation(
        inputs="x[M,N]",
        outputs="y[M,N]",
        flags={"causal": False},
        scalars={"scale": "1"},
        name="dsp_3",
    )
    def masked(x: Any, *, causal: bool, scale: float) -> Any:
        """The lower triangle if causal."""
        return scale * (np.tril(x) if causal else x)

    @variant(masked, "full_only", constraints=["not causal"])
    def full_only(x: Any, y: Any, scale: float) -> None:
        np.multiply(x, scale, out=y)

    @variant(masked, "every")
    def every(x: Any, y: Any, causal: bool, scale: float) -> None:
        y[...] = scale * (np.tril(x) if causal else x)

    x = np.arange(12, dtype="f4").reshape(3, 4)
    plain = dispatch(masked, (3, 4), causal=False)
    causal = dispatch(masked, (3, 4), causal=True)
    assert causal.variant == "every"
    assert plain.problem.key != causal.problem.key
    strided = dispatch(masked, x.T.copy().T)
    assert strided.problem.key != plain.problem.key
    np.testing.assert_array_equal(causal(x), np.tril(x))
    np.testing.assert_array_equal(
        dispatch(masked, (3, 4), causal=True, scale=3.0)(x), 3 * np.tril(x)
    )
    np.testing.assert_array_equal(dispatch(masked, (3, 4), causal=True)(x), np.tril(x))
    np.testing.assert_array_equal(dispatch(masked, (3, 4))(x), x)


def test_dsp_4_many_sizes_take_microseconds_again_and_are_never_tuned() -> None:
    sizes = range(1000, 1200)
    for n in sizes:
        kernel = dispatch(autotune.attention, (1, 2, n, 16))
        assert kernel.problem.sizes["Nq"] == n
    started = time.perf_counter()
    for n in sizes:
        dispatch(autotune.attention, (1, 2, n, 16))
    assert (time.perf_counter() - started) / len(sizes) < 1e-4
    assert len(server()._kernels) == len(sizes)
    assert autotune.stats().misses == len(sizes)
    assert not settings().database.exists()  # nothing was measured


def test_dsp_4_the_table_of_kernels_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    target = with_variants(doubling("dsp_4"), "honest")
    monkeypatch.setattr("autotune.lookup._LARGEST", 50)
    monkeypatch.setattr("autotune.serving._LARGEST", 50)
    for n in range(1, 200):
        dispatch(target, (n,))
    assert len(lookup._hits) <= 50
    assert len(server()._kernels) <= 50
    assert server()._busy == {}


def test_dsp_6_a_winner_that_is_gone_is_named_once_and_the_next_best_serves(
    caplog: pytest.LogCaptureFixture, run: Run
) -> None:
    target = doubling("dsp_6")
    for name in "abc":
        variant(target, name, passes=OWNED)(double)
    keep(target, {"a": 3e-6, "b": 2e-6, "c": 1e-6})
    assert dispatch(target, (8,)).variant == "c"

    del registry._variants["dsp_6"]["c"]
    restart()
    with caplog.at_level(logging.WARNING, logger="autotune"):
        kernels = [dispatch(target, [8]), dispatch(target, ONES)]
    assert {kernel.variant for kernel in kernels} == {"b"}
    assert "passed over c: it is not registered any more" in kernels[0].explain()
    (warning,) = caplog.records
    assert "c was measured for dsp_6" in warning.getMessage()
    assert "b serves. Measure again: autotune tune dsp_6" in warning.getMessage()
    assert "not registered" in run("show", "dsp_6").flat

    left = registry._variants["dsp_6"]
    registry._variants["dsp_6"] = dict(reversed(list(left.items())))  # reordered
    restart()
    assert dispatch(target, (8,)).variant == "b"
    variant(target, "d", passes=OWNED)(double)  # c under another name
    restart()
    assert dispatch(target, (8,)).variant == "b"
