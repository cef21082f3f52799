"""Workspace: the temporaries of a candidate in one array of bytes that the caller gives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from autotune.errors import ShapeError
from autotune.libraries import VECTOR_BYTES, Form, Library, Part, library_of, place_name
from autotune.model.problem import Problem, dtype_itemsize
from autotune.model.traits import intermediate_shapes
from autotune.model.variant import Variant

ALIGNMENT = 256
"""Bytes; every temporary starts at a multiple, as memory from CUDA's allocators does."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each temporary starts, and the bytes of all."""

    forms: tuple[Form, ...]
    offsets: tuple[int, ...]
    nbytes: int

    @property
    def parts(self) -> tuple[Part, ...]:
        """The temporaries as parts of a workspace."""
        return tuple(zip(self.offsets, self.forms, strict=True))

    def check(self, library: Library, place: int | None, workspace: Any, what: str) -> None:
        """ShapeError for a workspace that is no array of enough bytes of that library and place.

        On a GPU it begins where vectors can be read, as what a library allocates does.
        """
        shape, dtype = getattr(workspace, "shape", None), getattr(workspace, "dtype", None)
        fits = shape is not None and len(shape) == 1 and shape[0] >= self.nbytes
        fits = fits and _is_bytes(dtype)
        if not fits or library_of(workspace).name != library.name or not library.packed(workspace):
            raise ShapeError(
                f"{what}: workspace is a packed uint8 array of {library.name}'s of at least "
                f"{self.nbytes} bytes, got {dtype} {shape}."
            )
        found = library.place(workspace)
        if found != place:
            raise ShapeError(
                f"{what}: workspace is on {place_name(found)}, the inputs on {place_name(place)}."
            )
        if not library.aligned(workspace):
            raise ShapeError(
                f"{what}: workspace begins at an address that is no multiple of {VECTOR_BYTES}; "
                "pass an array as it was allocated."
            )


@lru_cache(maxsize=256)
def _is_bytes(dtype: Any) -> bool:
    return str(dtype).rpartition(".")[2] == "uint8"


def layout(variant: Variant, problem: Problem, config: Mapping[str, Any]) -> Layout:
    """The layout of a candidate's temporaries, in declared order."""
    forms = intermediate_shapes(variant, problem, config)
    offsets, end = [], 0
    for shape, dtype in forms:
        offsets.append(end)
        size = math.prod(shape) * dtype_itemsize(dtype)
        end += -(-size // ALIGNMENT) * ALIGNMENT
    return Layout(forms, tuple(offsets), end)
