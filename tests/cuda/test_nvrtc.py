"""The compiler itself, where its library is installed; no GPU and no driver are needed."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from autotune.cuda import CudaSource, nvrtc
from autotune.cuda.launch import architecture_of

try:
    nvrtc.library()
except nvrtc.CompileError as _error:
    pytest.skip(f"{_error}", allow_module_level=True)

SCALE = """
#include "real.cuh"
extern "C" __global__ void scale(const REAL* x, REAL* y, long long count, REAL factor) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < count) y[i] = factor * x[i];
}
"""


@pytest.fixture
def source(tmp_path: Path) -> CudaSource:
    (tmp_path / "scale.cu").write_text(SCALE)
    (tmp_path / "real.cuh").write_text("#ifndef REAL\n#define REAL float\n#endif\n")
    return CudaSource(tmp_path / "scale.cu")


def test_updates_of_one_version_are_told_apart_as_far_as_is_known() -> None:
    assert int(nvrtc.build()) > 1 << 20
    ctypes.CDLL("libm.so.6")
    assert nvrtc._file("libm.so.6").is_absolute()  # as one is that the loader has found
    with pytest.raises(OSError, match="libnone"):
        nvrtc._file("libnone.so.1")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_90a", "sm_100", "sm_120"])
def test_machine_code_for_every_architecture(source: CudaSource, arch: str) -> None:
    code = source.compile({"REAL": "double"}, arch=arch)
    assert code.startswith(b"\x7fELF")
    assert b"scale" in code
    assert source.compile({"REAL": "double"}, arch=arch) == code


def test_an_error_is_one_line_with_file_and_line(source: CudaSource) -> None:
    with pytest.raises(nvrtc.CompileError) as caught:
        source.compile({"REAL": "quadruple"})
    message = str(caught.value)
    assert message == (
        "scale.cu does not compile (--gpu-architecture=sm_90): "
        'scale.cu:3: identifier "quadruple" is undefined'
    )
    assert "\n" not in message
    assert len(caught.value.log.splitlines()) > 1


def test_errors_in_headers_and_missing_ones_are_named(source: CudaSource) -> None:
    header = source.path.parent / "real.cuh"
    header.write_text("__device__ int x = ;\n")
    with pytest.raises(nvrtc.CompileError, match=r"real.cuh:1: expected an expression"):
        source.compile()
    header.unlink()
    with pytest.raises(nvrtc.CompileError, match=r'scale.cu:2: \w+( not)? open source file "real'):
        source.compile()
    with pytest.raises(nvrtc.CompileError, match="sm_12345"):
        source.compile(arch="sm_12345")


def test_what_the_machine_code_needs_can_be_read_from_the_log_free_of_a_gpu() -> None:
    assert nvrtc.first_error("a.cu(7): warning #1: x\na.cu(9): error: boom\nmore") == "a.cu:9: boom"
    assert nvrtc.first_error("ptxas error   : too many registers") == (
        "ptxas error   : too many registers"
    )
    assert nvrtc.first_error("", 5) == "NVRTC status 5"


def test_only_hopper_has_features_of_its_own() -> None:
    assert [architecture_of(each) for each in ("80", "90", "100", "120")] == [
        *("sm_80", "sm_90a", "sm_100", "sm_120")
    ]


def test_the_version_is_read_from_the_library() -> None:
    major, minor = map(int, nvrtc.version().split("."))
    assert major >= 12
    assert minor >= 0


@pytest.mark.parametrize(("major", "first"), [(None, 14), (14, 14), (13, 13), (12, 12)])
def test_a_compiler_that_the_driver_understands_is_preferred(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, major: int | None, first: int
) -> None:
    for name, number in (("cu13", 13), ("cuda_nvrtc", 12), ("cu14", 14)):
        (tmp_path / "nvidia" / name / "lib").mkdir(parents=True)
        (tmp_path / "nvidia" / name / "lib" / f"libnvrtc.so.{number}").touch()
    monkeypatch.setattr(nvrtc, "driver_major", lambda: major)
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "none"))
    found = [path for path in nvrtc._candidates() if str(tmp_path) in path]
    assert found[0].endswith(f"libnvrtc.so.{first}")
    assert len(found) == 3
