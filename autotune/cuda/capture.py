"""Captures what a function launches as a CUDA graph that needs no memory but its arguments'."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from typing import Any, NoReturn

from autotune.cuda.streams import cupy_cuda, torch_stream
from autotune.errors import CapturingError
from autotune.libraries import library_of

_MADE = "memory was taken in the capture of a CUDA graph that keeps none."


def captured(stream: Any, run: Callable[[], None], array: Any) -> Any:
    """The CUDA graph of what `run()` launches on the current stream; nothing of it runs.

    `stream` is what it is captured on: one of the current device that does not block, and that
    nobody else uses. `array` is one of those that `run` works on: where it is torch's, torch's
    current stream is that one too. Raises CapturingError where `run` takes memory, since that would
    be somebody else's by the time of a replay; what `run` raises; and CuPy's error where something
    else broke the capture.
    """
    cuda = cupy_cuda()
    place = cuda.runtime.getDevice()
    tensors = library_of(array).name == "torch"
    inside = _with_tensors(stream.ptr, place) if tensors else nullcontext()
    with cuda.using_allocator(_refuse), stream, inside:
        stream.begin_capture()
        try:
            run()
        except BaseException:
            with suppress(Exception):
                stream.end_capture()
            raise
        return stream.end_capture()


def _refuse(nbytes: int) -> NoReturn:
    """In place of CuPy's allocator."""
    raise CapturingError(_MADE)


@contextmanager
def _with_tensors(stream: int, place: int) -> Iterator[None]:
    """On torch's side too; its allocator cannot be replaced, but it counts."""
    count: Callable[[int], Any] = import_module("torch").cuda.memory_stats
    before = count(place).get("allocation.all.allocated")
    with torch_stream(stream, place):
        yield
    if count(place).get("allocation.all.allocated") != before:
        raise CapturingError(_MADE)
