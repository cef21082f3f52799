"""Tuned normalisation and gated MLP on this GPU beside PyTorch, forward plus backward, in one run.

    python benchmarks/norm_mlp_gpu.py [--dtype float64 ...] [--tokens 64 ...] [--tune 20s]

Device time by events around eager calls, the L2 overwritten before each; ours also replayed as a
CUDA graph. Needs torch (the benchmark only). Without --tune the policies at hand serve; with
--tokens only those numbers of tokens, at the study's widths.
"""

from __future__ import annotations

import torch
from gpu_clock import Clock, keep
from torch_models import norm_mlp
from training_gpu import arguments, beside

import autotune
from autotune import tune

NARROW = (8192, 131_072)
"""Tokens at the study's widths."""
WIDE = [{"N": 8192, "D": 4096, "F": 14336}]
"""Those of a model of 8 billion parameters; in 16 bits."""


def main() -> None:
    parser = arguments(__doc__, "norm_mlp_gpu")
    parser.add_argument("--tokens", type=int, nargs="+")
    options = parser.parse_args()
    narrow = [{"N": n, "D": 64, "F": 256} for n in options.tokens or NARROW]
    wide = [] if options.tokens else WIDE
    operation, clock, rows = autotune.norm_mlp_train, Clock(), []
    for dtype in options.dtype:
        for dims in narrow + (wide if getattr(torch, dtype).itemsize == 2 else []):
            if options.tune:
                tune(operation, dims=dims, dtype=dtype, device="cuda", budget=options.tune)
            rows.append(beside(clock, operation, norm_mlp, dims, dtype, options))
            torch.cuda.empty_cache()
            keep(options.name, rows)


if __name__ == "__main__":
    main()
