"""The three tests on each candidate, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune.accept.baseline import Baseline, Baselines, Missing
from autotune.accept.correctness import check_correctness
from autotune.accept.memory import Count, check_memory, count_traffic
from autotune.accept.performance import check_performance, keep_for_label
from autotune.accept.subjects import Subject
from autotune.accept.thresholds import Limits, Thresholds
from autotune.accept.verdict import Acceptance, Check
from autotune.accept.versions import current_source
from autotune.spelling import candidate_text, short_problem
from autotune.trials import Trials

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Asked:
    """A candidate with its baseline; None where no baseline was named."""

    subject: Subject
    baseline: Baseline | None = None


def with_baselines(subjects: Sequence[Subject], baselines: Baselines | None) -> list[Asked]:
    """Find the baseline of each before anything is measured; raises what finding it raises."""
    if baselines is None:
        return [Asked(subject) for subject in subjects]
    return [
        Asked(each, baselines.find(each.problem, each.candidate, served=each.served))
        for each in subjects
    ]


def accept(
    asked: Sequence[Asked],
    trials: Trials,
    thresholds: Thresholds,
    *,
    say: Say = lambda text: None,
    count: Count = count_traffic,
) -> list[Acceptance]:
    """Judge every candidate; `say` is told what is judged next."""
    found = []
    for number, each in enumerate(asked, 1):
        problem, candidate = each.subject.problem, each.subject.candidate
        text = candidate_text(candidate.variant, candidate.config)
        say(f"[{number}/{len(asked)}] {short_problem(problem)}: {text}")
        limits = thresholds.of(problem.operation.name)
        correctness = check_correctness(trials, problem, candidate, limits)
        found.append(
            Acceptance(
                problem,
                candidate,
                current_source(problem, candidate.variant),
                correctness,
                check_memory(problem, candidate, trials.device, limits, count),
                _performance(each, trials, limits, correctness),
            )
        )
    return found


def _performance(each: Asked, trials: Trials, limits: Limits, correctness: Check) -> Check:
    """Nothing is timed that is not right; what is right and gets a label is timed in any case."""
    problem, candidate = each.subject.problem, each.subject.candidate
    right = correctness.status == "pass"
    if each.baseline is None:
        check = Check("not asked", "no baseline is named; --against names one")
    elif right:
        check = check_performance(trials, problem, candidate, each.baseline, limits)
    else:
        check = Check("not measured", "it has not passed the test of correctness")
    untimed = isinstance(each.baseline, Missing) or each.baseline in (None, candidate)
    if right and untimed and trials.label:
        return keep_for_label(trials, problem, candidate, limits, check)
    return check
