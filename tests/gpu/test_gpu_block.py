"""The transformer block on this machine's GPU: parts that dispatch serves, and what is between."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest
from contract import Candidate, Case, candidates, check, check_repeats

from autotune import dispatch
from autotune.cuda import replayed

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


TRAIN = (
    *((2, 130, 64), (64,), (64, 1, 64), (64, 1, 64), (64, 1, 64)),
    *((64,), (64, 256), (64, 256), (256, 64), (2, 130, 64)),
)


class OfCupy:
    """The block on arrays of CuPy's, on a stream of its own."""

    def __init__(self, host: list[Any]) -> None:
        self._cupy: Any = import_module("cupy")
        self.stream = self._cupy.cuda.Stream(non_blocking=True)
        with self.stream:
            self.arrays = [self._cupy.asarray(each) for each in host]

    def empty(self, shape: Any, dtype: str) -> Any:
        """An array."""
        return self._cupy.empty(shape, dtype)

    def current(self) -> Any:
        """Its stream as the current one."""
        return self.stream

    def host(self, array: Any) -> Any:
        """Values, once the stream has got so far."""
        return array.get(stream=self.stream)


class OfTorch:
    """The same of torch's."""

    def __init__(self, host: list[Any]) -> None:
        self._torch: Any = pytest.importorskip("torch")
        self.stream = self._torch.cuda.Stream()
        with self.current():
            self.arrays = [self._torch.as_tensor(each).to("cuda") for each in host]

    def empty(self, shape: Any, dtype: str) -> Any:
        """A tensor."""
        return self._torch.empty(shape, dtype=getattr(self._torch, dtype), device="cuda")

    def current(self) -> Any:
        """Its stream as the current one."""
        return self._torch.cuda.stream(self.stream)

    def host(self, array: Any) -> Any:
        """Values, once the stream has got so far."""
        self.stream.synchronize()
        return array.cpu().numpy()


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The graphs that calls are replayed as, in order; other tests may have left threads."""
    found: list[Any] = []
    launch = replayed._Graphs.launch

    def noted(graphs: Any, graph: Any) -> bool:
        found.append(graph)
        return launch(graphs, graph)

    monkeypatch.setattr(replayed._Graphs, "launch", noted)
    monkeypatch.setattr(replayed, "_alone", lambda: True)
    return found


@pytest.mark.parametrize("given", [True, False], ids=["workspace", "pool"])
@pytest.mark.parametrize("library", [OfCupy, OfTorch])
def test_a_call_that_comes_again_is_replayed(
    library: Any, given: bool, launched: list[Any], device: Any
) -> None:
    rng = np.random.default_rng(6)
    block = library([rng.standard_normal(shape) / 8 for shape in TRAIN])
    kernel = dispatch("transformer_block_train", *block.arrays, eps=1e-5)
    reference = kernel.problem.operation.reference
    with block.current():
        outputs = tuple(block.empty(shape, "float64") for shape in (TRAIN[0], *TRAIN[:-1]))
        room = {"workspace": block.empty(kernel.workspace_bytes, "uint8")} if given else {}
        for call in range(6):
            for each in outputs:
                each[...] = np.nan
            kernel(*block.arrays, out=outputs, **room)
            found = [block.host(each) for each in outputs]
            right = reference(*map(block.host, block.arrays), causal=False, eps=1e-5)
            for one, two in zip(found, right, strict=True):
                limit = 1e-11 * max(np.abs(two).max(), 1)
                np.testing.assert_allclose(one, two, rtol=0, atol=limit)
            if call == 3:
                for each in block.arrays:
                    each *= 0.75
    assert kernel.variant.startswith("cuda_parts")
    # Memory of a pool comes back at the same addresses, after a first call at the latest.
    assert len(launched) == 5 if given else len(launched) >= 3
    assert len({id(each) for each in launched}) == 1
