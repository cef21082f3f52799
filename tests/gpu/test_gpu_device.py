"""What is read of this machine's GPU, against what CuPy and NVML say of it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from autotune.device import find_device, local_devices
from autotune.device.cuda import CudaDevice, memory_class
from autotune.device.nvml import handle, session
from autotune.model.variant import MACHINE_LIMITS

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def gpus(device: Any) -> list[CudaDevice]:
    """Every usable GPU here."""
    return [each for each in local_devices() if isinstance(each, CudaDevice) and not each.unusable]


def test_the_best_device_is_a_gpu(device: Any) -> None:
    assert find_device() is device
    assert find_device(device.address) is device
    assert find_device(device.uuid) is device
    assert find_device(device.label).identity == device.identity


def test_limits_and_places_are_those_that_cupy_tells(gpus: list[CudaDevice]) -> None:
    import cupy

    assert len(gpus) == cupy.cuda.runtime.getDeviceCount()
    for gpu in gpus:
        told = cupy.cuda.runtime.getDeviceProperties(gpu.index)
        assert gpu.limits.keys() == set(MACHINE_LIMITS["cuda"])
        assert gpu.limits == {
            "compute": 10 * told["major"] + told["minor"],
            "sms": told["multiProcessorCount"],
            "shared_per_block": told["sharedMemPerBlockOptin"],
            "shared_per_sm": told["sharedMemPerMultiprocessor"],
            "registers_per_sm": told["regsPerMultiprocessor"],
            "max_threads_per_block": told["maxThreadsPerBlock"],
            "max_threads_per_sm": told["maxThreadsPerMultiProcessor"],
            "warp": told["warpSize"],
            "device_memory": told["totalGlobalMem"],
            "l2_bytes": told["l2CacheSize"],
        }
        assert gpu.label == " ".join(told["name"].decode().split())
        assert gpu.bus_id.lower() == cupy.cuda.Device(gpu.index).pci_bus_id.lower()


def test_nvml_knows_the_same_card(gpus: list[CudaDevice]) -> None:
    pytest.importorskip("pynvml")
    with session() as nvml:
        for gpu in gpus:
            own = handle(nvml, gpu.uuid)
            memory = nvml.nvmlDeviceGetMemoryInfo(own).total
            assert gpu.facts["memory_class_gb"] == memory_class(memory)
            bare = handle(nvml, gpu.uuid.partition("-")[2])
            assert nvml.nvmlDeviceGetUUID(bare) == nvml.nvmlDeviceGetUUID(own) == gpu.uuid
            assert gpu.facts["driver"] == nvml.nvmlSystemGetDriverVersion()


def test_an_h200_is_found_by_its_name(gpus: list[CudaDevice]) -> None:
    wanted = [gpu for gpu in gpus if "H200" in gpu.label and not gpu.facts["partition"]]
    if not wanted:
        pytest.skip("this machine has no H200")
    found = find_device("h200")
    assert found.identity.startswith("cuda-sm90-132sm-141gb-")
    assert found.family == "cuda-sm90-around128sm"


def test_a_process_that_sees_no_gpu_says_so(device: Any) -> None:
    code = "from autotune.device import why_no_gpu; print(why_no_gpu())"
    out = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout.strip() == "CUDA_VISIBLE_DEVICES='' names no GPU that is here"


def test_the_identity_does_not_need_nvml(device: Any) -> None:
    code = (
        "import sys; sys.modules['pynvml'] = None\n"
        "from autotune.device import find_device\n"
        "gpu = find_device('cuda'); print(gpu.identity, gpu.uuid)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == [device.identity, device.uuid]
