"""Configs and layouts: every tile size gives the same answer, no layout compiles anew."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from contract_arrays import boxed
from contract_runs import expected, faults, random_inputs, run, smallest_tiles

import autotune_variants  # noqa: F401
from autotune.device import local_cpu
from autotune.model import Config, Problem
from autotune.model.space import configs
from autotune.registry import registry

STUDY = [
    *(("attention", name) for name in ("stored", "online")),
    *(("attention_train", name) for name in ("fused", "separate", "five_pass", "all_recomputed")),
]


@pytest.mark.parametrize(("operation", "name"), STUDY)
def test_every_tile_size_is_right(operation: str, name: str) -> None:
    variant = registry.variant(operation, name)
    problem = Problem.of(
        variant.operation, {"B": 1, "H": 2, "Nq": 150, "Nk": 300, "D": 20}, causal=True
    )
    tried = [c for c in configs(variant, problem, local_cpu()) if c["placement"] == "free"]
    assert len({(c["block_q"], c["block_k"]) for c in tried}) == 4 * 5
    for config in tried[:: max(len(tried) // 6, 1)]:
        assert faults(variant, problem, config, "packed") == [], config


@pytest.mark.parametrize("operation", ["attention", "attention_backward", "attention_train"])
def test_arrangements_use_only_the_arrays_they_declare(
    operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Roomy arrays in place of the empty ones that stand for all others: nothing writes there."""
    roomy = {2: (4, 400), 3: (4, 200, 200), 4: (2, 4, 200, 200), 5: (2, 2, 4, 200, 64)}
    absent: list[np.ndarray] = []

    def empty(shape: tuple[int, ...], dtype: str) -> np.ndarray:
        absent.append(np.full(roomy[len(shape)], np.nan, dtype))
        return absent[-1]

    monkeypatch.setattr("autotune_variants.attention.plan.np", SimpleNamespace(empty=empty))
    sizes = {"B": 2, "H": 4, "Hkv": 2, "Nq": 50, "Nk": 70, "D": 20, "Dv": 24}
    for variant in registry.variants(operation):
        problem = Problem.of(variant.operation, sizes, causal=True)
        if "order" in variant.tunable_names:
            found = faults(variant, problem, smallest_tiles(variant, problem), "packed")
            assert found == [], variant.name
    assert absent
    assert all(np.isnan(array).all() for array in absent)


@pytest.mark.parametrize("name", ["split", "unsplit", "three_pass"])
def test_decode_is_right_for_every_config(name: str) -> None:
    variant = registry.variant("decode", name)
    problem = Problem.of(variant.operation, {"B": 2, "H": 4, "Hkv": 2, "N": 700, "D": 40})
    tried = [c for c in configs(variant, problem, local_cpu()) if c["placement"] == "free"]
    for config in tried[:: max(len(tried) // 6, 1)]:
        assert faults(variant, problem, config, "packed") == [], config


@pytest.mark.parametrize("name", ["split", "unsplit", "three_pass"])
def test_decode_of_a_long_cache(name: str) -> None:
    """Sums over 150,000 keys stay within the tolerance of the gate in float32."""
    variant = registry.variant("decode", name)
    problem = Problem.of(variant.operation, (1, 1, 150_000, 64))
    config = next(c for c in configs(variant, problem, local_cpu()) if c["placement"] == "free")
    assert faults(variant, problem, config, "packed") == []


def test_read_only_inputs_and_other_layouts_need_no_new_compilation() -> None:
    from autotune_variants.attention.sweeps import in_parallel
    from autotune_variants.decode.kernels_split import serial

    attention, decode = (
        registry.variant("attention", "online"),
        registry.variant("decode", "unsplit"),
    )
    tiles = Config(block_q=16, block_k=32, order="consecutive", threads=1, placement="free")
    for variant, config in ((attention, tiles), (decode, Config(block=32, ahead=0, threads=1))):
        problem = Problem.of(variant.operation, {"B": 1, "H": 2, "N": 40, "D": 8})
        given = random_inputs(problem, 1.0)
        counts = []
        for layout, writable in (("packed", True), ("strided", True), ("packed", False)):
            inputs = [boxed(each.shape, "float32", layout, each) for each in given]
            for each in inputs:
                each.view.flags.writeable = writable
            outputs = [
                boxed(tensor.shape(problem.sizes), "float32", layout)
                for tensor in variant.operation.outputs
            ]
            run(variant, problem, config, [*inputs, *outputs])
            for (_, right, bound), box in zip(expected(problem, given), outputs, strict=True):
                assert np.abs(box.view - right).max() <= bound
            counts.append((len(in_parallel.overloads), len(serial.overloads)))
        assert counts[0] == counts[1] == counts[2]
