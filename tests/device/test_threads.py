"""Scopes really place threads, and leave count, affinity and BLAS as they found them."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from autotune.device.blas import blas_libraries
from autotune.device.threads import ThreadSettings, first_touch, prepare

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system cannot pin threads"
)
CPUS = tuple(sorted(os.sched_getaffinity(0)))[:2] if hasattr(os, "sched_setaffinity") else ()
two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")

SETTINGS = [
    ThreadSettings(1, numba=False),
    ThreadSettings(1, CPUS[:1], numba=False),
    ThreadSettings(1, blas="serial", numba=False),
    ThreadSettings(2, blas="parallel", numba=False),
    ThreadSettings(2, CPUS[::-1], blas="parallel", numba=False),
    ThreadSettings(1),
    ThreadSettings(2),
    ThreadSettings(1, CPUS[-1:]),
    ThreadSettings(2, CPUS),
    ThreadSettings(2, CPUS[::-1], blas="serial"),
    ThreadSettings(2, CPUS, blas="parallel"),
]


def counts() -> tuple[int, tuple[int, ...]]:
    """The calling thread's numba count and the count of every BLAS."""
    import numba

    return numba.get_num_threads(), tuple(library.get() for library in blas_libraries())


def masks() -> dict[str, frozenset[int]]:
    """The mask of every thread of this process."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # a thread that was just joined
            found[task.name] = frozenset(os.sched_getaffinity(int(task.name)))
    return found


@pytest.fixture
def unchanged() -> Iterator[Callable[[], None]]:
    """Checks, when called and at the end of the test, that nothing differs from the start."""
    blas_libraries()
    np.ones((64, 64)) @ np.ones((64, 64))
    prepare(ThreadSettings(len(CPUS), CPUS))  # starts every worker
    counts_before, masks_before = counts(), masks()

    def check() -> None:
        assert counts() == counts_before
        now = masks()
        assert {task: now[task] for task in masks_before if task in now} == {
            task: mask for task, mask in masks_before.items() if task in now
        }
        assert set(now.values()) == set(masks_before.values())

    yield check
    check()


def masks_in_team(threads: int) -> list[set[int]]:
    """The masks of the threads that run a region now, asked from outside by their ids."""
    from autotune.device import numba_threads

    ids, _ = numba_threads.meet(threads)
    return [os.sched_getaffinity(each) for each in ids.tolist()]


@two_cpus
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_scope_leaves_everything_as_it_was(
    settings: ThreadSettings, unchanged: Callable[[], None]
) -> None:
    scope = prepare(settings)
    unchanged()
    for _ in range(3):
        with scope:
            pass
        unchanged()
    with pytest.raises(RuntimeError, match="kernel"), scope:
        raise RuntimeError("kernel")
    unchanged()
    with scope, scope:
        pass


@two_cpus
@pytest.mark.parametrize("cpus", [CPUS, CPUS[::-1]], ids=str)
def test_numba_threads_run_where_they_are_put(
    cpus: tuple[int, ...], unchanged: Callable[[], None]
) -> None:
    scope = prepare(ThreadSettings(2, cpus))
    if scope.plan.pinning != "exact":
        pytest.skip(f"numba's {scope.plan.layer} layer keeps threads on the set of CPUs only")
    with scope:
        assert masks_in_team(2) == [{cpu} for cpu in cpus]
    record = scope.record()
    assert (record.asked, record.used, record.threads) == (cpus, cpus, 2)


@two_cpus
def test_one_thread_is_the_caller(unchanged: Callable[[], None]) -> None:
    for cpu in CPUS:
        scope = prepare(ThreadSettings(1, (cpu,), numba=False))
        with scope:
            assert os.sched_getaffinity(0) == {cpu}
        assert scope.record().used == (cpu,)


@two_cpus
def test_blas_threads_run_where_they_are_put(unchanged: Callable[[], None]) -> None:
    scope = prepare(ThreadSettings(2, CPUS[::-1], blas="parallel", numba=False))
    if scope.plan.pinning != "exact":
        pytest.skip("this BLAS does not let its threads be pinned")
    with scope:
        assert {frozenset({cpu}) for cpu in CPUS} <= set(masks().values())
        assert os.sched_getaffinity(0) == {CPUS[1]}
        assert {library.get() for library in blas_libraries()} == {2}


@two_cpus
def test_counts_apply_inside_only(unchanged: Callable[[], None]) -> None:
    import numba

    with prepare(ThreadSettings(1, blas="serial")):
        assert numba.get_num_threads() == 1
        assert {library.get() for library in blas_libraries()} == {1}
        with prepare(ThreadSettings(2, blas="parallel")):
            assert numba.get_num_threads() == 2
            assert {library.get() for library in blas_libraries()} == {2}
        assert numba.get_num_threads() == 1
        assert {library.get() for library in blas_libraries()} == {1}


@two_cpus
@pytest.mark.parametrize("settings", [each for each in SETTINGS if each.cpus], ids=str)
def test_a_caller_that_narrowed_its_mask_stays_within_it(
    settings: ThreadSettings, unchanged: Callable[[], None]
) -> None:
    import numba

    found, early = os.sched_getaffinity(0), prepare(settings)
    os.sched_setaffinity(0, set(CPUS) - {settings.cpus[0]})
    try:
        before = masks()
        for scope in (early, prepare(settings)):
            with scope:
                assert masks().items() >= before.items()
                assert not settings.numba or numba.get_num_threads() == settings.threads
    finally:
        os.sched_setaffinity(0, found)


@two_cpus
def test_overlapping_python_threads_get_their_own_and_leave_the_callers(
    unchanged: Callable[[], None],
) -> None:
    import numba

    first, second = ThreadSettings(1, CPUS[:1], blas="serial"), ThreadSettings(2, blas="parallel")
    scopes = [prepare(first), prepare(second)]
    steps = [threading.Barrier(2, timeout=30) for _ in range(3)]
    seen: dict[int, tuple[int, set[int]]] = {}
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            mask = os.sched_getaffinity(0)
            if number == 1:
                steps[0].wait()
            with scopes[number]:
                if number == 0:
                    steps[0].wait()
                steps[1].wait()  # both are inside
                seen[number] = numba.get_num_threads(), os.sched_getaffinity(0)
                if number == 1:
                    steps[2].wait()  # the first to enter leaves first
            if number == 0:
                steps[2].wait()
            assert os.sched_getaffinity(0) == mask
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert seen == {0: (1, {CPUS[0]}), 1: (2, os.sched_getaffinity(0))}


@two_cpus
@pytest.mark.parametrize(
    "settings",
    [
        ThreadSettings(1, (4000,), numba=False),
        ThreadSettings(1, (4000,), blas="serial"),
        ThreadSettings(2, (CPUS[0] if CPUS else 0, 4000)),
        ThreadSettings(2, (CPUS[0] if CPUS else 0, 1001)),
        ThreadSettings(2, (CPUS[0] if CPUS else 0, 1001), blas="parallel", numba=False),
    ],
    ids=str,
)
def test_a_cpu_out_of_reach_changes_nothing(
    settings: ThreadSettings, unchanged: Callable[[], None]
) -> None:
    with pytest.raises(OSError, match=r"CPUs .*(4000|1001)"):
        prepare(settings)


def test_settings_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="threads is 0"):
        ThreadSettings(0)
    with pytest.raises(ValueError, match="2 threads were given 1 CPUs"):
        ThreadSettings(2, (0,))
    with pytest.raises(ValueError, match=r"5000 are asked for; set NUMBA_NUM_THREADS"):
        prepare(ThreadSettings(5000))
    if blas_libraries():
        with pytest.raises(ValueError, match="runs at most"):
            prepare(ThreadSettings(5000, blas="parallel", numba=False))


@two_cpus
@pytest.mark.parametrize(
    "settings",
    [ThreadSettings(1, numba=False), ThreadSettings(2), ThreadSettings(2, CPUS)],
    ids=str,
)
@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (5, 7), (3, 400, 70)], ids=str)
def test_first_touch_copies(
    settings: ThreadSettings, shape: tuple[int, ...], unchanged: Callable[[], None]
) -> None:
    scope = prepare(settings)
    array = np.random.default_rng(0).random(shape)
    for source in (array, array.T, np.asfortranarray(array)):
        copy = first_touch(source, scope)
        assert not np.shares_memory(copy, source)
        assert copy.flags.writeable
        assert copy.strides == source.copy("K").strides
        np.testing.assert_array_equal(copy, source)


@two_cpus
def test_first_touch_of_a_slice_is_dense(unchanged: Callable[[], None]) -> None:
    source = np.arange(60.0).reshape(6, 10)[::2, ::-3]
    copy = first_touch(source, prepare(ThreadSettings(2, CPUS)))
    np.testing.assert_array_equal(copy, source)
    assert copy.nbytes == copy.base.nbytes
