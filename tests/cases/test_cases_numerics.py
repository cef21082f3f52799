"""Cases NUM-1 to NUM-7: what the gate lets pass, and what every variant of attention gets right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from case_lab import (
    ATOMIC,
    CALLS,
    MEASURED,
    OWNED,
    clean_registry,
    doubling,
    measured,
    session,
    tuned,
    with_variants,
)

import autotune
from autotune import dispatch
from autotune.arrays import array_dtype
from autotune.device import local_cpu
from autotune.errors import ConstraintError
from autotune.execution import Executable
from autotune.expected import loud_gain
from autotune.model import Problem, Variant
from autotune.model.space import default_config, why_not
from autotune.registry import operation, registry, variant
from autotune.verify import Gate
from autotune_tuning_db import Store, open_store

__all__ = ["clean_registry"]

FORWARD = "attention"


def variants(name: str = FORWARD) -> list[Variant]:
    """Those of the built-in operation that a CPU has."""
    autotune.attention  # noqa: B018 (loads the built-in plugin)
    return [each for each in registry.variants(name) if each.device == "cpu"]


def served(problem: Problem) -> list[tuple[Variant, Executable]]:
    """Every variant that admits the problem here, built with its default."""
    device, found = local_cpu(), []
    for each in registry.variants(problem.operation):
        if why_not(each, problem, device.kind, device.limits) is None:
            config = default_config(each, problem, device)
            assert config is not None
            found.append((each, Executable(each, problem, config, device)))
    return found


def gate_all(dims: dict[str, int], **flags: Any) -> None:
    """Every variant through the gate: the reference, guards around all arrays, repeats."""
    problem = Problem.of(registry.operation(FORWARD), dims, "float32", **flags)
    gate = Gate(problem)
    ran = served(problem)
    assert len(ran) >= 3
    for each, executable in ran:
        verdict = gate.check(executable)
        assert verdict.passed, (each.name, problem, verdict.reason)


@pytest.mark.parametrize("name", ["zeros", "half", "constant"])
def test_num_1_a_fast_but_wrong_candidate_is_rejected_and_never_timed(name: str) -> None:
    target = with_variants(doubling("num_1"), name, "honest")
    at = session()
    for _ in range(2):  # what the honest one leaves in the outputs is of no help
        outcome = measured(target, name, at)
        assert (outcome.status, outcome.samples) == ("wrong", ())
        assert measured(target, "honest", at).status in MEASURED


def test_num_1_not_a_number_is_equal_to_nothing() -> None:
    @operation(inputs="x[N]", outputs="y[N]", name="num_1_nan")
    def infinite(x: Any) -> Any:
        """Infinite where x is positive."""
        return np.where(x > 0, np.inf, x)

    @variant(infinite, "right")
    def right(x: Any, y: Any) -> None:
        y[...] = np.where(x > 0, np.inf, x)

    @variant(infinite, "nan")
    def nan(x: Any, y: Any) -> None:
        y[...] = np.where(x > 0, np.nan, x)

    at = session()
    assert measured(infinite, "right", at).status in MEASURED
    assert "not a number" in measured(infinite, "nan", at).reason


def test_num_2_lengths_that_no_block_divides() -> None:
    """More lengths, on every dtype and layout, are in variants/test_contract.py."""
    for n in (7, 17, 65, 129, 1000):
        gate_all({"B": 1, "H": 1, "N": n, "D": 16})


def test_num_3_head_sizes_that_are_no_power_of_two() -> None:
    for d in (40, 72, 80, 96, 112, 192):
        gate_all({"B": 1, "H": 1, "N": 33, "D": d})
    problem = Problem.of(registry.operation(FORWARD), {"B": 1, "H": 1, "N": 33, "D": 72}, "float32")
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((1, 1, 33, 72)).astype("f4") for _ in range(3))
    kernel = dispatch(problem.operation, (1, 1, 33, 72))
    first = kernel(q, k, v)
    for _ in range(3):
        np.testing.assert_allclose(kernel(q, k, v), first, rtol=1e-5, atol=1e-6)


def naive_softmax(stable: bool) -> Any:
    def run(x: Any, y: Any) -> None:
        with np.errstate(all="ignore"):
            shifted = x - x.max() if stable else x
            weights = np.exp(shifted)
            y[...] = weights / weights.sum()

    return run


def test_num_4_the_gate_has_inputs_that_overflow_a_naive_exponential() -> None:
    @operation(inputs="x[N]", outputs="y[N]", name="num_4")
    def softmax(x: Any) -> Any:
        """Weights in proportion to exp(8 x)."""
        weights = np.exp(8 * (x - x.max()))
        return weights / weights.sum()

    def weights(stable: bool) -> Any:
        def run(x: Any, y: Any) -> None:
            naive_softmax(stable)(8 * x, y)

        return run

    variant(softmax, "stable")(weights(stable=True))
    variant(softmax, "naive")(weights(stable=False))
    at = session()
    assert measured(softmax, "stable", at).status in MEASURED
    assert measured(softmax, "naive", at).status == "wrong"


def test_num_4_a_sum_that_the_dtype_cannot_hold_is_not_asked_for() -> None:
    @operation(inputs="x[N]", outputs="y[N]", name="num_4_powers")
    def powers(x: Any) -> Any:
        """The 40th power: of sixteen times normal numbers, beyond float32."""
        return x**40

    @variant(powers, "direct")
    def direct(x: Any, y: Any) -> None:
        with np.errstate(over="ignore"):
            np.power(x, 40, out=y)

    assert measured(powers, "direct").status in MEASURED
    assert loud_gain("float16") < loud_gain("float32")


@pytest.mark.parametrize("logit", [90.0, 300.0, 1e4])
def test_num_4_large_logits_in_every_variant(logit: float) -> None:
    problem = Problem.of(registry.operation(FORWARD), {"B": 1, "H": 1, "N": 40, "D": 16}, "float32")
    rng = np.random.default_rng(4)
    q = np.full((1, 1, 40, 16), np.sqrt(logit / 4.0), "f4")  # logits are q k sqrt(16)
    k = (q * np.sign(rng.standard_normal(q.shape))).astype("f4")
    k[0, 0, ::2] = q[0, 0, ::2]
    v = rng.standard_normal(q.shape).astype("f4")
    scale = problem.scalars()[0]
    wide = [each.astype("f8") for each in (q, k, v)]
    exact = problem.operation.reference(*wide, causal=False, scale=scale)[0]
    for each, executable in served(problem):
        fresh = [
            np.full(t.shape(problem.sizes), np.nan, array_dtype(problem.element_type(t.dtype)))
            for t in problem.operation.fresh_outputs
        ]
        out = executable(q, k, v, *fresh, *problem.scalars())[0]
        assert np.isfinite(out).all(), each.name
        np.testing.assert_allclose(out, exact, atol=2e-5 * max(1.0, logit / 100), err_msg=each.name)


def test_num_5_views_give_what_packed_copies_give() -> None:
    rng = np.random.default_rng(5)
    base = rng.standard_normal((2, 33, 2, 16)).astype("f4")
    wide = rng.standard_normal((2, 2, 66, 16)).astype("f4")
    q = base.transpose(0, 2, 1, 3)
    k = wide[:, :, ::2]
    v = np.asfortranarray(rng.standard_normal((2, 2, 33, 16)).astype("f4"))[:, :, ::-1]
    packed = [np.ascontiguousarray(each) for each in (q, k, v)]
    expected = dispatch(FORWARD, (2, 2, 33, 16))(*packed)
    for kernel in (dispatch(FORWARD, q, k, v), dispatch(FORWARD, (2, 2, 33, 16))):
        np.testing.assert_allclose(kernel(q, k, v), expected, rtol=1e-5, atol=1e-6)
        out = np.full((2, 33, 2, 16), np.nan, "f4").transpose(0, 2, 1, 3)
        assert kernel(q, k, v, out=out) is out
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("nq", "nk"), [(2, 5), (3, 4), (5, 2)])
def test_num_6_the_mask_is_aligned_to_the_last_query_and_key(nq: int, nk: int) -> None:
    gate_all({"B": 1, "H": 1, "Nq": nq, "Nk": nk, "D": 4}, causal=True)
    rng = np.random.default_rng(6)
    q = rng.standard_normal((1, 1, nq, 4)).astype("f4")
    k, v = (rng.standard_normal((1, 1, nk, 4)).astype("f4") for _ in range(2))
    out = dispatch(FORWARD, q, k, v, causal=True)(q, k, v)
    logits = (q @ k.swapaxes(2, 3))[0, 0].astype("f8") * 4**-0.5
    seen = np.arange(nk)[None] <= np.arange(nq)[:, None] + nk - nq
    weights = np.where(seen, np.exp(logits), 0.0)
    total = weights.sum(axis=1, keepdims=True)
    by_hand = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0) @ v[0, 0]
    np.testing.assert_allclose(out[0, 0], by_hand, rtol=1e-4, atol=1e-5)


@pytest.fixture
def store(tmp_path: Any) -> Any:
    with open_store(tmp_path / "tuning.db") as opened:
        yield opened


def test_num_7_determinism_is_asked_for_declared_and_checked(store: Store) -> None:
    target = doubling("num_7")
    variant(target, "atomic_sum", passes=ATOMIC)(lambda x, y: np.multiply(x, 2, out=y))
    with pytest.raises(ConstraintError, match=r"deterministic=True; closest: atomic_sum"):
        dispatch(target, (8,), deterministic=True)
    variant(target, "tree_sum", passes=OWNED)(lambda x, y: np.add(x, x, out=y))
    kernel = dispatch(target, (8,), deterministic=True)
    assert kernel.variant == "tree_sum"
    x = np.random.default_rng(7).standard_normal(8).astype("f4")
    assert len({kernel(x).tobytes() for _ in range(20)}) == 1


def test_num_7_a_claim_that_repeats_refute_is_rejected_also_when_it_fails_late() -> None:
    target = with_variants(doubling("num_7_claims"), "tires", "honest")
    CALLS.clear()
    outcome = measured(target, "tires")
    assert outcome.status == "wrong"
    assert "differs between two runs, but it claims determinism" in outcome.reason
    assert measured(target, "honest").status in MEASURED


def test_num_7_what_is_wrong_now_and_then_does_not_win(store: Store) -> None:
    target = with_variants(doubling("num_7_flaky"), "flaky", "slow", "honest")
    CALLS.clear()
    (result,) = tuned(target, store).results
    assert result.policy is not None
    assert result.policy.winner.variant != "flaky"
    (failure,) = result.failures
    assert failure.candidate.variant == "flaky"
    assert failure.status == "wrong"
