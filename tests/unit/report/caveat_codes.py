"""Every code that the package can put on a caveat, with its severity, read from its source.

A caveat is made by ``Caveat(code=..., severity=...)``, or by a function that hands its own argument
on to one (``_note``, ``Keys.warn``, ``_Meter._say``). A code that can be neither read nor followed
is an error, so that none can be missed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[3] / "specbench"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Helper:
    """A function that makes a caveat of the argument at ``place``; a private one in ``file``."""

    name: str
    place: int
    severity: str
    file: str

    def called_in(self, file: str) -> bool:
        """Whether a call by this name in ``file`` can be one of it."""
        return file == self.file or not self.name.startswith("_")


def raised_codes() -> set[tuple[str, str]]:
    """(code, severity) of every caveat that ``specbench`` raises.

    Raises:
        AssertionError: a caveat's code or severity cannot be told from the source.
    """
    calls = [call for path in sorted(PACKAGE.rglob("*.py")) for call in _calls_of(path)]
    helpers: set[Helper] = set()
    while True:
        found = {made for call in calls for made in _made(call, helpers)}
        new = {helper for helper, _ in found if helper is not None} - helpers
        if not new:
            return {code for _, code in found if code is not None}
        helpers |= new


@dataclass(frozen=True, slots=True)
class Call:
    """A call, the function that it stands in, and the text constants of its module."""

    file: str
    node: ast.Call
    function: Function | None
    words: Mapping[str, str]

    @property
    def name(self) -> str:
        """What is called, without what it belongs to."""
        func = self.node.func
        if isinstance(func, ast.Attribute):
            return func.attr
        return func.id if isinstance(func, ast.Name) else ""

    def __str__(self) -> str:
        return f"{self.file}:{self.node.lineno}: {ast.unparse(self.node)}"


def _made(
    call: Call, helpers: Iterable[Helper]
) -> Iterator[tuple[Helper | None, tuple[str, str] | None]]:
    """What ``call`` makes: a caveat of a known code, or a helper of the function around it."""
    for code, severity in _codes(call, helpers):
        if isinstance(code, ast.Constant):
            yield None, (str(code.value), severity)
            continue
        assert isinstance(code, ast.Name), f"no code can be read: {call}"
        if code.id in call.words:
            yield None, (call.words[code.id], severity)
            continue
        function = call.function
        names = [a.arg for a in function.args.args if a.arg != "self"] if function else []
        assert function is not None, f"no code can be read: {call}"
        assert code.id in names, f"no code can be read: {call}"
        yield Helper(function.name, names.index(code.id), severity, call.file), None


def _codes(call: Call, helpers: Iterable[Helper]) -> Iterator[tuple[ast.expr, str]]:
    """The expression of each code that ``call`` hands on, with its severity."""
    name, args = call.name, call.node.args
    if name == "Caveat":
        given = {word.arg: word.value for word in call.node.keywords}
        severity = given.get("severity")
        assert "code" in given, f"a caveat without code=: {call}"
        assert isinstance(severity, ast.Attribute), f"its severity cannot be read: {call}"
        yield given["code"], severity.attr.lower()
    for helper in helpers:
        if helper.name == name and helper.called_in(call.file) and len(args) > helper.place:
            yield args[helper.place], helper.severity


def _calls_of(path: Path) -> Iterator[Call]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    words = dict(_constants(tree))
    file = path.relative_to(PACKAGE).as_posix()
    for node, function in _calls(tree, None):
        yield Call(file, node, function, words)


def _calls(node: ast.AST, function: Function | None) -> Iterator[tuple[ast.Call, Function | None]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield child, function
        yield from _calls(child, child if isinstance(child, Function) else function)


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            for target in node.targets:
                if isinstance(target, ast.Name) and isinstance(node.value.value, str):
                    yield target.id, node.value.value
