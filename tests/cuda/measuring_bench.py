"""A toy operation on a fake GPU: variants whose kernels do right, wrong and worse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fake_cupy as fake
import numpy as np

from autotune.cuda import CudaSource, pointer
from autotune.cuda.bench import CudaBench
from autotune.model import Intermediate, Operation, Pass, PowerOfTwo, Problem, Variant
from autotune.model.operation import parse_tensors
from autotune.registry import registry
from autotune.worker.protocol import Job, Outcome
from autotune.worker.session import Session

NAME = "fake_cuda_scale"


@dataclass(frozen=True)
class FakeGpu:
    """A GPU with a small L2 cache, so that eviction is quick on a CPU."""

    kind: str = "cuda"
    identity: str = "cuda-fake-1"
    family: str = "cuda-fake"
    label: str = "A fake GPU"
    index: int = 0
    address: str = "cuda:0"
    lock_name: str = "cuda-GPU-fake"
    card: str = "GPU-fake"
    unusable: str | None = None
    last_level_cache_bytes: int = 1 << 20
    limits: Mapping[str, int] = field(default_factory=lambda: {"compute": 90, "sms": 132})
    facts: Mapping[str, Any] = field(default_factory=dict)

    def thread_counts(self) -> tuple[int, ...]:
        return (1,)

    def placements(self) -> tuple[str, ...]:
        return ("free",)


def reference(x: Any) -> Any:
    """y = 2 x."""
    return x * 2


OWNED = (Pass("scale", parallel={"N": 1}, reads=("x",), writes={"y": "owned"}),)
Kernel = Callable[..., None]


def honest(launched: Any, x: int, y: int, count: int) -> None:
    fake.at(y, count, "f4")[...] = fake.at(x, count, "f4") * 2


def wrong(launched: Any, x: int, y: int, count: int) -> None:
    fake.at(y, count, "f4")[...] = fake.at(x, count, "f4") * 3


def lazy(launched: Any, x: int, y: int, count: int) -> None:
    fake.at(y, count - 1, "f4")[...] = fake.at(x, count - 1, "f4") * 2


def trespasser(launched: Any, x: int, y: int, count: int) -> None:
    fake.at(y, count + 1, "f4")[...] = 0
    honest(launched, x, y, count)


def vandal(launched: Any, x: int, y: int, count: int) -> None:
    honest(launched, x, y, count)
    fake.at(x, count, "f4")[0] += 1


KERNELS: dict[str, Kernel] = {
    each.__name__: each for each in (honest, wrong, lazy, trespasser, vandal)
}


@dataclass(frozen=True)
class Lab:
    """The fake, the toy operation, and a measuring session on the fake GPU."""

    cupy: Any
    operation: Operation
    session: Session

    def job(self, variant: str = "honest", *, size: int = 4096, **fields: Any) -> Job:
        problem = Problem.of(self.operation, (size,))
        given = {"budget": 0.02, "retries": 0, "config": {"block": 64}, **fields}
        return Job(problem.key.text, variant, **given)

    def measure(self, variant: str = "honest", **fields: Any) -> Outcome:
        from autotune.worker.measure import measure

        return measure(self.session, self.job(variant, **fields))


def _builder(source: CudaSource, entry: str) -> Callable[..., Any]:
    def build(problem: Problem, config: Mapping[str, Any]) -> Any:
        count, block = problem.sizes["N"], int(config["block"])
        launch = source.kernel(entry, {"BLOCK": block}).launcher(
            grid=(max(-(-count // block), 1),), block=(block,), arguments="PPq"
        )

        def run(x: Any, y: Any, scratch: Any) -> None:
            launch(pointer(x), pointer(y), count)

        return run

    build.__qualname__ = f"build_{entry}"
    return build


@contextmanager
def lab(cupy: Any, folder: Path) -> Iterator[Lab]:
    """Registers the toy operation; every kernel takes 10 us of the fake clock."""
    file = folder / "scale.cu"
    file.write_text("kernel")
    operation = Operation(
        NAME,
        ("N",),
        parse_tensors("x[N]"),
        parse_tensors("y[N]"),
        reference=reference,
        plain=reference,
        dtypes=("float32",),
    )
    registry.add_operation(operation)
    for name, kernel in KERNELS.items():
        cupy.kernel(name, "PPq")(kernel)
        cupy.costs[name] = 1e-5
        registry.add_variant(
            Variant(
                name,
                operation,
                _builder(CudaSource(file), name),
                device="cuda",
                passes=OWNED,
                intermediates=(Intermediate("scratch", ("N",)),),
                tunables=(PowerOfTwo("block", 32, 2048, default=64),),
            )
        )
    try:
        yield Lab(cupy, operation, Session(CudaBench(FakeGpu())))
    finally:
        registry._operations.pop(NAME)
        registry._variants.pop(NAME)


def random_inputs(seed: int, size: int) -> Any:
    """What a CPU would be given."""
    from autotune.inputs import make_buffers

    problem = Problem.of(registry.operation(NAME), (size,))
    return np.array(make_buffers(problem, seed).input_arrays[0])
