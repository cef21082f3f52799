"""Runs a compiled worker function once per thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, prange, typeof, types


class _Pointer(types.WrapperAddressProtocol):
    """A compiled function as a numba function pointer."""

    def __init__(self, work: Any, arguments: tuple[Any, ...]) -> None:
        signature = types.void(*arguments)
        work.compile(signature.args)
        compiled = work.overloads[signature.args]
        self._numba_type_ = types.FunctionType(signature)
        self._signature = signature
        self._address = compiled.library.get_pointer_to_function(
            compiled.fndesc.llvm_cfunc_wrapper_name
        )

    def __wrapper_address__(self) -> int:
        return int(self._address)

    def signature(self) -> Any:
        return self._signature


@njit(parallel=True, nogil=True)
def _run(work: Any, t: Any, plan: Any) -> None:
    for index in prange(plan.threads):
        work(np.int64(index), t, plan)


class Workers:
    """`Workers(work)(t, plan)` calls `work(worker, t, plan)` for each worker in `plan.threads`.

    `t` is a named tuple of arrays. The parallel region calls `work` through a pointer: what it
    calls directly numba compiles three times over, and once more for every region.
    """

    def __init__(self, work: Callable[..., None]) -> None:
        self._work = work
        self._pointers: dict[tuple[int, ...], _Pointer] = {}

    def __call__(self, t: Any, plan: Any) -> None:
        kind_of: Any = typeof
        kinds = tuple([array.flags.num for array in t])
        pointer = self._pointers.get(kinds)
        if pointer is None:
            arguments = (types.int64, kind_of(t), kind_of(plan))
            pointer = self._pointers[kinds] = _Pointer(self._work, arguments)
        _run(pointer, t, plan)
