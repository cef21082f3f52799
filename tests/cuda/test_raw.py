"""Raw kernels of CuPy's in a variant do not come from CuPy's disk cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from autotune.cuda.raw import compile_raw, compiled_anew


class RawKernel:
    """As CuPy's: compiled when it is first needed, and looked up on disk unless told not to."""

    def __init__(self) -> None:
        self.compiled: list[str | None] = []

    def compile(self) -> None:
        self.compiled.append(os.environ.get("CUPY_CACHE_IN_MEMORY"))


RawKernel.__module__ = "cupy._core.raw"
GLOBAL = RawKernel()


class Launcher:
    def __init__(self, kernel: RawKernel) -> None:
        self.kernel = kernel

    def run(self, x: Any) -> None:
        self.kernel.compile()


def closure(kernel: RawKernel) -> Callable[..., None]:
    def run(x: Any) -> None:
        kernel.compile()

    return run


def with_global(x: Any) -> None:
    GLOBAL.compile()


@pytest.mark.parametrize("form", ["closure", "global", "partial", "method", "itself"])
@pytest.mark.parametrize("before", [None, "0"])
def test_they_are_compiled_at_once_and_anew(
    form: str, before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = GLOBAL if form == "global" else RawKernel()
    GLOBAL.compiled.clear()
    run: Any = {
        "closure": closure(kernel),
        "global": with_global,
        "partial": partial(closure(RawKernel()), kernel),
        "method": Launcher(kernel).run,
        "itself": kernel,
    }[form]
    monkeypatch.delenv("CUPY_CACHE_IN_MEMORY", raising=False)
    if before is not None:
        monkeypatch.setenv("CUPY_CACHE_IN_MEMORY", before)
    with compiled_anew():
        compile_raw(run)
    assert kernel.compiled == ["1"]
    assert os.environ.get("CUPY_CACHE_IN_MEMORY") == before


def test_what_is_none_of_them_is_left_alone() -> None:
    compile_raw(lambda x: x)
    compile_raw(len)
    compile_raw(object())


def test_the_switch_ends_with_an_error() -> None:
    with pytest.raises(ValueError, match="no"), compiled_anew():
        raise ValueError("no")
    assert "CUPY_CACHE_IN_MEMORY" not in os.environ
