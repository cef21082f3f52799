"""Runs one call of a candidate under Nsight Compute, in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from autotune.device import Device
from autotune.model import Candidate, Problem
from autotune.profile.counters import (
    METRICS,
    NoCountersError,
    Profile,
    ProfileError,
    read_counters,
)
from autotune.worker.definitions import describe

LIMIT_SECONDS = 300.0
_PLACES = ("/usr/local/cuda/bin", *map(str, sorted(Path("/opt/nvidia/nsight-compute").glob("*"))))
_NO_PERMISSION = "ERR_NVGPUCTRPERM"


def profile(
    problem: Problem, candidate: Candidate, device: Device, *, plugin_files: Iterable[str] = ()
) -> Profile:
    """Counters of one call, after a first one that compiles and warms up.

    Clocks are left as they are. Raises ProfileError, in one sentence, when counters are not read:
    a NoCountersError where this machine has none.
    """
    needs_counters(device)
    job = {
        "device": device.address,
        "problem": problem.key.text,
        "variant": candidate.variant,
        "config": dict(candidate.config),
        "definitions": describe([str(file) for file in plugin_files]),
    }
    command = [
        *(_nsight_compute(), "--clock-control", "none", "--profile-from-start", "off"),
        *("--csv", "--print-units", "base", "--metrics", ",".join(METRICS)),
        *(sys.executable, "-P", "-m", "autotune.profile.target"),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(job["definitions"]["path"])}  # type: ignore[index]
    try:
        ended = subprocess.run(
            command,
            input=json.dumps(job),
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        raise ProfileError(
            f"Nsight Compute took longer than {LIMIT_SECONDS:g} s; profile a smaller size."
        ) from None
    _complain(ended)
    return read_counters(ended.stdout)


def needs_counters(device: Device) -> None:
    """Raise NoCountersError, in one sentence, unless the device is one that has counters."""
    if device.kind != "cuda":
        raise NoCountersError(f"counters are read of GPUs; {device.identity} is a {device.kind}.")


def _nsight_compute() -> str:
    found = shutil.which("ncu") or shutil.which("ncu", path=os.pathsep.join(_PLACES))
    if found is None:
        raise NoCountersError(
            "Nsight Compute (ncu) is not installed; it comes with the CUDA toolkit, and PATH has "
            "to name its folder."
        )
    return found


def _complain(ended: subprocess.CompletedProcess[str]) -> None:
    """Say in one sentence what went wrong, if anything did."""
    said = f"{ended.stdout}\n{ended.stderr}"
    if _NO_PERMISSION in said:
        raise NoCountersError(
            "the driver lets only administrators read counters; run as root, or load it with "
            "NVreg_RestrictProfilingToAdminUsers=0."
        )
    if ended.returncode:
        lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
        errors = [line for line in said.splitlines() if line.startswith("==ERROR==")]
        why = (lines[-1:] or errors[-1:] or ["it said nothing"])[0]
        raise ProfileError(f"the profiled program ended with {ended.returncode}: {why}")
