"""An operation with kernels in C: one that is right and one that does not compile."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autotune import Placement, Threads, operation, variant
from autotune.native import NativeSource, build_tunables, needs_compiler

FOLDER = Path(os.environ.get("NATIVE_PLUGIN_SOURCES", "."))  # workers of later tests load it too


@operation(inputs="x[N]", outputs="y[N]", scalars={"factor": 2.0})
def native_triple(x: Any, *, factor: float) -> Any:
    """y = 3 * factor * x."""
    return np.asarray(3 * factor * x)


def declare(name: str, entry: str) -> None:
    """A variant whose source is NAME.c."""
    source = NativeSource(FOLDER / f"{name}.c")

    def build(problem: Any, config: Mapping[str, Any]) -> Callable[..., None]:
        return source.kernel(entry, problem, config, (0,))

    variant(
        native_triple,
        name,
        tunables=(*build_tunables("c"), Threads(), Placement()),
        requires=(needs_compiler("c"),),
        deterministic=True,
    )(build)


declare("scale", "scale")
declare("broken", "scale")
