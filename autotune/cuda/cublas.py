"""Matrix products by cuBLAS on the caller's current stream, from addresses and layouts.

CuPy's own binding sets the stream at every call, which takes the workspace away from the handle;
so cuBLAS is called directly, with handles of our own. Each call of a variant takes a handle, and
gives it the stream and a workspace that comes with the call: products can be captured in a CUDA
graph, repeat bitwise, and two streams never share a workspace.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from autotune.cuda.streams import capturing, cupy_cuda, refuse_during_capture
from autotune.errors import AutotuneError, CapturingError, DeclarationError, LaunchError

_DATA = {"float64": 1, "float32": 0, "float16": 2, "bfloat16": 14}  # cudaDataType
_COMPUTE = {"float64": 70}  # cublasComputeType_t, float64
_COMPUTE_FLOAT32 = 68  # without TF32, and what 16 bits are summed in
_DEFAULT_ALGORITHM = -1
_NO_SHORT_SUMS = 16  # CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION, in default math

WORKSPACES = (4, 32)
"""MiB that cuBLAS asks for: before Hopper, and since."""


def contiguous(array: Any) -> bool:
    """Whether a CuPy array or a torch tensor is packed, row after row."""
    own = getattr(array, "_c_contiguous", None)
    return bool(array.is_contiguous() if own is None else own)


def packed_copy(array: Any) -> Any:
    """A copy, row after row, in the library of the array."""
    return array.copy() if hasattr(array, "copy") else array.clone().contiguous()


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the elements of a matrix are: rows, columns, and steps between them in elements."""

    rows: int
    columns: int
    row_step: int
    column_step: int = 1

    @classmethod
    def packed(cls, rows: int, columns: int) -> Layout:
        """One row after the other."""
        return cls(rows, columns, columns)

    @property
    def transposed(self) -> Layout:
        """The same elements as columns."""
        return Layout(self.columns, self.rows, self.column_step, self.row_step)

    @property
    def by_rows(self) -> bool:
        """Whether rows are contiguous and do not overlap."""
        along = self.columns <= 1 or self.column_step == 1
        return along and (self.rows <= 1 or self.row_step >= max(self.columns, 1))

    @property
    def usable(self) -> bool:
        """Whether cuBLAS can read it: by rows or by columns."""
        return self.by_rows or self.transposed.by_rows


Addresses = Sequence[int]
_Pointer = ctypes.c_void_p
Step = Callable[[int, Addresses], None]


def product(
    dtype: str,
    a: tuple[int, Layout],
    b: tuple[int, Layout],
    c: tuple[int, Layout],
    *,
    add: bool = False,
) -> Step:
    """`step(handle, addresses)`: c = a b, or c += a b with `add`.

    Each matrix is its place among the addresses, and its layout. Sums are in the dtype, those of
    16 bits in float32. Raises DeclarationError for shapes that do not fit or layouts that cuBLAS
    cannot read.
    """
    if not all(layout.usable for _, layout in (a, b, c)):
        raise DeclarationError(f"cuBLAS cannot read {a[1]}, {b[1]} or {c[1]}; copy it first.")
    if not c[1].by_rows:  # (a b)^T = b^T a^T: now the rows of the result are contiguous
        a, b, c = _transposed(b), _transposed(a), _transposed(c)
    (left, x), (right, y), (target, z) = a, b, c
    if (x.rows, y.columns, x.columns) != (z.rows, z.columns, y.rows):
        raise DeclarationError(f"cannot multiply {x} by {y} into {z}.")
    # cuBLAS reads column by column, so that it sees transposes: z^T = y^T x^T.
    (op_x, step_x), (op_y, step_y) = _as_read(x), _as_read(y)
    kind = _DATA[dtype]
    one, zero = _scalars(dtype)
    beta = one if add else zero
    m, n, k = z.columns, z.rows, x.columns
    step_z = max(z.row_step, z.columns, 1)
    compute = _COMPUTE.get(dtype, _COMPUTE_FLOAT32)

    def step(handle: int, addresses: Addresses) -> None:
        # A call with pointers as such, numbers as they are, takes half as long as a declared one.
        status = library().cublasGemmEx(
            *(_Pointer(handle), op_y, op_x, m, n, k, one),
            *(_Pointer(addresses[right]), kind, step_y),
            *(_Pointer(addresses[left]), kind, step_x, beta),
            *(_Pointer(addresses[target]), kind, step_z, compute, _DEFAULT_ALGORITHM),
        )
        if status:
            raise _failed(f"cuBLAS did not multiply {n}x{k} by {k}x{m}: status {status}")

    return step


def _transposed(matrix: tuple[int, Layout]) -> tuple[int, Layout]:
    return matrix[0], matrix[1].transposed


def _as_read(layout: Layout) -> tuple[int, int]:
    """The operation and the leading dimension with which cuBLAS reads the transpose."""
    if layout.by_rows:
        return 0, max(layout.row_step, layout.columns, 1)
    return 1, max(layout.column_step, layout.rows, 1)


@cache
def _scalars(dtype: str) -> tuple[_Pointer, _Pointer]:
    """Pointers to one and zero on the host, in what sums are computed in; kept for good."""
    kind = ctypes.c_double if dtype == "float64" else ctypes.c_float
    values = (kind(1), kind(0))
    _kept.append(values)
    return _Pointer(ctypes.addressof(values[0])), _Pointer(ctypes.addressof(values[1]))


_kept: list[Any] = []
_idle: dict[int, list[int]] = {}


class BlasHandle:
    """A handle of the current device, on the current stream, with the workspace at an address.

    A context: entering it raises LaunchError where there is no cuBLAS, CapturingError for the first
    call of a device while a graph is captured.
    """

    __slots__ = ("_handle", "_idle", "_workspace")

    def __init__(self, workspace: int, nbytes: int) -> None:
        self._workspace = workspace, nbytes

    def __enter__(self) -> int:
        cuda = cupy_cuda()
        self._idle = idle = _idle.setdefault(cuda.runtime.getDevice(), [])
        try:
            handle = idle.pop()  # taking from and giving back to a list are atomic
        except IndexError:
            handle = _created()
        blas, stream = library(), cuda.get_current_stream().ptr
        status = blas.cublasSetStream_v2(handle, stream) or blas.cublasSetWorkspace_v2(
            handle, *self._workspace
        )
        if status:
            idle.append(handle)
            raise _failed(f"cuBLAS did not take stream and workspace: status {status}")
        self._handle = handle
        return handle

    def __exit__(self, *_: object) -> None:
        self._idle.append(self._handle)


def _failed(what: str) -> AutotuneError:
    """While a CUDA graph is captured that may be nobody's fault: a capture that something broke."""
    if capturing():
        return CapturingError(f"{what}, while a CUDA graph is being captured.")
    return LaunchError(f"{what}.")


def _created() -> int:
    refuse_during_capture("a handle of cuBLAS")
    cupy_cuda().runtime.free(0)  # the device's context
    handle, blas = ctypes.c_void_p(), library()
    status = blas.cublasCreate_v2(ctypes.addressof(handle))
    status = status or blas.cublasSetMathMode(handle.value, _NO_SHORT_SUMS)
    if status or handle.value is None:
        raise LaunchError(f"cuBLAS did not start: status {status}.")
    return handle.value


@cache
def library() -> Any:
    """cuBLAS, the one that CuPy has loaded; LaunchError with the remedy where there is none."""
    major = int(cupy_cuda().runtime.runtimeGetVersion()) // 1000
    try:
        import_module("cupy_backends.cuda.libs.cublas")  # knows where it is, and loads it
        found = ctypes.CDLL(f"libcublas.so.{major}")
    except (ImportError, OSError) as error:
        raise LaunchError(
            f"no cuBLAS ({error}): install the extra cuda{major} of onf-autotune."
        ) from error
    pointer, number = ctypes.c_void_p, ctypes.c_int
    found.cublasCreate_v2.argtypes = (pointer,)
    found.cublasSetMathMode.argtypes = (pointer, number)
    found.cublasSetStream_v2.argtypes = (pointer, pointer)
    found.cublasSetWorkspace_v2.argtypes = (pointer, pointer, ctypes.c_size_t)
    return found
