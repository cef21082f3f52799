"""Built libraries on disk: found again, never half, never stale, built once."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from native_scale import scaled

from autotune.native import NativeSource, compilers, library
from autotune.native.build import build_library
from autotune.native.compilers import Compiler

Built = list[tuple[str, ...]]


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Built:
    """The options of every build."""
    calls: Built = []

    def build(source: Path, compiler: Compiler, options: Sequence[str]) -> bytes:
        calls.append(tuple(options))
        return build_library(source, compiler, options)

    monkeypatch.setattr(library, "build_library", build)
    return calls


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Forgets what this process has loaded, as another process would know nothing of it."""
    forget: Callable[[], None] = lambda: monkeypatch.setattr(library, "_loaded", {})  # noqa: E731
    forget()
    return forget


def kept(home: Path) -> list[Path]:
    return sorted((home / "cache" / "native").iterdir())


def test_the_second_process_builds_nothing(
    c_source: NativeSource, built: Built, fresh: Callable[[], None], private_home: Path
) -> None:
    assert scaled(c_source) == 6
    fresh()
    assert scaled(c_source) == 6
    assert len(built) == 1
    assert [file.suffix for file in kept(private_home)] == [".so"]


def test_everything_that_matters_is_in_the_key(
    c_source: NativeSource, fresh: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Path] = []
    code = build_library(
        c_source.path, compilers.the_compiler("gcc"), ("-DREAL=float", f"-I{library.INCLUDES}")
    )

    def build(source: Path, *_: Any) -> bytes:
        calls.append(source)
        return code

    monkeypatch.setattr(library, "build_library", build)
    configs: list[dict[str, Any]] = [
        {},
        {"dtype": "float64"},
        {"optimize": "O3"},
        {"native": True},
        {"fast_math": True},
    ]
    for config in configs:
        scaled(c_source, **config)
    scaled(NativeSource(c_source.path, ("-funroll-loops",)))
    (c_source.path.parent / "factor.h").write_text("#define FACTOR 4\n")
    scaled(c_source)
    newer = replace(compilers.the_compiler("gcc"), version="gcc 99")
    monkeypatch.setattr(library, "the_compiler", lambda name: newer)
    scaled(c_source)
    monkeypatch.setattr(library, "processor", lambda: "another processor")
    scaled(c_source)
    assert len(calls) == 8  # without -march=native the processor does not matter
    scaled(c_source, native=True)
    assert len(calls) == 9


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped"])
def test_a_damaged_file_is_built_again(
    c_source: NativeSource,
    built: Built,
    fresh: Callable[[], None],
    private_home: Path,
    damage: str,
) -> None:
    scaled(c_source)
    (file,) = kept(private_home)
    whole = file.read_bytes()
    broken = {"cut": whole[:-1], "empty": b"", "flipped": whole[:-1] + bytes([whole[-1] ^ 1])}
    file.unlink()  # this process has it loaded; others write a new file as well
    file.write_bytes(broken[damage])
    fresh()
    assert scaled(c_source) == 6
    assert len(built) == 2
    assert len(file.read_bytes()) == len(whole)


def test_a_cache_that_cannot_be_written_costs_one_warning(
    c_source: NativeSource,
    fresh: Callable[[], None],
    private_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    private_home.mkdir()
    (private_home / "cache").write_text("a file where a directory should be")
    monkeypatch.setattr(library.KEPT, "warned", False)
    with pytest.warns(UserWarning, match="cannot keep compiled kernels.*AUTOTUNE_HOME"):
        assert scaled(c_source) == 6
    fresh()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert scaled(c_source) == 6


SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from native_scale import scaled
from autotune.native import NativeSource
print(scaled(NativeSource(Path({source!r}))))
"""


def test_processes_that_build_at_once_build_once(
    c_source: NativeSource, private_home: Path, tmp_path: Path
) -> None:
    log, slow = tmp_path / "log", tmp_path / "bin"
    slow.mkdir()
    real = compilers.the_compiler("gcc").path
    wrapper = slow / "gcc"
    wrapper.write_text(f'#!/bin/sh\necho "$1" >> {log}\nsleep 0.2\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    script = SCRIPT.format(tests=str(Path(__file__).parent), source=str(c_source.path))
    environment = {**os.environ, "PATH": f"{slow}:{os.environ['PATH']}"}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    said = [process.communicate(timeout=60)[0].strip() for process in running]
    assert said == ["6.0"] * 3
    asked = log.read_text().split()
    assert asked.count("-O2") == 1
    assert asked.count("-shared") == 1
