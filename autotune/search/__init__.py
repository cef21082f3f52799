"""The search over a problem's candidates: ask for one, tell what it took."""

from autotune.search.search import Search
from autotune.search.space import Axis, Space, VariantSpace, build_space
from autotune.search.strategy import METHODS, Strategy

__all__ = ["METHODS", "Axis", "Search", "Space", "Strategy", "VariantSpace", "build_space"]
