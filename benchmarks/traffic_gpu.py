"""Bytes that every CUDA variant of attention moves, counted on this GPU beside the prediction.

    python benchmarks/traffic_gpu.py [--operation attention ...]     # results/traffic_gpu.json

Default configs; needs Nsight Compute. Tiled variants at B=8, H=16, N=2048, D=64, whose arrays do
not fit the L2, the study's arrangements at B=2, H=1, N=2048, D=64, as they move A besides. In
float64 where a variant has it, else in the first of its dtypes.
"""

from __future__ import annotations

import argparse
from typing import Any

from common import gpu_facts, write

from autotune.device import find_device
from autotune.fingerprint import fingerprint
from autotune.model import Candidate, Problem, Variant, predict
from autotune.model.space import default_config
from autotune.plugins import load_plugins
from autotune.profile import ProfileError, profile
from autotune.registry import registry

OPERATIONS = ("attention", "attention_backward", "attention_train")
TILED = ("cuda_dmma", "cuda_tf32x3", "cuda_mma", "cuda_simt", "cuda_wgmma", "cuda_split_half")
COUNTS = ("bytes_read", "bytes_written", "atomics")
LARGE, STUDY = (8, 16, 2048, 64), (2, 1, 2048, 64)


def measure(variant: Variant, device: Any) -> dict[str, Any] | None:
    """One variant; None where it has no config here."""
    tiled = variant.name.startswith(TILED)
    dtype = "float64" if "float64" in variant.dtypes else variant.dtypes[0]
    shape = LARGE if tiled else STUDY
    problem = Problem.of(variant.operation, shape, dtype)
    config = default_config(variant, problem, device)
    if config is None:
        return None
    predicted = predict(variant, problem, config)
    row: dict[str, Any] = {
        "operation": variant.operation.name,
        "variant": variant.name,
        "tiled": tiled,
        "dtype": dtype,
        "shape": shape,
        "config": dict(config),
        "source": fingerprint(variant),
        "predicted": {each: getattr(predicted, each) for each in COUNTS},
    }
    name = f"{variant.operation.name:18s} {variant.name:32s} {dtype:8s}"
    try:
        counted = profile(problem, Candidate(variant.name, config), device)
    except ProfileError as error:
        print(f"{name} {error}", flush=True)
        return {**row, "failed": str(error)}
    moved = counted.bytes_read + counted.bytes_written
    row["counted"] = {each: getattr(counted, each) for each in COUNTS}
    row["ratio"] = moved / predicted.bytes_moved
    print(f"{name} {row['ratio']:.2f} of {predicted.bytes_moved / 1e6:.0f} MB", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operation", nargs="+", choices=OPERATIONS, default=list(OPERATIONS))
    parser.add_argument("--name", default="traffic_gpu")
    options = parser.parse_args()
    load_plugins()
    device, rows = find_device("cuda"), []
    for operation in options.operation:
        for variant in registry.variants(registry.operation(operation)):
            row = measure(variant, device) if variant.device == "cuda" else None
            if row is not None:
                rows.append(row)
                write(options.name, rows, packages=("cupy",), **gpu_facts())


if __name__ == "__main__":
    main()
