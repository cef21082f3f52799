"""Small files of /sys and /proc under any root: text, numbers, CPU lists and CPU masks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def read_text(path: Path) -> str | None:
    """The file's text without the NUL bytes and blanks some kernels pad it with; None if absent."""
    try:
        raw = path.read_bytes()
    except (OSError, ValueError):
        return None
    return raw.decode("utf-8", "replace").replace("\0", "").strip()


def read_int(path: Path) -> int | None:
    """The file's whole number, or None when it is absent or says something else."""
    text = read_text(path)
    try:
        return int(text) if text else None
    except ValueError:
        return None


def read_bytes_size(path: Path) -> int | None:
    """A size such as `32K` or `8M`, in bytes."""
    text = read_text(path)
    if not text:
        return None
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1].upper(), 1)
    digits = text if unit == 1 else text[:-1]
    return int(digits) * unit if digits.isdecimal() else None


def read_cpu_list(path: Path) -> frozenset[int] | None:
    """The set a list file such as `0-3,8` names; None when absent or malformed."""
    text = read_text(path)
    return None if text is None else parse_cpu_list(text)


def read_cpu_set(directory: Path, *, listed: str, mask: str) -> frozenset[int] | None:
    """The CPUs of a list file or, where an old kernel has none or leaves it empty, of the mask."""
    cpus = read_cpu_list(directory / listed)
    if not cpus and (text := read_text(directory / mask)):
        cpus = parse_cpu_mask(text)
    return cpus


def parse_cpu_list(text: str) -> frozenset[int] | None:
    """`0-2,7,8-12:2/4` as a set; None when malformed."""
    cpus: set[int] = set()
    try:
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            span, _, stride = part.partition(":")
            first, _, last = span.partition("-")
            used, _, group = stride.partition("/")
            low, high = int(first), int(last or first)
            width = int(group) if stride else high - low + 1
            for start in range(low, high + 1, max(width, 1)):
                end = start + (int(used) if stride else width)
                cpus.update(range(start, min(end, high + 1)))
    except ValueError:
        return None
    return frozenset(cpus)


def parse_cpu_mask(text: str) -> frozenset[int] | None:
    """A mask of 32-bit hexadecimal words, highest first (`ff,00000003`), as a set."""
    try:
        words = [int(word, 16) for word in text.split(",")]
    except ValueError:
        return None
    return frozenset(
        32 * place + bit
        for place, word in enumerate(reversed(words))
        for bit in range(word.bit_length())
        if word >> bit & 1
    )


def format_cpu_list(cpus: Iterable[int]) -> str:
    """`0-3,8` for the CPUs; `none` for no CPU."""
    spans: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if spans and cpu == spans[-1][1] + 1:
            spans[-1][1] = cpu
        else:
            spans.append([cpu, cpu])
    return ",".join(f"{a}-{b}" if a != b else f"{a}" for a, b in spans) or "none"


def numbered(directory: Path, prefix: str) -> dict[int, Path]:
    """The entries called `prefix` + number, by number, ascending."""
    try:
        entries = list(directory.iterdir())
    except OSError:
        return {}
    found = {
        int(digits): entry
        for entry in entries
        if entry.name.startswith(prefix) and (digits := entry.name[len(prefix) :]).isdecimal()
    }
    return dict(sorted(found.items()))
