"""Dispatch where stores break, processes fork and the interpreter ends."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from case_lab import (
    clean_registry,
    doubling,
    with_variants,
)
from dispatch_lab import ONES, keep, new_process, restart

import autotune
from autotune import dispatch
from autotune.errors import ConstraintError
from autotune.serving import server
from autotune.settings import settings

__all__ = ["clean_registry", "new_process"]


def broken_stores() -> dict[str, Callable[[Path], None]]:
    def vanish(path: Path) -> None:
        for each in path.parent.iterdir():
            if each.is_file():
                each.unlink()

    def garble(path: Path) -> None:
        path.write_bytes(b"\0" * 3000)

    def folder(path: Path) -> None:
        vanish(path)
        path.mkdir()

    def read_only(path: Path) -> None:
        path.chmod(0o400)
        path.parent.chmod(0o500)

    return {"vanished": vanish, "garbled": garble, "a folder": folder, "read-only": read_only}


@pytest.mark.parametrize("how", broken_stores())
def test_a_store_that_breaks_while_it_is_in_use_is_no_exception(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    target = with_variants(doubling("hostile_store"), "honest", "slow")
    keep(target, {"honest": 1e-6, "slow": 3e-3})
    kernel = dispatch(target, (8,))
    assert kernel.origin == "tuned"
    database = settings().database
    try:
        broken_stores()[how](database)
        server()._looked = -1e9
        assert (dispatch(target, (8,))(ONES) == 2).all()
        for n in (5, 6):
            server()._looked = -1e9
            assert (dispatch(target, (n,))(np.ones(n, "f4")) == 2).all()
        restart()
        assert (dispatch(target, (8,))(ONES) == 2).all()
    finally:
        database.parent.chmod(0o700)
    assert "Traceback" not in caplog.text


TOY = """
    import atexit, os, sys, threading, time
    import numpy as np
    from autotune import Pass, dispatch, operation, serving, variant

    @operation(inputs="x[N]", outputs="y[N]", name="toy")
    def double(x):
        return 2 * x

    flow = [Pass("all", parallel=("N",), reads=("x",), writes={"y": "owned"})]

    @variant(double, "plain", passes=[*flow, *flow])
    def plain(x, y):
        np.multiply(x, 2, out=y)

    def right(n):
        x = np.ones(n, "f4")
        return bool((dispatch("toy", (n,))(x) == 2).all())
"""


FORKS = (
    TOY
    + """
    import numba

    @numba.njit(parallel=True)
    def in_parallel(x, y):
        for i in numba.prange(x.size):
            y[i] = 2 * x[i]

    @variant(double, "parallel", passes=flow)
    def parallel(x, y):
        in_parallel(x, y)

    assert right(8)
    assert dispatch("toy", (8,)).variant == "parallel"
    stop = threading.Event()
    def busy():
        while not stop.is_set():
            serving.refresh()
    thread = threading.Thread(target=busy)
    thread.start()
    codes, ends = [], []
    for _ in range(5):
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if all(map(right, (8, 5, 6))) else 3)
            except BaseException as error:
                print(type(error), error, flush=True)
                os._exit(4)
        codes.append(child)
    for child in codes:
        until = time.monotonic() + 30
        done, status = os.waitpid(child, os.WNOHANG)
        while not done and time.monotonic() < until:
            time.sleep(0.01)
            done, status = os.waitpid(child, os.WNOHANG)
        if not done:
            os.kill(child, 9)
        ends.append(status if done else "hung")
    stop.set()
    thread.join()
    print(*ends, right(8), dispatch("toy", (8,)).variant)
"""
)


def python(code: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code), *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_children_of_a_parent_that_dispatched_dispatch_as_well() -> None:
    assert python(FORKS) == "0 0 0 0 0 True parallel\n"


AT_EXIT = (
    TOY
    + """
    def last():
        from concurrent.futures import ThreadPoolExecutor  # as what is loaded lazily may do
        print(right(8), right(9), flush=True)

    atexit.register(last)
    if FIRST:
        right(8)
    threading.Thread(target=last).start()
"""
)


@pytest.mark.parametrize("first", [True, False])
def test_dispatch_works_while_the_interpreter_ends(first: bool) -> None:
    assert python(AT_EXIT.replace("FIRST", str(first))) == "True True\n" * 2


def test_what_dispatch_did_is_counted() -> None:
    target = with_variants(doubling("counted"), "honest")
    before = autotune.stats()
    dispatch(target, (8,))
    for _ in range(5):
        dispatch(target, (8,))
    dispatch(target, [8])
    with pytest.raises(ConstraintError):
        dispatch(target, (8,), max_error=1e-9)
    after = autotune.stats()
    assert after.hits - before.hits == 6
    assert after.misses - before.misses == 2
    assert after.fallbacks == 1
    assert after.quarantines == 0
