"""The measuring process: `python -m autotune.worker READ WRITE`, two descriptors of pipes.

Jobs come in as lines of JSON and answers go out so; standard output and error belong to the
candidates. The process ends when its pipe closes, and on Linux with the thread that started it.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from autotune.worker.messages import Answer, from_line, pack, to_line, unpack

if TYPE_CHECKING:
    from autotune.worker.session import Session

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Load what the parent describes, then work off jobs until told to stop."""
    incoming, outgoing = (int(each) for each in arguments)
    lines = _lines(incoming)
    hello = from_line(lines.get())
    if hello["die_with_parent"]:
        _die_with_parent(hello["parent"])

    def say(**message: Any) -> None:
        os.write(outgoing, to_line(message))

    ready = _set_up(hello, say)
    if ready is None:
        return 1
    session, work = ready
    known = set(threading.enumerate())
    while True:
        message = from_line(lines.get())
        if message["do"] == "stop":
            return 0
        answer = work(message["do"], message["job"])
        say(say="answer", answer=answer, spent=session.spent or _left_behind(known))


def _set_up(
    hello: dict[str, Any], say: Callable[..., None]
) -> tuple[Session, Callable[[str, dict[str, Any]], dict[str, Any]]] | None:
    """Load plugins and find the device; says `ready`, or `unusable` and why."""
    from autotune.worker.definitions import load

    def report(phase: str, entrant: int | None) -> None:
        say(say="phase", phase=phase, entrant=entrant)

    try:
        load(hello["definitions"])
        from autotune.bench import bench_for
        from autotune.device import find_device
        from autotune.worker.measure import compile_only, measure
        from autotune.worker.race import race
        from autotune.worker.session import Session

        session = Session(bench_for(find_device(hello["device"])), report)
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "")
        say(say="unusable", reason=f"{type(error).__name__}: {reason}")
        return None

    actions: dict[str, Callable[[Session, Any], Answer]]
    actions = {"measure": measure, "compile": compile_only, "race": race}

    def work(do: str, fields: dict[str, Any]) -> dict[str, Any]:
        return pack(actions[do](session, unpack(fields)))

    say(say="ready")
    return session, work


def _left_behind(known: set[threading.Thread]) -> bool:
    """Whether a candidate left threads running, which would disturb the next one."""
    from autotune.eviction import THREAD_NAME

    return any(
        thread not in known and not thread.name.startswith(THREAD_NAME)
        for thread in threading.enumerate()
    )


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
