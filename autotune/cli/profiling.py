"""What `autotune profile` does: choose a candidate, count, keep, and show beside the prediction."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.asking import Wish
from autotune.cli.answer import Answer
from autotune.device import Device
from autotune.errors import UserError
from autotune.fingerprint import fingerprint, toolchain
from autotune.model import Candidate, Config, Problem, Variant
from autotune.model.space import default_config, inadmissible, why_not
from autotune.model.traits import predict
from autotune.profile import Profile, profile
from autotune.registry import registry
from autotune.report.profile import profile_blocks, profile_document
from autotune.serving import server
from autotune.settings import settings
from autotune.store import device_row, open_tuning_db
from autotune_tuning_db import TrialRow, utc_now


def run(
    problem: Problem, device: Device, name: str | None, *, plugin_files: Sequence[str] = ()
) -> Answer:
    """Count one call of a candidate; the variant's best known config, or its default."""
    candidate = _chosen(problem, device, name)
    found = profile(problem, candidate, device, plugin_files=plugin_files)
    _keep(problem, device, candidate, found)
    variant = registry.variant(problem.operation, candidate.variant)
    prediction = predict(variant, problem, candidate.config)
    return Answer(
        profile_blocks(problem, candidate, found, prediction),
        profile_document(problem, candidate, found, prediction),
    )


def _chosen(problem: Problem, device: Device, name: str | None) -> Candidate:
    if name is None:
        served = server().serve(problem, device, Wish())
        return Candidate(served.variant, served.config)
    variant = registry.variant(problem.operation, name)
    reason = why_not(variant, problem, device.kind, device.limits)
    config = None if reason else default_config(variant, problem, device)
    if config is None:
        why = reason or "no config satisfies its constraints"
        raise UserError(f"{name} cannot run {problem} on {device.label}: {why}.")
    return Candidate(name, _fastest_measured(problem, device, variant) or config)


def _fastest_measured(problem: Problem, device: Device, variant: Variant) -> Config | None:
    """The variant's fastest config among those measured here that can still be run, or None."""
    if not settings().database.exists():
        return None
    with open_tuning_db(readonly=True) as store:
        rows = [
            row
            for row in store.trials(problem.key, device.identity)
            if row.variant == variant.name
            and row.median is not None
            and row.stage != "profile"
            and inadmissible(variant, problem, row.config, device) is None
        ]
    best = min(rows, key=lambda row: row.median or math.inf, default=None)
    return Config(dict(best.config)) if best is not None else None


def _keep(problem: Problem, device: Device, candidate: Candidate, found: Profile) -> None:
    """A row of stage "profile"; its time is the profiler's and serves no policy."""
    variant = registry.variant(problem.operation, candidate.variant)
    with open_tuning_db() as store:
        store.add_device(device_row(device))
        campaign = store.start_campaign(device.identity, {"command": "profile"})
        store.add_trial(
            TrialRow(
                campaign=campaign,
                problem=problem.key,
                device=device.identity,
                mode="cold",
                stage="profile",
                variant=candidate.variant,
                fingerprint=fingerprint(variant),
                config=dict(candidate.config),
                status="ok",
                started=utc_now(),
                samples=(found.seconds,),
                median=found.seconds,
                low=found.seconds,
                high=found.seconds,
                toolchain=toolchain(device.kind),
                circumstances={"counters": found.document()},
            )
        )
        store.end_campaign(campaign)
