"""Device time beside PyTorch: runs interleaved by events on a cold L2, or replayed as graphs.

And the results file of what was measured so, with the GPU that it was."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import torch
from common import gpu_facts, write

FLUSH_BYTES = 256 << 20
PER_GRAPH = 10
Run = Callable[[], Any]


class Clock:
    """Times runs by events, interleaved, each on a cold L2."""

    def __init__(self) -> None:
        self._flush = torch.empty(FLUSH_BYTES // 4, device="cuda", dtype=torch.float32)

    def sample(self, run: Run, flushes: int = 1) -> float:
        """Seconds of one run.

        A flush takes some 64 us of the device, which hides as much of what launching takes; with
        several the sample is device time alone.
        """
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(flushes):
            self._flush.fill_(1.0)
        first.record()
        run()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) * 1e-3

    def interleaved(
        self, runs: Mapping[str, Run], rounds: int, flushes: int = 1
    ) -> dict[str, list[float]]:
        """Samples of every run, round by round in random order."""
        for run in runs.values():
            for _ in range(3):
                run()
        torch.cuda.synchronize()
        samples: dict[str, list[float]] = {name: [] for name in runs}
        names, shuffle = list(runs), random.Random(0)
        for _ in range(rounds):
            shuffle.shuffle(names)
            for name in names:
                samples[name].append(self.sample(runs[name], flushes))
        return samples


def captured(run: Run) -> Run:
    """Ten runs as one CUDA graph; calling it replays them."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(PER_GRAPH):
            run()
    return graph.replay


def keep(name: str, rows: list[dict[str, Any]]) -> None:
    """Write the rows so far."""
    packages = ("torch", "cupy")
    write(name, rows, packages=packages, **gpu_facts(), torch_cuda=torch.version.cuda)
