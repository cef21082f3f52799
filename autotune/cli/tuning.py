"""Turns the words of `autotune tune` into a campaign, and its result into an answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.campaign import Campaign, checked_settings
from autotune.cli.answer import Answer, say
from autotune.cli.selection import Words, chosen_problems, example_shape, find_operation
from autotune.device import Device
from autotune.errors import CampaignError, UserError
from autotune.plan import Plan, default_plan, read_plan
from autotune.plugins import plugin_files
from autotune.registry import registry
from autotune.report.campaign import campaign_blocks, campaign_document
from autotune.report.progress import Progress


def planned(device: Device, operation: str | None, words: Words, *, plan: Path | None) -> Plan:
    """The problems that are named: on the command line, in a plan, or by default."""
    if operation is None:
        if words:
            raise UserError("--shape, --dtype and --set need an operation: autotune tune OP ...")
        return read_plan(plan) if plan else default_plan(device)
    if plan is not None:
        raise UserError("name an operation or a plan, not both.")
    target = find_operation(operation)
    if words.shapes:
        return Plan(tuple(chosen_problems(target, words)), {})
    usual = [p for p in registry.proposed_problems(device) if p.operation is target]
    if words or not usual:
        raise UserError(
            f"give the sizes of {target.name}: "
            f"autotune tune {target.name} --shape {example_shape(target)}."
        )
    return Plan(tuple(usual), {})


def run(device: Device, plan: Plan, given: Mapping[str, Any]) -> Answer:
    """Run the campaign; options on the command line win over the plan's settings."""
    settings = checked_settings(**({"budget": "60s", "mode": "cold"} | {**plan.settings, **given}))
    with Progress() as progress:
        campaign = Campaign(plan.problems, device=device, settings=settings, progress=progress)
        try:
            result, code = campaign.run(), 0
        except CampaignError as error:
            if progress.result is None:
                raise
            say(str(error).partition("\n")[0])
            result, code = progress.result, error.exit_code
    return Answer(campaign_blocks(result, plugin_files()), campaign_document(result), code)
