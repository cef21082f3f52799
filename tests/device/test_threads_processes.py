"""Scopes in processes of their own: every threading layer, forks, refusals, light imports."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system cannot pin threads"
)
two_cpus = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="needs two CPUs",
)


def run_script(text: str, layer: str, **extra: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NUMBA_THREADING_LAYER": layer, **extra}
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", text],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )


LAYER_SCRIPT = """
import os, sys, threading
from pathlib import Path
from autotune.device.threads import ThreadSettings, prepare
cpus = tuple(sorted(os.sched_getaffinity(0)))[:2]
try:
    scope = prepare(ThreadSettings(2, cpus[::-1]))
except ValueError as error:
    print("no layer:", error)
    sys.exit()
from autotune.device import numba_threads as nt
def masks():
    return {t.name: os.sched_getaffinity(int(t.name)) for t in Path("/proc/self/task").iterdir()}
before = masks()
with scope:
    ids, _ = nt.meet(2)
    team = [os.sched_getaffinity(t) for t in ids.tolist()]
    if scope.plan.pinning == "exact":
        assert team == [{cpu} for cpu in cpus[::-1]], team
    else:
        assert all(mask <= set(cpus) for mask in team), team
assert masks() == before
others = ThreadSettings(1), ThreadSettings(2), ThreadSettings(1, cpus[:1])
scopes = [scope, *map(prepare, others)]
def run(mine):
    for _ in range(20):
        with mine:
            nt.meet(mine.settings.threads)
threads = [threading.Thread(target=run, args=(each,)) for each in scopes]
[t.start() for t in threads]; [t.join() for t in threads]
assert masks().items() >= before.items(), (masks(), before)
assert set(map(frozenset, masks().values())) == {frozenset(os.sched_getaffinity(0))}
print(scope.plan.layer, scope.plan.pinning)
"""


@two_cpus
@pytest.mark.parametrize(
    ("layer", "pinning"), [("omp", "exact"), ("workqueue", "exact"), ("tbb", "group")]
)
def test_every_threading_layer_pins_restores_and_survives_concurrent_calls(
    layer: str, pinning: str
) -> None:
    done = run_script(LAYER_SCRIPT, layer)
    assert done.returncode == 0, done.stderr
    if done.stdout.startswith("no layer"):
        pytest.skip(f"numba's {layer} threading layer is not installed here")
    assert done.stdout.split() == [layer, pinning]


FORK_SCRIPT = """
import os
from pathlib import Path
import numpy as np
from autotune.device.threads import ThreadSettings, prepare
cpus = tuple(sorted(os.sched_getaffinity(0)))[:2]
blas = ThreadSettings(2, cpus, blas="parallel", numba=False)
scopes = [prepare(ThreadSettings(2, cpus)), prepare(blas)]
def masks(pid):
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {t.name: os.sched_getaffinity(int(t.name)) for t in tasks}
parent, before = os.getpid(), masks(os.getpid())
child = os.fork()
if child == 0:
    for scope in scopes:
        with scope:
            now = masks(parent)  # OpenBLAS has ended its threads there
            assert now.items() <= before.items(), (now, before)
        assert scope.record().used == cpus
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@two_cpus
def test_a_forked_child_pins_its_own_threads_not_the_parents() -> None:
    done = run_script(FORK_SCRIPT, "workqueue")
    assert done.stdout.strip() == "7", done.stderr


@two_cpus
def test_a_team_cut_short_by_openmp_is_refused() -> None:
    done = run_script(
        "import os\n"
        "from autotune.device.threads import ThreadSettings, prepare\n"
        "found = os.sched_getaffinity(0)\n"
        "try: prepare(ThreadSettings(2, tuple(sorted(found))[:2]))\n"
        "except OSError as error: print(error)\n"
        "assert os.sched_getaffinity(0) == found\n",
        "omp",
        OMP_THREAD_LIMIT="1",
    )
    assert done.returncode == 0, done.stderr
    assert "OpenMP runs only 1 of 2 threads" in done.stdout


def test_numba_and_threadpoolctl_stay_out_until_needed() -> None:
    done = run_script(
        "import sys\n"
        "from autotune.device.threads import ThreadSettings, prepare\n"
        "scope = prepare(ThreadSettings(1, numba=False))\n"
        "with scope: pass\n"
        "print('numba' in sys.modules, 'threadpoolctl' in sys.modules)\n"
        "prepare(ThreadSettings(1, blas='serial', numba=False))\n"
        "print('numba' in sys.modules, 'threadpoolctl' in sys.modules)\n",
        "default",
    )
    assert done.stdout.split() == ["False", "False", "False", "True"], done.stderr
