"""Inputs of large magnitude, and the gate without timing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from accept_bench import PLUGIN

from autotune.device import local_cpu
from autotune.expected import PERTURBED_ULPS, expected_outputs
from autotune.inputs import make_buffers
from autotune.model import Problem
from autotune.plugins import load_file, load_plugins
from autotune.registry import registry
from autotune.worker import Job, Worker


@pytest.mark.parametrize("layout", ["packed", "strided"])
def test_a_gain_multiplies_the_same_numbers(layout: str) -> None:
    load_file(PLUGIN)
    problem = Problem.of(registry.operation("toy_sum"), (4, 9), "float64", layout=layout)
    (plain,) = make_buffers(problem, 3).input_arrays
    (loud,) = make_buffers(problem, 3, gain=60.0).input_arrays
    np.testing.assert_array_equal(loud, 60.0 * plain)


def test_a_sample_that_depends_on_its_numbers_stays_consistent() -> None:
    load_plugins()
    operation = registry.operation("attention_backward")
    problem = Problem.of(operation, (1, 1, 8, 4), "float64")
    q, k, v, out, lse, _ = make_buffers(problem, 1, gain=10.0).input_arrays
    assert np.abs(q).max() > 10.0
    scores = q[0, 0] @ k[0, 0].T / 2.0
    assert scores.max() > 20.0
    weights = np.exp(scores - lse[0, 0][:, None])
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(weights @ v[0, 0], out[0, 0], rtol=1e-12)


def test_large_inputs_allow_for_what_rounding_alone_can_do() -> None:
    load_plugins()
    problem = Problem.of(registry.operation("attention"), (1, 1, 64, 32), "float32")
    buffers = make_buffers(problem, 0, gain=16.0)
    strict, fair = expected_outputs(buffers), expected_outputs(buffers, conditioned=True)
    logits = 64 * 16.0**2 * np.finfo(np.float32).eps  # times what an input may be off
    assert strict[0].bound < fair[0].bound < strict[0].bound + 2.0 * PERTURBED_ULPS * logits
    np.testing.assert_array_equal(fair[0].values, strict[0].values)


def job(variant: str, **fields: Any) -> Job:
    return Job("toy_sum M=4,N=9 float32 packed", variant, {}, **fields)


def test_checking_times_nothing_and_sees_what_only_large_inputs_show() -> None:
    load_file(PLUGIN)
    with Worker(local_cpu()) as worker:
        right = worker.check(job("numpy", gain=60.0))
        assert (right.status, right.samples, right.median) == ("ok", (), None)
        assert right.error_bound is not None
        small = worker.check(job("clipped", conditioned=True))
        assert small.status == "ok"
        own = worker.check(job("clipped"))  # a problem this quick has large inputs as well
        assert own.status == "wrong"
        assert own.reason.endswith(", on inputs times 16")
        loud = worker.check(job("clipped", gain=60.0))
        assert loud.status == "wrong"
        assert "y is off by" in loud.reason
