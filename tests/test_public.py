"""The public names: pinned, importable, documented."""

from __future__ import annotations

import pytest

import autotune

PUBLIC = [
    "AutotuneError",
    "Choice",
    "Config",
    "Intermediate",
    "Operation",
    "Pass",
    "Placement",
    "PowerOfTwo",
    "Problem",
    "Published",
    "Range",
    "Requirement",
    "Threads",
    "Unit",
    "UserError",
    "Variant",
    "__version__",
    "dispatch",
    "operation",
    "stats",
    "tune",
    "variant",
]


def test_public_names_are_pinned() -> None:
    assert sorted(autotune.__all__) == PUBLIC


@pytest.mark.parametrize("name", [name for name in PUBLIC if not name.startswith("_")])
def test_public_names_exist_and_are_documented(name: str) -> None:
    thing = getattr(autotune, name)
    assert thing.__doc__
    assert len(thing.__doc__.splitlines()[0]) > 10


def test_operations_are_attributes() -> None:
    assert autotune.attention.name == "attention"
    with pytest.raises(AttributeError, match="did you mean 'attention'"):
        _ = autotune.atention
