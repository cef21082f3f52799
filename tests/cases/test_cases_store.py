"""Cases DB-1 to DB-7: a store that is empty, cut off, full, foreign, edited under, or remote."""

from __future__ import annotations

import importlib
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Run
from filled import choice, keep, toy_problem
from programs import FAULTS, Shim, environment, python

from autotune import plugins, serving
from autotune.device import local_cpu
from autotune.fingerprint import fingerprint, toolchain
from autotune.lookup import dispatch, forget
from autotune.model import Problem
from autotune.plugins import load_file
from autotune.registry import registry
from autotune.settings import settings
from autotune.store import open_tuning_db
from autotune_policies import Choice


@pytest.fixture(autouse=True)
def fresh_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not dispatched yet."""
    monkeypatch.setattr(serving, "_server", None)
    forget()


def served(size: int = 1024) -> tuple[str, str]:
    """Dispatches as a program that starts now would; checks the result."""
    serving._server = None
    forget()
    x = np.arange(size, dtype="float32")
    kernel = dispatch("toy_scale", x, reverse=True)  # one variant can, and is right
    assert (kernel(x) == 2 * x[::-1]).all()
    return kernel.variant, kernel.origin


def test_db_1_sixteen_processes_start_at_once_on_an_empty_store(tmp_path: Path) -> None:
    rounds = 20 if os.environ.get("AUTOTUNE_TEST_FAULTS") else 1
    done = python(FAULTS / "starts.py", tmp_path, rounds)
    assert done.stdout.splitlines() == ["16 0 1 () []"] * rounds, done.stdout + done.stderr


@pytest.mark.parametrize("left", [0, 100, 4096, "not a database", b"\x00" * 8192])
def test_db_2_a_half_written_store_never_stops_a_start(
    run: Run, toy: str, left: int | str | bytes, caplog: pytest.LogCaptureFixture
) -> None:
    keep(toy_problem(1024, reverse=True), choice("flipped", 1e-6))
    assert served() == ("flipped", "tuned")
    file = settings().database
    if isinstance(left, int):
        os.truncate(file, left)
    else:
        file.write_bytes(left.encode() if isinstance(left, str) else left)
    damaged = file.read_bytes()
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert served()[1] != "tuned"
    (told,) = (record.getMessage() for record in caplog.records if str(file) in record.getMessage())
    assert "autotune db repair" in told
    assert file.read_bytes() == damaged
    checked = run("db", "check")
    assert (checked.code, "damaged: " in checked.out) == (1, True)
    assert run("show", "--json").document == []
    ended = run("pin", "toy_scale", "flipped")
    assert ended.code == 0
    assert len([line for line in ended.err.splitlines() if "damaged" in line]) == 1
    (aside,) = file.parent.glob("tuning.db.damaged-*[0-9]")
    assert aside.read_bytes() == damaged
    assert served() == ("flipped", "pinned")


def test_db_2_cut_off_compiled_code_is_compiled_again(tmp_path: Path) -> None:
    from autotune.kept import KeptCode

    kept = KeptCode("case", ".bin", largest=1 << 20)
    assert kept.get("one", lambda: b"code" * 100) == b"code" * 100
    whole = kept.file("one").read_bytes()
    for length in (0, 10, len(whole) - 1):
        kept.file("one").write_bytes(whole[:length])
        assert kept.get("one", lambda: b"anew" * 100) == b"anew" * 100
        assert kept.get("one", lambda: b"not asked for") == b"anew" * 100


FULL = """
from filled import PLUGIN, choice, keep, toy_problem
from autotune import dispatch
from autotune.cli import main
from autotune.plugins import load_file
from autotune.store import open_tuning_db
from autotune_policies import Choice
from autotune_tuning_db import StoreError
from processes import trial
import numpy as np
load_file(PLUGIN)
keep(toy_problem(8), choice("flipped", 1e-6))
kept = 0
try:
    with open_tuning_db() as store:
        while True:
            store.add_trial(trial(kept))
            kept += 1
except StoreError as error:
    print(error.kind, "\\n" in str(error))
print(main(["pin", "toy_scale", "numpy"]))
with open_tuning_db(readonly=True) as store:
    print(kept > 10, kept == len(store.trials()), store.integrity())
x = np.ones(8, "float32")
kernel = dispatch("toy_scale", x)
print(kernel.origin, (kernel(x) == 2).all())
"""


def test_db_3_on_a_full_disk_what_was_kept_can_be_read_and_dispatch_serves(
    tmp_path: Path,
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if not shutil.which("unshare") or os.getuid() != 0:
        pytest.skip("needs to mount a small file system, which only root may")
    mount = 'mount -t tmpfs -o size=512k none "$0" || exit 77; exec "$@"'
    before = ("unshare", "-m", "sh", "-c", mount, str(disk))
    done = python("-c", FULL, env={"AUTOTUNE_HOME": str(disk)}, before=before)
    if done.returncode == 77:
        pytest.skip("needs to mount a small file system, which is not allowed here")
    assert done.stdout.splitlines() == [
        "full False",
        "1",
        "True True ()",
        "tuned True",
    ], done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "free some space" in done.stderr


def test_db_4_another_toolchain_is_named_and_another_device_is_a_miss(
    run: Run, toy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(toy_problem(1024, reverse=True), choice("flipped", 1e-6))
    version, machine = toolchain()["numba"], local_cpu()

    def sent_elsewhere(name: str, **changes: str) -> None:
        with sqlite3.connect(settings().database) as one, sqlite3.connect(tmp_path / name) as other:
            text = "\n".join(one.iterdump())
            for old, new in changes.items():
                text = text.replace(old, new)
            other.executescript(text)
        one.close()
        other.close()
        monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / name))

    sent_elsewhere("toolchain.db", **{f'"numba":"{version}"': '"numba":"0.0.0"'})
    (entry,) = run("show", "toy_scale", "--why", "--json").document
    changed = {row["field"]: row for row in entry["depends_on"] if row["changed"]}
    assert entry["state"] == "revalidate"
    assert changed.keys() == {"numba"}
    assert (changed["numba"]["measured"], changed["numba"]["now"]) == ("0.0.0", version)
    monkeypatch.delenv("AUTOTUNE_DB")
    other = {machine.identity: "cpu-of-another-architecture", machine.family: "another-family"}
    sent_elsewhere("device.db", **other)
    assert served()[1] == "predicted"
    (entry,) = run("show", "toy_scale", "--device", "all", "--json").document
    assert (entry["state"], entry["device"]) == ("foreign", "cpu-of-another-architecture")


EDITED = """
import helper
from autotune import Pass, operation, variant

@operation(inputs="x[N]", outputs="y[N]", flops="N")
def edited(x):
    return helper.FACTOR * x

EVERY = Pass("loop", parallel=("N",), reads=("x",), writes={"y": "owned"})

@variant(edited, "loop", passes=[EVERY])
def loop(x, y):
    helper.scale(x, y)
"""
HELPER = """
FACTOR = %(factor)s
def scale(x, y):
    y[...] = %(factor)s * x
"""


def test_db_5_an_edited_helper_is_not_served_from_old_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That numba's code on disk is not stale either, test_compiled.py shows in new processes."""
    (tmp_path / "v.py").write_text(EDITED)
    monkeypatch.setattr(registry, "_operations", dict(registry._operations))
    monkeypatch.setattr(registry, "_variants", dict(registry._variants))

    def started(factor: float) -> Any:
        """As a new process after an edit."""
        (tmp_path / "helper.py").write_text(HELPER % {"factor": factor})
        for name in ("helper", "autotune_plugin_v"):
            sys.modules.pop(name, None)
        registry._operations.pop("edited", None)
        registry._variants.pop("edited", None)
        monkeypatch.setattr(plugins, "_files", [])
        importlib.invalidate_caches()
        load_file(tmp_path / "v.py")
        serving._server = None
        forget()
        x = np.ones(8, "float32")
        kernel = dispatch("edited", x)
        return kernel.origin, float(kernel(x)[0])

    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert started(2.0) == ("predicted", 2.0)
    target = registry.operation("edited")
    source = fingerprint(registry.variant("edited", "loop"))
    measured = Choice("loop", (), 1e-6, 1e-6, 1e-6, 0, 0.0, True, source, 9)
    keep(Problem.of(target, (8,)), measured)
    assert started(2.0) == ("tuned", 2.0)
    assert started(3.0) == ("predicted", 3.0)


def test_db_6_eight_threads_meet_on_one_cold_operation(toy: str, private_home: Path) -> None:
    keep(toy_problem(1024), choice("flipped", 1e-6))
    serving._server = None
    forget()
    start, failures, variants = threading.Barrier(8), list[BaseException](), list[str]()

    def work() -> None:
        try:
            start.wait()
            x = np.ones(1024, "float32")
            kernel = dispatch("toy_scale", (1024,), dtype="float32")
            assert (kernel(x) == 2).all()
            variants.append(kernel.variant)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert variants == ["flipped"] * 8


def test_db_7_where_nothing_can_be_shared_or_locked(
    shim: Shim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without shared memory a rollback journal serves two writers; without locks one is told."""
    home = tmp_path / "mount"
    writing = (
        "import os; from autotune.store import open_tuning_db; from processes import trial\n"
        "with open_tuning_db() as store:\n"
        "    for _ in range(20): store.add_trial(trial(os.getpid()))\n"
        "    print(store._db.journal_mode)"
    )

    def host(fault: str, code: str = writing) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment({**shim(fault, home), "AUTOTUNE_HOME": str(home)}),
        )

    hosts = [host("noshm"), host("noshm")]
    ended = [each.communicate(timeout=60) for each in hosts]
    assert ended == [("delete\n", "")] * 2
    pinning = "from autotune.cli import main; print(main(['pin', 'attention', 'online']))"
    told = host("remote", pinning)
    out, err = told.communicate(timeout=60)
    assert out == "1\n"
    assert len(err.splitlines()) == 1
    assert "files cannot be locked there" in err
    assert "local disk" in err
    monkeypatch.setenv("AUTOTUNE_HOME", str(home))
    with open_tuning_db() as store:
        assert len(store.trials()) == 40
        assert store.integrity() == ()


def test_db_7_a_store_with_a_log_that_was_copied_to_such_a_place(
    toy: str, shim: Shim, tmp_path: Path
) -> None:
    keep(toy_problem(1024), choice("flipped", 1e-6))
    code = (
        "from autotune.store import load_snapshot, open_tuning_db\n"
        "print(sum(p.origin == 'tuned' for p in load_snapshot()[0].policies))\n"
        "with open_tuning_db() as store:\n"
        "    store.start_campaign('cpu', {}); print(store._db.journal_mode)"
    )
    done = python("-c", code, env=shim("noshm", settings().database.parent))
    assert (done.stdout, done.stderr) == ("1\ndelete\n", "")
