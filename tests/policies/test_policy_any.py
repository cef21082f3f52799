"""Whatever policies and pins a store holds, a request is answered or missed, and never raises."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from autotune_policies import Choice, Constraints, Policy, Request, Snapshot, Verdict, resolve
from autotune_policies.nearest import nearest
from autotune_policies.resolve import closest
from autotune_tuning_db import PinRow, ProblemKey

VARIANTS = ("fused", "split", "gone")
seconds = st.floats(min_value=5e-324, max_value=1.7e308, allow_subnormal=True)
sizes = st.integers(0, 2**61)
usual = st.tuples(st.tuples(st.just("B"), sizes), st.tuples(st.just("N"), sizes))
odd = st.dictionaries(st.sampled_from("BNQ"), st.integers(0, 9)).map(lambda d: tuple(d.items()))
dims = st.one_of(usual, odd)
keys = st.builds(
    ProblemKey,
    operation=st.sampled_from(("attention", "decode")),
    dims=dims,
    dtype=st.sampled_from(("float32", "float64")),
    flags=st.sampled_from(((), (("causal", True),), (("scale", float("inf")),))),
)
configs = st.dictionaries(st.sampled_from("ab"), st.sampled_from((1, True, "x", -0.0)), max_size=2)


@st.composite
def choices(draw: st.DrawFn) -> Choice:
    time = draw(seconds)
    return Choice(
        variant=draw(st.sampled_from(VARIANTS)),
        config=tuple(draw(configs).items()),
        seconds=time,
        low=time,
        high=time,
        workspace_bytes=draw(st.integers(0, 2**70)),
        error=draw(st.floats(0, 1e308)),
        deterministic=draw(st.booleans()),
        fingerprint=draw(st.sampled_from(("now", "then"))),
        samples=draw(st.integers(1, 10**9)),
    )


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    ranked = tuple(draw(st.lists(choices(), min_size=1, max_size=3)))
    return Policy(
        problem=draw(keys),
        device=draw(st.sampled_from(("here", "there"))),
        family=draw(st.sampled_from(("", "family"))),
        mode=draw(st.sampled_from(("cold", "hot", "graph"))),
        ranking=ranked,
        variants=ranked,
        verdict=Verdict("clear", 0.0, 0.01, ""),
        toolchain=draw(st.dictionaries(st.sampled_from("tu"), st.sampled_from("12"))),
        created="2026-01-01T00:00:00+00:00",
    )


pins = st.builds(
    PinRow,
    operation=st.just("attention"),
    problem=st.one_of(st.none(), keys.filter(lambda key: key.operation == "attention")),
    device=st.just("here"),
    variant=st.sampled_from(VARIANTS),
    config=st.one_of(st.none(), configs),
)
constraints = st.builds(
    Constraints,
    deterministic=st.booleans(),
    max_workspace=st.one_of(st.none(), st.integers(0, 2**62)),
    max_error=st.one_of(st.none(), st.floats(0, 1e308)),
)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(policies(), max_size=4),
    st.lists(pins, max_size=2),
    keys,
    st.sampled_from(((), (("N",),), (("N",), ("B",)), (("B", "N"),))),
    constraints,
    st.sampled_from(VARIANTS),
)
def test_every_request_has_an_answer_or_none(
    known: list[Policy],
    pinned: list[PinRow],
    key: ProblemKey,
    axes: tuple[tuple[str, ...], ...],
    wish: Constraints,
    refused: str,
) -> None:
    names = {name for name, _ in key.dims}
    axes = axes if all(set(axis) <= names for axis in axes) else ()
    snapshot = Snapshot(tuple(known), tuple(pinned))
    assert Snapshot.from_json(snapshot.to_json()).digest == snapshot.digest
    request = Request(key, "here", "family", axes=axes, constraints=wish)

    def admits(variant: str, config: Any) -> str | None:
        return "refused" if variant == refused else None

    current = {"fused": "now", "split": "then"}
    found = resolve(snapshot, request, admits=admits, fingerprints=current.get, toolchain={})
    closest(found)
    nearest(snapshot, request)
    if found.origin is None:
        return
    assert found.variant in current
    assert found.variant != refused
    if found.choice is not None:
        assert found.choice.fingerprint == current[found.variant]
        assert found.choice.deterministic or not wish.deterministic
        assert wish.max_error is None or found.choice.error <= wish.max_error
