"""Rates of a quiet machine: taken again while others are at work, and held against each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from autotune.cuda.watch import CardWatch
from autotune.device import CpuDevice, Device
from autotune.disturbance import Watch, disturbances, slept_between

ATTEMPTS, PATIENCE_SECONDS = 3, 10.0
"""A disturbed attempt is repeated, but none is begun so late; the best rates of all count."""

LIGHT = 0.15
"""Of the CPUs' time by other programs: some samples of every rate are free of so much."""

ALIKE = 0.9
"""A rate may fall so far short of one that it cannot be below, by noise alone."""

Take = Callable[[Device], dict[str, float]]


@dataclass(frozen=True, slots=True)
class Taken:
    """The best rates, and why they are not to be trusted; no reasons on a quiet machine."""

    rates: dict[str, float]
    disturbed: tuple[str, ...]


def taken(device: Device, take: Take) -> Taken:
    """What `take` measures of a device, again while the machine is busy or the rates cannot be."""
    rates: dict[str, float] = {}
    reasons: tuple[str, ...] = ()
    started = time.perf_counter()
    for _ in range(ATTEMPTS):
        found, load = _watched(device, take)
        rates = better(rates, found)
        reasons = (*load, *contradictions(rates))
        if not reasons or time.perf_counter() - started > PATIENCE_SECONDS:
            break
    return Taken(rates, reasons)


def better(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """The larger of every rate: what disturbs only ever takes time."""
    return {name: max(one.get(name, 0.0), other.get(name, 0.0)) for name in {**one, **other}}


def contradictions(rates: Mapping[str, float]) -> tuple[str, ...]:
    """What rates of a quiet machine cannot be, in words: half of what a copy moves is read."""
    found = []
    read, copy, alone = (rates.get(name, 0.0) for name in ("read", "copy", "read alone"))
    if read < ALIKE * copy / 2.0:
        found.append("reading was slower than what a copy reads")
    if read < ALIKE * alone:
        found.append("all workers together read slower than one alone")
    return tuple(found)


def _watched(device: Device, take: Take) -> tuple[dict[str, float], tuple[str, ...]]:
    """What is measured, and what others did meanwhile: on the CPUs, or on the card."""
    if isinstance(device, CpuDevice):
        watch = Watch(device.topology.allowed, device.topology.online)
        before = watch.read()
        found = take(device)
        load = watch.load(before, watch.read())
        return found, disturbances((), replace(load, foreign=0.0) if load.foreign < LIGHT else load)
    card = CardWatch(getattr(device, "card", ""))
    try:
        start = card.read()
        found = take(device)
        state = card.read()
        return found, (*state.spoils(), *slept_between(start.asleep, state.asleep))
    finally:
        card.close()
