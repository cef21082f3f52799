"""The rows of the store as frozen dataclasses; a row that makes no sense cannot be built."""

from __future__ import annotations

import json
import math
import sys
import zlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from autotune_tuning_db.keys import PLAIN_NAME, ProblemKey, Scalar

MODES = ("cold", "hot", "graph")
STAGES = ("search", "race", "profile")
STATUSES = ("ok", "dropped", "disturbed", "wrong", "failed", "crashed", "timeout", "unavailable")

MEASURED: tuple[Literal["ok", "dropped", "disturbed"], ...] = ("ok", "dropped", "disturbed")
"""Statuses of what has passed the gate and has times."""

REJECTED = ("wrong", "crashed")
"""Those of what must not be served."""

_MOST_SAMPLE_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A device that was measured; `identity` is the key, `label` is only for people."""

    identity: str
    kind: str
    family: str
    label: str
    facts: Mapping[str, Any]

    def __post_init__(self) -> None:
        _require_text(identity=self.identity, kind=self.kind)
        to_json(self.facts)


@dataclass(frozen=True, slots=True)
class CampaignRow:
    """One run of the tuner on one device; `ended` is None while it runs or when it was killed."""

    id: int
    device: str
    started: str
    ended: str | None
    settings: Mapping[str, Any]
    uid: str = ""

    def __post_init__(self) -> None:
        _require_text(device=self.device)
        for moment in (self.started, self.ended):
            if moment is not None:
                read_moment(moment)
        to_json(self.settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    """One candidate, tried once on one problem: its samples, or the reason there are none.

    All times are in seconds. `samples` keeps every sample in the order taken; `median`, `low` and
    `high` are the median and the 95% interval of the median. `error` is the largest error found
    by the gate and `error_bound` what it allowed. `id` and `uid` are given by the store: `id`
    within this file, `uid` for good, so that an import can tell what it has seen.
    """

    campaign: int
    problem: ProblemKey
    device: str
    mode: str
    stage: str
    variant: str
    fingerprint: str
    config: Mapping[str, Scalar]
    status: str
    started: str
    reason: str = ""
    samples: tuple[float, ...] = ()
    median: float | None = None
    low: float | None = None
    high: float | None = None
    compile_seconds: float | None = None
    first_call_seconds: float | None = None
    error: float | None = None
    error_bound: float | None = None
    workspace_bytes: int | None = None
    toolchain: Mapping[str, str]
    circumstances: Mapping[str, Any]
    wall_seconds: float = 0.0
    id: int = 0
    uid: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        _require_text(device=self.device, variant=self.variant)
        _require_one_of(self.mode, MODES, "mode")
        _require_one_of(self.stage, STAGES, "stage")
        _require_one_of(self.status, STATUSES, "status")
        read_moment(self.started)
        _require_scalars(self.config)
        for mapping in (self.config, self.toolchain, self.circumstances):
            to_json(mapping)
        if not all(map(math.isfinite, self.samples)):
            raise ValueError("a sample is not a finite number")
        if self.status in MEASURED and not all(sample > 0 for sample in self.samples):
            raise ValueError("a time is not above zero")
        if self.status == "ok":
            self._require_times()

    def _require_times(self) -> None:
        """A time that is zero, negative or not a number is an error and never a result."""
        times = (*self.samples, self.median, self.low, self.high)
        if not self.samples or any(
            time is None or not math.isfinite(time) or time <= 0 for time in times
        ):
            raise ValueError("a trial with status ok needs samples and an interval above zero")


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One policy as it was written; `payload` is the business of the policies package.

    `source` is empty for a policy of this machine, and names the file an imported one came from.
    """

    problem: ProblemKey
    device: str
    mode: str
    created: str
    payload: Mapping[str, Any]
    source: str = ""

    def __post_init__(self) -> None:
        _require_text(device=self.device)
        _require_one_of(self.mode, MODES, "mode")
        read_moment(self.created)
        to_json(self.payload)


@dataclass(frozen=True, slots=True)
class PinRow:
    """A choice made by the user: for one problem, or with `problem` None for a whole operation.

    `config` None leaves the config to the best one measured.
    """

    operation: str
    problem: ProblemKey | None
    device: str
    variant: str
    config: Mapping[str, Scalar] | None = None

    def __post_init__(self) -> None:
        _require_text(device=self.device, variant=self.variant)
        if not PLAIN_NAME.match(self.operation):
            raise ValueError(f"operation name {self.operation!r} is not a plain name")
        if self.problem is not None and self.problem.operation != self.operation:
            raise ValueError(f"a pin of {self.operation} names the problem {self.problem}")
        if self.config is not None:
            _require_scalars(self.config)
            to_json(self.config)


@dataclass(frozen=True, slots=True)
class CeilingsRow:
    """The rates that were measured of a device: by name, in units per second.

    `toolchain` are the versions of what they were measured with.
    """

    device: str
    measured: str
    toolchain: Mapping[str, str]
    rates: Mapping[str, float]

    def __post_init__(self) -> None:
        _require_text(device=self.device)
        read_moment(self.measured)
        to_json(self.toolchain)
        if not all(math.isfinite(rate) and rate > 0 for rate in self.rates.values()):
            raise ValueError("a rate is not a finite number above zero")
        to_json(self.rates)


def utc_now() -> str:
    """This moment in the one spelling the store uses: `2026-01-31T12:00:00.000000+00:00`."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def read_moment(text: str) -> datetime:
    """The moment an ISO text names; raises ValueError without a time zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return moment


def to_json(value: Mapping[str, Any]) -> str:
    """Canonical JSON: keys sorted, no spaces, no NaN or infinity; equal mappings, equal texts."""
    try:
        return json.dumps(dict(value), sort_keys=True, separators=(",", ":"), allow_nan=False)
    except TypeError as error:
        raise ValueError(f"{value!r} is not plain JSON: {error}") from None
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def pack_samples(samples: Sequence[float]) -> bytes:
    """Every sample as little-endian float64, compressed."""
    values = array("d", samples)
    if sys.byteorder == "big":
        values.byteswap()
    return zlib.compress(values.tobytes())


def unpack_samples(blob: bytes) -> tuple[float, ...]:
    """The samples `pack_samples` packed, bit for bit; ValueError for more than anyone would take.

    A few bytes of a damaged or hostile file could otherwise fill the memory.
    """
    values, reader = array("d"), zlib.decompressobj()
    values.frombytes(reader.decompress(blob, _MOST_SAMPLE_BYTES))
    if not reader.eof:
        raise ValueError("the samples are cut off or too many")
    if sys.byteorder == "big":
        values.byteswap()
    return tuple(values)


def _require_text(**values: str) -> None:
    for name, value in values.items():
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{name} is {value!r}, not a text")


def _require_scalars(config: Mapping[str, Any]) -> None:
    for name, value in config.items():
        if not isinstance(name, str) or not isinstance(value, bool | int | float | str):
            raise ValueError(f"config value {name} is {value!r}, not a bool, int, float or str")


def _require_one_of(value: str, allowed: tuple[str, ...], name: str) -> None:
    if value not in allowed:
        raise ValueError(f"{name} {value!r} is not one of {', '.join(allowed)}")
