"""Runs CUDA variants on the host: their sources, macros, grids and argument structs as they are."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.cuda.launch import CudaFunction

HERE = Path(__file__).parent
_DRIVER = """#include "warp.h"
#include "{source}"
extern "C" void launch(const void* arguments, int blocks, int threads) {{
  run(blocks, threads, [&] {{ {entry}(*static_cast<const Args*>(arguments)); }});
}}
"""


class HostArray:
    """A NumPy array as a launch sees one of CuPy's."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array
        self.data = type("Data", (), {"ptr": array.ctypes.data})
        self.strides, self.itemsize = array.strides, array.itemsize
        self._c_contiguous = array.flags.c_contiguous


def compiler() -> str:
    """A C++ compiler, or a skip that says so."""
    found = shutil.which("g++") or shutil.which("clang++")
    if found is None:
        pytest.skip("needs a C++ compiler (the package g++) to run CUDA sources on the host")
    return found


def emulate(monkeypatch: pytest.MonkeyPatch, folder: Path, instructions: str) -> None:
    """Have launchers run on the host; `instructions` is what stands for the PTX of the sources."""

    def launcher(
        self: CudaFunction, *, grid: Any, block: Any, arguments: str, shared: int = 0
    ) -> Callable[[bytes], None]:
        library = _built(self, folder, instructions)

        def launch(packed: bytes) -> None:
            assert f"S{len(packed)}" == arguments
            assert shared <= 1 << 18
            kept = ctypes.create_string_buffer(packed, len(packed))
            library.launch(kept, int(grid[0]), int(block[0]))

        return launch

    monkeypatch.setattr(CudaFunction, "launcher", launcher)


def _built(function: CudaFunction, folder: Path, instructions: str) -> ctypes.CDLL:
    """The kernel as a library: its files beside the emulated warp, what is PTX replaced."""
    own = folder / f"{function.entry}-{abs(hash(function.macros))}"
    own.mkdir()
    for file in function.source.files():
        text = file.read_text().replace("extern __shared__ __align__(16)", "extern")
        (own / file.name).write_text(text.replace("__shared__", "static"))
    shutil.copy(HERE / "warp.h", own)
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
