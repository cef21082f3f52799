"""Locks and what is lost in forked children, and counters that cost nothing."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from autotune import forked
from autotune.errors import DeviceLostError, LaunchError
from autotune.locks import Lock

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def in_child(question: Callable[[], bool]) -> bool:
    """Whether a forked child says yes; one that hangs does not."""
    child = os.fork()
    if child == 0:
        signal_in = threading.Timer(10.0, os._exit, (2,))
        signal_in.start()
        os._exit(0 if question() else 1)
    _, status = os.waitpid(child, 0)
    return status == 0


def taken(lock: Any) -> bool:
    with lock:
        return True


def compilers_lock(name: str) -> Any:
    """numba's, or LLVM's, as compiling takes it."""
    if name == "numba":
        return import_module("numba.core.compiler_lock").global_compiler_lock
    return import_module("llvmlite.binding.ffi").lib._lock


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("whose", ["ours", "numba", "llvm"])
def test_a_lock_that_another_thread_holds_is_open_in_the_child(whose: str) -> None:
    lock: Any = Lock() if whose == "ours" else compilers_lock(whose)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        assert in_child(lambda: taken(lock))
    finally:
        done.set()
        thread.join()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_lock_that_the_forking_thread_holds_stays_its_own() -> None:
    lock = Lock()
    with lock:
        assert in_child(lambda: taken(lock) and lock._lock._is_owned())
    assert not lock._lock._is_owned()


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes this process look like one that was forked from a parent that used something."""

    def become(**modules: Any) -> None:
        for name, module in modules.items():
            monkeypatch.setitem(forked.sys.modules, name.replace("__", "."), module)
        forked._look_back()

    monkeypatch.setattr(forked, "_lost", set())
    monkeypatch.setattr(forked, "_used_cuda", False)
    for name in ("cupy", "autotune.native.team", "numba.np.ufunc.parallel"):
        monkeypatch.delitem(forked.sys.modules, name, raising=False)
    return become


@pytest.mark.parametrize(("layer", "lost"), [("omp", True), ("workqueue", False), ("tbb", False)])
def test_gnu_threads_do_not_survive_a_fork(child: Any, layer: str, lost: bool) -> None:
    used = SimpleNamespace(_is_initialized=True, threading_layer=lambda: layer)
    child(numba__np__ufunc__parallel=used)
    if lost:
        with pytest.raises(LaunchError, match="a forked process has not"):
            forked.require_openmp("attention/tiled")
    else:
        forked.require_openmp("attention/tiled")


def test_what_the_parent_never_started_is_not_lost(child: Any) -> None:
    child(numba__np__ufunc__parallel=SimpleNamespace(_is_initialized=False))
    forked.require_openmp("attention/tiled")
    forked.require_cuda("attention")


def test_cuda_in_the_child_of_a_parent_that_used_it_is_one_sentence(child: Any) -> None:
    def free(_: int) -> None:
        raise RuntimeError("cudaErrorInitializationError: initialization error")

    child(cupy=SimpleNamespace(cuda=SimpleNamespace(runtime=SimpleNamespace(free=free))))
    with pytest.raises(DeviceLostError, match="forked from one that uses it"):
        forked.require_cuda("attention")


def test_cuda_that_the_parent_only_imported_works_in_the_child(child: Any) -> None:
    runtime = SimpleNamespace(free=lambda _: None)
    child(cupy=SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    forked.require_cuda("attention")
