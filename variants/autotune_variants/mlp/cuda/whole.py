"""The gated MLP on whole matrices on a GPU: products by cuBLAS, one kernel between them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.cuda import CudaSource, pointer, strides_in_elements
from autotune.cuda.cublas import (
    Addresses,
    BlasHandle,
    Layout,
    Step,
    contiguous,
    packed_copy,
    product,
)
from autotune_variants.norm.cuda.launches import STORAGE, norm_config, norm_launches

SOURCE = CudaSource(Path(__file__).parent / "gate.cu")

Run = Callable[..., None]
Arrays = Mapping[str, Any]

_THREADS = 256
_VECTOR = 16  # bytes a thread


class _Plan:
    """The steps between the normalisation and its gradients, for one layout of the matrices."""

    def __init__(self, problem: Any, names: Sequence[str], layouts: Mapping[str, Layout]) -> None:
        self._dtype, self._layouts, self._names = problem.dtype, layouts, list(names)
        self._elements = problem.sizes["N"] * problem.sizes["F"]
        self._itemsize = problem.itemsize
        self._residual = bool(problem.flags.get("residual"))
        self.steps = tuple(self._gradients() if "grad_out" in names else self._forward())

    def _product(self, a: str, b: str, c: str, *, add: bool = False) -> Step:
        """c = a b, where a trailing T means the transpose."""

        def matrix(name: str) -> tuple[int, Layout]:
            plain = name.removesuffix("^T")
            layout = self._layouts[plain]
            return self._names.index(plain), layout if plain == name else layout.transposed

        return product(self._dtype, matrix(a), matrix(b), matrix(c), add=add)

    def _hidden(self) -> list[Step]:
        x = self._x
        return [self._product(x, "w_gate", "u"), self._product(x, "w_up", "v")]

    @property
    def _x(self) -> str:
        return "z" if "z" in self._names else "x"

    def _down(self, h: str) -> Step:
        """With a residual, x lies in out already."""
        return self._product(h, "w_down", "out", add=self._residual)

    def _forward(self) -> list[Step]:
        return [*self._hidden(), self._sweep("gate", ("u", "v")), self._down("u")]

    def _gradients(self) -> list[Step]:
        x, grad_x = self._x, "grad_z" if "grad_z" in self._names else "grad_x"
        return [
            *self._hidden(),
            self._product("grad_out", "w_down^T", "grad_h"),
            self._sweep("gate_gradients", ("u", "v", "grad_h")),
            *([self._down("grad_h")] if "out" in self._names else []),
            self._product("grad_h^T", "grad_out", "grad_w_down"),
            self._product(f"{x}^T", "u", "grad_w_gate"),
            self._product(f"{x}^T", "v", "grad_w_up"),
            self._product("u", "w_gate^T", grad_x),
            self._product("v", "w_up^T", grad_x, add=True),
        ]

    def _sweep(self, entry: str, arrays: tuple[str, ...]) -> Step:
        """One of the kernels between the products."""
        places = [self._names.index(name) for name in arrays]
        missing = (0,) * (3 - len(places))
        elements, vectors = self._elements, -(-self._elements * self._itemsize // _VECTOR)
        launch = SOURCE.kernel(entry, {"STORAGE": STORAGE[self._dtype]}).launcher(
            grid=(-(-vectors // _THREADS), 1, 1), block=(_THREADS, 1, 1), arguments="S32"
        )
        pack = struct.Struct("<3Qq").pack

        def step(handle: int, addresses: Addresses) -> None:
            launch(pack(*(addresses[place] for place in places), *missing, elements))

        return step


def run_whole(problem: Any, config: Mapping[str, Any], temporaries: tuple[str, ...]) -> Run:
    """`run(*inputs, *outputs, *temporaries, *scalars)` for any of the operations of the MLP.

    The last temporary is cuBLAS's room. Matrices that cuBLAS cannot read where they lie are
    copied before, or after.
    """
    operation = problem.operation
    tensors = {t.name: t.shape(problem.sizes) for t in (*operation.inputs, *operation.outputs)}
    given, names = list(tensors), (*tensors, *temporaries)
    matrices = [name for name in given if len(tensors[name]) == 2]
    outputs = {tensor.name for tensor in operation.outputs}
    sizes = problem.sizes
    room_bytes = int(config["room_mib"]) << 20
    alignment = _VECTOR if problem.itemsize == 2 else 1  # cuBLAS wants it of 16-bit matrices
    own = {
        **dict.fromkeys(("u", "v", "grad_h"), Layout.packed(sizes["N"], sizes["F"])),
        **dict.fromkeys(("z", "grad_z"), Layout.packed(sizes["N"], sizes["D"])),
    }
    before, after = _norms(problem) if "z" in temporaries else (None, None)
    plans: dict[Any, _Plan] = {}

    def planned(layouts: Mapping[str, Layout]) -> _Plan:
        return _Plan(problem, names, {**layouts, **own})

    plans[None] = planned({name: Layout.packed(*tensors[name]) for name in matrices})

    def read(arrays: dict[str, Any]) -> tuple[_Plan, dict[str, Any]]:
        """The plan for these layouts, and the arrays that were copied for it."""
        steps = {name: strides_in_elements(arrays[name]) for name in matrices}
        layouts = {name: Layout(*tensors[name], *steps[name]) for name in matrices}
        copied = {}
        for name, layout in layouts.items():
            if not layout.usable or pointer(arrays[name]) % alignment:
                copied[name], arrays[name] = arrays[name], packed_copy(arrays[name])
                layouts[name] = Layout.packed(*tensors[name])
        key = tuple(layouts.items())
        plan = plans.get(key)
        if plan is None:
            plan = plans[key] = planned(layouts)
        return plan, copied

    def run(*arguments: Any) -> None:
        arrays = dict(zip(names, arguments, strict=False))
        plan: _Plan = plans[None]
        copied: dict[str, Any] = {}
        if not all(
            contiguous(each) and not pointer(each) % alignment for each in arguments[: len(given)]
        ):
            plan, copied = read(arrays)
        if before is not None:
            before(arrays, arguments[-1])
        addresses = [pointer(arrays[name]) for name in names]
        with BlasHandle(addresses[-1], room_bytes) as handle:
            for step in plan.steps:
                step(handle, addresses)
        if after is not None:
            after(arrays, arguments[-1])
        for name, target in copied.items():
            if name in outputs:
                target[...] = arrays[name]

    return run


def _norms(problem: Any) -> tuple[Any, Any]:
    """From x to z, and from grad_z to grad_x; with the residual on the way where there is one."""
    sizes, dtype = (problem.sizes["N"], problem.sizes["D"]), problem.dtype
    config = norm_config(sizes[1], dtype)
    residual = bool(problem.flags.get("residual"))

    def bound(names: Mapping[str, str], *entries: str) -> Callable[[Arrays, float], None]:
        run = norm_launches(sizes, dtype, config, list(names), entries)
        arrays = list(names.values())
        return lambda given, eps: run(*(given[name] for name in arrays), eps)

    copied = {"sum": "out"} if residual else {}
    forward = bound({"x": "x", "weight": "weight", "out": "z", **copied}, "normalise")
    if not any(tensor.name == "grad_out" for tensor in problem.operation.inputs):
        return forward, None
    names = {
        **{"x": "x", "weight": "weight", "grad_out": "grad_z", "grad_x": "grad_x"},
        **{"grad_weight": "grad_weight", "parts": "weight_parts"},
        **({"above": "grad_out"} if residual else {}),
    }
    return forward, bound(names, "backward_rows", "sum_parts")
