"""The gated MLP on whole matrices: products by a multithreaded BLAS, sweeps between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from autotune_variants.norm import whole as norm_whole

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]
Run = Callable[..., None]


class Sweeps(NamedTuple):
    """What happens between the products; each takes all arrays by name, and works in place.

    `gate`: u becomes u sigmoid(u) v. `gate_gradients`: u and v become their gradients, grad_h
    the hidden activations. `normalise`: z from x. `norm_gradients`: grad_x and grad_weight from
    grad_z. The last two also take eps.
    """

    gate: Callable[[Arrays], None]
    gate_gradients: Callable[[Arrays], None]
    normalise: Callable[[Arrays, float], None]
    norm_gradients: Callable[[Arrays, float], None]


def run_whole(problem: Any, sweeps: Sweeps, temporaries: tuple[str, ...]) -> Run:
    """`run(*inputs, *outputs, *temporaries, *scalars)` for any of the operations of the MLP.

    The arrays that a variant has decide what is done: joined weights make one product of two, a
    normalised z is computed first, an output that is not there is not computed.
    """
    operation = problem.operation
    tensors = (*operation.inputs, *operation.outputs)
    names = (*(tensor.name for tensor in tensors), *temporaries)
    residual = bool(problem.flags.get("residual"))

    def run(*arguments: Any) -> None:
        arrays = dict(zip(names, arguments, strict=False))
        eps = arguments[-1] if "z" in arrays else 0.0
        if "z" in arrays:
            sweeps.normalise(arrays, eps)
        _hidden(arrays)
        if "grad_out" in arrays:
            _gradients(arrays, sweeps)
        else:
            sweeps.gate(arrays)
            np.matmul(arrays["u"], arrays["w_down"], out=arrays["out"])
        if "grad_z" in arrays:
            sweeps.norm_gradients(arrays, eps)
        if residual:
            _add_residual(arrays)

    return run


def _hidden(arrays: dict[str, Array]) -> None:
    """u = x w_gate and v = x w_up, of z in place of x where there is one."""
    x, w_gate, w_up = arrays.get("z", arrays["x"]), arrays["w_gate"], arrays["w_up"]
    if "joined" not in arrays:
        np.matmul(x, w_gate, out=arrays["u"])
        np.matmul(x, w_up, out=arrays["v"])
        return
    joined, uv, features = arrays["joined"], arrays["uv"], w_gate.shape[1]
    joined[:, :features], joined[:, features:] = w_gate, w_up
    np.matmul(x, joined, out=uv)
    arrays["u"], arrays["v"] = uv[:, :features], uv[:, features:]


def _gradients(arrays: dict[str, Array], sweeps: Sweeps) -> None:
    """All gradients; the output too where it is wanted."""
    x, grad_out, w_down = arrays.get("z", arrays["x"]), arrays["grad_out"], arrays["w_down"]
    grad_x = arrays.get("grad_z", arrays["grad_x"])
    np.matmul(grad_out, w_down.T, out=arrays["grad_h"])
    sweeps.gate_gradients(arrays)
    u, v, h = arrays["u"], arrays["v"], arrays["grad_h"]
    if "out" in arrays:
        np.matmul(h, w_down, out=arrays["out"])
    np.matmul(h.T, grad_out, out=arrays["grad_w_down"])
    if "joined" in arrays:
        features = u.shape[1]
        both = np.matmul(x.T, arrays["uv"], out=arrays["grad_joined"])
        arrays["grad_w_gate"][...], arrays["grad_w_up"][...] = (
            both[:, :features],
            both[:, features:],
        )
        np.matmul(arrays["uv"], arrays["joined"].T, out=grad_x)
        return
    np.matmul(x.T, u, out=arrays["grad_w_gate"])
    np.matmul(x.T, v, out=arrays["grad_w_up"])
    np.matmul(u, arrays["w_gate"].T, out=grad_x)
    np.matmul(v, arrays["w_up"].T, out=arrays["lines"])
    np.add(grad_x, arrays["lines"], out=grad_x)


def _add_residual(arrays: Arrays) -> None:
    np.add(arrays["out"], arrays["x"], out=arrays["out"])
    if "grad_x" in arrays:
        np.add(arrays["grad_x"], arrays["grad_out"], out=arrays["grad_x"])


def _sigmoid(u: Array, s: Array) -> None:
    with np.errstate(over="ignore"):  # exp(-u) = inf gives 0, as it should
        np.exp(np.negative(u, out=s), out=s)
    np.add(s, 1, out=s)
    np.divide(1, s, out=s)


def _numpy_gate(arrays: Arrays) -> None:
    u, s = arrays["u"], arrays["s"]
    _sigmoid(u, s)
    np.multiply(u, s, out=u)
    np.multiply(u, arrays["v"], out=u)


def _numpy_gate_gradients(arrays: Arrays) -> None:
    u, v, grad_h, s, silu = (arrays[name] for name in ("u", "v", "grad_h", "s", "silu"))
    _sigmoid(u, s)
    np.multiply(u, s, out=silu)
    np.subtract(1, s, out=u)  # and step by step v s (1 + u (1 - s)) grad_h
    np.multiply(u, silu, out=u)
    np.add(u, s, out=u)
    np.multiply(u, v, out=u)
    np.multiply(u, grad_h, out=u)
    np.multiply(silu, v, out=s)
    np.multiply(silu, grad_h, out=v)
    grad_h[...] = s


def _numpy_normalise(arrays: Arrays, eps: float) -> None:
    x, weight, z, inverse, lines = (
        arrays[name] for name in ("x", "weight", "z", "inverse", "lines")
    )
    norm_whole.normalise(x, weight, z, inverse, lines, eps)


def _numpy_norm_gradients(arrays: Arrays, eps: float) -> None:
    """The inverse is still there from the forward."""
    inputs = (arrays["x"], arrays["weight"], arrays["grad_z"])
    grads = (arrays["grad_x"], arrays["grad_weight"])
    room = (arrays[name] for name in ("inverse", "lines", "slope"))
    norm_whole.norm_gradients(inputs, grads, *room)


NUMPY = Sweeps(_numpy_gate, _numpy_gate_gradients, _numpy_normalise, _numpy_norm_gradients)


def numba_sweeps(problem: Any, config: Mapping[str, Any], norm_rows: int) -> Sweeps:
    """The same sweeps, each one pass over its arrays by all threads."""
    from autotune_variants.mlp.sweeps import gate_gradients_step, gate_step
    from autotune_variants.norm import steps, table

    settings = {table.WORKERS: int(config["threads"]), table.ROWS: norm_rows}

    def bound(called: tuple[Any, ...], names: Mapping[str, int], *, eps: bool) -> Any:
        rows, scalars = tuple(names.values()), (table.EPS,) if eps else ()
        run = table.bind(called, problem.dtype, settings, rows, scalars=scalars)

        def sweep(arrays: Arrays, *scalars: float) -> None:
            run(*(arrays[name] for name in names), *scalars)

        return sweep

    hidden = {"u": table.U, "v": table.V}
    norm = {"x": table.X, "weight": table.WEIGHT}
    above = {"grad_z": table.GRAD_OUT, "grad_x": table.GRAD_X, "grad_weight": table.GRAD_WEIGHT}
    room = {"weight_parts": table.WEIGHT_PARTS, "tiles": table.SCRATCH}
    gradients = (steps.backward_step, steps.weight_step)
    with_norm = "weight" in {tensor.name for tensor in problem.operation.inputs}
    if not with_norm:
        return Sweeps(
            bound((gate_step,), hidden, eps=False),
            bound((gate_gradients_step,), {**hidden, "grad_h": table.GRAD_H}, eps=False),
            *(_numpy_normalise, _numpy_norm_gradients),
        )
    forward = {**norm, "z": table.OUT, "tiles": table.SCRATCH}
    return Sweeps(
        bound((gate_step,), hidden, eps=False),
        bound((gate_gradients_step,), {**hidden, "grad_h": table.GRAD_H}, eps=False),
        bound((steps.forward_step,), forward, eps=True),
        bound(gradients, {**norm, **above, **room}, eps=True),
    )
