"""The text of functions as loaded, free of comments, layout and docstrings."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import CodeType

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class Statement:
    """What a module says about one of its names: an assignment, or where it is imported from."""

    text: str
    names: frozenset[str]
    module: str = ""
    level: int = 0
    original: str = ""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A parsed file: its functions by first line, its code, and its top-level names."""

    functions: dict[int, list[_Function]] = field(repr=False)
    codes: dict[tuple[str, int], list[CodeType]] = field(repr=False)
    statements: dict[str, list[Statement]] = field(repr=False)

    def matches(self, code: CodeType) -> bool:
        """Whether `code`, as loaded, is what the file says now."""
        found = self.codes.get((code.co_name, code.co_firstlineno), ())
        return any(_behaviour(each) == _behaviour(code) for each in found)


def source_file(path: str) -> SourceFile | None:
    """The file as it is now; None when it cannot be read or is not Python."""
    try:
        status = os.stat(path)  # noqa: PTH116 (a third of the cost of Path.stat)
        return _parse(path, status.st_mtime_ns, status.st_size)
    except (OSError, SyntaxError, ValueError):
        return None


def function_text(code: CodeType) -> tuple[str, tuple[ast.AST, ...]]:
    """Normal form of a function's source and its syntax trees.

    Where the source is not to be had, or is no longer what was loaded, the text is the byte code
    and there is no tree.
    """
    file = source_file(code.co_filename)
    if file is not None and file.matches(code):
        nodes = tuple(file.functions.get(code.co_firstlineno, ()))
        if nodes:
            return "\n".join(_normal(node) for node in nodes), nodes
    return repr(_behaviour(code)), ()


def names_in(code: CodeType) -> set[str]:
    """Names of globals and attributes in a function and in the functions inside it."""
    nested = (value for value in code.co_consts if isinstance(value, CodeType))
    return set(code.co_names).union(*map(names_in, nested))


def absolute_module(module: str, level: int, package: str) -> str:
    """Name of the module that `from ..module import` means inside `package`."""
    if not level:
        return module
    base = package.rsplit(".", level - 1)[0] if level > 1 else package
    return f"{base}.{module}" if module else base


def imports_in(tree: ast.AST, package: str) -> Iterator[tuple[str, str, str]]:
    """(name bound, module, attribute or "") for each import statement inside a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                yield alias.asname or top, alias.name if alias.asname else top, ""
        elif isinstance(node, ast.ImportFrom):
            module = absolute_module(node.module or "", node.level, package)
            for alias in node.names:
                yield alias.asname or alias.name, module, alias.name


def _normal(node: _Function) -> str:
    """Syntax of a function without decorators and docstrings."""
    copy = ast.parse(ast.unparse(node))  # so that what is joined when it is compiled is joined
    for inner in ast.walk(copy):
        documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        if isinstance(inner, documented) and ast.get_docstring(inner, clean=False) is not None:
            inner.body = inner.body[1:] or [ast.Pass()]
    outer = copy.body[0]
    if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef):
        outer.decorator_list = []
    return _canonical(copy)


def _canonical(node: object) -> str:
    """A syntax tree as a text that is the same in every version of Python.

    `ast.unparse` quotes differently from 3.12 on, and newer trees have more fields; those that are
    empty are left out.
    """
    if isinstance(node, ast.AST):
        fields = ((name, value) for name, value in ast.iter_fields(node) if value not in (None, []))
        parts = ", ".join(f"{name}={_canonical(value)}" for name, value in fields)
        return f"{type(node).__name__}({parts})"
    if isinstance(node, list):
        return f"[{', '.join(map(_canonical, node))}]"
    return repr(node)


def _behaviour(code: CodeType) -> tuple[object, ...]:
    """What a code object does, free of file names and line numbers."""
    constants = tuple(
        _behaviour(value) if isinstance(value, CodeType) else (type(value).__name__, _told(value))
        for value in code.co_consts
    )
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return (code.co_code, constants, names, code.co_argcount, code.co_kwonlyargcount)


def _told(constant: object) -> str:
    """`repr`, but of a set in order: compiled and loaded ones differ in theirs."""
    if isinstance(constant, frozenset):
        return repr(sorted(map(repr, constant)))
    return repr(constant)


@lru_cache(maxsize=256)
def _parse(path: str, _changed: int, _size: int) -> SourceFile:
    tree = ast.parse(Path(path).read_bytes(), path)
    functions: dict[int, list[_Function]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            line = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            functions.setdefault(line, []).append(node)
        elif isinstance(node, ast.Lambda):
            functions.setdefault(node.lineno, []).append(node)
    codes: dict[tuple[str, int], list[CodeType]] = {}
    for code in _codes(compile(tree, path, "exec", dont_inherit=True)):
        codes.setdefault((code.co_name, code.co_firstlineno), []).append(code)
    statements: dict[str, list[Statement]] = {}
    for name, statement in _statements(tree):
        statements.setdefault(name, []).append(statement)
    return SourceFile(functions, codes, statements)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield value
            yield from _codes(value)


def _statements(tree: ast.Module) -> Iterator[tuple[str, Statement]]:
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                where = (node.module or "", node.level, alias.name)
                yield alias.asname or alias.name, Statement("", frozenset(), *where)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            made = {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
            for name in made:
                yield name, Statement(_canonical(node), frozenset(names - made))
