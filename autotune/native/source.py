"""NativeSource: a C or Fortran file with all it includes, and the kernels built from it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.errors import DeclarationError
from autotune.included import digest_of, files_of, without_comments
from autotune.native.compilers import COMPILERS, Language

if TYPE_CHECKING:
    from autotune.model import Problem
    from autotune.native.kernel import NativeKernel

INCLUDES = Path(__file__).parent / "include"
"""The engine's own files to include: what a kernel is given, in C and in Fortran."""

_LANGUAGES: dict[str, Language] = {".c": "c", ".f90": "fortran"}
_REALS = {
    "c": {"float32": "REAL=float", "float64": "REAL=double"},
    "fortran": {"float32": "REAL_KIND=c_float", "float64": "REAL_KIND=c_double"},
}
# Fortran has no word for "inline", and a loop with a call in it is not vectorised; with everything
# in one procedure, though, loops run out of registers.
_INLINED = ("-finline-functions", "-finline-limit=150")
_STANDARD = {"c": ("-std=gnu11",), "fortran": ("-cpp", "-ffree-line-length-none", *_INLINED)}
# Texts between quotes stay, and so do the comments that OpenMP (!$) and compilers (!GCC$) read.
_FORTRAN_COMMENT = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'|!(?!\w*\$)[^\n]*")


@dataclass(frozen=True, slots=True)
class NativeSource:
    """A C (.c) or Fortran (.f90) file; `options` are the compiler's, for every build of it.

    The files it includes between quotes (`#include "..."`, in Fortran too), directly or not,
    belong to it: they are looked up beside the file that includes them, beside this one, and
    among the engine's own.
    """

    path: Path
    options: tuple[str, ...] = ()

    @property
    def language(self) -> Language:
        """By the name's ending; DeclarationError for another one."""
        try:
            return _LANGUAGES[self.path.suffix]
        except KeyError:
            raise DeclarationError(
                f"{self.path.name} is neither C (.c) nor Fortran (.f90)."
            ) from None

    def files(self) -> tuple[Path, ...]:
        """This file and all that it includes between quotes, in order of discovery."""
        return tuple(files_of(self.path, self._strip, (INCLUDES,)))

    @property
    def digest(self) -> str:
        """Hash of all its files (without comments and empty lines) and options, 16 hex digits."""
        return digest_of(self.files(), self.options, self._strip)

    def command(self, dtype: str, options: Sequence[str]) -> tuple[str, ...]:
        """Options of the compiler for one dtype, without those that say where files are.

        In C the macro REAL is the type of the elements, in Fortran REAL_KIND their kind.
        """
        return (
            *options,
            *_STANDARD[self.language],
            *self.options,
            f"-D{_REALS[self.language][dtype]}",
        )

    def kernel(
        self,
        entry: str,
        problem: Problem,
        config: Mapping[str, Any],
        settings: Sequence[int] = (),
    ) -> NativeKernel:
        """`run(*inputs, *outputs, *intermediates, *scalars)`: the function `entry`, built now.

        Compiler and options are those of the config (see `build_tunables`); the library comes from
        the cache on disk or the compiler. The function finds the config's threads, or 1, in
        settings[0], and `settings` behind. For float32 and float64. Raises BuildError with the
        compiler's first error, AutotuneError for a compiler that is not here, and DeclarationError
        for a function that the source does not have.
        """
        from autotune.native.kernel import NativeKernel
        from autotune.native.library import library

        compiler = str(config.get("compiler", COMPILERS[self.language][0]))
        loaded = library(self, compiler, problem.dtype, config)
        try:
            function = loaded[entry]
        except AttributeError:
            raise DeclarationError(
                f"{self.path.name} has no function {entry!r}; in Fortran it needs bind(c)."
            ) from None
        function.restype = None
        numbers = (int(config.get("threads", 1)), *settings)
        return NativeKernel(self, compiler, function, numbers, len(problem.operation.scalars))

    def _strip(self, text: str) -> str:
        if self.language == "c":
            return without_comments(text)
        return _FORTRAN_COMMENT.sub(lambda found: "" if found[0][0] == "!" else found[0], text)
