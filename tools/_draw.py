"""Which mutants there are, and a seeded draw from them.

Always true: the same source, seed and number give the same mutants; every mutant compiles and is another program than the source.
The operators are cosmic-ray's, and three of our own; what plainly changes nothing that a test could see is left out by rule.
"""

from __future__ import annotations

import ast
import difflib
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import parso.python.tree as tree
from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from parso.tree import search_ancestor

Place = tuple[int, int]

# Nearly every line has one of these, and they are the easiest to notice: drawn less often where there is another.
_RARE = {"RemoveStatement", "ReturnNothing"}

# Left out. Identity and equality are the same for what we compare by them (None, enums, classes, small numbers, interned words).
_SAME = re.compile(r"ComparisonOperator_(Is_Eq|Eq_Is|IsNot_NotEq|NotEq_IsNot)$")
# The `*` between parameters is no operator, whatever cosmic-ray makes of it.
_MARKER = re.compile(r"\*\s*,")
# What only saves time or memory, or only states what must hold anyway (`zip(..., strict=True)`).
_KEYWORDS = {"strict", "gc", "slots", "weakref", "cache_hash", "copy", "repr", "cache"}
_DECORATORS = {"cache", "lru_cache", "overload", "override", "final", "wraps", "njit", "cached_property", "staticmethod"}


@dataclass(frozen=True)
class Mutant:
    """One change of one file: where, by which operator, and the whole of the changed text."""

    path: str
    line: int
    operator: str
    text: str
    diff: str

    def told(self) -> dict[str, Any]:
        """For the report: all but the text."""
        return {k: v for k, v in asdict(self).items() if k != "text"}


class _Ours(Operator):
    @classmethod
    def examples(cls) -> tuple[()]:
        return ()


class RemoveStatement(_Ours):
    """`call(x)`, `a.b = c`, `a += b` and `raise ...` become `pass`, and `a = b` where `a` has a value already.

    Without its first value a name is unknown, which any test that comes by would notice: such a mutant says nothing.
    """

    def mutation_positions(self, node: Any) -> Iterator[tuple[Place, Place]]:
        if node.type == "simple_stmt" and node.children[0].type in {"expr_stmt", "atom_expr", "raise_stmt", "del_stmt"}:
            first = node.children[0]
            names = [n.value for n in first.get_defined_names()] if first.type == "expr_stmt" else []
            function = search_ancestor(node, "funcdef")
            before = function.get_code(include_prefix=False).split(first.get_code(include_prefix=False))[0] if function else ""
            if all(re.search(rf"\b{name}\b", before) for name in names):
                yield first.start_pos, first.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        first = node.children[0]
        node.children[0] = tree.Name("pass", first.start_pos, prefix=first.get_first_leaf().prefix)
        return node


class ReturnNothing(_Ours):
    """`return x` becomes `return None`; but not `return False`, which says the same to who asks."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Place, Place]]:
        if node.type == "return_stmt" and node.children[1:] and node.children[1].get_code().strip() not in ("None", "False"):
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        node.children[1] = tree.Name("None", node.children[1].start_pos, prefix=" ")
        return node


class ReplaceWord(_Ours):
    """A word of the vocabulary, `"spawn"`, becomes one that nobody knows; longer texts are for people and stay."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Place, Place]]:
        if node.type == "string" and re.fullmatch(r"[\"'][A-Za-z_]\w*[\"']", node.value):
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        node.value = f"{node.value[0]}XX{node.value[1:]}"
        return node


def _operators() -> Iterator[tuple[str, Operator]]:
    for name in sorted(plugins.operator_names()):
        made = plugins.get_operator(name)
        if not made.arguments():
            yield name.removeprefix("core/"), made()
    for ours in (RemoveStatement, ReplaceWord, ReturnNothing):
        yield ours.__name__, ours()


def _span(node: Any) -> tuple[Place, Place]:
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def _name(node: ast.expr) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _left_out(source: str) -> list[tuple[Place, Place]]:
    """The places that no mutant touches: annotations, docstrings, `__all__`, texts of errors, blocks for the type checker only,
    keywords and decorators that change no result."""
    out = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.arg(annotation=ast.expr() as found) | ast.FunctionDef(returns=ast.expr() as found):
                out.append(_span(found))
            case ast.AnnAssign():
                out.append(_span(node.annotation))
            case ast.Expr(value=ast.Constant(value=str())):
                out.append(_span(node))
            case ast.Assign(targets=[ast.Name(id="__all__")]) | ast.If(test=ast.Name(id="TYPE_CHECKING")):
                out.append(_span(node))
            case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))) | ast.Import() | ast.ImportFrom():
                out.append(_span(node))
            case ast.Raise(exc=ast.expr() as raised):
                out += [_span(inner) for inner in ast.walk(raised) if _is_text(inner)]
            case ast.keyword(arg=word) if word in _KEYWORDS and isinstance(node.value, ast.Constant):
                out.append(_span(node))
            case ast.Call(func=ast.Name(id="cast" | "TypeVar")):
                out.append(_span(node))
        for decorator in getattr(node, "decorator_list", ()):
            if _name(decorator) in _DECORATORS:
                (line, column), end = _span(decorator)
                out.append(((line, column - 1), end))
    return out


def _turns(source: str, operators: dict[str, Operator], chance: random.Random) -> Iterator[tuple[float, int, str, int]]:
    """All that could be changed in a file, in the order of a draw: when its turn comes, its line, operator and occurrence.

    A line is drawn, then a family of operators, then one change; no line has a second turn before every other had its first.
    """
    out_of_bounds = _left_out(source)
    nodes, lines = list(ast_nodes(get_ast(source))), source.splitlines()
    by_line: dict[int, dict[str, list[tuple[str, int]]]] = defaultdict(lambda: defaultdict(list))
    for operator, made in operators.items():
        if _SAME.search(operator):
            continue
        places = [place for node in nodes for place in made.mutation_positions(node)]
        for occurrence, (start, _) in enumerate(places):
            rest = lines[start[0] - 1][start[1] :]
            is_out = _MARKER.match(rest) or "pragma: no cover" in rest or any(a <= start < b for a, b in out_of_bounds)
            if not is_out:
                by_line[start[0]][operator.split("_")[0]].append((operator, occurrence))
    turn = 0
    while by_line:
        for line in sorted(by_line):
            families = sorted(by_line[line])
            family = chance.choices(families, [1 if f in _RARE else 4 for f in families])[0]
            options = by_line[line][family]
            operator, occurrence = options.pop(chance.randrange(len(options)))
            if not options:
                del by_line[line][family]
            if not by_line[line]:
                del by_line[line]
            yield turn + chance.random(), line, operator, occurrence
        turn += 1


def _made(source: str, name: str, line: int, operator: str, made: Operator, occurrence: int) -> Mutant | None:
    try:
        text = mutate_code(source, made, occurrence)
        if text is None or ast.dump(ast.parse(text)) == ast.dump(ast.parse(source)):
            return None
    except (SyntaxError, AttributeError):  # cosmic-ray cannot replace an exception with a dotted or starred name
        return None
    diff = list(difflib.unified_diff(source.splitlines(), text.splitlines(), n=0, lineterm=""))[3:]
    return Mutant(name, line, operator, text, "\n".join(diff))


def draw(files: dict[str, Path], number: int, seed: int) -> list[Mutant]:
    """So many mutants over all of these files: each file as often as it has lines that can be changed."""
    operators = dict(_operators())
    sources = {name: path.read_text() for name, path in files.items()}
    rows = sorted((*turn, name) for name in files for turn in _turns(sources[name], operators, random.Random(f"{seed} {name}")))
    out: list[Mutant] = []
    for _, line, operator, occurrence, name in rows:
        if len(out) == number:
            break
        found = _made(sources[name], name, line, operator, operators[operator], occurrence)
        out += [found] if found is not None else []
    return sorted(out, key=lambda m: (m.path, m.line))
