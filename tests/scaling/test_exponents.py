"""Local exponents, their intervals, and jumps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scaling_bench import problem

from autotune.errors import UserError
from autotune.model import Config, Prediction
from autotune.plugins import load_plugins
from autotune.registry import registry
from autotune.scaling import Point, steps, varied


def point(size: int, seconds: float, *, work: int = 0, moved: int = 0, count: int = 21) -> Point:
    samples = tuple(seconds * (1.0 + 0.001 * (n % 9 - 4)) for n in range(count))
    prediction = Prediction(moved, 0, 0, 1, work, 0)
    return Point(size, Config({}), samples, prediction, compulsory_bytes=8 * size)


def test_a_power_law_has_its_exponent_within_its_interval() -> None:
    curve = [point(n, 1e-9 * n**2.5) for n in (64, 128, 512)]
    found = steps(curve)
    assert [(step.before, step.after) for step in found] == [(64, 128), (128, 512)]
    for step in found:
        assert step.exponent == pytest.approx(2.5)
        assert step.low < 2.5 < step.high
        assert step.covers
    assert found[0].high - found[0].low > found[1].high - found[1].low  # over two doublings


def test_predicted_exponents_are_those_of_bytes_and_of_flops() -> None:
    one = point(64, 1e-3, work=64**2, moved=64)
    other = point(128, 2e-3, work=128**2, moved=2 * 64)
    (step,) = steps([one, other])
    assert (step.bytes_exponent, step.flops_exponent) == (1.0, 2.0)
    assert step.predicted == 2.0
    (undeclared,) = steps([point(64, 1e-3), point(128, 2e-3)])
    assert (undeclared.bytes_exponent, undeclared.flops_exponent) == (1.0, None)


def test_growth_beyond_bytes_and_flops_is_a_jump() -> None:
    before = point(2048, 1.0, work=2048**2, moved=2048)
    as_predicted = point(4096, 4.1, work=4096**2, moved=4096)
    jumping = point(4096, 12.45, work=4096**2, moved=4096)
    assert steps([before, as_predicted])[0].jump is None
    assert steps([before, jumping])[0].jump == pytest.approx(12.45 / 4.0, rel=0.01)
    assert steps([before, point(4096, 12.45, work=4096**2, count=3)])[0].jump is None
    stalled = replace(jumping, status="disturbed", samples=(4.0, *jumping.samples))
    assert steps([before, replace(stalled, status="ok")])[0].jump is not None
    assert steps([before, stalled])[0].jump is None
    spoilt = replace(jumping, size=8192, status="disturbed")
    assert [step.disturbed for step in steps([before, jumping, spoilt])] == [False, True]


def test_a_size_without_times_is_stepped_over() -> None:
    missing = Point(128, Config({}), (), Prediction(0, 0, 0, 1, 0, 0), 8, "failed", "no")
    (step,) = steps([point(64, 1e-3), missing, point(256, 4e-3)])
    assert (step.before, step.after) == (64, 256)
    assert step.exponent == pytest.approx(1.0, abs=0.01)


def test_varied_sizes_come_with_their_problems() -> None:
    operation = registry.operation("toy_cube")
    name, sized = varied(operation, "N=8:32", "M=2", dtype="float64")
    assert name == "N"
    assert sized == [(8, problem(8)), (16, problem(16)), (32, problem(32))]


def test_an_alias_varies_all_its_dims_and_defaults_are_filled_in() -> None:
    load_plugins()
    _, sized = varied(
        registry.operation("attention"), "N=64:192:64", "B=2,H=1,D=32", flags={"causal": True}
    )
    assert [(n, p.sizes["Nq"], p.sizes["Nk"]) for n, p in sized] == [
        (64, 64, 64),
        (128, 128, 128),
        (192, 192, 192),
    ]
    assert all(p.flags == {"causal": True} for _, p in sized)


@pytest.mark.parametrize(
    ("vary", "shape", "told"),
    [
        ("64:128", "M=2", "write one dim, such as N=64:8192"),
        ("N=8:16,M=2", None, "write one dim"),
        ("N=8", "M=2", "N=8 is one size"),
        ("N=8:16", "M=2:4", "only the dim after --vary"),
        ("N=8:16", "2", "write every other dim as B=2"),
        ("N=8:16", "M=2,N=4", "N is varied; leave it out"),
        ("K=8:16", "M=2", "'K'"),
        ("N=0:16:8", "M=2", "sizes above zero"),
        ("N=8:16", None, "also needs the dim M"),
        ("N=8:", "M=2", "cannot read the size"),
    ],
)
def test_what_cannot_be_varied_is_one_sentence(vary: str, shape: str | None, told: str) -> None:
    with pytest.raises(UserError) as caught:
        varied(registry.operation("toy_cube"), vary, shape)
    assert told in str(caught.value)
