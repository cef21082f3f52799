"""Writes the tables of docs/study.md and docs/compilers.md from the result files.

python benchmarks/study_page.py [--check]   (--check: write nothing, end with 1 where one is old)
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import compilers_table as compilers
import goals
import study_tables_cpu as cpu
import study_tables_gpu as gpu
from common import RESULTS
from tables import between

DOCS = RESULTS.parents[1] / "docs"


def pages() -> Mapping[str, Mapping[str, Sequence[str]]]:
    """The lines of every table, by page and marker."""
    study = {
        "goals": goals.study(),
        "traffic": gpu.traffic(),
        "sweeps": gpu.sweeps(),
        "forward-gpu": gpu.forward_gpu(),
        "backward-gpu": gpu.backward_gpu(),
        "ratios-gpu": gpu.ratios_gpu(),
        "fastest-gpu": gpu.fastest_gpu(),
        "forward-cpu": cpu.forward_cpu(),
        "arrangements-cpu": cpu.arrangements_cpu(),
        "fused-threads-cpu": cpu.fused_threads_cpu(),
        "decode-cpu": cpu.decode_cpu(),
        "bandwidth-cpu": cpu.bandwidth_cpu(),
        "decode-gpu": gpu.decode_gpu(),
        "fortran": compilers.fortran(),
        "norm-mlp-cpu": cpu.beside_torch("norm_mlp_cpu", "tokens"),
        "norm-mlp-gpu": gpu.norm_mlp_gpu(),
        "weight-gradients-gpu": gpu.weight_gradients_gpu(),
        "block-cpu": cpu.block_cpu(),
        "block-torch-cpu": cpu.beside_torch("block_cpu", "N"),
        "block-gpu": gpu.block_gpu(),
        "start-cpu": cpu.start_cpu(),
    }
    return {
        "study.md": study,
        "compilers.md": {"compilers": compilers.table_of_builds()},
        "cost_model.md": {"counted": gpu.counted()},
        "attention_on_hopper.md": {"goals": goals.attention()},
    }


def main() -> None:
    old = []
    for name, parts in pages().items():
        page = DOCS / name
        text = before = page.read_text()
        for marker, lines in parts.items():
            text = between(text, marker, "\n".join(lines).strip())
        if text != before:
            old.append(name)
        if "--check" not in sys.argv[1:]:
            page.write_text(text)
    if old and "--check" in sys.argv[1:]:
        sys.exit(f"{' and '.join(old)} differ: run python benchmarks/study_page.py.")
    print(f"{', '.join(old) or 'nothing'} changed")


if __name__ == "__main__":
    main()
