"""Kernels in C and Fortran: what they are given, and what they leave of the process's state."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from native_scale import PLAIN, problem, scaled, skip_without

from autotune.errors import AutotuneError, DeclarationError
from autotune.model import Config, Operation, Problem
from autotune.model.operation import parse_tensors
from autotune.native import NativeSource
from autotune.native.build import BuildError
from autotune.native.kernel import DIMS, NativeKernel


@pytest.fixture(params=["c", "fortran"])
def source(request: pytest.FixtureRequest) -> NativeSource:
    """The scaling kernel in either language."""
    found: NativeSource = request.getfixturevalue(f"{request.param}_source")
    return found


def kernel_of(source: NativeSource, dtype: str = "float32", told: int = 0) -> NativeKernel:
    return source.kernel("scale", problem(dtype), {**PLAIN, "threads": 2}, (told,))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arrays_of_any_strides(source: NativeSource, dtype: str) -> None:
    kernel = kernel_of(source, dtype)
    x = np.arange(8, dtype=dtype)
    packed = np.zeros(40, np.dtype([("odd", "u1"), ("value", dtype)]))  # not aligned either
    for target in (np.zeros(8, dtype), np.zeros(24, dtype)[::-3], packed["value"][::5]):
        for given in (x, x[::-1].copy()[::-1], np.repeat(x, 2)[::2]):
            kernel(given, target, 0.5)
            assert (target == 1.5 * x).all()
    x.flags.writeable = False
    kernel(x, target, 1.0)
    kernel(x[:0], target[:0], 1.0)
    assert (target == 3 * x).all()


def test_the_number_of_threads_comes_first_among_the_settings(source: NativeSource) -> None:
    y = np.zeros(8, np.float32)
    kernel_of(source, told=1)(np.ones(8, np.float32), y, 1.0)
    assert y.tolist() == [2, *[3] * 7]


def test_includes_are_found_and_options_arrive(source: NativeSource) -> None:
    assert scaled(source) == 6
    other = source.path.parent / ("factor.h" if source.language == "c" else "factor.inc")
    other.write_text(other.read_text().replace("3", "5"))
    assert scaled(source) == 10


def test_an_error_names_the_line(source: NativeSource) -> None:
    text = source.path.read_text()
    line = 1 + next(
        n
        for n, line in enumerate(text.splitlines())
        if "scalars[0]" in line or "scalars(1)," in line
    )
    source.path.write_text(text.replace("scalars[0]", "absent").replace("scalars(1),", "absent,"))
    with pytest.raises(BuildError, match=f"^{source.path.name} does not compile") as caught:
        scaled(source)
    assert f"{source.path.name}:{line}: " in str(caught.value)
    assert "absent" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(caught.value.log.splitlines()) > 1


def test_what_is_defined_nowhere_is_named(source: NativeSource) -> None:
    source.path.write_text(source.path.read_text().replace("store", "no_such"))
    with pytest.raises(BuildError, match=r"does not link \(g.*undefined reference to .no_such"):
        scaled(source)


def test_a_function_that_is_not_there(source: NativeSource) -> None:
    with pytest.raises(DeclarationError, match="has no function 'scales'; in Fortran it needs"):
        source.kernel("scales", problem(), PLAIN)


def test_an_unknown_compiler_is_refused(c_source: NativeSource) -> None:
    with pytest.raises(AutotuneError, match="icc is not on the PATH; install the package icc"):
        c_source.kernel("scale", problem(), {"compiler": "gcc"} | {"compiler": "icc"})


def test_clang_builds_as_well(c_source: NativeSource) -> None:
    from autotune.native.compilers import find

    if find("clang") is None:
        pytest.skip("clang is not on the PATH")
    try:
        assert scaled(c_source, compiler="clang") == 6
    except BuildError as error:
        pytest.skip(f"clang is here without what OpenMP needs: {error}")


def test_fast_math_leaves_subnormal_numbers_alone(source: NativeSource) -> None:
    """Libraries linked with -ffast-math switch them off for the thread that loads them."""
    smallest = np.array([np.finfo(np.float64).smallest_subnormal])
    scaled(source, fast_math=True)
    assert (smallest * 1.0)[0] > 0


def test_the_description_has_room_for_the_engines_arrays(c_source: NativeSource) -> None:
    """As many dims as the C and Fortran declarations have; what needs more is refused."""
    includes = Path(sys.modules["autotune.native.source"].__file__ or "").parent / "include"
    assert f"#define DIMS {DIMS}\n" in (includes / "arrays.h").read_text()
    assert f"dims = {DIMS}\n" in (includes / "arrays.inc").read_text()
    wide = np.zeros((1,) * (DIMS + 1), np.float32)
    with pytest.raises(DeclarationError, match=f"up to {DIMS} dims, got {DIMS + 1}"):
        kernel_of(c_source)(wide, wide, 1.0)


def test_the_documented_kernel_runs(tmp_path: Path) -> None:
    """The example of docs/compilers.md, as it stands there."""
    skip_without("c")
    text = (Path(__file__).parents[2] / "docs" / "compilers.md").read_text()
    code, kernel = (text.split(f"```{kind}\n")[1].split("```")[0] for kind in ("python", "c"))
    (tmp_path / "scale.c").write_text(kernel)
    tensors = parse_tensors("x[N]"), parse_tensors("y[N]")
    scale = Operation("documented", ("N",), *tensors, reference=print, plain=print)
    scope: dict[str, Any] = {
        "scale": scale,
        "__file__": str(tmp_path / "plugin.py"),
        "__name__": "plugin",
    }
    exec(code, scope)
    build: Any = scope["c_scale"]
    x, y = np.arange(8.0, dtype=np.float32), np.zeros(8, np.float32)
    build(Problem.of(scale, (8,), "float32"), Config(PLAIN, threads=2))(x, y)
    assert (y == 2 * x).all()


FORK = """
import os, sys
sys.path.insert(0, {tests!r})
from pathlib import Path
import numpy as np
from native_scale import PLAIN, problem
from autotune.native import NativeSource
source = NativeSource(Path({source!r}))
kernels = [source.kernel("scale", problem(), {{**PLAIN, "threads": n}}, (1,)) for n in (1, 2)]
x, y = np.ones(8, np.float32), np.zeros(8, np.float32)
kernels[1](x, y, 1.0)
if os.fork() == 0:
    kernels[0](x, y, 1.0)
    try:
        kernels[1](x, y, 1.0)
    except Exception as error:
        print(type(error).__name__, y[0], error, flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_is_told_and_does_not_hang(c_source: NativeSource) -> None:
    script = FORK.format(tests=str(Path(__file__).parent), source=str(c_source.path))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.startswith("LaunchError 1.0 this process was forked"), done.stderr
