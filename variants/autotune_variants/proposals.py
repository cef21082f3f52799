"""What `autotune tune` measures when nothing is named: attention, training and decode."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.device import Device
from autotune.model import Problem
from autotune.registry import registry

_SIZES = (
    # The study's comparison of separate and fused passes; the winner changes with N.
    ("attention_train", {"B": 2, "H": 1, "N": 512, "D": 64}, "float32"),
    ("attention_train", {"B": 2, "H": 1, "N": 1024, "D": 64}, "float32"),
    ("attention_train", {"B": 2, "H": 1, "N": 2048, "D": 64}, "float32"),
    ("attention", {"B": 2, "H": 1, "N": 512, "D": 64}, "float32"),
    ("attention", {"B": 2, "H": 1, "N": 2048, "D": 64}, "float32"),
    ("attention", {"B": 2, "H": 1, "N": 1024, "D": 64}, "float64"),
    # The best number of threads moves with the length of the cache.
    ("decode", {"B": 1, "H": 1, "N": 4096, "D": 64}, "float32"),
    ("decode", {"B": 1, "H": 1, "N": 262_144, "D": 64}, "float32"),
)


def problems(device: Device) -> Iterator[Problem]:
    """Eight problems that show what varies; about four minutes on two cores."""
    known = {operation.name: operation for operation in registry.operations()}
    for name, sizes, dtype in _SIZES:
        if device.kind == "cpu" and name in known:
            yield Problem.of(known[name], sizes, dtype)


registry.add_proposal(problems)
