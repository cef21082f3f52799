"""Calls that come again with the same arrays, replayed as the CUDA graph of their launches.

A function that launches many short kernels is bound by the host when it is called from Python; its
graph takes the host one launch. The arrays of a loop come back, temporaries from a pool too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property, partial, wraps
from typing import Any
from weakref import WeakSet

from autotune.cuda.arrays import packed_addresses
from autotune.cuda.capture import captured
from autotune.cuda.streams import capture_check, cupy_cuda
from autotune.errors import CapturingError, DeviceLostError

Run = Callable[..., None]
_Key = tuple[Any, ...]

KEPT = 16
"""Graphs of one function; the one that was not launched for longest leaves."""

_SEEN = 64  # calls that came once and may come again
_TRIALS = 32  # captures after which they have to have been worth it:
_WORTH = 4  # launches of graphs for each

_callers: WeakSet[threading.Thread] = WeakSet()  # that have called any such function
_this_thread = threading.local()


def replayed(run: Run, arrays: int) -> Run:
    """`run(*arguments)`, replayed as a CUDA graph from the second call with the same arguments on.

    The first `arrays` arguments are CuPy arrays or torch tensors, the others numbers. What `run`
    does has to depend on their addresses, the numbers and the device alone: shapes and dtypes are
    those of every call, temporaries are among the arguments, and all it does is launch on the
    current stream. The first call runs as it is, the second is captured; a graph is launched on the
    caller's current stream and keeps no array alive.

    Calls run as they are while the caller captures a graph, with arrays that are not packed, and
    for good once a capture has failed or captures have not been worth it; one that was merely not
    allowed, as when memory was taken, is tried again with the next call. No call is captured while
    another thread may wait for the whole device, which CUDA refuses during any capture.
    """
    graphs = _Graphs(run, arrays)

    @wraps(run)
    def call(*arguments: Any) -> None:
        graph = graphs.of(arguments)
        if graph is None or not graphs.launch(graph):
            run(*arguments)

    return call


class _Graph:
    """One that was captured, and when it was launched last."""

    __slots__ = ("launch", "used")

    def __init__(self, launch: Callable[[], None], used: int) -> None:
        self.launch, self.used = launch, used


class _Graphs:
    """The graphs of one function, by the arguments of their calls. Several threads may call."""

    def __init__(self, run: Run, arrays: int) -> None:
        self._run, self._arrays = run, arrays
        self._known: dict[_Key, _Graph] = {}  # changed under the lock, read without
        self._seen: dict[_Key, None] = {}
        self._streams: dict[int, Any] = {}
        self._given_up = False
        self._captures = self._launches = 0
        self._lock = threading.Lock()

    @cached_property
    def _recording(self) -> Callable[[], bool]:
        return capture_check()

    @cached_property
    def _device(self) -> Callable[[], int]:
        return cupy_cuda().runtime.getDevice  # type: ignore[no-any-return]

    def of(self, arguments: tuple[Any, ...]) -> _Graph | None:
        """The graph of a call that came before; None for one to run as it is."""
        if not hasattr(_this_thread, "marked"):
            _this_thread.marked = True
            _callers.add(threading.current_thread())
        if self._given_up or self._recording():
            return None
        addresses = packed_addresses(arguments[: self._arrays])
        if addresses is None:
            return None
        key = (*addresses, *arguments[self._arrays :], self._device())
        return self._known.get(key) or self._another(key, arguments)

    def launch(self, graph: _Graph) -> bool:
        """Launch it on the current stream; False where that cannot be done."""
        try:
            graph.launch()
        except Exception:  # a lost context is what the launches of the function tell then
            self._give_up()
            return False
        self._launches += 1
        graph.used = self._launches
        return True

    def _another(self, key: _Key, arguments: tuple[Any, ...]) -> _Graph | None:
        """Capture the call if it came before; while another thread is at it, do nothing."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if key not in self._seen:
                self._see(key)
                return None
            return self._captured(key, arguments) if self._worth_it() and _alone() else None
        finally:
            self._lock.release()

    def _see(self, key: _Key) -> None:
        if len(self._seen) >= _SEEN:
            del self._seen[next(iter(self._seen))]
        self._seen[key] = None

    def _worth_it(self) -> bool:
        """Whether captures have paid off so far; if not, that was the last."""
        if self._captures >= _TRIALS and self._launches < _WORTH * self._captures:
            self._give_up()
        return not self._given_up

    def _captured(self, key: _Key, arguments: tuple[Any, ...]) -> _Graph | None:
        self._captures += 1
        try:
            found = captured(self._stream(), partial(self._run, *arguments), arguments[0])
        except CapturingError:  # for want of something that the next call may find
            return None
        except DeviceLostError:
            raise
        except Exception:
            self._give_up()
            return None
        del self._seen[key]
        if len(self._known) >= KEPT:
            known = self._known  # that another thread may replace, giving up
            del known[min(known, key=lambda each: known[each].used)]
        graph = self._known[key] = _Graph(found.launch, self._launches)
        return graph

    def _stream(self) -> Any:
        """What is captured on, on the current device."""
        device = self._device()
        if device not in self._streams:
            self._streams[device] = cupy_cuda().Stream(non_blocking=True)
        return self._streams[device]

    def _give_up(self) -> None:
        self._given_up, self._known = True, {}


def _alone() -> bool:
    """Whether no other thread is likely to use the GPU.

    To wait for the whole device is an error in every thread while any of them captures, in
    whatever mode. Daemons that have made no such call are taken for helpers, of a notebook say.
    """
    own = threading.current_thread()
    others = [each for each in threading.enumerate() if each is not own]
    return all(each.daemon and each not in _callers for each in others)
