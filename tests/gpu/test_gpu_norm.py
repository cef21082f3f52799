"""rmsnorm and its backward on this machine's GPU."""

from __future__ import annotations

from typing import Any

import pytest
from contract import Candidate, Case, candidates, check, check_repeats

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("compiled")]

SHAPES = tuple(
    Case((("N", n), ("D", d)), layout=layout)
    for n, d, layout in (
        *((1, 1, "packed"), (7, 64, "packed"), (1000, 64, "strided"), (129, 80, "packed")),
        *((65, 1000, "packed"), (33, 4096, "packed"), (8, 7, "strided"), (0, 64, "packed")),
    )
)
UNALIGNED = Case((("N", 50), ("D", 64)), layout="unaligned")
REPEATED = Case((("N", 5000), ("D", 256)))


def of_norm(*cases: Case, seed: int | None = None) -> list[Candidate]:
    """Both operations on the cases."""
    return list(candidates(cases, ("cuda_rows",), seed=seed))


@pytest.mark.parametrize("candidate", of_norm(*SHAPES, UNALIGNED), ids=str)
def test_shapes(candidate: Candidate, device: Any, memory: Any) -> None:
    check(candidate, device, memory)


@pytest.mark.parametrize("candidate", of_norm(*SHAPES, seed=1), ids=str)
def test_random_configs(candidate: Candidate, device: Any, memory: Any) -> None:
    check(candidate, device, memory)


@pytest.mark.parametrize("candidate", of_norm(REPEATED), ids=str)
def test_repeats(candidate: Candidate, device: Any, memory: Any) -> None:
    check_repeats(candidate, device, memory)
