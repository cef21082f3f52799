"""CPU masks as the C library wants them."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable
from typing import Any

from autotune.device.sysfs import format_cpu_list

Mask = ctypes.Array[Any]


@functools.cache
def mask_words() -> int:
    """64-bit words of a mask; the kernel refuses to report into one shorter than it likes."""
    libc, words = ctypes.CDLL(None), 16
    while libc.sched_getaffinity(0, words * 8, (ctypes.c_uint64 * words)()) != 0 and words < 1024:
        words *= 2
    return words


@functools.cache
def _mask_type() -> type[Mask]:
    return ctypes.c_uint64 * mask_words()


def mask_of(cpus: Iterable[int] = ()) -> Mask:
    """A mask with the bits of the CPUs set. Raises OSError for a CPU this kernel cannot have."""
    mask = _mask_type()()
    for cpu in cpus:
        if not 0 <= cpu < 64 * len(mask):
            raise out_of_reach((cpu,))
        mask[cpu // 64] |= 1 << cpu % 64
    return mask


def cpus_in(mask: Mask) -> frozenset[int]:
    """The CPUs whose bits are set."""
    return frozenset(
        64 * place + bit
        for place, word in enumerate(mask)
        for bit in range(word.bit_length())
        if word >> bit & 1
    )


def out_of_reach(cpus: Iterable[int]) -> OSError:
    """The error for CPUs the system does not let this process use (any more)."""
    return OSError(f"this process may not run on CPUs {format_cpu_list(cpus)}.")
