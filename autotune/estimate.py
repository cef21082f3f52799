"""A rough time from a prediction, to order candidates that nobody has measured yet.

Work and depth (Brent 1974): a pass takes as long as its most used resource needs for the work, or
as its longest chain of steps needs one after the other. The roofline (Williams, Waterman, Patterson
2009) is what is left when every worker that the device has is busy and no step waits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from autotune.errors import DeclarationError
from autotune.model.problem import Problem
from autotune.model.traits import PassPrediction, predict
from autotune.model.variant import Unit, Variant
from autotune.rates import Rates, nominal_rates


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds that each resource needs for a pass, or for all passes of a candidate.

    `depth` is the longest chain of steps. `roofline` is the larger of traffic and arithmetic with
    the whole device at work; a candidate is faster only if caches deliver what it declares to read.
    """

    roofline: float
    memory: float
    cache: float
    arithmetic: float
    depth: float
    atomics: float
    launches: float
    seconds: float

    @property
    def limit(self) -> str:
        """What takes longest: memory, cache, arithmetic, depth, atomics or launches."""
        names = ("memory", "cache", "arithmetic", "depth", "atomics", "launches")
        return max(names, key=lambda name: float(getattr(self, name)))


def estimate_seconds(
    variant: Variant, problem: Problem, config: Mapping[str, Any], rates: Rates | None = None
) -> float:
    """The estimated time of a candidate in seconds, by these rates or by nominal ones.

    Infinite where its declaration gives no numbers.
    """
    try:
        return estimate(variant, problem, config, rates).seconds
    except DeclarationError:
        return math.inf


def estimate(
    variant: Variant, problem: Problem, config: Mapping[str, Any], rates: Rates | None = None
) -> Estimate:
    """What all passes of a candidate need, one after the other."""
    parts = [part for _, part in estimate_passes(variant, problem, config, rates)]
    return Estimate(*(sum(getattr(part, name.name) for part in parts) for name in fields(Estimate)))


def estimate_passes(
    variant: Variant, problem: Problem, config: Mapping[str, Any], rates: Rates | None = None
) -> tuple[tuple[PassPrediction, Estimate], ...]:
    """Every pass of a candidate with what it needs, in order."""
    rates = rates or nominal_rates(variant.device)
    threads = max(int(config.get("threads", 1)), 1)
    at_work = threads if variant.device == "cpu" else rates.workers
    unit, regions = variant.arithmetic, 2 if threads > 1 else 1
    best = unit if unit.kind == "matrix" else Unit("vector", unit.dtype, unit.times)
    flops, peak = (rates.flops_of(each, problem.dtype) / unit.times for each in (unit, best))
    return tuple(
        (each, _of_pass(each, rates, at_work, (flops, peak), regions))
        for each in _passes(variant, problem, config)
    )


def _of_pass(
    each: PassPrediction, rates: Rates, at_work: int, flops: tuple[float, float], regions: int
) -> Estimate:
    """One pass, by no more workers than it has; `flops` are a worker's per second, and at best.

    Threads that have to be gathered make a launch twice as long (`regions`).
    """
    expected, peak = flops
    busy = at_work if each.workers is None else min(at_work, max(each.workers, 1))
    waves = math.ceil((each.workers or 0) / (at_work * rates.resident))
    traffic = (each.bytes_read, each.bytes_written)
    roofline = max(
        rates.memory_seconds(*traffic, rates.workers), each.flops / (peak * rates.workers)
    )
    memory = rates.memory_seconds(*traffic, busy)
    cache = each.cache_bytes / (rates.cache * busy)
    arithmetic = each.flops / (expected * busy)
    depth = waves * each.steps * rates.step
    atomics = each.atomics / (rates.atomics * at_work)
    launches = each.launches * rates.launch * regions
    seconds = max(memory, cache, arithmetic, depth, atomics) + launches
    return Estimate(roofline, memory, cache, arithmetic, depth, atomics, launches, seconds)


def _passes(
    variant: Variant, problem: Problem, config: Mapping[str, Any]
) -> tuple[PassPrediction, ...]:
    """The passes as declared; what is not declared is taken from the operation.

    Without traffic: one launch that moves what no arrangement avoids. Without flops: the
    operation's, in the pass that moves most.
    """
    counts = predict(variant, problem, config)
    passes = counts.passes
    if not counts.bytes_moved:
        read, written = problem.compulsory_bytes
        return (_undeclared(read, written, max(counts.launches, 1), counts.flops),)
    if any(each.flops for each in passes):
        return passes
    busiest = max(passes, key=lambda each: each.bytes_read + each.bytes_written)
    return tuple(replace(each, flops=counts.flops) if each is busiest else each for each in passes)


def _undeclared(read: int, written: int, launches: int, flops: int) -> PassPrediction:
    return PassPrediction(
        name="undeclared",
        elements_read=0,
        elements_written=0,
        bytes_read=read,
        bytes_written=written,
        cache_bytes=read,
        atomics=0,
        launches=launches,
        flops=flops,
        workers=None,
        steps=1,
    )
