"""The study's own counts, to the last byte, and the full counts of the passes beside them.

Published at B=2, N=2048, D=64 in float64; MB are 10^6 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from autotune.model import Problem, predict
from autotune.model.published import PublishedCount
from autotune.plugins import load_plugins
from autotune.registry import registry

B, N, D = 2, 2048, 64


def problem(operation: str, **sizes: int) -> Problem:
    load_plugins()
    found = sizes or {"B": B, "H": 1, "N": N, "D": D}
    return Problem.of(registry.operation(operation), found, "float64")


def published(at: Problem, name: str) -> PublishedCount:
    (found,) = [each for each in at.operation.published if each.name.startswith(name)]
    return found.count(at.names)


def test_the_forward_that_stores_a() -> None:
    count = published(problem("attention"), "forward, A stored")
    assert count.bytes_read == 6_291_456
    assert count.bytes_written == 69_206_016
    assert count.bytes_moved == 75_497_472
    assert f"{count.bytes_moved / 1e6:.3f}" == "75.497"


def test_the_full_count_adds_what_the_study_leaves_out() -> None:
    """lse is written as well; nothing else differs."""
    at = problem("attention")
    count = published(at, "forward, A stored")
    variant = registry.variant("attention", "cuda_stored")
    full = predict(variant, at, {"block": 128, "rows": 1})
    assert full.bytes_read == count.bytes_read
    assert full.bytes_written == count.bytes_written + 8 * B * N
    assert full.elements_read == 3 * B * N * D


def test_the_forward_without_a() -> None:
    assert published(problem("attention"), "forward, A on chip").bytes_moved == 8 * B * 3 * N * D


def test_backward_and_fused_formulas() -> None:
    backward = problem("attention_backward")
    for name in ("backward, GK atomic", "backward, no atomics"):
        assert published(backward, name).bytes_moved == 8 * B * (N * N + 4 * N * D + 3 * N * D)
    train = problem("attention_train")
    for each in train.operation.published:
        assert each.count(train.names).bytes_moved == 8 * B * (4 * N * D + 4 * N * D)


@pytest.mark.parametrize(("dk", "dv"), [(32, 64), (64, 32)])
def test_the_formulas_tell_keys_from_values(dk: int, dv: int) -> None:
    sizes = {"B": 1, "H": 1, "N": 256, "D": dk, "Dv": dv}
    n = 256

    def elements(operation: str, name: str) -> int:
        return published(problem(operation, **sizes), name).bytes_moved // 8

    assert elements("attention", "forward, A stored") == n * n + 2 * n * dk + 2 * n * dv
    assert elements("attention_backward", "backward, no") == n * n + 4 * n * dk + 3 * n * dv
    assert elements("attention_train", "fused, no") == 4 * n * dk + 4 * n * dv
    assert elements("decode", "decode") == dk + n * dk + n * dv + dv


def test_atomic_additions() -> None:
    train, backward = problem("attention_train"), problem("attention_backward")
    assert published(train, "fused, GK atomic (v3)").atomics == 536_870_912
    assert published(train, "fused, GV and GK atomic (v2)").atomics == 2 * 536_870_912
    assert published(train, "fused, no atomics").atomics == 0
    assert published(backward, "backward, GK atomic").atomics == 536_870_912


@pytest.mark.parametrize(
    ("operation", "variant", "expected"),
    [
        ("attention_train", "cuda_v2", 2 * 536_870_912),
        ("attention_train", "cuda_v3", 536_870_912),
        ("attention_train", "cuda_v4", 0),
        ("attention_backward", "cuda_separate", 536_870_912),
    ],
)
def test_the_passes_imply_the_same_atomic_additions(
    operation: str, variant: str, expected: int
) -> None:
    at = problem(operation)
    config: dict[str, Any] = {"block": 128, "rows": 1, "columns": 1, "blocks": 1024}
    config["sweep"] = "features"
    assert predict(registry.variant(operation, variant), at, config).atomics == expected


def test_decode_at_the_length_of_the_paper() -> None:
    """2.10 MB at n=4096, d=64 in float32 (printed to three digits)."""
    load_plugins()
    sizes = {"B": 1, "H": 1, "N": 4096, "D": 64}
    at = Problem.of(registry.operation("decode"), sizes, "float32")
    assert f"{published(at, 'decode').bytes_moved / 1e6:.2f}" == "2.10"


def named() -> Iterator[tuple[str, str]]:
    load_plugins()
    for operation in registry.operations():
        for each in operation.published:
            yield from ((operation.name, variant) for variant in each.variants)


def test_published_counts_name_registered_variants() -> None:
    found = list(named())
    assert len(found) > 10
    for operation, variant in found:
        assert registry.variant(operation, variant).name == variant
