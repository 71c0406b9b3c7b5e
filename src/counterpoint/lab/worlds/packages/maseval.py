"""MASEval: MMLU questions from a file of yours, read and scored by the package; its other benchmarks are refused.

The package (maseval 0.5.1) brings no data. `maseval:mmlu/PATH.json` is a file in the form that its `load_tasks` reads: a list of
objects with `query` (or `example`), `choices` and `gold`; a seed is a place in the file, modulo its length. One agent answers
once, or a team that solves it together, and is paid the package's `acc`. Examples before a question (`full_prompt`) are shown
where an object has them.

Its other benchmarks need what a seed and an offline machine do not give, and each is one clear error: see `_REFUSED`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from counterpoint.errors import InputError, Refused, did_you_mean
from counterpoint.lab.worlds.packages import Draw, Episode, missing

_AGENT = "solver"
_REFUSED = {
    "converse": "its data are fetched, the other side is a model, and three judges that are models score it",
    "gaia2": "its scenarios come from a hub, and its environment is the package meta-agents-research-environments",
    "macs": "its tools, its user and its judge are models, and its tasks are fetched",
    "multiagentbench": "its tasks and its environments are a clone of MARBLE, and a model judges",
    "tau2": "its domains are fetched, and its user is a model",
}


class Choice(Episode):
    """One question with choices."""

    agents = (_AGENT,)
    is_solo = True
    rules = "Answer with the letter of one choice."

    def __init__(self, code: str) -> None:
        super().__init__()
        path = code.removeprefix("mmlu/")
        self.name, self.version = f"maseval:{code}", f"{_version()}/1"
        self._tasks = _tasks(path)
        self.actions = tuple("ABCD"[: max(len(task.environment_data["choices"]) for task in self._tasks)])
        self.reset(0)

    def reset(self, seed: int) -> None:
        """The question of this seed."""
        self.illegal, self.result = 0, dict[str, Any]()
        self._task = self._tasks[seed % len(self._tasks)]
        self._letters = tuple("ABCD"[: len(self._task.environment_data["choices"])])

    def turn(self) -> tuple[str, ...]:
        """The one agent, until it has answered."""
        return self.agents if not self.result else ()

    def observe(self, agent: str) -> str:
        """The question, with the examples before it where the file has them."""
        return str(self._task.environment_data.get("full_prompt") or self._task.query)

    def legal(self, agent: str) -> tuple[str, ...]:
        """The letters of the choices."""
        return self._letters

    def take(self, actions: Mapping[str, str], words: Mapping[str, str]) -> None:
        """The package reads the answer and scores it."""
        self.result = dict(_evaluator()(self._task, None)({"messages": []}, actions[_AGENT]))

    @property
    def rewards(self) -> dict[str, float]:
        """The package's `acc`."""
        return {_AGENT: float(self.result["acc"]) if self.result else 0.0}

    @property
    def is_solved(self) -> bool:
        """The right choice."""
        return bool(self.result and self.result["correct"])

    def measures(self) -> dict[str, float]:
        """Accuracy, and whether the package could not read the answer."""
        result = self.result or {"acc": 0.0, "parse_failed": False}
        return {"acc": float(result["acc"]), "parse_failed": float(result["parse_failed"])}

    def by_hand(self, text: str, legal: Any, draw: Draw) -> str:
        """Some letter: an observation does not say which is right."""
        return str(legal[int(draw("action") * len(legal))]) if legal else "A"

    def copy(self) -> Choice:
        """Tasks are shared: nothing changes them."""
        new = object.__new__(Choice)
        new.__dict__ |= self.__dict__
        return new


@cache
def _version() -> str:
    from importlib.metadata import version

    return version("maseval")


@cache
def _evaluator() -> Any:
    from maseval.benchmark.mmlu.mmlu import MMLUEvaluator

    return MMLUEvaluator


def _tasks(path: str) -> list[Any]:
    from maseval.benchmark.mmlu.mmlu import load_tasks

    where = f"maseval:mmlu/{path}"
    try:
        out = list(load_tasks(path))
    except Exception as error:
        what = f"the package cannot read it: {type(error).__name__}: {error!s:.200}"
        raise InputError(what, where=where, fix="a JSON list of objects with query, choices and gold") from error
    if not out or any(not 2 <= len(task.environment_data["choices"]) <= 4 for task in out):
        raise InputError("no questions, or one without two to four choices", where=where, fix="the package reads A, B, C and D")
    return out


def _check(code: str) -> None:
    """Refuse what does not run offline, with the reason."""
    name, _, path = code.partition("/")
    if name in _REFUSED:
        fix = "maseval:mmlu/PATH.json runs; traces of the others come in by `counterpoint import`"
        raise Refused(f"does not run offline: {_REFUSED[name]}", where=f"maseval:{name}", fix=fix)
    if name != "mmlu" or not path:
        raise InputError(
            "no benchmark of that name", where=f"maseval:{code}", fix=did_you_mean(name, ["mmlu/PATH.json", *_REFUSED])
        )


def maseval(name: str) -> Episode:
    """A question of MMLU from a file, `mmlu/PATH.json`."""
    _check(name)
    try:
        import maseval.benchmark.mmlu.mmlu  # noqa: F401
    except ImportError as error:
        raise missing("maseval", error) from None
    return Choice(name)
