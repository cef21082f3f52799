"""CudaSource: a CUDA C++ file with all it includes, and the kernels compiled from it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.cuda.ahead import target

if TYPE_CHECKING:
    from autotune.cuda.launch import CudaFunction

Macro = int | float | str | bool

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|/\*.*?\*/|//[^\n]*', re.DOTALL)
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
        return _read(self.path)

    def files(self) -> tuple[Path, ...]:
        """This file and all that it includes between quotes, in order of discovery."""
        found: dict[Path, None] = {self.path: None}
        waiting = [self.path]
        while waiting:
            file = waiting.pop()
            for included in self._included_by(file):
                if included not in found:
                    found[included] = None
                    waiting.append(included)
        return tuple(found)

    def _included_by(self, file: Path) -> Iterator[Path]:
        for name in _INCLUDE.findall(_without_comments(_read(file))):
            for folder in (file.parent, self.path.parent):
                path = (folder / name).resolve()
                if path.is_file():
                    yield path
                    break

    @property
    def digest(self) -> str:
        """Hash of all its files (without comments and empty lines) and options, 16 hex digits."""
        parts = [*self.options]
        for file in self.files():
            code = _without_comments(_read(file))
            lines = (line.strip() for line in code.splitlines())
            parts += [file.name, *(line for line in lines if line)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

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


def _without_comments(text: str) -> str:
    return _COMMENT.sub(lambda found: found[0] if found[0][0] == '"' else " ", text)


def _read(path: Path) -> str:
    status = path.stat()
    return _read_version(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=256)
def _read_version(path: Path, _changed: int, _size: int) -> str:
    return path.read_text(encoding="utf-8")
