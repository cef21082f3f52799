"""What may be varied about a build: the compiler, how it optimises, and for which processor."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from autotune.model import Choice
from autotune.model.problem import Value
from autotune.model.tunable import Machine, Tunable
from autotune.native.compilers import COMPILERS, Language, found_for

FAST_MATH = ("-ffast-math", "-fno-finite-math-only")
"""Sums in any order, divisions by reciprocals; infinities stay, since masks are made of them."""


@dataclass(frozen=True, slots=True)
class CompilerChoice:
    """One of a language's compilers that are on this machine."""

    language: Language
    name: str = "compiler"
    ordered: bool = field(default=False, init=False)

    def values(self, machine: Machine) -> tuple[Value, ...]:
        return found_for(self.language) or COMPILERS[self.language][:1]

    def start(self, machine: Machine) -> Value:
        return self.values(machine)[0]


def build_tunables(language: Language) -> tuple[Tunable, ...]:
    """The tunables of every variant in C or Fortran: compiler, optimize, native, fast_math.

    `native` builds for this processor and no other; `fast_math` is off unless the search finds
    that it is both faster and right.
    """
    return (
        CompilerChoice(language),
        Choice("optimize", ("O2", "O3"), "O3", ordered=True),
        Choice("native", (False, True), True),
        Choice("fast_math", (False, True), False),
    )


def options_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The compiler's options for a config; a tunable that it lacks is at its default."""
    options = [f"-{config.get('optimize', 'O3')}"]
    if config.get("native", True):
        options.append("-march=native")
    if config.get("fast_math", False):
        options += FAST_MATH
    return tuple(options)


@cache
def processor() -> str:
    """What `-march=native` depends on: the processor and all its instruction sets, as a text."""
    from autotune.device.cpuinfo import read_processors

    keys = ("vendor_id", "cpu family", "model", "cpu implementer", "cpu part", "flags", "features")
    first = next(iter(read_processors(Path("/"))), {})
    said = [first[key] for key in keys if key in first]
    return "\0".join([platform.machine(), *(said or [platform.processor()])])
