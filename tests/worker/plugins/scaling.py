"""Good and bad variants of tiny operations, for the tests of the measuring process."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import numba
import numpy as np

from autotune import Choice, Intermediate, Pass, Requirement, Threads, operation, variant


@operation(inputs="x[N]", outputs="y[N]")
def scale(x):
    """Twice x."""
    return x * 2


CALLS = Counter()
OWNED = (Pass("scale", parallel={"N": 1}, reads=("x",), writes={"y": "owned"}),)


@variant(scale, "honest", passes=OWNED)
def honest(x, y):
    np.multiply(x, 2, out=y)


@variant(scale, "returning", passes=OWNED)
def returning(x):
    return x * 2


@variant(scale, "zeros")
def zeros(x):
    return np.zeros_like(x)


@variant(scale, "half_done")
def half_done(x, y):
    np.multiply(x[: x.size // 2], 2, out=y[: x.size // 2])


@variant(scale, "nan")
def nan(x, y):
    np.multiply(x, 2, out=y)
    y[-1] = np.nan


@variant(scale, "cheat")
def cheat(x):
    return np.full_like(x, x.flat[0] * 2)


@variant(scale, "raising")
def raising(x, y):
    raise RuntimeError("no such tile\nand more")


@variant(scale, "exiting")
def exiting(x, y):
    raise SystemExit(3)


@variant(scale, "interrupting")
def interrupting(x, y):
    raise KeyboardInterrupt


@variant(scale, "out_of_memory")
def out_of_memory(x, y):
    np.empty(1 << 60, np.uint8)


@variant(scale, "leaving")
def leaving(x, y):
    os._exit(0)


@variant(scale, "aborting")
def aborting(x, y):
    print("about to abort")
    os.abort()


@variant(scale, "endless")
def endless(x, y):
    while True:
        pass


@numba.njit
def _spin(x):
    total = 0
    while x[0] == x[0]:
        total += 1
    return total


@variant(scale, "endless_in_c")
def endless_in_c(x, y):
    _spin(x)


@variant(scale, "chatty")
def chatty(x, y):
    print("hello from a kernel")
    np.multiply(x, 2, out=y)


@variant(scale, "flooding")
def flooding(x, y):
    while True:
        print("x" * 100_000)


@variant(scale, "vandal")
def vandal(x, y):
    np.multiply(x, 2, out=y)
    x[0] += 1


@variant(scale, "trespasser")
def trespasser(x, y):
    np.multiply(x, 2, out=y)
    ctypes.c_float.from_address(y.ctypes.data + y.nbytes).value = 1.0


@variant(scale, "wide")
def wide(x):
    return x.astype(np.float64) * 2


@variant(scale, "moody", passes=OWNED)
def moody(x, y):
    CALLS["moody"] += 1
    np.multiply(x, 2, out=y)
    if CALLS["moody"] % 2:
        y[0] = np.nextafter(y[0], np.float32(np.inf))


@variant(scale, "tiring")
def tiring(x, y):
    CALLS["tiring"] += 1
    np.multiply(x, 2 if CALLS["tiring"] < 6 else 3, out=y)


@variant(scale, "detached")
def detached(x, y):
    def later():
        time.sleep(0.05)
        np.multiply(x, 2, out=y)

    threading.Thread(target=later).start()


@variant(scale, "jit_fast")
def jit_fast(x):
    CALLS["jit_fast"] += 1
    if CALLS["jit_fast"] == 1:
        time.sleep(0.5)
    return x * 2


@variant(scale, "plain_slow")
def plain_slow(x):
    time.sleep(0.02)
    return x * 2


@variant(scale, "very_slow")
def very_slow(x):
    time.sleep(0.15)
    return x * 2


@numba.njit(parallel=True, nogil=True)
def _scale(x, y, scratch):
    for i in numba.prange(x.size):
        scratch[i] = 2 * x[i]
        y[i] = scratch[i]


@variant(
    scale,
    "threaded",
    passes=OWNED,
    intermediates=(Intermediate("scratch", ("N",)),),
    tunables=(Threads(), Choice("style", ("a", "b"))),
)
def threaded(problem, config):
    def run(x, y, scratch):
        _scale(x, y, scratch)

    return run


@variant(scale, "unbuildable", tunables=(Choice("style", ("a", "b")),))
def unbuildable(problem, config):
    raise ValueError(f"cannot build for {config['style']}")


@variant(scale, "absent", requires=(Requirement("unicorn", lambda: "needs a unicorn"),))
def absent(x, y):
    raise AssertionError


@variant(scale, "impatient")
def impatient(x, y):
    CALLS["impatient"] += 1
    if CALLS["impatient"] > 3:
        time.sleep(60)
    np.multiply(x, 2, out=y)


@variant(scale, "orphaning", passes=OWNED)
def orphaning(x, y):
    np.multiply(x, 2, out=y)
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()


@variant(scale, "starting_another")
def starting_another(x, y):
    subprocess.run(["sleep", "300"], check=True)


@variant(scale, "pid")
def pid(x, y):
    raise LookupError(f"{os.getpid()} {os.getppid()}")


@operation(inputs="x[N]", outputs="x[N]")
def double(x):
    """Twice x, in place."""
    return x * 2


@variant(double, "multiply")
def multiply(x):
    x *= 2


@variant(double, "add")
def add(x):
    np.add(x, x, out=x)


@operation(inputs="x[N]", outputs="y[N]")
def unjudged(x):
    """Its reference is wrong."""
    return np.full_like(x, np.nan)


@variant(unjudged, "only")
def only(x, y):
    y[...] = x


@variant(scale, "dies_later", passes=OWNED)
def dies_later(x, y):
    CALLS["dies_later"] += 1
    if CALLS["dies_later"] > 6:
        os.kill(os.getpid(), signal.SIGSEGV)
    np.multiply(x, 2, out=y)


@variant(scale, "forking", passes=OWNED)
def forking(x, y):
    if not CALLS["forking"]:
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    CALLS["forking"] += 1
    np.multiply(x, 2, out=y)
