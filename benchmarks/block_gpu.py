"""The transformer block on this GPU beside PyTorch, forward plus backward, in one run.

    python benchmarks/block_gpu.py [--dtype float64 ...] [--part-budget 15s] [--tune 10s]

B=2, one head, d=64, d_ff=256, as the study has it. Device time by events around eager calls, the
L2 overwritten before each; ours also replayed as a CUDA graph. With budgets the block's parts are
tuned first, then the block; without, the policies at hand serve. Needs torch (the benchmark only).
"""

from __future__ import annotations

from typing import Any

import torch
from gpu_clock import Clock, keep
from torch_models import block
from training_gpu import arguments, beside

import autotune
from autotune import dispatch, tune

B, D, F = 2, 64, 256


def tune_parts(tokens: int, dtype: str, budget: str) -> None:
    """Every operation that the block's variants ask `dispatch` for, at the sizes they ask for.

    Those that a policy answers exactly are left.
    """
    hidden = {"N": B * tokens, "D": D, "F": F}
    heads = {"B": B, "H": 1, "Hkv": 1, "N": tokens, "D": D}
    asked: list[tuple[Any, dict[str, int], dict[str, bool]]] = [
        (autotune.attention, heads, {}),
        (autotune.attention_backward, heads, {}),
        (autotune.gated_mlp_train, hidden, {}),
        (autotune.norm_mlp_train, hidden, {"residual": True}),
    ]
    for operation, dims, flags in asked:
        kernel = dispatch(operation, dims=dims, dtype=dtype, device="cuda", **flags)
        if kernel.origin != "tuned":
            tune(operation, dims=dims, dtype=dtype, device="cuda", budget=budget, **flags)


def main() -> None:
    parser = arguments(__doc__, "block_gpu")
    parser.add_argument("--part-budget", metavar="TIME", help="tune every part first, so long")
    parser.add_argument("--tokens", type=int, nargs="+", default=[512, 2048, 8192])
    options = parser.parse_args()
    operation, clock, rows = autotune.transformer_block_train, Clock(), []
    for dtype in options.dtype:
        for tokens in options.tokens:
            dims = {"B": B, "N": tokens, "D": D, "F": F}
            if options.part_budget:
                tune_parts(tokens, dtype, options.part_budget)
            if options.tune:
                tune(operation, dims=dims, dtype=dtype, device="cuda", budget=options.tune)
            rows.append(beside(clock, operation, block, dims, dtype, options))
            torch.cuda.empty_cache()
            keep(options.name, rows)


if __name__ == "__main__":
    main()
