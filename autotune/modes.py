"""How a candidate may be measured: cold, hot, or as a CUDA graph; and which device has what."""

from __future__ import annotations

from autotune.errors import UnknownNameError, UserError
from autotune_tuning_db import MODES


def require_mode(mode: str, device_kind: str | None = None) -> None:
    """Raise UserError for a mode that is none, or that such a device does not have."""
    if mode not in MODES:
        raise UnknownNameError("mode", str(mode), MODES)
    if mode == "graph" and device_kind == "cpu":
        raise UserError("mode 'graph' replays CUDA graphs and needs a GPU; a CPU has cold and hot.")
