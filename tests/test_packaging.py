"""What a wheel has to contain besides Python."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOMES = {
    "autotune": ROOT / "autotune",
    "autotune_variants": ROOT / "variants" / "autotune_variants",
    "autotune_policies": ROOT / "policies" / "autotune_policies",
    "autotune_tuning_db": ROOT / "tuning_db" / "autotune_tuning_db",
}
SOURCES = {".cu", ".cuh", ".c", ".f90", ".h", ".inc", ".json", ".typed", ".sql", ".toml"}


def test_every_source_and_data_file_is_declared() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    for package, home in HOMES.items():
        patterns = declared["package-data"][package]
        kept = {path for pattern in patterns for path in home.glob(pattern)}
        there = {path for path in home.rglob("*") if path.suffix in SOURCES}
        assert there <= kept, sorted(str(path) for path in there - kept)
        for pattern in patterns:
            assert list(home.glob(pattern)), f"{package}: nothing is called {pattern}"
