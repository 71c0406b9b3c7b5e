"""T3, module DAG: k Python functions with typed specifications and a composition; interfaces must agree.

Always true: the score is the share of hidden tests passed, a fraction of whole numbers: as many for each module as for the
whole. A test passes when the function gives exactly what the reference gives, in value and type, and leaves its input as it
was. What is at both ends of a wire is specified but for its form, which stands in a file; two workers who guess it
differently fit nowhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from counterpoint.envs.leaks import marker
from counterpoint.envs.task import Act, Draw, Instance, Score, Subtask, View
from counterpoint.envs.text._child import tagged
from counterpoint.envs.text._coder import coded
from counterpoint.envs.text._modules import blocks, one_line, outputs
from counterpoint.envs.text._plan import Plan, hidden_tests, plan
from counterpoint.envs.world import changed, parameter
from counterpoint.errors import InputError, NotFound, did_you_mean

_MOST_MODULES, _MOST_TESTS = 40, 50
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
def _plan(seed: int, config: Config) -> Plan:
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

    def replace(self, **changes: Any) -> ModuleDag:
        """The same task with other dials."""
        return ModuleDag(changed(self.config, changes))

    def instance(self, seed: int) -> Instance:
        """Specifications, the composition, and the file with the forms."""
        made = _plan(seed, self.config)
        specs = "\n".join(module.spec() for module in made.modules)
        last = made.modules[-1].name
        where = f"The forms of the interfaces stand in the file {FILE}, which python can read.\n" if made.forms else ""
        question = (
            f"Write {len(made.modules)} Python functions that work together, each as specified.\n{specs}\n{where}"
            f"For a list of whole numbers xs they are put together like this, and v{last[1:]} is the result:\n"
            f"{made.composition()}\n"
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
                for i, module in enumerate(made.modules)
            ),
            tools=("python",),
            files={FILE: made.interfaces()} if made.forms else {},
        )

    def check(self, instance: Instance, answer: str) -> Score:
        """The share of hidden tests that the answer's functions pass."""
        made = _plan(instance.seed, self.config)
        groups, expected = hidden_tests(instance.seed, made, self.config.tests)
        sources = blocks(answer)
        if not any(module.name in sources for module in made.modules):
            return Score(0.0, False, dict.fromkeys(expected, 0.0))
        given = outputs(sources, groups)
        passed = {
            name: sum(out == tagged(right) for out, right in zip(given[name], rights, strict=True))
            for name, rights in expected.items()
        }
        share = Fraction(sum(passed.values()), self.config.tests * len(passed))
        return Score(float(share), share == 1, {name: float(Fraction(n, self.config.tests)) for name, n in passed.items()})

    def merge(self, instance: Instance, rule: str, texts: Sequence[str]) -> str:
        """The functions of all returns as one source."""
        if rule not in self.rules:
            raise NotFound(f"no rule named {rule!r}", fix=did_you_mean(rule, self.rules))
        found: dict[str, list[str]] = {}
        for text in texts:
            for name, source in blocks(text).items():
                found.setdefault(name, []).append(source)
        if rule == "vote":
            return one_line({name: Counter(some).most_common(1)[0][0] for name, some in found.items()})
        return one_line({name: some[-1 if rule == "last" else 0] for name, some in found.items()})

    def work(self, view: View, draw: Draw, skill: float) -> Act:
        """Read the forms, write, try the examples, return."""
        return coded(view, draw, skill, FILE)

    def truth_file(self, instance: Instance) -> str:
        """The reference sources."""
        return marker(self.name, instance.seed) + "\n" + "\n".join(_plan(instance.seed, self.config).sources().values())


module_dag = ModuleDag()
