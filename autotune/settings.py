"""Settings from the environment, read in this one place, and where data lives on disk."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    """Where things are kept and how strict to be; `moved`: not where such things usually are."""

    database: Path
    cache: Path
    frozen: bool
    strict_plugins: bool
    moved: bool = False


def settings() -> Settings:
    """The settings in force.

    AUTOTUNE_HOME moves everything the project writes (database, locks, compiled kernels), and
    what numba, CuPy and the driver compile for it;
    AUTOTUNE_DB moves the database alone; AUTOTUNE_FROZEN=1 serves from one snapshot for the life
    of the process; AUTOTUNE_STRICT_PLUGINS=1 makes a broken plugin an error.
    """
    home = os.environ.get("AUTOTUNE_HOME")
    if home:
        data, cache = _place(home), _place(home) / "cache"
    else:
        data, cache = _usual_places()
    database = os.environ.get("AUTOTUNE_DB")
    return Settings(
        database=_place(database) if database else data / "tuning.db",
        cache=cache,
        frozen=_truthy("AUTOTUNE_FROZEN"),
        strict_plugins=_truthy("AUTOTUNE_STRICT_PLUGINS"),
        moved=bool(home) or data in cache.parents,
    )


def _usual_places() -> tuple[Path, Path]:
    """Where the user's data and caches belong; for one without a home, among temporary files."""
    import platformdirs

    try:
        names = platformdirs.user_data_dir, platformdirs.user_cache_dir
        data, cache = (Path(name("onf-autotune", appauthor=False)) for name in names)
    except RuntimeError:
        return temporary_place(), temporary_place() / "cache"
    if not data.is_absolute() or not cache.is_absolute():  # `~`, where it stands for nothing
        return temporary_place(), temporary_place() / "cache"
    return data, cache


def _place(text: str) -> Path:
    """A path with `~` replaced; see `_usual_places` for a user without a home."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return temporary_place() / Path(text).name


def temporary_place() -> Path:
    """A folder among temporary files that is this user's own, or one that cannot exist.

    Whoever laid out a folder of that name before could choose what is written to.
    """
    import tempfile

    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    folder = Path(tempfile.gettempdir()) / f"onf-autotune-{user}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return Path(os.devnull) / "onf-autotune"
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == user and not found.st_mode & 0o022
    return folder if ours else Path(os.devnull) / "onf-autotune"


def _truthy(name: str) -> bool:
    return os.environ.get(name, "").lower() not in ("", "0", "no", "false")
