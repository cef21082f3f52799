"""The CUDA block with arrays on a device: its parts are kernels as dispatch hands them out.

What the block launches itself is NumPy's here, on the current stream like a launch;
tests/emulation runs its CUDA sources.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import fake_cupy as fake
import numpy as np
import pytest
from gpu_kernels import Gpu

from autotune.cuda.cublas import Layout
from autotune.execution import Executable
from autotune.kernel import Kernel
from autotune.model import Config, Intermediate, Problem, Variant
from autotune.plugins import load_plugins
from autotune.registry import registry
from autotune.serving import Served

KIND = np.dtype("float64")
SIZES = {"B": 2, "N": 5, "D": 8, "F": 6, "H": 4, "Hkv": 2}


def launched(run: Callable[..., None]) -> Callable[..., None]:
    """`run` as work for the current stream."""
    return lambda *arguments: fake.current().enqueue(partial(run, *arguments))


def referenced(operation: Any) -> Variant:
    """A variant that computes the operation's reference, with a temporary of its own."""

    def build(problem: Any, config: Any) -> Any:
        count, scalars = len(problem.operation.inputs), problem.operation.scalars

        def run(*arguments: Any) -> None:
            arrays = fake.host(arguments[: len(arguments) - len(scalars)])
            known = dict(zip(scalars, arguments[len(arrays) :], strict=True))
            found = problem.operation.reference(*arrays[:count], **problem.flags, **known)
            results = found if isinstance(found, tuple) else (found,)
            for target, values in zip(arrays[count:], results, strict=False):
                target[...] = values
            arrays[-1][...] = np.nan  # the temporary lies in the room, not in a result

        return launched(run)

    room = Intermediate("scratch", (64,))
    return Variant("referenced", operation, build, device="cuda", intermediates=(room,))


def kernel_for(name: str, *, dims: Mapping[str, int], dtype: str, **options: Any) -> Kernel:
    """As `dispatch`, of that variant."""
    flags = {key: options[key] for key in ("causal", "residual") if key in options}
    problem = Problem.of(registry.operation(name), dims, dtype, **flags)
    served = Served(referenced(problem.operation), Config({}), "pinned", "", problem, Gpu())
    return Kernel(problem, served, device=Gpu(), scalars={}, serve_next=_raise)


def _raise(failed: str, error: BaseException) -> Served:
    raise error


def normed(
    sizes: tuple[int, int], dtype: str, config: Any, names: Sequence[str], entries: Sequence[str]
) -> Callable[..., None]:
    """In place of launches of the normalisation."""

    def run(*arguments: Any) -> None:
        *arrays, eps = fake.host(arguments)
        given = {
            n: a if n in _WHOLE else a.reshape(sizes) for n, a in zip(names, arrays, strict=True)
        }
        if "backward_rows" in entries:
            backward = registry.operation("rmsnorm_backward").reference
            grad_x, grad_weight = backward(given["x"], given["weight"], given["grad_out"], eps=eps)
            given["grad_x"][...] = grad_x + given["above"]
            given["grad_weight"][...] = grad_weight
            return
        x = given["x"] + given.get("added", 0)
        if "sum" in given:
            given["sum"][...] = x
        if "normalise" in entries:
            forward = registry.operation("rmsnorm").reference
            given["out"][...] = forward(x, given["weight"], eps=eps)

    return launched(run)


_WHOLE = ("weight", "grad_weight", "parts")


def moved(entry: str, itemsize: int, rows: int, widths: Sequence[int]) -> Callable[..., None]:
    """In place of the launch that puts weights side by side, or apart."""

    def move(addresses: Sequence[int]) -> None:
        joined = fake.at(addresses[0], (rows, sum(widths)), KIND)
        columns = np.split(joined, np.cumsum(widths)[:-1], axis=1)
        for address, width, column in zip(addresses[1:], widths, columns, strict=True):
            part = fake.at(address, (rows, width), KIND)
            target, source = (column, part) if entry == "join" else (part, column)
            target[...] = source

    return launched(move)


def multiplied(
    dtype: str, a: tuple[int, Layout], b: tuple[int, Layout], c: tuple[int, Layout]
) -> Callable[..., None]:
    """In place of a product by cuBLAS."""

    def step(handle: int, addresses: Sequence[int]) -> None:
        left, right, target = (
            fake.at(addresses[place], (m.rows, m.columns), KIND, (m.row_step, m.column_step))
            for place, m in (a, b, c)
        )
        target[...] = left @ right

    return launched(step)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, fake_cupy: Any) -> Any:
    load_plugins()
    for name, stand_in in (
        ("norm_launches", normed),
        ("columns", moved),
        ("product", multiplied),
        ("BlasHandle", lambda room, nbytes: nullcontext(1)),
    ):
        monkeypatch.setattr(f"autotune_variants.block.cuda.parts.{name}", stand_in)
    monkeypatch.setattr("autotune_variants.block.parts.dispatch", kernel_for)
    return fake_cupy


BLOCKS = [
    (operation + suffix, name)
    for operation in ("transformer_block", "projected_block")
    for suffix in ("", "_train")
    for name in ("cuda_parts", "cuda_parts_norm_mlp")
]
BLOCKS += [(operation, f"{name}_atomic") for operation, name in BLOCKS if "train" in operation]


class Block:
    """A variant of an operation, its arrays on the device, and its reference."""

    def __init__(self, gpu: Any, operation: str, name: str) -> None:
        sizes = {**SIZES, "Dh": 4} if operation.startswith("projected_block") else SIZES
        self.problem = Problem.of(registry.operation(operation), sizes, "float64", causal=True)
        variant = registry.variant(self.problem.operation, name)
        self.executable = Executable(variant, self.problem, {"room": 1}, Gpu())
        sample = self.problem.operation.sample(self.problem, np.random.default_rng(2))
        self.inputs = [gpu.asarray(each) for each in sample]
        shapes = [t.shape(self.problem.sizes) for t in self.problem.operation.outputs]
        self.outputs = [gpu.empty(shape, KIND) for shape in shapes]
        self.room = gpu.empty(self.executable.layout.nbytes, np.dtype("uint8"))

    def check(self, **options: Any) -> None:
        """Call it and compare."""
        for each in self.outputs:
            fake.host(each)[...] = np.nan
        self.executable(*self.inputs, *self.outputs, 1e-6, **options)
        right = self.problem.operation.reference(*fake.host(self.inputs), causal=True, eps=1e-6)
        expected = right if isinstance(right, tuple) else (right,)
        for found, each in zip(self.outputs, expected, strict=True):
            np.testing.assert_allclose(found.get(), each, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("operation", "name"), BLOCKS)
def test_it_is_its_reference(gpu: Any, operation: str, name: str) -> None:
    Block(gpu, operation, name).check()


@pytest.mark.parametrize(("operation", "name"), BLOCKS)
def test_parts_repeat_bitwise_where_the_block_does(
    gpu: Any, monkeypatch: pytest.MonkeyPatch, operation: str, name: str
) -> None:
    asked = []

    def recorded(part: str, **options: Any) -> Any:
        asked.append(options["deterministic"])
        return kernel_for(part, **options)

    monkeypatch.setattr("autotune_variants.block.parts.dispatch", recorded)
    Block(gpu, operation, name).check()
    assert set(asked) == {not name.endswith("_atomic")}


@pytest.mark.parametrize(("operation", "name"), BLOCKS)
def test_a_call_that_comes_again_is_replayed(
    gpu: Any, monkeypatch: pytest.MonkeyPatch, operation: str, name: str
) -> None:
    monkeypatch.setattr("autotune.cuda.replayed._alone", lambda: True)
    block = Block(gpu, operation, name)
    for graphs in range(4):
        block.check(workspace=block.room)
        assert len(gpu.graphs) == graphs
        block.inputs[0] *= 0.5


def test_strided_arrays_run_as_they_are(gpu: Any) -> None:
    block = Block(gpu, "transformer_block_train", "cuda_parts")
    for arrays in (block.inputs, block.outputs):
        whole = gpu.empty((*arrays[0].shape, 2), KIND)
        whole[..., 0] = arrays[0]
        arrays[0] = whole[..., 0]
    for _ in range(3):
        block.check(workspace=block.room)
    assert gpu.graphs == []
