"""Compilers: found on the PATH, asked for their version, refused with the package to install."""

from __future__ import annotations

from pathlib import Path

import pytest

import autotune_variants  # noqa: F401
from autotune.device import local_cpu
from autotune.errors import AutotuneError
from autotune.native.build import BuildError, build_library, first_error
from autotune.native.compilers import (
    Compiler,
    compiler_versions,
    find,
    found_for,
    missing,
    the_compiler,
)
from autotune.native.flags import build_tunables, options_of
from autotune.registry import registry
from autotune.report.variants import why_not_here


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the PATH, empty."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def install(folder: Path, name: str, script: str) -> Path:
    """A command that is a shell script."""
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


def test_none_is_found_where_there_are_none(path: Path) -> None:
    assert find("gcc") is None
    assert found_for("c") == ()
    assert missing("c") == "no C compiler is on the PATH; install the package gcc"
    assert missing("fortran") == "no Fortran compiler is on the PATH; install the package gfortran"
    assert compiler_versions() == {"c": "", "fortran": ""}
    with pytest.raises(AutotuneError, match="clang is not on the PATH; install the package clang"):
        the_compiler("clang")


@pytest.mark.parametrize("operation", ["decode", "attention", "gated_mlp"])
def test_variants_without_a_compiler_say_what_to_install(path: Path, operation: str) -> None:
    declared = {v.name: v for v in registry.variants(operation) if v.device == "cpu"}
    for language in ("c", "fortran"):
        (name,) = (name for name in declared if name.startswith(f"{language}_"))
        package = {"c": "gcc", "fortran": "gfortran"}[language]
        reason = why_not_here(declared[name], local_cpu(), None)
        assert reason is not None
        assert reason.endswith(f"install the package {package}")


def test_versions_are_what_the_commands_say(path: Path) -> None:
    install(path, "gcc", "echo 'gcc 1.2.3'; echo more")
    install(path, "clang", "exit 1")
    found = find("gcc")
    assert found is not None
    assert (found.name, found.version) == ("gcc", "gcc 1.2.3")
    assert found_for("c") == ("gcc",)  # clang does not run
    assert compiler_versions() == {"c": "gcc 1.2.3", "fortran": ""}
    file = install(path, "gcc", "echo 'gcc 1.2.3, built anew'")
    assert file.exists()
    again = find("gcc")
    assert again is not None
    assert again.version == "gcc 1.2.3, built anew"


def test_a_fortran_compiler_needs_the_c_compiler_of_its_openmp(path: Path) -> None:
    install(path, "gfortran", "echo 'GNU Fortran 1.2.3'")
    assert missing("fortran") == (
        "gfortran is here without the C compiler beside it: gcc is not on the PATH; "
        "install the package gcc"
    )
    broken = install(path, "gcc", "exit 3")
    lacking = missing("fortran")
    assert lacking is not None
    assert f"beside it: gcc at {broken} does not work" in lacking
    install(path, "gcc", "echo 'gcc 1.2.3'; exit 0")
    assert missing("fortran") is None


@pytest.mark.parametrize(
    ("script", "trouble"),
    [
        ("exit 3", "--version ended with exit status 3"),
        ("kill -9 $$", "--version ended with signal 9"),
        ("exec /bin/sleep 60", "--version had no answer in 0 s"),
    ],
)
def test_a_compiler_that_does_not_work_is_not_called_absent(
    path: Path, monkeypatch: pytest.MonkeyPatch, script: str, trouble: str
) -> None:
    monkeypatch.setattr("autotune.native.compilers._SECONDS", 0.4)
    file = install(path, "gcc", script)
    told = f"gcc at {file} does not work ({trouble}); reinstall the package gcc"
    assert missing("c") == told
    with pytest.raises(AutotuneError) as caught:
        the_compiler("gcc")
    assert str(caught.value) == f"{told}."
    install(path, "clang", "echo clang")
    assert missing("c") is None


def test_the_tunables_offer_what_is_here(path: Path) -> None:
    compiler, optimize, native, fast = build_tunables("c")
    assert compiler.values(local_cpu()) == ("gcc",)  # something to list, though nothing is here
    install(path, "clang", "echo clang")
    assert compiler.values(local_cpu()) == ("clang",)
    start = {each.name: each.start(local_cpu()) for each in (optimize, native, fast)}
    assert start == {"optimize": "O3", "native": True, "fast_math": False}


def test_options_follow_the_config() -> None:
    assert options_of({}) == ("-O3", "-march=native")
    assert options_of({"optimize": "O2", "native": False}) == ("-O2",)
    assert options_of({"native": False, "fast_math": True})[1:] == (
        *("-ffast-math", "-fno-finite-math-only"),
    )


GCC = """scale.c: In function 'scale':
/tmp/some where/scale.c:12:5: error: unknown type name 'foo'
   12 |     foo x;
/tmp/scale.c:13:1: error: something else
"""
GFORTRAN = """/tmp/scale.f90:7:4:

    7 |     x = 1
      |    1
Error: Symbol 'x' at (1) has no IMPLICIT type
"""
LINKER = """/usr/bin/ld: kernel.o: in function `scale':
scale.c:(.text+0x5): undefined reference to `absent'
collect2: error: ld returned 1 exit status
"""
NO_LIBRARY = """/usr/bin/ld: skipping incompatible /usr/lib32/libgomp.so when searching for -lgomp
/usr/bin/ld: cannot find -lgomp: No such file or directory
collect2: error: ld returned 1 exit status
"""
LLD = """ld.lld: error: unable to find library -lomp
clang: error: linker command failed with exit code 1 (use -v to see invocation)
"""


@pytest.mark.parametrize(
    ("log", "status", "line"),
    [
        (GCC, 1, "scale.c:12: unknown type name 'foo'"),
        (GFORTRAN, 1, "scale.f90:7: Symbol 'x' at (1) has no IMPLICIT type"),
        (LINKER, 1, "scale.c:(.text+0x5): undefined reference to `absent'"),
        (NO_LIBRARY, 1, "/usr/bin/ld: cannot find -lgomp: No such file or directory"),
        (LLD, 1, "unable to find library -lomp"),
        (
            "/usr/bin/ld: kernel.o: in function `f':\n/usr/bin/ld: final link failed: no space",
            *(1, "/usr/bin/ld: final link failed: no space"),
        ),
        (
            "x.o: file not recognized\ncollect2: error: ld returned 1 exit status\n",
            *(1, "x.o: file not recognized"),
        ),
        (
            "collect2: error: ld returned 1 exit status\n",
            1,
            "collect2: error: ld returned 1 exit status",
        ),
        ("a.c:1:10: fatal error: no.h: No such file\n", 1, "a.c:1: no.h: No such file"),
        ("gcc: fatal error: cannot execute 'cc1'\n", 1, "cannot execute 'cc1'"),
        ("strange words\n", 1, "strange words"),
        ("", 4, "exit status 4"),
        ("", -9, "ended by signal 9"),
    ],
)
def test_the_first_error_of_a_log(log: str, status: int, line: str) -> None:
    assert first_error(log, status) == line


def test_a_compiler_that_hangs_or_is_gone_costs_a_build_error(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.native.build.SECONDS", 0.2)
    file = install(path, "gcc", "exec /bin/sleep 60")
    source = path / "scale.c"
    with pytest.raises(BuildError, match=r"scale.c does not compile \(gcc -O3\): given up after"):
        build_library(source, Compiler("gcc", str(file), "1"), ("-O3",))
    with pytest.raises(BuildError, match="does not run"):
        build_library(source, Compiler("gcc", str(path / "absent"), "1"), ("-O3",))


def test_a_compiler_that_writes_nothing_costs_a_build_error(path: Path) -> None:
    source, file = path / "scale.c", install(path, "gcc", "exit 0")
    with pytest.raises(BuildError) as caught:
        build_library(source, Compiler("gcc", str(file), "1"), ("-O3",))
    assert str(caught.value) == (
        f"scale.c does not compile (gcc -O3): {file} ended without an error and wrote nothing; "
        f"reinstall what it belongs to."
    )
    install(path, "gcc", 'case "$*" in *" -c "*) for o; do :; done; echo x > "$o";; esac')
    with pytest.raises(BuildError, match=r"does not link \(gcc\): .* wrote nothing"):
        build_library(source, Compiler("gcc", str(file), "1"), ("-O3",))
