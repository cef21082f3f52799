"""The measuring process: `python -m autotune.worker READ WRITE MARK`, descriptors all.

The first two are pipes, the third a file of one byte: see `autotune.worker.process.Process`.

Jobs come in as lines of JSON and answers go out so; standard output and error belong to the
candidates. The process ends when its pipe closes, and on Linux with the thread that started it.
"""

from __future__ import annotations

import mmap
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from autotune.errors import DeviceNotFoundError
from autotune.worker.messages import Answer, from_line, pack, to_line, unpack

if TYPE_CHECKING:
    from autotune.worker.session import Session

Report = Callable[[str, float | None], None]

_PR_SET_PDEATHSIG = 1
_NICE = 10


@dataclass(frozen=True)
class _Station:
    """What works off jobs, by what is to be done; `spent` once it cannot any more."""

    actions: Mapping[str, Callable[[Any], Answer]]
    spent: Callable[[], bool] = lambda: False


def main(arguments: list[str]) -> int:
    """Load what the parent describes, then work off jobs until told to stop."""
    incoming, outgoing, mark = (int(each) for each in arguments)
    lines = _lines(incoming)
    hello = from_line(lines.get())
    if hello["die_with_parent"]:
        _die_with_parent(hello["parent"])

    def say(**message: Any) -> None:
        os.write(outgoing, to_line(message))

    station = _set_up(hello, say, mmap.mmap(mark, 1))
    if station is None:
        return 1
    from autotune.worker.leftovers import Leftovers

    before = Leftovers.now()
    while True:
        message = from_line(lines.get())
        if message["do"] == "stop":
            return 0
        answer = pack(station.actions[message["do"]](unpack(message["job"])))
        after = Leftovers.now()
        say(say="answer", answer=answer, spent=station.spent() or after.differ(before))


def _set_up(hello: dict[str, Any], say: Callable[..., None], mark: mmap.mmap) -> _Station | None:
    """Load plugins and find the device; says `ready`, or `unusable` and why."""
    from autotune.worker.definitions import load

    def report(phase: str, limit: float | None) -> None:
        say(say="phase", phase=phase, limit=limit)

    try:
        load(hello["definitions"])
        arch = hello["compile_for"]
        station = _measuring(hello, report, mark) if arch is None else _compiling(arch, report)
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "")
        say(say="unusable", reason=f"{type(error).__name__}: {reason}")
        return None
    say(say="ready")
    return station


def _measuring(hello: dict[str, Any], report: Report, mark: mmap.mmap) -> _Station:
    from autotune.bench import bench_for
    from autotune.device import find_device
    from autotune.worker.measure import compile_only, measure
    from autotune.worker.race import race
    from autotune.worker.session import Session

    device = find_device(hello["address"])
    if device.identity != hello["identity"]:
        raise DeviceNotFoundError(f"{device.address} is {device.identity}, not {hello['identity']}")
    bench = bench_for(device)
    bench.memory.confine()
    session = Session(bench, report, mark)
    actions: dict[str, Callable[[Session, Any], Answer]]
    actions = {
        "measure": measure,
        "check": partial(measure, timed=False),
        "compile": compile_only,
        "race": race,
    }
    bound = {do: partial(action, session) for do, action in actions.items()}
    return _Station(bound, lambda: session.spent)


def _compiling(arch: str, report: Report) -> _Station:
    """Without a device, and after the measuring process where CPUs are short."""
    from autotune.cuda.precompile import precompile

    os.nice(_NICE)
    return _Station({"compile": partial(precompile, arch, report)})


def _lines(descriptor: int) -> queue.SimpleQueue[bytes]:
    """Lines as they arrive; the process ends when there can be no more, even amid a job."""
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        with os.fdopen(descriptor, "rb") as stream:
            for line in stream:
                lines.put(line)
        os._exit(0)

    threading.Thread(target=read, name="reader", daemon=True).start()
    return lines


def _die_with_parent(parent: int) -> None:
    """Have the kernel end this process with its parent, even when it holds the interpreter."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
