"""Writes the tables of docs/study.md: the study's numbers beside those of the result files.

python benchmarks/study_page.py
"""

from __future__ import annotations

import compilers_table
import study_tables_cpu as cpu
import study_tables_gpu as gpu
from common import RESULTS
from tables import between

PAGE = RESULTS.parents[1] / "docs" / "study.md"


def main() -> None:
    parts = {
        "forward-gpu": gpu.forward_gpu(),
        "ratios-gpu": gpu.ratios_gpu(),
        "fastest-gpu": gpu.fastest_gpu(),
        "traffic": gpu.traffic(),
        "forward-cpu": cpu.forward_cpu(),
        "arrangements-cpu": cpu.arrangements_cpu(),
        "decode-cpu": cpu.decode_cpu(),
        "bandwidth-cpu": cpu.bandwidth_cpu(),
        "decode-gpu": gpu.decode_gpu(),
        "fortran": compilers_table.fortran(),
        "norm-mlp-cpu": cpu.beside_torch("norm_mlp_cpu", "tokens"),
        "block-cpu": cpu.block_cpu(),
        "block-torch-cpu": cpu.beside_torch("block_cpu", "N"),
        "start-cpu": cpu.start_cpu(),
    }
    text = PAGE.read_text()
    for name, lines in parts.items():
        text = between(text, name, "\n".join(lines).strip())
    PAGE.write_text(text)
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
