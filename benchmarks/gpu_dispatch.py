"""Host time of dispatch plus launch on a GPU, part by part, beside a bare CuPy launch.

Every line ends with its ratio to the bare launch and the microseconds that it takes more.

python benchmarks/gpu_dispatch.py          # results/gpu_dispatch.json, or $OUT
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from common import gpu_facts, median_interval, write

import autotune
from autotune import dispatch, operation, variant
from autotune.cuda import CudaSource, pointer
from autotune.cuda.streams import capturing
from autotune.model import Pass
from autotune.model.space import default_config
from autotune.registry import registry

SOURCE = CudaSource(Path(__file__).with_name("gpu_dispatch.cu"))
BARE = "bare CuPy RawKernel"
CALLS, ROUNDS = 100, 60  # 100 launches fit the queue of the device, so that none has to wait
COUNT = 1024


@operation(inputs="x[N]", outputs="y[N]", scalars={"factor": 2.0}, name="gpu_dispatch_scale")
def scale(x: Any, *, factor: float) -> Any:
    """factor * x."""
    return factor * x


@variant(
    scale,
    "cuda_scale",
    device="cuda",
    dtypes=("float32",),
    passes=[Pass("scale", parallel=("N",), reads=("x",), writes={"y": "owned"})],
)
def cuda_scale(problem: Any, config: Any) -> Any:
    """One launch, packed."""
    count = problem.sizes["N"]
    launch = SOURCE.kernel("scale").launcher(
        grid=(-(-count // 128),), block=(128,), arguments="PPqf"
    )

    def run(x: Any, y: Any, factor: float) -> None:
        launch(pointer(x), pointer(y), count, factor)

    return run


def host_seconds(functions: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """Seconds per call on the host, interleaved; the device is idle when each round starts."""
    synchronize = import_module("cupy").cuda.runtime.deviceSynchronize
    samples: dict[str, list[float]] = {name: [] for name in functions}
    for number in range(ROUNDS + 3):
        for name, function in functions.items():
            synchronize()
            begin = time.perf_counter()
            for _ in range(CALLS):
                function()
            elapsed = time.perf_counter() - begin
            if number >= 3:
                samples[name].append(elapsed / CALLS)
    synchronize()
    return samples


def launches(cupy: Any) -> dict[str, Callable[[], Any]]:
    """One launch, from the barest way to the whole of dispatch."""
    x, y = cupy.ones(COUNT, "float32"), cupy.empty(COUNT, "float32")
    raw = cupy.RawKernel(SOURCE.text, "scale", options=("-std=c++17",))
    count, factor = cupy.int64(COUNT), cupy.float32(2.0)
    launch = SOURCE.kernel("scale").launcher(grid=(8,), block=(128,), arguments="PPqf")
    kernel = dispatch(scale, x)
    assert kernel.variant == "cuda_scale", kernel.explain()
    assert (kernel(x) == 2 * x).all()
    first, second = pointer(x), pointer(y)
    return {
        BARE: lambda: raw((8,), (128,), (x, y, count, factor)),
        "launcher, addresses in hand": lambda: launch(first, second, COUNT, 2.0),
        "launcher, arrays in hand": lambda: launch(pointer(x), pointer(y), COUNT, 2.0),
        "kernel(x, out=y)": lambda: kernel(x, out=y),
        "kernel(x)": lambda: kernel(x),
        "dispatch(scale, x)": lambda: dispatch(scale, x),
        "dispatch(scale, x)(x, out=y)": lambda: dispatch(scale, x)(x, out=y),
        "dispatch(scale, x)(x)": lambda: dispatch(scale, x)(x),
        "parts: cupy.empty": lambda: cupy.empty(COUNT, "float32"),
        "parts: cupy.ndarray": lambda: cupy.ndarray((COUNT,), y.dtype),
        "parts: current stream": lambda: cupy.cuda.get_current_stream().ptr,
        "parts: current device": cupy.cuda.runtime.getDevice,
        "parts: capturing()": capturing,
        "parts: pointer(x)": lambda: pointer(x),
        "an empty lambda": lambda: None,
    }


def served_by(kernel: Any, name: str) -> Any:
    """The kernel with a variant's default config, as if that had been measured the fastest."""
    candidate = registry.variant(kernel.operation, name)
    config = default_config(candidate, kernel.problem, kernel.device)
    assert config is not None, f"{name} has no config for {kernel.problem}"
    seat = kernel._seat  # nothing is built yet
    seat.served = replace(seat.served, candidate=candidate, config=config)
    return kernel


def attention_calls(cupy: Any, dtype: str, n: int, name: str) -> dict[str, Callable[[], Any]]:
    """The forward pass by one variant."""
    shape = (2, 1, n, 64)
    rng = cupy.random.default_rng(0)
    q, k, v = (rng.standard_normal(shape, dtype="float32").astype(dtype) for _ in range(3))
    attention = autotune.attention
    kernel = served_by(dispatch(attention, q, k, v), name)
    out, lse = kernel(q, k, v, residuals=True)
    assert kernel.variant == name, kernel.explain()
    call, weight = kernel.served.build().call, 0.125
    what = f"attention {dtype} N={n} ({name})"
    return {
        f"{what}: variant alone": lambda: call(q, k, v, out, lse, weight),
        f"{what}: dispatch": lambda: dispatch(attention, q, k, v),
        f"{what}: kernel(q, k, v)": lambda: kernel(q, k, v),
        f"{what}: kernel(..., out=out)": lambda: kernel(q, k, v, out=out),
        f"{what}: kernel(..., out=(out, lse))": lambda: kernel(q, k, v, out=(out, lse)),
        f"{what}: dispatch and call": lambda: dispatch(attention, q, k, v)(q, k, v),
        f"{what}: dispatch and call, out=(out, lse)": lambda: dispatch(attention, q, k, v)(
            q, k, v, out=(out, lse)
        ),
    }


def torch_calls(torch: Any, n: int) -> dict[str, Callable[[], Any]]:
    """The same with tensors, beside torch's own attention."""
    q, k, v = (torch.randn(2, 1, n, 64, device="cuda").half() for _ in range(3))
    x = torch.ones(COUNT, device="cuda")
    y = torch.empty_like(x)
    attention, sdpa = autotune.attention, torch.nn.functional.scaled_dot_product_attention
    kernel, scaled = served_by(dispatch(attention, q, k, v), "cuda_mma"), dispatch(scale, x)
    out, lse = kernel(q, k, v, residuals=True)
    what = f"torch: attention float16 N={n} ({kernel.variant})"
    assert bool((scaled(x) == 2 * x).all())
    return {
        "torch: x * 2": lambda: x * 2,
        "torch: torch.mul(x, 2, out=y)": lambda: torch.mul(x, 2, out=y),
        "torch: dispatch(scale, x)(x)": lambda: dispatch(scale, x)(x),
        "torch: dispatch(scale, x)(x, out=y)": lambda: dispatch(scale, x)(x, out=y),
        f"{what}: kernel(..., out=(out, lse))": lambda: kernel(q, k, v, out=(out, lse)),
        f"{what}: dispatch and call": lambda: dispatch(attention, q, k, v)(q, k, v),
        f"torch: scaled_dot_product_attention float16 N={n}": lambda: sdpa(q, k, v),
    }


def main() -> None:
    cupy = import_module("cupy")
    groups = [launches(cupy), attention_calls(cupy, "float32", 512, "cuda_stored")]
    groups.append(attention_calls(cupy, "float64", 512, "cuda_dmma"))
    groups.append(attention_calls(cupy, "float16", 512, "cuda_mma"))
    try:
        groups.append(torch_calls(import_module("torch"), 512))
    except ImportError:
        print("torch is absent")
    rows: list[dict[str, Any]] = []
    bare = 0.0
    for group in groups:
        for what, samples in host_seconds(group).items():
            middle, low, high = median_interval(samples)
            best = min(samples)
            bare = middle if what == BARE else bare
            rows.append(
                {
                    "what": what,
                    "median_us": middle * 1e6,
                    "low_us": low * 1e6,
                    "high_us": high * 1e6,
                    "min_us": best * 1e6,
                    "to_bare": middle / bare,
                }
            )
            print(
                f"{what:66s} {middle * 1e6:7.2f} us  (least {best * 1e6:.2f})  "
                f"{middle / bare:5.2f} x bare, {(middle - bare) * 1e6:+6.2f} us",
                flush=True,
            )
    write("gpu_dispatch", rows, packages=("cupy", "torch"), **gpu_facts())


if __name__ == "__main__":
    main()
