"""Running the profiler: a fake `ncu` stands in for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from test_counters import OUTPUT

from autotune.model import Candidate, Config, Problem
from autotune.plugins import load_plugins
from autotune.profile import NoCountersError, ProfileError, profile
from autotune.registry import registry


@dataclass(frozen=True)
class FakeGpu:
    kind: str = "cuda"
    address: str = "cuda:0"
    identity: str = "cuda-fake"
    family: str = "cuda-fake"
    label: str = "A fake GPU"
    facts: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)

    def thread_counts(self) -> tuple[int, ...]:
        return (1,)

    def placements(self) -> tuple[str, ...]:
        return ("free",)


@pytest.fixture
def problem() -> Problem:
    load_plugins()
    return Problem.of(registry.operation("attention"), (1, 1, 64, 64))


def fake_ncu(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = folder / "ncu"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


CANDIDATE = Candidate("numpy", Config())


def test_counters_come_back_and_the_clocks_are_left_alone(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out.csv").write_text(OUTPUT)
    fake_ncu(
        tmp_path, monkeypatch, f'echo "$@" > {tmp_path}/args; cat > /dev/null; cat {tmp_path}/*.csv'
    )
    found = profile(problem, CANDIDATE, FakeGpu())
    assert len(found.kernels) == 2
    arguments = (tmp_path / "args").read_text()
    assert "--clock-control none" in arguments
    assert "--profile-from-start off" in arguments


@pytest.mark.parametrize(
    ("script", "sentence", "here"),
    [
        ("echo '==ERROR== ERR_NVGPUCTRPERM - no permission'; exit 1", "only administrators", False),
        ("echo 'RuntimeError: boom' >&2; exit 3", "ended with 3: RuntimeError: boom", True),
        ("echo '==PROF== nothing'", "no kernel", True),
    ],
)
def test_what_goes_wrong_is_one_sentence(
    problem: Problem,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    sentence: str,
    here: bool,
) -> None:
    fake_ncu(tmp_path, monkeypatch, f"cat > /dev/null; {script}")
    with pytest.raises(ProfileError, match=sentence) as raised:
        profile(problem, CANDIDATE, FakeGpu())
    assert isinstance(raised.value, NoCountersError) != here


def test_without_the_profiler_its_package_is_named(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.profile.nsight._PLACES", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoCountersError, match="Nsight Compute"):
        profile(problem, CANDIDATE, FakeGpu())


def test_a_cpu_has_no_such_counters(problem: Problem) -> None:
    from autotune.device import local_cpu

    with pytest.raises(NoCountersError, match="counters are read of GPUs"):
        profile(problem, CANDIDATE, local_cpu())
