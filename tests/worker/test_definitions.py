"""A measuring process declares what the process that started it has declared, and no copies."""

from __future__ import annotations

import json
import subprocess
import sys

from autotune.fingerprint import fingerprint
from autotune.plugins import load_plugins
from autotune.registry import registry
from autotune.worker.definitions import describe

_ASKED = ("transformer_block", "transformer_block_train", "gated_mlp")
_TOLD = f"""
import json, sys
from autotune.fingerprint import fingerprint
from autotune.registry import registry
from autotune.worker.definitions import load
load(json.load(sys.stdin))
told = [(name, v) for name in {_ASKED} for v in registry.variants(name)]
print(json.dumps({{f"{{name}}/{{v.name}}": fingerprint(v) for name, v in told}}))
"""


def test_variants_declared_in_a_loop_have_the_same_fingerprint_in_a_measuring_process() -> None:
    load_plugins()
    described = json.dumps(describe())
    command = [sys.executable, "-c", _TOLD]
    done = subprocess.run(command, input=described, capture_output=True, text=True, check=True)
    here = {f"{name}/{v.name}": fingerprint(v) for name in _ASKED for v in registry.variants(name)}
    assert json.loads(done.stdout.splitlines()[-1]) == here  # plugins of other tests may print
