"""Forward plus backward of a tuned operation on this GPU beside PyTorch: one row of a table."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

import torch
from common import served
from gpu_clock import PER_GRAPH, Clock, Run, captured
from torch_models import times

from autotune import dispatch
from autotune.model import Operation, Problem

BOUND = {"float64": 1e-9, "float32": 1e-3, "bfloat16": 6e-2, "float16": 1e-2}


def arguments(description: str | None, name: str) -> argparse.ArgumentParser:
    """The options that such benchmarks share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--dtype", nargs="+", default=["float64", "float32", "bfloat16"])
    parser.add_argument("--tune", metavar="TIME", help="tune every problem first, so long")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--compiled", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--graphs", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--name", default=name)
    return parser


def _sampled(operation: Operation, dims: Mapping[str, int], dtype: str) -> list[torch.Tensor]:
    """Inputs as the tuner draws them, on the device."""
    problem, found = Problem.of(operation, dims, dtype), []
    generator = torch.Generator(device="cuda").manual_seed(0)
    for tensor in problem.operation.inputs:
        shape = tensor.shape(problem.sizes)
        drawn = torch.randn(shape, device="cuda", dtype=torch.float32, generator=generator)
        scale = shape[0] ** -0.5 if tensor.name.startswith("w_") else 1.0
        found.append((drawn * scale).to(getattr(torch, dtype)))
    return found


def _torch_runs(
    model: Callable[..., Any], arrays: list[torch.Tensor], compiled: bool
) -> dict[str, Run]:
    """Eager, and compiled where that works."""
    *inputs, grad = (each.detach().clone() for each in arrays)
    for each in inputs:
        each.requires_grad_()

    def run(call: Callable[..., Any]) -> list[torch.Tensor]:
        out = call(*inputs)
        return [out.detach(), *torch.autograd.grad(out, inputs, grad)]

    found: dict[str, Run] = {"torch": lambda: run(model)}
    if compiled:
        faster = torch.compile(model, dynamic=False)
        try:
            run(faster)
        except Exception as error:  # whatever the compiler cannot do
            print(f"  torch.compile: {type(error).__name__}: {str(error).splitlines()[0][:90]}")
        else:
            found["torch.compile"] = lambda: run(faster)
    return found


def _check(ours: Any, theirs: list[torch.Tensor], dtype: str) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        error = float((mine.double() - other.double()).abs().max() / other.double().abs().max())
        assert error <= BOUND[dtype], f"the two do not agree: {error:.3g}"


def beside(
    clock: Clock,
    operation: Operation,
    model: Callable[..., Any],
    dims: Mapping[str, int],
    dtype: str,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """One problem: eager calls on a cold L2 on both sides, ours also replayed as a graph."""
    kernel = dispatch(operation, dims=dims, dtype=dtype, device="cuda")
    arrays = _sampled(operation, dims, dtype)
    theirs = _torch_runs(model, arrays, options.compiled)
    _check(kernel(*arrays), theirs["torch"](), dtype)
    samples = clock.interleaved({"ours": lambda: kernel(*arrays), **theirs}, options.rounds)
    row = {
        **dims,
        **{"dtype": dtype, **times(samples), **served(kernel)},
    }
    if options.graphs:
        replayed = clock.interleaved({"ours": captured(lambda: kernel(*arrays))}, options.rounds)
        row["graph_ms"] = 1e3 * sorted(replayed["ours"])[options.rounds // 2] / PER_GRAPH
    ms = ", ".join(f"{name} {median:.4f}" for name, (median, *_) in row["ms"].items())
    shape = ",".join(f"{name}={size}" for name, size in dims.items())
    ratio = "{:.3f} ({:.3f}-{:.3f})".format(*row["ratio"])
    graph = f"  graph {row['graph_ms']:.4f}" if options.graphs else ""
    print(
        f"{dtype:8s} {shape}  ms: {ms}{graph}  ratio {ratio}"
        f"  {kernel.variant} [{kernel.config}] {kernel.origin}",
        flush=True,
    )
    return row
