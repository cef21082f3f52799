"""Native sources: what belongs to one, what changes its digest and the fingerprint of a variant."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from autotune.errors import DeclarationError
from autotune.fingerprint import code_fingerprint
from autotune.native import NativeSource


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "main.c").write_text(
        '#include "arrays.h" // of the engine\n#include <math.h>\n#include "part.h"\nint main_c;\n'
    )
    (tmp_path / "part.h").write_text('/* #include "absent.h" */\nint part; // a comment\n')
    (tmp_path / "main.f90").write_text(
        'module m\n#include "arrays.inc"\n#include "part.inc"\n!$omp simd\n! a comment\n'
        "character :: c = '!'\nend module m\n"
    )
    (tmp_path / "part.inc").write_text("integer :: part ! a comment\n")
    return tmp_path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_it_consists_of_what_it_includes(folder: Path) -> None:
    names = {file.name for file in NativeSource(folder / "main.c").files()}
    assert names == {"main.c", "part.h", "arrays.h"}
    names = {file.name for file in NativeSource(folder / "main.f90").files()}
    assert names == {"main.f90", "part.inc", "arrays.inc"}


@pytest.mark.parametrize(
    ("main", "file", "old", "new"),
    [
        ("main.c", "main.c", "int main_c", "long main_c"),
        ("main.c", "part.h", "int part", "long part"),
        ("main.f90", "part.inc", "integer ::", "real ::"),
        ("main.f90", "main.f90", "!$omp simd", "!$omp parallel do"),
        ("main.f90", "main.f90", "'!'", "'?'"),
        ("main.f90", "main.f90", "!$omp simd", "!GCC$ vector\n!$omp simd"),
    ],
)
def test_a_change_changes_the_digest(
    folder: Path, main: str, file: str, old: str, new: str
) -> None:
    source = NativeSource(folder / main)
    before = source.digest
    edit(folder / file, old, new)
    assert source.digest != before


def test_comments_do_not_and_options_do(folder: Path) -> None:
    sources = NativeSource(folder / "main.c"), NativeSource(folder / "main.f90")
    before = [source.digest for source in sources]
    edit(folder / "part.h", "// a comment", "/* another */")
    edit(folder / "main.f90", "! a comment\n", "! another\n\n")
    edit(folder / "part.inc", "! a comment", "")
    assert [source.digest for source in sources] == before
    assert NativeSource(folder / "main.c", ("-funroll-loops",)).digest != before[0]


def test_the_fingerprint_of_code_that_uses_it_covers_its_includes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "native_plugin.py").write_text(
        "from pathlib import Path\n"
        "from autotune.native import NativeSource\n"
        "SOURCE = NativeSource(Path(__file__).parent / 'main.c')\n"
        "def build(problem, config):\n"
        "    return SOURCE.kernel('k', problem, config)\n"
    )
    monkeypatch.syspath_prepend(folder)
    import native_plugin  # type: ignore[import-not-found]

    first = code_fingerprint(native_plugin.build)
    edit(folder / "part.h", "int part", "long part")
    second = code_fingerprint(native_plugin.build)
    (folder / "main.c").unlink()
    code_fingerprint(native_plugin.build)  # a missing file must not break dispatch
    assert first != second


def test_the_macro_of_the_elements_is_the_languages_own(folder: Path) -> None:
    assert NativeSource(folder / "main.c").command("float32", ("-O3",))[-1] == "-DREAL=float"
    given = NativeSource(folder / "main.f90").command("float64", ("-O3",))
    assert (given[0], given[-1]) == ("-O3", "-DREAL_KIND=c_double")


def test_another_language_is_refused(folder: Path) -> None:
    with pytest.raises(DeclarationError, match=r"kernel\.cpp is neither C"):
        _ = NativeSource(folder / "kernel.cpp").language


@pytest.mark.parametrize("package", ["autotune", "variants/autotune_variants"])
def test_sources_are_part_of_what_is_installed(package: str) -> None:
    root = Path(__file__).parents[2]
    declared = tomllib.loads((root / "pyproject.toml").read_text())
    patterns = declared["tool"]["setuptools"]["package-data"][Path(package).name]
    shipped = {file for pattern in patterns for file in (root / package).glob(pattern)}
    there = (file for file in (root / package / "native").rglob("*.*") if file.is_file())
    assert {file for file in there if file.suffix not in (".py", ".pyc")} <= shipped
