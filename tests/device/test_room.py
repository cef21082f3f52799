"""How much memory is left, by the machine and by control groups, and a limit that holds."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from autotune.device.room import memory_left

V2 = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1 = "33 30 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"


def machine(root: Path, mounts: str, groups: str, files: dict[str, str]) -> Path:
    own = root / "proc" / "self"
    own.mkdir(parents=True)
    (own / "mountinfo").write_text(mounts)
    (own / "cgroup").write_text(groups)
    for name, text in files.items():
        file = root / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


@pytest.mark.parametrize(
    ("mounts", "groups", "files", "left"),
    [
        (
            V2,
            "0::/job/step\n",
            {
                "job/memory.max": "5000\n",
                "job/memory.current": "3000\n",
                "job/step/memory.max": "max\n",
                "job/step/memory.current": "1000\n",
            },
            2000,
        ),
        (
            V2,
            "0::/job\n",
            {
                "job/memory.max": "5000\n",
                "job/memory.current": "5000\n",
                "job/memory.stat": "anon 4100\ninactive_file 700\n",
            },
            700,
        ),
        (
            V1,
            "4:memory:/job\n",
            {
                "memory/job/memory.limit_in_bytes": "9000\n",
                "memory/job/memory.usage_in_bytes": "4000\n",
                "memory/job/memory.stat": "total_inactive_file 500\n",
            },
            5500,
        ),
    ],
)
def test_the_tightest_group_decides(
    tmp_path: Path, mounts: str, groups: str, files: dict[str, str], left: int
) -> None:
    assert memory_left(machine(tmp_path, mounts, groups, files)) == left


def test_without_groups_it_is_what_the_machine_has(tmp_path: Path) -> None:
    available = psutil.virtual_memory().available
    assert memory_left(tmp_path) == pytest.approx(available, rel=0.2)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's limit of data")
def test_what_goes_beyond_the_limit_fails_where_it_is_asked_for() -> None:
    code = """
        import numpy as np
        from autotune.device.room import confine
        assert confine(64 << 20) > 0
        np.ones(1 << 20)
        try:
            np.ones(1 << 24)
        except MemoryError:
            print("refused", open("/proc/self/oom_score_adj").read().strip())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[0] == "refused"
    assert done.stdout.split()[1] in ("1000", "0")  # 0 where a container does not let it be set
