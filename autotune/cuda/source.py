"""CudaSource: a CUDA C++ file with all it includes, and the kernels compiled from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.cuda.ahead import target
from autotune.included import digest_of, files_of, read, without_comments

if TYPE_CHECKING:
    from autotune.cuda.launch import CudaFunction

Macro = int | float | str | bool

_STANDARD = "-std=c++17"


@dataclass(frozen=True, slots=True)
class CudaSource:
    """A CUDA C++ file; `options` are NVRTC's, for every kernel of it.

    The files it includes between quotes, directly or not, belong to it: they are looked up beside
    the file that includes them, then beside this one.
    """

    path: Path
    options: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The file as it is now."""
        return read(self.path)

    def files(self) -> tuple[Path, ...]:
        """This file and all that it includes between quotes, in order of discovery."""
        return tuple(files_of(self.path))

    @property
    def digest(self) -> str:
        """Hash of all its files (without comments and empty lines) and options, 16 hex digits."""
        return digest_of(self.files(), self.options, without_comments)

    def compile(
        self,
        macros: Mapping[str, Macro] | None = None,
        *,
        arch: str = "sm_90",
        options: tuple[str, ...] = (),
    ) -> bytes:
        """A cubin for one architecture ("sm_80", "sm_90a"), from the cache on disk or NVRTC.

        Needs neither a GPU nor a driver. Raises CompileError with the compiler's first error.
        """
        from autotune.cuda.cubins import cubin

        return cubin(self, self.command(macros or {}, options), arch)

    def command(self, macros: Mapping[str, Macro], options: tuple[str, ...] = ()) -> list[str]:
        """The options of NVRTC for a set of macros, without the architecture."""
        defined = [f"-D{name}={_spelled(value)}" for name, value in sorted(macros.items())]
        given = [*self.options, *options]
        standard = (
            [] if any(option.startswith(("-std", "--std")) for option in given) else [_STANDARD]
        )
        return [*standard, *given, *defined]

    def kernel(
        self,
        entry: str,
        macros: Mapping[str, Macro] | None = None,
        options: tuple[str, ...] = (),
    ) -> CudaFunction:
        """The `extern "C"` kernel `entry`, built with these macros at its first use.

        Within `compiling_for`, its code is put on disk at once.
        """
        from autotune.cuda.launch import CudaFunction

        function = CudaFunction(self, entry, tuple(sorted((macros or {}).items())), options)
        arch = target()
        if arch is not None:
            function.compile(arch)
        return function


def _spelled(value: Macro) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
