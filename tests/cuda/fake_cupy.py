"""A stand-in for CuPy on NumPy: arrays, streams, events, graphs and launches without a GPU.

`install(monkeypatch)` (or the fixture `fake_cupy` of conftest.py) puts it into `sys.modules`.
Strict where CuPy is: an array does not turn into a NumPy array by itself and does not mix with
one. A launch calls the Python function registered for the kernel's name:

    @fake.kernel("scale", "PPqd")
    def scale(launched, x, y, count, factor):
        at(y, count, "f8")[...] = at(x, count, "f8") * factor
"""

from __future__ import annotations

import ctypes
import math
import re
import struct
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

FAILED, INVALID_CONTEXT, NOT_FOUND, CAPTURING = 719, 201, 500, 900


def host(value: Any) -> Any:
    """The NumPy arrays inside of fake ones, in tuples, lists and dicts too."""
    if isinstance(value, ndarray):
        return value._host
    if isinstance(value, tuple | list):
        return type(value)(host(each) for each in value)
    if isinstance(value, dict):
        return {name: host(each) for name, each in value.items()}
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError(f"Unsupported type {type(value)}")
    return value


def device_side(value: Any) -> Any:
    """The same the other way; NumPy scalars become arrays without dims, as in CuPy."""
    if isinstance(value, np.ndarray | np.generic):
        return ndarray._of(np.asarray(value))
    if isinstance(value, tuple):
        return tuple(device_side(each) for each in value)
    return value


@dataclass(frozen=True)
class MemoryPointer:
    """Where an array starts; a number of bytes added is where another may."""

    ptr: int
    device_id: int = 0
    _array: Any = field(default=None, repr=False, compare=False)
    offset: int = 0

    @property
    def memory(self) -> Any:
        """The bytes of the array, which has to be packed."""
        return self._array.reshape(-1).view(np.uint8)

    def __add__(self, distance: int) -> MemoryPointer:
        return replace(self, ptr=self.ptr + distance, offset=self.offset + distance)


class ndarray(NDArrayOperatorsMixin):  # noqa: N801
    """An array "on the device": NumPy memory that NumPy cannot reach by accident."""

    def __init__(
        self,
        shape: Any,
        dtype: Any = float,
        memptr: Any = None,
        strides: Any = None,
        order: str = "C",
    ) -> None:
        fake = current()
        if memptr is None:
            kind = np.dtype(dtype)
            sizes = shape if isinstance(shape, tuple | list) else (shape,)
            memptr = fake.alloc(math.prod(sizes) * kind.itemsize)
            array = np.ndarray(shape, dtype, memptr.memory, order=order)  # type: ignore[call-overload]
        else:
            array = np.ndarray(shape, dtype, memptr.memory, memptr.offset, strides)
        self._host, self._device = array, fake.device_id
        self._owner: Any = None

    @classmethod
    def _of(cls, array: np.ndarray[Any, Any]) -> ndarray:
        made = cls.__new__(cls)
        made._host, made._device = array, current().device_id
        return made

    @property
    def data(self) -> MemoryPointer:
        return MemoryPointer(self._host.ctypes.data, self._device, self._host)

    @property
    def device(self) -> Device:
        return Device(self._device)

    @property
    def flags(self) -> Any:
        return types.SimpleNamespace(
            c_contiguous=self._host.flags.c_contiguous, f_contiguous=self._host.flags.f_contiguous
        )

    @property
    def _c_contiguous(self) -> bool:
        return bool(self._host.flags.c_contiguous)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        plain = self._host.__array_interface__
        return {
            "shape": self.shape,
            "typestr": plain["typestr"],
            "data": plain["data"],
            "strides": self.strides,
            "version": 3,
        }

    def get(self, stream: Any = None, out: Any = None) -> Any:
        current().check_sync()
        if out is not None:
            out[...] = self._host
            return out
        return self._host.copy()

    def set(self, array: Any, stream: Any = None) -> None:
        self._host[...] = array

    def view(self, dtype: Any = None) -> ndarray:
        return ndarray._of(self._host.view(dtype) if dtype is not None else self._host.view())

    def astype(self, dtype: Any, **options: Any) -> ndarray:
        return ndarray._of(self._host.astype(dtype, **options))

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Use `.get()`.")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        out = options.get("out")
        result = getattr(ufunc, method)(*host(inputs), **host(options))
        return (out[0] if len(out) == 1 else out) if out else device_side(result)

    def __array_function__(self, function: Any, _: Any, inputs: Any, options: Any) -> Any:
        return device_side(function(*host(inputs), **host(options)))

    def __getitem__(self, key: Any) -> ndarray:
        return device_side(self._host[host(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self._host[host(key)] = host(value)

    def __len__(self) -> int:
        return len(self._host)

    def __bool__(self) -> bool:
        current().check_sync()
        return bool(self._host)

    def __int__(self) -> int:
        current().check_sync()
        return int(self._host)

    def __float__(self) -> float:
        current().check_sync()
        return float(self._host)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"fake cupy {self._host!r}"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_host", "data_ptr", "stride"):
            raise AttributeError(name)
        value = getattr(self._host, name)
        if callable(value):
            return lambda *given, **options: device_side(value(*host(given), **host(options)))
        return device_side(value) if isinstance(value, np.ndarray) else value


ndarray.__module__ = "cupy"


class CUDADriverError(RuntimeError):
    def __init__(self, status: int, text: str = "") -> None:
        super().__init__(f"CUDA_ERROR_{status}: {text or 'fake error'}")
        self.status = status


class CUDARuntimeError(RuntimeError):
    def __init__(self, status: int, text: str = "") -> None:
        super().__init__(f"cudaError{status}: {text or 'fake error'}")
        self.status = status


class OutOfMemoryError(MemoryError):
    def __init__(self, size: int, used: int, limit: int = 0) -> None:
        super().__init__(
            f"Out of memory allocating {size:,} bytes (allocated so far: {used:,} bytes)."
        )


@dataclass(frozen=True)
class Launched:
    """One launch: its name, extent, dynamic shared bytes, stream, device and parameters."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    stream: int
    device: int
    values: tuple[Any, ...]


def unpack(parameters: int, arguments: str) -> tuple[Any, ...]:
    """The parameters, read through the table of addresses as the driver reads them."""
    values: list[Any] = []
    for number, code in enumerate(re.findall(r"S\d+|.", arguments)):
        (address,) = struct.unpack("@P", ctypes.string_at(parameters + 8 * number, 8))
        if code[0] == "S":
            values.append(ctypes.string_at(address, int(code[1:])))
        else:
            size = struct.calcsize("@" + code)
            values += struct.unpack("@" + code, ctypes.string_at(address, size))
    return tuple(values)


def at(pointer: int, shape: Any, dtype: Any, strides: Any = None) -> np.ndarray[Any, Any]:
    """The array that lies at a pointer a kernel was given; `strides` in elements."""
    kind = np.dtype(dtype)
    sizes = shape if isinstance(shape, tuple) else (shape,)
    if 0 in sizes:
        return np.empty(sizes, kind)
    steps = strides or tuple(math.prod(sizes[axis + 1 :]) for axis in range(len(sizes)))
    low = sum(min((n - 1) * step, 0) for n, step in zip(sizes, steps, strict=True))
    high = sum(max((n - 1) * step, 0) for n, step in zip(sizes, steps, strict=True))
    raw = (ctypes.c_char * ((high - low + 1) * kind.itemsize)).from_address(
        pointer + low * kind.itemsize
    )
    return np.ndarray(
        sizes, kind, raw, -low * kind.itemsize, [step * kind.itemsize for step in steps]
    )


class Memory:
    """What the pool hands out; given back when nothing refers to it any more."""

    def __init__(self, memory: Any, device_id: int | None = None) -> None:
        self.memory, self.offset = memory, 0
        self.device_id = current().device_id if device_id is None else device_id
        self.ptr = memory.ctypes.data

    @property
    def mem(self) -> Memory:
        return self


def unowned(address: int, size: int, owner: Any, device_id: int = -1) -> Memory:
    """Somebody else's memory."""
    return Memory(at(address, size, np.uint8), device_id)


def moved(memory: Memory, offset: int) -> Memory:
    """In place of the class: as far into the memory as is needed here."""
    assert offset == 0
    return memory


class MemoryHook:
    """Told of what pools hand out and take back; in all threads, and a size as it was asked for."""

    at_work: ClassVar[list[MemoryHook]] = []

    def __enter__(self) -> MemoryHook:
        self.at_work.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.at_work.remove(self)

    def malloc_postprocess(self, **facts: int) -> None: ...

    def free_postprocess(self, **facts: int) -> None: ...


class MemoryPool:
    """Counts; `limit` bytes, 0 for no limit."""

    def __init__(self) -> None:
        self.used = self.total = self.taken = self.limit = 0

    def malloc(self, size: int) -> Memory:
        if self.limit and self.used + size > self.limit:
            raise OutOfMemoryError(size, self.used)
        memory = np.empty(size + 512, np.uint8)
        start = -memory.ctypes.data % 512
        block = memory[start : start + size]
        self.used += size
        self.taken += 1
        self.total = max(self.total, self.used)
        weakref.finalize(memory, self._give_back, size)  # what views of it keep alive
        for hook in MemoryHook.at_work:
            hook.malloc_postprocess(device_id=0, size=size, mem_size=size, mem_ptr=1, pmem_id=0)
        return Memory(block)

    def free_bytes(self) -> int:
        return 0

    def _give_back(self, size: int) -> None:
        self.used -= size
        for hook in MemoryHook.at_work:
            hook.free_postprocess(device_id=0, mem_size=size, mem_ptr=1, pmem_id=0)

    def used_bytes(self) -> int:
        return self.used

    def total_bytes(self) -> int:
        return self.total

    def free_all_blocks(self) -> None:
        self.total = self.used

    def get_limit(self) -> int:
        return self.limit

    def set_limit(self, size: int = 0) -> None:
        self.limit = size


class Device:
    def __init__(self, number: int | None = None) -> None:
        self.id = current().device_id if number is None else number
        self._before: list[int] = []

    @property
    def compute_capability(self) -> str:
        return current().capability

    @property
    def attributes(self) -> dict[str, int]:
        return current().attributes

    @property
    def mem_info(self) -> tuple[int, int]:
        return current().memory_info

    def use(self) -> None:
        current().device_id = self.id

    def synchronize(self) -> None:
        current().check_sync()

    def __int__(self) -> int:
        return self.id

    def __enter__(self) -> Device:
        self._before.append(current().device_id)
        self.use()
        return self

    def __exit__(self, *_: object) -> None:
        current().device_id = self._before.pop()


class Graph:
    """What was launched between begin_capture and end_capture."""

    def __init__(self, work: list[Callable[[], None]]) -> None:
        self._work = work

    def launch(self, stream: Any = None) -> None:
        if current().fail_with is not None:
            raise CUDARuntimeError(current().fail_with or 0, "unspecified launch failure")
        current().graphs.append((stream or get_current_stream()).ptr)
        for each in self._work:
            each()

    def upload(self, stream: Any = None) -> None:
        pass


class Stream:
    null: Stream
    _numbers = 0

    def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False) -> None:
        Stream._numbers += not null
        self.ptr = 0 if null else 0x1000 + Stream._numbers
        self._before: list[Stream] = []

    @classmethod
    def from_external(cls, foreign: Any) -> Stream:
        version, pointer = foreign.__cuda_stream__()
        assert version == 0
        stream = cls(null=True)
        stream.ptr = pointer
        return stream

    def begin_capture(self, mode: Any = None) -> None:
        current().captures[self.ptr] = []

    def end_capture(self) -> Graph:
        return Graph(current().captures.pop(self.ptr))

    def is_capturing(self) -> bool:
        return self.ptr in current().captures

    def synchronize(self) -> None:
        current().check_sync()

    def wait_event(self, event: Any) -> None:
        pass

    def record(self, event: Any = None) -> Any:
        event = event or Event()
        event.record(self)
        return event

    @property
    def done(self) -> bool:
        return True

    def use(self) -> Stream:
        current().local.stream = self
        return self

    def __enter__(self) -> Stream:
        self._before.append(get_current_stream())
        return self.use()

    def __exit__(self, *_: object) -> None:
        current().local.stream = self._before.pop()


class ExternalStream(Stream):
    def __init__(self, ptr: int, device_id: int = -1) -> None:
        super().__init__(null=True)
        self.ptr = ptr
        warnings.warn("ExternalStream is deprecated.", DeprecationWarning, stacklevel=2)


class Event:
    def __init__(
        self, block: bool = False, disable_timing: bool = False, interprocess: bool = False
    ) -> None:
        self.at: float | None = None

    def record(self, stream: Any = None) -> None:
        fake = current()
        pointer = (stream or get_current_stream()).ptr
        if pointer in fake.captures:
            fake.captures[pointer].append(lambda: self._now())
        else:
            self._now()

    def _now(self) -> None:
        self.at = current().clock

    def synchronize(self) -> None:
        current().check_sync()

    @property
    def done(self) -> bool:
        return True


def get_elapsed_time(start: Event, end: Event) -> float:
    """Milliseconds of the fake clock."""
    if start.at is None or end.at is None:
        raise CUDARuntimeError(400, "event was not recorded")
    return (end.at - start.at) * 1e3


def get_current_stream(device_id: int = -1) -> Stream:
    return getattr(current().local, "stream", Stream.null)


class FakeCupy(types.ModuleType):
    """The module, and the knobs of a test.

    `kernel(name, arguments)` registers what a launch does; `costs`: seconds of the fake clock by
    kernel name; `fail_with`: a status that every later launch and synchronisation raises;
    `graphs`: the streams that graphs were launched on.
    """

    ndarray = ndarray
    float64, float32, float16 = np.float64, np.float32, np.float16
    int64, int32, int8, uint8, uint32, bool_ = (
        *(np.int64, np.int32, np.int8),
        *(np.uint8, np.uint32, np.bool_),
    )
    inf, nan, newaxis = np.inf, np.nan, None
    __version__ = "14.2.0"

    def __init__(self) -> None:
        super().__init__("cupy")
        self.kernels: dict[str, tuple[Callable[..., Any], str]] = {}
        self.costs: dict[str, float] = {}
        self.launched: list[Launched] = []
        self.captures: dict[int, list[Callable[[], None]]] = {}
        self.graphs: list[int] = []
        self.local = threading.local()
        self.pool = MemoryPool()
        self.clock, self.device_id, self.device_count = 0.0, 0, 1
        self.capability = "90"
        self.attributes: dict[str, int] = {"MultiProcessorCount": 132, "L2CacheSize": 60 * 2**20}
        self.memory_info = (140 * 2**30, 141 * 2**30)
        self.fail_with: int | None = None
        self.without_context: set[int] = set()
        self.usage = {0: 1024, 1: 0, 3: 0, 4: 64}
        self.opted: dict[int, int] = {}
        self.loaded: list[bytes] = []
        self._functions: list[str] = []
        self._modules()

    def _modules(self) -> None:
        cuda = types.ModuleType("cupy.cuda")
        cuda.driver = types.SimpleNamespace(  # type: ignore[attr-defined]
            launchKernel=self._launch,
            moduleLoadData=self._load,
            moduleGetFunction=self._function,
            funcGetAttribute=lambda what, _: self.usage[what],
            funcSetAttribute=self._opt_in,
            CUDADriverError=CUDADriverError,
        )
        cuda.runtime = types.SimpleNamespace(  # type: ignore[attr-defined]
            getDevice=lambda: self.device_id,
            setDevice=lambda number: setattr(self, "device_id", number),
            getDeviceCount=lambda: self.device_count,
            driverGetVersion=lambda: 13000,
            runtimeGetVersion=lambda: 13000,
            free=lambda _: self.without_context.discard(threading.get_ident()),
            streamIsCapturing=lambda pointer: pointer in self.captures,
            deviceSynchronize=self.check_sync,
            streamSynchronize=lambda _: self.check_sync(),
            memGetInfo=lambda: self.memory_info,
            deviceGetAttribute=lambda what, _: 0,
            getDeviceProperties=lambda _: {"name": b"NVIDIA H200", "major": 9, "minor": 0},
            CUDARuntimeError=CUDARuntimeError,
            memset=self._memset,
            memsetAsync=lambda pointer, value, size, _: self._memset(pointer, value, size),
            is_hip=False,
        )
        memory = types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError, MemoryPool=MemoryPool)
        for name, value in {
            "Device": Device,
            "Stream": Stream,
            "ExternalStream": ExternalStream,
            "Event": Event,
            "Graph": Graph,
            "get_current_stream": get_current_stream,
            "memory": memory,
            "get_elapsed_time": get_elapsed_time,
            "get_device_id": lambda: self.device_id,
            "is_available": lambda: self.device_count > 0,
            "alloc": self.alloc,
            "using_allocator": self._using,
            "UnownedMemory": unowned,
            "MemoryPointer": moved,
            "MemoryHook": MemoryHook,
            "MemoryPool": MemoryPool,
        }.items():
            setattr(cuda, name, value)
        self.cuda: Any = cuda

    def kernel(self, name: str, arguments: str) -> Callable[[Any], Any]:
        """Register the decorated `function(launched, *values)` as the kernel `name`."""

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self.kernels[name] = function, arguments
            return function

        return register

    def alloc(self, size: int) -> Memory:
        """From this thread's allocator."""
        return getattr(self.local, "allocator", self.pool.malloc)(size)  # type: ignore[no-any-return]

    @contextmanager
    def _using(self, allocator: Callable[[int], Memory]) -> Iterator[None]:
        self.local.allocator = allocator
        try:
            yield
        finally:
            del self.local.allocator

    def check_sync(self) -> None:
        """What a synchronisation does: an error during capture, or one that is pending."""
        if self.captures:
            raise CUDARuntimeError(CAPTURING, "operation not permitted when stream is capturing")
        if self.fail_with is not None:
            raise CUDARuntimeError(self.fail_with, "unspecified launch failure")

    def _load(self, code: bytes) -> int:
        self.loaded.append(bytes(code))
        return len(self.loaded)

    def _function(self, module: int, name: str) -> int:
        if name not in self.kernels:
            raise CUDADriverError(NOT_FOUND, "named symbol not found")
        self._functions.append(name)
        return len(self._functions)

    def _opt_in(self, handle: int, what: int, value: int) -> None:
        if value > 227 * 1024:
            raise CUDADriverError(1, "invalid argument")
        self.opted[handle] = value

    def _launch(self, handle: int, *rest: int) -> None:
        gx, gy, gz, bx, by, bz, shared, stream, parameters, _ = rest
        if threading.get_ident() in self.without_context:
            raise CUDADriverError(INVALID_CONTEXT, "invalid device context")
        if self.fail_with is not None:
            raise CUDADriverError(self.fail_with, "unspecified launch failure")
        if shared > self.opted.get(handle, 48 * 1024) or bx * by * bz > 1024 or 0 in (gx, gy, gz):
            raise CUDADriverError(1, "invalid argument")
        name = self._functions[handle - 1]
        values = unpack(parameters, self.kernels[name][1])
        launched = Launched(
            name, (gx, gy, gz), (bx, by, bz), shared, stream, self.device_id, values
        )
        self.enqueue(lambda: self._run(launched), stream)

    def enqueue(self, work: Callable[[], None], stream: int | None = None) -> None:
        """Work for the current stream or the given one: done at once, or captured."""
        pointer = get_current_stream().ptr if stream is None else stream
        if pointer in self.captures:
            self.captures[pointer].append(work)
        else:
            work()

    def _run(self, launched: Launched) -> None:
        self.launched.append(launched)
        self.clock += self.costs.get(launched.name, 0.0)
        self.kernels[launched.name][0](launched, *launched.values)

    @staticmethod
    def _memset(pointer: int, value: int, size: int) -> None:
        ctypes.memset(pointer, value, size)

    def empty(self, shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
        return ndarray(shape, dtype, order=order)

    def asarray(self, array: Any, dtype: Any = None, **_: Any) -> ndarray:
        if isinstance(array, ndarray):
            return array if dtype in (None, array.dtype) else array.astype(dtype)
        parts = getattr(array, "__cuda_array_interface__", None)
        if parts is not None:
            made = ndarray._of(at(parts["data"][0], parts["shape"], parts["typestr"]))
            made._owner = array
            return made
        return ndarray._of(np.array(array, dtype))

    def array(self, array: Any, dtype: Any = None, **_: Any) -> ndarray:
        return ndarray._of(np.array(host(array), dtype))

    def asnumpy(self, array: Any, **_: Any) -> Any:
        return array.get() if isinstance(array, ndarray) else np.asarray(array)

    def get_default_memory_pool(self) -> MemoryPool:
        return self.pool

    def __getattr__(self, name: str) -> Any:
        """Everything else is NumPy's function of that name on the arrays inside."""
        function = getattr(np, name)
        if not callable(function):
            return function
        return lambda *given, **options: device_side(function(*host(given), **host(options)))


_current: list[FakeCupy] = []


def current() -> FakeCupy:
    """The fake in force."""
    return _current[-1]


def install(monkeypatch: Any) -> FakeCupy:
    """Make `import cupy` give a fresh fake for one test."""
    from autotune.cuda import dependent, streams
    from autotune.libraries import known

    monkeypatch.setattr(dependent, "_driver_launch", lambda: None)  # a real one knows no fake
    for kind in [each for each in known if each.__module__ == "cupy"]:
        monkeypatch.delitem(known, kind)
    fake = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setitem(sys.modules, "cupy.cuda", fake.cuda)
    monkeypatch.setattr(sys.modules[__name__], "_current", [fake])
    Stream.null = Stream(null=True)
    streams.cupy_cuda.cache_clear()
    streams.several_devices.cache_clear()
    return fake
