"""Devices and streams as the caller has set them, in CuPy or in torch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from importlib import import_module
from typing import Any

from autotune.errors import CapturingError, LaunchError

_LEGACY = (0, 1)  # the default stream and its alias: CUDA cannot capture it
PER_THREAD = 2
"""The stream that is another one in every thread."""


@cache
def cupy_cuda() -> Any:
    """The module `cupy.cuda`; LaunchError with the remedy where there is none."""
    try:
        return import_module("cupy").cuda
    except ImportError as error:
        raise LaunchError(
            "CUDA kernels need CuPy: install the extra cuda13 (or cuda12) of onf-autotune."
        ) from error


def stream_state() -> Callable[[], tuple[int, bool]]:
    """A function that gives the current stream, and whether that is recording a CUDA graph."""
    cuda = cupy_cuda()
    current, ask = cuda.get_current_stream, cuda.runtime.streamIsCapturing

    def state() -> tuple[int, bool]:
        stream = current().ptr
        return stream, stream not in _LEGACY and bool(ask(stream))

    return state


def capture_check() -> Callable[[], bool]:
    """A function that tells whether the current stream is recording a CUDA graph."""
    state = stream_state()
    return lambda: state()[1]


def capturing() -> bool:
    """Whether the current stream is recording a CUDA graph."""
    return capture_check()()


def refuse_during_capture(what: str) -> None:
    """Raise CapturingError while a graph is captured: compiling and loading would break it."""
    if capturing():
        raise CapturingError(
            f"{what} is not built yet and cannot be during CUDA graph capture; "
            f"call it once before the capture."
        )


@cache
def several_devices() -> bool:
    """Whether arrays may be on different GPUs."""
    return bool(cupy_cuda().runtime.getDeviceCount() > 1)


def torch_device(place: int) -> Any:
    """torch's name of a GPU."""
    return import_module("torch").device("cuda", place)


def torch_stream(stream: int, place: int) -> AbstractContextManager[Any]:
    """Inside, torch's current stream on a GPU is one that was made elsewhere."""
    torch: Any = import_module("torch")
    outside = torch.cuda.ExternalStream(stream, torch_device(place))
    return torch.cuda.stream(outside)  # type: ignore[no-any-return]


class _Foreign:
    """A stream by its address, as the CUDA stream protocol wants it."""

    def __init__(self, pointer: int) -> None:
        self._pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._pointer


def foreign_stream(pointer: int, place: int) -> Any:
    """CuPy's object for a stream of a GPU that something else has made.

    CuPy 14.2 deprecates ExternalStream for the stream protocol, which 14.0 does not have.
    """
    cuda = cupy_cuda()
    if not hasattr(cuda, "ExternalStream"):
        return cuda.Stream.from_external(_Foreign(pointer))
    with warnings.catch_warnings():  # where warnings are errors, a call would fail by it
        warnings.simplefilter("ignore", DeprecationWarning)
        return cuda.ExternalStream(pointer, place)


def around(library: str, place: int) -> Callable[[], AbstractContextManager[Any] | None] | None:
    """What gives the context for a call: the arrays' device, and torch's stream for its tensors.

    None where there is one GPU and the arrays are CuPy's, so that nothing can differ.
    """
    switches = several_devices()
    if library == "torch":
        return _on_torch_stream(place, switches)
    return _on_device(place) if switches else None


def _on_device(place: int) -> Callable[[], AbstractContextManager[Any] | None]:
    cuda = cupy_cuda()
    current, device = cuda.runtime.getDevice, cuda.Device

    def context() -> AbstractContextManager[Any] | None:
        return None if current() == place else device(place)

    return context


def _on_torch_stream(
    place: int, switches: bool
) -> Callable[[], AbstractContextManager[Any] | None]:
    """CuPy's current stream is what kernels are launched on: make it torch's for the call."""
    cuda, torch = cupy_cuda(), import_module("torch")
    raw_stream: Callable[[int], int] = torch._C._cuda_getCurrentRawStream
    current = cuda.get_current_stream
    device = _on_device(place) if switches else None
    known: dict[int, Any] = {}

    def stream_context() -> Any:
        stream = raw_stream(place)
        if stream == current().ptr:
            return None
        if stream not in known:
            known[stream] = foreign_stream(stream, place)
        return known[stream]

    def context() -> AbstractContextManager[Any] | None:
        outer = device() if device is not None else None
        if outer is None:
            return stream_context()  # type: ignore[no-any-return]
        stack = ExitStack()
        stack.enter_context(outer)
        inner = stream_context()
        if inner is not None:
            stack.enter_context(inner)
        return stack

    return context
