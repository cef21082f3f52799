"""Counters from the profiler's CSV, and what is said when there are none."""

from __future__ import annotations

import math

import pytest

from autotune.profile import ProfileError, read_counters

HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
    '"Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"'
)


def row(launch: int, kernel: str, metric: str, unit: str, value: str) -> str:
    fields = [str(launch), "7", "python3", "host", kernel, "1", "7", "(128, 1, 1)", "(64, 1, 1)"]
    fields += ["0", "9.0", "Command line profiler metrics", metric, unit, value]
    return ",".join(f'"{field}"' for field in fields)


OUTPUT = "\n".join(
    [
        "==PROF== Connected to process 7 (/usr/bin/python3)",
        HEADER,
        row(0, "fused_rows(PlainArgs)", "dram__bytes_read.sum", "byte", "6,291,456"),
        row(0, "fused_rows(PlainArgs)", "dram__bytes_write.sum", "byte", "1,024"),
        row(
            0,
            "fused_rows(PlainArgs)",
            "smsp__inst_executed_op_global_red.sum",
            "inst",
            "2,097,152",
        ),
        row(0, "fused_rows(PlainArgs)", "gpu__time_duration.sum", "ns", "5,000"),
        row(
            1,
            "sum_splits(Args)",
            "sm__warps_active.avg.pct_of_peak_sustained_active",
            "%",
            "43.8",
        ),
        row(1, "sum_splits(Args)", "dram__bytes_read.sum", "Kbyte", "2"),
        row(1, "sum_splits(Args)", "dram__bytes_write.sum", "byte", "n/a"),
        row(1, "sum_splits(Args)", "gpu__time_duration.sum", "usecond", "1.5"),
    ]
)


def test_every_launch_is_read_with_its_units() -> None:
    found = read_counters(OUTPUT)
    first, second = found.kernels
    assert (first.kernel, second.kernel) == ("fused_rows", "sum_splits")
    assert first.bytes_read == 6_291_456
    assert second.bytes_read == 2000
    assert second.occupancy == pytest.approx(0.438)
    assert found.seconds == pytest.approx(6.5e-6)
    assert math.isnan(second.bytes_written)


def test_atomics_are_warp_instructions_times_the_lanes_of_a_warp() -> None:
    """The measured 2,097,152 instructions are 67,108,864 additions: 2*B*N*N*D at N=512, D=64."""
    assert read_counters(OUTPUT).atomics == 67_108_864 == 2 * 2 * 512 * 512 * 64


def test_output_without_a_launch_is_an_error_that_says_so() -> None:
    with pytest.raises(ProfileError, match="no kernel"):
        read_counters("==PROF== Connected\n==WARNING== No kernels were profiled.\n")
