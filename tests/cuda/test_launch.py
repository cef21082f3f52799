"""Launching: parameters as the driver reads them, streams, shared memory, capture, threads."""

from __future__ import annotations

import ctypes
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.cuda import CudaSource, dependent, pointer, strides_in_elements
from autotune.cuda.launch import CudaFunction
from autotune.errors import CapturingError, DeclarationError, LaunchError


def test_a_launch_runs_on_the_current_stream_with_its_parameters(
    scale: CudaFunction, fake_cupy: Any
) -> None:
    x = fake_cupy.asarray(np.arange(5.0))
    y = fake_cupy.empty(5)
    launch = scale.launcher(grid=(2,), block=(32, 4), arguments="PPqd")
    stream = fake_cupy.cuda.Stream()
    with stream:
        launch(pointer(x), pointer(y), 5, 3.0)
    assert y.get().tolist() == [0, 3, 6, 9, 12]
    (launched,) = fake_cupy.launched
    assert (launched.grid, launched.block) == ((2, 1, 1), (32, 4, 1))
    assert launched.stream == stream.ptr != 0


def test_parameters_keep_their_types_and_structs_their_bytes(
    tmp_path: Path, fake_cupy: Any, compiled: Any
) -> None:
    seen: list[tuple[Any, ...]] = []
    fake_cupy.kernel("mixed", "ifS24bPd")(lambda launched, *values: seen.append(values))
    (tmp_path / "mixed.cu").write_text("kernel")
    function = CudaSource(tmp_path / "mixed.cu").kernel("mixed")
    launch = function.launcher(grid=(1,), block=(1,), arguments="ifS24bPd")
    record = np.zeros(1, [("words", "i8", 2), ("scale", "f8")])[0]
    record["words"], record["scale"] = (7, 8), 0.5
    launch(-3, 1.5, record, -1, 2**40, 0.1)
    launch(-4, 1.5, record.tobytes(), -1, 2**40, 0.1)
    assert seen[0] == (-3, 1.5, record.tobytes(), -1, 2**40, 0.1)
    assert seen[1][0] == -4
    assert seen[1][2] == record.tobytes()


def test_unreadable_arguments_are_named(scale: CudaFunction) -> None:
    with pytest.raises(DeclarationError, match="'PPz'"):
        scale.launcher(grid=(1,), block=(1,), arguments="PPz")


def test_it_is_compiled_once_for_the_architecture_of_the_device(
    scale: CudaFunction, fake_cupy: Any, compiled: list[Any]
) -> None:
    x, y = fake_cupy.empty(3), fake_cupy.empty(3)
    for _ in range(2):
        scale.launcher(grid=(1,), block=(1,), arguments="PPqd")(pointer(x), pointer(y), 3, 1.0)
    ((name, options),) = compiled
    assert name == "scale.cu"
    assert "--gpu-architecture=sm_90a" in options
    assert "-DREAL=double" in options
    assert len(fake_cupy.loaded) == 1


def test_each_device_loads_its_own(scale: CudaFunction, fake_cupy: Any) -> None:
    fake_cupy.device_count = 2
    x, y = fake_cupy.asarray(np.ones(3)), fake_cupy.empty(3)
    launch = scale.launcher(grid=(1,), block=(1,), arguments="PPqd")
    for device in (0, 1, 0):
        with fake_cupy.cuda.Device(device):
            launch(pointer(x), pointer(y), 3, 1.0)
    assert [each.device for each in fake_cupy.launched] == [0, 1, 0]
    assert len(fake_cupy.loaded) == 2


def test_shared_memory_is_opted_in_and_never_lowered(scale: CudaFunction, fake_cupy: Any) -> None:
    x, y = fake_cupy.empty(3), fake_cupy.empty(3)
    wide, narrow = (
        scale.launcher(grid=(1,), block=(1,), arguments="PPqd", shared=kib * 1024)
        for kib in (200, 60)
    )
    wide(pointer(x), pointer(y), 3, 1.0)
    narrow(pointer(x), pointer(y), 3, 1.0)
    wide(pointer(x), pointer(y), 3, 1.0)
    assert [each.shared for each in fake_cupy.launched] == [204800, 61440, 204800]
    too_much = scale.launcher(grid=(1,), block=(1,), arguments="PPqd", shared=300 * 1024)
    with pytest.raises(LaunchError, match="scale cannot have 307200 bytes of shared memory"):
        too_much(pointer(x), pointer(y), 3, 1.0)


def test_a_failed_launch_is_one_line_with_the_kernel(scale: CudaFunction, fake_cupy: Any) -> None:
    x, y = fake_cupy.empty(3), fake_cupy.empty(3)
    launch = scale.launcher(grid=(0,), block=(1,), arguments="PPqd")
    with pytest.raises(LaunchError, match=r"kernel scale was not launched: .*invalid argument$"):
        launch(pointer(x), pointer(y), 3, 1.0)
    assert launch.__closure__  # the same launcher goes on to work
    good = scale.launcher(grid=(1,), block=(1,), arguments="PPqd")
    good(pointer(x), pointer(y), 3, 1.0)


def test_a_missing_kernel_is_named(tmp_path: Path, fake_cupy: Any, compiled: Any) -> None:
    (tmp_path / "a.cu").write_text("kernel")
    launch = (
        CudaSource(tmp_path / "a.cu").kernel("absent").launcher(grid=(1,), block=(1,), arguments="")
    )
    with pytest.raises(LaunchError, match="cannot load kernel absent"):
        launch()


def test_a_thread_without_a_context_gets_one(scale: CudaFunction, fake_cupy: Any) -> None:
    x, y = fake_cupy.asarray(np.ones(3)), fake_cupy.empty(3)
    launch = scale.launcher(grid=(1,), block=(1,), arguments="PPqd")
    launch(pointer(x), pointer(y), 3, 1.0)
    failures: list[BaseException] = []

    def work() -> None:
        fake_cupy.without_context.add(threading.get_ident())
        try:
            launch(pointer(x), pointer(y), 3, 2.0)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failures
    assert y.get().tolist() == [2, 2, 2]


def test_a_graph_keeps_the_parameters_of_its_launches(scale: CudaFunction, fake_cupy: Any) -> None:
    x, y = fake_cupy.asarray(np.ones(3)), fake_cupy.asarray(np.zeros(3))
    launch = scale.launcher(grid=(1,), block=(1,), arguments="PPqd")
    launch(pointer(x), pointer(y), 3, 1.0)
    stream = fake_cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        launch(pointer(x), pointer(y), 3, 5.0)
        graph = stream.end_capture()
        launch(pointer(x), pointer(y), 3, 7.0)
    assert y.get().tolist() == [7, 7, 7]
    graph.launch(stream)
    assert y.get().tolist() == [5, 5, 5]


def test_nothing_is_built_during_capture(scale: CudaFunction, fake_cupy: Any) -> None:
    launch = scale.launcher(grid=(1,), block=(1,), arguments="PPqd")
    stream = fake_cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        with pytest.raises(CapturingError, match="call it once before the capture"):
            launch(0, 0, 0, 1.0)
        stream.end_capture()
    assert not fake_cupy.loaded


def test_strides_are_in_elements(fake_cupy: Any) -> None:
    x = fake_cupy.empty((2, 3, 4), np.float32)
    assert strides_in_elements(x) == (12, 4, 1)
    assert strides_in_elements(x[:, ::-1].transpose(0, 2, 1)) == (12, 1, -4)


def test_usage_is_read_from_the_loaded_kernel(scale: CudaFunction) -> None:
    usage = scale.usage()
    assert (usage.registers, usage.local_bytes, usage.max_threads) == (64, 0, 1024)


def test_threads_do_not_mix_their_parameters(scale: CudaFunction, fake_cupy: Any) -> None:
    launch = scale.launcher(grid=(1,), block=(1,), arguments="PPqd")
    wrong: list[float] = []

    def work(factor: float) -> None:
        x, y = fake_cupy.asarray(np.ones(3)), fake_cupy.empty(3)
        for step in range(100):
            launch(pointer(x), pointer(y), 3, factor + step)
            if y.get().tolist() != [factor + step] * 3:
                wrong.append(factor)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(1000.0 * n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong
    assert len(fake_cupy.launched) == 400
    assert len(fake_cupy.loaded) == 1


def test_a_launch_that_a_capture_does_not_allow_is_not_the_kernels_fault(
    scale: CudaFunction, fake_cupy: Any
) -> None:
    x = fake_cupy.empty(3)
    launch = scale.launcher(grid=(1,), block=(32,), arguments="PPqd")
    launch(pointer(x), pointer(x), 3, 1.0)
    fake_cupy.fail_with = 901
    with pytest.raises(CapturingError, match=r"scale was not launched.*its capture broke"):
        launch(pointer(x), pointer(x), 3, 1.0)


def test_a_struct_of_another_size_is_refused(tmp_path: Path, fake_cupy: Any, compiled: Any) -> None:
    fake_cupy.kernel("one", "S16")(lambda launched, value: None)
    (tmp_path / "one.cu").write_text("kernel")
    function = CudaSource(tmp_path / "one.cu").kernel("one")
    launch = function.launcher(grid=(1,), block=(1,), arguments="S16")
    launch(bytes(16))
    with pytest.raises(ValueError, match="different"):
        launch(bytes(8))
    assert len(fake_cupy.launched) == 1


def _last_launch(monkeypatch: pytest.MonkeyPatch, status: int = 0) -> list[dict[str, Any]]:
    """What a driver would read of launches that may begin early."""
    seen: list[dict[str, Any]] = []

    def launch(address: Any, handle: int, values: int, extra: int) -> int:
        config = address._obj
        early = config.attributes[0]
        seen.append(
            {"grid": [*config.grid], "block": [*config.block], "shared": config.shared}
            | {"stream": config.stream or 0, "attribute": (early.id, early.value, config.count)}
        )
        return status

    monkeypatch.setattr(dependent, "_driver_launch", lambda: launch)
    return seen


def test_a_dependent_launch_tells_the_driver_so(
    scale: CudaFunction, fake_cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = _last_launch(monkeypatch)
    x = fake_cupy.empty(3)
    launch = scale.launcher(grid=(7, 2), block=(64,), arguments="PPqd", shared=96, dependent=True)
    with fake_cupy.cuda.Stream() as stream:
        launch(pointer(x), pointer(x), 3, 1.0)
    assert seen == [
        {"grid": [7, 2, 1], "block": [64, 1, 1], "shared": 96, "stream": stream.ptr}
        | {"attribute": (6, 1, 1)}
    ]
    assert not fake_cupy.launched


def test_a_dependent_launch_that_fails_is_an_error(
    scale: CudaFunction, fake_cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _last_launch(monkeypatch, status=1)
    x = fake_cupy.empty(3)
    launch = scale.launcher(grid=(1,), block=(1,), arguments="PPqd", dependent=True)
    with pytest.raises(LaunchError, match="scale was not launched"):
        launch(pointer(x), pointer(x), 3, 1.0)


def test_an_older_card_launches_one_after_the_other(
    scale: CudaFunction, fake_cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = _last_launch(monkeypatch)
    fake_cupy.capability = "80"
    x = fake_cupy.empty(3)
    scale.launcher(grid=(1,), block=(1,), arguments="PPqd", dependent=True)(
        *(pointer(x), pointer(x), 3, 1.0)
    )
    assert not seen
    assert len(fake_cupy.launched) == 1


def test_the_structs_of_a_dependent_launch_are_the_drivers() -> None:
    """Offsets of CUlaunchConfig and CUlaunchAttribute in cuda.h."""
    config, attribute = dependent._Config, dependent._Attribute
    fields = (config.shared, config.stream, config.attributes, config.count)
    assert [field.offset for field in fields] == [24, 32, 40, 48]
    assert (ctypes.sizeof(config), ctypes.sizeof(attribute)) == (56, 72)
    assert (attribute.id.offset, attribute.value.offset) == (0, 8)
