"""Each of the three tests by itself: what passes, what fails, and what stays open."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from accept_bench import FakeWorker, candidate, fake_trials, problem, spread_around

from autotune.accept import Acceptance, Check, Limits, exit_code
from autotune.accept.baseline import Missing, Stored
from autotune.accept.correctness import check_correctness
from autotune.accept.edges import edge_problems
from autotune.accept.memory import check_memory
from autotune.accept.performance import check_performance
from autotune.device import local_cpu
from autotune.model import Candidate, Problem
from autotune.model.space import default_config
from autotune.plugins import load_plugins
from autotune.profile import KernelCounters, Profile, ProfileError
from autotune.registry import registry
from autotune.report.acceptance import junit
from autotune.worker.protocol import Job


def test_edges_are_around_tiles_empty_uneven_and_not_packed() -> None:
    load_plugins()
    base = Problem.of(registry.operation("attention"), (2, 4, 512, 64), "float64", causal=True)
    found = edge_problems(base)
    lengths = [(each.sizes["Nq"], each.sizes["Nk"]) for each in found]
    equal = [(n, n) for n in (0, 1, 7, 65, 129)]
    assert lengths == [*equal, (7, 65), (65, 7), (7, 7), (65, 65), (65, 65)]
    assert all(each.flags == {"causal": True} and each.sizes["D"] == 64 for each in found)
    assert [each.layout for each in found] == ["packed"] * 8 + ["unaligned", "strided"]
    assert found[-3].sizes["B"] == found[-3].sizes["H"] == found[-3].sizes["Hkv"] == 1


def test_edges_that_break_a_rule_are_left_out() -> None:
    load_plugins()
    grouped = Problem.of(
        registry.operation("decode"), {"B": 1, "H": 6, "Hkv": 2, "N": 512, "D": 8}, "float32"
    )
    assert {each.sizes["H"] % each.sizes["Hkv"] for each in edge_problems(grouped)} == {0}


def correctness(worker: FakeWorker, **limits: Any) -> Check:
    with fake_trials(worker) as trials:
        return check_correctness(trials, problem(), candidate("numpy"), Limits(**limits))


def test_correctness_asks_for_its_own_size_large_numbers_and_every_edge() -> None:
    worker = FakeWorker({})
    found = correctness(worker)
    assert (found.status, found.reason) == (
        "pass",
        "10 cases, errors up to 10% of what is allowed",
    )
    assert [(job.problem, job.gain, job.conditioned) for job in worker.checks[:3]] == [
        ("toy_sum M=4,N=9 float32 packed", 1.0, False),
        ("toy_sum M=4,N=9 float32 packed", 16.0, True),
        ("toy_sum M=4,N=0 float32 packed", 1.0, True),
    ]
    assert worker.checks[-1].problem == "toy_sum M=4,N=65 float32 strided"


def test_edges_and_large_numbers_can_be_left_out() -> None:
    worker = FakeWorker({})
    assert correctness(worker, edge_shapes=False, gain=1.0).facts["cases"] == 1
    assert len(worker.checks) == 1


@pytest.mark.parametrize("how", ["wrong", "failed", "crashed"])
def test_one_case_that_is_not_right_is_a_failure_that_names_it(how: str) -> None:
    def at_65(job: Job) -> str:
        return f"{how} y is off" if "N=65" in job.problem else ""

    found = correctness(FakeWorker({}, wrong=at_65))
    assert (found.status, found.reason) == ("fail", "M=4,N=65: y is off")


def test_running_out_of_time_leaves_the_verdict_open() -> None:
    found = correctness(FakeWorker({}, wrong=lambda job: "timeout exceeded its limit"))
    assert (found.status, found.open) == ("cannot tell", True)


def test_an_edge_that_the_reference_cannot_judge_is_left_out_and_named() -> None:
    def empty(job: Job) -> str:
        return "failed the reference of toy_sum raised ValueError" if "N=0" in job.problem else ""

    found = correctness(FakeWorker({}, wrong=empty))
    assert found.status == "pass"
    assert found.facts["left_out"] == ["M=4,N=0"]
    all_sizes = FakeWorker({}, wrong=lambda _: "failed the reference of toy_sum gives NaN in y")
    assert correctness(all_sizes).status == "not measured"  # and no fault of the candidate


def counted(read: float, written: float) -> Any:
    kernels = (KernelCounters("k", read, written, 0.0, 0.5, 1e-6),)
    return lambda *_: Profile(kernels)


def no_counters(*_: Any) -> Profile:
    raise ProfileError("Nsight Compute (ncu) is not installed.")


def memory(variant: str, count: Any = no_counters, **limits: Any) -> Check:
    config = {"repeats": 1} if variant == "thrice" else {}
    chosen = candidate(variant, **config)
    return check_memory(problem(), chosen, local_cpu(), Limits(**limits), count)


def test_predicted_over_compulsory_is_held_to_its_limit() -> None:
    right, wasteful = memory("numpy", over_compulsory=2.0), memory("thrice", over_compulsory=2.0)
    assert (right.status, right.facts["predicted_over_compulsory"]) == ("pass", 1.0)
    assert wasteful.status == "fail"
    assert wasteful.reason == "predicted over compulsory 2.80, allowed 2"


def test_counters_that_are_not_there_are_never_a_pass() -> None:
    found = memory("numpy", over_compulsory=2.0, over_predicted=1.5)
    assert (found.status, found.open) == ("not measured", True)
    assert found.reason == "no counters: Nsight Compute (ncu) is not installed."
    assert memory("numpy", counted(math.nan, 0.0), over_predicted=1.5).status == "not measured"
    assert memory("even", over_compulsory=2.0).status == "not measured"
    failed = memory("thrice", over_compulsory=2.0, over_predicted=1.5)
    assert failed.status == "fail"


def test_nothing_to_move_is_no_lack_of_a_declaration() -> None:
    load_plugins()
    operation = registry.operation("gated_mlp")
    none = Problem.of(operation, {"N": 0, "D": 8, "F": 8}, "float32")
    variant = registry.variant(operation, "blas_tiled")
    config = default_config(variant, none, local_cpu())
    assert config is not None
    chosen = Candidate(variant.name, config)
    limits = Limits(over_compulsory=2.0)
    assert check_memory(none, chosen, local_cpu(), limits, no_counters).status == "pass"
    limits = Limits(over_predicted=2.0)
    nothing = check_memory(none, chosen, local_cpu(), limits, counted(0.0, 0.0))
    assert nothing.facts["counted_over_predicted"] == 1.0


def test_what_is_predicted_of_a_block_without_its_parts_can_fail_and_passes_nothing() -> None:
    load_plugins()
    operation = registry.operation("transformer_block")
    block = Problem.of(operation, (1, 64, 16, 32), "float32")
    config = default_config(registry.variant(operation, "parts"), block, local_cpu())
    assert config is not None
    chosen = Candidate("parts", config)
    found = check_memory(block, chosen, local_cpu(), Limits(over_compulsory=50.0), no_counters)
    assert (found.status, found.open) == ("not measured", True)
    assert found.reason.endswith("allowed 50, without what its parts move")
    tight = check_memory(block, chosen, local_cpu(), Limits(over_compulsory=1.01), no_counters)
    assert tight.status == "fail"
    both = Limits(over_compulsory=50.0, over_predicted=9e9)
    assert check_memory(block, chosen, local_cpu(), both, counted(9.0, 9.0)).open


def test_counted_over_predicted_is_held_to_its_limit() -> None:
    predicted = 4 * (36 + 4)
    right = memory("numpy", counted(1.2 * predicted, 0.0), over_predicted=1.5)
    wasteful = memory("numpy", counted(predicted, predicted), over_predicted=1.5)
    assert (right.status, wasteful.status) == ("pass", "fail")
    assert "counted over predicted 2.00, allowed 1.5" in wasteful.reason


def test_without_a_limit_nothing_is_asked() -> None:
    assert memory("numpy").status == "not asked"


def performance(worker: FakeWorker, baseline: Any, **limits: Any) -> Check:
    with fake_trials(worker) as trials:
        chosen = candidate("numpy")
        return check_performance(trials, problem(), chosen, baseline, Limits(**limits))


@pytest.mark.parametrize(("seconds", "status"), [(1.03e-3, "pass"), (1.08e-3, "fail")])
def test_beside_a_variant_the_whole_interval_decides(seconds: float, status: str) -> None:
    worker = FakeWorker({"numpy": seconds, "thrice": 1e-3})
    found = performance(worker, candidate("thrice", repeats=1))
    assert found.status == status
    assert found.facts["ratio"] == pytest.approx(seconds / 1e-3, rel=0.01)
    assert found.facts["low"] <= found.facts["ratio"] <= found.facts["high"]
    assert len(worker.races) == 1


def wild(number: int) -> float:
    """Times that scatter over a factor of four, whoever is timed."""
    return random.Random(number).uniform(0.5, 2.0)


def test_what_cannot_be_told_takes_more_samples_up_to_a_limit() -> None:
    worker = FakeWorker({"numpy": 1.05e-3, "thrice": 1e-3}, noise=wild)
    found = performance(worker, candidate("thrice", repeats=1))
    assert (found.status, found.open) == ("cannot tell", True)
    assert [race.min_rounds for race in worker.races] == [15, 15, 30, 60, 120]
    assert found.facts["samples"] == 240


def test_a_time_limit_ends_it_earlier() -> None:
    ticks = iter(range(0, 1000, 15))
    worker = FakeWorker({"numpy": 1.05e-3, "thrice": 1e-3}, noise=wild)
    with fake_trials(worker) as trials:
        found = check_performance(
            trials,
            problem(),
            candidate("numpy"),
            candidate("thrice", repeats=1),
            Limits(seconds=20.0),
            clock=lambda: float(next(ticks)),
        )
    assert found.status == "cannot tell"
    assert len(worker.races) == 1


def stored(seconds: float, **changes: Any) -> Stored:
    return Stored("numpy previous", spread_around(seconds), "{}", **{"disturbed": False} | changes)


@pytest.mark.parametrize(("seconds", "status"), [(1.0e-3, "pass"), (0.9e-3, "fail")])
def test_against_stored_samples(seconds: float, status: str) -> None:
    found = performance(FakeWorker({"numpy": 1e-3}), stored(seconds, note="numba 0.1 then"))
    assert found.status == status
    assert "of numpy previous, allowed 1.05; numba 0.1 then" in found.reason


def test_a_baseline_of_few_samples_says_what_is_missing() -> None:
    before = replace(stored(1e-3), samples=(1e-3,) * 5)
    found = performance(FakeWorker({"numpy": 1e-3}), before)
    assert found.status == "cannot tell"
    assert "the baseline has only 5 samples, which decide nothing; measure it" in found.reason
    assert "more `seconds`" not in found.reason


def test_a_disturbed_side_reaches_down_to_its_fastest_sample() -> None:
    def stalls(number: int) -> float:
        return 1.0 if number == 7 else 2.0 + 0.001 * number

    busy = FakeWorker({"numpy": 1e-3}, noise=stalls, disturbed=True)
    doubtful = performance(busy, stored(1e-3))
    assert doubtful.status == "cannot tell"
    assert doubtful.facts["low"] < 1.0 < 2.0 < doubtful.facts["ratio"]
    assert "disturbed: others used 70% of the CPUs" in doubtful.reason
    quiet = FakeWorker({"numpy": 1e-3}, noise=stalls)
    assert performance(quiet, stored(1e-3)).status == "fail"
    assert performance(busy, stored(0.5e-3)).status == "fail"  # even its fastest is slower

    slowed = tuple(1e-3 * stalls(number) for number in range(20))
    before = Stored("numpy previous", slowed, "{}", disturbed=True)
    fast = FakeWorker({"numpy": 1.5e-3})
    assert performance(fast, before).status == "cannot tell"
    assert performance(fast, replace(before, disturbed=False)).status == "pass"
    assert performance(FakeWorker({"numpy": 1e-3}), before).status == "pass"


def test_no_baseline_of_this_problem_is_open_and_the_same_candidate_passes() -> None:
    found = performance(FakeWorker({}), Missing("numpy v1 has no measurement of this problem"))
    assert (found.status, found.reason) == (
        "not measured",
        "numpy v1 has no measurement of this problem",
    )
    assert performance(FakeWorker({}), candidate("numpy")).status == "pass"


def test_what_a_candidate_printed_leaves_the_xml_readable() -> None:
    broken = Check("fail", "crashed; last output: \x1b[31m\x00 <&>")
    passed = Check("pass")
    found = [Acceptance(problem(), candidate("numpy"), "0" * 16, broken, passed, passed)]
    (suite,) = ElementTree.fromstring(junit(found, [], {"device": "cpu-1", "label": None}))
    (failure,) = suite.iter("failure")
    assert failure.get("message") == "crashed; last output: ?[31m? <&>"
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "0")


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        (("pass", "pass", "pass"), 0),
        (("pass", "not asked", "not asked"), 0),
        (("fail", "pass", "not measured"), 8 | 64),
        (("pass", "fail", "fail"), 16 | 32),
        (("pass", "not measured", "pass"), 64),
        (("pass", "pass", "cannot tell"), 64),
    ],
)
def test_every_failure_has_its_bit_and_an_open_question_another(
    statuses: tuple[Any, Any, Any], code: int
) -> None:
    checks = [Check(status) for status in statuses]
    assert exit_code([Acceptance(problem(), candidate("numpy"), "0" * 16, *checks)]) == code
