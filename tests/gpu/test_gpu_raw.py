"""A raw kernel of CuPy's whose included file is edited: the next process runs the new code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gpu

PROGRAM = """
import sys
import cupy
from autotune.device import find_device
from autotune.execution import Executable
from autotune.model import Operation, Problem, Variant
from autotune.model.operation import parse_tensors

TEXT = '''
#include "factor.cuh"
extern "C" __global__ void scale(const double* x, double* y) {
    y[threadIdx.x] = FACTOR * x[threadIdx.x];
}
'''

def build(problem, config):
    kernel = cupy.RawKernel(TEXT, "scale", options=("-I" + sys.argv[1],))
    def run(x, y):
        kernel((1,), (x.size,), (x, y))
    return run

tensors = parse_tensors("x[N]"), parse_tensors("y[N]")
operation = Operation("thing", ("N",), *tensors, reference=print, plain=print)
variant = Variant("v", operation, build, source=build, device="cuda")
x, y = cupy.ones(8), cupy.zeros(8)
Executable(variant, Problem.of(operation, (8,), "float64"), {}, find_device("cuda"))(x, y)
print(float(y[0]))
"""


def test_an_edited_header_is_not_missed(device: Any, tmp_path: Path) -> None:
    env = {**os.environ, "CUPY_CACHE_DIR": str(tmp_path / "cupy")}
    for factor in (2.0, 3.0):
        (tmp_path / "factor.cuh").write_text(f"#define FACTOR {factor}\n")
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path)],
            capture_output=True,
            text=True,
            env=env,
            timeout=120,
            check=False,
        )
        assert done.stdout == f"{factor}\n", done.stderr
