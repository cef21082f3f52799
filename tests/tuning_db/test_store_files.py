"""The store as a file: read-only, full, locked, replaced, linked, on a network."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autotune_tuning_db import PolicyRow, Store, StoreError, TrialRow, open_store
from autotune_tuning_db import connection as connection_module
from autotune_tuning_db.files import on_network

Trial = Callable[..., TrialRow]
Policy = Callable[..., PolicyRow]


def test_a_new_store_is_complete_and_sound(store: Store) -> None:
    assert store.integrity() == ()
    assert store.path.is_file()
    assert store.trials() == []
    leftovers = {item.name for item in store.path.parent.iterdir()}
    assert leftovers <= {"tuning.db", "tuning.db-wal", "tuning.db-shm", ".tuning.db.lock"}


def test_reading_what_does_not_exist_creates_nothing(path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist") as caught:
        open_store(path, readonly=True)
    assert caught.value.kind == "missing"
    assert not path.parent.exists()


def test_a_store_opened_for_reading_refuses_to_write(store: Store, make_trial: Trial) -> None:
    with Store(store.path, readonly=True) as reader, pytest.raises(StoreError) as caught:
        reader.add_trial(make_trial())
    assert caught.value.kind == "readonly"


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    for readonly in (False, True):
        with pytest.raises(StoreError, match="cannot be opened") as caught:
            Store(tmp_path, readonly=readonly)
        assert caught.value.kind == "unopenable"


def test_a_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be opened"):
        Store(tmp_path / "file" / "tuning.db")


@pytest.fixture
def readonly_home() -> Iterator[Path]:
    """A folder that an ordinary user may read and not write; outside pytest's private one."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        yield home
        home.chmod(0o755)


AS_ORDINARY_USER = """
import os, sys
from autotune_tuning_db import Store, StoreError
if os.getuid() == 0:
    os.setuid(65534)
print(len(Store(sys.argv[1], readonly=True).policies()))
for path in (sys.argv[1], sys.argv[1] + ".new"):
    try:
        Store(path).start_campaign("cpu", {})
    except StoreError as error:
        print(error.kind, error)
"""


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_readonly_home_can_be_read_and_says_so_on_writing(
    readonly_home: Path, make_policy: Policy, make_trial: Trial, journal: str
) -> None:
    path = readonly_home / "tuning.db"
    with Store(path) as store:
        assert store._db is not None
        store._db.execute(f"PRAGMA journal_mode = {journal}")
        store.put_policy(make_policy())
    path.chmod(0o444)
    readonly_home.chmod(0o555)
    result = subprocess.run(
        [sys.executable, "-c", AS_ORDINARY_USER, str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = result.stdout.splitlines()
    assert result.returncode == 0, result.stderr
    assert lines[0] == "1"
    assert lines[1].split()[0] in ("readonly", "unopenable")
    assert str(path) in lines[1]
    assert lines[2].split()[0] == "unopenable"


def test_db3_a_full_disk_loses_nothing_that_was_kept(store: Store, make_trial: Trial) -> None:
    kept = store.add_trial(make_trial())
    assert store._db is not None
    store._db.execute("PRAGMA max_page_count = 1")  # SQLite then raises SQLITE_FULL, as on a disk

    def fill() -> None:
        nonlocal kept
        for _ in range(100):
            kept = store.add_trial(make_trial(reason="x" * 4000))

    with pytest.raises(StoreError, match=r"disk or quota is full.*free some space") as caught:
        fill()
    assert caught.value.kind == "full"
    assert [row.id for row in store.trials()] == list(range(1, kept + 1))
    store._db.execute("PRAGMA max_page_count = 100000")
    assert store.add_trial(make_trial()) == kept + 1


def test_a_lock_that_is_never_released_is_named(
    store: Store, make_trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "BUSY_SECONDS", 0.05)
    with Store(store.path) as other:
        assert store._db is not None
        store._db.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked by another process") as caught:
            other.add_trial(make_trial())
        assert caught.value.kind == "busy"
        store._db.rollback()
        other.add_trial(make_trial())


def test_a_store_that_vanished_is_made_again(store: Store, make_trial: Trial) -> None:
    store.add_trial(make_trial())
    for file in store.path.parent.iterdir():
        file.unlink()
    store.add_trial(make_trial())
    assert len(Store(store.path, readonly=True).trials()) == 1


def test_a_store_that_was_replaced_is_noticed(
    store: Store, make_policy: Policy, tmp_path: Path
) -> None:
    before = store.generation()
    with Store(tmp_path / "new.db") as new:
        new.put_policy(make_policy())
    (tmp_path / "new.db").replace(store.path)
    assert len(store.policies()) == 1
    assert store.generation() != before


def test_a_link_leads_to_the_store_it_names(
    store: Store, make_trial: Trial, tmp_path: Path
) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(store.path)
    with Store(link) as other:
        other.add_trial(make_trial())
    assert len(store.trials()) == 1


def test_a_backup_is_a_whole_store(store: Store, make_trial: Trial, tmp_path: Path) -> None:
    store.add_trial(make_trial())
    store.backup(tmp_path / "backup.db")
    store.add_trial(make_trial())
    with Store(tmp_path / "backup.db") as copy:
        assert len(copy.trials()) == 1
        assert copy.integrity() == ()


MOUNTS = """\
22 1 0:20 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
31 22 0:29 / /home rw,relatime - nfs4 server:/home rw
32 31 0:30 / /home/local\\040disk rw - xfs /dev/sdb1 rw
33 22 0:31 / /homes rw - xfs /dev/sdc1 rw
"""


@pytest.mark.parametrize(
    ("place", "network"),
    [
        ("/home/u/tuning.db", True),
        ("/home/local disk/tuning.db", False),
        ("/homes/u/tuning.db", False),
        ("/var/tuning.db", False),
    ],
)
def test_db7_a_network_file_system_is_recognised(tmp_path: Path, place: str, network: bool) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTS)
    assert on_network(Path(place), tmp_path / "mountinfo") is network


def test_db7_a_store_on_a_network_has_no_log(
    path: Path, make_trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(path) as local:
        assert local._db is not None
        assert local._db.journal_mode == "wal"
    monkeypatch.setattr(connection_module.files, "on_network", lambda _: True)
    for place in (path, path.with_name("fresh.db")):
        with Store(place) as remote:
            assert remote._db is not None
            assert remote._db.journal_mode == "delete"
            remote.add_trial(make_trial())
        assert not place.with_name(place.name + "-wal").exists()


def test_db7_where_the_log_fails_at_first_use_there_is_none(
    path: Path, make_trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = connection_module._build

    def without_shared_memory(target: Path, journal_mode: str) -> Path:
        if journal_mode == "wal":
            raise sqlite3.OperationalError("disk I/O error")
        return build(target, journal_mode)

    monkeypatch.setattr(connection_module, "_build", without_shared_memory)
    with Store(path) as store:
        assert store._db is not None
        assert store._db.journal_mode == "delete"
        store.add_trial(make_trial())
        assert store.integrity() == ()
