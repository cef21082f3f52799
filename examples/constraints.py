"""Ask for a kernel under constraints: determinism, workspace, error.

python examples/constraints.py
"""

from __future__ import annotations

from autotune import AutotuneError, decode, dispatch, tune


def main() -> None:
    shape = (1, 8, 4096, 64)  # B, H, N, D
    tune(decode, shape, dtype="float32", budget="4s")
    for wish in (
        {},
        {"deterministic": True},
        {"max_workspace": 64 << 10},
        {"max_error": 1e-5},
        {"max_error": 1e-30},
    ):
        try:
            kernel = dispatch(decode, shape, dtype="float32", **wish)
            print(f"{wish}: {kernel.variant} [{kernel.config}]")
        except AutotuneError as error:
            print(f"{wish}: {error}")


if __name__ == "__main__":
    main()
