"""Tuned decode on this CPU beside PyTorch and the measured read bandwidth, in one run.

    python benchmarks/decode_cpu.py [--budget 20s]

Needs torch (the benchmark only). float32, one head, D=64. Tuned for a cold cache: a read of 1 GiB
comes between any two samples, and what a call finds in the caches is little of a long cache of keys
and values, for both sides alike. The read bandwidth is that of a sum over 1 GiB with the best of
several thread counts and prefetch distances, taken in turn with the two; a share above 1 says that
part of the keys and values stayed in the last-level cache.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numba
import numpy as np
import torch
from common import interleaved, median_interval, ratio_interval, write

import autotune
from autotune import dispatch, tune
from autotune.device import local_cpu
from autotune_variants.simd import add, load, prefetch, splat, total

D = 64
READ_BYTES = 1 << 30


@numba.njit(parallel=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def read_all(x: Any, workers: int, ahead: int, sums: Any) -> None:
    """Sum of a flat array, each worker a contiguous part: what reading at full speed takes.

    Four vectors of 64 bytes at a time, prefetched `ahead` elements before their turn (0: not).
    """
    part = x.size // workers // 64 * 64
    for w in numba.prange(workers):
        row = x[w * part : (w + 1) * part]
        a = splat(np.float32(0.0))
        b, c, d = a, a, a
        for i in range(0, part, 64):
            if ahead:
                for line in range(0, 64, 16):
                    prefetch(row, i + line + ahead)
            a, b = add(a, load(row, i)), add(b, load(row, i + 16))
            c, d = add(c, load(row, i + 32)), add(d, load(row, i + 48))
        sums[w] = total(add(add(a, b), add(c, d)))


def fastest_read() -> tuple[float, Callable[[], None]]:
    """Best bytes per second over thread counts and prefetch distances, from 1 GiB, and how."""
    x = np.ones(READ_BYTES // 4, np.float32)
    best, how = 0.0, partial(read_all, x, 1, 0, np.empty(1))
    for threads in local_cpu().thread_counts():
        numba.set_num_threads(threads)
        sums = np.empty(threads)
        for ahead in (0, 512, 2048, 8192):
            read = partial(read_all, x, threads, ahead, sums)
            samples = interleaved({"read": read}, rounds=7, warmups=1)
            assert sums.sum() >= x.size - 64 * threads
            rate = x.nbytes / median_interval(samples["read"])[0]
            if rate > best:
                best, how = rate, partial(with_threads, threads, read)
    numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)
    return best, how


def with_threads(threads: int, read: Callable[[], None]) -> None:
    """Call with so many of numba's threads."""
    numba.set_num_threads(threads)
    read()


def compare(n: int, read: Callable[[], None], options: argparse.Namespace) -> dict[str, Any]:
    """Tune one cache length and time both sides, with the read of 1 GiB in turn."""
    dims = {"B": 1, "H": 1, "N": n, "D": D}
    given: dict[str, Any] = {"dims": dims, "mode": options.mode, "device": "cpu"}
    tune(autotune.decode, budget=options.budget, **given)
    kernel = dispatch(autotune.decode, strict=True, **given)
    rng = np.random.default_rng(0)
    q = rng.standard_normal((1, 1, D)).astype(np.float32)
    k, v = (rng.standard_normal((1, 1, n, D)).astype(np.float32) for _ in range(2))
    tq, tk, tv = torch.from_numpy(q).reshape(1, 1, 1, D), torch.from_numpy(k), torch.from_numpy(v)
    sdpa = torch.nn.functional.scaled_dot_product_attention

    def theirs() -> Any:
        with torch.no_grad():
            return sdpa(tq, tk, tv)

    samples = interleaved(
        {"ours": lambda: kernel(q, k, v), "torch": theirs, "read": read},
        rounds=301,
        settle=0.04,
        seconds=options.seconds,
    )
    ours = median_interval(samples["ours"])[0]
    ratio, low, high = ratio_interval(samples["ours"], samples["torch"])
    moved = (k.nbytes + v.nbytes) / READ_BYTES
    over, low_share, high_share = ratio_interval(samples["read"], samples["ours"])
    row = {
        "n": n,
        "ours_ms": ours * 1e3,
        "torch_ms": median_interval(samples["torch"])[0] * 1e3,
        "ratio": ratio,
        "ratio_low": low,
        "ratio_high": high,
        "bandwidth_share": moved * over,
        "share_low": moved * low_share,
        "share_high": moved * high_share,
        "mode": options.mode,
        "variant": kernel.variant,
        "config": dict(kernel.config),
    }
    print(
        f"n={n:8d}  ours {row['ours_ms']:8.4f}  torch {row['torch_ms']:8.4f} ms  ratio {ratio:.2f}"
        f" ({low:.2f}-{high:.2f})  {100 * row['bandwidth_share']:.0f}% of read bandwidth"
        f"  {kernel.variant} [{kernel.config}]",
        flush=True,
    )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", default="20s")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--mode", default="cold")
    parser.add_argument("--lengths", type=int, nargs="+", default=[1 << p for p in range(10, 21)])
    parser.add_argument("--name", default="decode_cpu")
    options = parser.parse_args()
    bandwidth, read = fastest_read()
    print(f"read bandwidth {bandwidth / 1e9:.1f} GB/s")
    rows = []
    for n in options.lengths:
        rows.append(compare(n, read, options))
        write(options.name, rows, packages=("torch",), read_bandwidth=bandwidth)


if __name__ == "__main__":
    main()
