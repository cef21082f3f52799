"""A stand-in for torch: tensors on NumPy memory, on the CPU or on the GPUs of the fake CuPy."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from fake_cupy import at


@dataclass(frozen=True)
class DType:
    name: str

    def __str__(self) -> str:
        return f"torch.{self.name}"

    @property
    def itemsize(self) -> int:
        return self.numpy.itemsize

    @property
    def numpy(self) -> np.dtype[Any]:
        return np.dtype("uint16" if self.name == "bfloat16" else self.name)


DType.__module__ = "torch"


@dataclass(frozen=True)
class Device:
    type: str
    index: int | None = None


class Size(tuple):  # type: ignore[type-arg]
    pass


class Storage:
    """A tensor's memory, which a fake keeps."""

    def resize_(self, size: int) -> None:
        assert size == 0
        sys.modules["torch"].made -= 1


class Tensor:
    """The few methods that dispatch uses; bfloat16 is kept as its bits."""

    def __init__(self, array: np.ndarray[Any, Any], dtype: DType, device: Device) -> None:
        self._array, self.dtype, self.device = array, dtype, device
        self.requires_grad = self.negated = False

    @property
    def shape(self) -> Size:
        return Size(self._array.shape)

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        plain = self._array.__array_interface__
        return {**plain, "strides": self._array.strides, "version": 3}

    def stride(self) -> tuple[int, ...]:
        return tuple(each // self._array.itemsize for each in self._array.strides)

    def is_neg(self) -> bool:
        return self.negated

    def element_size(self) -> int:
        return self._array.itemsize

    def data_ptr(self) -> int:
        return int(self._array.ctypes.data)

    def is_contiguous(self) -> bool:
        return bool(self._array.flags.c_contiguous)

    def untyped_storage(self) -> Storage:
        return Storage()

    def detach(self) -> Tensor:
        return Tensor(self._array, self.dtype, self.device)

    def double(self) -> Tensor:
        return Tensor(self._array.astype("f8"), torch_dtype("float64"), self.device)

    def numpy(self) -> np.ndarray[Any, Any]:
        if self.is_cuda or self.dtype.name == "bfloat16":
            raise TypeError(f"can't convert {self.device.type} {self.dtype} tensor to numpy")
        return self._array

    def view(self, what: Any) -> Tensor:
        if isinstance(what, DType):
            return Tensor(self._array.view(what.numpy), what, self.device)
        return Tensor(self._array.reshape(what), self.dtype, self.device)

    def reshape(self, shape: Any) -> Tensor:
        return Tensor(self._array.reshape(shape), self.dtype, self.device)

    def transpose(self, one: int, other: int) -> Tensor:
        return Tensor(self._array.swapaxes(one, other), self.dtype, self.device)

    def copy_(self, other: Tensor) -> Tensor:
        self._array[...] = other._array
        return self

    def __getitem__(self, key: Any) -> Tensor:
        return Tensor(self._array[key], self.dtype, self.device)


Tensor.__module__ = "torch"


def torch_dtype(name: str) -> DType:
    return DType(name)


class FakeTorch(types.ModuleType):
    """`streams` is torch's current stream by device; `made` counts the tensors with memory.

    `recording` is whether gradients are.
    """

    Tensor, Size = Tensor, Size
    float64, float32, float16, bfloat16, int16, uint8 = map(
        DType, ("float64", "float32", "float16", "bfloat16", "int16", "uint8")
    )
    device = staticmethod(Device)

    def __init__(self) -> None:
        super().__init__("torch")
        self.streams: dict[int, int] = {}
        self.made = 0
        self.recording = True
        self.cuda = types.SimpleNamespace(
            ExternalStream=lambda pointer, device: (pointer, device.index),
            stream=self._on_stream,
            memory_stats=lambda place: {"allocation.all.allocated": self.made},
        )
        self._C = types.SimpleNamespace(
            _cuda_getCurrentRawStream=lambda index: self.streams.get(index, 0)
        )

    @contextmanager
    def _on_stream(self, stream: tuple[int, int]) -> Iterator[None]:
        pointer, place = stream
        before = self.streams.get(place, 0)
        self.streams[place] = pointer
        try:
            yield
        finally:
            self.streams[place] = before

    def is_grad_enabled(self) -> bool:
        return self.recording

    def empty(self, shape: Any, dtype: DType = DType("float32"), device: Any = None) -> Tensor:
        self.made += 1
        return Tensor(np.empty(shape, dtype.numpy), dtype, device or Device("cpu"))

    def empty_like(self, other: Tensor) -> Tensor:
        return self.empty(other.shape, other.dtype, other.device)

    def from_numpy(self, array: np.ndarray[Any, Any]) -> Tensor:
        return Tensor(array, DType(array.dtype.name), Device("cpu"))

    def as_tensor(self, array: Any, device: Any = None) -> Tensor:
        parts = array.__cuda_array_interface__
        values = at(parts["data"][0], parts["shape"], parts["typestr"])
        return Tensor(values, DType(values.dtype.name), device)

    def on(self, array: Any, place: int | None = 0) -> Tensor:
        """A tensor of a NumPy array's values on a GPU, or with None on the CPU."""
        device = Device("cpu") if place is None else Device("cuda", place)
        return Tensor(np.array(array, order="C"), DType(np.dtype(array.dtype).name), device)


def install(monkeypatch: Any) -> FakeTorch:
    """Make `import torch` give a fresh fake for one test."""
    from autotune.libraries import known

    for kind in [each for each in known if each.__module__ == "torch"]:
        monkeypatch.delitem(known, kind)
    fake = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake
