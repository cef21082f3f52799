"""Arrays in any layout with guard values around them, and what a variant may do to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_SENTINEL = -123.25
_MARGIN = 17


@dataclass(frozen=True)
class Boxed:
    """A view with sentinels everywhere else in its memory."""

    view: Array
    store: Array
    outside: Array

    def intact(self) -> bool:
        """Whether nothing outside of the view was written."""
        return bool((self.store[self.outside] == _SENTINEL).all())


def boxed(shape: tuple[int, ...], dtype: str, layout: str, fill: Any = np.nan) -> Boxed:
    """An array of `shape`: "packed", or "strided" with a negative and a non-unit stride."""
    size = int(np.prod(shape)) if layout == "packed" else 2 * int(np.prod(shape))
    store = np.full(size + 2 * _MARGIN, _SENTINEL, dtype)
    outside = np.ones(store.shape, bool)
    view = _view(store, shape, layout)
    _view(outside, shape, layout)[...] = False
    view[...] = fill
    return Boxed(view, store, outside)


def _view(store: Array, shape: tuple[int, ...], layout: str) -> Array:
    inner = store[_MARGIN:-_MARGIN]
    if layout == "packed":
        return inner.reshape(shape)
    wide = inner.reshape(*shape[:-1], 2 * shape[-1])[..., ::2]
    return wide[..., ::-1, :] if wide.ndim > 1 else wide[::-1]
