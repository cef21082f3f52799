"""decode on this machine's GPU."""

from __future__ import annotations

from typing import Any

import pytest
from contract import Candidate, Case, candidates, check, check_repeats

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("compiled")]

DECODE = ("cuda_split", "cuda_unsplit", "cuda_cluster")


def case(shape: tuple[int, ...], **unusual: Any) -> Case:
    """From (B, H, Hkv, N, D)."""
    return Case(tuple(zip(("B", "H", "Hkv", "N", "D"), shape, strict=True)), **unusual)


# Ragged caches and head sizes; groups of one, a few, and more than one product takes.
SHAPES = (
    case((1, 1, 1, 1, 64)),
    case((2, 4, 1, 7, 40), layout="strided"),
    case((1, 8, 8, 63, 72)),
    case((1, 16, 1, 65, 80)),
    case((3, 6, 2, 1000, 96), layout="strided"),
    case((1, 20, 2, 129, 128)),
    case((1, 1, 1, 5000, 64)),
    case((2, 12, 3, 2100, 48)),
    case((2, 32, 8, 513, 128)),
    case((1, 3, 3, 127, 192)),
    case((1, 4, 2, 300, 256)),
    case((1, 2, 1, 70, 7)),
    case((1, 1, 1, 33, 1), layout="strided"),
    case((1, 4, 2, 0, 64)),
    case((1, 4, 2, 200, 64), scale=-0.3),
    case((1, 4, 2, 200, 64), scale=0.0),
    case((2, 2, 1, 150, 64), layout="unaligned"),
)
REPEATED = case((1, 8, 2, 3000, 64))
LOUD = case((1, 4, 2, 300, 64), gain=30.0)


def _all_dtypes(one: Case) -> list[Candidate]:
    found = {each.variant for each in candidates((one,), DECODE)}
    dtypes = ("float64", "float32", "bfloat16", "float16")
    return [Candidate("decode", name, dtype, one) for name in sorted(found) for dtype in dtypes]


@pytest.mark.parametrize("candidate", list(candidates(SHAPES, DECODE)), ids=str)
def test_shapes(candidate: Candidate, device: Any, memory: Any) -> None:
    check(candidate, device, memory)


@pytest.mark.parametrize(
    "candidate",
    [each for seed in (1, 2) for each in candidates(SHAPES, DECODE, seed=seed)],
    ids=str,
)
def test_random_configs(candidate: Candidate, device: Any, memory: Any) -> None:
    check(candidate, device, memory)


@pytest.mark.parametrize("candidate", _all_dtypes(LOUD), ids=str)
def test_large_magnitudes(candidate: Candidate, device: Any, memory: Any) -> None:
    check(candidate, device, memory)


@pytest.mark.parametrize("candidate", _all_dtypes(REPEATED), ids=str)
def test_repeats(candidate: Candidate, device: Any, memory: Any) -> None:
    check_repeats(candidate, device, memory)
