"""The CUDA block with arrays on a device: its parts are kernels as dispatch hands them out.

What the block launches itself is NumPy's here; tests/emulation runs its CUDA sources.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
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

        return run

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

    return run


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

    return move


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

    return step


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


@pytest.mark.parametrize("operation", ["transformer_block", "projected_block"])
@pytest.mark.parametrize("suffix", ["", "_train"])
@pytest.mark.parametrize("name", ["cuda_parts", "cuda_parts_norm_mlp"])
def test_it_is_its_reference(gpu: Any, operation: str, suffix: str, name: str) -> None:
    sizes = {**SIZES, "Dh": 4} if operation == "projected_block" else SIZES
    problem = Problem.of(registry.operation(operation + suffix), sizes, "float64", causal=True)
    variant = registry.variant(problem.operation, name)
    rng = np.random.default_rng(2)
    inputs = problem.operation.sample(problem, rng)
    outputs = [gpu.empty(t.shape(problem.sizes), KIND) for t in problem.operation.outputs]
    executable = Executable(variant, problem, {"room": 1}, Gpu())
    executable(*map(gpu.asarray, inputs), *outputs, 1e-6)
    right = problem.operation.reference(*inputs, causal=True, eps=1e-6)
    for found, each in zip(outputs, right if suffix else (right,), strict=True):
        np.testing.assert_allclose(found.get(), each, rtol=1e-11, atol=1e-12)
