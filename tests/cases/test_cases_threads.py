"""Dispatch from many threads and signal handlers, and updates in place that fail."""

from __future__ import annotations

import logging
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
from case_lab import (
    OWNED,
    clean_registry,
    doubling,
    with_variants,
)
from dispatch_lab import ONES, double, in_place, new_process, restart, serve_by

import autotune
from autotune import dispatch, serving
from autotune.registry import variant
from autotune.serving import server

__all__ = ["clean_registry", "new_process"]


def test_64_threads_at_the_first_call_get_one_kernel_that_is_built_once() -> None:
    target, built = doubling("hostile_threads"), []

    @variant(target, "counted")
    def counted(problem: Any, config: Any) -> Any:
        built.append(threading.get_ident())
        time.sleep(0.05)
        return double

    start, found, before = threading.Barrier(64), [], autotune.stats()

    def work() -> None:
        start.wait()
        kernel = dispatch(target, (8,))
        found.append((kernel, kernel(ONES)))

    threads = [threading.Thread(target=work) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 64
    assert len({id(kernel) for kernel, _ in found}) == 1
    assert all((result == 2).all() for _, result in found)
    assert len(built) == 1
    counts = autotune.stats()
    assert (counts.misses, counts.hits - before.hits) == (1, 63)


@pytest.mark.parametrize("when", ["building", "running"])
def test_64_threads_that_meet_a_failure_set_only_that_variant_aside(
    when: str, caplog: pytest.LogCaptureFixture
) -> None:
    target = doubling("hostile_failure")
    start = threading.Barrier(64)

    @variant(target, "breaks", passes=OWNED, deterministic=True)
    def breaks(problem: Any, config: Any) -> Any:
        if when == "building":
            raise RuntimeError("no such tile")

        def run(x: Any, y: Any) -> None:
            raise RuntimeError("no such tile")

        return run

    variant(target, "works")(double)
    keep_order = dispatch(target, (8,))
    found, failed = [], []

    def work() -> None:
        start.wait()
        try:
            found.append(keep_order(ONES))
        except Exception as error:
            failed.append(error)

    with caplog.at_level(logging.WARNING, logger="autotune"):
        restart()
        keep_order = dispatch(target, (8,))
        serve_by(keep_order, "breaks")
        threads = [threading.Thread(target=work) for _ in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failed == []
    assert all((result == 2).all() for result in found)
    assert keep_order.variant == "works"
    assert server()._quarantined == {("hostile_failure", "breaks")}
    assert caplog.text.count("the next best serves instead") == 1
    assert autotune.stats().quarantines == 1


def test_an_update_in_place_that_fails_at_its_first_run_is_made_good() -> None:
    target = in_place("hostile_in_place")

    @variant(target, "halfway")
    def halfway(x: Any) -> None:
        x[:4] *= 2
        raise RuntimeError("lost the rest")

    variant(target, "works")(lambda x: np.multiply(x, 2, out=x))
    kernel = dispatch(target, (8,))
    serve_by(kernel, "halfway")
    x = np.ones(8, np.float32)
    assert kernel(x) is x
    assert (x == 2).all()
    assert kernel.variant == "works"


def test_an_update_in_place_that_fails_later_says_so_and_serves_no_more() -> None:
    target, calls = in_place("hostile_in_place_later"), []

    @variant(target, "tires")
    def tires(x: Any) -> None:
        calls.append(1)
        x[:4] *= 2
        if len(calls) > 1:
            raise RuntimeError("lost the rest")
        x[4:] *= 2

    variant(target, "works")(lambda x: np.multiply(x, 2, out=x))
    kernel = dispatch(target, (8,))
    serve_by(kernel, "tires")
    x = np.ones(8, np.float32)
    kernel(x)
    with pytest.raises(RuntimeError, match="lost the rest") as caught:
        kernel(x)
    assert "may be half updated" in "".join(caught.value.__notes__)
    x = np.ones(8, np.float32)
    assert (kernel(x) == 2).all()
    assert kernel.variant == "works"


def test_a_snapshot_is_replaced_while_it_is_in_use() -> None:
    target = with_variants(doubling("hostile_refresh"), "honest", "slow")
    stop, wrong = threading.Event(), []

    def call() -> None:
        while not stop.is_set():
            if not (dispatch(target, (8,))(ONES) == 2).all():
                wrong.append(1)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    old = dispatch(target, (8,))
    for _ in range(4):
        serving.refresh()
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert (old(ONES) == 2).all()


def test_a_kernel_that_rests_on_replaced_policies_is_not_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = with_variants(doubling("hostile_stale"), "honest")
    serve, first = serving.Server.serve, []

    def replaced_meanwhile(self: Any, *given: Any) -> Any:
        served = serve(self, *given)
        if not first:
            first.append(1)
            self.refresh()
        return served

    monkeypatch.setattr(serving.Server, "serve", replaced_meanwhile)
    old = dispatch(target, (8,))
    assert dispatch(target, (8,)) is not old
    assert dispatch(target, (8,)) is dispatch(target, (8,))


def test_a_signal_whose_handler_dispatches_finds_no_lock_held() -> None:
    target = with_variants(doubling("hostile_signal"), "honest", "slow")
    found: list[Any] = []

    def handler(*_: object) -> None:
        size = 8 + len(found)
        found.append(dispatch(target, (size,))(np.ones(size, "f4")))
        signal.setitimer(signal.ITIMER_REAL, 0.003)

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.003)
    try:
        until = time.monotonic() + 0.4
        while time.monotonic() < until:
            restart()
            assert (dispatch(target, (8,))(ONES) == 2).all()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert found
    assert all((each == 2).all() for each in found)
