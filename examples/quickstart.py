"""Tune one problem for a few seconds, then call what won.

python examples/quickstart.py
"""

from __future__ import annotations

import numpy as np

from autotune import attention, dispatch, tune


def main() -> None:
    shape = (1, 2, 256, 64)  # B, H, N, D
    tune(attention, shape, dtype="float32", budget="5s")

    kernel = dispatch(attention, shape, dtype="float32")
    print(kernel.explain())

    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for _ in range(3))
    out = kernel(q, k, v)
    out, lse = kernel(q, k, v, residuals=True)
    print(f"{kernel.variant} [{kernel.config}] ({kernel.origin}): out {out.shape}, lse {lse.shape}")


if __name__ == "__main__":
    main()
