"""Tuned attention on this CPU beside PyTorch's scaled_dot_product_attention, in one run.

    python benchmarks/attention_cpu.py [--budget 60s] [--sizes 512 1024 2048 4096]

Needs torch (the benchmark only). Tunes each problem first, then interleaves both; hot caches, as
a framework's benchmark would have it, both sides alike.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from common import interleaved, median_interval, ratio_interval, write

import autotune
from autotune import dispatch, tune

B, H, D = 2, 1, 64


def torch_forward(arrays: list[Any]) -> Any:
    """PyTorch's forward on the same data."""
    q, k, v = (torch.from_numpy(a) for a in arrays[:3])

    def run() -> Any:
        with torch.no_grad():
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    return run


def torch_train(arrays: list[Any]) -> Any:
    """PyTorch's forward plus backward on the same data."""
    q, k, v = (torch.from_numpy(a).requires_grad_() for a in arrays[:3])
    grad = torch.from_numpy(arrays[3])

    def run() -> Any:
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return torch.autograd.grad(out, (q, k, v), grad)

    return run


def compare(name: str, dtype: str, n: int, options: argparse.Namespace) -> dict[str, Any]:
    """Tune one problem, check nothing away, and time both sides."""
    operation = getattr(autotune, name)
    shape = (B, H, n, D)
    tune(operation, shape, dtype=dtype, mode=options.mode, budget=options.budget, device="cpu")
    kernel = dispatch(operation, shape, dtype=dtype, mode=options.mode, strict=True, device="cpu")
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(dtype) for _ in range(4)]
    given = arrays if name == "attention_train" else arrays[:3]
    theirs = torch_train(arrays) if name == "attention_train" else torch_forward(arrays)
    kernel(*given)
    samples = interleaved(
        {"ours": lambda: kernel(*given), "torch": theirs},
        rounds=101,
        settle=0.04,
        seconds=options.seconds,
    )
    ratio, low, high = ratio_interval(samples["ours"], samples["torch"])
    row = {
        "operation": name,
        "dtype": dtype,
        "N": n,
        "ours_ms": median_interval(samples["ours"])[0] * 1e3,
        "torch_ms": median_interval(samples["torch"])[0] * 1e3,
        "ratio": ratio,
        "ratio_low": low,
        "ratio_high": high,
        "variant": kernel.variant,
        "config": dict(kernel.config),
        "rounds": len(samples["ours"]),
    }
    print(
        f"{name:16s} {dtype} N={n:5d}  ours {row['ours_ms']:.3f}  torch {row['torch_ms']:.3f} ms"
        f"  ratio {ratio:.2f} ({low:.2f}-{high:.2f})  {kernel.variant} [{kernel.config}]",
        flush=True,
    )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", default="60s")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--mode", default="hot")
    parser.add_argument("--sizes", type=int, nargs="+", default=[512, 1024, 2048, 4096])
    parser.add_argument("--name", default="attention_cpu")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in ("attention", "attention_train"):
        for dtype in ("float32", "float64"):
            for n in options.sizes:
                rows.append(compare(name, dtype, n, options))
                write(
                    options.name, rows, packages=("torch",), torch_threads=torch.get_num_threads()
                )


if __name__ == "__main__":
    main()
