"""Arrays that a call writes to and reads from at once, and arrays that it must not write to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotune.errors import ShapeError
from autotune.libraries import Library
from autotune.model.operation import Operation


def apart(
    operation: Operation, library: Library, inputs: tuple[Any, ...], given: Sequence[Any]
) -> tuple[Any, ...]:
    """The inputs, a copy in place of each that shares memory with what the call writes to.

    `given` are the caller's outputs; inputs that the operation updates are written to as well. A
    kernel reads its inputs until it ends. Raises ShapeError for updated inputs that are read-only,
    and for two arrays to write to that share memory.
    """
    updated = set(operation.updated)
    names = [tensor.name for tensor in operation.inputs]
    written = list(given)
    for name, array in zip(names, inputs, strict=True):
        if name in updated:
            if not library.writeable(array):
                raise ShapeError(
                    f"{operation.name}: {name} is updated in place and is read-only; pass a "
                    f"writable one."
                )
            written.append(array)
    for place, one in enumerate(written[1:], 1):
        if any(library.overlap(one, other) for other in written[:place]):
            raise ShapeError(
                f"{operation.name}: two arrays that it writes to share memory; pass separate ones."
            )
    shared = [
        name not in updated and any(library.overlap(array, other) for other in written)
        for name, array in zip(names, inputs, strict=True)
    ]
    if not any(shared):
        return inputs
    return tuple(
        library.copy(each) if copied else each for each, copied in zip(inputs, shared, strict=True)
    )


def kept_updates(
    operation: Operation, library: Library, inputs: Sequence[Any]
) -> list[tuple[Any, Any]]:
    """The inputs that a call updates, each with a copy to restore it from."""
    pairs = zip(operation.inputs, inputs, strict=True)
    return [(array, library.copy(array)) for t, array in pairs if t.name in operation.updated]
