"""The counted thread count of a BLAS library."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from autotune.device.blas import BlasLibrary, blas_libraries


class Counter:
    """A BLAS with nothing but a thread count, at most 8."""

    def __init__(self) -> None:
        self.count, self.sets = 4, 0

    def library(self) -> BlasLibrary:
        return BlasLibrary(
            SimpleNamespace(
                internal_api="toy",
                version="1",
                filepath="/toy",
                threading_layer="own",
                get_num_threads=lambda: self.count,
                set_num_threads=self.set,
            )
        )

    def set(self, count: int) -> None:
        self.count, self.sets = min(count, 8), self.sets + 1


def test_nested_requests() -> None:
    blas = Counter()
    library = blas.library()
    outer = library.request(1)
    inner = library.request(2)
    assert blas.count == 2
    library.release(inner)
    assert blas.count == 1
    library.release(outer)
    assert blas.count == 4


def test_overlapping_requests_end_in_any_order() -> None:
    blas = Counter()
    library = blas.library()
    first, second, third = (library.request(count) for count in (1, 2, 3))
    library.release(first)
    assert blas.count == 3
    library.release(third)
    assert blas.count == 2
    library.release(second)
    assert blas.count == 4


def test_equal_requests_are_told_apart() -> None:
    blas = Counter()
    library = blas.library()
    first, second = library.request(1), library.request(1)
    library.release(first)
    assert blas.count == 1
    library.release(second)
    assert blas.count == 4


def test_nothing_is_set_that_is_so_already() -> None:
    blas = Counter()
    library = blas.library()
    library.release(library.request(4))
    assert blas.sets == 0


def test_somebody_elses_change_is_kept() -> None:
    blas = Counter()
    library = blas.library()
    request = library.request(1)
    blas.count = 3
    library.release(request)
    assert blas.count == 3


def test_what_a_library_can_run_is_found_without_leaving_a_trace() -> None:
    blas = Counter()
    library = blas.library()
    assert [library.most(count) for count in (1, 8, 100)] == [1, 8, 8]
    assert blas.count == 4


def test_many_threads_at_once_leave_the_first_count() -> None:
    blas = Counter()
    library = blas.library()

    def run(count: int) -> None:
        for _ in range(300):
            library.release(library.request(count))

    threads = [threading.Thread(target=run, args=(count,)) for count in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert blas.count == 4


def test_any_python_thread_may_set_the_loaded_library() -> None:
    libraries = blas_libraries()
    if not libraries:
        pytest.skip("NumPy's BLAS is not one whose threads can be counted")
    library, seen = libraries[0], list[int]()
    before = library.get()

    def run() -> None:
        request = library.request(1)
        seen.append(library.get())
        library.release(request)

    run()
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [1, 1]
    assert library.get() == before
    assert blas_libraries()[0] is library
