"""y = 2 x on a GPU: good and bad variants for the tests of the measuring process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autotune import Choice, Intermediate, Pass, PowerOfTwo, operation, variant
from autotune.cuda import CudaSource, pointer

SOURCE = CudaSource(Path(__file__).parent / "gpu_scale.cu")
OWNED = (Pass("scale", parallel={"N": 1}, reads=("x",), writes={"y": "owned"}),)
BLOCK = PowerOfTwo("block", 32, 2048, default=256)


@operation(inputs="x[N]", outputs="y[N]")
def gpu_scale(x: Any) -> Any:
    """Twice x."""
    return x * 2


def _run(problem: Any, config: Mapping[str, Any], entry: str, factor: str = "2.0f") -> Any:
    count, block = problem.sizes["N"], int(config["block"])
    launch = SOURCE.kernel(entry, {"FACTOR": factor}).launcher(
        grid=(min(-(-count // block), 1056),), block=(block,), arguments="PPqi"
    )
    repeats = int(config.get("repeats", 1))

    def run(x: Any, y: Any, *_: Any) -> None:
        launch(pointer(x), pointer(y), count, repeats)

    return run


Build = Callable[..., Any]


@variant(
    *(gpu_scale, "honest"),
    device="cuda",
    passes=OWNED,
    tunables=(BLOCK, Choice("repeats", (1, 200))),
)
def honest(problem: Any, config: Mapping[str, Any]) -> Any:
    return _run(problem, config, "scale")


@variant(gpu_scale, "wrong", device="cuda", passes=OWNED, tunables=(BLOCK,))
def wrong(problem: Any, config: Mapping[str, Any]) -> Any:
    return _run(problem, config, "scale", "3.0f")


@variant(gpu_scale, "uncompilable", device="cuda", passes=OWNED, tunables=(BLOCK,))
def uncompilable(problem: Any, config: Mapping[str, Any]) -> Any:
    return _run(problem, config, "scale", "no_such_name")


@variant(gpu_scale, "beyond", device="cuda", passes=OWNED, tunables=(BLOCK,))
def beyond(problem: Any, config: Mapping[str, Any]) -> Any:
    return _run(problem, config, "beyond")


@variant(gpu_scale, "illegal", device="cuda", passes=OWNED, tunables=(BLOCK,))
def illegal(problem: Any, config: Mapping[str, Any]) -> Any:
    return _run(problem, config, "illegal")


@variant(gpu_scale, "trap", device="cuda", passes=OWNED, tunables=(BLOCK,))
def trap(problem: Any, config: Mapping[str, Any]) -> Any:
    return _run(problem, config, "trap")


@variant(
    *(gpu_scale, "greedy"),
    device="cuda",
    passes=OWNED,
    tunables=(BLOCK,),
    intermediates=(Intermediate("heap", ("N", 1 << 26)),),
)
def greedy(problem: Any, config: Mapping[str, Any]) -> Any:
    return _run(problem, config, "scale")
