"""What a policy is: the ranked choices for one problem on one device, with their evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from autotune_policies.intervals import CONFIDENCE, order_ranks
from autotune_tuning_db import MODES, PolicyRow, ProblemKey, Scalar
from autotune_tuning_db.rows import read_moment

Kind = Literal["clear", "tie", "undecided", "single"]
Origin = Literal["tuned", "shipped", "imported"]


class PolicyError(ValueError):
    """A policy from outside does not make sense; one sentence says where."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One candidate with what was measured of it; times in seconds, `error` as the gate found it.

    `low` and `high` are the 95% interval of the median `seconds` over `samples` samples. `config`
    is kept sorted by name. `fingerprint` identifies the source that was measured.
    """

    variant: str
    config: tuple[tuple[str, Scalar], ...]
    seconds: float
    low: float
    high: float
    workspace_bytes: int
    error: float
    deterministic: bool
    fingerprint: str
    samples: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "config", tuple(sorted(self.config)))
        if not self.variant:
            raise PolicyError("A choice needs the name of a variant.")
        if not 0 < self.seconds < math.inf:
            raise PolicyError(f"{self.variant} has the impossible time {self.seconds} s.")
        if not 0 < self.low <= self.seconds <= self.high < math.inf:
            raise PolicyError(f"{self.variant} has a time outside its own interval.")
        if self.workspace_bytes < 0 or self.samples < 1 or not 0 <= self.error < math.inf:
            raise PolicyError(f"{self.variant} has an impossible workspace, error or sample count.")

    @property
    def candidate(self) -> tuple[str, tuple[tuple[str, Scalar], ...]]:
        """Variant and config: what tells one candidate from another."""
        return self.variant, self.config

    @property
    def covers(self) -> bool:
        """Whether there are samples enough for an interval at the 95% level."""
        return order_ranks(self.samples)[1] >= CONFIDENCE

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "config": dict(self.config)}

    @classmethod
    def from_json(cls, data: Any) -> Choice:
        """Raises PolicyError unless every field is there, none too many, each of its type."""
        fields = _fields(data, "choice", _CHOICE_FIELDS)
        for name, value in fields["config"].items():
            if not isinstance(value, bool | int | float | str):
                raise PolicyError(f"The config value {name} of a choice is {value!r}.")
            if isinstance(value, float) and not math.isfinite(value):
                raise PolicyError(f"The config value {name} of a choice is not finite.")
            if not (name.isprintable() and str(value).isprintable()):
                raise PolicyError(f"The config value {name!r} of a choice cannot be shown.")
        return cls(**{**fields, "config": tuple(fields["config"].items())})


@dataclass(frozen=True, slots=True)
class Verdict:
    """How sure the winner is.

    `kind`: `clear` when every other variant is slower by more than the band for sure, `tie` when
    one is within the band, `undecided` when the measurements were too noisy to tell, `single`
    when only one variant was measured. `lead` is the time of the fastest other variant over the
    winner's, minus one: 0.12 is "12% faster", and a tie can have a negative one. `band` is the
    equivalence band it was judged by, and `reason` says in words what decided.
    """

    kind: Kind
    lead: float
    band: float
    reason: str

    @classmethod
    def from_json(cls, data: Any) -> Verdict:
        fields = _fields(data, "verdict", _VERDICT_FIELDS)
        if fields["kind"] not in get_args(Kind):
            known = ", ".join(get_args(Kind))
            raise PolicyError(f"The verdict is {fields['kind']!r}, not one of {known}.")
        if not (math.isfinite(fields["lead"]) and math.isfinite(fields["band"])):
            raise PolicyError("The verdict has a lead or band that is not finite.")
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Policy:
    """The choices for a problem on a device.

    `ranking` is the non-dominated set over time, workspace, error and determinism: the winner
    first, then by time. `variants` has the best choice of every variant that was measured, also
    the slow ones: the evidence from which other sizes are interpolated. `toolchain` maps what was
    loaded (driver, compiler, libraries) to its version.
    """

    problem: ProblemKey
    device: str
    family: str
    mode: str
    ranking: tuple[Choice, ...]
    variants: tuple[Choice, ...]
    verdict: Verdict
    toolchain: Mapping[str, str]
    created: str
    origin: Origin = "tuned"

    def __post_init__(self) -> None:
        if not self.ranking or not self.variants:
            raise PolicyError(f"The policy of {self.problem} has no choices.")
        if not self.device:
            raise PolicyError(f"The policy of {self.problem} names no device.")
        if self.mode not in MODES:
            raise PolicyError(f"The policy of {self.problem} has the unknown mode {self.mode!r}.")
        if self.origin not in get_args(Origin):
            raise PolicyError(f"The policy of {self.problem} has the origin {self.origin!r}.")

    @property
    def winner(self) -> Choice:
        return self.ranking[0]

    @property
    def runner_up(self) -> Choice | None:
        """The fastest choice of another variant than the winner's."""
        others = [choice for choice in self.variants if choice.variant != self.winner.variant]
        return min(others, key=lambda choice: choice.seconds, default=None)

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The ranking, then the best of each variant that is not in it, by time."""
        ranked = {choice.candidate for choice in self.ranking}
        others = (choice for choice in self.variants if choice.candidate not in ranked)
        return (*self.ranking, *sorted(others, key=lambda choice: choice.seconds))

    def to_json(self) -> dict[str, Any]:
        """Everything as plain JSON values; `from_json` gives it back."""
        return {
            "problem": self.problem.text,
            "device": self.device,
            "mode": self.mode,
            "created": self.created,
            "origin": self.origin,
            **self._payload(),
        }

    @classmethod
    def from_json(cls, data: Any) -> Policy:
        """Raises PolicyError, in one sentence, for anything that is not a whole policy."""
        fields = _fields(data, "policy", _POLICY_FIELDS)
        try:
            problem = ProblemKey.parse(fields["problem"])
            read_moment(fields["created"])
        except ValueError as error:
            raise PolicyError(f"The policy cannot be read: {error}.") from None
        for name, version in fields["toolchain"].items():
            if not isinstance(version, str) or not (name.isprintable() and version.isprintable()):
                raise PolicyError(f"The toolchain of {problem} has the version {version!r}.")
        return cls(
            **{
                **fields,
                "problem": problem,
                "ranking": tuple(Choice.from_json(choice) for choice in fields["ranking"]),
                "variants": tuple(Choice.from_json(choice) for choice in fields["variants"]),
                "verdict": Verdict.from_json(fields["verdict"]),
            }
        )

    def to_row(self) -> PolicyRow:
        """The policy as the store keeps it."""
        return PolicyRow(self.problem, self.device, self.mode, self.created, self._payload())

    @classmethod
    def from_row(cls, row: PolicyRow) -> Policy:
        """Raises PolicyError when the payload is not one that `to_row` made."""
        own = {"problem": row.problem.text, "device": row.device, "mode": row.mode}
        origin = "imported" if row.source else "tuned"
        return cls.from_json({**row.payload, **own, "created": row.created, "origin": origin})

    def _payload(self) -> dict[str, Any]:
        return {
            "family": self.family,
            "ranking": [choice.to_json() for choice in self.ranking],
            "variants": [choice.to_json() for choice in self.variants],
            "verdict": asdict(self.verdict),
            "toolchain": dict(self.toolchain),
        }


def row_problem(row: PolicyRow) -> str | None:
    """What is wrong with a stored or imported policy, None when it can be served."""
    try:
        Policy.from_row(row)
    except PolicyError as error:
        return str(error)
    return None


_CHOICE_FIELDS: dict[str, type] = {
    "variant": str,
    "config": dict,
    "seconds": float,
    "low": float,
    "high": float,
    "workspace_bytes": int,
    "error": float,
    "deterministic": bool,
    "fingerprint": str,
    "samples": int,
}
_VERDICT_FIELDS: dict[str, type] = {
    "kind": str,
    "lead": float,
    "band": float,
    "reason": str,
}
_POLICY_FIELDS: dict[str, type] = {
    **dict.fromkeys(("problem", "device", "family", "mode", "created", "origin"), str),
    **{"ranking": list, "variants": list, "verdict": dict, "toolchain": dict},
}


def _fields(data: Any, what: str, expected: Mapping[str, type]) -> dict[str, Any]:
    """The fields of an object from outside, when they are exactly the expected ones."""
    if not isinstance(data, Mapping):
        raise PolicyError(f"A {what} is {type(data).__name__}, not an object.")
    if set(data) != set(expected):
        odd = ", ".join(sorted(map(str, set(data) ^ set(expected))))
        raise PolicyError(f"A {what} has missing or unknown fields: {odd}.")
    return {name: _typed(name, data[name], kind, what) for name, kind in expected.items()}


def _typed(name: str, value: Any, kind: type, what: str) -> Any:
    if kind is float and type(value) is int and abs(value) < 2**53:
        value = float(value)
    fits = type(value) is kind or (kind is dict and isinstance(value, Mapping))
    if not fits or (kind is str and not value.isprintable()) or value != value:
        raise PolicyError(f"The field {name} of a {what} is {str(value)[:40]!r}.")
    return value
