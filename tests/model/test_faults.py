"""A declaration whose expressions have no value somewhere costs its variant or config alone."""

from __future__ import annotations

from typing import Any

import pytest

from autotune import Pass, Range, dispatch, serving
from autotune.campaign.budget import expected_seconds
from autotune.campaign.exclusion import Exclusion
from autotune.candidates import runnable_config
from autotune.device import local_cpu
from autotune.estimate import estimate_seconds
from autotune.lookup import forget
from autotune.model import Candidate, Config, Intermediate, Published
from autotune.model.problem import Problem
from autotune.model.space import configs, inadmissible
from autotune.registry import operation, registry, variant
from autotune.report.prediction import prediction_document
from autotune.search import build_space

STEPS = Range("r", 0, 3)
READS = Pass("all", reads={"x": "N/(D-8)"}, writes={"y": "owned"})
COSTLY = Pass("all", reads={"x": "N/r"}, writes={"y": "owned"})
AT = "at D=8, N=16: "


@operation(
    inputs="x[N,D]",
    outputs="y[N,D]",
    flops="N//(D-8)",
    published=(Published("count", "nowhere", moved="N//(D-8)"),),
)
def faulted(x: Any) -> Any:
    """x again."""
    return x


@variant(faulted, "good", deterministic=True)
def good(x: Any, y: Any) -> None:
    """Copies."""
    y[...] = x


@variant(faulted, "sizes", constraints=["N % (D - 8) == 0"])
@variant(faulted, "reads", passes=[READS])
def of_sizes(x: Any, y: Any) -> None:
    """Is never called."""


@variant(faulted, "room", intermediates=[Intermediate("w", ("N//(D-8)",))])
def of_room(x: Any, y: Any, w: Any) -> None:
    """Is never called."""


@variant(faulted, "mixed", tunables=[STEPS], constraints=["r > 'a'"])
@variant(faulted, "limited", tunables=[STEPS], constraints=["N//r > 1"])
@variant(faulted, "costly", tunables=[STEPS], passes=[COSTLY])
def of_tunables(x: Any, y: Any, r: int) -> None:
    """Is never called."""


@pytest.fixture
def problem() -> Problem:
    return Problem.of(faulted, (16, 8))


def test_the_reason_names_the_expression_and_the_values(problem: Problem) -> None:
    here, found = local_cpu(), {}
    for each in registry.variants(faulted):
        config, why = runnable_config(each, problem, here)
        found[each.name] = dict(config) if config is not None else why.partition(" at ")[0]
        assert config is not None or "r=0: " in why or AT in why
    assert found == {
        "good": {},
        "sizes": "cannot evaluate 'N % (D - 8) == 0'",
        "reads": "cannot evaluate 'N/(D-8)'",
        "room": "cannot evaluate 'N//(D-8)'",
        "mixed": "cannot evaluate \"r > 'a'\"",
        "limited": {"r": 1},
        "costly": {"r": 1},
    }
    limited = registry.variant(faulted, "limited")
    assert [each["r"] for each in configs(limited, problem, here)] == [1, 2, 3]
    for name in ("limited", "costly"):
        why = inadmissible(registry.variant(faulted, name), problem, Config(r=0), here) or ""
        assert "N=16, r=0: " in why


def test_the_search_has_what_can_be_evaluated(problem: Problem) -> None:
    space = build_space(problem, registry.variants(faulted), local_cpu())
    sizes = {home.variant: len(home) for home in space.variants}
    assert sizes == {"good": 1, "limited": 3, "costly": 4}
    costly = space.variant("costly")
    assert costly is not None
    assert costly.candidate(costly.default).config == {"r": 1}
    assert "mixes text and numbers" in space.skipped["mixed"]
    assert all(AT in space.skipped[name] for name in ("sizes", "reads", "room"))


def test_budgets_and_estimates_are_numbers(problem: Problem) -> None:
    assert expected_seconds(problem, registry.variants(faulted), local_cpu()).fixed < 10.0
    assert estimate_seconds(registry.variant(faulted, "costly"), problem, {"r": 0}) == float("inf")
    assert problem.flops == 0


@pytest.mark.parametrize("wish", [{}, {"max_workspace": 1 << 20}, {"deterministic": True}])
def test_dispatch_serves(monkeypatch: pytest.MonkeyPatch, wish: dict[str, Any]) -> None:
    monkeypatch.setattr(serving, "_server", None)
    forget()
    assert dispatch(faulted, (16, 8), **wish).variant in ("good", "limited", "costly")
    forget()


def test_a_config_without_sizes_is_not_tried(problem: Problem) -> None:
    known = {each.name: each for each in registry.variants(faulted)}
    why_not = Exclusion(problem, known).why_not
    assert "N=16, r=0: " in (why_not(Candidate("costly", Config(r=0))) or "")
    assert why_not(Candidate("costly", Config(r=1))) is None


def test_reports_are_made(run: Any, problem: Problem) -> None:
    found = run("variants", "faulted", "--shape", "16x8")
    assert found.code == 0, found.err
    assert "no: cannot evaluate 'N % (D - 8) == 0'" in " ".join(found.out.split())
    assert run("show", "faulted", "--shape", "16x8", "--explain").code == 0
    assert prediction_document(problem, local_cpu(), None, [], {})["published"] == []
