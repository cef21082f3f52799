"""The search over a problem's candidates: ask for one, tell what it took."""

from autotune.search.search import Search, Strategy
from autotune.search.space import Axis, Space, VariantSpace, build_space

__all__ = ["Axis", "Search", "Space", "Strategy", "VariantSpace", "build_space"]
