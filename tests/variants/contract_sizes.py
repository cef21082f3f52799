"""The sizes and flags on which variants of every built-in operation are run."""

from __future__ import annotations

Sizes = dict[str, int]
Case = tuple[Sizes, dict[str, bool]]

ATTENTION = (
    *({"B": 1, "H": 2, "N": n, "D": 16} for n in (1, 7, 8, 15, 17, 63, 65, 100, 127, 129)),
    *({"B": 1, "H": 1, "N": 33, "D": d} for d in (1, 40, 64, 72, 80, 96, 112, 128, 192)),
    {"B": 2, "H": 1, "N": 300, "D": 64},
    {"B": 1, "H": 1, "Nq": 40, "Nk": 20, "D": 24, "Dv": 40},
    {"B": 1, "H": 1, "Nq": 20, "Nk": 40, "D": 40, "Dv": 3},
    {"B": 2, "H": 6, "Hkv": 2, "Nq": 20, "Nk": 35, "D": 8},
    {"B": 1, "H": 5, "Hkv": 1, "N": 19, "D": 8},
)
MASKED = (
    {"B": 1, "H": 1, "N": 100, "D": 16},
    {"B": 1, "H": 1, "N": 1, "D": 4},
    {"B": 1, "H": 1, "Nq": 2, "Nk": 5, "D": 4},
    {"B": 1, "H": 1, "Nq": 3, "Nk": 4, "D": 4},
    {"B": 1, "H": 1, "Nq": 5, "Nk": 2, "D": 4},
    {"B": 1, "H": 4, "Hkv": 2, "Nq": 150, "Nk": 40, "D": 8},
    {"B": 2, "H": 2, "Hkv": 1, "Nq": 40, "Nk": 150, "D": 8, "Dv": 20},
)
EMPTY = (
    {"B": 1, "H": 1, "Nq": 3, "Nk": 0, "D": 4},
    {"B": 1, "H": 1, "Nq": 0, "Nk": 3, "D": 4},
    {"B": 0, "H": 1, "N": 3, "D": 4},
    {"B": 1, "H": 0, "N": 3, "D": 4},
    {"B": 1, "H": 2, "N": 5, "D": 0, "Dv": 3},
    {"B": 1, "H": 2, "N": 5, "D": 3, "Dv": 0},
)
DECODE = (
    *({"B": 1, "H": 1, "N": n, "D": 64} for n in (0, 1, 7, 8, 63, 65, 1000, 2049)),
    *({"B": 1, "H": 1, "N": 33, "D": d} for d in (0, 1, 40, 72, 80, 96, 112, 128, 192)),
    {"B": 2, "H": 6, "Hkv": 2, "N": 129, "D": 24, "Dv": 17},
    {"B": 1, "H": 8, "Hkv": 1, "N": 257, "D": 64},
    {"B": 1, "H": 3, "N": 40, "D": 8, "Dv": 0},
    {"B": 0, "H": 1, "N": 9, "D": 4},
    {"B": 1, "H": 0, "N": 9, "D": 4},
)
# D = 1 is left out: u is +-1 there, and the gradient of x nothing but what rounding leaves.
NORM = (
    *({"N": n, "D": 16} for n in (1, 3, 7, 65, 300)),
    *({"N": 9, "D": d} for d in (2, 40, 129)),
    {"N": 0, "D": 4},
    {"N": 3, "D": 0},
)
MLP = (
    *({"N": n, "D": 16, "F": 24} for n in (1, 15, 33, 100)),
    {"N": 300, "D": 40, "F": 100},
    {"N": 9, "D": 4, "F": 3},
    {"N": 20, "D": 17, "F": 150},
    {"N": 20, "D": 300, "F": 70},
    {"N": 0, "D": 4, "F": 8},
    {"N": 5, "D": 0, "F": 8},
    {"N": 5, "D": 4, "F": 0},
)
BLOCK = (
    {"B": 2, "N": 33, "D": 16, "F": 24},
    {"B": 1, "N": 70, "D": 24, "F": 40, "H": 3},
    {"B": 2, "N": 20, "D": 16, "F": 8, "H": 4, "Hkv": 2},
    {"B": 1, "N": 1, "D": 8, "F": 4},
    {"B": 0, "N": 5, "D": 8, "F": 4},
    {"B": 1, "N": 0, "D": 8, "F": 4},
    {"B": 1, "N": 5, "D": 8, "F": 0},
)


def cases(operation: str) -> list[Case]:
    """Sizes and flags to run an operation's variants on."""
    if operation == "decode":
        return [(sizes, {}) for sizes in DECODE]
    if operation.startswith("rmsnorm"):
        return [(sizes, {}) for sizes in NORM]
    if operation.startswith("gated_mlp"):
        return [(sizes, {}) for sizes in MLP]
    if operation.startswith("norm_mlp"):
        return [(sizes, {"residual": number % 2 == 1}) for number, sizes in enumerate(MLP)]
    if "block" in operation:
        return [(sizes, {"causal": number % 2 == 1}) for number, sizes in enumerate(BLOCK)]
    plain: list[Case] = [(sizes, {}) for sizes in (*ATTENTION, *EMPTY)]
    return [*plain, *((sizes, {"causal": True}) for sizes in (*MASKED, *EMPTY))]


def typical(operation: str, n: int) -> Sizes:
    """Sizes of an ordinary problem of `n` tokens."""
    if operation.startswith("rmsnorm"):
        return {"N": n, "D": 64}
    if "mlp" in operation:
        return {"N": n, "D": 16, "F": 40}
    if "block" in operation:
        return {"B": 1, "N": n, "D": 16, "F": 40}
    heads = "Hkv" if operation == "kv_append" else "H"
    return {"B": 1, heads: 2, "N": n, "D": 16}
