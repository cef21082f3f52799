"""y = 2 x on a GPU, in ways of going wrong that only a real one shows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from autotune import Pass, PowerOfTwo, operation, variant
from autotune.cuda import CudaSource, pointer

SOURCE = CudaSource(Path(__file__).parent / "gpu_scale.cu")
OWNED = (Pass("scale", parallel={"N": 1}, reads=("x",), writes={"y": "owned"}),)
BLOCK = PowerOfTwo("block", 32, 2048, default=256)


@operation(inputs="x[N]", outputs="y[N]")
def gpu_case(x: Any) -> Any:
    """Twice x."""
    return x * 2


def _run(problem: Any, config: Mapping[str, Any], entry: str, shared: int = 0) -> Any:
    count, block = problem.sizes["N"], int(config["block"])
    launch = SOURCE.kernel(entry, {"FACTOR": "2.0f"}).launcher(
        grid=(min(-(-count // block), 1056),), block=(block,), arguments="PPqi", shared=shared
    )

    def run(x: Any, y: Any) -> None:
        launch(pointer(x), pointer(y), count, 1)

    return run


@variant(gpu_case, "honest", device="cuda", passes=OWNED, tunables=(BLOCK,))
def honest(problem: Any, config: Mapping[str, Any]) -> Any:
    return _run(problem, config, "scale")


@variant(gpu_case, "illegal", device="cuda", passes=OWNED, tunables=(BLOCK,))
def illegal(problem: Any, config: Mapping[str, Any]) -> Any:
    return _run(problem, config, "illegal")


@variant(gpu_case, "misaligned", device="cuda", passes=OWNED, tunables=(BLOCK,))
def misaligned(problem: Any, config: Mapping[str, Any]) -> Any:
    return _run(problem, config, "misaligned")


@variant(gpu_case, "trap", device="cuda", passes=OWNED, tunables=(BLOCK,))
def trap(problem: Any, config: Mapping[str, Any]) -> Any:
    return _run(problem, config, "trap")


@variant(gpu_case, "too_much_shared", device="cuda", passes=OWNED, tunables=(BLOCK,))
def too_much_shared(problem: Any, config: Mapping[str, Any]) -> Any:
    return _run(problem, config, "scale", shared=300 << 10)


@variant(gpu_case, "nameless", device="cuda", passes=OWNED, tunables=(BLOCK,))
def nameless(problem: Any, config: Mapping[str, Any]) -> Any:
    return _run(problem, config, "no_such_kernel")


@variant(gpu_case, "detached", device="cuda", passes=OWNED, tunables=(BLOCK,))
def detached(problem: Any, config: Mapping[str, Any]) -> Any:
    """Right, on a stream of its own that nobody waits for."""
    run = _run(problem, config, "scale")

    def run_elsewhere(x: Any, y: Any) -> None:
        with _other_stream():
            run(x, y)

    return run_elsewhere


@cache
def _other_stream() -> Any:
    return import_module("cupy").cuda.Stream(non_blocking=True)
