"""The block on a GPU: attention and MLP by `dispatch`, projections by cuBLAS, residuals fused.

The three projections are one product, with their weights side by side; so are their gradients. A
residual is added by the launch that normalises it or that takes gradients through the
normalisation. The parts are bound at the first call, each for its own problem; see ../parts.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from autotune.cuda import pointer
from autotune.cuda.arrays import kept_views
from autotune.cuda.cublas import BlasHandle, Layout, contiguous, packed_copy, product
from autotune.cuda.replayed import replayed
from autotune.cuda.streams import cupy_cuda
from autotune_variants.block.parts import Parts
from autotune_variants.mlp.cuda.columns import columns
from autotune_variants.norm.cuda.launches import norm_config, norm_launches

Run = Callable[..., None]
Arrays = dict[str, Any]
Step = Callable[[Arrays, float], None]


def run_block(
    problem: Any, temporaries: Mapping[str, tuple[int, ...]], *, atomic: bool = False
) -> Run:
    """`run(*inputs, *outputs, *temporaries, eps)`; `temporaries` are their shapes by name.

    With z2 among them the MLP is a part without the normalisation, else normalisation and MLP are
    one part. Where it may be `atomic`, parts need not repeat bitwise. Inputs that are not
    contiguous are copied, outputs made apart and copied. A call with the same contiguous arrays as
    one before is replayed as a CUDA graph: see `replayed`.
    """
    operation = problem.operation
    outputs = {tensor.name for tensor in operation.outputs}
    given = [tensor.name for tensor in (*operation.inputs, *operation.outputs)]
    names = (*given, *temporaries)
    steps = _Steps(problem, temporaries, atomic)

    def run(*arguments: Any) -> None:
        arrays = dict(zip(names, arguments, strict=False))
        copied = {name: arrays[name] for name in given if not contiguous(arrays[name])}
        for name, array in copied.items():
            arrays[name] = packed_copy(array)
        for step in steps.all:
            step(arrays, arguments[-1])
        for name in outputs & copied.keys():
            copied[name][...] = arrays[name]

    return replayed(run, len(names))


class _Steps:
    """Everything a call does, in order."""

    def __init__(
        self, problem: Any, temporaries: Mapping[str, tuple[int, ...]], atomic: bool
    ) -> None:
        self._problem, self._room, self._atomic = problem, temporaries["room"][0], atomic
        sizes = problem.sizes
        self._rows = sizes["B"] * sizes["N"]
        self._heads = (sizes["H"], sizes["Hkv"], sizes["Hkv"])
        self._widths = {
            "qkv": sum(self._heads) * sizes["Dh"],
            "heads": sizes["H"] * sizes["Dh"],
        }
        self._bound: dict[str, Any] = {}
        self._rows_of, self._by_head = kept_views(_rows), kept_views(_by_head)
        self._heads_of = kept_views(self._separate_heads)
        self._gradient_by_head = kept_views(self._shaped_by_head)
        names = {tensor.name for tensor in problem.operation.inputs}
        self._projected, self._train = "w_o" in names, "grad_out" in names
        second = self._norm_mlp() if "z2" not in temporaries else self._separate()
        self.all = (
            *self._attention(fused="z2" not in temporaries),
            *second,
            *(self._backward() if self._train else ()),
        )

    def _part(self, kind: str, operation: str) -> Any:
        """The kernel of a part, on the device of the first call."""
        kernel = self._bound.get(operation)
        if kernel is None:
            device = f"cuda:{cupy_cuda().runtime.getDevice()}"
            parts = Parts(self._problem, self._room, device, atomic=self._atomic)
            kernel = self._bound[operation] = getattr(parts, kind)(operation)
        return kernel

    def _norm(self, names: Mapping[str, str], *entries: str) -> Step:
        """Launches of the normalisation on all tokens; `names` are arrays by what they are.

        All of them are packed here, so that their own shapes do not matter.
        """
        width, dtype = self._problem.sizes["D"], self._problem.dtype
        sizes = self._rows, width
        run = norm_launches(sizes, dtype, norm_config(width, dtype), list(names), entries)
        arrays = list(names.values())
        return lambda given, eps: run(*[given[name] for name in arrays], eps)

    def _columns(self, entry: str, joined: str, parts: Sequence[str]) -> Step:
        """Weights from or to their columns of the joined matrix."""
        depth, rows = self._problem.sizes["Dh"], self._problem.sizes["D"]
        widths = [heads * depth for heads in self._heads]
        move = columns(entry, self._problem.itemsize, rows, widths)
        names = (joined, *parts)
        return lambda given, eps: move([pointer(given[name]) for name in names])

    def _separate_heads(self, qkv: Any) -> tuple[Any, ...]:
        """q, k and v (B,heads,N,Dh) of (B,N,all heads,Dh), without a copy."""
        queries, keys, _ = self._heads
        ends = (0, queries, queries + keys, queries + 2 * keys)
        return tuple(_by_head(qkv[:, :, first:last]) for first, last in pairwise(ends))

    def _shaped_by_head(self, grad: Any) -> Any:
        """Gradients of what attention gives, of whatever shape, as (B,heads,N,Dh)."""
        sizes = self._problem.sizes
        return _by_head(grad.reshape(sizes["B"], sizes["N"], sizes["H"], sizes["Dh"]))

    def _products(self, *wanted: tuple[str, str, str]) -> Step:
        """Each (a, b, c): c = a b, where a trailing ^T means the transpose."""
        places: list[str] = []

        def matrix(name: str) -> tuple[int, Layout]:
            plain = name.removesuffix("^T")
            if plain not in places:
                places.append(plain)
            layout = Layout.packed(*self._shape(plain))
            return places.index(plain), layout if plain == name else layout.transposed

        dtype = self._problem.dtype
        steps = [product(dtype, matrix(a), matrix(b), matrix(c)) for a, b, c in wanted]

        def step(given: Arrays, eps: float) -> None:
            addresses = [pointer(given[name]) for name in places]
            with BlasHandle(pointer(given["room"]), self._room) as handle:
                for each in steps:
                    each(handle, addresses)

        return step

    def _shape(self, name: str) -> tuple[int, int]:
        """Rows and columns of an array as a matrix: tokens by features, or a weight."""
        features, plain = self._problem.sizes["D"], name.removeprefix("grad_")
        if plain == "w_o":
            return self._widths["heads"], features
        if plain == "w_qkv":
            return features, self._widths["qkv"]
        return self._rows, self._widths.get(plain, features)

    def _attention(self, *, fused: bool) -> Sequence[Step]:
        """z1, q, k, v, heads, lse; r = x + what attention gives, where the next part needs it."""

        def attention(given: Arrays, eps: float) -> None:
            kernel = self._part("attention", "attention")
            out = (self._by_head(given["heads"]), given["lse"])
            kernel(*self._heads_of(given["qkv"]), out=out, workspace=given["room"])

        norm = self._norm({"x": "x", "weight": "weight1", "out": "z1"}, "normalise")
        projections = self._products(("z1", "w_qkv", "qkv"))
        weights = ("w_q", "w_k", "w_v")
        steps = [norm, self._columns("join", "w_qkv", weights), projections, attention]
        if self._projected:
            steps.append(self._products(("heads", "w_o", "r")))
        if fused:
            steps.append(self._norm({"x": "x", "added": self._attended, "sum": "r"}, "add_rows"))
        return steps

    @property
    def _attended(self) -> str:
        """What the first residual is added to."""
        return "r" if self._projected else "heads"

    def _norm_mlp(self) -> Sequence[Step]:
        """From r to out, and grad_r where training."""
        operation = "norm_mlp_train" if self._train else "norm_mlp"

        def run(given: Arrays, eps: float) -> None:
            kernel = self._part("norm_mlp", operation)
            weights = [given[name] for name in ("weight2", "w_gate", "w_up", "w_down")]
            r, out = self._rows_of(given["r"]), _rows(given["out"])
            if not self._train:
                kernel(r, *weights, out=out, workspace=given["room"], eps=eps)
                return
            grads = ("grad_weight2", "grad_w_gate", "grad_w_up", "grad_w_down")
            results = (out, self._rows_of(given["grad_r"]), *(given[name] for name in grads))
            above = _rows(given["grad_out"])
            kernel(r, *weights, above, out=results, workspace=given["room"], eps=eps)

        return [run]

    def _separate(self) -> Sequence[Step]:
        """The same, normalised in the launch that adds the residual; gradients likewise."""
        operation = "gated_mlp_train" if self._train else "gated_mlp"

        def run(given: Arrays, eps: float) -> None:
            kernel = self._part("mlp", operation)
            weights = [given[name] for name in ("w_gate", "w_up", "w_down")]
            z, out = self._rows_of(given["z2"]), _rows(given["out"])
            if not self._train:
                kernel(z, *weights, out=out, workspace=given["room"])
                return
            grads = [given[name] for name in ("grad_w_gate", "grad_w_up", "grad_w_down")]
            results = (out, self._rows_of(given["grad_z2"]), *grads)
            above = _rows(given["grad_out"])
            kernel(z, *weights, above, out=results, workspace=given["room"])

        sums = {"x": "x", "added": self._attended, "sum": "r"}
        steps = [self._norm({**sums, "weight": "weight2", "out": "z2"}, "normalise"), run]
        steps.append(self._norm({"x": "r", "added": "out", "sum": "out"}, "add_rows"))
        if self._train:
            steps.append(self._norm_gradients("2", "r", "grad_r", "grad_out"))
        return steps

    def _norm_gradients(self, which: str, x: str, grad_x: str, above: str) -> Step:
        names = {
            **{"x": x, "weight": f"weight{which}", "grad_out": f"grad_z{which}"},
            **{"grad_x": grad_x, "grad_weight": f"grad_weight{which}"},
            **{"parts": "weight_parts", "above": above},
        }
        return self._norm(names, "backward_rows", "sum_parts")

    def _backward(self) -> Sequence[Step]:
        """From grad_r to grad_x and the gradients of the first normalisation and projections."""
        above = "grad_heads" if self._projected else "grad_r"

        def attention(given: Arrays, eps: float) -> None:
            inputs = (*self._heads_of(given["qkv"]), self._by_head(given["heads"]))
            grads = self._heads_of(given["grad_qkv"])
            grad_heads = self._gradient_by_head(given[above])
            kernel = self._part("attention", "attention_backward")
            arrays = (*inputs, given["lse"], grad_heads)
            kernel(*arrays, out=grads, workspace=given["room"])

        steps: list[Step] = []
        if self._projected:
            steps.append(
                self._products(("heads^T", "grad_r", "grad_w_o"), ("grad_r", "w_o^T", "grad_heads"))
            )
        return [
            *steps,
            attention,
            self._products(("z1^T", "grad_qkv", "grad_w_qkv"), ("grad_qkv", "w_qkv^T", "grad_z1")),
            self._columns("part", "grad_w_qkv", ("grad_w_q", "grad_w_k", "grad_w_v")),
            self._norm_gradients("1", "x", "grad_x", "grad_r"),
        ]


def _rows(array: Any) -> Any:
    """(B,N,D) as (B*N, D)."""
    batch, tokens, width = array.shape
    return array.reshape(batch * tokens, width)


def _by_head(array: Any) -> Any:
    """(B,N,heads,Dh) as (B,heads,N,Dh), without a copy."""
    return array.swapaxes(1, 2)
