"""`autotune scale` and `autotune threads`: curves as tables and documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotune import units
from autotune.model import Problem
from autotune.report.blocks import Block, Heading, Table
from autotune.report.document import problem_document
from autotune.scaling import Curve, Point, Setting, Step, Swept, steps
from autotune.spelling import candidate_text, short_problem

_LEGEND = (
    "exponent: of the time over {dim}, from the line above, with its 95% interval; bytes and "
    "flops: of what is predicted. jump: how many times more the time grew than both. first call "
    "and compiling are in no time. ~: disturbed by others. ?: too few samples for 95%."
)


def scale_blocks(
    dim: str, sized: Sequence[tuple[int, Problem]], curves: Sequence[Curve], mode: str
) -> list[Block]:
    """A table for each variant, then the jumps in words."""
    smallest = short_problem(sized[0][1])
    blocks: list[Block] = [
        Heading(f"{smallest} to {dim}={sized[-1][0]}  {mode} cache"),
        "",
    ]
    for curve in curves:
        blocks += [curve.variant, _curve_table(dim, curve)]
        blocks += [f"  not measured at {text}" for text in not_measured(curve)]
        blocks.append("")
    jumps = [
        _jump_text(dim, curve, step)
        for curve in curves
        for step in steps(curve.points)
        if step.jump
    ]
    compared = any(steps(curve.points) for curve in curves)
    none = "no jump." if compared else f"no variant was measured at two neighbouring {dim}."
    return [*blocks, *(jumps or [none]), "", _LEGEND.format(dim=dim)]


def scale_document(
    dim: str, sized: Sequence[tuple[int, Problem]], curves: Sequence[Curve], mode: str
) -> dict[str, Any]:
    """Every point with its samples, every step with its exponents."""
    return {
        "dim": dim,
        "mode": mode,
        "problems": [problem_document(problem.key) for _, problem in sized],
        "variants": [
            {
                "variant": curve.variant,
                "points": [_point_document(point) for point in curve.points],
                "steps": list(steps(curve.points)),
                "left_out": list(curve.left_out),
            }
            for curve in curves
        ],
    }


def threads_blocks(problem: Problem, swept: Swept, mode: str) -> list[Block]:
    """A table over settings, the best one, and what all threads cost."""
    rows = tuple(_setting_row(swept, setting, point) for setting, point in swept.points)
    titles = (">threads", "placement", ">time", "interval", ">over best", "")
    blocks: list[Block] = [
        Heading(f"{short_problem(problem)}  {mode} cache"),
        candidate_text(swept.variant, _others(swept)),
        Table(titles, rows),
    ]
    blocks += [
        f"  {setting_text(setting)}: {point.status}, {point.reason}"
        for setting, point in swept.points
        if not point.samples
    ]
    blocks += [f"  {setting_text(setting)}: left out, {why}" for setting, why in swept.left_out]
    return [*blocks, "", *_conclusion(swept), *_marks(rows)]


def threads_document(problem: Problem, swept: Swept, mode: str) -> dict[str, Any]:
    """Every setting with its time and penalty."""
    best = swept.best
    return {
        "problem": problem_document(problem.key),
        "mode": mode,
        "variant": swept.variant,
        "config": _others(swept),
        "settings": [
            {
                "threads": setting.threads,
                "placement": setting.placement,
                "over_best": swept.penalty(setting),
                **_point_document(point),
            }
            for setting, point in swept.points
        ],
        "best": best[0] if best else None,
        "all_threads_over_best": {
            setting.placement: swept.penalty(setting) for setting in _all_threads(swept)
        },
        "left_out": [{"setting": setting, "reason": why} for setting, why in swept.left_out],
    }


def _marks(rows: Sequence[Sequence[str]]) -> list[str]:
    """What the marks in a table stand for, of those that it has."""
    known = {"~": "disturbed by others", "?": "too few samples for 95%"}
    cells = [cell for row in rows for cell in row]
    found = [f"{m}: {text}." for m, text in known.items() if any(c.endswith(m) for c in cells)]
    return ["", " ".join(found)] if found else []


def _curve_table(dim: str, curve: Curve) -> Table:
    after = {step.after: step for step in steps(curve.points)}
    rows = []
    for point in curve.points:
        step = after.get(point.size)
        rows.append(
            (
                str(point.size),
                _time(point),
                _exponent(step) if step else "-",
                _number(step.bytes_exponent) if step else "-",
                _number(step.flops_exponent) if step else "-",
                units.seconds(point.first_call),
                units.seconds(point.compiling),
                f"{step.jump:.1f}x{_mark(step)}" if step and step.jump else "",
            )
        )
    times = (">time", ">exponent", ">bytes", ">flops", ">first call", ">compiling", ">jump")
    return Table((f">{dim}", *times), tuple(rows))


def _mark(step: Step) -> str:
    return "~" if step.disturbed else ""


def _exponent(step: Step) -> str:
    mark = "" if step.covers else "?"
    return f"{step.exponent:.2f} ({step.low:.2f} to {step.high:.2f}){mark}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _time(point: Point) -> str:
    interval = point.interval
    if interval is None:
        return point.status
    return units.seconds(interval.median) + ("~" if point.status == "disturbed" else "")


def not_measured(curve: Curve) -> list[str]:
    """The sizes without a time, each with the reason."""
    failed = [f"{p.size}: {p.status}, {p.reason}" for p in curve.points if not p.samples]
    return [*failed, *curve.left_out]


def _jump_text(dim: str, curve: Curve, step: Step) -> str:
    doubt = " A time of it was disturbed: measure again when the machine is quiet."
    return (
        f"jump{_mark(step)}: {curve.variant} takes {step.growth:.1f}x as long from "
        f"{dim}={step.before} to {step.after}, {step.jump:.1f}x more than its bytes and flops grow."
        f"{doubt if step.disturbed else ''}"
    )


def _point_document(point: Point) -> dict[str, Any]:
    interval = point.interval
    return {
        "size": point.size,
        "config": dict(point.config),
        "status": point.status,
        "reason": point.reason,
        "seconds": interval.median if interval else None,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "coverage": interval.coverage if interval else None,
        "samples": list(point.samples),
        "first_call_seconds": point.first_call,
        "compile_seconds": point.compiling,
        "predicted_bytes": point.prediction.bytes_moved,
        "predicted_flops": point.prediction.flops,
    }


def _setting_row(swept: Swept, setting: Setting, point: Point) -> tuple[str, ...]:
    interval, penalty = point.interval, swept.penalty(setting)
    between = ""
    if interval is not None:
        between = f"{units.seconds(interval.low)} to {units.seconds(interval.high)}"
        between += "" if interval.covers else "?"
    return (
        str(setting.threads),
        setting.placement or "-",
        _time(point),
        between,
        "-" if penalty is None else f"{penalty:.3g}x",
        _note(swept, setting, point),
    )


def _note(swept: Swept, setting: Setting, point: Point) -> str:
    """That it is the best, and what else of the config had to change."""
    best = swept.best is not None and swept.best[0] == setting
    others = _others(swept)
    changed = [f"{n}={point.config[n]}" for n, v in others.items() if point.config[n] != v]
    return " ".join((*(["best"] if best else []), *changed))


def _others(swept: Swept) -> dict[str, Any]:
    """The config without what is swept."""
    return {n: v for n, v in swept.config.items() if n not in ("threads", "placement")}


def _all_threads(swept: Swept) -> list[Setting]:
    """The settings with the most threads that were tried, whether or not they ran."""
    tried = [setting for setting, _ in swept.points]
    most = max((setting.threads for setting in tried), default=0)
    return [setting for setting in tried if setting.threads == most]


def _conclusion(swept: Swept) -> list[str]:
    best = swept.best
    if best is None:
        return ["no setting could be measured."]
    costs = [(s.placement or "as it is", swept.penalty(s)) for s in _all_threads(swept)]
    parts = [f"{place} " + ("no time" if c is None else f"{c:.3g}x") for place, c in costs]
    most = _all_threads(swept)[0].threads
    return [
        f"best: {setting_text(best[0])}, {_time(best[1])}.",
        f"all {units.number(most, 'thread')} over the best: {', '.join(parts)}.",
    ]


def setting_text(setting: Setting) -> str:
    """A thread count and where it is placed: 2 threads placed compact."""
    placed = f" placed {setting.placement}" if setting.placement else ""
    return units.number(setting.threads, "thread") + placed
