"""The transformer block on this machine's GPU: parts that dispatch serves, and what is between."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest
from contract import Candidate, Case, candidates, check, check_repeats

from autotune import dispatch

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("compiled")]

NAMES = ("B", "N", "D", "F", "H", "Hkv", "Dh")
SHAPES = tuple(
    Case(tuple(zip(NAMES, sizes, strict=True)), causal=causal, layout=layout)
    for sizes, causal, layout in (
        ((2, 100, 64, 256, 1, 1, 64), False, "packed"),
        ((1, 65, 64, 96, 4, 2, 16), True, "strided"),
        ((2, 33, 48, 80, 2, 2, 24), True, "packed"),
        ((1, 7, 200, 72, 2, 1, 100), False, "packed"),
    )
)
REPEATED = Case((("B", 2), ("N", 512), ("D", 64), ("F", 256)))


def of_block(*cases: Case) -> list[Candidate]:
    """All operations of the block on the cases."""
    return list(candidates(cases, ("cuda_parts",)))


@pytest.mark.parametrize("candidate", of_block(*SHAPES), ids=str)
def test_shapes(candidate: Candidate, device: Any, memory: Any) -> None:
    check(candidate, device, memory)


@pytest.mark.parametrize("candidate", of_block(REPEATED), ids=str)
def test_repeats(candidate: Candidate, device: Any, memory: Any) -> None:
    check_repeats(candidate, device, memory)


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_dispatch_serves_it_and_a_graph_replays_it(library: str, device: Any) -> None:
    cupy: Any = import_module("cupy")
    rng = np.random.default_rng(5)
    shapes = [(2, 130, 64), (64,), *[(64, 1, 64)] * 3, (64,), (64, 256), (64, 256), (256, 64)]
    host = [rng.standard_normal(shape) / 8 for shape in [*shapes, (2, 130, 64)]]
    if library == "torch":
        torch: Any = pytest.importorskip("torch")
        tensors = [torch.as_tensor(each).to("cuda") for each in host]
        found = dispatch("transformer_block_train", *tensors)(*tensors)
        results = [each.cpu().numpy() for each in found]
    else:
        arrays = [cupy.asarray(each) for each in host]
        kernel = dispatch("transformer_block_train", *arrays)
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            kernel(*arrays)
            stream.begin_capture()
            found = kernel(*arrays)
            graph = stream.end_capture()
            graph.launch(stream)
        stream.synchronize()
        results = [each.get() for each in found]
    problem = dispatch("transformer_block_train", *host).problem
    right = problem.operation.reference(*host, causal=False, eps=1e-6)
    for one, two in zip(results, right, strict=True):
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-11 * max(np.abs(two).max(), 1))
