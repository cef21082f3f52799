"""What control groups grant this process: CPU time, CPUs and memory nodes (v1, v2 and cpuset)."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autotune.device.sysfs import parse_cpu_list, read_cpu_list, read_int, read_text


@dataclass(frozen=True, slots=True)
class Grant:
    """CPU time in CPUs (None: no limit), allowed CPUs and memory nodes (None: no restriction)."""

    quota: float | None = None
    cpus: frozenset[int] | None = None
    nodes: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class _Mount:
    kind: str
    controllers: frozenset[str]
    root: str
    point: str


def read_grant(root: Path) -> Grant:
    """The tightest of what every group from this process's own up to the mount grants."""
    quotas: list[float] = []
    cpus: frozenset[int] | None = None
    nodes: frozenset[int] | None = None
    for directory in group_folders(root, frozenset({"cpu", "cpuset"})):
        quota = _quota(directory)
        if quota is not None:
            quotas.append(quota)
        # The innermost group that says anything is the tightest: children are subsets.
        cpus = _first(cpus, _restriction(directory, "cpus"))
        nodes = _first(nodes, _restriction(directory, "mems"))
    return Grant(min(quotas, default=None), cpus, nodes)


def group_folders(root: Path, controllers: frozenset[str]) -> Iterator[Path]:
    """Folders of this process's group and its ancestors, innermost first, of every mount that has
    one of these controllers."""
    paths = _own_groups(root)
    for mount in _mounts(root, controllers):
        yield from _chain(root, mount, paths)


def _first(known: frozenset[int] | None, found: frozenset[int] | None) -> frozenset[int] | None:
    return found if known is None else known


def _quota(directory: Path) -> float | None:
    """CPUs' worth of time per period: v2 `cpu.max`, v1 `cpu.cfs_quota_us`; None when unlimited."""
    limit, period = 0, 0
    if text := read_text(directory / "cpu.max"):
        granted, _, per = text.partition(" ")
        limit = int(granted) if granted.isdecimal() else 0
        period = int(per) if per.isdecimal() else 100_000
    else:
        limit = read_int(directory / "cpu.cfs_quota_us") or 0
        period = read_int(directory / "cpu.cfs_period_us") or 0
    return limit / period if limit > 0 and period > 0 else None


def _restriction(directory: Path, what: str) -> frozenset[int] | None:
    """The CPUs or memory nodes a group is restricted to; None when it says nothing.

    v2 leaves `cpuset.cpus` empty when inherited and fills `.effective`; in v1 the former counts.
    Mounts of type `cpuset` (or with `noprefix`) name their files plainly.
    """
    names = (f"cpuset.{what}.effective", f"cpuset.{what}", f"cpuset.effective_{what}", what)
    return next((each for name in names if (each := read_cpu_list(directory / name))), None)


def _own_groups(root: Path) -> dict[str, str]:
    """Path of this process's group by controller; the unified (v2) one under the empty name."""
    paths: dict[str, str] = {}
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = ([*line.split(":", 2), "", ""])[:3]
        for controller in controllers.split(","):
            paths.setdefault(controller, path)
    cpuset = read_text(root / "proc/self/cpuset")
    if cpuset:
        paths.setdefault("cpuset", cpuset)
        paths.setdefault("", cpuset)
    return paths


def _mounts(root: Path, wanted: frozenset[str]) -> list[_Mount]:
    """The cgroup and cpuset mounts, from mountinfo or, where that is missing, from mounts."""
    found: list[_Mount] = []
    for line in (read_text(root / "proc/self/mountinfo") or "").splitlines():
        left, _, right = line.partition(" - ")
        place, source = left.split(), right.split()
        if len(place) >= 5 and len(source) >= 3:
            found.append(_mount(source[0], source[2], place[3], place[4]))
    if not found:
        for path in ("proc/self/mounts", "proc/mounts"):
            for line in (read_text(root / path) or "").splitlines():
                part = line.split()
                if len(part) >= 4:
                    found.append(_mount(part[2], part[3], "/", part[1]))
            if found:
                break
    kinds = {"cgroup2", "cpuset"} if "cpuset" in wanted else {"cgroup2"}
    return [m for m in found if m.kind in kinds or m.controllers & wanted]


def _mount(kind: str, options: str, top: str, point: str) -> _Mount:
    controllers = frozenset(options.split(",")) if kind == "cgroup" else frozenset()
    return _Mount(kind, controllers, _unescape(top), _unescape(point))


def _unescape(path: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), path)


def _chain(root: Path, mount: _Mount, paths: dict[str, str]) -> Iterator[Path]:
    """Directories of the process's group and its ancestors under a mount, innermost first.

    Inside a container the mount shows only the part from `mount.root` down; a path that lies
    outside it (another namespace) leaves the mount point itself as the best that can be known.
    """
    if mount.kind == "cgroup2":
        path = paths.get("", "/")
    else:
        names = ("cpuset",) if mount.kind == "cpuset" else sorted(mount.controllers)
        path = next((paths[name] for name in names if name in paths), "/")
    inside = posixpath.relpath(path or "/", mount.root or "/")
    if inside == os.curdir or inside.startswith(".."):
        inside = ""
    base = root / mount.point.lstrip("/")
    here = base / inside
    while True:
        if here.is_dir():
            yield here
        if here == base:
            return
        here = here.parent


def read_status_lists(root: Path) -> tuple[frozenset[int] | None, frozenset[int] | None]:
    """`Cpus_allowed_list` and `Mems_allowed_list` of /proc/self/status."""
    status = read_text(root / "proc/self/status") or ""
    found: dict[str, frozenset[int] | None] = {}
    for line in status.splitlines():
        key, _, value = line.partition(":")
        if key in ("Cpus_allowed_list", "Mems_allowed_list"):
            found[key] = parse_cpu_list(value.strip())
    return found.get("Cpus_allowed_list"), found.get("Mems_allowed_list")
