"""Settings from the environment, read in this one place, and where data lives on disk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    """Where things are kept and how strict to be."""

    database: Path
    cache: Path
    frozen: bool
    strict_plugins: bool


def settings() -> Settings:
    """The settings in force.

    AUTOTUNE_HOME moves everything the project writes (database, locks, compiled kernels);
    AUTOTUNE_DB moves the database alone; AUTOTUNE_FROZEN=1 serves from one snapshot for the life
    of the process; AUTOTUNE_STRICT_PLUGINS=1 makes a broken plugin an error.
    """
    home = os.environ.get("AUTOTUNE_HOME")
    if home:
        data, cache = Path(home).expanduser(), Path(home).expanduser() / "cache"
    else:
        import platformdirs

        data = Path(platformdirs.user_data_dir("onf-autotune", appauthor=False))
        cache = Path(platformdirs.user_cache_dir("onf-autotune", appauthor=False))
    return Settings(
        database=Path(os.environ.get("AUTOTUNE_DB") or data / "tuning.db").expanduser(),
        cache=cache,
        frozen=_truthy("AUTOTUNE_FROZEN"),
        strict_plugins=_truthy("AUTOTUNE_STRICT_PLUGINS"),
    )


def _truthy(name: str) -> bool:
    return os.environ.get(name, "").lower() not in ("", "0", "no", "false")
