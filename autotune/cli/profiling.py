"""What `autotune profile` does: choose a candidate, count, keep, and show beside the prediction."""

from __future__ import annotations

from autotune.candidates import candidate_of_variant, served_candidate
from autotune.cli.answer import Answer, say
from autotune.device import Device
from autotune.fingerprint import fingerprint, toolchain
from autotune.lock import device_lock
from autotune.model import Candidate, Problem
from autotune.model.traits import predict
from autotune.plugins import plugin_files
from autotune.profile import Profile, needs_counters, profile
from autotune.registry import registry
from autotune.report.profile import profile_blocks, profile_document
from autotune.store import device_row, open_tuning_db
from autotune_tuning_db import TrialRow, utc_now


def run(problem: Problem, device: Device, name: str | None) -> Answer:
    """Count one call of a candidate; the variant's best known config, or its default."""
    needs_counters(device)
    candidate = (
        served_candidate(problem, device)
        if name is None
        else candidate_of_variant(problem, device, name)
    )
    with device_lock(device.lock_name, waiting=say):
        found = profile(problem, candidate, device, plugin_files=plugin_files())
    _keep(problem, device, candidate, found)
    variant = registry.variant(problem.operation, candidate.variant)
    prediction = predict(variant, problem, candidate.config)
    return Answer(
        profile_blocks(problem, candidate, found, prediction),
        profile_document(problem, candidate, found, prediction),
    )


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
