"""Fixtures for campaigns over the toy operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import Answer, Clock, FakeDevice, FakeWorker, scale_operation, tiled_wins

from autotune.campaign import Campaign, Settings
from autotune.model import Operation, Problem
from autotune_tuning_db import Store, open_store


@pytest.fixture
def operation() -> Iterator[Operation]:
    with scale_operation() as declared:
        yield declared


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "tuning.db") as opened:
        yield opened


class Bench:
    """Runs campaigns on one store; keeps the last worker and all events."""

    def __init__(self, operation: Operation, store: Store) -> None:
        self.operation, self.store = operation, store
        self.clock = Clock()
        self.worker = FakeWorker(tiled_wins, self.clock)
        self.events: list[Any] = []

    def campaign(
        self,
        sizes: tuple[int, ...] = (1024,),
        answer: Answer = tiled_wins,
        *,
        prepare: Callable[[FakeWorker], None] = lambda worker: None,
        **settings: Any,
    ) -> Campaign:
        self.worker = FakeWorker(answer, self.clock)
        prepare(self.worker)
        return Campaign(
            [Problem.of(self.operation, (size,)) for size in sizes],
            device=FakeDevice(),
            settings=Settings(**settings),
            store=self.store,
            progress=self.events.append,
            make_worker=lambda _: self.worker,
            clock=self.clock,
        )


@pytest.fixture
def bench(operation: Operation, store: Store) -> Bench:
    return Bench(operation, store)
