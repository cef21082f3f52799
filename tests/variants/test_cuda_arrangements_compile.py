"""The kernels of the arrangements compile for every architecture; needs NVRTC, no GPU."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from arrangements_on_cuda import OPERATIONS, Hopper, arranged

from autotune.cuda import CudaSource, nvrtc
from autotune.model import Config, Problem, Variant
from autotune.model.space import default_config, violated

try:
    nvrtc.library()
except nvrtc.CompileError as _error:
    pytest.skip(str(_error), allow_module_level=True)


@dataclass(frozen=True)
class Sample:
    """A problem in a wide and in a 16-bit dtype, and the tiles to try on it.

    The study's forms are arranged ones with tiles of one, but for the sweep of their columns.
    """

    sizes: Mapping[str, int]
    wide: str
    narrow: str
    causal: bool
    tiles: Mapping[str, int]

    def problem(self, variant: Variant) -> Problem:
        dtype = self.wide if self.wide in variant.dtypes else self.narrow
        return Problem.of(variant.operation, self.sizes, dtype, causal=self.causal)

    def config(self, variant: Variant, problem: Problem) -> Config:
        """The sample's tiles where the variant has and admits them."""
        start = default_config(variant, problem, Hopper())
        assert start is not None
        options = {t.name: t.values(Hopper()) for t in variant.tunables}
        tiles = {n: size for n, size in self.tiles.items() if size in options.get(n, ())}
        wanted = Config({**start, **tiles})
        return start if violated(variant, problem, wanted, Hopper()) else wanted


SAMPLES = {
    "sm_80": Sample(
        {"B": 1, "H": 2, "Hkv": 1, "N": 512, "D": 80, "Dv": 40},
        *("float32", "float16", True),
        {"block": 256, "rows": 2, "columns": 16},
    ),
    "sm_90a": Sample(
        {"B": 2, "H": 1, "N": 2048, "D": 64},
        *("float64", "bfloat16", False),
        {"block": 128, "rows": 8, "columns": 8},
    ),
    "sm_100": Sample(
        {"B": 1, "H": 1, "N": 512, "D": 256},
        *("float64", "bfloat16", True),
        {"block": 64, "rows": 4, "columns": 2},
    ),
    "sm_120": Sample(
        {"B": 1, "H": 1, "N": 512, "D": 1},
        *("float32", "float16", False),
        {"block": 1024, "rows": 1, "columns": 1},
    ),
}


Compilation = tuple[CudaSource, Mapping[str, Any]]


class Wanted:
    """In place of kernels: which compilations builders ask for, each once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: dict[tuple[Any, ...], Compilation] = {}
        monkeypatch.setattr(CudaSource, "kernel", self._patched())

    def _patched(self) -> Any:
        def kernel(source: CudaSource, entry: str, macros: Mapping[str, Any]) -> Any:
            self.found[source.path, entry, *sorted(macros.items())] = source, macros
            return self

        return kernel

    def launcher(self, **_: Any) -> Any:
        return None


def share(arch: str, found: list[Compilation]) -> list[Compilation]:
    """All for Hopper, a third for each of the others, where the sizes and dtypes are others.

    All of them everywhere when asked for: that takes a minute.
    """
    others = [each for each in SAMPLES if each != "sm_90a"]
    if arch == "sm_90a" or os.environ.get("AUTOTUNE_TEST_COMPILE"):
        return found
    return found[others.index(arch) :: len(others)]


@pytest.mark.slow
@pytest.mark.parametrize("arch", SAMPLES)
def test_kernels_compile(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, sample = Wanted(monkeypatch), SAMPLES[arch]
    # The kernels of the three operations differ in their macros only: all of them for Hopper.
    for operation in OPERATIONS if arch == "sm_90a" else ("attention_train",):
        for variant in arranged(operation):
            if "cuda_arranged" not in variant.name and sample.tiles["rows"] > 1:
                continue
            problem = sample.problem(variant)
            variant.build(problem, sample.config(variant, problem))
    sources = {source.path.stem for source, _ in wanted.found.values()}
    assert sources == {f"arrangements_{kind}" for kind in ("rows", "columns", "sums")}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        compilations = share(arch, list(wanted.found.values()))
        codes = list(pool.map(lambda each: each[0].compile(each[1], arch=arch), compilations))
    assert codes
    assert all(code.startswith(b"\x7fELF") for code in codes)
