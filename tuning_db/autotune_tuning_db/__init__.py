"""The store of everything measured and chosen; see the README beside this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotune_tuning_db.errors import StoreError, StoreWarning
from autotune_tuning_db.keys import LAYOUTS, ProblemKey, Scalar
from autotune_tuning_db.rows import (
    MODES,
    STAGES,
    STATUSES,
    CampaignRow,
    CeilingsRow,
    DeviceRow,
    PinRow,
    PolicyRow,
    TrialRow,
    utc_now,
)

if TYPE_CHECKING:
    from autotune_tuning_db.exchange import ExchangeError, ImportReport
    from autotune_tuning_db.repair import Repaired, repair_store
    from autotune_tuning_db.store import Store, open_store
    from autotune_tuning_db.upkeep import Checked, Collected, check_store

__all__ = [
    "LAYOUTS",
    "MODES",
    "STAGES",
    "STATUSES",
    "CampaignRow",
    "CeilingsRow",
    "Checked",
    "Collected",
    "DeviceRow",
    "ExchangeError",
    "ImportReport",
    "PinRow",
    "PolicyRow",
    "ProblemKey",
    "Repaired",
    "Scalar",
    "Store",
    "StoreError",
    "StoreWarning",
    "TrialRow",
    "check_store",
    "open_store",
    "repair_store",
    "utc_now",
]

_ON_FIRST_USE = {
    "Checked": "upkeep",
    "Collected": "upkeep",
    "ExchangeError": "exchange",
    "ImportReport": "exchange",
    "Repaired": "repair",
    "Store": "store",
    "check_store": "upkeep",
    "open_store": "store",
    "repair_store": "repair",
}


def __getattr__(name: str) -> Any:
    """Loads the store itself on first use: importing sqlite-utils takes a tenth of a second."""
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_ON_FIRST_USE[name]}"), name)
