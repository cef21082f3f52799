"""Loads compiled kernels and launches them on the current stream, with little between."""

from __future__ import annotations

import ctypes
import re
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from autotune.cuda.dependent import dependent_launch
from autotune.cuda.streams import cupy_cuda, refuse_during_capture
from autotune.errors import (
    AutotuneError,
    CapturingError,
    DeclarationError,
    DeviceLostError,
    LaunchError,
)

if TYPE_CHECKING:
    from autotune.cuda.source import CudaSource, Macro

Launch = Callable[..., None]
_Frame = tuple[memoryview, int, Any]

_CODE = re.compile(r"S\d+|[PqQiIdfhHbB?]")
_MAX_THREADS, _SHARED, _CONST, _LOCAL, _REGISTERS = 0, 1, 2, 3, 4  # CU_FUNC_ATTRIBUTE_...
_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_NO_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT
_LOST = frozenset({214, 220, 700, 702, 710, *range(714, 720)})
"""ECC, NVLink, illegal address or instruction, timeout, assertion, failed launch: the context is
gone."""
_CAPTURE = range(900, 909)
"""CUDA_ERROR_STREAM_CAPTURE_...: what a capture does not allow, or one that something broke."""
_WITHOUT_ASKING = 48 * 1024  # bytes of shared memory that need no opt-in


@dataclass(frozen=True, slots=True)
class Usage:
    """What a compiled kernel takes: registers a thread, bytes of shared memory (static) a block,
    bytes of local memory (spills and stack) a thread, and the most threads a block may have."""

    registers: int
    shared_bytes: int
    local_bytes: int
    max_threads: int


@dataclass(frozen=True, slots=True, eq=False)
class CudaFunction:
    """A kernel of a CudaSource with its macros; compiled and loaded at first use, per device."""

    source: CudaSource
    entry: str
    macros: tuple[tuple[str, Macro], ...] = ()
    options: tuple[str, ...] = ()
    _loaded: dict[int, tuple[int, int]] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def compile(self, arch: str) -> bytes:
        """Its cubin for an architecture; needs no GPU."""
        return self.source.compile(dict(self.macros), arch=arch, options=self.options)

    def handle(self, shared: int = 0) -> int:
        """The loaded function on the current device (a CUfunction), good for so much dynamic
        shared memory in bytes."""
        cuda = cupy_cuda()
        device = cuda.runtime.getDevice()
        with self._lock:
            handle, admitted = self._loaded.get(device) or (self._load(cuda), _WITHOUT_ASKING)
            if shared > admitted:
                try:
                    cuda.driver.funcSetAttribute(handle, _DYNAMIC_SHARED, shared)
                except cuda.driver.CUDADriverError as error:
                    raise LaunchError(
                        f"kernel {self.entry} cannot have {shared} bytes of shared memory: {error}"
                    ) from error
                admitted = shared
            self._loaded[device] = handle, admitted
            return handle

    def _load(self, cuda: Any) -> int:
        refuse_during_capture(f"kernel {self.entry}")
        code = self.compile(architecture())
        ensure_context()
        try:
            module = cuda.driver.moduleLoadData(code)
            return int(cuda.driver.moduleGetFunction(module, self.entry))
        except cuda.driver.CUDADriverError as error:
            raise LaunchError(f"cannot load kernel {self.entry}: {error}") from error

    def usage(self) -> Usage:
        """Registers, shared and local memory on the current device."""
        ask, handle = cupy_cuda().driver.funcGetAttribute, self.handle()
        return Usage(*(ask(what, handle) for what in (_REGISTERS, _SHARED, _LOCAL, _MAX_THREADS)))

    def launcher(
        self,
        *,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        arguments: str,
        shared: int = 0,
        dependent: bool = False,
    ) -> Launch:
        """`launch(*values)` for a fixed grid and block, on the current device and stream.

        `shared` is the dynamic shared memory in bytes. `arguments` are one code per parameter:
        P pointer, q/Q 64-bit and i/I 32-bit integers, h/H, b/B, ? bool, d double, f float, and
        S128 a struct of 128 bytes, given as bytes or a NumPy scalar of a structured dtype.
        A `dependent` kernel may begin before the one ahead of it in the stream has ended: it has
        to execute `griddepcontrol.wait` before it reads or overwrites anything of that one's.
        """
        launched = _collected.get()
        if launched is not None:
            launched.append(Prepared(self, shared))
        return _launcher(self, _three(grid), _three(block), shared, arguments, dependent)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A kernel that a launcher was made of, with the dynamic shared memory it is launched with."""

    function: CudaFunction
    shared: int

    def prepare(self) -> None:
        """Compile and load it on the current device, so that a launch does not have to."""
        self.function.handle(self.shared)


_collected: ContextVar[list[Prepared] | None] = ContextVar("launchers", default=None)


@contextmanager
def collecting() -> Iterator[list[Prepared]]:
    """The kernels that launchers are made of inside the context; making one needs no GPU."""
    launchers: list[Prepared] = []
    token = _collected.set(launchers)
    try:
        yield launchers
    finally:
        _collected.reset(token)


def _three(extent: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*extent, 1, 1)[:3]
    return int(x), int(y), int(z)


def architecture() -> str:
    """What to compile for on the current device: "sm_90a" for 9.0 with its own features."""
    return architecture_of(cupy_cuda().Device().compute_capability)


def architecture_of(capability: str) -> str:
    """ "sm_90a" for "90"; only 9.0's features are used, all others run plain code."""
    return f"sm_{capability}a" if capability == "90" else f"sm_{capability}"


def ensure_context() -> None:
    """Bind the device's primary context to this thread (any runtime call that needs it does)."""
    cupy_cuda().runtime.free(0)


def _fields(arguments: str) -> tuple[struct.Struct, list[int], bool]:
    """Packing of the parameters, the offset of each, and whether there are structs among them."""
    codes = _CODE.findall(arguments)
    if "".join(codes) != arguments:
        raise DeclarationError(f"cannot read the kernel arguments {arguments!r}; see launcher().")
    formats = [f"{code[1:]}s" if code[0] == "S" else code for code in codes]
    offsets, text = [], "@"
    for code, form in zip(codes, formats, strict=True):
        text += "0q" if code[0] == "S" else ""  # a struct starts at a multiple of eight
        size = struct.calcsize("@" + form)
        text += form
        offsets.append(struct.calcsize(text) - size)
    return struct.Struct(text), offsets, any(code[0] == "S" for code in codes)


def _launcher(
    function: CudaFunction,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared: int,
    arguments: str,
    dependent: bool,
) -> Launch:
    packing, offsets, structs = _fields(arguments)
    pack, one_struct = packing.pack_into, structs and len(offsets) == 1
    (gx, gy, gz), (bx, by, bz) = grid, block
    handles: dict[Any, int] = {}
    frames: list[_Frame] = []  # taking from and giving back to a list are atomic
    launch_kernel: Any = None
    current: Any = None
    device: Any = _nowhere

    def prepare() -> int:
        nonlocal launch_kernel, current, device
        cuda = cupy_cuda()
        handle = handles[cuda.runtime.getDevice()] = function.handle(shared)
        launch_kernel = dependent_launch(cuda) if dependent else cuda.driver.launchKernel
        current = cuda.get_current_stream
        device = cuda.runtime.getDevice
        return handle

    def launch(*values: Any) -> None:
        try:
            handle = handles[device()]
        except KeyError:
            handle = prepare()
        if structs and not (one_struct and values[0].__class__ is bytes):
            values = tuple([_as_bytes(value) for value in values])
        try:
            frame = frames.pop()
        except IndexError:
            frame = _frame(packing.size, offsets)
        if one_struct:
            frame[0][:] = values[0]
        else:
            pack(frame[0], 0, *values)
        stream = current().ptr
        try:
            launch_kernel(handle, gx, gy, gz, bx, by, bz, shared, stream, frame[1], 0)
        except Exception as error:
            again = (handle, *grid, *block, shared, stream, frame[1], 0)
            _launch_again(error, again, function)
        frames.append(frame)

    return launch


def _nowhere() -> None:
    """The device before anything was launched."""


def _frame(size: int, offsets: list[int]) -> _Frame:
    """Memory for the values of one launch, and the table of their addresses that CUDA reads."""
    values = ctypes.create_string_buffer(max(size, 1))
    start = ctypes.addressof(values)
    table = (ctypes.c_void_p * max(len(offsets), 1))(*(start + each for each in offsets))
    return memoryview(values).cast("B")[:size], ctypes.addressof(table), table


def _launch_again(error: Exception, arguments: tuple[int, ...], function: CudaFunction) -> None:
    """A thread that has not touched the device yet has no context: give it one and repeat."""
    cuda = cupy_cuda()
    if getattr(error, "status", None) != _NO_CONTEXT:
        raise _failed(function, error) from error
    ensure_context()
    try:
        cuda.driver.launchKernel(*arguments)
    except cuda.driver.CUDADriverError as again:
        raise _failed(function, again) from again


def _failed(function: CudaFunction, error: Exception) -> AutotuneError:
    message = f"kernel {function.entry} was not launched: {error}"
    status = getattr(error, "status", None)
    if status in _CAPTURE:
        return CapturingError(f"{message}; a CUDA graph is being captured, or its capture broke.")
    if status in _LOST:
        return DeviceLostError(f"{message}; an earlier kernel broke the CUDA context.")
    return LaunchError(message)


def _as_bytes(value: Any) -> Any:
    """A structured NumPy scalar as its bytes; everything else as it is."""
    names = getattr(getattr(value, "dtype", None), "names", None)
    return value.tobytes() if names else value
