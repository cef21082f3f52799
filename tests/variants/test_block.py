"""The transformer block: its reference, the study's count, and parts that dispatch serves."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from chosen_parts import serve
from contract_runs import faults, random_inputs, smallest_tiles
from differences import check_gradients

import autotune
from autotune import serving
from autotune.device import local_cpu
from autotune.errors import ConstraintError, ShapeError
from autotune.fingerprint import fingerprint
from autotune.model import Problem, predict, workspace_bytes
from autotune.model.space import default_config
from autotune.pins import pin, unpin
from autotune.registry import registry
from autotune_variants.attention.reference import forward
from autotune_variants.block import operations
from autotune_variants.block.parts import Parts
from autotune_variants.mlp.reference import mlp
from autotune_variants.norm.reference import normalise

RNG = np.random.default_rng(17)
SIZES = {"B": 2, "N": 3, "D": 4, "F": 5, "H": 2, "Hkv": 1}
OPTIONS = {"causal": True, "eps": 1e-2}


def problem(operation: str, **sizes: int) -> Problem:
    """A float64 problem of one of the block's operations."""
    return Problem.of(registry.operation(operation), sizes or SIZES, "float64")


def test_forward_is_the_study_s_with_one_head() -> None:
    wanted = problem("transformer_block", B=2, N=5, D=4, F=6)
    x, g1, w_q, w_k, w_v, g2, *weights = random_inputs(wanted, 1.0)
    found = operations.transformer_block.reference(
        *(x, g1, w_q, w_k, w_v, g2, *weights), causal=False, eps=1e-6
    )
    for b in range(2):
        z = normalise(x[b], g1, eps=1e-6)
        q, k, v = (z @ each[:, 0] for each in (w_q, w_k, w_v))
        scores = np.exp(q @ k.T / 2)
        r = x[b] + scores / scores.sum(axis=1, keepdims=True) @ v
        right = r + mlp(normalise(r, g2, eps=1e-6), *weights)
        np.testing.assert_allclose(found[b], right, rtol=1e-10, atol=1e-12)


def test_heads_attend_apart_and_are_projected() -> None:
    wanted = problem("projected_block", B=1, N=5, D=6, F=3, H=4, Hkv=2, Dh=3)
    arrays = dict(
        zip((t.name for t in wanted.operation.inputs), random_inputs(wanted, 1.0), strict=True)
    )
    found = operations.projected_block.reference(*arrays.values(), causal=True, eps=1e-6)
    z = normalise(arrays["x"][0], arrays["weight1"], eps=1e-6)
    q, k, v = (np.einsum("nd,dhe->hne", z, arrays[f"w_{name}"])[None] for name in "qkv")
    out, _ = forward(q, k, v, causal=True, scale=3**-0.5)
    r = arrays["x"][0] + np.einsum("hne,hed->nd", out[0], arrays["w_o"])
    weights = (arrays[name] for name in ("w_gate", "w_up", "w_down"))
    right = r + mlp(normalise(r, arrays["weight2"], eps=1e-6), *weights)
    np.testing.assert_allclose(found[0], right, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["transformer_block", "projected_block"])
@pytest.mark.parametrize("form", ["reference", "plain"])
def test_gradients_are_central_differences(name: str, form: str) -> None:
    block, train = registry.operation(name), registry.operation(f"{name}_train")
    *inputs, grad_out = random_inputs(problem(f"{name}_train"), 1.0)
    out, *found = getattr(train, form)(*inputs, grad_out, **OPTIONS)

    def run(*arrays: Any) -> Any:
        return block.reference(*arrays, **OPTIONS)

    np.testing.assert_allclose(out, run(*inputs), rtol=1e-11)
    assert len(found) == len(inputs) == {"transformer_block": 9, "projected_block": 10}[name]
    check_gradients(run, inputs, grad_out, found, tolerance=1e-7)


def test_without_a_projection_heads_have_the_width_of_the_block() -> None:
    with pytest.raises(ShapeError, match=r"D == H\*Dh"):
        problem("transformer_block", B=1, N=4, D=10, F=8, H=4)


def test_the_study_counts_ten_megabytes_for_512_tokens() -> None:
    wanted = problem("transformer_block_train", B=2, N=256, D=64, F=256)
    (published,) = wanted.operation.published
    moved = published.count(wanted.names).bytes_moved
    assert moved == (24 * 512 * 64 + 4 * 512 * 256) * 8 == 10_485_760
    # What it leaves out, weights and scores and what lies between the passes, the passes have.
    declared = registry.variant("transformer_block_train", "parts")
    config = default_config(declared, wanted, local_cpu())
    assert config is not None
    assert predict(declared, wanted, config).bytes_moved > moved


def test_fusing_saves_what_lies_between_norm_and_mlp() -> None:
    wanted = problem("transformer_block_train", B=2, N=256, D=64, F=256)
    moved = {}
    for name in ("parts", "parts_norm_mlp"):
        declared = registry.variant("transformer_block_train", name)
        config = default_config(declared, wanted, local_cpu())
        assert config is not None
        moved[declared.name] = predict(declared, wanted, config).bytes_moved
    assert moved["parts_norm_mlp"] < moved["parts"]


def test_the_variants_of_the_parts_count_in_the_fingerprint() -> None:
    declared = registry.variant("transformer_block", "parts")
    served = {part.operation.name for part in declared.parts}
    assert {"rmsnorm", "attention", "gated_mlp", "norm_mlp"} <= served
    names = {(part.operation.name, part.name) for part in declared.parts}
    for operation in served:
        for each in registry.variants(operation):
            assert each.device != "cpu" or (operation, each.name) in names
    alone = dataclasses.replace(declared, parts=())
    assert fingerprint(declared) != fingerprint(alone)


def test_a_part_is_what_its_policy_says() -> None:
    wanted = problem("transformer_block", B=1, N=40, D=16, F=24)
    part = Problem.of(registry.operation("norm_mlp"), (40, 16, 24), "float64", residual=True)
    chosen = []
    for name in ("numpy", "blas_joined"):
        pin(part.operation, name, local_cpu(), problem=part)
        serving.refresh()
        kernel = Parts(wanted, 1 << 24).norm_mlp("norm_mlp")
        chosen.append((kernel.variant, kernel.origin))
        unpin(part.operation, local_cpu(), problem=part)
        serving.refresh()
    assert chosen == [("numpy", "pinned"), ("blas_joined", "pinned")]


def test_parts_keep_to_their_room() -> None:
    wanted = problem("transformer_block", B=1, N=40, D=16, F=24)
    room = 1 << 20
    for operation in ("attention", "attention_backward"):
        assert Parts(wanted, room).attention(operation).workspace_bytes <= room
    with pytest.raises(ConstraintError, match="max_workspace"):
        Parts(wanted, 0).norm_mlp("norm_mlp_train")


# The others take as long to compile as all else here; test_contract.py runs them.
COMPILED = {"rmsnorm": "tiled", "rmsnorm_backward": "tiled", "attention": "simd_tiled"}


def test_parts_compiled_for_their_own_threads_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune_variants.block.parts.dispatch", serve(COMPILED))
    operation = registry.operation("projected_block_train")
    sizes = {"B": 2, "N": 33, "D": 16, "F": 40, "H": 4, "Hkv": 2}
    wanted = Problem.of(operation, sizes, "float32", causal=True)
    declared = registry.variant(operation, "parts_norm_mlp")
    assert faults(declared, wanted, smallest_tiles(declared, wanted), "packed") == []


@pytest.mark.parametrize("name", ["transformer_block_train", "projected_block_train"])
def test_dispatch_serves_it_and_its_workspace_is_all(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune_variants.block.parts.dispatch", serve({}))
    wanted = problem(name, B=1, N=24, D=16, F=24, H=2)
    inputs = random_inputs(wanted, 1.0)
    kernel = autotune.dispatch(name, *inputs)
    config = dict(kernel.config)
    declared = registry.variant(name, kernel.variant)
    assert kernel.workspace_bytes >= workspace_bytes(declared, wanted, config) > 0
    right = wanted.operation.reference(*inputs, causal=False, eps=1e-6)
    for found, each in zip(kernel(*inputs), right, strict=True):
        np.testing.assert_allclose(found, each, rtol=0, atol=1e-11 * max(np.abs(each).max(), 1))
