"""A GPU that is not here: what the counts of CUDA variants go by on a machine without one."""

from __future__ import annotations

from autotune.device.cuda import CudaDevice

ASSUMED_LIMITS = {
    "compute": 90,
    "sms": 132,
    "shared_per_block": 227 << 10,
    "shared_per_sm": 228 << 10,
    "registers_per_sm": 65_536,
    "max_threads_per_block": 1024,
    "max_threads_per_sm": 2048,
    "warp": 32,
    "device_memory": 141 * 10**9,
    "l2_bytes": 50 << 20,
}
"""An H200: compute 9.0 by the CUDA C++ Programming Guide, multiprocessors and memory by its data
sheet."""

ASSUMED_GPU = CudaDevice(
    identity="cuda-assumed",
    family="cuda-assumed",
    label="an assumed GPU of compute 9.0",
    index=0,
    uuid="",
    card="",
    bus_id="",
    limits=ASSUMED_LIMITS,
)
