"""Source files of compiled languages: their text, their comments, and what they include."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|/\*.*?\*/|//[^\n]*', re.DOTALL)

Strip = Callable[[str], str]
"""From a text to the same without its comments."""


def read(path: Path) -> str:
    """A file's text as it is now; read once for each state of the file."""
    status = path.stat()
    return _read_version(path, status.st_mtime_ns, status.st_size)


def without_comments(text: str) -> str:
    """C, C++ or CUDA C++ without comments; texts between quotes stay."""
    return _COMMENT.sub(lambda found: found[0] if found[0][0] == '"' else " ", text)


def files_of(path: Path, strip: Strip = without_comments, also: Sequence[Path] = ()) -> list[Path]:
    """A file and all that it includes between quotes (`#include`), in order of discovery.

    They are looked up beside the file that includes them, beside the first one, then in `also`;
    what is in none of them belongs to the compiler.
    """
    found: dict[Path, None] = {path: None}
    waiting = [path]
    while waiting:
        file = waiting.pop()
        for name in _INCLUDE.findall(strip(read(file))):
            places = ((folder / name).resolve() for folder in (file.parent, path.parent, *also))
            included = next((place for place in places if place.is_file()), None)
            if included is not None and included not in found:
                found[included] = None
                waiting.append(included)
    return list(found)


def digest_of(files: Iterable[Path], options: Iterable[str], strip: Strip) -> str:
    """Hash of files (without comments and empty lines) and options, 16 hex digits."""
    parts = [*options]
    for file in files:
        lines = (line.strip() for line in strip(read(file)).splitlines())
        parts += [file.name, *(line for line in lines if line)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@lru_cache(maxsize=256)
def _read_version(path: Path, _changed: int, _size: int) -> str:
    return path.read_text(encoding="utf-8")
