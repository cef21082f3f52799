"""Tuned decode on this GPU beside PyTorch's scaled_dot_product_attention, in one run.

    python benchmarks/decode_gpu.py [--dtype bfloat16 ...] [--tune 15s]

One query per head over a cache of N keys. Device time by events on a cold L2, PyTorch's own
choice and every backend that takes the problem; TB/s are those of the cache, read once. Rows of
fewer than 64 MB are repeated under CUDA-graph replay, where launching counts for neither. Needs
torch (the benchmark only). Without --tune the policies at hand serve.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from common import median_interval, ratio_interval, served
from gpu_clock import PER_GRAPH, Clock, Run, captured, keep
from torch.nn.attention import SDPBackend, sdpa_kernel

import autotune
from autotune import dispatch, tune

LENGTHS = (1024, 4096, 16384, 65536, 262_144, 1_048_576)
HEADS = ((1, 1, 1, 64), (1, 32, 8, 128), (16, 32, 8, 128))
"""B, H, Hkv, D: one head, one sequence of grouped heads, and a batch of them."""
BACKENDS = ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH")
MOST_BYTES = 20e9
SMALL_BYTES = 64e6


def torch_runs(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> dict[str, Run]:
    """PyTorch's own choice, and each backend that takes these tensors."""
    query, grouped = q.unsqueeze(2), q.shape[1] != k.shape[1]

    def run(backend: str | None) -> Any:
        sdpa = torch.nn.functional.scaled_dot_product_attention
        if backend is None:
            return sdpa(query, k, v, enable_gqa=grouped)
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return sdpa(query, k, v, enable_gqa=grouped)

    found: dict[str, Run] = {"default": lambda: run(None)}
    for backend in BACKENDS:
        try:
            run(backend)
        except RuntimeError:
            continue
        found[backend] = lambda backend=backend: run(backend)
    return found


def compare(clock: Clock, dtype: str, dims: dict[str, int], mode: str, options: Any) -> dict:
    """One problem in one mode: cold, or replayed as a graph."""
    torch.manual_seed(0)
    kernel = dispatch(autotune.decode, dims=dims, dtype=dtype, mode=mode, device="cuda")
    if options.tune and kernel.origin != "tuned":
        tune(autotune.decode, dims=dims, dtype=dtype, mode=mode, budget=options.tune)
        kernel = dispatch(autotune.decode, dims=dims, dtype=dtype, mode=mode, device="cuda")
    b, h, hkv, n, d = (dims[name] for name in ("B", "H", "Hkv", "N", "D"))
    kind = getattr(torch, dtype)
    q = torch.randn(b, h, d, device="cuda", dtype=kind)
    k, v = (torch.randn(b, hkv, n, d, device="cuda", dtype=kind) for _ in range(2))
    runs: dict[str, Run] = {"ours": lambda: kernel(q, k, v), **torch_runs(q, k, v)}
    if mode == "graph":
        runs = {name: captured(run) for name, run in runs.items()}
    samples = clock.interleaved(runs, options.rounds, 1 if mode == "graph" else 2)
    repeats = PER_GRAPH if mode == "graph" else 1
    medians = {name: median_interval(times)[0] / repeats for name, times in samples.items()}
    best = min((name for name in medians if name != "ours"), key=medians.__getitem__)
    ratio, low, high = ratio_interval(samples["ours"], samples[best])
    moved = 2 * b * hkv * n * d * q.element_size()
    row = {
        "dtype": dtype,
        **dims,
        "mode": mode,
        "ours_ms": medians["ours"] * 1e3,
        "torch_ms": medians[best] * 1e3,
        "backend": best,
        "ratio": ratio,
        "low": low,
        "high": high,
        "ours_terabytes": moved / medians["ours"] / 1e12,
        "torch_terabytes": moved / medians[best] / 1e12,
        **served(kernel),
        "samples": {name: times for name, times in samples.items() if name in ("ours", best)},
    }
    print(
        f"{dtype:8s} B={b:2d} H={h:2d} Hkv={hkv} N={n:7d} D={d:3d} {mode:5s}"
        f" ours {row['ours_ms']:8.4f} ms {row['ours_terabytes']:5.2f} TB/s"
        f"  torch {row['torch_ms']:8.4f} {row['torch_terabytes']:5.2f}"
        f" ({best.split('_')[0].lower()})  ratio {ratio:.3f} ({low:.3f}-{high:.3f})"
        f"  {kernel.variant} [{kernel.config}] {kernel.origin}",
        flush=True,
    )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", nargs="+", default=["bfloat16", "float64"])
    parser.add_argument(
        "--tune", metavar="TIME", help="tune first, so long, what no policy answers exactly"
    )
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--study", action="store_true", help="one head alone, on a cold cache")
    parser.add_argument("--name", default="decode_gpu")
    options = parser.parse_args()
    clock, rows = Clock(), []
    for dtype in options.dtype:
        width = getattr(torch, dtype).itemsize
        for b, h, hkv, d in HEADS[:1] if options.study else HEADS:
            for n in options.lengths:
                moved = 2 * b * hkv * n * d * width
                if moved > MOST_BYTES:
                    continue
                dims = {"B": b, "H": h, "Hkv": hkv, "N": n, "D": d}
                graphs = moved < SMALL_BYTES and not options.study
                for mode in ("cold", "graph") if graphs else ("cold",):
                    rows.append(compare(clock, dtype, dims, mode, options))
                    torch.cuda.empty_cache()
                    keep(options.name, rows)


if __name__ == "__main__":
    main()
