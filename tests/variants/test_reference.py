"""The references: against the textbook, against finite differences, and at their edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune_variants.attention import reference
from autotune_variants.attention.reference import (
    forward,
    gradients,
    one_query,
    plain_forward,
    plain_gradients,
    plain_one_query,
    plain_train,
)

RNG = np.random.default_rng(11)
CAUSAL = pytest.mark.parametrize("causal", [False, True])


def random(*shape: int) -> Any:
    """Standard-normal float64."""
    return RNG.standard_normal(shape)


def textbook(q: Any, k: Any, v: Any, causal: bool, scale: float) -> tuple[Any, Any]:
    """Attention element by element, every key-value head repeated for its query heads."""
    batch, heads, queries, _ = q.shape
    keys = k.shape[2]
    out = np.zeros((batch, heads, queries, v.shape[3]))
    lse = np.full((batch, heads, queries), -np.inf)
    for b, h, i in np.ndindex(batch, heads, queries):
        kv = h // (heads // k.shape[1])
        seen = [j for j in range(keys) if not causal or j <= i + keys - queries]
        if seen:
            weights = np.exp([scale * q[b, h, i] @ k[b, kv, j] for j in seen])
            out[b, h, i] = weights @ v[b, kv, seen] / weights.sum()
            lse[b, h, i] = np.log(weights.sum())
    return out, lse


@CAUSAL
@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (2, 5), (5, 2)])
def test_forward_is_the_textbook(queries: int, keys: int, causal: bool) -> None:
    q, k, v = random(2, 4, queries, 3), random(2, 2, keys, 3), random(2, 2, keys, 6)
    right = textbook(q, k, v, causal, 0.7)
    for function in (forward, plain_forward):
        for found, wanted in zip(function(q, k, v, causal=causal, scale=0.7), right, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-13, atol=1e-13)


def test_forward_in_several_blocks_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = random(1, 2, 50, 4), random(1, 1, 30, 4), random(1, 1, 30, 4)
    whole = forward(q, k, v, causal=True)
    monkeypatch.setattr("autotune_variants.attention.reference._ELEMENTS", 7 * 30)
    for found, wanted in zip(forward(q, k, v, causal=True), whole, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-14)


@CAUSAL
@pytest.mark.parametrize(("queries", "keys"), [(4, 4), (2, 5), (5, 2)])
def test_gradients_are_finite_differences(queries: int, keys: int, causal: bool) -> None:
    inputs = [random(1, 4, queries, 3), random(1, 2, keys, 3), random(1, 2, keys, 2)]
    grad_out = random(1, 4, queries, 2)
    found = gradients(*inputs, grad_out, causal=causal, scale=0.6)

    def loss() -> float:
        return float((forward(*inputs, causal=causal, scale=0.6)[0] * grad_out).sum())

    for array, gradient in zip(inputs, found, strict=True):
        for index in np.ndindex(array.shape):
            at = array[index]
            array[index] = at + 1e-6
            above = loss()
            array[index] = at - 1e-6
            slope = (above - loss()) / 2e-6
            array[index] = at
            assert gradient[index] == pytest.approx(slope, abs=1e-8)


@CAUSAL
def test_plain_gradients_differ_by_rounding_only(causal: bool) -> None:
    q, k, v, grad_out = (
        random(2, 4, 9, 8),
        random(2, 2, 13, 8),
        random(2, 2, 13, 5),
        random(2, 4, 9, 5),
    )
    right = gradients(q, k, v, grad_out, causal=causal, scale=0.3)
    out, lse = forward(q, k, v, causal=causal, scale=0.3)
    plain = plain_gradients(q, k, v, out, lse, grad_out, causal=causal, scale=0.3)
    trained = plain_train(q, k, v, grad_out, causal=causal, scale=0.3)
    np.testing.assert_allclose(trained[0], out, rtol=1e-12, atol=1e-14)
    for wanted, one, other in zip(right, plain, trained[1:], strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(other, wanted, rtol=1e-12, atol=1e-14)
    assert any((one != wanted).any() for one, wanted in zip(plain, right, strict=True))


def test_a_row_that_attends_one_key_has_exactly_no_gradient() -> None:
    found = gradients(
        random(1, 1, 1, 4), random(1, 1, 1, 4), random(1, 1, 1, 4), random(1, 1, 1, 4)
    )
    assert (found[0] == 0).all()
    assert (found[1] == 0).all()


@pytest.mark.parametrize("function", [forward, plain_forward])
def test_rows_with_nothing_to_attend(function: Any) -> None:
    q, k, v = random(1, 1, 5, 4), random(1, 1, 2, 4), random(1, 1, 2, 4)
    out, lse = function(q, k, v, causal=True)
    assert (out[0, 0, :3] == 0).all()
    assert np.isneginf(lse[0, 0, :3]).all()
    assert np.isfinite(lse[0, 0, 3:]).all()
    out, lse = function(q, k[:, :, :0], v[:, :, :0])
    assert (out == 0).all()
    assert np.isneginf(lse).all()


def test_an_infinite_key_leaves_nan_or_nothing() -> None:
    q, k, v, grad_out = (random(1, 1, 6, 4) for _ in range(4))
    q[..., 0], k[0, 0, 2, 0] = [1, 1, -1, -1, -1, -1], np.inf
    with np.errstate(invalid="ignore"):
        out, lse = forward(q, k, v)
        grad_q, grad_k, grad_v = gradients(q[:, :, 2:], k, v, grad_out[:, :, 2:])
        spoilt = gradients(q, k, v, grad_out)
    assert np.isnan(out[0, 0, :2]).all()
    assert np.isnan(lse[0, 0, :2]).all()
    np.testing.assert_allclose(out[:, :, 2:], forward(q[:, :, 2:], *_without(2, k, v))[0])
    assert np.isnan(grad_q[..., 0]).all()
    assert np.isfinite(grad_q[..., 1:]).all()
    assert (grad_k[0, 0, 2] == 0).all()
    assert (grad_v[0, 0, 2] == 0).all()
    assert np.isnan(spoilt[1]).all()
    assert np.isnan(spoilt[2]).all()


def _without(key: int, *arrays: Any) -> list[Any]:
    return [np.delete(array, key, axis=2) for array in arrays]


def test_large_logits_do_not_overflow() -> None:
    q, k, v = 100 * random(1, 1, 6, 4), 100 * random(1, 1, 6, 4), random(1, 1, 6, 4)
    out, lse = forward(q.astype("f4"), k.astype("f4"), v.astype("f4"), scale=1.0)
    assert np.isfinite(out).all()
    assert np.isfinite(lse).all()


def test_one_query_is_attention_with_one_row() -> None:
    q, k, v = random(2, 4, 8), random(2, 2, 30, 8), random(2, 2, 30, 5)
    wanted = textbook(q[:, :, None], k, v, False, 0.4)[0][:, :, 0]
    np.testing.assert_allclose(one_query(q, k, v, scale=0.4), wanted, rtol=1e-13)
    np.testing.assert_allclose(plain_one_query(q, k, v, scale=0.4), wanted, rtol=1e-13)


@CAUSAL
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_plain_in_sixteen_bits_sums_in_float32(dtype: str, causal: bool) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="bfloat16 arrays need ml_dtypes")
    kind = np.dtype(dtype)
    q, k, v = (random(1, heads, 40, 16).astype(kind) for heads in (4, 2, 2))
    grad_out = random(1, 4, 40, 16).astype(kind)
    wide = [each.astype(np.float64) for each in (q, k, v, grad_out)]
    out, lse = plain_forward(q, k, v, causal=causal, scale=0.25)
    exact = forward(*wide[:3], causal=causal, scale=0.25)
    step = 2.0**-7 if dtype == "bfloat16" else 2.0**-10
    assert (out.dtype, lse.dtype) == (kind, np.float32)
    np.testing.assert_allclose(out.astype(np.float64), exact[0], rtol=0, atol=2 * step)
    np.testing.assert_allclose(lse, exact[1], rtol=1e-5, atol=1e-5)
    found = plain_gradients(q, k, v, out, lse, grad_out, causal=causal, scale=0.25)
    for one, other in zip(found, gradients(*wide, causal=causal, scale=0.25), strict=True):
        assert one.dtype == kind
        np.testing.assert_allclose(one.astype(np.float64), other, rtol=0, atol=16 * step)


def test_plain_in_float16_survives_products_beyond_its_range() -> None:
    q = k = np.full((1, 1, 8, 64), 300, np.float16)  # their products are 5.8 million
    v = random(1, 1, 8, 64).astype(np.float16)
    out, lse = plain_forward(q, k, v, scale=1.0)
    assert np.isfinite(out).all()
    assert np.isfinite(lse).all()


@pytest.mark.parametrize("terms", [0, 1, 255, 256, 257, 512, 513, 2000])
def test_products_of_references_are_sums_of_short_ones(
    terms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths: list[int] = []

    def one_chain(a: Any, b: Any) -> Any:
        lengths.append(len(b))
        return a @ b

    monkeypatch.setattr(reference.np, "matmul", one_chain)
    a, b = random(3, terms), random(terms, 2)
    np.testing.assert_allclose(reference._exact(a, b), a @ b, rtol=0, atol=1e-12)
    assert sum(lengths) == terms
    assert max(lengths) <= 256
