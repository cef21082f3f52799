"""CPU quota and cpusets of containers and jobs, in both generations of control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.device.cgroup import Grant, read_grant
from autotune.device.read import read_topology

V2 = "30 23 0:26 {root} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
V1_CPU = "33 30 0:29 {root} /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct"
V1_SET = "34 30 0:30 {root} /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


def test_without_control_groups_nothing_is_limited(tmp_path: Path) -> None:
    assert read_grant(tmp_path) == Grant()


def test_v2_quota_in_a_container(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/mountinfo": V2.format(root="/"),
            "proc/self/cgroup": "0::/",
            "sys/fs/cgroup/cpu.max": "150000 100000",
            "sys/fs/cgroup/cpuset.cpus.effective": "0-3",
            "sys/fs/cgroup/cpuset.mems.effective": "0",
        },
    )
    assert read_grant(root) == Grant(1.5, frozenset(range(4)), frozenset({0}))


def test_v2_the_tightest_ancestor_counts(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/mountinfo": V2.format(root="/"),
            "proc/self/cgroup": "0::/a.slice/b.scope/c",
            "sys/fs/cgroup/a.slice/cpu.max": "400000 100000",
            "sys/fs/cgroup/a.slice/b.scope/cpu.max": "max 100000",
            "sys/fs/cgroup/a.slice/b.scope/c/cpu.max": "800000 100000",
            "sys/fs/cgroup/a.slice/cpuset.cpus.effective": "0-7",
            "sys/fs/cgroup/a.slice/b.scope/cpuset.cpus.effective": "2-3",
        },
    )
    assert read_grant(root) == Grant(4.0, frozenset({2, 3}), None)


@pytest.mark.parametrize("mounted", ["/", "/docker/abc"])
def test_v1_quota_seen_from_inside_and_outside(tmp_path: Path, mounted: str) -> None:
    inside = "" if mounted != "/" else "docker/abc/"
    root = write(
        tmp_path,
        {
            "proc/self/mountinfo": f"{V1_CPU.format(root=mounted)}\n{V1_SET.format(root=mounted)}",
            "proc/self/cgroup": "5:cpuset:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=x:/",
            f"sys/fs/cgroup/cpu,cpuacct/{inside}cpu.cfs_quota_us": "250000",
            f"sys/fs/cgroup/cpu,cpuacct/{inside}cpu.cfs_period_us": "100000",
            f"sys/fs/cgroup/cpuset/{inside}cpuset.cpus": "4-7",
        },
    )
    assert read_grant(root) == Grant(2.5, frozenset(range(4, 8)), None)


def test_v1_minus_one_is_no_limit(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/mountinfo": V1_CPU.format(root="/"),
            "proc/self/cgroup": "4:cpu,cpuacct:/",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
        },
    )
    assert read_grant(root).quota is None


def test_a_group_of_another_namespace_falls_back_to_the_mount(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/mountinfo": V2.format(root="/"),
            "proc/self/cgroup": "0::/../../other",
            "sys/fs/cgroup/cpu.max": "50000 100000",
        },
    )
    assert read_grant(root).quota == 0.5


def test_mounts_stand_in_for_mountinfo_and_names_may_hold_blanks(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/mounts": r"cgroup2 /my\040groups cgroup2 rw 0 0",
            "proc/self/cgroup": "0::/job",
            "my groups/job/cpu.max": "300000",
        },
    )
    assert read_grant(root).quota == 3.0


@pytest.mark.parametrize("text", ["", "max", "junk 100000", "0 100000", "100 0"])
def test_odd_quotas_are_no_limit(tmp_path: Path, text: str) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/mountinfo": V2.format(root="/"),
            "proc/self/cgroup": "0::/",
            "sys/fs/cgroup/cpu.max": text,
        },
    )
    assert read_grant(root).quota is None


def test_status_lists_limit_a_recorded_tree(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/status": "Name:\tx\nCpus_allowed_list:\t1-2\nMems_allowed_list:\t0",
            "sys/devices/system/cpu/online": "0-3",
        },
    )
    machine = read_topology(root)
    assert machine.online == (0, 1, 2, 3)
    assert machine.allowed == (1, 2)
