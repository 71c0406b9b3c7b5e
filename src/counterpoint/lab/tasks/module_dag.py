"""T3, module DAG: k Python functions with typed specifications and a composition; interfaces must agree.

Always true: the score is the share of hidden tests passed, a fraction of whole numbers: as many for each module as for the
whole. A test passes when the function gives exactly what the reference gives, in value and type, and leaves its input as it
was. What is at both ends of a wire is specified but for its form, which stands in a file; two workers who guess it
differently fit nowhere.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

from counterpoint.errors import InputError, NotFound, did_you_mean
from counterpoint.lab.tasks import _module_kinds as module_kinds
from counterpoint.lab.tasks._module_kinds import KINDS, WIRES, Module, ModuleKind, interfaces, read
from counterpoint.lab.tasks._module_process import tagged
from counterpoint.lab.tasks._module_runs import CallGroup, blocks, one_line, outputs
from counterpoint.lab.tasks._players import answer, judged, read_others, subtask, use
from counterpoint.lab.tasks._words import KeyedDice
from counterpoint.lab.tasks.leakage import marker
from counterpoint.lab.tasks.task import Act, Draw, Instance, Score, Subtask, View, ViewItem
from counterpoint.lab.worlds.world import changed, parameter

_SOURCE = "a0"  # the input of the whole
_TRIES = 40


@dataclass(frozen=True)
class ModulePlan:
    """The modules in the order in which they run, what each takes, and the forms on the wires: a function of (dials, seed).

    Every module but the last is used by another, types agree along every edge, and both ends of a wire follow one interface.
    """

    modules: tuple[Module, ...]
    takes: tuple[tuple[str, ...], ...]
    """For each module where its inputs come from: `a0` for the input of the whole, or a module's name."""
    forms: dict[str, str]
    """Interface to form."""
    wires: dict[str, tuple[str, str]]
    """Interface to the modules at its ends."""

    @cached_property
    def sources(self) -> dict[str, str]:
        """The reference, by module."""
        return {m.name: m.source(self.forms.get(m.wire, "")) for m in self.modules}

    @cached_property
    def named(self) -> dict[str, Module]:
        """The modules by name."""
        return {m.name: m for m in self.modules}

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
            what = KINDS[self.named[maker].kind].wire
            verb = "is" if what == "text" else "are"
            lines.append(f"{wire}: {what} from {maker} to {taker} {verb} {form}.")
        return "\n".join(lines) + "\n"


class _Maker:
    """Adds modules one by one."""

    def __init__(self, dice: KeyedDice) -> None:
        self.dice, self.modules, self.takes = dice, list[Module](), list[tuple[str, ...]]()
        self.forms, self.wires = dict[str, str](), dict[str, tuple[str, str]]()

    def add(self, kinds: Sequence[ModuleKind], takes: tuple[str, ...], wire: str = "") -> str:
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
        at = self.dice.below(len(module_kinds.MAKE), "wire", i)
        name = f"i{i + 1}"
        self.forms[name] = self.dice.pick(list(WIRES[module_kinds.MAKE[at].wire]), "form", i)
        maker = self.add((module_kinds.MAKE[at],), (value,), name)
        taker = self.add((module_kinds.TAKE[at],), (maker,), name)
        self.wires[name] = (maker, taker)
        return taker

    def chain(self, size: int, wired: float, before: str) -> str:
        """Modules one after another that end in a number; gives the name of the last."""
        value, remaining = _SOURCE, size - 1
        while remaining:
            i = len(self.modules)
            if before and remaining == size - 1 and self.dice.chance(0.5, "link", i):
                value = self.add(module_kinds.LINK, (value, before))
            elif remaining >= 2 and self.dice.chance(wired, "wired", i):
                value = self.wire(value)
                remaining -= 1
            else:
                value = self.add(module_kinds.LISTS, (value,))
            remaining -= 1
        return self.add(module_kinds.REDUCE, (value,))


def plan(seed: int, modules: int, wired: float) -> ModulePlan:
    """The DAG of a seed."""
    dice = KeyedDice(seed, "module dag", "plan")
    chains = max(1, (modules + 2) // 4)
    inner = modules - (chains - 1)
    make, total = _Maker(dice), ""
    for c in range(chains):
        size = inner // chains + (c < inner % chains)
        before = total
        end = make.chain(size, wired, before)
        total = make.add(module_kinds.COMBINE, (before, end)) if before else end
    design = ModulePlan(tuple(make.modules), tuple(make.takes), make.forms, make.wires)
    return replace(design, modules=tuple(_with_example(m, i, design, dice) for i, m in enumerate(design.modules)))


# -- inputs --------------------------------------------------------------------------------------------------------------


def _input(type_: str, dice: KeyedDice, name: str, i: int) -> Any:
    if type_ == "int":
        return dice.between(-20, 40, name, i)
    return [dice.between(-9, 20, f"{name} {i} item", j) for j in range(dice.between(0, 7, f"{name} length", i))]


def _inputs(module: Module, design: ModulePlan, dice: KeyedDice, i: int) -> tuple[Any, ...]:
    """Inputs for one call: what comes over a wire is made by the reference of its other end."""
    kind, name = KINDS[module.kind], f"input {module.name}"
    if kind in module_kinds.TAKE:
        maker = design.wires[module.wire][0]
        items = _input(module_kinds.LIST, dice, name, i)
        return (module_kinds.function(design.sources[maker], maker)(items),)
    return tuple(_input(type_, dice, f"{name} {arg}", i) for arg, type_ in kind.takes)


def _telling(module: Module, design: ModulePlan, dice: KeyedDice, begin: int) -> tuple[Any, ...] | None:
    """Inputs for which the right source and the likely slip differ, where a few tries find some."""
    form = design.forms.get(module.wire, "")
    right, wrong = (module_kinds.function(module.source(form, is_slip=bad), module.name) for bad in (False, True))
    for i in range(begin, begin + _TRIES):
        args = _inputs(module, design, dice, i)
        if _tried(right, args) != _tried(wrong, args):
            return args
    return None


def _tried(function: Any, args: tuple[Any, ...]) -> Any:
    try:
        return function(*args)
    except ValueError:  # a text in another form is no number
        return None


def _with_example(module: Module, at: int, design: ModulePlan, dice: KeyedDice) -> Module:
    """An example that tells the right source from the slip; none at a wire, where it would give the form away."""
    args = None if module.wire else _telling(module, design, dice, 1000 * (at + 1))
    if args is None:
        return module
    right = module_kinds.function(module.source(), module.name)
    return replace(module, example=", ".join(map(repr, args)), result=repr(right(*args)))


def hidden_tests(seed: int, design: ModulePlan, each: int) -> tuple[list[CallGroup], dict[str, list[Any]]]:
    """The hidden tests, for each module and for the whole, and what each call must give."""
    dice = KeyedDice(seed, "module dag", "tests")
    functions = {name: module_kinds.function(source, name) for name, source in design.sources.items()}
    groups, expected = [], {}
    for module in design.modules:
        keys = tuple(f"a{i}" for i in range(len(KINDS[module.kind].takes)))
        telling = _telling(module, design, dice, 1000)
        calls = tuple(telling if i == 0 and telling else _inputs(module, design, dice, i) for i in range(each))
        groups.append(CallGroup(module.name, ((module.name, keys, "out"),), calls))
        expected[module.name] = [functions[module.name](*args) for args in calls]
    steps = tuple((m.name, takes, m.name) for m, takes in zip(design.modules, design.takes, strict=True))
    whole = tuple((_input(module_kinds.LIST, dice, "input of the whole", i),) for i in range(each))
    groups.append(CallGroup("whole", steps, whole))
    expected["whole"] = [_composed(functions, steps, args) for args in whole]
    return groups, expected


def _composed(functions: dict[str, Any], steps: Sequence[Any], args: tuple[Any, ...]) -> Any:
    values: dict[str, Any] = {_SOURCE: args[0]}
    for name, takes, gives in steps:
        values[gives] = functions[name](*(values[key] for key in takes))
    return values[steps[-1][2]]


_MOST_MODULES, _MOST_TESTS = 2_000, 50
FILE = "interfaces.txt"


@dataclass(frozen=True)
class Config:
    """The dials."""

    modules: int = parameter(6, "modules", "How many functions the team writes.")
    wired: float = parameter(0.5, "1", "Chance that a place in a chain is a pair of modules whose common form stands in a file.")
    tests: int = parameter(6, "tests", "Hidden tests for each module, and for the whole.")

    def __post_init__(self) -> None:
        for name, most in (("modules", _MOST_MODULES), ("tests", _MOST_TESTS)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
                raise InputError(f"{name} cannot be {value!r}", fix=f"a whole number, 1 to {most}")
        if not isinstance(self.wired, int | float) or not 0 <= self.wired <= 1:
            raise InputError(f"wired cannot be {self.wired!r}", fix="a chance is 0 to 1")


@lru_cache(maxsize=256)
def _plan(seed: int, config: Config) -> ModulePlan:
    return plan(seed, config.modules, config.wired)


@dataclass(frozen=True)
class ModuleDag:
    """The task over its dials."""

    config: Config = Config()
    name: str = "module_dag"
    short: str = "T3"
    version: str = "1"
    rules: tuple[str, ...] = ("join", "vote", "last")
    """Join: of two functions with one name the first; last: the last; vote: the one that most wrote."""
    runs_answers: bool = True
    """The checker runs what the team wrote: nobody checks it again without being asked."""

    def replace(self, **changes: Any) -> ModuleDag:
        """The same task with other dials."""
        return ModuleDag(changed(self.config, changes))

    def instance(self, seed: int) -> Instance:
        """Specifications, the composition, and the file with the forms."""
        design = _plan(seed, self.config)
        specs = "\n".join(module.spec() for module in design.modules)
        last = design.modules[-1].name
        where = f"The forms of the interfaces stand in the file {FILE}, which python can read.\n" if design.forms else ""
        question = (
            f"Write {len(design.modules)} Python functions that work together, each as specified.\n{specs}\n{where}"
            f"For a list of whole numbers xs they are put together like this, and v{last[1:]} is the result:\n"
            f"{design.composition()}\n"
            "Functions leave their inputs as they are. Imports, classes and files are not allowed in the answer."
        )
        return Instance(
            task=self.name,
            seed=seed,
            question=question,
            answer_format=f"the source of m1 to {last}, `def m1(...): return ...` and so on; \\n stands for a line break",
            subtasks=tuple(
                Subtask(
                    f"s{i + 1}",
                    "Write this Python function, and return its source in one line.\n"
                    + module.spec()
                    + (f"\nThe form of {module.wire} stands in the file {FILE}." if module.wire else ""),
                )
                for i, module in enumerate(design.modules)
            ),
            tools=("python",),
            files={FILE: design.interfaces()} if design.forms else {},
        )

    def check(self, instance: Instance, answer: str) -> Score:
        """The share of hidden tests that the answer's functions pass."""
        design = _plan(instance.seed, self.config)
        groups, expected = hidden_tests(instance.seed, design, self.config.tests)
        sources = blocks(answer)
        if not any(module.name in sources for module in design.modules):
            return Score(0.0, False, dict.fromkeys(expected, 0.0))
        results = outputs(sources, groups)
        passed = {
            name: sum(out == tagged(right) for out, right in zip(results[name], rights, strict=True))
            for name, rights in expected.items()
        }
        share = Fraction(sum(passed.values()), self.config.tests * len(passed))
        return Score(float(share), share == 1, {name: float(Fraction(n, self.config.tests)) for name, n in passed.items()})

    def merge(self, instance: Instance, rule: str, texts: Sequence[str]) -> str:
        """The functions of all returns as one source."""
        if rule not in self.rules:
            raise NotFound(f"no rule named {rule!r}", fix=did_you_mean(rule, self.rules))
        sources: dict[str, list[str]] = {}
        for text in texts:
            for name, source in blocks(text).items():
                sources.setdefault(name, []).append(source)
        if rule == "vote":
            return one_line({name: Counter(some).most_common(1)[0][0] for name, some in sources.items()})
        return one_line({name: some[-1 if rule == "last" else 0] for name, some in sources.items()})

    def work(self, view: View, draw: Draw, skill: float) -> Act:
        """Read the forms, write, try the examples, return."""
        return coded(view, draw, skill, FILE)

    def truth_file(self, instance: Instance) -> str:
        """The reference sources."""
        return marker(self.name, instance.seed) + "\n" + "\n".join(_plan(instance.seed, self.config).sources.values())


module_dag = ModuleDag()


_TESTED = re.compile(r"^tested (m\d{1,4}) (.*)$", re.M)
_MOST_ASKED = 2
_FEW = 40
"""Modules up to which a worker reads the whole file of forms, and tries examples in its first parts only."""
_SAID = ("return", "message", "note")


class _Coder:
    """How a worker for fake models writes modules (read, write, try, return), and how a critic tests them; on its view alone.

    A slip (chance 1 - skill) is a wrong source, a form that was guessed, or a test left out; a slip that an example shows is
    mended. Every tool is asked at most twice for the same, so that it comes to an end.
    """

    def __init__(self, view: View, draw: Draw, skill: float, file: str) -> None:
        self.view, self.draw, self.skill, self.file = view, draw, skill, file
        whole = "\n".join(item.text for item in view.seen if item.kind in ("question", "brief", "operator"))
        self.every = read(whole) | read(subtask(view))
        self.part = read(subtask(view))
        results = [item.text for item in view.seen if item.kind == "result"]
        self.forms = {k: v for text in results for k, v in interfaces(text).items()}
        self.own = "\n".join(item.text for item in view.seen if item.kind == "own")
        self.tested = dict(pair for text in results[-1:] for pair in _TESTED.findall(text))

    def slips(self, what: str) -> bool:
        """Whether a step goes wrong."""
        return self.draw(what) >= self.skill

    def look(self, modules: list[Module]) -> Act | None:
        """Read the forms, where they are needed and not known."""
        wanted = [module.wire for module in modules if module.wire and module.wire not in self.forms]
        if wanted and len(self.every) > _FEW:  # the file is longer than what a tool may answer: only the lines that matter
            program = f"print(*[line for line in open({self.file!r}) if line.startswith({tuple(f'{w}:' for w in wanted)!r})])"
            return None if self.own.count(program) >= _MOST_ASKED or self.slips("look") else use(self.view, "python", program)
        if not wanted or self.own.count(self.file) >= _MOST_ASKED or self.slips("look"):
            return None
        return use(self.view, "python", f"print(open({self.file!r}).read())")

    def source(self, module: Module) -> str:
        """What it writes for a module now."""
        forms = module.forms()
        form = self.forms.get(module.wire, "")
        if forms and form not in forms:
            form = forms[int(self.draw(f"guess {module.wire}") * len(forms))]
        if module.example and self.tested.get(module.name, "").strip() == module.result:
            return module.source(form)
        return module.source(form, is_slip=self.slips(f"write {module.name}"))

    def test(self, sources: dict[str, str], modules: list[Module]) -> Act | None:
        """Try the examples once since anything else came back."""
        known = [module for module in modules if module.example and module.name in sources]
        if len(self.every) <= _FEW:
            has_tested, times = bool(self.tested), self.own.count("tested ")
        else:
            has_tested = self.tested.keys() >= {module.name for module in known}
            times = sum(self.own.count(f"tested {module.name}'") for module in known)
        if not known or has_tested or times >= _MOST_ASKED * len(known) or self.slips("test"):
            return None
        lines = [*sources.values(), *(f"print('tested {m.name}', {m.name}({m.example}))" for m in known)]
        return use(self.view, "python", f"exec({chr(10).join(lines)!r})")

    def others(self) -> dict[str, Counter[str]]:
        """What others wrote for each module."""
        counts: dict[str, Counter[str]] = {}
        for _, sources in read_others(self.view, blocks, _SAID):
            for name, source in sources.items():
                counts.setdefault(name, Counter())[source] += 1
        return counts

    def write(self) -> Act:
        """Do the part that was given, or the whole."""
        modules = list((self.part or self.every).values())
        if act := self.look(modules):
            return act
        sources = {module.name: self.source(module) for module in modules}
        if act := self.test(sources, modules):
            return act
        if self.view.purpose in ("debate", "resolve", "turn"):
            sources |= {name: self.heeded(name, sources.get(name), some) for name, some in self.others().items()}
        return answer(self.view, one_line(sources) or "nothing was specified")

    def heeded(self, name: str, own: str | None, some: Counter[str]) -> str:
        """Its own source, or what others agree on: for what it cannot know, and where it gives in."""
        source, times = some.most_common(1)[0]
        module = self.every.get(name)
        is_unknown = own is None or (module is not None and bool(module.wire) and module.wire not in self.forms)
        gives_in = times >= 2 and self.draw(f"conform {name}") < (1 - self.skill) * times / some.total()
        return source if is_unknown or gives_in else own or source

    # -- as a critic -----------------------------------------------------------------------------------------------------

    def judge(self) -> Act:
        """ACCEPT, or REJECT with the modules that are wrong."""
        statements = [
            (item, parts) for item in self.view.seen if item.kind in (*_SAID, "brief", "subtask") and (parts := blocks(item.text))
        ]
        sources = statements[-1][1] if statements else {}
        modules = self.required_modules(statements[-1][0] if statements else None, sources)
        if act := self.look(modules):
            return act
        odd = [m for m in modules if m.example and m.name in sources and not self.is_known(m, sources[m.name])]
        if odd and (act := self.test(sources, odd)):
            return act
        problems = [text for module in modules if (text := self.problem(module, sources.get(module.name)))]
        if not modules:
            problems = ["no function is in it"]
        return judged(self.view, problems, self.slips("judge"))

    def required_modules(self, item: ViewItem | None, sources: dict[str, str]) -> list[Module]:
        """The modules that must be there: those of the part that it is about, or all."""
        name = f"m{item.task[1:]}" if item is not None and re.fullmatch(r"s\d{1,4}", item.task) else ""
        if name in self.every:
            return [self.every[name]]
        if self.part:
            return list(self.part.values())
        return [m for m in self.every.values() if m.name in sources or len(sources) != 1]

    def is_known(self, module: Module, source: str) -> bool:
        """Whether it is a source that this coder knows by sight, right or wrong."""
        return source.strip() in (module.source(), module.source(is_slip=True))

    def problem(self, module: Module, source: str | None) -> str:
        """What is wrong with the source of a module; empty where nothing is seen."""
        if source is None:
            return f"{module.name} is missing"
        if module.wire:
            form = self.forms.get(module.wire)
            others = [module.source(other) for other in module.forms() if other != form]
            return f"{module.name} does not follow {module.wire}: {form}" if form and source.strip() in others else ""
        is_wrong = source.strip() == module.source(is_slip=True)
        if module.example and module.name in self.tested:
            is_wrong = self.tested[module.name].strip() != module.result
        return f"{module.name}({module.example}) is not {module.result}" if is_wrong else ""


def coded(view: View, draw: Draw, skill: float, file: str) -> Act:
    """What a worker does next in a module DAG."""
    coder = _Coder(view, draw, skill, file)
    return coder.judge() if view.purpose == "judge" else coder.write()
