"""Views of arrays whose layout is known better than their numba type says."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic

_borrowed: Any = impl_ret_borrowed


def _any_strides(typing_context: Any, array: Any) -> Any:
    strided = types.Array(array.dtype, array.ndim, "A", readonly=True, aligned=False)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _borrowed(context, builder, strided, arguments[0])

    return strided(array), generate


any_strides: Any = intrinsic(_any_strides)
"""The same view to read from, its type saying nothing of strides: one type for every layout."""
