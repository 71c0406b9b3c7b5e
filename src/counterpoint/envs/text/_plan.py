"""A module DAG: chains of modules over one input, wires between them, what combines them, and its hidden tests.

Always true: every module but the last is used by another, types agree along every edge, and both ends of a wire follow one
interface. The plan is a function of (dials, seed); what a test expects comes from the reference sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from counterpoint.envs.text import _kinds
from counterpoint.envs.text._kinds import KINDS, WIRES, Kind, Module
from counterpoint.envs.text._modules import Group
from counterpoint.envs.text._words import Dice

_SOURCE = "a0"  # the input of the whole
_TRIES = 40


@dataclass(frozen=True)
class Plan:
    """The modules in the order in which they run, what each takes, and the forms on the wires."""

    modules: tuple[Module, ...]
    takes: tuple[tuple[str, ...], ...]
    """For each module where its inputs come from: `a0` for the input of the whole, or a module's name."""
    forms: dict[str, str]
    """Interface to form."""
    wires: dict[str, tuple[str, str]]
    """Interface to the modules at its ends."""

    def sources(self) -> dict[str, str]:
        """The reference, by module."""
        return {m.name: m.source(self.forms.get(m.wire, "")) for m in self.modules}

    def composition(self) -> str:
        """How the modules are put together, as one line of assignments."""
        lines = []
        for module, takes in zip(self.modules, self.takes, strict=True):
            args = ", ".join("xs" if key == _SOURCE else f"v{key[1:]}" for key in takes)
            lines.append(f"v{module.name[1:]} = {module.name}({args})")
        return "; ".join(lines)

    def interfaces(self) -> str:
        """The interfaces file."""
        lines = []
        for wire, form in self.forms.items():
            maker, taker = self.wires[wire]
            what = KINDS[next(m.kind for m in self.modules if m.name == maker)].wire
            verb = "is" if what == "text" else "are"
            lines.append(f"{wire}: {what} from {maker} to {taker} {verb} {form}.")
        return "\n".join(lines) + "\n"


class _Maker:
    """Adds modules one by one."""

    def __init__(self, dice: Dice) -> None:
        self.dice, self.modules, self.takes = dice, list[Module](), list[tuple[str, ...]]()
        self.forms, self.wires = dict[str, str](), dict[str, tuple[str, str]]()

    def add(self, kinds: Sequence[Kind], takes: tuple[str, ...], wire: str = "") -> str:
        """One module of one of these kinds; gives its name."""
        i = len(self.modules)
        kind = self.dice.pick(kinds, "kind", i)
        a, b = (self.dice.between(kind.low, kind.high, name, i) for name in ("a", "b"))
        # a slip that swaps the two numbers must show
        b = b if b != a else a + 1
        self.modules.append(Module(f"m{i + 1}", kind.id, a if "{a}" in kind.says else 0, b if "{b}" in kind.says else 0, wire))
        self.takes.append(takes)
        return f"m{i + 1}"

    def wire(self, value: str) -> str:
        """Two modules that are the ends of one wire; gives the name of the second."""
        i = len(self.forms)
        at = self.dice.below(len(_kinds.MAKE), "wire", i)
        name = f"i{i + 1}"
        self.forms[name] = self.dice.pick(list(WIRES[_kinds.MAKE[at].wire]), "form", i)
        maker = self.add((_kinds.MAKE[at],), (value,), name)
        taker = self.add((_kinds.TAKE[at],), (maker,), name)
        self.wires[name] = (maker, taker)
        return taker

    def chain(self, size: int, wired: float, before: str) -> str:
        """Modules one after another that end in a number; gives the name of the last."""
        value, left = _SOURCE, size - 1
        while left:
            i = len(self.modules)
            if before and left == size - 1 and self.dice.chance(0.5, "link", i):
                value = self.add(_kinds.LINK, (value, before))
            elif left >= 2 and self.dice.chance(wired, "wired", i):
                value = self.wire(value)
                left -= 1
            else:
                value = self.add(_kinds.LISTS, (value,))
            left -= 1
        return self.add(_kinds.REDUCE, (value,))


def plan(seed: int, modules: int, wired: float) -> Plan:
    """The DAG of a seed."""
    dice = Dice(seed, "module dag", "plan")
    chains = max(1, (modules + 2) // 4)
    inner = modules - (chains - 1)
    make, total = _Maker(dice), ""
    for c in range(chains):
        size = inner // chains + (c < inner % chains)
        before = total
        end = make.chain(size, wired, before)
        total = make.add(_kinds.COMBINE, (before, end)) if before else end
    made = Plan(tuple(make.modules), tuple(make.takes), make.forms, make.wires)
    return replace(made, modules=tuple(_with_example(m, i, made, dice) for i, m in enumerate(made.modules)))


# -- inputs --------------------------------------------------------------------------------------------------------------


def _input(type_: str, dice: Dice, name: str, i: int) -> Any:
    if type_ == "int":
        return dice.between(-20, 40, name, i)
    return [dice.between(-9, 20, f"{name} {i} item", j) for j in range(dice.between(0, 7, f"{name} length", i))]


def _inputs(module: Module, made: Plan, dice: Dice, i: int) -> tuple[Any, ...]:
    """Inputs for one call: what comes over a wire is made by the reference of its other end."""
    kind, name = KINDS[module.kind], f"input {module.name}"
    if kind in _kinds.TAKE:
        maker = next(m for m in made.modules if m.name == made.wires[module.wire][0])
        items = _input(_kinds.LIST, dice, name, i)
        return (_kinds.function(made.sources()[maker.name], maker.name)(items),)
    return tuple(_input(type_, dice, f"{name} {arg}", i) for arg, type_ in kind.takes)


def _telling(module: Module, made: Plan, dice: Dice, begin: int) -> tuple[Any, ...] | None:
    """Inputs for which the right source and the likely slip differ, where a few tries find some."""
    form = made.forms.get(module.wire, "")
    right, wrong = (_kinds.function(module.source(form, is_slip=bad), module.name) for bad in (False, True))
    for i in range(begin, begin + _TRIES):
        args = _inputs(module, made, dice, i)
        if _tried(right, args) != _tried(wrong, args):
            return args
    return None


def _tried(function: Any, args: tuple[Any, ...]) -> Any:
    try:
        return function(*args)
    except ValueError:  # a text in another form is no number
        return None


def _with_example(module: Module, at: int, made: Plan, dice: Dice) -> Module:
    """An example that tells the right source from the slip; none at a wire, where it would give the form away."""
    args = None if module.wire else _telling(module, made, dice, 1000 * (at + 1))
    if args is None:
        return module
    right = _kinds.function(module.source(), module.name)
    return replace(module, example=", ".join(map(repr, args)), result=repr(right(*args)))


def hidden_tests(seed: int, made: Plan, each: int) -> tuple[list[Group], dict[str, list[Any]]]:
    """The hidden tests, for each module and for the whole, and what each call must give."""
    dice = Dice(seed, "module dag", "tests")
    functions = {name: _kinds.function(source, name) for name, source in made.sources().items()}
    groups, expected = [], {}
    for module in made.modules:
        keys = tuple(f"a{i}" for i in range(len(KINDS[module.kind].takes)))
        telling = _telling(module, made, dice, 1000)
        calls = tuple(telling if i == 0 and telling else _inputs(module, made, dice, i) for i in range(each))
        groups.append(Group(module.name, ((module.name, keys, "out"),), calls))
        expected[module.name] = [functions[module.name](*args) for args in calls]
    steps = tuple((m.name, takes, m.name) for m, takes in zip(made.modules, made.takes, strict=True))
    whole = tuple((_input(_kinds.LIST, dice, "input of the whole", i),) for i in range(each))
    groups.append(Group("whole", steps, whole))
    expected["whole"] = [_composed(functions, steps, args) for args in whole]
    return groups, expected


def _composed(functions: dict[str, Any], steps: Sequence[Any], args: tuple[Any, ...]) -> Any:
    values: dict[str, Any] = {_SOURCE: args[0]}
    for name, takes, gives in steps:
        values[gives] = functions[name](*(values[key] for key in takes))
    return values[steps[-1][2]]
