"""The device lock: one holder, waiting is announced, a dead holder does not count."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.lock import DeviceBusyError, device_lock

HOLD = """
import sys
from autotune.lock import device_lock
with device_lock("cpu-test"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_process_is_told_who_measures_and_waits(holder: subprocess.Popen[str]) -> None:
    messages: list[str] = []

    def told(message: str) -> None:
        messages.append(message)
        assert holder.stdin is not None
        holder.stdin.close()

    with device_lock("cpu-test", waiting=told):
        assert holder.wait(10) == 0
    assert len(messages) == 1
    assert f"process {holder.pid}" in messages[0]
    assert "cpu-test" in messages[0]


def test_patience_can_be_limited(holder: subprocess.Popen[str]) -> None:
    with pytest.raises(DeviceBusyError, match=str(holder.pid)), device_lock("cpu-test", timeout=0):
        pass


def test_a_killed_holder_does_not_keep_the_lock(holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    with device_lock("cpu-test", timeout=5):
        pass


def test_other_devices_are_not_locked(holder: subprocess.Popen[str]) -> None:
    with device_lock("cuda/other:0", timeout=0):
        pass


def test_it_can_be_taken_again_and_by_threads_in_turn() -> None:
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        with device_lock("cpu-test"):
            inside += 1
            most = max(most, inside)
            inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert most == 1


def test_without_a_place_to_write_it_uses_temporary_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("AUTOTUNE_HOME", str(blocked))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    with device_lock("cpu-test", timeout=0):
        assert list((tmp_path / "temporary").rglob("cpu-test.lock"))


def test_a_file_system_without_locks_costs_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def refuse(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.warns(UserWarning, match="No locks available"), device_lock("cpu-test"):
        pass
