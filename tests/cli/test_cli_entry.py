"""How commands end: exit codes, one sentence for a mistake, clean streams, quick start."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import Run
from filled import PLUGIN

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"numba", "optuna", "numpy", "sqlite_utils", "cupy", "torch", "rich.table"}


def shell(
    command: str, env: dict[str, str] | None = None, *, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a line of bash in which `autotune` is this interpreter's."""
    function = f'autotune() {{ "{sys.executable}" -c "{_ENTRY}" "$@"; }}; '
    return subprocess.run(
        ["bash", "-c", function + command],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **(env or {})},
        cwd=cwd or ROOT,
        check=False,
    )


_ENTRY = "import sys; from autotune.cli import main; sys.exit(main())"


def test_help_lists_every_command_and_loads_nothing_heavy() -> None:
    script = (
        "import sys; from autotune.cli import main; code = main(['--help']); "
        f"print(sorted({HEAVY!r} & set(sys.modules)), code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[] 0"
    for name in ("show", "variants", "devices", "export", "import", "pin", "unpin", "path"):
        assert f"  {name} " in done.stdout


def test_without_words_the_help_is_shown(run: Run) -> None:
    assert run().code == 0
    assert "Usage: autotune" in run().out


def test_version(run: Run) -> None:
    import autotune

    assert run("--version").out == f"autotune {autotune.__version__}\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["shwo"], "'show'"),
        (["show", "--jsn"], "--json"),
        (["pin"], "OP"),
        (["show", "atention"], "did you mean 'attention'"),
        (["variants", "attention", "--shape", "B=1,H=1,M=5,D=4"], "dim of attention 'M'"),
        (["variants", "attention", "--shape", "1x1x5"], "4 numbers"),
        (["variants", "attention", "--shape", "1x1x1x4", "--dtype", "int8"], "'int8'"),
        (["variants", "attention", "--shape", "1x1x1x4", "--set", "casual=true"], "'causal'"),
        (["variants", "attention", "--shape", "1x1x1x4", "--set", "causal=maybe"], "true or false"),
        (["variants", "attention", "--shape", "1x1x1x4", "--set", "scale=0.5"], "argument of the"),
        (["variants", "--plugin", "/nowhere/x.py"], "/nowhere/x.py"),
        (["variants", "--device", "h200"], "no device 'h200' on this machine"),
        (["show", "--device", "h2000"], "no device 'h2000' on this machine"),
    ],
)
def test_a_mistake_is_one_sentence_with_code_2(run: Run, words: list[str], told: str) -> None:
    ended = run(*words)
    assert ended.code == 2
    assert ended.out == ""
    assert told in ended.err
    assert ended.err.startswith("autotune: ")
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize("words", [["variants", "--plugin"], ["tune", "--plan"], ["export"]])
def test_a_name_too_long_for_a_file_is_one_sentence(run: Run, words: list[str]) -> None:
    for name in ("x" * 5000, f"{'x' * 5000}/file"):
        ended = run(*words, name)
        assert (ended.code, ended.out) == (2, "")
        assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize("words", ["devices", "show --json", "tune --help", "--version"])
def test_stdout_that_cannot_be_written(words: str) -> None:
    full = shell(f"autotune {words} > /dev/full")
    assert full.returncode == 1
    assert full.stderr == "autotune: cannot write to stdout: No space left on device.\n"
    for closed in (">&-", "<&- >&-", ">&- 2>&-"):
        ended = shell(f"autotune {words} {closed}")
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_what_is_printed_with_stdout_closed_reaches_no_file(tmp_path: Path) -> None:
    loud = tmp_path / "loud.py"
    loud.write_text(
        f"import os\nkept = open({str(tmp_path / 'kept')!r}, 'w')\nos.system('echo loud')\n"
    )
    assert shell(f"autotune show --plugin {loud} --json >&- 2>&-").returncode == 0
    assert (tmp_path / "kept").read_text() == ""


def test_a_reader_that_stops_is_no_error() -> None:
    ended = shell("set -o pipefail; autotune variants | head -n 1; echo ${PIPESTATUS[0]}")
    assert ended.stderr == ""
    assert ended.stdout.splitlines()[0] == "attention"
    assert ended.stdout.splitlines()[1] in ("0", "141")


_FAILS = """
from autotune import operation, variant

@operation(inputs="x[N]", outputs="y[N]")
def half_made(x):
    return x

@variant("toy_scale")
def half_made_too(x, y):
    y[:] = 2 * x

"""


@pytest.mark.parametrize("end", ["import does_not_exist", "import sys; sys.exit(3)"])
def test_a_plugin_file_that_fails_costs_a_warning(
    run: Run, tmp_path: Path, toy: str, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(_FAILS + end)
    ended = run("variants", "toy_scale", "--plugin", toy, "--plugin", bad)
    assert ended.code == 0
    (line,) = ended.err.splitlines()
    assert "bad.py" in line
    assert line.endswith("its operations and variants are missing.")
    assert "half_made_too" not in ended.out  # what came before the failure went with it
    unknown = run("tune", "half_made", "--shape", 8, "--plugin", bad)
    assert unknown.code == 2
    assert "bad.py" in unknown.err
    assert "half_made" in unknown.err
    monkeypatch.setenv("AUTOTUNE_STRICT_PLUGINS", "1")
    strict = run("variants", "--plugin", bad)
    assert strict.code == 2
    (line,) = strict.err.splitlines()
    assert "bad.py" in line


def test_the_measuring_process_does_without_a_plugin_file_that_fails(
    run: Run, tmp_path: Path, toy: str
) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(_FAILS + "1 / 0")
    words = ("tune", "toy_scale", "--shape", 8, "--budget", "1s", "--plugin", toy, "--plugin", bad)
    ended = run(*words)
    assert ended.code == 0, ended.err
    assert "half_made" not in ended.out


def test_what_a_plugin_prints_stays_out_of_the_document(tmp_path: Path) -> None:
    loud = tmp_path / "loud.py"
    loud.write_text("import os\nprint('loud')\nos.system('echo louder')\n")
    ended = shell(
        f"autotune devices --json > {tmp_path}/d.json; autotune show --plugin {loud} --json"
    )
    assert ended.stdout == "[]\n"
    assert ended.stderr.split() == ["loud", "louder"]


def test_a_home_that_cannot_be_written_is_one_sentence(run: Run, tmp_path: Path) -> None:
    (tmp_path / "autotune-home").write_text("a file where the folder should be")
    ended = run("pin", "attention", "online")
    assert ended.code == 1
    assert "autotune-home" in ended.err
    assert len(ended.err.splitlines()) == 1
    assert run("show", "--json").document == []


def test_no_home_at_all(tmp_path: Path) -> None:
    ended = shell(
        "unset HOME AUTOTUNE_HOME; autotune path && autotune devices", {"XDG_DATA_HOME": ""}
    )
    assert ended.returncode == 0
    assert "Traceback" not in ended.stderr


def test_ctrl_c_is_130_without_a_traceback(tmp_path: Path) -> None:
    slow = tmp_path / "slow.py"
    slow.write_text("import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    process = subprocess.Popen(
        [sys.executable, "-c", _ENTRY, "show", "--plugin", str(slow)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "ready\n"
    time.sleep(0.1)
    process.send_signal(2)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == ""
    assert err == "autotune: stopped by Ctrl-C.\n"


def test_warnings_are_one_line_each(run: Run, tmp_path: Path) -> None:
    shaky = tmp_path / "shaky.py"
    shaky.write_text("import warnings\nwarnings.warn('over\\ntwo lines')\n")
    ended = run("show", "--plugin", shaky, "--json")
    assert ended.err == "autotune: over two lines\n"
    assert ended.document == []


def test_the_plugin_option_brings_its_operations() -> None:
    ended = shell(f"autotune variants toy_scale --plugin {PLUGIN}")
    assert ended.returncode == 0
    assert "Twice x" in ended.stdout
