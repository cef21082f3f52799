"""Variants on CUDA: the study's arrangements, and what it left out ("cuda_arranged")."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autotune.model import Operation
from autotune_variants.attention.cuda import arrangements_stages as stages
from autotune_variants.attention.cuda import arrangements_table as table
from autotune_variants.attention.cuda.arrangements import Run, Stage, arranged
from autotune_variants.attention.cuda.declared import declare
from autotune_variants.attention.operations import attention, attention_backward, attention_train

_WIDE, _NARROW = ("float64", "float32"), ("bfloat16", "float16")

# The study's forms, one row or column a block, features outermost in column passes.
STUDY = {
    "separate": "A stored; GV by columns, then GQ with GK atomic, GS a temporary of the row",
    "separate_stored": "A stored; GV by columns, then GQ with GS stored, GK by columns",
    "v2": "everything of a row at once, GV and GK atomic, no N x N array",
    "v3": "A and GS stored; GV by columns, GK atomic",
    "v4": "A and GS stored; GV and GK by columns, no atomics",
}
# The same with tiles of rows and columns and sums on chip, and what the study left out.
ARRANGED = {
    **STUDY,
    "gs_recomputed": "A stored; GS recomputed by the row and the column pass that need it",
    "recomputed": "no N x N array: A and GS recomputed by a column and a row pass",
    "gq_atomic": "no N x N array: GK and GV by columns, GQ atomic",
    "copies": "everything of a row at once, GV and GK into a copy for each split, then summed",
}
_ATOMIC = ("separate", "v2", "v3", "gq_atomic")


def _declare(
    operation: Operation,
    name: str,
    sequence: tuple[Stage, ...],
    dtypes: tuple[str, ...],
    doc: str,
    *,
    study: bool,
) -> None:
    given = tuple(tensor.name for tensor in (*operation.inputs, *operation.outputs))
    arrays = table.temporaries(sequence, given)

    def build(problem: Any, config: Mapping[str, Any]) -> Run:
        return arranged(problem, config, sequence, [array.name for array in arrays])

    declare(
        operation,
        name,
        build,
        doc=f"{doc[0].upper()}{doc[1:]}.",
        dtypes=dtypes,
        passes=tuple(stage.declared for stage in sequence),
        intermediates=arrays,
        tunables=table.tunables(sequence, study),
        constraints=table.constraints(sequence, study),
    )


def _declare_all(operation: Operation, stages_of: Callable[[str, bool], tuple[Stage, ...]]) -> None:
    for prefix, forms in (("cuda", STUDY), ("cuda_arranged", ARRANGED)):
        study = forms is STUDY
        for arrangement, doc in forms.items():
            name, atomic = f"{prefix}_{arrangement}", arrangement in _ATOMIC
            dtypes = _WIDE if atomic else (*_WIDE, *_NARROW)
            _declare(operation, name, stages_of(arrangement, False), dtypes, doc, study=study)
            if atomic:
                doc = f"{doc}; sums in float32, then rounded"
                sequence = stages_of(arrangement, True)
                _declare(operation, f"{name}_16bit", sequence, _NARROW, doc, study=study)


_declare(
    attention,
    "cuda_stored",
    (stages.FORWARD_STORED_LSE,),
    (*_WIDE, *_NARROW),
    "a row a block, A stored (the study's forward)",
    study=True,
)
_declare(
    attention,
    "cuda_arranged_stored",
    (stages.FORWARD_STORED_LSE,),
    (*_WIDE, *_NARROW),
    "a tile of rows a block, A stored",
    study=False,
)
_declare(
    attention,
    "cuda_arranged_scratch",
    (stages.FORWARD,),
    (*_WIDE, *_NARROW),
    "a tile of rows a block, A in scratch",
    study=False,
)
_declare_all(attention_backward, table.backward)
_declare_all(attention_train, table.train)
