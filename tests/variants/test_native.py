"""The variants in C and Fortran: every way of building them, every tile, the same constants."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from contract_runs import faults

import autotune_variants
from autotune.device import local_cpu
from autotune.model import Config, Problem, Variant, predict
from autotune.model.space import default_config, violated
from autotune.native import NativeSource
from autotune.native.compilers import find
from autotune.registry import registry
from autotune_variants import fastmath

HERE = Path(autotune_variants.__file__).parent / "native"
# gated_mlp_backward is gated_mlp_train without its first output.
SIZES: dict[str, dict[str, Any]] = {
    "attention": {"B": 1, "H": 4, "Hkv": 2, "Nq": 150, "Nk": 300, "D": 20, "Dv": 24},
    "decode": {"B": 2, "H": 4, "Hkv": 2, "N": 700, "D": 40},
    "gated_mlp": {"N": 150, "D": 300, "F": 290},
    "gated_mlp_train": {"N": 150, "D": 300, "F": 290},
    "rmsnorm": {"N": 150, "D": 70},
    "rmsnorm_backward": {"N": 150, "D": 70},
}

TILES = (
    *("splits", "block", "block_q", "block_k", "block_n", "block_f"),
    *("rows", "hidden", "shares"),
)


def native() -> list[Variant]:
    """Every built-in variant in C or Fortran."""
    return [
        variant
        for operation in SIZES
        for variant in registry.variants(operation)
        if "compiler" in variant.tunable_names
    ]


def name(variant: Variant) -> str:
    """For a test's id."""
    return f"{variant.operation.name}-{variant.name}"


def problem_of(variant: Variant, dtype: str) -> Problem:
    operation = variant.operation
    flags = {"causal": True} if "causal" in operation.flags else {}
    return Problem.of(operation, SIZES[operation.name], dtype, **flags)


@pytest.fixture
def variant(request: pytest.FixtureRequest) -> Variant:
    """A variant; skips where there is no compiler for it."""
    found: Variant = request.param
    missing = found.unavailable()
    if missing is not None:
        pytest.skip(missing)
    return found


DEFAULT = {"optimize": "O3", "native": True, "fast_math": False}
FAST = {**DEFAULT, "fast_math": True}


@pytest.mark.parametrize(
    ("variant", "dtype", "build"),
    [
        *(pytest.param(each, "float32", DEFAULT, id=f"default-{name(each)}") for each in native()),
        # Masks are where fast arithmetic could go wrong; building takes longer than running.
        pytest.param(
            registry.variant("attention", "c_tiled"), "float64", FAST, id="fast-attention-c_tiled"
        ),
    ],
    indirect=["variant"],
)
def test_every_tile_size_is_right(variant: Variant, dtype: str, build: dict[str, Any]) -> None:
    problem, machine = problem_of(variant, dtype), local_cpu()
    start = default_config(variant, problem, machine)
    assert start is not None
    tiles = {t.name: t.values(machine) for t in variant.tunables if t.name in TILES}
    candidates = (
        Config({**start, **build, **dict(zip(tiles, chosen, strict=True))})
        for chosen in itertools.product(*tiles.values())
    )
    tried = [each for each in candidates if violated(variant, problem, each, machine) is None]
    assert len(tried) >= 5
    for config in tried[:: len(tried) // 3]:
        assert faults(variant, problem, config, "packed") == [], config


def test_clang_builds_what_gcc_builds() -> None:
    if find("clang") is None:
        pytest.skip("clang is not on the PATH")
    variant = registry.variant("decode", "c_split")
    problem = problem_of(variant, "float32")
    start = default_config(variant, problem, local_cpu())
    assert start is not None
    assert faults(variant, problem, Config({**start, "compiler": "clang"}), "strided") == []


@pytest.mark.parametrize("operation", SIZES)
def test_both_languages_declare_the_same(operation: str) -> None:
    """But for the compilers to choose from, so that a comparison compares compilers."""
    c, fortran = (
        next(v for v in registry.variants(operation) if v.name.startswith(language))
        for language in ("c_", "fortran_")
    )
    assert c.name.removeprefix("c_") == fortran.name.removeprefix("fortran_")
    assert (c.passes, c.intermediates, c.constraints) == (
        *(fortran.passes, fortran.intermediates, fortran.constraints),
    )
    assert c.tunable_names == fortran.tunable_names
    problem = problem_of(c, "float64")
    config = default_config(c, problem, local_cpu())
    assert config is not None
    assert predict(c, problem, config) == predict(fortran, problem, config)


@pytest.mark.parametrize("file", ["exponential.h", "exponential.inc"])
def test_exponentials_have_the_constants_of_numbas(file: str) -> None:
    text = re.sub(r"_c_(float|double)\b", "", (HERE / file).read_text())
    found = [float(each) for each in re.findall(r"\d+\.\d+(?:e[+-]\d+)?", text)]
    for powers, ln2 in (
        (fastmath._EXP_32, fastmath._LN2_32),
        (fastmath._EXP_64, fastmath._LN2_64),
    ):
        assert {abs(each) for each in (*powers, *ln2, fastmath.LOG2E)} <= set(found)
        first = found.index(powers[0])
        assert tuple(found[first : first + len(powers)]) == powers


def test_every_file_is_a_source_or_included() -> None:
    sources = [NativeSource(path) for path in (*HERE.glob("*.c"), *HERE.glob("*.f90"))]
    used = {file.name for source in sources for file in source.files()}
    assert {file.name for file in HERE.iterdir() if file.suffix not in (".py", "")} <= used
