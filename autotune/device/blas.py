"""How many threads the loaded BLAS libraries use, and where OpenBLAS runs its own."""

from __future__ import annotations

import ctypes
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

from autotune.device.masks import Mask, cpus_in, mask_of, out_of_reach

Getter = Callable[[], int]
Setter = Callable[[int], object]


class BlasLibrary:
    """One loaded BLAS, whose thread count belongs to the whole process.

    Overlapping requests are counted: the newest is in force, and the last one to leave puts back
    the count the first one found, unless somebody else has changed it meanwhile.
    """

    def __init__(self, controller: Any) -> None:
        self.name = f"{controller.internal_api} {controller.version}"
        self.path = str(controller.filepath)
        self.get, self.set = _count_functions(controller)
        self._set_mask, self._get_mask = _affinity_functions(controller)
        self._lock = threading.Lock()
        self._requests: list[list[int]] = []
        self._found = 0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    @property
    def pinnable(self) -> bool:
        """Whether its threads can be pinned one by one (OpenBLAS with its own threads)."""
        return self._set_mask is not None

    def most(self, count: int) -> int:
        """How many of `count` threads the library was built to run."""
        with self._lock:
            current = self.get()
            if current >= count:
                return count
            self.set(count)
            reached = self.get()
            self.set(current)
            return reached

    def request(self, count: int) -> list[int]:
        """Use `count` threads from now on; the result is what `release` wants back."""
        request = [count]
        with self._lock:
            current = self.get()
            if not self._requests:
                self._found = current
            self._requests.append(request)
            if current != count:
                self.set(count)
        return request

    def release(self, request: list[int]) -> None:
        """End a request."""
        with self._lock:
            newest = self._requests[-1]
            self._requests[:] = [each for each in self._requests if each is not request]
            if newest is not request or self.get() != request[0]:
                return  # another request, or somebody else, has set the count since
            wanted = self._requests[-1][0] if self._requests else self._found
            if wanted != request[0]:
                self.set(wanted)

    def pin(self, masks: Sequence[Mask]) -> list[Mask]:
        """Give worker j the j-th mask; returns the masks found.

        As many threads as there are masks, and the caller's, must have been requested before:
        that is what starts the workers, in a forked child once more.
        """
        self.set(len(masks) + 1)
        found = self.worker_masks(len(masks))
        for worker, mask in enumerate(masks):
            if self._set_mask(worker, ctypes.sizeof(mask), mask) != 0:
                self.unpin(found)
                raise out_of_reach(cpus_in(mask))
        return found

    def unpin(self, found: Sequence[Mask]) -> None:
        """Give the workers back the masks `pin` found."""
        for worker, mask in enumerate(found):
            self._set_mask(worker, ctypes.sizeof(mask), mask)

    def worker_masks(self, workers: int) -> list[Mask]:
        """The masks of the first so many workers."""
        found = [mask_of() for _ in range(workers)]
        for worker, mask in enumerate(found):
            self._get_mask(worker, ctypes.sizeof(mask), mask)
        return found

    def _forget(self) -> None:
        """In a forked child no request of the parent's threads will ever be released."""
        self._lock = threading.Lock()
        if self._requests:
            self._requests = []
            self.set(self._found)


_libraries: dict[str, BlasLibrary] = {}
_discovery = threading.Lock()


def blas_libraries() -> tuple[BlasLibrary, ...]:
    """Every BLAS loaded now. About a millisecond; the same library is always the same object."""
    import threadpoolctl

    with _discovery, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about mixed OpenMP runtimes: the user's own business
        controllers = threadpoolctl.ThreadpoolController().lib_controllers
        loaded = [each for each in controllers if each.user_api == "blas"]
        for controller in loaded:
            if controller.filepath not in _libraries:
                _libraries[controller.filepath] = BlasLibrary(controller)
        return tuple(_libraries[controller.filepath] for controller in loaded)


def _openblas_names(stem: str) -> Iterator[str]:
    """The names a build may give a function: NumPy's and SciPy's wheels add affixes."""
    for prefix, suffix in product(("", "scipy_"), ("", "64_", "_64", "_64_")):
        yield f"{prefix}openblas_{stem}{suffix}"


def _openblas_function(controller: Any, stem: str) -> Any:
    functions = (getattr(controller.dynlib, name, None) for name in _openblas_names(stem))
    return next((function for function in functions if function is not None), None)


def _count_functions(controller: Any) -> tuple[Getter, Setter]:
    """Getter and setter of the thread count.

    OpenBLAS's own functions are called directly: threadpoolctl ignores a count set from any
    thread but the first that ever set one, and remembers that thread.
    """
    if controller.internal_api == "openblas" and controller.threading_layer == "pthreads":
        getter = _openblas_function(controller, "get_num_threads")
        setter = _openblas_function(controller, "set_num_threads")
        if getter is not None and setter is not None:
            getter.argtypes, getter.restype = [], ctypes.c_int
            setter.argtypes, setter.restype = [ctypes.c_int], None
            return getter, setter
    return controller.get_num_threads, controller.set_num_threads


def _affinity_functions(controller: Any) -> tuple[Any, Any]:
    """OpenBLAS's functions that set and get the mask of one worker, or (None, None)."""
    if controller.internal_api != "openblas" or controller.threading_layer != "pthreads":
        return None, None
    found = tuple(_openblas_function(controller, stem) for stem in ("setaffinity", "getaffinity"))
    for function in found:
        if function is None:
            return None, None
        function.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p]
        function.restype = ctypes.c_int
    return found[0], found[1]
