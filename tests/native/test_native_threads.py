"""OpenMP's threads are where they are put, and everything is left as it was found."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from native_scale import PLAIN, skip_without

from autotune import Placement, Threads
from autotune.device import local_cpu
from autotune.device.threads import ThreadSettings, first_touch, prepare
from autotune.execution import Executable
from autotune.model import Operation, Problem, Variant
from autotune.model.operation import parse_tensors
from autotune.native import NativeSource
from autotune.native.compilers import find

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system cannot pin threads"
)
CPUS = tuple(sorted(os.sched_getaffinity(0)))[:2] if hasattr(os, "sched_setaffinity") else ()
two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")

WHERE = """
#define _GNU_SOURCE
#include "arrays.h"
#include <omp.h>
#include <sched.h>
/* cpus[thread] = the only CPU that the thread may run on, or -1; cpus[2] = max threads. */
void where(const array *a, const int64_t *settings, const double *scalars)
{
    REAL *cpus = (REAL *)a[1].data;
    (void)scalars;
#pragma omp parallel num_threads(settings[0])
    {
        cpu_set_t set;
        sched_getaffinity(0, sizeof set, &set);
        cpus[omp_get_thread_num()] = CPU_COUNT(&set) == 1 ? (REAL)sched_getcpu() : -1;
    }
    cpus[2] = omp_get_max_threads();
}
"""


@pytest.fixture(autouse=True)
def compiler() -> None:
    skip_without("c")


def masks() -> dict[str, frozenset[int]]:
    """The mask of every thread of this process."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            found[task.name] = frozenset(os.sched_getaffinity(int(task.name)))
    return found


def settings(threads: int, cpus: tuple[int, ...] = ()) -> ThreadSettings:
    return ThreadSettings(threads, cpus, numba=False, openmp="gcc")


@pytest.fixture
def unchanged() -> Iterator[Callable[[], None]]:
    """Checks, when called and at the end of the test, that no thread's mask has changed."""
    prepare(settings(len(CPUS), CPUS))  # starts every worker
    before = masks()

    def check() -> None:
        now = masks()
        assert {task: now[task] for task in before if task in now} == {
            task: mask for task, mask in before.items() if task in now
        }
        assert set(now.values()) == set(before.values())

    yield check
    check()


@two_cpus
@pytest.mark.parametrize("cpus", [(), CPUS, CPUS[::-1]], ids=str)
def test_a_scope_pins_and_leaves_everything_as_it_was(
    cpus: tuple[int, ...], unchanged: Callable[[], None]
) -> None:
    from autotune.native.team import meet

    scope = prepare(settings(2, cpus))
    for _ in range(2):
        with scope:
            team = [os.sched_getaffinity(each) for each in meet(2, "gcc")[0]]
            assert not cpus or team == [{cpu} for cpu in cpus]
        unchanged()
    with pytest.raises(RuntimeError, match="kernel"), scope:
        raise RuntimeError("kernel")
    unchanged()
    with scope, scope:
        pass
    record = scope.record()
    assert (record.layer, record.pinning) == ("openmp", "exact" if cpus else "free")
    assert record.used == cpus or not cpus


@two_cpus
def test_a_caller_that_narrowed_its_mask_stays_within_it(unchanged: Callable[[], None]) -> None:
    found, scope = os.sched_getaffinity(0), prepare(settings(2, CPUS))
    os.sched_setaffinity(0, {CPUS[1]})
    try:
        before = masks()
        with scope:
            assert masks() == before
    finally:
        os.sched_setaffinity(0, found)


@two_cpus
def test_one_thread_is_the_caller(unchanged: Callable[[], None]) -> None:
    scope = prepare(settings(1, CPUS[1:]))
    with scope:
        assert os.sched_getaffinity(0) == {CPUS[1]}
    assert scope.record().used == CPUS[1:]


@two_cpus
@pytest.mark.parametrize("outside", [4000, 1001])
def test_a_cpu_out_of_reach_changes_nothing(outside: int, unchanged: Callable[[], None]) -> None:
    with pytest.raises(OSError, match=rf"CPUs .*{outside}"):
        prepare(settings(2, (CPUS[0], outside)))


@two_cpus
def test_first_touch_copies(unchanged: Callable[[], None]) -> None:
    array = np.random.default_rng(0).random((3, 400, 70))
    for threads, cpus in ((1, ()), (2, CPUS)):
        copy = first_touch(array, prepare(settings(threads, cpus)))
        assert not np.shares_memory(copy, array)
        np.testing.assert_array_equal(copy, array)


@two_cpus
def test_a_candidates_own_threads_are_pinned(tmp_path: Path, unchanged: Callable[[], None]) -> None:
    (tmp_path / "where.c").write_text(WHERE)
    source = NativeSource(tmp_path / "where.c")
    tensors = parse_tensors("x[N]"), parse_tensors("y[N]")
    operation = Operation("where", ("N",), *tensors, reference=print, plain=print)

    def build(problem: Any, config: Any) -> Any:
        return source.kernel("where", problem, {**PLAIN, **config})

    variant = Variant("v", operation, build, source=build, tunables=(Threads(), Placement()))
    x, y = np.zeros(3, np.float32), np.zeros(3, np.float32)
    problem = Problem.of(operation, (3,), "float32")
    most = ctypes.CDLL(None).omp_get_max_threads() if _has_openmp() else None
    for threads in (2, 1):
        config = {"threads": threads, "placement": "compact"}
        executable = Executable(variant, problem, config, local_cpu())
        executable(x, y)
        record = executable.thread_record()
        assert record is not None
        assert (record.layer, record.pinning, len(record.asked)) == ("openmp", "exact", threads)
        assert tuple(y[:threads].astype(int)) == record.asked
        unchanged()
        assert most is None or y[2] == most
    assert executable.thread_settings == ThreadSettings(1, record.asked, numba=False, openmp="gcc")


def _has_openmp() -> bool:
    return hasattr(ctypes.CDLL(None), "omp_get_max_threads")


def test_a_team_cut_short_is_refused() -> None:
    script = (
        "import os\n"
        "from autotune.device.threads import ThreadSettings, prepare\n"
        "found = os.sched_getaffinity(0)\n"
        "cpus = (tuple(sorted(found)) * 2)[:2]\n"
        "try: prepare(ThreadSettings(2, cpus, numba=False, openmp='gcc'))\n"
        "except OSError as error: print(error)\n"
        "assert os.sched_getaffinity(0) == found\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "OMP_THREAD_LIMIT": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "OpenMP runs only 1 of 2 threads" in done.stdout, done.stderr


_WAITS = """
import os
from autotune.native.team import _team
print(_team("clang").kmp_get_blocktime(), "KMP_BLOCKTIME" in os.environ)
"""


@pytest.mark.parametrize(("given", "found"), [({}, "1 False"), ({"KMP_BLOCKTIME": "7"}, "7 True")])
def test_threads_of_llvm_do_not_spin_for_long_after_their_work(
    given: dict[str, str], found: str
) -> None:
    if find("clang") is None:
        pytest.skip("clang is not on the PATH")
    told = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    command = [sys.executable, "-c", _WAITS]
    done = subprocess.run(
        command, env={**told, **given}, capture_output=True, text=True, check=False
    )
    if "AutotuneError" in done.stderr or "BuildError" in done.stderr:
        pytest.skip(f"clang is here without what OpenMP needs: {done.stderr.splitlines()[-1]}")
    assert done.stdout.strip() == found, done.stderr
