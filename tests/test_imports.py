"""Who may import whom, and what `import autotune` must not pull in."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {
    "autotune_variants": ROOT / "variants" / "autotune_variants",
    "autotune": ROOT / "autotune",
    "autotune_policies": ROOT / "policies" / "autotune_policies",
    "autotune_tuning_db": ROOT / "tuning_db" / "autotune_tuning_db",
}
ORDER = list(PACKAGES)
HEAVY = ("optuna", "numba", "cupy", "torch", "sqlalchemy", "rich", "typer", "numpy", "sqlite_utils")


def imported_packages(path: Path) -> set[str]:
    """Top-level names that a module imports anywhere in its code."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("package", ORDER)
def test_arrows_between_the_folders_run_one_way(package: str) -> None:
    above = set(ORDER[: ORDER.index(package)])
    modules = sorted(PACKAGES[package].rglob("*.py"))
    assert modules
    for module in modules:
        upward = imported_packages(module) & above
        assert not upward, f"{module.relative_to(ROOT)} imports {upward}"


FACES, TUNING, SERVING = (
    {"cli", "report"},
    {"campaign", "search"},
    {"lookup", "serving", "kernel"},
)
BELOW = {
    "model": FACES | TUNING | SERVING | {"worker", "device", "registry", "timing", "verify"},
    "device": FACES | TUNING | SERVING | {"worker", "registry", "timing", "verify"},
    "registry": FACES | TUNING | SERVING | {"worker", "timing", "verify", "plugins"},
    "search": FACES | SERVING | {"campaign", "worker"},
    "worker": FACES | SERVING | {"campaign", "search"},
    "campaign": FACES,
    "trials": FACES | SERVING,
    "candidates": FACES | TUNING,
    "accept": FACES | {"search"},
    "scaling": FACES | {"search"},
}


@pytest.mark.parametrize("layer", sorted(BELOW))
def test_layers_inside_the_engine_import_downward_only(layer: str) -> None:
    home = ROOT / "autotune" / layer
    modules = sorted(home.rglob("*.py")) if home.is_dir() else [home.with_suffix(".py")]
    for module in modules:
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("autotune."):
                part = str(node.module).split(".")[1]
                assert part not in BELOW[layer], f"{module.relative_to(ROOT)} imports {part}"


def modules_after(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after running `code`."""
    script = f"{code}\nimport sys; print(*{{name.split('.')[0] for name in sys.modules}})"
    return set(subprocess.check_output([sys.executable, "-c", script], text=True).split())


def test_importing_autotune_is_light() -> None:
    loaded = modules_after("import autotune")
    assert not loaded & set(HEAVY)


def test_registering_the_builtin_variants_compiles_nothing() -> None:
    loaded = modules_after("import autotune; autotune.attention")
    assert not loaded & {"optuna", "numba", "cupy", "torch", "sqlalchemy"}


def test_dispatch_never_imports_optuna(private_home: Path) -> None:
    code = (
        "import logging; logging.disable()\n"
        "from autotune import attention, dispatch\n"
        "dispatch(attention, (1, 1, 16, 8), dtype='float32')"
    )
    assert not modules_after(code) & {"optuna", "torch", "cupy", "sqlalchemy"}
