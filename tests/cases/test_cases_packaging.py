"""Cases PKG-1 to PKG-4: libraries without a GPU, mismatched compilers, broken plugins, no home."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cards import Have
from command_line import Run
from filled import choice, keep, lose, toy_problem
from programs import TESTS, environment, python

from autotune import dispatch, serving
from autotune.cuda import nvrtc
from autotune.device import local_cpu
from autotune.lookup import forget

ENTRY = "import sys; from autotune.cli import main; sys.exit(main())"
CUPY = """
raise ImportError("libcuda.so.1: cannot open shared object file: No such file or directory")
"""


def test_pkg_1_without_a_driver_everything_for_the_cpu_works(tmp_path: Path) -> None:
    """A CuPy that cannot find its driver; without any CuPy is how the other tests run."""
    (tmp_path / "cupy.py").write_text(CUPY)
    code = (
        "import sys, autotune; assert 'cupy' not in sys.modules\n"
        "from autotune.cli import main\n"
        "print([main(words) for words in (['show'], ['devices'], ['db', 'path'])])\n"
        "print(autotune.dispatch('attention', (1, 1, 8, 8)).variant)\n"
        "print(main(['tune', 'attention', '--device', 'h200', '--shape', '1x1x8x8']))"
    )
    done = python("-c", code, env={"PYTHONPATH": str(tmp_path)})
    lines = done.stdout.splitlines()
    assert "[0, 0, 0]" in lines, done.stderr
    assert lines[-1] == "2"
    assert lines[-2]
    assert "cuda" not in lines[-2]
    (told,) = (line for line in done.stderr.splitlines() if "h200" in line)
    assert "no device 'h200' on this machine" in told
    assert "Traceback" not in done.stderr


def test_pkg_2_a_compiler_that_does_not_know_the_card_is_one_sentence(
    run: Run, have: Have, monkeypatch: pytest.MonkeyPatch
) -> None:
    have()
    monkeypatch.setattr(nvrtc, "architectures", lambda: (90, 100))
    monkeypatch.setattr(nvrtc, "version", lambda: "14.0")
    ended = run("tune", "--device", "cuda", "attention", "--shape", "1x1x64x64")
    assert (ended.code, ended.out) == (1, "")
    told = ended.err.splitlines()[-1]
    assert "NVRTC 14.0 makes no code for compute capability 8.0" in told
    assert "driver 580.65.06" in told
    assert "pip install" in told
    monkeypatch.setattr(nvrtc, "architectures", lambda: (50, 75))
    assert "pip install -U nvidia-cuda-nvrtc" in run("tune", "--device", "cuda").err


def test_pkg_2_only_machine_code_is_loaded_never_ptx() -> None:
    """An older driver refuses a newer compiler's PTX: none is made."""
    asked = [path for path in (TESTS.parent / "autotune").rglob("*.py") if path.is_file()]
    assert not [path for path in asked if "nvrtcGetPTX" in path.read_text()]
    try:
        known = nvrtc.architectures()
    except nvrtc.CompileError as error:
        pytest.skip(str(error))
    text = 'extern "C" __global__ void k() {}'
    code = nvrtc.compile_cubin(text, "k.cu", [f"--gpu-architecture=sm_{known[-1]}"])
    assert code.startswith(b"\x7fELF")


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    """Three installed plugins: one lacks a module, one ends the process, one is sound."""
    bodies = {
        "gone": "import does_not_exist",
        "quits": "import sys; sys.exit(3)",
        "sound": (TESTS / "cli/plugins/toy_scale.py").read_text(),
    }
    for name, body in bodies.items():
        (tmp_path / f"plugin_{name}.py").write_text(body + "\n")
        info = tmp_path / f"plugin_{name}-1.0.dist-info"
        info.mkdir()
        head = f"Metadata-Version: 2.1\nName: package-{name}\nVersion: 1.0\n"
        (info / "METADATA").write_text(head)
        (info / "entry_points.txt").write_text(f"[autotune.plugins]\n{name} = plugin_{name}\n")
    return tmp_path


def test_pkg_3_a_broken_plugin_costs_a_warning(plugins: Path) -> None:
    env = {"PYTHONPATH": str(plugins)}
    code = (
        "from autotune.cli import main\n"
        "print([main(words) for words in (['--help'], ['show'], ['variants', 'toy_scale'])])\n"
        "import autotune\n"
        "print(autotune.dispatch('toy_scale', (8,)).variant)"
    )
    done = python("-c", code, env=env)
    assert "[0, 0, 0]" in done.stdout, done.stderr
    for plugin, package in (("gone", "package-gone"), ("quits", "package-quits")):
        (line,) = (line for line in done.stderr.splitlines() if package in line)
        assert f"plugin {plugin!r}" in line
    assert "Traceback" not in done.stderr
    strict = python("-c", ENTRY, "show", env=env | {"AUTOTUNE_STRICT_PLUGINS": "1"})
    assert strict.returncode == 2
    assert len(strict.stderr.splitlines()) == 1


NOBODY = 54321


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can enter; pytest's own are private."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def as_nobody(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    if os.getuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("needs to become another user, which only root can")
    keys = (f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    kept = environment()
    for name in ("HOME", "AUTOTUNE_HOME", "NUMBA_CACHE_DIR"):
        kept.pop(name, None)

    def run(program: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["setpriv", *keys, sys.executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**kept, "PYTHONDONTWRITEBYTECODE": "1", **env},
            cwd="/",
        )

    done = run(code)
    if done.returncode and run("import numpy, autotune").returncode:
        pytest.skip("another user cannot read this environment's packages")
    return done


UNABLE = """
import os
import numpy as np
from autotune import dispatch
from autotune.cli import main
from autotune.plugins import load_file
load_file(os.environ["PLUGIN"])
x = np.ones(8, "float32")
print(float(dispatch("cached", x)(x)[0]))
print(main(["show", "--json"]))
print(main(["pin", "cached", "loop"]))
"""
CACHED = """
import os
import numba
from autotune import Pass, operation, variant

@operation(inputs="x[N]", outputs="y[N]", flops="N")
def cached(x):
    return 2 * x

@numba.njit(cache=True)
def loop(x, y):
    for i in range(x.size):
        y[i] = 2 * x[i]

@variant(cached, "loop", passes=[Pass("l", parallel=("N",), reads=("x",), writes={"y": "owned"})])
def looped(x, y):
    if os.environ["COMPILE"]:
        loop(x, y)
    else:
        y[...] = 2 * x
"""


@pytest.mark.parametrize("home", ["none", "not writable", "moved"])
def test_pkg_4_a_home_that_is_not_there_or_not_writable(open_folder: Path, home: str) -> None:
    """A plugin with a cached numba function, in a folder of root's, for a user without a home."""
    (open_folder / "cached.py").write_text(CACHED)
    moved = open_folder / "moved"
    moved.mkdir()
    os.chown(moved, NOBODY, NOBODY)
    env = {"PLUGIN": str(open_folder / "cached.py"), "COMPILE": "1" if home == "moved" else ""}
    env |= {"not writable": {"HOME": str(open_folder)}, "none": {}}.get(
        home, {"HOME": str(open_folder), "AUTOTUNE_HOME": str(moved)}
    )
    spare = Path(tempfile.gettempdir()) / f"onf-autotune-{NOBODY}"
    shutil.rmtree(spare, ignore_errors=True)
    try:
        done = as_nobody(UNABLE, **env)
        left = [file for file in spare.rglob("*") if file.is_file()]
    finally:
        shutil.rmtree(spare, ignore_errors=True)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[0] == "2.0"
    assert "Traceback" not in done.stderr
    assert done.stderr.count("set AUTOTUNE_HOME") <= 1
    if home == "not writable":
        assert lines[-1] == "1"
        assert "AUTOTUNE_DB=FILE or AUTOTUNE_HOME=FOLDER" in done.stderr
    else:
        assert lines[-1] == "0"
        assert "set AUTOTUNE_HOME" not in done.stderr
    assert bool(left) == (home == "none")
    if home == "moved":
        assert list(moved.rglob("*.nbi"))
    assert {file.name for file in open_folder.iterdir()} == {"cached.py", "moved"}


def test_pkg_4_a_folder_someone_else_laid_out_is_not_used(open_folder: Path) -> None:
    precious = open_folder / "precious"
    spare = Path(tempfile.gettempdir()) / f"onf-autotune-{NOBODY}"
    shutil.rmtree(spare, ignore_errors=True)
    spare.mkdir()  # root's, where the user's own would be
    (spare / "tuning.db").symlink_to(precious)
    code = "from autotune.settings import settings; print(settings().database)"
    try:
        done = as_nobody(code)
    finally:
        shutil.rmtree(spare)
    assert done.returncode == 0, done.stderr
    assert not done.stdout.startswith(str(spare))


def test_security_an_import_names_variants_and_never_carries_code_or_paths(
    run: Run, toy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Configs that no variant declares, names that are paths, values that are no scalars."""
    keep(toy_problem(512, reverse=True), choice("flipped", 1e-6))
    lose(toy_problem(512), "broken", "failed", "no")
    file = tmp_path / "export.json"
    assert run("export", file).code == 0
    document = json.loads(file.read_text())
    policy = document["policies"][0]
    for each in (*policy["payload"]["ranking"], *policy["payload"]["variants"]):
        each["config"] = {"copies": 10**9}
    policy["source"] = "../../../tmp/evil"
    document["devices"][0]["label"] = "../../../tmp/evil"
    document["trials"][0] |= {"uid": "../evil", "variant": "../../evil", "reason": "/etc/passwd"}
    pin = {"operation": "toy_scale", "problem": None, "device": local_cpu().identity}
    for config in ({"copies": [1]}, {"copies": {"__reduce__": "os.system"}}):
        document["pins"].append(pin | {"variant": "flipped", "config": config})
    file.write_text(json.dumps(document))
    monkeypatch.setenv("AUTOTUNE_HOME", str(tmp_path / "second"))
    before = {path for path in tmp_path.rglob("*") if "second" not in path.parts}
    imported = run("import", file, "--json").document
    assert len(imported["rejected"]) == 2
    assert imported["added"]["policies"] == 1
    serving._server = None
    forget()
    kernel = dispatch("toy_scale", (512,), reverse=True)
    assert (kernel.origin, dict(kernel.config)) == ("predicted", {"copies": 1})
    for words in (("show",), ("show", "--failures"), ("history", "toy_scale")):
        assert run(*words, "--device", "all").code == 0
    assert {path for path in tmp_path.rglob("*") if "second" not in path.parts} == before
    made = {path.name for path in (tmp_path / "second").rglob("*") if path.is_file()}
    assert all(name.startswith(("tuning.db", ".tuning.db")) or "cpu" in name for name in made), made


def test_security_the_compile_cache_is_private_to_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from autotune import compiled
    from autotune.kept import KeptCode

    monkeypatch.setattr(compiled, "_warned", False)
    monkeypatch.setenv("AUTOTUNE_HOME", str(tmp_path))
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    kept = KeptCode("case", ".bin", largest=1 << 20)
    assert kept.get("one", lambda: b"code") == b"code"
    assert compiled._directory("f0") is not None
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    if os.getuid() != 0:
        pytest.skip("needs a folder of another user, which only root can make")
    os.chown(cache, NOBODY, NOBODY)
    assert kept.load("one") is None
    with pytest.warns(UserWarning, match="belongs to another user"):
        assert kept.get("one", lambda: b"anew") == b"anew"
    with pytest.warns(UserWarning, match="belongs to another user"):
        assert compiled._directory("f0") is None


def test_security_a_lock_among_temporary_files_follows_no_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from autotune import lock
    from autotune.errors import AutotuneError

    (tmp_path / "file").write_text("where the cache should be")
    monkeypatch.setenv("AUTOTUNE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(lock.tempfile, "gettempdir", lambda: str(tmp_path))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / f"onf-autotune-{os.getuid()}").symlink_to(elsewhere)
    with pytest.raises(AutotuneError, match="AUTOTUNE_HOME"), lock.device_lock("cpu-1"):
        pass
    assert list(elsewhere.iterdir()) == []
