"""Arrays that a call writes to and reads from at once, and arrays that it must not write to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotune.errors import ShapeError
from autotune.libraries import Library
from autotune.model.operation import Operation

_KNOWN = 64  # calls whose answer is kept: the arrays of a loop come back


class Apart:
    """Keeps what calls of one binding read apart from what they write to.

    All calls have arrays of the same shapes and dtypes, so that addresses and strides tell whether
    they share memory: the answer for those of a call is kept.
    """

    def __init__(self, operation: Operation, library: Library) -> None:
        updated = operation.updated
        names = [tensor.name for tensor in operation.inputs]
        self._name, self._library = operation.name, library
        self._updated = [(n, names.index(n)) for n in names if n in updated]
        self._read = [name not in updated for name in names]
        self._known: dict[tuple[Any, ...], tuple[bool, ...] | None] = {}

    def __call__(self, inputs: tuple[Any, ...], given: Sequence[Any]) -> tuple[Any, ...]:
        """The inputs, a copy in place of each that shares memory with what the call writes to.

        `given` are the caller's outputs; inputs that the operation updates are written to as well.
        A kernel reads its inputs until it ends. Raises ShapeError for updated inputs that are
        read-only, and for two arrays to write to that share memory.
        """
        library = self._library
        for name, place in self._updated:
            if not library.writeable(inputs[place]):
                raise ShapeError(
                    f"{self._name}: {name} is updated in place and is read-only; pass a "
                    f"writable one."
                )
        key = library.whereabouts((*inputs, *given))
        if key is None:
            shared = self._shared(inputs, given)
        else:
            try:
                shared = self._known[key]
            except KeyError:
                shared = self._shared(inputs, given)
                if len(self._known) >= _KNOWN:
                    self._known.clear()
                self._known[key] = shared
        if shared is None:
            return inputs
        pairs = zip(inputs, shared, strict=True)
        return tuple(library.copy(each) if copied else each for each, copied in pairs)

    def _shared(self, inputs: tuple[Any, ...], given: Sequence[Any]) -> tuple[bool, ...] | None:
        """Which inputs have to be copied; None where none has."""
        extents = self._library.extents((*inputs, *given))
        if extents is not None and _all_apart(extents):
            return None
        overlap = self._library.overlap
        written = [*given, *(inputs[place] for _, place in self._updated)]
        for place, one in enumerate(written[1:], 1):
            if any(overlap(one, other) for other in written[:place]):
                raise ShapeError(
                    f"{self._name}: two arrays that it writes to share memory; pass separate ones."
                )
        shared = tuple(
            read and any(overlap(array, other) for other in written)
            for array, read in zip(inputs, self._read, strict=True)
        )
        return shared if any(shared) else None


def _all_apart(extents: Sequence[tuple[int, int]]) -> bool:
    """Whether no two ranges of addresses meet."""
    end = 0
    for first, behind in sorted(extents):
        if first < end:
            return False
        end = max(end, behind)
    return True


def kept_updates(
    operation: Operation, library: Library, inputs: Sequence[Any]
) -> list[tuple[Any, Any]]:
    """The inputs that a call updates, each with a copy to restore it from."""
    pairs = zip(operation.inputs, inputs, strict=True)
    return [(array, library.copy(array)) for t, array in pairs if t.name in operation.updated]
