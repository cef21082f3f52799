"""Campaigns and their search: marks of where trials come from, recordings, empty spaces."""

from __future__ import annotations

from pathlib import Path

import pytest
from campaign_fakes import Bench, _variant

from autotune.campaign import CampaignError
from autotune.model import Operation, Problem, Range
from autotune.model.operation import parse_tensors
from autotune.registry import registry
from autotune.replay import read_recordings, replay
from autotune.replay.write import write_recordings


def proposed(bench: Bench, size: int) -> list[object]:
    rows = [r for r in bench.store.trials() if r.stage == "search" and r.problem.dim("N") == size]
    return [row.circumstances.get("proposed") for row in rows]


def test_the_winner_of_a_neighbouring_problem_is_tried_as_a_transfer(bench: Bench) -> None:
    bench.campaign(sizes=(1024,), trials=40).run()
    first = proposed(bench, 1024)
    assert first[:2] == ["default", "default"]
    assert "transfer" not in first
    assert {"spread", "model", "neighbour"} <= set(first)
    bench.campaign(sizes=(2048,), trials=40).run()
    second = proposed(bench, 2048)
    assert second[:3] == ["default", "default", "transfer"]
    (moved, *_) = [
        row
        for row in bench.store.trials()
        if row.circumstances.get("proposed") == "transfer" and row.stage == "search"
    ]
    assert dict(moved.config) == {"tile": 128, "threads": 4, "order": "columns"}


def test_a_campaign_is_a_recording_that_can_be_searched(bench: Bench, tmp_path: Path) -> None:
    (result,) = bench.campaign(budget=1e6).run().results
    write_recordings(bench.store.trials(), tmp_path / "new")
    (recording,) = read_recordings(tmp_path / "new")
    assert len(recording) == result.tried
    assert recording.best == pytest.approx(4e-4)
    assert {home.variant for home in recording.space.variants} == {"plain", "tiled"}
    tiled = recording.space.variant("tiled")
    assert tiled is not None
    assert {axis.name for axis in tiled.axes if axis.ordered} == {"tile", "threads"}
    assert tiled.candidate(tiled.default).config["tile"] == 16
    assert replay(recording, budget=result.tried, seeds=1).mean(result.tried) == 1.0


def test_constraints_that_exclude_everything_are_said_before_any_measurement(bench: Bench) -> None:
    operation = Operation(
        name="fake_empty",
        dims=("N",),
        inputs=parse_tensors("x[N]"),
        outputs=parse_tensors("y[N]"),
        reference=bench.operation.reference,
        plain=bench.operation.plain,
        axes=(("N",),),
    )
    registry.add_operation(operation)
    impossible = _variant(
        operation, "none", tunables=(Range("tile", 1, 3),), constraints=("tile > 3",)
    )
    registry.add_variant(impossible)
    campaign = bench.campaign()
    campaign.problems = (Problem.of(operation, (64,)),)
    try:
        with pytest.raises(
            CampaignError, match="none: skipped, no config satisfies its constraints"
        ):
            campaign.run()
    finally:
        registry._operations.pop("fake_empty")
        registry._variants.pop("fake_empty")
    assert bench.worker.jobs == []
