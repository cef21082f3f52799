"""Every trial says why it was made; what came from a neighbour is marked as a transfer."""

from __future__ import annotations

from campaign_fakes import Bench


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
