"""The study's arrangements, and what it left out, on this machine's GPU."""

from __future__ import annotations

from typing import Any

import pytest
from contract import (
    DEPTHS,
    SCALES,
    SHAPES,
    SMALL,
    UNALIGNED,
    Candidate,
    Case,
    candidates,
    check,
    check_repeats,
    large_magnitudes,
    repeated,
)

from autotune import model
from autotune.model import Config, Problem, is_deterministic, predict
from autotune.model.space import default_config
from autotune.profile import NoCountersError, profile
from autotune.registry import registry

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("compiled")]

STUDY = ("cuda_stored", "cuda_separate", "cuda_v2", "cuda_v3", "cuda_v4")
ARRANGED = (*STUDY, "cuda_arranged")
# Widths of values that differ from those of keys, and none at all.
WIDTHS = (
    Case((("B", 1), ("H", 2), ("Hkv", 1), ("Nq", 65), ("Nk", 63), ("D", 40), ("Dv", 96))),
    Case((("B", 2), ("H", 1), ("Nq", 7), ("Nk", 129), ("D", 33), ("Dv", 1)), causal=True),
    Case((("B", 1), ("H", 2), ("Nq", 9), ("Nk", 70), ("D", 0), ("Dv", 5)), layout="strided"),
    Case((("B", 1), ("H", 4), ("Hkv", 2), ("Nq", 12), ("Nk", 9), ("D", 300), ("Dv", 17))),
)


@pytest.mark.parametrize("candidate", list(candidates(SHAPES, ARRANGED, share=4)), ids=str)
def test_shapes(candidate: Candidate, device: Any, memory: Any) -> None:
    check(candidate, device, memory, additions=one_by_one(candidate))


def one_by_one(candidate: Candidate) -> int:
    """Terms of a gradient of a key that the study's forms add in float32, each for itself."""
    if candidate.problem.dtype != "float32" or is_deterministic(candidate.declared):
        return 0
    sizes = candidate.problem.sizes
    return sizes["H"] // max(sizes["Hkv"], 1) * sizes["Nq"]


@pytest.mark.parametrize("candidate", list(candidates(DEPTHS, ARRANGED)), ids=str)
def test_depths(candidate: Candidate, device: Any, memory: Any) -> None:
    check(candidate, device, memory, additions=one_by_one(candidate))


@pytest.mark.parametrize("candidate", list(candidates(WIDTHS, ARRANGED, share=4)), ids=str)
def test_widths(candidate: Candidate, device: Any, memory: Any) -> None:
    check(candidate, device, memory)


@pytest.mark.parametrize(
    "candidate", list(candidates(SHAPES, ("cuda_arranged",), share=5, seed=1)), ids=str
)
def test_random_configs(candidate: Candidate, device: Any, memory: Any) -> None:
    check(candidate, device, memory)


@pytest.mark.parametrize("candidate", list(candidates(SMALL, ARRANGED)), ids=str)
def test_one_query_or_none(candidate: Candidate, device: Any, memory: Any) -> None:
    check(candidate, device, memory)


@pytest.mark.parametrize("candidate", list(candidates(SCALES, ARRANGED)), ids=str)
def test_negative_and_zero_scale(candidate: Candidate, device: Any, memory: Any) -> None:
    check(candidate, device, memory)


@pytest.mark.parametrize("candidate", large_magnitudes(ARRANGED), ids=str)
def test_large_magnitudes(candidate: Candidate, device: Any, memory: Any) -> None:
    check(candidate, device, memory)


@pytest.mark.parametrize("candidate", list(candidates((UNALIGNED,), ARRANGED)), ids=str)
def test_unaligned_addresses(candidate: Candidate, device: Any, memory: Any) -> None:
    check(candidate, device, memory)


@pytest.mark.parametrize("candidate", repeated(ARRANGED), ids=str)
def test_repeats(candidate: Candidate, device: Any, memory: Any) -> None:
    check_repeats(candidate, device, memory)


@pytest.mark.xdist_group("counters")  # one profiler at a time
@pytest.mark.parametrize(
    ("name", "arrays"),
    [("separate", 1), ("v2", 2), ("v3", 1), ("v4", 0), ("arranged_gq_atomic", 1)],
)
def test_hardware_counts_the_atomics_that_are_declared(name: str, arrays: int, device: Any) -> None:
    operation = registry.operation("attention_train")
    problem = Problem.of(operation, (2, 1, 2048, 64), "float64")
    variant = registry.variant(operation, f"cuda_{name}")
    start = default_config(variant, problem, device)
    assert start is not None
    one = {tile: 1 for tile in ("rows", "columns") if tile in start}
    config = Config({**start, **one})
    try:
        counted = profile(problem, model.Candidate(variant.name, config), device)
    except NoCountersError as error:
        pytest.skip(f"cannot read hardware counters: {error}")
    assert counted.atomics == predict(variant, problem, config).atomics
    assert counted.atomics == arrays * 536_870_912
