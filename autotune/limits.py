"""Times that cannot be: what moves the bytes or does the operations of a problem takes longer."""

from __future__ import annotations

from autotune.bench import Bench
from autotune.model import Problem
from autotune.roofline.ceilings import workers_of
from autotune.worker.protocol import Mode

FASTEST_CORE = {8: 5e11, 4: 1e12, 2: 8e12}
FASTEST_MULTIPROCESSOR = {8: 2e12, 4: 1.6e13, 2: 3.2e13}
"""Floating-point operations per second that nothing does, by the bytes of a number.

Several times what data sheets promise at most: a core with two AVX-512 units at 4 GHz does 1.3e11
in float64, and one with AMX 4e12 in bfloat16; a multiprocessor of an H200 does 5e11 in float64 and
7.5e12 in bfloat16, with which float32 products can be pieced together.
"""


def physical_limit(bench: Bench, problem: Problem, mode: Mode) -> float:
    """Seconds that no candidate can beat, from the bytes it has to move and from its operations."""
    moving = bench.physical_limit(sum(problem.compulsory_bytes), mode)
    return max(moving, arithmetic_limit(bench, problem))


def arithmetic_limit(bench: Bench, problem: Problem) -> float:
    """The same from the operations alone; 0 where the operation does not declare any."""
    fastest = FASTEST_MULTIPROCESSOR if bench.device.kind == "cuda" else FASTEST_CORE
    rate = fastest.get(problem.itemsize, max(fastest.values()))
    return problem.flops / (rate * workers_of(bench.device))
