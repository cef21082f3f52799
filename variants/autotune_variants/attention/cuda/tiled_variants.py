"""Tiled attention on CUDA: online softmax, asynchronous copies, matrix units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune import Choice, Intermediate, Pass, Unit
from autotune.model import Operation
from autotune_variants.attention.cuda import tiled_passes as passes
from autotune_variants.attention.cuda import tiled_space as space
from autotune_variants.attention.cuda.arguments import Run
from autotune_variants.attention.cuda.declared import declare
from autotune_variants.attention.cuda.tiled import Form, Step, tiled
from autotune_variants.attention.operations import attention, attention_backward, attention_train

_ALONE, _FORWARD, _BACKWARD = space.ALONE, space.FORWARD, space.BACKWARD
_LONG = "max(Nq, Nk) > 1024"  # below, a launch saved outweighs the rest
_JOINED = Choice("joined", (True, False))  # both sweeps of the backward in one launch
_SPREAD = Choice("spread", (False, True))  # copies issued between products, not before them


@dataclass(frozen=True, slots=True)
class Family:
    """Kernels of one arithmetic: its dtypes and unit, and where its search starts (split, step)."""

    name: str
    doc: str
    dtypes: tuple[str, ...]
    forward: tuple[int, int]
    backward: tuple[int, int]
    unit: Unit
    atomic_forward: tuple[int, int] = (2, 64)
    atomic_backward: tuple[int, int] = (2, 64)
    atomic: bool = True
    stored: bool = False
    simt: bool = False


FAMILIES = (
    Family(
        "cuda_dmma",
        "float64 matrix units",
        ("float64",),
        forward=(2, 64),
        backward=(2, 64),
        unit=Unit("matrix"),
        atomic_forward=(3, 96),
        atomic_backward=(2, 32),
        stored=True,
    ),
    Family(
        "cuda_tf32x3",
        "three TF32 products for one of float32",
        ("float32",),
        forward=(2, 128),
        backward=(2, 64),
        unit=Unit("matrix", "tf32", 3),
        atomic_forward=(2, 128),
        stored=True,
    ),
    Family(
        "cuda_mma",
        "products of 16-bit tensors as they are, of weights as TF32",
        ("bfloat16", "float16"),
        forward=(2, 128),
        backward=(2, 64),
        unit=Unit("matrix", "tf32"),
        atomic=False,
    ),
    Family(
        "cuda_simt",
        "float32 multiply-adds",
        ("float32",),
        forward=(2, 64),
        backward=(2, 64),
        unit=Unit("vector"),
        atomic=False,
        simt=True,
    ),
)


def _declare(
    operation: Operation,
    family: Family,
    form: Form,
    *,
    how: str,
    declared: tuple[Pass, ...],
    temporaries: tuple[Intermediate, ...] = (),
    tunables: tuple[Any, ...],
    constraints: tuple[str, ...],
    steps: Any,
) -> None:
    kept = [array.name for array in temporaries]

    def build(problem: Any, config: Mapping[str, Any]) -> Run:
        return tiled(problem, config, steps(config), form, kept)

    name = family.name + ("_atomic" if form.atomic else "") + ("_stored" if form.stored else "")
    declare(
        operation,
        name,
        build,
        doc=f"{how}; {family.doc}.",
        dtypes=family.dtypes,
        passes=declared,
        intermediates=temporaries,
        tunables=(*space.COMMON, *tunables),
        unit=family.unit,
        constraints=(*space.ADMITTED, *constraints),
    )


def _forward(family: Family) -> None:
    _declare(
        attention,
        family,
        Form(simt=family.simt),
        how="Blocks of queries, online softmax over the keys",
        declared=(passes.forward(_ALONE, writes={"out": "owned", "lse": "owned"}),),
        tunables=space.tiles(_ALONE, *family.forward),
        constraints=(
            *space.forward_constraints(_ALONE),
            space.single_stage(_ALONE.forward_bytes("2")),
        ),
        steps=lambda config: (Step("forward", _ALONE),),
    )


def _sweeps(config: Mapping[str, Any], own: space.Pass, form: Form) -> tuple[Step, ...]:
    if form.atomic:
        return (Step("backward_columns", own),)
    if config["joined"]:
        return (Step("backward_both", own),)
    return (Step("backward_columns", own), Step("backward_rows", own))


def _sweep_passes(own: space.Pass, form: Form) -> tuple[Pass, ...]:
    columns = passes.columns(own, atomic=form.atomic, stored=form.stored)
    return (columns,) if form.atomic else (columns, passes.rows(own, stored=form.stored))


def _sweep_tunables(form: Form) -> tuple[Choice, ...]:
    return (*(() if form.atomic else (_JOINED,)), *(() if form.stored or form.simt else (_SPREAD,)))


def _sweep_constraints(own: space.Pass, form: Form) -> tuple[str, ...]:
    extra = f"{space.CHUNK} // 2 + 32" if form.simt else "0"
    spread = () if form.stored or form.simt else (f"not spread or (stages == 2 and {_LONG})",)
    joined = () if form.atomic else (f"joined or {_LONG}",)
    needed = space.backward_constraints(own, atomic=form.atomic, extra=extra)
    return (*needed, *joined, *spread)


def _backward(family: Family, form: Form) -> None:
    split, step = family.atomic_backward if form.atomic else family.backward
    gq = "GQ by atomics" if form.atomic else "GQ by a sweep over rows"
    _declare(
        attention_backward,
        family,
        form,
        how=f"Blocks of keys for GK and GV, {gq}, weights recomputed",
        declared=(passes.prepare(atomic=form.atomic), *_sweep_passes(_ALONE, form)),
        temporaries=(passes.DELTA, passes.SHIFT, passes.INVERSE),
        tunables=(*space.tiles(_ALONE, split, step), *_sweep_tunables(form)),
        constraints=(
            *_sweep_constraints(_ALONE, form),
            space.single_stage(_ALONE.column_bytes(form.atomic, "2")),
        ),
        steps=lambda config: (Step("prepare", _ALONE), *_sweeps(config, _ALONE, form)),
    )


def _train(family: Family, form: Form) -> None:
    forward, backward = family.forward, family.backward
    if form.atomic:
        forward, backward = family.atomic_forward, family.atomic_backward
    gq = "GQ by atomics" if form.atomic else "GQ by a sweep over rows"
    stored = "weights stored" if "float64" in family.dtypes else "scores stored"
    scores = f"{stored} by the forward" if form.stored else "weights recomputed"
    first = passes.forward_train(_FORWARD, atomic=form.atomic, stored=form.stored)
    vectors = (passes.DELTA, passes.SHIFT, passes.INVERSE)

    def steps(config: Mapping[str, Any]) -> tuple[Step, ...]:
        # blocks that hold only a part of each row cannot sum delta: a kernel of its own does
        delta = () if config["chunks"] == 1 else (Step("prepare_train", _FORWARD),)
        return (Step("forward_train", _FORWARD), *delta, *_sweeps(config, _BACKWARD, form))

    _declare(
        attention_train,
        family,
        form,
        how=f"Forward, then blocks of keys for GK and GV, {gq}, {scores}",
        declared=(first, *_sweep_passes(_BACKWARD, form)),
        temporaries=(*vectors, *((passes.SCORES,) if form.stored else ())),
        tunables=(
            *space.tiles(_FORWARD, *forward),
            *space.tiles(_BACKWARD, *backward),
            *_sweep_tunables(form),
        ),
        constraints=(
            *space.forward_constraints(_FORWARD),
            *_sweep_constraints(_BACKWARD, form),
            space.single_stage(
                _FORWARD.forward_bytes("2"), _BACKWARD.column_bytes(form.atomic, "2")
            ),
            *(("chunks == 1",) if form.stored else ()),
        ),
        steps=steps,
    )


for _family in FAMILIES:
    _forward(_family)
    for _atomic in (False, True) if _family.atomic else (False,):
        _backward(_family, Form(_atomic, simt=_family.simt))
        for _stored in (False, True) if _family.stored else (False,):
            _train(_family, Form(_atomic, _stored, _family.simt))
