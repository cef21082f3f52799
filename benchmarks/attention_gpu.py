"""Tuned attention on this GPU beside PyTorch's scaled_dot_product_attention, in one run.

    python benchmarks/attention_gpu.py [--dtype float64 ...] [--tune 20s]

Forward plus backward, device time by events, the L2 overwritten before every sample, PyTorch's
best backend for each shape. At N <= 1024 eager samples hold what launching takes beyond some
64 us, PyTorch's as ours, and rows under CUDA-graph replay stand beside them; above, the device is
kept busy for four times as long first, so that both are device time. Needs torch (the benchmark
only). Without --tune the policies at hand serve: the shipped ones, or this machine's own.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import torch
from common import median_interval, ratio_interval, served
from gpu_clock import PER_GRAPH, Clock, Run, captured, keep
from torch.nn.attention import SDPBackend, sdpa_kernel

import autotune
from autotune import dispatch, tune

JUDGED = 1 << 29
"""Weights up to which errors are computed: in float64 they take 4 GiB, several times."""
SMALL = 1024
LONG = 4
"""Flushes before a sample above SMALL."""
BACKENDS = {
    "float64": ("MATH",),
    "float32": ("MATH", "EFFICIENT_ATTENTION"),
    "bfloat16": ("FLASH_ATTENTION", "CUDNN_ATTENTION"),
    "float16": ("FLASH_ATTENTION", "CUDNN_ATTENTION"),
}
STUDY = [(2, 1, n, 64) for n in (128, 512, 1024, 2048, 4096, 8192, 16384)]
MANY_HEADS = [(2, 16, n, 128) for n in (4096, 8192)]


def torch_runs(dtype: str, tensors: tuple[torch.Tensor, ...], causal: bool) -> dict[str, Run]:
    """Forward plus backward by every backend that takes the problem."""
    q, k, v = (each.detach().clone().requires_grad_() for each in tensors[:3])
    grad = tensors[3]

    def run(backend: str) -> Any:
        with sdpa_kernel(getattr(SDPBackend, backend)):
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return out.detach(), *torch.autograd.grad(out, (q, k, v), grad)

    found: dict[str, Run] = {}
    for backend in BACKENDS[dtype]:
        try:
            run(backend)
        except RuntimeError as error:
            print(f"  torch {backend}: {str(error).splitlines()[0]}")
            continue
        found[backend] = lambda backend=backend: run(backend)
    return found


def errors(runs: dict[str, Run], tensors: tuple[torch.Tensor, ...]) -> dict[str, list[float]]:
    """Largest errors of out and gradients over the largest magnitude, by a float64 computation."""
    exact = torch_runs("float64", tuple(each.double() for each in tensors), causal=False)["MATH"]()
    return {
        name: [
            float((one.double() - right).abs().max() / right.abs().max())
            for one, right in zip(run(), exact, strict=True)
        ]
        for name, run in runs.items()
    }


def compare(
    clock: Clock, dtype: str, shape: tuple[int, ...], mode: str, options: Any
) -> dict[str, Any]:
    """One problem in one mode: cold, or replayed as a graph."""
    torch.manual_seed(0)
    kernel = dispatch(autotune.attention_train, shape, dtype=dtype, mode=mode, device="cuda")
    if options.tune and kernel.origin != "tuned":
        tune(autotune.attention_train, shape, dtype=dtype, mode=mode, budget=options.tune)
        kernel = dispatch(autotune.attention_train, shape, dtype=dtype, mode=mode, device="cuda")
    kind = getattr(torch, dtype)
    tensors = tuple(torch.randn(shape, device="cuda", dtype=kind) for _ in range(4))
    runs: dict[str, Run] = {"ours": lambda: kernel(*tensors)}
    runs |= torch_runs(dtype, tensors, causal=False)
    judged = mode == "cold" and math.prod(shape[:3]) * shape[2] <= JUDGED
    found = errors(runs, tensors) if judged else None
    if mode == "graph":
        runs = {name: captured(run) for name, run in runs.items()}
    flushes = 1 if shape[2] <= SMALL else LONG
    samples = clock.interleaved(runs, options.rounds, flushes)
    medians = {name: median_interval(times)[0] for name, times in samples.items()}
    best = min((name for name in medians if name != "ours"), key=medians.__getitem__)
    ratio, low, high = ratio_interval(samples["ours"], samples[best])
    repeats = PER_GRAPH if mode == "graph" else 1
    b, h, n, d = shape
    row = {
        "dtype": dtype,
        "B": b,
        "H": h,
        "N": n,
        "D": d,
        "mode": mode,
        "ours_ms": medians["ours"] / repeats * 1e3,
        "torch_ms": medians[best] / repeats * 1e3,
        "backend": best,
        "ratio": ratio,
        "low": low,
        "high": high,
        "teraflops": 14 * b * h * n * n * d / (medians["ours"] / repeats) / 1e12,
        **served(kernel),
        "errors": found,
        "samples": {name: times for name, times in samples.items() if name in ("ours", best)},
    }
    print(
        f"{dtype:8s} B={b} H={h:2d} N={n:5d} D={d:3d} {mode:5s} ours {row['ours_ms']:8.4f}"
        f" torch {row['torch_ms']:8.4f} ms ({best.split('_')[0].lower()})  ratio {ratio:.3f}"
        f" ({low:.3f}-{high:.3f})  {kernel.variant} [{kernel.config}] {kernel.origin}",
        flush=True,
    )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", nargs="+", default=["float64", "float32", "bfloat16", "float16"])
    parser.add_argument(
        "--tune", metavar="TIME", help="tune first, so long, what no policy answers exactly"
    )
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--most", type=int, default=16384, help="largest N")
    parser.add_argument("--name", default="attention_gpu")
    options = parser.parse_args()
    clock, rows = Clock(), []
    for dtype in options.dtype:
        shapes = STUDY + (MANY_HEADS if dtype in ("bfloat16", "float16") else [])
        for shape in shapes:
            if shape[2] > options.most:
                continue
            for mode in ("cold", "graph") if shape[2] <= SMALL else ("cold",):
                rows.append(compare(clock, dtype, shape, mode, options))
                keep(options.name, rows)


if __name__ == "__main__":
    main()
