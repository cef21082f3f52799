"""GPU tests: skipped where there is no GPU; kernels are compiled before the first one runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from contract import Candidate, compile_candidate

from autotune.cuda.memory import DeviceMemory
from autotune.device import find_device
from autotune.errors import AutotuneError


@pytest.fixture(scope="session")
def gpu_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One data directory for all GPU tests: they share what is compiled."""
    return tmp_path_factory.mktemp("gpu-home")


@pytest.fixture(autouse=True)
def private_home(gpu_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In place of a directory for each test."""
    monkeypatch.setenv("AUTOTUNE_HOME", str(gpu_home))
    monkeypatch.delenv("AUTOTUNE_DB", raising=False)
    monkeypatch.delenv("AUTOTUNE_FROZEN", raising=False)
    return gpu_home


@pytest.fixture(scope="session")
def device() -> Any:
    """This machine's GPU, or a skip that says why there is none."""
    try:
        found = find_device("cuda")
    except AutotuneError as error:
        pytest.skip(f"needs an NVIDIA GPU: {error}")
    if found.unusable:
        pytest.skip(f"the GPU cannot be used: {found.unusable}")
    return found


@pytest.fixture(scope="session")
def memory(device: Any) -> DeviceMemory:
    """The memory of that GPU."""
    return DeviceMemory()


@pytest.fixture(scope="session")
def compiled(device: Any, gpu_home: Path, request: pytest.FixtureRequest) -> Iterator[None]:
    """Kernels of all selected tests, compiled by as many threads as there are CPUs.

    Not where tests run in several processes (pytest-xdist): each compiles what its tests need.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        yield
        return
    before = os.environ.get("AUTOTUNE_HOME")
    os.environ["AUTOTUNE_HOME"] = str(gpu_home)
    found = (
        value
        for item in request.session.items
        for value in getattr(getattr(item, "callspec", None), "params", {}).values()
        if isinstance(value, Candidate)
    )
    wanted = dict.fromkeys(found)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda each: compile_candidate(each, device), wanted))
    yield
    if before is not None:
        os.environ["AUTOTUNE_HOME"] = before
