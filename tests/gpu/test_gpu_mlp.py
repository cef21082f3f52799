"""The gated MLP, alone and behind a normalisation, on this machine's GPU."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest
from contract import Candidate, Case, candidates, check, check_repeats

from autotune.execution import Executable
from autotune.model import Problem
from autotune.model.space import default_config
from autotune.registry import registry

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("compiled")]

VARIANTS = ("cuda_blas", "cuda_dmma", "cuda_tf32x3", "cuda_mma", "cuda_split_half")
SHAPES = tuple(
    Case((("N", n), ("D", d), ("F", f)), layout=layout, residual=residual)
    for n, d, f, layout, residual in (
        *((1, 1, 1, "packed", False), (7, 64, 256, "packed", True)),
        *((1000, 64, 256, "strided", True), (129, 48, 80, "packed", False)),
        *((65, 17, 33, "strided", False), (300, 64, 100, "packed", True)),
        (33, 200, 72, "packed", True),
    )
)
STUDY = Case((("N", 8192), ("D", 64), ("F", 256)), residual=True)
UNALIGNED = Case((("N", 150), ("D", 64), ("F", 64)), layout="unaligned")
REPEATED = Case((("N", 5000), ("D", 64), ("F", 256)))


def of_mlp(*cases: Case, seed: int | None = None) -> list[Candidate]:
    """All operations of the MLP on the cases."""
    return list(candidates(cases, VARIANTS, seed=seed))


@pytest.mark.parametrize("candidate", of_mlp(*SHAPES, UNALIGNED), ids=str)
def test_shapes(candidate: Candidate, device: Any, memory: Any) -> None:
    check(candidate, device, memory)


@pytest.mark.parametrize("candidate", of_mlp(STUDY), ids=str)
def test_the_study_s_widths(candidate: Candidate, device: Any, memory: Any) -> None:
    check(candidate, device, memory)


@pytest.mark.parametrize("candidate", of_mlp(*SHAPES[1:4], seed=1), ids=str)
def test_random_configs(candidate: Candidate, device: Any, memory: Any) -> None:
    check(candidate, device, memory)


@pytest.mark.parametrize("candidate", of_mlp(REPEATED), ids=str)
def test_repeats(candidate: Candidate, device: Any, memory: Any) -> None:
    check_repeats(candidate, device, memory)


@pytest.mark.parametrize("name", ["cuda_blas", "cuda_tf32x3", "cuda_split_half"])
def test_a_graph_and_another_stream_give_the_same_bits(name: str, device: Any) -> None:
    cupy: Any = import_module("cupy")
    rng = np.random.default_rng(3)
    shapes = [(700, 64), (64,), (64, 256), (64, 256), (256, 64), (700, 64)]
    arrays = [cupy.asarray(rng.standard_normal(shape), "float32") for shape in shapes]
    problem = Problem.of(registry.operation("norm_mlp_train"), (700, 64, 256))
    variant = registry.variant(problem.operation, name)
    config = default_config(variant, problem, device)
    assert config is not None
    kernel = Executable(variant, problem, config, device)
    outputs = [arrays[0], *arrays[:-1]]
    captured, right = (list(map(cupy.empty_like, outputs)) for _ in "ab")
    stream, other = (cupy.cuda.Stream(non_blocking=True) for _ in "ab")
    cupy.cuda.Device().synchronize()
    with stream:
        kernel(*arrays, *captured, 1e-6)
        stream.begin_capture()
        kernel(*arrays, *captured, 1e-6)
        graph = stream.end_capture()
        arrays[0] *= 0.5
        stream.synchronize()
        graph.launch(stream)
    with other:
        kernel(*arrays, *right, 1e-6)
    stream.synchronize()
    other.synchronize()
    for one, two in zip(captured, right, strict=True):
        np.testing.assert_array_equal(one.get(), two.get())
