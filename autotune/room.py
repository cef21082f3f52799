"""Whether a problem fits the memory that is left, with what the gate holds beside its arrays."""

from __future__ import annotations

from autotune import units
from autotune.arrays import array_dtype, is_floating
from autotune.errors import AutotuneError
from autotune.model import Problem, Tensor


class NoRoomError(AutotuneError):
    """A problem that cannot be prepared: its arrays alone need more memory than there is."""


def least_bytes(problem: Problem) -> int:
    """Bytes that preparing a problem takes at least.

    Its inputs and outputs, and beside them the copies of the inputs that the reference is given
    and the outputs that it makes, in float64 where they are floating. What a reference or a
    variant needs besides is not counted.
    """
    operation = problem.operation
    arrays = (*operation.inputs, *operation.fresh_outputs)
    return sum(problem.nbytes(each.dims, each.dtype) + _copy(problem, each) for each in arrays)


def no_room(problem: Problem, left: int) -> str | None:
    """Why a problem cannot be prepared with so many bytes, as a clause, or None."""
    needed = least_bytes(problem)
    if needed <= left:
        return None
    return (
        f"needs at least {units.size(needed)} for inputs, outputs and their float64 copies, and "
        f"{units.size(left)} of memory are left"
    )


def require_room(problem: Problem, left: int) -> None:
    """Raises NoRoomError for a problem that cannot be prepared with so many bytes."""
    why = no_room(problem, left)
    if why is not None:
        raise NoRoomError(why)


def _copy(problem: Problem, tensor: Tensor) -> int:
    floating = is_floating(array_dtype(problem.element_type(tensor.dtype)))
    return problem.nbytes(tensor.dims, "float64" if floating else tensor.dtype)
