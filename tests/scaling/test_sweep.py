"""What a sweep measures, leaves out and concludes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from scaling_bench import FakeWorker, problem, trials

from autotune.device import local_cpu
from autotune.errors import UserError
from autotune.model import Candidate, Config, Problem
from autotune.registry import registry
from autotune.report.blocks import to_text
from autotune.report.scaling import scale_blocks, scale_document, threads_blocks, threads_document
from autotune.scaling import Setting, SweepStopped, sweep, sweep_sizes, sweep_threads
from autotune.worker.protocol import Job


def sized() -> list[tuple[int, Problem]]:
    """Three sizes of the toy operation."""
    return [(n, problem(n)) for n in (8, 16, 32)]


@dataclass(frozen=True)
class Numa:
    """Four threads, two placements."""

    kind: str = "cpu"
    identity: str = "cpu-numa-1"
    family: str = "cpu-numa"
    label: str = "Two nodes"
    facts: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    address: str = "cpu"
    lock_name: str = "cpu-numa-1"
    unusable: str | None = None
    last_level_cache_bytes: int = 0

    def thread_counts(self) -> tuple[int, ...]:
        return (1, 2, 4)

    def placements(self) -> tuple[str, ...]:
        return ("free", "spread")


def square(size: int, job: Job) -> float | str:
    """As the flops grow; threefold at the last size for one of them."""
    if job.variant == "breaking" and size >= 16:
        return "failed"
    return 1e-6 * size**2 * (3.0 if job.variant == "threaded" and size == 32 else 1.0)


def test_every_variant_is_measured_at_every_size_that_it_admits() -> None:
    worker = FakeWorker(square)
    variants = registry.variants("toy_cube")
    curves = sweep_sizes(trials(local_cpu(), worker), sized(), variants, budget=1.0)
    sizes = {curve.variant: [point.size for point in curve.points] for curve in curves}
    assert sizes == {
        "plain": [8, 16, 32],
        "threaded": [8, 16, 32],
        "small": [8, 16],
        "breaking": [8, 16],
    }
    left_out = {curve.variant: curve.left_out for curve in curves if curve.left_out}
    assert left_out == {
        "small": ("32: needs N <= 16",),
        "breaking": ("32: failed at a smaller size",),
    }
    assert [job.problem for job in worker.jobs[:4]] == [sized()[0][1].key.text] * 4
    assert curves[0].points[0].first_call == 0.35


def test_no_size_is_begun_after_the_budget() -> None:
    worker = FakeWorker(square, wall=0.4)
    curves = sweep_sizes(
        trials(local_cpu(), worker),
        [(n, problem(n)) for n in (8, 16, 32, 64)],
        registry.variants("toy_cube")[:2],
        budget=1.0,
    )
    for curve in curves:
        assert [point.size for point in curve.points] == [8, 16]
        assert curve.left_out == ("32 to 64: the budget of 1.0 s is used up",)
    budgets = [job.budget for job in worker.jobs]
    assert budgets == [0.125, 0.125, 0.1, 0.1]  # what was left, among what was to come


def test_the_first_size_is_measured_whatever_the_budget() -> None:
    worker = FakeWorker(square, wall=9.0)
    variants = registry.variants("toy_cube")[:2]
    curves = sweep_sizes(trials(local_cpu(), worker), sized(), variants, budget=0.1)
    assert [[point.size for point in curve.points] for curve in curves] == [[8], [8]]


def test_what_cannot_fit_the_memory_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "memory_left", lambda: 600)
    worker = FakeWorker(square)
    sizes = [(n, problem(n)) for n in (8, 16, 32, 10**12)]
    (curve,) = sweep_sizes(
        trials(local_cpu(), worker), sizes, registry.variants("toy_cube")[:1], budget=1.0
    )
    assert [point.size for point in curve.points] == [8, 16]
    assert curve.left_out == (
        "32 to 1000000000000: needs 1 KiB at 32, and 600 B of memory are left",
    )


def test_after_ctrl_c_there_is_what_was_measured() -> None:
    worker = FakeWorker(square, stopped=4)
    with pytest.raises(SweepStopped) as caught:
        sweep_sizes(
            trials(local_cpu(), worker), sized(), registry.variants("toy_cube")[:2], budget=1.0
        )
    sizes = [[point.size for point in curve.points] for curve in caught.value.curves]
    assert sizes == [[8, 16], [8]]


def test_what_was_measured_is_kept_in_the_store() -> None:
    measuring = trials(local_cpu(), FakeWorker(square))
    sweep_sizes(measuring, sized(), registry.variants("toy_cube")[:1], budget=1.0)
    rows = measuring.store.trials(operation="toy_cube")
    assert [(row.variant, row.problem.dim("N"), row.status) for row in rows] == [
        ("plain", 8, "ok"),
        ("plain", 16, "ok"),
        ("plain", 32, "ok"),
    ]


def test_the_report_names_the_jump_and_shows_first_calls_apart() -> None:
    variants = registry.variants("toy_cube")
    curves = sweep_sizes(trials(local_cpu(), FakeWorker(square)), sized(), variants, budget=1.0)
    text = to_text(scale_blocks("N", sized(), curves, "cold"))
    assert max(map(len, text.splitlines())) <= 80
    flat = " ".join(text.split())
    assert "16 256 us 2.00 (1.99 to 2.01) 1.00 2.00 350 ms 1.50 s" in flat
    assert "jump: threaded takes 12.0x as long from N=16 to 32, 3.0x more than" in flat
    assert flat.count("jump: threaded") == 1
    assert "not measured at 16: failed, it did not work" in flat
    document = scale_document("N", sized(), curves, "cold")
    assert document["variants"][0]["points"][0]["seconds"] == pytest.approx(64e-6)
    assert [step.jump for step in document["variants"][0]["steps"]] == [None, None]


def by_threads(size: int, job: Job) -> float | str:
    """Fastest with two; four are hopeless unless they are spread."""
    free = {1: 2e-3, 2: 1e-3, 4: 535e-3}
    spread = {1: 2e-3, 2: 1.5e-3, 4: 1.2e-3}
    return (free if job.config["placement"] == "free" else spread)[int(job.config["threads"])]


CHOSEN = Candidate("threaded", Config({"splits": 8, "threads": 4, "placement": "free"}))


def test_all_threads_are_compared_with_the_best() -> None:
    worker = FakeWorker(by_threads)
    swept = sweep_threads(trials(Numa(), worker), problem(), CHOSEN, budget=1.0)
    assert len(worker.jobs) == 6
    assert swept.best is not None
    assert swept.best[0] == Setting(2, "free")
    assert swept.penalty(Setting(4, "free")) == pytest.approx(535.0)
    text = to_text(threads_blocks(problem(), swept, "cold"))
    assert max(map(len, text.splitlines())) <= 80
    flat = " ".join(text.split())
    assert "best: 2 threads placed free, 1.00 ms. all 4 threads over the best: free 535x" in flat
    assert "spread 1.2x" in flat
    document = threads_document(problem(), swept, "cold")
    assert document["best"] == Setting(2, "free")
    assert document["all_threads_over_best"]["free"] == pytest.approx(535.0)


def test_few_samples_are_marked_and_all_threads_that_fail_are_told_of() -> None:
    def failing(size: int, job: Job) -> float | str:
        return "failed" if job.config["threads"] == 4 else by_threads(size, job)

    swept = sweep_threads(trials(Numa(), FakeWorker(failing)), problem(), CHOSEN, budget=1.0)
    points = [
        (setting, replace(point, samples=point.samples[:3])) for setting, point in swept.points
    ]
    few = replace(swept, points=tuple(points))
    flat = " ".join(to_text(threads_blocks(problem(), few, "cold")).split())
    assert re.search(r"to 99\d us\?", flat)
    assert "all 4 threads over the best: free no time" in flat
    assert flat.endswith("?: too few samples for 95%.")
    document = threads_document(problem(), few, "cold")
    assert document["all_threads_over_best"]["free"] is None
    assert document["settings"][0]["coverage"] < 0.95


def test_the_rest_of_the_config_changes_only_where_a_constraint_asks_for_it() -> None:
    worker = FakeWorker(by_threads)
    swept = sweep_threads(trials(Numa(), worker), problem(), CHOSEN, budget=1.0)
    splits = {(s.threads, s.placement): p.config["splits"] for s, p in swept.points}
    assert splits == {
        (threads, placed): 4 if threads == 1 else 8
        for threads in (1, 2, 4)
        for placed in ("free", "spread")
    }
    assert "splits=4" in to_text(threads_blocks(problem(), swept, "cold"))


def test_a_variant_without_threads_is_refused() -> None:
    plain = Candidate("plain", Config({}))
    with pytest.raises(UserError, match="plain has no tunable `threads`"):
        sweep_threads(trials(Numa(), FakeWorker(by_threads)), problem(), plain, budget=1.0)
