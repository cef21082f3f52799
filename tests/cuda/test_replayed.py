"""Calls that come again are replayed as the CUDA graph of their launches, and give the same."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from itertools import count
from typing import Any

import fake_cupy as fake
import fake_torch
import numpy as np
import pytest

from autotune.cuda import pointer, strides_in_elements
from autotune.cuda import replayed as module
from autotune.cuda.launch import CudaFunction
from autotune.cuda.replayed import KEPT, replayed
from autotune.errors import CapturingError, DeviceLostError, LaunchError

N = 4


class Doubling:
    """`run(x, y, factor)`: y = factor * x, launched; counts its calls, which may do more."""

    def __init__(self, cupy: Any) -> None:
        self.cupy, self.calls = cupy, 0
        self.more: Callable[..., None] = lambda *_: None
        self.replayed = replayed(self.run, 2)

    def run(self, x: Any, y: Any, factor: float) -> None:
        self.calls += 1
        self.more(x, y, factor)
        source, target = pointer(x), pointer(y)
        (step,), (other,) = strides_in_elements(x), strides_in_elements(y)

        def work() -> None:
            given = fake.at(source, (N,), "f8", (step,))
            fake.at(target, (N,), "f8", (other,))[...] = given * factor

        self.cupy.enqueue(work)

    def right(self, x: Any, y: Any, factor: float) -> bool:
        """Call it, and tell whether y is what it should be."""
        fake.host(y)[...] = np.nan
        self.replayed(x, y, factor)
        return bool((fake.host(y) == factor * fake.host(x)).all())


@pytest.fixture
def doubling(fake_cupy: Any, monkeypatch: pytest.MonkeyPatch) -> Doubling:
    monkeypatch.setattr(module, "_alone", lambda: True)
    return Doubling(fake_cupy)


def two(cupy: Any) -> tuple[Any, Any]:
    return cupy.asarray(np.random.default_rng(3).standard_normal(N)), cupy.empty(N)


def test_the_second_call_is_captured_and_the_third_replays_it(
    doubling: Doubling, fake_cupy: Any
) -> None:
    x, y = two(fake_cupy)
    for calls, graphs in ((1, 0), (2, 1), (2, 2), (2, 3)):
        assert doubling.right(x, y, 2.0)
        assert (doubling.calls, len(fake_cupy.graphs)) == (calls, graphs)
        x[...] = x + 1
    assert not fake_cupy.captures


def test_other_addresses_and_other_numbers_are_other_calls(
    doubling: Doubling, fake_cupy: Any
) -> None:
    x, y = two(fake_cupy)
    z = fake_cupy.empty(N)
    others = [(x, y, 2.0), (x, z, 2.0), (z, y, 2.0), (x, y, 3.0)]
    for calls in (4, 8, 8):
        for each in others:
            assert doubling.right(*each)
        assert doubling.calls == calls
    assert len(fake_cupy.graphs) == 8


def test_another_device_is_another_call(doubling: Doubling, fake_cupy: Any) -> None:
    x, y = two(fake_cupy)
    for _ in range(3):
        assert doubling.right(x, y, 2.0)
    fake_cupy.device_id = 1
    assert doubling.right(x, y, 2.0)
    assert doubling.calls == 3


def test_other_strides_at_the_same_addresses_run_as_they_are(
    doubling: Doubling, fake_cupy: Any
) -> None:
    whole, y = fake_cupy.asarray(np.arange(2.0 * N)), fake_cupy.empty(N)
    packed, apart = whole[:N], whole[::2]
    assert pointer(packed) == pointer(apart)
    for _ in range(3):
        assert doubling.right(packed, y, 2.0)
    for calls in (3, 4, 5):
        assert doubling.right(apart, y, 2.0)
        assert doubling.calls == calls
    assert doubling.right(packed, y, 2.0)
    assert doubling.calls == 5


def test_a_graph_is_launched_on_the_callers_stream(doubling: Doubling, fake_cupy: Any) -> None:
    x, y = two(fake_cupy)
    streams = [fake_cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    for stream in (*streams, *streams):
        with stream:
            assert doubling.right(x, y, 2.0)
            assert fake_cupy.cuda.get_current_stream() is stream
    first, second, third = (each.ptr for each in streams)
    assert fake_cupy.graphs == [second, third, first, second, third]


def test_a_call_in_the_callers_own_capture_is_part_of_that(
    doubling: Doubling, fake_cupy: Any
) -> None:
    x, y = two(fake_cupy)
    for calls in (1, 2, 3):
        with fake_cupy.cuda.Stream(non_blocking=True) as stream:
            stream.begin_capture()
            doubling.replayed(x, y, 2.0)
            graph = stream.end_capture()
        assert doubling.calls == calls
    assert fake_cupy.graphs == []
    graph.launch()
    assert (fake.host(y) == 2 * fake.host(x)).all()
    assert doubling.right(x, y, 2.0)
    assert (doubling.calls, len(fake_cupy.graphs)) == (4, 1)  # the first that counts


def test_a_graph_keeps_no_array_alive(scale: CudaFunction, doubling: Doubling) -> None:
    launch = scale.launcher(grid=(1,), block=(N,), arguments="PPqd")
    run = replayed(lambda x, y, factor: launch(pointer(x), pointer(y), N, factor), 2)
    x, y = two(doubling.cupy)
    for _ in range(3):
        run(x, y, 2.0)
    assert (fake.host(y) == 2 * fake.host(x)).all()
    assert len(doubling.cupy.graphs) == 2
    left = weakref.ref(x), weakref.ref(y)
    del x, y
    assert [each() for each in left] == [None, None]


def test_the_graph_that_was_launched_last_leaves_last(doubling: Doubling, fake_cupy: Any) -> None:
    x, _ = two(fake_cupy)
    outputs = [fake_cupy.empty(N) for _ in range(KEPT + 1)]
    for y in outputs[:-1]:
        for _ in range(2):
            assert doubling.right(x, y, 2.0)
    assert doubling.right(x, outputs[0], 2.0)
    for _ in range(2):
        assert doubling.right(x, outputs[-1], 2.0)
    before = doubling.calls
    for y in (*outputs[:1], *outputs[2:]):
        assert doubling.right(x, y, 2.0)
    assert doubling.calls == before
    assert doubling.right(x, outputs[1], 2.0)
    assert doubling.calls == before + 1


def test_calls_that_come_once_are_forgotten(doubling: Doubling, fake_cupy: Any) -> None:
    x, y = two(fake_cupy)
    for factor in (*range(70), 0):
        assert doubling.right(x, y, float(factor))
    assert fake_cupy.graphs == []
    assert doubling.right(x, y, 69.0)
    assert len(fake_cupy.graphs) == 1


def test_captures_that_are_not_worth_it_end(doubling: Doubling, fake_cupy: Any) -> None:
    x, y = two(fake_cupy)
    for factor in range(40):
        for _ in range(3):
            assert doubling.right(x, y, float(factor))
    assert len(fake_cupy.graphs) == 32 * 2
    for _ in range(3):
        assert doubling.right(x, y, 31.0)
    assert len(fake_cupy.graphs) == 32 * 2


def test_captures_that_are_worth_it_go_on(doubling: Doubling, fake_cupy: Any) -> None:
    x, y = two(fake_cupy)
    for factor in range(40):
        for _ in range(5):
            assert doubling.right(x, y, float(factor))
    assert len(fake_cupy.graphs) == 40 * 4


@pytest.mark.parametrize("when", ["inside", "at the end"])
def test_after_a_capture_that_failed_calls_run_as_they_are(
    doubling: Doubling, fake_cupy: Any, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    captures = count()
    end_capture = fake.Stream.end_capture

    def broken(stream: Any) -> Any:
        next(captures)
        end_capture(stream)
        raise fake.CUDARuntimeError(901, "operation failed due to a previous error")

    def only_outside(*_: Any) -> None:
        if fake_cupy.captures:
            raise LaunchError("not in a capture")

    monkeypatch.setattr(fake.Stream, "end_capture", broken)
    doubling.more = only_outside if when == "inside" else doubling.more
    x, y = two(fake_cupy)
    for _ in range(5):
        assert doubling.right(x, y, 2.0)
        assert doubling.right(y, x, 0.5)
    assert next(captures) == 1
    assert not fake_cupy.captures
    assert fake_cupy.graphs == []
    assert fake_cupy.cuda.get_current_stream().ptr == 0


def test_what_cannot_be_captured_yet_is_tried_again(doubling: Doubling, fake_cupy: Any) -> None:
    def busy(*_: Any) -> None:
        if fake_cupy.captures and doubling.calls < 5:
            raise CapturingError("a handle is not built yet")

    doubling.more = busy
    x, y = two(fake_cupy)
    for _ in range(5):
        assert doubling.right(x, y, 2.0)
    assert len(fake_cupy.graphs) == 2


def test_a_capture_takes_no_memory(doubling: Doubling, fake_cupy: Any) -> None:
    made: list[Any] = []
    doubling.more = lambda *_: made.append(fake_cupy.empty(N))
    x, y = two(fake_cupy)
    for _ in range(4):
        assert doubling.right(x, y, 2.0)
    assert fake_cupy.graphs == []
    assert len(made) == 4  # one of each plain run
    fake_cupy.empty(N)


def test_errors_of_a_plain_run_and_a_lost_context_pass(doubling: Doubling, fake_cupy: Any) -> None:
    def fails(error: Exception, captured: bool) -> Callable[..., None]:
        def more(*_: Any) -> None:
            if captured == bool(fake_cupy.captures):
                raise error

        return more

    x, y = two(fake_cupy)
    doubling.more = fails(ValueError("plain"), captured=False)
    with pytest.raises(ValueError, match="plain"):
        doubling.replayed(x, y, 2.0)
    doubling.more = fails(DeviceLostError("lost"), captured=True)
    with pytest.raises(DeviceLostError, match="lost"):
        doubling.replayed(x, y, 2.0)
    assert not fake_cupy.captures
    assert fake_cupy.cuda.get_current_stream().ptr == 0


def test_a_graph_that_cannot_be_launched_leaves_it_to_the_launches(
    scale: CudaFunction, doubling: Doubling
) -> None:
    launch = scale.launcher(grid=(1,), block=(N,), arguments="PPqd")
    run = replayed(lambda x, y, factor: launch(pointer(x), pointer(y), N, factor), 2)
    x, y = two(doubling.cupy)
    for _ in range(3):
        run(x, y, 2.0)
    doubling.cupy.fail_with = fake.FAILED
    with pytest.raises(DeviceLostError, match="broke the CUDA context"):
        run(x, y, 2.0)


def test_torchs_current_stream_is_captured_too(
    doubling: Doubling, fake_cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = fake_torch.install(monkeypatch)
    seen: list[tuple[int, int]] = []
    doubling.more = lambda *_: seen.append(
        (torch.streams.get(0, 0), fake_cupy.cuda.get_current_stream().ptr)
    )
    x, y = torch.on(np.arange(float(N))), torch.on(np.zeros(N))
    for factor in (2.0, 2.0, 2.0):
        y._array[...] = 0
        doubling.replayed(x, y, factor)
        assert (y._array == factor * x._array).all()
    (plain, captured), (of_cupy, captured_of_cupy) = zip(*seen, strict=True)
    assert plain == of_cupy == 0
    assert captured == captured_of_cupy != 0
    assert fake_cupy.graphs == [0, 0]
    assert torch.streams[0] == 0


def test_a_capture_that_takes_torchs_memory_is_thrown_away(
    doubling: Doubling, fake_cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = fake_torch.install(monkeypatch)
    doubling.more = lambda *_: torch.empty(N)
    x, y = torch.on(np.arange(float(N))), torch.on(np.zeros(N))
    for _ in range(4):
        doubling.replayed(x, y, 2.0)
    assert (y._array == 2 * x._array).all()
    assert fake_cupy.graphs == []


def test_a_thread_runs_plainly_while_another_captures(doubling: Doubling, fake_cupy: Any) -> None:
    (x, y), (u, v) = two(fake_cupy), two(fake_cupy)
    found: list[bool] = []

    def other() -> None:
        for _ in range(2):
            found.append(doubling.right(u, v, 3.0))

    def call_another(*_: Any) -> None:
        if fake_cupy.captures:
            doubling.more = lambda *_: None
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()

    doubling.more = call_another
    for _ in range(3):
        assert doubling.right(x, y, 2.0)
    assert found == [True, True]
    assert len(fake_cupy.graphs) == 2
    assert doubling.right(u, v, 3.0)  # only now it counts as the first
    assert len(fake_cupy.graphs) == 2


def test_nothing_is_captured_beside_a_thread_that_may_use_the_gpu(fake_cupy: Any) -> None:
    doubling, go_on = Doubling(fake_cupy), threading.Event()
    x, y = two(fake_cupy)

    def graphs_beside(work: Callable[[], None], *, daemon: bool) -> int:
        started = threading.Event()

        def target() -> None:
            work()
            started.set()
            go_on.wait()

        thread = threading.Thread(target=target, daemon=daemon)
        thread.start()
        started.wait()
        for _ in range(3):
            assert doubling.right(x, y, 2.0)
        go_on.set()
        thread.join()
        go_on.clear()
        return len(fake_cupy.graphs)

    assert graphs_beside(lambda: None, daemon=False) == 0
    assert graphs_beside(lambda: doubling.replayed(y, x, 1.0), daemon=True) == 0
    assert graphs_beside(lambda: None, daemon=True) == 3
