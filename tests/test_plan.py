"""Plans: what a file may say, what a mistake in it gets, and what plugins propose."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from autotune.campaign import parse_budget
from autotune.device import local_cpu
from autotune.errors import UserError
from autotune.model import Operation, Problem
from autotune.model.operation import parse_tensors
from autotune.plan import default_plan, read_plan
from autotune.plugins import load_plugins
from autotune.registry import Registry, registry


@dataclass(frozen=True)
class AnyDevice:
    kind: str = "cpu"


def reference(x: object, *, causal: bool) -> object:
    """A reference that is never run."""
    return x


@pytest.fixture(autouse=True)
def toy() -> Iterator[Operation]:
    operation = Operation(
        name="fake_rows",
        dims=("M", "N"),
        inputs=parse_tensors("x[M,N]"),
        outputs=parse_tensors("y[M,N]"),
        reference=reference,
        plain=reference,
        flags={"causal": False},
    )
    registry.add_operation(operation)
    yield operation
    registry._operations.pop("fake_rows")
    registry._variants.pop("fake_rows")


def test_a_plan_lists_all_combinations(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text("""
        [settings]
        budget = "5m"
        mode = "hot"
        trials = 40

        [[problem]]
        operation = "fake_rows"
        shape = "M=2,N=512:2048"
        dtype = ["float32", "float64"]

        [[problem]]
        operation = "fake_rows"
        shape = {M = 3, N = "8:16"}
        causal = true

        [[problem]]
        operation = "fake_rows"
        shape = [4, 4]
        """)
    plan = read_plan(tmp_path / "plan.toml")
    assert dict(plan.settings) == {"budget": "5m", "mode": "hot", "trials": 40}
    sizes = [(p.sizes["M"], p.sizes["N"], p.dtype, p.flags["causal"]) for p in plan.problems]
    assert sizes == [
        (2, 512, "float32", False),
        (2, 512, "float64", False),
        (2, 1024, "float32", False),
        (2, 1024, "float64", False),
        (2, 2048, "float32", False),
        (2, 2048, "float64", False),
        (3, 8, "float32", True),
        (3, 16, "float32", True),
        (4, 4, "float32", False),
    ]


ROWS = "[[problem]]\noperation='fake_rows'\n"
MISTAKES = {
    "[[problem]\n": "is not TOML: .*line 1",
    "": "lists no problem",
    "[problem]\noperation='fake_rows'": r"\[\[problem\]\] for each",
    "[[problems]]": "'problems'; did you mean 'problem'",
    "[[problem]]\nshape='2x2'": "names no operation",
    "[[problem]]\noperation='fake_row'\nshape='2x2'": "did you mean 'fake_rows'",
    f"{ROWS}shapes='2x2'": "did you mean 'shape'",
    f"{ROWS}shape='2x2'\ncasual=true": "did you mean 'causal'",
    f"{ROWS}shape='2x2'\ncausal='no'": "flag causal is 'no'",
    ROWS: "has no shape",
    f"{ROWS}shape='2x2x2'": "2 numbers",
    f"{ROWS}shape='2xfour'": "'four'",
    f"{ROWS}shape={{M=2}}": "also needs the dim N",
    f"{ROWS}shape={{M=2,K=2,N=1}}": "'K'",
    f"{ROWS}shape='2x2'\ndtype='float23'": "float32",
    f"{ROWS}shape='2x2'\ndtype=4": "dtype is 4",
    f"{ROWS}shape='2x2'\n[settings]\nbudgett='1s'": "did you mean 'budget'",
    f"{ROWS}shape='2x2'\n[settings]\ntrials='many'": "trials is 'many', not a whole number",
    f"{ROWS}shape='2x2'\n[settings]\nseed=true": "seed is True",
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.items())
def test_a_mistake_gets_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "plan.toml").write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        read_plan(tmp_path / "plan.toml")
    assert "\n" not in str(caught.value)


def test_a_plan_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        read_plan(tmp_path / "absent.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not TOML"):
        read_plan(tmp_path / "binary.toml")


def test_plugins_propose_the_default_plan(toy: Operation, monkeypatch: pytest.MonkeyPatch) -> None:
    empty, device = Registry(), AnyDevice()
    monkeypatch.setattr("autotune.plan.registry", empty)
    with pytest.raises(UserError, match="no plugin proposes problems for cpu"):
        default_plan(device)  # type: ignore[arg-type]

    def propose(device: Any) -> list[Problem]:
        return [Problem.of(toy, (2, 2)), Problem.of(toy, (2, 2))] if device.kind == "cpu" else []

    empty.add_proposal(propose)
    assert default_plan(device).problems == (Problem.of(toy, (2, 2)),)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="for gpu"):
        default_plan(AnyDevice("gpu"))  # type: ignore[arg-type]


def test_the_built_in_plan_has_every_operation_with_a_choice_to_make() -> None:
    load_plugins()
    plan = default_plan(local_cpu())
    assert {p.operation.name for p in plan.problems} == {"attention", "attention_train", "decode"}
    assert len(plan.problems) == 8
    assert parse_budget(plan.settings["budget"]) < 300


def test_a_scalar_is_no_part_of_a_problem(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('[[problem]]\noperation = "attention"\nshape = "1x1x64x16"\nscale = 0.5\n')
    with pytest.raises(UserError, match="problem 1: scale is an argument of the call"):
        read_plan(plan)
