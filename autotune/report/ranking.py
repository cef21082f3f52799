"""`autotune show OP --shape ... --explain`: everything about one problem."""

from __future__ import annotations

from decimal import ROUND_CEILING, Context
from typing import Any

from autotune import units
from autotune.asking import Wish
from autotune.device import Device
from autotune.errors import AutotuneError
from autotune.explain import near_text, nothing_to_measure
from autotune.model.problem import Config, Problem
from autotune.report.blocks import Block, Facts, Heading, Table, Verbatim
from autotune.report.entries import Entry
from autotune.report.policies import loss_line
from autotune.serving import Served, Server
from autotune.spelling import candidate_text, short_problem, tune_command
from autotune_policies import Choice, Constraints, Policy, Request, nearest


def explain_blocks(
    problem: Problem, device: Device, *, mode: str, entry: Entry | None, server: Server
) -> list[Block]:
    """What is served and why, the ranking, answers under constraints, the nearest entries."""
    served = server.serve(problem, device, Wish(mode=mode))
    blocks: list[Block] = [Heading(f"{short_problem(problem)}  {mode} cache"), ""]
    lines = served.explanation.splitlines()[1:]
    blocks += [line for line in lines if not line.startswith("measure it:")]
    policy = entry.policy if entry else None
    if policy is not None:
        blocks += _ranking(policy)
    if entry is not None and entry.compile_seconds:
        took = units.duration(entry.compile_seconds)
        blocks += ["", f"compiling the winner took {took}, which is in none of these times"]
    if entry is not None and entry.losses:
        blocks += ["", Heading("not in the ranking")]
        blocks += [f"  {loss_line(loss)}" for loss in entry.losses]
    blocks += [
        "",
        Heading("under constraints"),
        *_constrained(problem, device, mode, policy, server),
    ]
    if policy is None:
        blocks += _untuned(problem, device, mode, server)
    return blocks


def explain_document(
    problem: Problem, device: Device, *, mode: str, server: Server
) -> dict[str, Any]:
    """The same as plain values."""
    served = server.serve(problem, device, Wish(mode=mode))
    return {
        "served": _served_document(served),
        "constrained": {
            name: _attempt(problem, device, Wish(wanted, mode), server)
            for name, wanted in _wishes(None).items()
        },
        "nearest": [
            {"problem": near.policy.problem, "device": near.policy.device, "differs": near.differs}
            for near in nearest(server.snapshot, _request(problem, device, mode))
            if near.differs
        ],
        "tune": tune_command(problem, mode=mode),
    }


def _served_document(served: Served) -> dict[str, Any]:
    return {
        "variant": served.variant,
        "config": dict(served.config),
        "origin": served.origin,
        "explanation": served.explanation,
    }


def _attempt(problem: Problem, device: Device, wish: Wish, server: Server) -> dict[str, Any]:
    try:
        return _served_document(server.serve(problem, device, wish))
    except AutotuneError as error:
        return {"refused": str(error)}


def _ranking(policy: Policy) -> list[Block]:
    """The ranked choices, then the best of every other variant that was measured."""
    choices = policy.choices
    numbers = [str(n) if n <= len(policy.ranking) else "-" for n in range(1, len(choices) + 1)]
    rows = tuple(_choice_row(n, c) for n, c in zip(numbers, choices, strict=True))
    titles = ("#", "variant", ">time", "95% interval", ">workspace", ">error", "repeats")
    configs = tuple(
        (f"{n} {c.variant}", str(Config(dict(c.config))))
        for n, c in zip(numbers, choices, strict=True)
        if c.config
    )
    blocks: list[Block] = ["", Heading("ranking"), Table(titles, rows)]
    if len(choices) > len(policy.ranking):
        blocks.append("  - : measured, and beaten in every respect by one above")
    blocks += ["", Heading("configs"), Facts(configs)] if configs else []
    return blocks


def _choice_row(number: str, choice: Choice) -> tuple[str, ...]:
    interval = f"{units.seconds(choice.low)} to {units.seconds(choice.high)}"
    if not choice.covers:
        interval = f"- ({units.number(choice.samples, 'sample')})"
    return (
        number,
        choice.variant,
        units.seconds(choice.seconds),
        interval,
        units.size(choice.workspace_bytes),
        f"{_rounded_up(choice.error, 2):.1e}",
        "equal" if choice.deterministic else "differ",
    )


def _wishes(policy: Policy | None) -> dict[str, Constraints]:
    """Constraints worth asking about: bitwise repeats, no workspace, the least error measured."""
    wishes = {
        "deterministic=True": Constraints(deterministic=True),
        "max_workspace=0": Constraints(max_workspace=0),
    }
    if policy is not None:
        least = _rounded_up(min(choice.error for choice in policy.choices), 3)
        wishes[f"max_error={least:.3g}"] = Constraints(max_error=least)
    return wishes


def _rounded_up(error: float, digits: int) -> float:
    """An error with so many digits that it is not above: what is read here can be asked for."""
    context = Context(prec=digits, rounding=ROUND_CEILING)
    return float(context.create_decimal_from_float(error))


def _constrained(
    problem: Problem, device: Device, mode: str, policy: Policy | None, server: Server
) -> list[Block]:
    rows = []
    for name, wanted in _wishes(policy).items():
        got = _attempt(problem, device, Wish(wanted, mode), server)
        if "refused" in got:
            rows.append((name, f"refused: {got['refused']}"))
        else:
            rows.append(
                (name, f"{candidate_text(got['variant'], got['config'])} ({got['origin']})")
            )
    return [Facts(tuple(rows))]


def _untuned(problem: Problem, device: Device, mode: str, server: Server) -> list[Block]:
    found = nearest(server.snapshot, _request(problem, device, mode))
    blocks: list[Block] = ["", Heading("nearest entries")]
    blocks += [f"  {near_text(near)}" for near in found] or ["  none of this operation"]
    nothing = nothing_to_measure(problem, device)
    if nothing is not None:
        return [*blocks, "", nothing]
    return [
        *blocks,
        "",
        Heading("to measure it"),
        Verbatim(f"  {tune_command(problem, mode=mode)}"),
    ]


def _request(problem: Problem, device: Device, mode: str) -> Request:
    axes = problem.operation.varying
    return Request(problem.key, device.identity, device.family, mode, axes)
