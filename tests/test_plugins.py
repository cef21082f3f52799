"""Installed plugins: they are loaded when somebody names what is theirs, each of them once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOY = Path(__file__).parent / "cli" / "plugins" / "toy_scale.py"
ADDS = """
from autotune import variant
print("loading", __name__)
@variant("toy_scale", "{name}", constraints=["not reverse"])
def {name}(x, y): y[...] = 2 * x
"""
SCRIPT = f"""{ADDS.format(name="own")}
from autotune.registry import registry
print(*sorted(each.name for each in registry.variants("toy_scale")))
"""


def test_a_variant_finds_an_operation_by_name_whoever_brings_it(tmp_path: Path) -> None:
    bodies = {"before": ADDS.format(name="before"), "toy": TOY.read_text()}
    bodies["wrong"] = ADDS.format(name="x").replace("toy_scale", "toy_scole")
    for name, body in bodies.items():
        (tmp_path / f"plugin_{name}.py").write_text(body)
        info = tmp_path / f"plugin_{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: p-{name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[autotune.plugins]\n{name} = plugin_{name}\n")
    found = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{SCRIPT}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    lines = found.stdout.splitlines()
    assert lines[-1] == "before broken flipped halves noisy numpy own", found.stderr
    assert sorted(lines[:-1]) == [
        "loading __main__",
        "loading plugin_before",
        "loading plugin_wrong",
    ]
    assert found.stderr.count("'wrong'") == 1
    assert "did you mean 'toy_scale'" in found.stderr
