"""The README keeps its word: its blocks are filled, its commands run, its files exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from autotune.plan import read_plan
from autotune.plugins import load_plugins
from autotune.report.exchange import VARIABLES

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
OWN = ROOT / "examples" / "own_operation.py"


def block(name: str) -> str:
    """What stands between the markers of a part that a script writes."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    assert README.count(begin) == README.count(end) == 1
    return README.split(begin)[1].split(end)[0]


def test_the_show_block_is_an_answer_of_show() -> None:
    _, shown, caption = block("show").split("```\n")
    assert re.search(r"\d{4}-\d\d-\d\d.*numpy \d", caption)
    lines = shown.splitlines()
    assert re.match(r"(cpu|cuda)-\S+ \(.+\)$", lines[0])
    for operation in ("attention", "attention_train", "decode"):
        assert any(line.startswith(f"{operation}  float") for line in lines)
    assert sum("winner" in line for line in lines) >= 3
    assert sum(bool(re.search(r"\d (ms|us|s)\b", line)) for line in lines) >= 6


def test_the_figures_are_tables_of_numbers_with_their_source() -> None:
    figures = block("figures")
    rows = [line for line in figures.splitlines() if line.startswith("|")]
    assert sum(bool(re.search(r"\d\.\d", row)) for row in rows) >= 10
    sources = re.findall(r"`(benchmarks/results/\w+\.json)`", figures)
    assert len(sources) >= 3
    for source in sources:
        assert (ROOT / source).is_file()


def test_every_file_it_names_is_there() -> None:
    for _, target in re.findall(r"\[([^]]+)\]\(([^)#]+)\)", README):
        assert "://" in target or (ROOT / target).exists(), target
    for name in re.findall(r"\b(?:examples|docs)/\w+\.\w+", README):
        assert (ROOT / name).is_file(), name


def test_the_plan_it_names_can_be_read() -> None:
    load_plugins()
    plan = read_plan(ROOT / "examples" / "plan.toml")
    assert dict(plan.settings) == {"budget": "60s", "mode": "cold"}
    assert [problem.operation.name for problem in plan.problems] == ["attention"] * 7 + ["decode"]
    assert [problem.flags.get("causal") for problem in plan.problems[:7]].count(True) == 1


def test_the_command_that_measures_an_own_operation(tmp_path: Path) -> None:
    (command,) = re.findall(r"`autotune (tune row_norm [^`]+)`", README)
    words = command.replace("my_ops.py", str(OWN)).split()
    assert str(OWN) in words
    main = "import sys; from autotune.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", main, *words, "--budget", "3s"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "row_norm" in done.stdout
    assert "M=512,N=1024" in done.stdout


def test_it_explains_every_variable_that_is_read() -> None:
    for name in VARIABLES:
        assert f"| `{name}" in README
