"""`autotune accept`: the three verdicts as a table, a document, and JUnit's XML."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from autotune.accept.memory import ratio_text
from autotune.accept.subjects import Skipped
from autotune.accept.verdict import BITS, TESTS, Acceptance, Check, exit_code, unjudged
from autotune.model import Problem
from autotune.report.blocks import Block, Facts, Heading, Table
from autotune.report.document import problem_document
from autotune.spelling import short_problem

_NOTHING = "nothing of it could be judged here"

_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def acceptance_blocks(found: Sequence[Acceptance], skipped: Sequence[Skipped] = ()) -> list[Block]:
    """A table for each problem, reasons, and the exit code.

    Every verdict that is no pass has its reason, and so has one on a baseline that differs.
    """
    blocks: list[Block] = []
    for problem in _problems(found, skipped):
        mine = [each for each in found if each.problem == problem]
        blocks.append(Heading(short_problem(problem)))
        blocks += [_table(mine), *_reasons(mine)] if mine else [f"  {_NOTHING}."]
        blocks += [
            f"  {each.variant} is not judged: {each.reason}."
            for each in skipped
            if each.problem == problem
        ]
        blocks.append("")
    return [*blocks, _outcome(exit_code(found, skipped))]


def acceptance_document(
    found: Sequence[Acceptance], skipped: Sequence[Skipped], circumstances: Mapping[str, Any]
) -> dict[str, Any]:
    """Everything as plain values; `circumstances` are device, mode, baseline and so on."""
    return {
        **circumstances,
        "exit_code": exit_code(found, skipped),
        "results": [
            {
                "problem": problem_document(each.problem.key),
                "variant": each.candidate.variant,
                "config": dict(each.candidate.config),
                "fingerprint": each.version,
                **{
                    name: {"verdict": check.status, "reason": check.reason, **check.facts}
                    for name, check in each.checks.items()
                },
            }
            for each in found
        ],
        "skipped": [
            {
                "problem": problem_document(each.problem.key),
                "variant": each.variant,
                "reason": each.reason,
            }
            for each in skipped
        ],
    }


def junit(
    found: Sequence[Acceptance], skipped: Sequence[Skipped], circumstances: Mapping[str, Any]
) -> str:
    """A test suite for each problem, a test case for each test of each candidate.

    A failed test is a failure, an open question an error, and what was not asked is skipped. A
    problem of which nothing could be judged is an open question too, with a case of its own.
    """
    open_problems = unjudged(found, skipped)
    root = ElementTree.Element("testsuites", name="autotune accept")
    for problem in _problems(found, skipped):
        cases = [
            _case(problem, each.candidate.variant, name, check)
            for each in found
            if each.problem == problem
            for name, check in each.checks.items()
        ]
        cases += [
            _case(problem, each.variant, name, Check("not asked", each.reason))
            for each in skipped
            if each.problem == problem
            for name in TESTS
        ]
        if problem in open_problems:
            cases.append(_case(problem, "", "judged", Check("not measured", _NOTHING)))
        suite = ElementTree.SubElement(root, "testsuite", name=short_problem(problem))
        suite.attrib.update(_counts(cases))
        properties = ElementTree.SubElement(suite, "properties")
        for name, value in circumstances.items():
            ElementTree.SubElement(properties, "property", name=name, value=_text(value or ""))
        suite.extend(cases)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _problems(found: Sequence[Acceptance], skipped: Sequence[Skipped]) -> list[Problem]:
    """Every problem, once."""
    judged = [each.problem for each in found]
    return list(dict.fromkeys([*judged, *(each.problem for each in skipped)]))


def _table(found: Sequence[Acceptance]) -> Table:
    titles = ("variant", "correctness", "memory", ">bytes", "performance", ">time")
    rows = [
        (
            each.candidate.variant,
            each.correctness.status,
            each.memory.status,
            ratio_text(each.memory.facts),
            each.performance.status,
            f"{each.performance.facts['ratio']:.3g}" if "ratio" in each.performance.facts else "-",
        )
        for each in found
    ]
    return Table(titles, tuple(rows))


def _reasons(found: Sequence[Acceptance]) -> list[Block]:
    rows = [
        (f"{each.candidate.variant} {name}", f"{check.status}: {check.reason}")
        for each in found
        for name, check in each.checks.items()
        if check.status not in ("pass", "not asked") or check.facts.get("note")
    ]
    return [Facts(tuple(rows), indent=2)] if rows else []


def _outcome(code: int) -> str:
    names = [f"{name} ({bit})" for name, bit in BITS.items() if code & bit and name != "open"]
    parts = [f"failed: {', '.join(names)}"] if names else []
    parts += [f"questions are open ({BITS['open']})"] if code & BITS["open"] else []
    return f"{'; '.join(parts)}. Exit code {code}." if parts else "everything asked is passed."


def _case(problem: Problem, variant: str, name: str, check: Check) -> ElementTree.Element:
    path = ".".join(filter(None, (problem.operation.name, variant)))
    case = ElementTree.Element("testcase", classname=path, name=name)
    tag = "failure" if check.status == "fail" else "error" if check.open else "skipped"
    if check.status != "pass":
        mark = ElementTree.SubElement(case, tag, message=_text(check.reason))
        if tag != "skipped":
            mark.set("type", check.status)
    elif check.facts.get("note"):
        ElementTree.SubElement(case, "system-out").text = _text(check.reason)
    return case


def _counts(cases: Sequence[ElementTree.Element]) -> dict[str, str]:
    def having(tag: str) -> str:
        return str(sum(case.find(tag) is not None for case in cases))

    return {
        "tests": str(len(cases)),
        "failures": having("failure"),
        "errors": having("error"),
        "skipped": having("skipped"),
    }


def _text(value: Any) -> str:
    """As XML can hold it."""
    return _NOT_XML.sub("?", str(value))
