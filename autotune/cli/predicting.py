"""What `autotune predict` does: ceilings, the config of every variant, and what was measured."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from autotune.candidates import runnable_config
from autotune.cli.answer import Answer, say
from autotune.cli.assumed import ASSUMED_GPU
from autotune.device import Device
from autotune.errors import UserError
from autotune.estimate import estimate_passes
from autotune.fingerprint import fingerprint
from autotune.model import Config, Problem, Variant
from autotune.model.space import inadmissible
from autotune.registry import registry
from autotune.report import prediction as report
from autotune.report.counted import Counted
from autotune.report.prediction import Measured, Predicted
from autotune.roofline import ceilings_of, rates_from
from autotune.settings import settings
from autotune.store import load_snapshot, open_tuning_db
from autotune_tuning_db import TrialRow

MODE = "cold"


def run(problem: Problem, device: Device, name: str | None, *, measure: bool) -> Answer:
    """Predict every variant that can run the problem on the device, or the one that is named."""
    wanted = [registry.variant(problem.operation, name)] if name else None
    candidates, skipped = _candidates(problem, device, wanted)
    if name and name in skipped:
        raise UserError(f"{name} cannot run {problem} on {device.label}: {skipped[name]}.")
    ceilings = ceilings_of(device, measure=measure, say=say)
    rates = rates_from(device, ceilings)
    variants = [variant for variant, _ in candidates]
    times = dict(_measured(problem, device, variants))
    counters = dict(_counted(problem, device, variants))
    found = []
    for variant, default in candidates:
        measured = times.get(variant.name)
        config = measured.config if measured else default
        parts = estimate_passes(variant, problem, config, rates)
        found.append(Predicted(variant, config, parts, measured, counters.get(variant.name)))
    found.sort(key=lambda each: (each.expected_seconds, not each.variant.passes))
    document = report.prediction_document(problem, device, ceilings, found, skipped)
    return Answer(report.prediction_blocks(problem, document, detailed=bool(name)), document)


def is_for_absent_gpu(problem: Problem, device: Device, name: str) -> bool:
    """Whether a variant is for a GPU and the best device that this machine has is none."""
    return device.kind == "cpu" and registry.variant(problem.operation, name).device == "cuda"


def count(problem: Problem, name: str) -> Answer:
    """The counts of a CUDA variant by the limits of an assumed GPU; no times, nor what it needs."""
    variant = replace(registry.variant(problem.operation, name), requires=())
    candidates, skipped = _candidates(problem, ASSUMED_GPU, [variant])
    if name in skipped:
        raise UserError(f"{name} cannot run {problem} on {ASSUMED_GPU.label}: {skipped[name]}.")
    config = candidates[0][1]
    found = Predicted(variant, config, estimate_passes(variant, problem, config), None)
    document = report.prediction_document(problem, ASSUMED_GPU, None, [found], {})
    return Answer(report.prediction_blocks(problem, document, detailed=True), document)


def _candidates(
    problem: Problem, device: Device, wanted: list[Variant] | None
) -> tuple[list[tuple[Variant, Config]], dict[str, str]]:
    """Variants with their default configs, and why others of this kind of device are left out."""
    found: list[tuple[Variant, Config]] = []
    skipped: dict[str, str] = {}
    for variant in wanted or registry.variants(problem.operation):
        if variant.device != device.kind and wanted is None:
            continue
        config, reason = runnable_config(variant, problem, device)
        if config is None:
            skipped[variant.name] = reason
        else:
            found.append((variant, config))
    return found, skipped


def _measured(
    problem: Problem, device: Device, variants: list[Variant]
) -> Iterator[tuple[str, Measured]]:
    """The best time of every variant as it is now: from the policy, or else from trials."""
    known = _times(problem, device)
    for variant in variants:
        options = [
            each
            for each, made_of in known.get(variant.name, [])
            if made_of == fingerprint(variant)
            and inadmissible(variant, problem, each.config, device) is None
        ]
        if options:
            yield variant.name, min(options, key=lambda each: each.seconds)


def _times(problem: Problem, device: Device) -> dict[str, list[tuple[Measured, str]]]:
    """By variant: times with the fingerprint of what was measured."""
    found: dict[str, list[tuple[Measured, str]]] = {}
    snapshot, _ = load_snapshot()
    policy = snapshot.find(problem.key, device.identity, MODE)
    for choice in policy.variants if policy else ():
        config = Config(dict(choice.config))
        time = Measured(config, choice.seconds, choice.low, choice.high, "policy")
        found.setdefault(choice.variant, []).append((time, choice.fingerprint))
    raced = set(found)
    for row in _trials(problem, device):
        if row.status == "ok" and row.stage != "profile" and row.variant not in raced:
            config = Config(dict(row.config))
            low, high = row.low or math.nan, row.high or math.nan
            time = Measured(config, float(row.median or math.nan), low, high, "trial")
            found.setdefault(row.variant, []).append((time, row.fingerprint))
    return found


def _counted(
    problem: Problem, device: Device, variants: list[Variant]
) -> Iterator[tuple[str, Counted]]:
    """The latest counters of every variant as it is now."""
    known = {variant.name: variant for variant in variants}
    for row in _trials(problem, device):
        counters = row.circumstances.get("counters") if row.stage == "profile" else None
        variant = known.get(row.variant)
        if counters and variant is not None and row.fingerprint == fingerprint(variant):
            yield row.variant, Counted.of(Config(dict(row.config)), counters)


def _trials(problem: Problem, device: Device) -> list[TrialRow]:
    """Every trial of the problem on the device, oldest first."""
    if not settings().database.exists():
        return []
    with open_tuning_db(readonly=True) as store:
        return store.trials(problem.key, device.identity, mode=MODE)
