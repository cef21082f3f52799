"""Cases DSP-1 to DSP-6, and dispatch in hostile places: threads, forks, signals, exits, stores."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from case_lab import (
    OWNED,
    InProcess,
    clean_registry,
    doubling,
    session,
    with_variants,
)
from command_line import Run

import autotune
from autotune import dispatch, lookup, serving
from autotune.campaign import Campaign
from autotune.device import local_cpu
from autotune.errors import ConstraintError, ShapeError, UserError
from autotune.fingerprint import fingerprint, toolchain
from autotune.lookup import forget
from autotune.model import Operation, Problem
from autotune.registry import operation, registry, variant
from autotune.serving import server
from autotune.settings import settings
from autotune.store import open_tuning_db
from autotune_policies import Choice, Subject, build_policy

__all__ = ["clean_registry"]

ONES = np.ones(8, np.float32)


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that has served nothing yet; what it tunes, it measures itself."""
    monkeypatch.setattr(serving, "_server", None)
    made = Campaign.__init__
    here = {**made.__kwdefaults__, "make_worker": lambda _: InProcess(session())}
    monkeypatch.setattr(made, "__kwdefaults__", here)
    forget()
    yield
    forget()


def restart() -> None:
    """What a new process starts with."""
    serving._server = None
    forget()


def in_place(name: str) -> Operation:
    @operation(inputs="x[N]", outputs="x[N]", name=name)
    def double(x: Any) -> Any:
        """Twice x, in place."""
        return 2 * x

    return double  # type: ignore[no-any-return]


def keep(target: Operation, times: dict[str, float], size: int = 8, dtype: str = "float32") -> None:
    """Store what a campaign would have found, and let a new process see that."""
    device, problem = local_cpu(), Problem.of(target, (size,), dtype)
    choices = [
        Choice(
            name,
            (),
            *(seconds, 0.99 * seconds, 1.01 * seconds),
            workspace_bytes=0,
            error=0.0,
            deterministic=True,
            fingerprint=fingerprint(registry.variant(target, name)),
            samples=10,
        )
        for name, seconds in times.items()
    ]
    subject = Subject(
        problem.key,
        device.identity,
        device.family,
        "cold",
        toolchain(),
        "2026-01-01T00:00:00+00:00",
    )
    with open_tuning_db() as store:
        store.put_policy(build_policy(subject, choices).to_row())
    restart()


def test_dsp_1_tuning_at_the_first_call_leaves_the_callers_data_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = in_place("dsp_1")

    @variant(target, "a")
    def a(x: Any) -> None:
        x *= 2

    @variant(target, "b")
    def b(x: Any) -> None:
        np.multiply(x, 2, out=x)

    monkeypatch.setattr("autotune.on_miss.BUDGET", "0.3s")
    x = np.ones(8, np.float32)
    for expected in (2, 4, 8):
        kernel = dispatch(target, x.shape, dtype="float32", tune_on_miss=True)
        assert kernel(x) is x
        assert (x == expected).all()
    assert kernel.origin == "tuned"


def test_dsp_1_inputs_and_outputs_may_overlap() -> None:
    @operation(inputs="x[N] y[N]", outputs="z[N]", name="dsp_1_sums")
    def sums(x: Any, y: Any) -> Any:
        """Running sums of x, plus y backwards."""
        return np.cumsum(x) + y[::-1]

    @variant(sums, "in_order")
    def in_order(x: Any, y: Any, z: Any) -> None:
        total = 0.0
        for i in range(len(x)):
            total += x[i]
            z[i] = total + y[len(x) - 1 - i]

    memory = np.arange(12, dtype="f8")
    for out in (memory[:8], memory[4:], memory[2:10], memory[::-1][:8]):
        memory[...] = np.arange(12)
        x, y = memory[:8], memory[4:]
        expected = sums.reference(x, y)
        kernel = dispatch(sums, (8,), dtype="float64")
        assert kernel(x, y, out=out) is out
        np.testing.assert_array_equal(out, expected)


def test_dsp_1_what_is_written_to_must_be_writable_and_apart() -> None:
    @operation(inputs="x[N] y[N]", outputs="x[N] y[N]", name="dsp_1_swap")
    def swap(x: Any, y: Any) -> Any:
        """Each in the other's place."""
        return y, x

    @variant(swap, "by_copy")
    def by_copy(x: Any, y: Any) -> None:
        x[...], y[...] = y.copy(), x.copy()

    kernel = dispatch(swap, (4,), dtype="float32")
    memory = np.arange(6, dtype="f4")
    with pytest.raises(ShapeError, match="two arrays that it writes to share memory"):
        kernel(memory[:4], memory[2:])
    frozen = np.arange(4, dtype="f4")
    frozen.flags.writeable = False
    with pytest.raises(ShapeError, match="y is updated in place and is read-only"):
        kernel(memory[:4], frozen)
    assert kernel.variant == "by_copy"


def test_dsp_2_a_dtype_is_part_of_the_key_however_it_is_spelled() -> None:
    target = doubling("dsp_2", dtypes=("float16", "float32"))
    variant(target, "half_only", dtypes=["float16"], passes=OWNED)(_double)
    variant(target, "any", passes=OWNED)(_double_slowly)
    keep(target, {"half_only": 1e-6, "any": 2e-6}, dtype="float16")
    half = dispatch(target, (8,), dtype="float16")
    assert (half.variant, half.origin) == ("half_only", "tuned")
    for spelling in (np.float16, "<f2", "fp16", np.dtype("float16"), "f2"):
        assert dispatch(target, (8,), dtype=spelling) is half
    other = dispatch(target, (8,), dtype="float32")
    assert (other.variant, other.origin == "tuned") == ("any", False)
    assert dispatch(target, ONES).variant == "any"
    for spelling in (">f2", "float8", "complex64", "int8", np.dtype(">f4")):
        with pytest.raises(UserError, match="dtype"):
            dispatch(target, (8,), dtype=spelling)
    with pytest.raises(UserError, match=r"'>f4'.* is not in this machine's byte order"):
        dispatch(target, ONES.astype(">f4"))


def test_dsp_3_flags_layouts_and_scalars_are_part_of_the_key() -> None:
    @operation(
        inputs="x[M,N]",
        outputs="y[M,N]",
        flags={"causal": False},
        scalars={"scale": "1"},
        name="dsp_3",
    )
    def masked(x: Any, *, causal: bool, scale: float) -> Any:
        """The lower triangle if causal."""
        return scale * (np.tril(x) if causal else x)

    @variant(masked, "full_only", constraints=["not causal"])
    def full_only(x: Any, y: Any, scale: float) -> None:
        np.multiply(x, scale, out=y)

    @variant(masked, "every")
    def every(x: Any, y: Any, causal: bool, scale: float) -> None:
        y[...] = scale * (np.tril(x) if causal else x)

    x = np.arange(12, dtype="f4").reshape(3, 4)
    plain = dispatch(masked, (3, 4), causal=False)
    causal = dispatch(masked, (3, 4), causal=True)
    assert causal.variant == "every"
    assert plain.problem.key != causal.problem.key
    strided = dispatch(masked, x.T.copy().T)
    assert strided.problem.key != plain.problem.key
    np.testing.assert_array_equal(causal(x), np.tril(x))
    np.testing.assert_array_equal(
        dispatch(masked, (3, 4), causal=True, scale=3.0)(x), 3 * np.tril(x)
    )
    np.testing.assert_array_equal(dispatch(masked, (3, 4), causal=True)(x), np.tril(x))
    np.testing.assert_array_equal(dispatch(masked, (3, 4))(x), x)


def test_dsp_4_many_sizes_take_microseconds_again_and_are_never_tuned() -> None:
    sizes = range(1000, 1200)
    for n in sizes:
        kernel = dispatch(autotune.attention, (1, 2, n, 16))
        assert kernel.problem.sizes["Nq"] == n
    started = time.perf_counter()
    for n in sizes:
        dispatch(autotune.attention, (1, 2, n, 16))
    assert (time.perf_counter() - started) / len(sizes) < 1e-4
    assert len(server()._kernels) == len(sizes)
    assert autotune.stats().misses == len(sizes)
    assert not settings().database.exists()  # nothing was measured


def test_dsp_4_the_table_of_kernels_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    target = with_variants(doubling("dsp_4"), "honest")
    monkeypatch.setattr("autotune.lookup._LARGEST", 50)
    monkeypatch.setattr("autotune.serving._LARGEST", 50)
    for n in range(1, 200):
        dispatch(target, (n,))
    assert len(lookup._hits) <= 50
    assert len(server()._kernels) <= 50
    assert server()._busy == {}


def test_dsp_6_a_winner_that_is_gone_is_named_once_and_the_next_best_serves(
    caplog: pytest.LogCaptureFixture, run: Run
) -> None:
    target = doubling("dsp_6")
    for name in "abc":
        variant(target, name, passes=OWNED)(_double)
    keep(target, {"a": 3e-6, "b": 2e-6, "c": 1e-6})
    assert dispatch(target, (8,)).variant == "c"

    del registry._variants["dsp_6"]["c"]
    restart()
    with caplog.at_level(logging.WARNING, logger="autotune"):
        kernels = [dispatch(target, [8]), dispatch(target, ONES)]
    assert {kernel.variant for kernel in kernels} == {"b"}
    assert "passed over c: it is not registered any more" in kernels[0].explain()
    (warning,) = caplog.records
    assert "c was measured for dsp_6" in warning.getMessage()
    assert "b serves. Measure again: autotune tune dsp_6" in warning.getMessage()
    assert "not registered" in run("show", "dsp_6").flat

    left = registry._variants["dsp_6"]
    registry._variants["dsp_6"] = dict(reversed(list(left.items())))  # reordered
    restart()
    assert dispatch(target, (8,)).variant == "b"
    variant(target, "d", passes=OWNED)(_double)  # c under another name
    restart()
    assert dispatch(target, (8,)).variant == "b"


def _double(x: Any, y: Any) -> None:
    np.multiply(x, 2, out=y)


def _double_slowly(x: Any, y: Any) -> None:
    time.sleep(0.002)
    np.multiply(x, 2, out=y)


def test_64_threads_at_the_first_call_get_one_kernel_that_is_built_once() -> None:
    target, built = doubling("hostile_threads"), []

    @variant(target, "counted")
    def counted(problem: Any, config: Any) -> Any:
        built.append(threading.get_ident())
        time.sleep(0.05)
        return _double

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

    variant(target, "works")(_double)
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
        keep_order._seat.served = serving.Served(
            registry.variant(target, "breaks"),
            keep_order.config,
            "tuned",
            "",
            keep_order.problem,
            keep_order.device,
        )
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
    kernel._seat.served = serving.Served(
        registry.variant(target, "halfway"),
        kernel.config,
        "tuned",
        "",
        kernel.problem,
        kernel.device,
    )
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
    kernel._seat.served = serving.Served(
        registry.variant(target, "tires"), kernel.config, "tuned", "", kernel.problem, kernel.device
    )
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
