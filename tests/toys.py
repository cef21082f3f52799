"""A toy plugin, and GPUs that are not there."""

from __future__ import annotations

import pytest
from cards import Have, two_cards
from filled import PLUGIN

from autotune.device import gpus
from autotune.device.cuda import CudaDevice
from autotune.device.gpus import Gpus
from autotune.plugins import load_file


@pytest.fixture
def toy() -> str:
    """Path of the toy plugin, loaded."""
    load_file(PLUGIN)
    return str(PLUGIN)


@pytest.fixture
def have(monkeypatch: pytest.MonkeyPatch) -> Have:
    """Makes this machine one with two equal A100."""

    def put(unusable: str | None = None) -> CudaDevice:
        both = two_cards(unusable)
        monkeypatch.setattr(gpus, "local_gpus", lambda: Gpus(both))
        return both[0]

    return put
