"""The kinds of module in a module DAG: a sentence that specifies, the source that does it, and a likely slip.

Always true: what `Module.spec` says, `read` understands, so a worker writes from the text alone; the reference of a module is
the very source that a right worker writes. Kinds that pass something on over a wire (pairs, a text, amounts in a unit) leave
its form open: the form stands in the interfaces file, and both ends must follow it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

LIST, PAIRS = "list[int]", "list[tuple[int, int]]"
WIRES: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "pairs": {
        "written (item, times)": {"made": "(x, xs.count(x))", "taken": "x, n"},
        "written (times, item)": {"made": "(xs.count(x), x)", "taken": "n, x"},
    },
    "text": {f"joined by {sep!r}": {"sep": sep} for sep in ",;|/"},
    "amounts": {"in tenths": {"per": "10"}, "in hundredths": {"per": "100"}, "in thousandths": {"per": "1000"}},
}
"""What can be passed on, and the forms that it can have."""


@dataclass(frozen=True)
class ModuleKind:
    """One kind of module; `{a}` and `{b}` are its numbers, other braces come from the form on its wire."""

    id: str
    takes: tuple[tuple[str, str], ...]
    gives: str
    says: str
    right: str
    slip: str = ""
    """The right expression gone wrong; for ends of a wire, another form."""
    wire: str = ""
    low: int = 2
    high: int = 9


_XS = (("xs", LIST),)
_PQ = (("p", "int"), ("q", "int"))
LISTS = (
    ModuleKind(
        "multiples",
        _XS,
        LIST,
        "keep the items that are divisible by {a}",
        "[x for x in xs if x % {a} == 0]",
        "[x for x in xs if x % {a}]",
        high=4,
    ),
    ModuleKind(
        "greater", _XS, LIST, "keep the items greater than {a}", "[x for x in xs if x > {a}]", "[x for x in xs if x < {a}]"
    ),
    ModuleKind(
        "scale",
        _XS,
        LIST,
        "replace every item x by {a} * x + {b}",
        "[{a} * x + {b} for x in xs]",
        "[{a} * (x + {b}) for x in xs]",
    ),
    ModuleKind("floor", _XS, LIST, "raise every item below {a} to {a}", "[max(x, {a}) for x in xs]", "[min(x, {a}) for x in xs]"),
    ModuleKind(
        "rotate", _XS, LIST, "move the first {a} items behind the others", "xs[{a}:] + xs[:{a}]", "xs[-{a}:] + xs[:-{a}]", high=3
    ),
    ModuleKind("distinct", _XS, LIST, "give the different items in ascending order", "sorted(set(xs))", "sorted(xs)"),
    ModuleKind(
        "steps",
        _XS,
        LIST,
        "give each item but the first minus the item before it",
        "[y - x for x, y in zip(xs, xs[1:])]",
        "[x - y for x, y in zip(xs, xs[1:])]",
    ),
    ModuleKind(
        "running",
        _XS,
        LIST,
        "give the running sums, the first item first",
        "[sum(xs[: i + 1]) for i in range(len(xs))]",
        "[sum(xs[:i]) for i in range(len(xs))]",
    ),
    ModuleKind(
        "every",
        _XS,
        LIST,
        "take every item whose position is a multiple of {a}, counted from 0",
        "xs[::{a}]",
        "xs[{a} - 1 :: {a}]",
        high=3,
    ),
)
REDUCE = (
    ModuleKind("sum", _XS, "int", "give the sum of the items plus {a}", "sum(xs) + {a}", "sum(xs) * {a}"),
    ModuleKind(
        "spread",
        _XS,
        "int",
        "give the largest item minus the smallest, and {a} for no items",
        "max(xs) - min(xs) if xs else {a}",
        "max(xs) - len(xs) if xs else {a}",
    ),
    ModuleKind(
        "count",
        _XS,
        "int",
        "give the number of items that are at most {a}",
        "sum(x <= {a} for x in xs)",
        "sum(x > {a} for x in xs)",
    ),
    ModuleKind(
        "squares",
        _XS,
        "int",
        "give the sum of the squares of the items, modulo {a}",
        "sum(x * x for x in xs) % {a}",
        "sum(xs) ** 2 // {a}",
        low=50,
        high=97,
    ),
)
LINK = (
    ModuleKind(
        "shift", (*_XS, ("n", "int")), LIST, "add {a} * n to every item", "[x + {a} * n for x in xs]", "[x + {a} + n for x in xs]"
    ),
    ModuleKind(
        "apart",
        (*_XS, ("n", "int")),
        LIST,
        "keep the items that differ from n by at least {a}",
        "[x for x in xs if abs(x - n) >= {a}]",
        "[x for x in xs if x - n <= {a}]",
    ),
)
COMBINE = (
    ModuleKind("weigh", _PQ, "int", "give {a} * p minus {b} * q", "{a} * p - {b} * q", "{b} * p - {a} * q"),
    ModuleKind("larger", _PQ, "int", "give the larger of p + {a} and q", "max(p + {a}, q)", "min(p + {a}, q)"),
    ModuleKind("distance", _PQ, "int", "give how far p and q are apart, times {a}", "abs(p - q) * {a}", "(abs(p - q) + 1) * {a}"),
)
_FORM = "in the form of interface {wire}"
MAKE = (
    ModuleKind(
        "tally",
        _XS,
        PAIRS,
        f"give for each different item, by ascending item, a pair of item and times it occurs, {_FORM}",
        "[{made} for x in sorted(set(xs))]",
        wire="pairs",
    ),
    ModuleKind("pack", _XS, "str", f"write the items as one text {_FORM}", "'{sep}'.join(str(x) for x in xs)", wire="text"),
    ModuleKind(
        "convert",
        _XS,
        LIST,
        f"give the items, which are whole units, as amounts {_FORM}",
        "[x * {per} for x in xs]",
        wire="amounts",
    ),
)
TAKE = (
    ModuleKind(
        "weights",
        (("pairs", PAIRS),),
        LIST,
        f"give {{a}} * item + times for each pair, which comes {_FORM}",
        "[{a} * x + n for {taken} in pairs]",
        wire="pairs",
    ),
    ModuleKind(
        "unpack",
        (("text", "str"),),
        LIST,
        f"give the items of the text, which comes {_FORM}, each plus {{a}}",
        "[int(x) + {a} for x in text.split('{sep}') if x]",
        wire="text",
    ),
    ModuleKind(
        "units",
        _XS,
        LIST,
        f"give {{a}} * the whole units of each amount, which comes {_FORM}",
        "[{a} * (x // {per}) for x in xs]",
        wire="amounts",
    ),
)
KINDS = {kind.id: kind for kind in (*LISTS, *REDUCE, *LINK, *COMBINE, *MAKE, *TAKE)}


@dataclass(frozen=True)
class Module:
    """One module: a kind with its numbers, a name, and the interface it follows where it is the end of a wire."""

    name: str
    kind: str
    a: int
    b: int
    wire: str = ""
    """The interface, such as i1."""
    example: str = ""
    """The inputs of an example, as they stand in a call."""
    result: str = ""
    """What the example gives."""

    def spec(self) -> str:
        """The specification in one line."""
        kind = KINDS[self.kind]
        takes = ", ".join(f"{name}: {type_}" for name, type_ in kind.takes)
        says = kind.says.format(a=self.a, b=self.b, wire=self.wire)
        example = f" Example: {self.name}({self.example}) == {self.result}." if self.example else ""
        return f"{self.name}({takes}) -> {kind.gives}: {says}.{example}"

    def forms(self) -> list[str]:
        """The forms that its wire can have."""
        return list(WIRES.get(KINDS[self.kind].wire, ()))

    def source(self, form: str = "", *, is_slip: bool = False) -> str:
        """Its source, right or with the likely slip."""
        kind = KINDS[self.kind]
        forms = self.forms()
        if forms:
            at = forms.index(form) if form in forms else 0
            form = forms[(at + is_slip) % len(forms)]
        words = WIRES[kind.wire][form] if forms else {}
        text = kind.slip if is_slip and not forms else kind.right
        takes = ", ".join(f"{name}: {type_}" for name, type_ in kind.takes)
        return f"def {self.name}({takes}) -> {kind.gives}: return {text.format(a=self.a, b=self.b, **words)}"


@lru_cache(maxsize=4096)
def function(source: str, name: str) -> Callable[..., Any]:
    """The function of a source that this file wrote; never of an answer."""
    names: dict[str, Any] = {}
    exec(source, names)
    compiled: Callable[..., Any] = names[name]
    return compiled


# -- what a worker reads -------------------------------------------------------------------------------------------------

_SPEC = re.compile(
    r"\b(m\d{1,4})\([^()\n]{0,80}\) -> [\w\[\], ]{1,40}: ([^\n]*?)\.(?: Example: \1\(([^\n]*?)\) == ([^\n]*?)\.)?(?=\s|$)"
)
_INTERFACE = re.compile(
    r"^\s*(i\d{1,4}): (pairs|text|amounts) [^\n]*?\b(?:is|are) (written \([a-z, ]+\)|joined by '.'|in [a-z]+)\.", re.M
)
_NUMBER = r"(?P<{0}>-?\d{{1,6}})"


def _pattern(says: str) -> re.Pattern[str]:
    text = re.escape(says)
    for name, group in (("a", _NUMBER.format("a")), ("b", _NUMBER.format("b")), ("wire", r"(?P<wire>i\d{1,4})")):
        mark = re.escape("{" + name + "}")
        text = text.replace(mark, group, 1).replace(mark, f"(?P={name})")
    return re.compile(text)


_PATTERNS = {kind.id: _pattern(kind.says) for kind in KINDS.values()}


@lru_cache(maxsize=512)  # a worker reads its question again at each step
def read(text: str) -> dict[str, Module]:
    """The modules that a text specifies, by name; of two specifications with one name the last."""
    modules: dict[str, Module] = {}
    for name, says, example, result in _SPEC.findall(text):
        for id_, pattern in _PATTERNS.items():
            match = pattern.fullmatch(says)
            if match:
                have = match.groupdict()
                modules[name] = Module(
                    name, id_, int(have.get("a") or 0), int(have.get("b") or 0), have.get("wire") or "", example, result
                )
                break
    return modules


@lru_cache(maxsize=4096)
def interfaces(text: str) -> dict[str, str]:
    """The forms that an interfaces file fixes, by interface."""
    return {name: form for name, _, form in _INTERFACE.findall(text)}
