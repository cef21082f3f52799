"""What driver and NVML say where there is no GPU, or half of one."""

from __future__ import annotations

import subprocess
import sys

import pytest
from fake_driver import CUPY, H200, FakeDriver, FakeNvml

from autotune.device.driver import read_driver
from autotune.device.gpus import gpus_of
from autotune.device.nvml import read_nvml, session


def no_library(name: str) -> None:
    raise OSError(f"{name}: cannot open shared object file")


def test_no_driver() -> None:
    reading = read_driver(no_library, {})
    assert reading.gpus == ()
    assert reading.reason == "there is no NVIDIA driver here (libcuda.so.1 is not found)"


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (3, "forked"),
        (34, "stub"),
        (100, "sees no GPU"),
        (802, "fabric manager"),
        (803, "reboot"),
        (804, "compatibility library"),
        (999, "999: something the driver says"),
    ],
)
def test_a_driver_that_does_not_start_says_why(status: int, told: str) -> None:
    reading = read_driver(FakeDriver([H200], status=status), {})
    assert reading.gpus == ()
    assert told in str(reading.reason)
    assert "\n" not in str(reading.reason)


@pytest.mark.parametrize("status", [0, 100])
def test_hidden_gpus(status: int) -> None:
    reading = read_driver(FakeDriver([], status=status), {"CUDA_VISIBLE_DEVICES": ""})
    assert reading.reason == "CUDA_VISIBLE_DEVICES='' names no GPU that is here"
    assert read_driver(FakeDriver([]), {}).reason == "the NVIDIA driver sees no GPU"


def test_nvml_that_fails_costs_its_facts_only() -> None:
    class Broken(FakeNvml):
        def nvmlInit(self) -> None:  # noqa: N802
            raise self.NVMLError("Driver/library version mismatch")

    driver = read_driver(FakeDriver([H200]), {})
    reading = read_nvml([driver.gpus[0].uuid], Broken([H200]))
    assert "mismatch" in str(reading.reason)
    (gpu,) = gpus_of(driver, reading, CUPY).devices
    assert gpu.unusable is None
    assert gpu.facts["power_limit_watts"] is None
    assert gpu.facts["driver"] is None
    assert read_nvml(["0"], FakeNvml([H200])).gpus == {}
    without = read_nvml([str(H200.raw)], FakeNvml([H200], power=False))
    assert without.gpus[str(H200.raw)].power_limit is None


def test_without_nvidia_ml_py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert read_nvml(["0"]).reason == "nvidia-ml-py is not installed"


def test_nvml_sessions_end() -> None:
    nvml = FakeNvml([H200])
    read_nvml([str(H200.raw)], nvml)
    assert nvml.sessions == 0
    with pytest.raises(ValueError, match="inside"), session(nvml):
        raise ValueError("inside")
    assert nvml.sessions == 0


def test_asking_for_the_cpu_or_importing_does_not_touch_the_driver() -> None:
    code = (
        "import sys, ctypes; import autotune.device as d; d.find_device('cpu');"
        "d.find_device(d.local_cpu().identity);"
        "print([m for m in sys.modules if m.endswith(('device.driver', 'pynvml', 'cupy'))])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
