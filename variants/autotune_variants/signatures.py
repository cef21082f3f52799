"""Fixes the types that numba compiles for, and passes compiled functions by pointer."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from numba import types

_lock = threading.Lock()


def array_kind(dtype: str, dims: int, *, any_layout: bool = False, readonly: bool = False) -> Any:
    """Numba's type of an array: C-contiguous and aligned, or of any strides and alignment."""
    kind = getattr(types, dtype)
    if any_layout:
        return types.Array(kind, dims, "A", readonly=readonly, aligned=False)
    return types.Array(kind, dims, "C")


def compile_only(function: Any, kinds: Sequence[Any]) -> None:
    """Compile for these argument types; calls with others are converted where numba can.

    An array of any layout passes for one of arbitrary strides, and a writable one for a read-only
    one. Left to itself, numba would compile anew for each combination that callers come up with.
    """
    with _lock:
        function.disable_compile(False)
        function.compile(tuple(kinds))
        function.disable_compile()


class Pointer(types.WrapperAddressProtocol):
    """A function, compiled for one signature, as a numba function pointer."""

    def __init__(self, function: Any, signature: Any) -> None:
        function.compile(signature.args)
        compiled = self._kept = function.overloads[signature.args]
        self._numba_type_ = types.FunctionType(signature)
        self._signature = signature
        self._address = compiled.library.get_pointer_to_function(
            compiled.fndesc.llvm_cfunc_wrapper_name
        )

    def __wrapper_address__(self) -> int:
        return int(self._address)

    def signature(self) -> Any:
        return self._signature
