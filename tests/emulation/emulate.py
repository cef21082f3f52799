"""Runs CUDA variants on the host: their sources, macros, grids and argument structs as they are."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.arrays import array_dtype
from autotune.cuda.launch import CudaFunction
from autotune.model import Config, Problem
from autotune.model.traits import intermediate_shapes
from autotune.plugins import load_plugins
from autotune.registry import registry

_SHARED = "extern __shared__ __align__(16) unsigned char shared[];"
_INCLUDE = re.compile(r'#include "(?:[^"/]+/)+')  # of another folder: all files are put in one
HERE = Path(__file__).parent
_DRIVER = """#include "warp.h"
#include "{source}"
#ifndef CLUSTER
#define CLUSTER 1
#endif
extern "C" void launch(const void* arguments, int x, int y, int z, int threads) {{
  run({{x, y, z}}, threads, CLUSTER, [&] {{ {entry}(*static_cast<const Args*>(arguments)); }});
}}
"""


class HostArray:
    """A NumPy array as a launch sees one of CuPy's."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array
        self.data = type("Data", (), {"ptr": array.ctypes.data})
        self.strides, self.itemsize = array.strides, array.itemsize
        self.shape, self._c_contiguous = array.shape, array.flags.c_contiguous

    def reshape(self, *shape: Any) -> HostArray:
        """A view, as CuPy makes one of a packed array."""
        assert self._c_contiguous
        return HostArray(self.array.reshape(*shape))

    def swapaxes(self, one: int, other: int) -> HostArray:
        """A view."""
        return HostArray(self.array.swapaxes(one, other))

    def __getitem__(self, key: Any) -> HostArray:
        return HostArray(self.array[key])

    def copy(self) -> HostArray:
        """Packed, as CuPy copies."""
        return HostArray(self.array.copy())

    def __setitem__(self, key: Any, value: HostArray) -> None:
        self.array[key] = value.array


def compiler() -> str:
    """A C++ compiler, or a skip that says so."""
    found = shutil.which("g++") or shutil.which("clang++")
    if found is None:
        pytest.skip("needs a C++ compiler (the package g++) to run CUDA sources on the host")
    return found


def emulate(monkeypatch: pytest.MonkeyPatch, folder: Path, instructions: str | None = None) -> None:
    """Have launchers run on the host; `instructions` stands for a family's own PTX."""

    def launcher(
        self: CudaFunction,
        *,
        grid: Any,
        block: Any,
        arguments: str,
        shared: int = 0,
        dependent: bool = False,
    ) -> Callable[[bytes], None]:
        library = _built(self, folder, instructions)

        def launch(packed: bytes) -> None:
            assert f"S{len(packed)}" == arguments
            assert shared <= 1 << 18
            kept = ctypes.create_string_buffer(packed, len(packed))
            library.launch(kept, *(int(each) for each in grid), int(block[0]))

        return launch

    monkeypatch.setattr(CudaFunction, "launcher", launcher)


def _built(function: CudaFunction, folder: Path, instructions: str | None) -> ctypes.CDLL:
    """The kernel as a library: its files beside the emulated warp, what is PTX replaced."""
    own = folder / f"{function.entry}-{abs(hash(function.macros))}"
    if own.exists():
        return ctypes.CDLL(str(own / "kernel.so"))
    own.mkdir()
    for file in function.source.files():
        text = file.read_text().replace(_SHARED, "unsigned char* shared = block->shared;")
        text = _INCLUDE.sub('#include "', text)
        (own / file.name).write_text(text.replace("__shared__", "static"))
    for stand_in in (HERE / "warp.h", *(HERE / "host").iterdir()):
        shutil.copy(stand_in, own)
    if instructions is not None:
        shutil.copy(HERE / instructions, own / "instructions.cuh")
    names = {"source": function.source.path.name, "entry": function.entry}
    (own / "driver.cpp").write_text(_DRIVER.format(**names))
    macros = [f"-D{name}={_spelled(value)}" for name, value in function.macros]
    command = [compiler(), "-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-pthread", *macros]
    done = subprocess.run(
        [*command, "driver.cpp", "-o", "kernel.so"], cwd=own, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[:2000]
    return ctypes.CDLL(str(own / "kernel.so"))


def _spelled(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def run(
    operation: str,
    variant: str,
    sizes: dict[str, int],
    config: dict[str, Any],
    dtype: str,
    *,
    layout: str = "packed",
    **flags: Any,
) -> float:
    """The largest error of a variant's outputs, over the largest output."""
    load_plugins()
    problem = Problem.of(registry.operation(operation), sizes, dtype, **flags)
    kind, rng = array_dtype(dtype), np.random.default_rng(1)
    sample = problem.operation.sample
    drawn = sample(problem, rng) if sample is not None else _normal(problem, rng)
    given = [_laid_out(each.astype(kind), layout) for each in drawn]
    outputs = [
        _laid_out(np.full(each.shape(problem.sizes), np.nan, kind), layout)
        for each in problem.operation.outputs
    ]
    declared = registry.variant(operation, variant)
    temporaries = [
        _poisoned(shape, name)
        for shape, name in intermediate_shapes(declared, problem, Config(config))
    ]
    scalars = problem.scalars()
    built = declared.build(problem, Config(config))
    built(*map(HostArray, (*given, *outputs, *temporaries)), *scalars)
    named = dict(zip(problem.operation.scalars, scalars, strict=True))
    wide = [each.astype("f8") for each in given]
    right = problem.operation.reference(*wide, **problem.flags, **named)
    found = right if isinstance(right, tuple) else (right,)
    return max(
        float(np.abs(out.astype("f8") - each).max() / max(np.abs(each).max(), 1e-30))
        for out, each in zip(outputs, found, strict=True)
    )


def few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grids and blocks of normalisations that are steps of others as small as they may be."""
    config = {"lanes": 32, "block": 64, "blocks": 2}
    for user in ("mlp.cuda.whole", "block.cuda.parts"):
        monkeypatch.setattr(f"autotune_variants.{user}.norm_config", lambda *_: config)


def _normal(problem: Problem, rng: np.random.Generator) -> list[np.ndarray[Any, Any]]:
    return [rng.standard_normal(t.shape(problem.sizes)) for t in problem.operation.inputs]


def _laid_out(array: np.ndarray[Any, Any], layout: str) -> np.ndarray[Any, Any]:
    """Packed, transposed in memory, or besides every second element of each dim ("scattered")."""
    if layout == "packed":
        return array
    step = 2 if layout == "scattered" else 1
    room = np.zeros([step * size for size in array.shape[::-1]], array.dtype)
    view = room.T[tuple(slice(None, None, step) for _ in array.shape)]
    view[...] = array
    return view


def _poisoned(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    if dtype == "uint8":
        return np.empty(shape, dtype)
    return np.full(shape, np.nan, array_dtype(dtype))
