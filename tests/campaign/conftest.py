"""Fixtures for campaigns over the toy operation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from campaign_fakes import Bench, scale_operation

from autotune.model import Operation
from autotune_tuning_db import Store, open_store


@pytest.fixture
def operation() -> Iterator[Operation]:
    with scale_operation() as declared:
        yield declared


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "tuning.db") as opened:
        yield opened


@pytest.fixture
def bench(operation: Operation, store: Store) -> Bench:
    return Bench(operation, store)
