"""Fingerprints: what changes them, and what must not."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from autotune.fingerprint import code_fingerprint, fingerprint, toolchain
from autotune.reach import reach

MAIN = """
    import numpy as np
    from dataclasses import dataclass
    from pathlib import Path
    import helper
    from helper import renamed as other
    from tables import TILES
    from autotune.model import Operation, Variant, PowerOfTwo, Pass
    from autotune.model.operation import parse_tensors

    LIMIT = 8
    SOURCE = Path(__file__).with_name("kernel.cu")
    MEMO = {}

    @dataclass(frozen=True)
    class Options:
        depth: int = 3
        def twice(self):
            return self.depth * 2

    OPTIONS = Options()

    def reference(x):
        return x * 2

    def build(problem, config):
        '''Says nothing.'''
        from lazy import kernels
        def run(x, y, step=helper.STEP):
            # a comment
            helper.scale(x, y)
            kernels.finish(y, LIMIT, TILES["a"], OPTIONS.twice(), SOURCE)
            MEMO[len(MEMO)] = other(x)
        return run

    def make(name="v", reference=reference, build=build, tunables=(), **fields):
        tensors = parse_tensors("x[N]"), parse_tensors("y[N]")
        operation = Operation("thing", ("N",), *tensors, reference=reference, plain=reference)
        return Variant(name, operation, build, source=build, tunables=tunables, **fields)
"""
HELPER = """
    STEP = 1
    UNUSED = 5
    def scale(x, y):
        y[...] = 2 * x
    def renamed(x):
        return inner(x)
    def inner(x):
        return x + 1
    def unrelated():
        return 7
"""
LAZY = """
    from numba import njit
    from lazy import deep
    @njit
    def finish(y, *rest):
        return deep.add(y)
"""
DEEP = """
    from numba import njit
    FACTOR = 3
    @njit
    def add(y):
        return y + FACTOR
"""
TABLES = """
    TILES = {"a": 64}
"""
FILES = {
    "main.py": MAIN,
    "helper.py": HELPER,
    "tables.py": TABLES,
    "lazy/__init__.py": "",
    "lazy/kernels.py": LAZY,
    "lazy/deep.py": DEEP,
    "kernel.cu": "__global__ void k() {}",
}

Load = Callable[..., Any]


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip())


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Load a copy of the plugin, edited, from a folder of its own."""
    count = 0
    names = ("main", "helper", "tables", "lazy", "lazy.kernels", "lazy.deep")

    def load(**edits: tuple[str, str]) -> Any:
        nonlocal count
        count += 1
        folder = tmp_path / f"copy{count}"
        files = dict(FILES)
        for name, (old, new) in edits.items():
            file = next(each for each in files if Path(each).stem == name)
            assert old in files[file]
            files[file] = files[file].replace(old, new)
        write(folder, files)
        for name in names:
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        with monkeypatch.context() as patch:
            patch.syspath_prepend(str(folder))
            main = importlib.import_module("main")
            main.result = fingerprint(main.make())
        return main

    yield load
    for name in names:
        sys.modules.pop(name, None)


CHANGES = {
    "builder": {"main": ("helper.scale(x, y)", "helper.scale(y, x)")},
    "reference": {"main": ("return x * 2", "return x * 3")},
    "constant": {"main": ("LIMIT = 8", "LIMIT = 9")},
    "default argument": {"helper": ("STEP = 1", "STEP = 2")},
    "helper in another file": {"helper": ("2 * x", "3 * x")},
    "helper of a renamed import": {"helper": ("x + 1", "x + 2")},
    "lazily imported kernel": {"kernels": ("deep.add(y)", "deep.add(y) + 1")},
    "compile options": {"kernels": ("@njit", "@njit(fastmath=True)")},
    "deep constant": {"deep": ("FACTOR = 3", "FACTOR = 4")},
    "deep compile options": {"deep": ("@njit", "@njit(error_model='numpy')")},
    "imported table": {"tables": ("64", "128")},
    "included file": {"kernel": ("{}", "{ return; }")},
    "constant object": {"main": ("depth: int = 3", "depth: int = 4")},
    "method of its class": {"main": ("self.depth * 2", "self.depth * 3")},
}
SAME = {
    "comment": {"main": ("# a comment", "# another comment")},
    "docstring": {"main": ("Says nothing.", "Says something.")},
    "layout": {"helper": ("2 * x", "2  *  (x)")},
    "lines above": {"helper": ("STEP = 1", "\n    STEP = 1\n")},
    "unused constant": {"helper": ("UNUSED = 5", "UNUSED = 6")},
    "unused function": {"helper": ("return 7", "return 8")},
}


@pytest.mark.parametrize("edit", CHANGES.values(), ids=CHANGES.keys())
def test_a_change_of_anything_used_changes_it(load: Load, edit: Any) -> None:
    assert load().result != load(**edit).result


@pytest.mark.parametrize("edit", SAME.values(), ids=SAME.keys())
def test_a_change_of_nothing_that_runs_does_not(load: Load, edit: Any) -> None:
    assert load().result == load(**edit).result


def test_the_declaration_counts_and_the_name_does_not(load: Load) -> None:
    main = load()
    assert fingerprint(main.make(name="other")) == main.result
    assert fingerprint(main.make(blas="serial")) != main.result
    tuned = fingerprint(main.make(tunables=(main.PowerOfTwo("t", 1, 8),)))
    assert tuned not in (
        main.result,
        fingerprint(main.make(tunables=(main.PowerOfTwo("t", 1, 4),))),
    )
    assert fingerprint(main.make(passes=(main.Pass("p"),))) != main.result


def test_the_parts_of_a_variant_count(load: Load) -> None:
    module = load()
    part, again = module.make(name="part"), module.make(name="again")
    other = module.make(name="part", tunables=(module.PowerOfTwo("t", 1, 8),))
    composed = [fingerprint(module.make(parts=parts)) for parts in ((), (part,), (other,))]
    assert len(set(composed)) == 3
    assert fingerprint(module.make(parts=(again,))) == composed[1]


def test_what_a_memo_holds_does_not_count(load: Load) -> None:
    main = load()
    main.MEMO["x"] = 1
    main.helper.scale.__defaults__ = None
    assert fingerprint(main.make()) == main.result


def test_it_is_the_same_in_another_process_and_another_folder(load: Load, tmp_path: Path) -> None:
    here = load().result
    folder = tmp_path / "elsewhere"
    write(folder, FILES)
    code = (
        "import main; from autotune.fingerprint import fingerprint; print(fingerprint(main.make()))"
    )
    for seed in ("1", "2"):
        found = subprocess.run(
            [sys.executable, "-c", code],
            cwd=folder,
            env={"PYTHONHASHSEED": seed, "PATH": "", "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert found.stdout.strip() == here


def test_code_newer_than_what_is_loaded_is_not_taken_for_it(load: Load) -> None:
    main = load()
    file = Path(main.helper.__file__)
    file.write_text(file.read_text().replace("2 * x", "5 * x"))
    edited = fingerprint(main.make())
    assert edited != load(helper=("2 * x", "5 * x")).result


def test_the_walk_stays_within_the_plugin(load: Load) -> None:
    found = reach(load().make())
    assert {each.py_func.__name__ for each in found.dispatchers} == {"finish", "add"}
    assert [each.py_func.__name__ for each in found.entries] == ["finish"]
    assert not any("def prange" in fact or "class ndarray" in fact for fact in found.facts)


def test_a_function_without_source_is_known_by_its_code() -> None:
    def compiled(text: str) -> Any:
        scope: dict[str, Any] = {"__name__": "made"}
        exec(text, scope)
        return scope["f"]

    one, same, other = (compiled(f"def f(x):\n    return x + {n}") for n in (1, 1, 2))
    assert code_fingerprint(one) == code_fingerprint(same) != code_fingerprint(other)


def test_closures_count_by_value() -> None:
    def make(tile: int, memo: dict[int, int]) -> Callable[[int], int]:
        def run(x: int) -> int:
            return memo.setdefault(x, x * tile)

        return run

    assert code_fingerprint(make(1, {})) == code_fingerprint(make(1, {1: 1}))
    assert code_fingerprint(make(1, {})) != code_fingerprint(make(2, {}))


def test_the_toolchain_names_what_is_loaded() -> None:
    import numba
    import numpy as np

    found = toolchain()
    assert found["numpy"] == np.__version__
    assert found["numba"] == numba.__version__
    assert found["numba_threads"] in ("omp", "tbb", "workqueue")
    assert set(found) == {
        *("autotune", "python", "numpy", "numba", "llvmlite", "blas", "numba_threads"),
        *("c", "fortran"),
    }
    assert json.loads(json.dumps(found)) == found


def test_an_import_that_fails_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        tmp_path,
        {
            "broken.py": """
            def f():
                from not_there_at_all import kernel
                import also_not_there
                return kernel
            """
        },
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    broken = importlib.import_module("broken")
    assert len(code_fingerprint(broken.f)) == 16


class Made(NamedTuple):
    """What Python generates for it is not the same in every version."""

    size: int

    def twice(self) -> int:
        return 2 * self.size


@dataclass(frozen=True)
class Kept:
    """So it is for this."""

    text: str = "a"

    def quoted(self) -> str:
        return f"{self.text!r} {'b'}"


def test_it_says_nothing_of_what_a_version_of_python_generates() -> None:
    def user() -> object:
        return Made(3).twice(), Kept().quoted()

    facts = reach(user, after=None).facts
    shown = [fact for fact in facts if "Made." in fact or "Kept." in fact]
    assert all("__" not in fact and "_replace" not in fact for fact in shown)
    assert not any(fact.startswith("(b'") for fact in facts)  # byte code, of another version each
    assert any("quoted" in fact and "JoinedStr" in fact for fact in facts)
    assert any("twice" in fact and "BinOp" in fact for fact in facts)
