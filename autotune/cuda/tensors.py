"""torch's tensors as a caller's arrays; torch is there already when one is met."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from importlib import import_module
from typing import Any

from autotune.errors import ShapeError, UserError
from autotune.libraries import (
    VECTOR_BYTES,
    Carver,
    Form,
    Maker,
    Part,
    Pooled,
    carver_of_views,
    each_alone,
    extent,
    reach_into,
    share_memory,
)


class TorchTensors:
    """torch's tensors, on the CPU or a CUDA device."""

    name = "torch"

    def __init__(self) -> None:
        self._torch: Any = import_module("torch")

    def signature(self, operation: Hashable, arrays: Sequence[Any]) -> tuple[Hashable, ...]:
        """With the device of the first; that the others are there too, the kernel checks."""
        first = arrays[0]
        parts: list[Hashable] = [operation, first.dtype, first.device]
        for tensor in arrays:
            parts.append(tensor.shape)
            parts.append(tensor.is_contiguous())
            parts.append(tensor.data_ptr() % VECTOR_BYTES == 0)
        return tuple(parts)

    def place(self, array: Any) -> int | None:
        """By its device; only cpu and cuda have kernels."""
        kind = array.device.type
        if kind not in ("cpu", "cuda"):
            raise ShapeError(f"tensors are on cpu or cuda, got one on {kind}.")
        return int(array.device.index) if kind == "cuda" else None

    def dtype(self, name: str) -> Any:
        """torch's dtype of that name."""
        return getattr(self._torch, name)

    def packed(self, array: Any) -> bool:
        """Whether it is contiguous."""
        return bool(array.is_contiguous())

    def aligned(self, array: Any) -> bool:
        """By its address; always on a CPU."""
        return array.device.type == "cpu" or int(array.data_ptr()) % VECTOR_BYTES == 0

    def writeable(self, array: Any) -> bool:
        """torch knows no read-only tensors."""
        return True

    def overlap(self, one: Any, other: Any) -> bool:
        """By their addresses."""
        if not reach_into(_extent(one), _extent(other)):
            return False
        return share_memory(other.data_ptr() - one.data_ptr(), _form(one), _form(other))

    def whereabouts(self, arrays: Sequence[Any]) -> tuple[Hashable, ...] | None:
        """By their addresses."""
        return tuple(
            [a.data_ptr() if a.is_contiguous() else (a.data_ptr(), a.stride()) for a in arrays]
        )

    def extents(self, arrays: Sequence[Any]) -> list[tuple[int, int]] | None:
        """By their addresses."""
        return list(map(_extent, arrays))

    def copy(self, array: Any) -> Any:
        """A packed one."""
        return array.detach().clone(memory_format=self._torch.contiguous_format)

    def maker(self, forms: Sequence[Form], place: int | None) -> Maker:
        """From torch's allocator, on torch's current stream; `empty_like` is the fastest there."""
        like = self._torch.empty_like
        models = [self._model(shape, name, place) for shape, name in forms]
        return lambda: [like(model) for model in models]

    def _model(self, shape: tuple[int, ...], name: str, place: int | None) -> Any:
        """A packed tensor without memory."""
        device = self._torch.device("cpu") if place is None else self._torch.device("cuda", place)
        model = self._torch.empty(shape, dtype=self.dtype(name), device=device)
        model.untyped_storage().resize_(0)
        return model

    def carver(self, parts: Sequence[Part]) -> Carver:
        """Of views."""
        return carver_of_views(self, parts)

    def pooled(self, parts: Sequence[Part], nbytes: int, place: int | None) -> Pooled:
        """Each alone."""
        return each_alone(self, parts, place)

    def widened(self, array: Any) -> Any:
        """A float64 copy as a CuPy array on the same device."""
        return import_module("cupy").asarray(array.detach().double())

    def store(self, target: Any, values: Any) -> None:
        """Copied on the device, with torch's rounding."""
        target.copy_(self._torch.as_tensor(values, device=target.device))


def _extent(tensor: Any) -> tuple[int, int]:
    return extent(tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.element_size())


def _form(tensor: Any) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    return tuple(tensor.shape), tuple(tensor.stride()), tensor.element_size()


def input_guard(operation: str) -> Callable[[Sequence[Any]], None]:
    """A function that refuses inputs of which torch knows more than what lies in memory.

    A kernel is no node of torch's graph: what depends on its result would silently lose the
    gradient that an input is to have recorded (UserError). What torch negates only when it reads
    it, as the imaginary part of a conjugate, is a ShapeError.
    """
    enabled = import_module("torch").is_grad_enabled

    def guard(inputs: Sequence[Any]) -> None:
        if enabled() and any(tensor.requires_grad for tensor in inputs):
            raise UserError(
                f"{operation}: an input requires a gradient, which kernels do not record; call "
                "under torch.no_grad(), or with tensor.detach()."
            )
        if any(tensor.is_neg() for tensor in inputs):
            raise ShapeError(
                f"{operation}: an input is negated when it is read; pass tensor.resolve_neg()."
            )

    return guard


def as_numpy(tensor: Any) -> Any:
    """A CPU tensor's memory as a NumPy array."""
    torch: Any = import_module("torch")
    plain = tensor.detach()
    if plain.dtype == torch.bfloat16:
        from autotune.arrays import array_dtype

        return plain.view(torch.int16).numpy().view(array_dtype("bfloat16"))
    return plain.numpy()


def as_tensor(array: Any) -> Any:
    """A NumPy array's memory as a CPU tensor."""
    torch: Any = import_module("torch")
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(array)


def run_on_views(kernel: Any, inputs: Sequence[Any], out: Any, **options: Any) -> Any:
    """Call a kernel of the CPU with tensors: on their memory, and its results as tensors."""
    input_guard(kernel.operation)(inputs)
    given = out if out is None or isinstance(out, tuple | list) else (out,)
    workspace = options.pop("workspace", None)
    results = kernel(
        *map(as_numpy, inputs),
        out=None if given is None else tuple(map(as_numpy, given)),
        workspace=None if workspace is None else as_numpy(workspace),
        **options,
    )
    if isinstance(results, tuple):
        return tuple(map(as_tensor, results))
    return as_tensor(results) if given is None or len(given) > 1 else given[0]
