"""Which runs there are: teams on tasks, four samples of each instance, and what is public of them.

Always true: run n is a function of the plan and of n alone, so that a folder can be gone on with, and what was left out can be
made again. The four samples of one instance stand together: they are public or held out together, and are never in two parts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.util import find_spec
from typing import Any

from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.team.edits import keyed_seed
from counterpoint.lab.team.session import Spec
from counterpoint.lab.train.lm.settings import TaskMix
from counterpoint.trace.keyed import child_seed, purpose, uniform

SAMPLES = 4
"""Runs of one instance, each with draws of its own."""
PART = 16
"""Runs that are written together."""
HELD_OUT = 0.2
"""Share of the instances whose labels are in no file."""
CHANGES = ("delete", "neutral", "other", "delay")
LICENCE = "Apache-2.0"
_KEY, _HIDDEN = purpose("labelled messages"), purpose("labelled messages, held out")
_BOOKS = {"documents": 16, "rows": 4, "parts": 4, "firms": 6}
_EASY = {"documents": 8, "rows": 2, "parts": 2, "firms": 6, "alias_rate": 0.0, "contradictions": 0.0}
_SEATS = {"claims": 6, "independents": 3, "clones": 2}
_SHAPES = ("centralized", "hierarchical", "debate", "swarm", "planner_executor_critic")


def _team(task: str, topology: str, dials: Mapping[str, Any], **limits: Any) -> TaskMix:
    return TaskMix(name=task, topology=topology, set=dict(dials), limits={"width": 3, "rounds": 1, **limits})


def _many(task: str, shapes: tuple[str, ...], dials: Mapping[str, Any], **limits: Any) -> dict[str, TaskMix]:
    return {f"{task} {shape}": _team(task, shape, dials, **limits) for shape in shapes}


TEAMS: dict[str, TaskMix] = {
    **_many("T1", (*_SHAPES, "turns"), _BOOKS, steps=24),
    **_many("T2", ("centralized", "swarm", "planner_executor_critic"), {"rows": 60, "rules": 4, "violations": 2}, steps=16),
    **_many("T3", ("centralized", "debate"), {"modules": 3, "tests": 2}),
    **_many("T4", _SHAPES, _SEATS),
    **_many("T5", ("centralized", "swarm", "planner_executor_critic", "debate"), {"hops": 4, "parts": 2, "distractors": 10}),
    **_many("T6", ("centralized", "swarm", "planner_executor_critic", "debate"), {}),
}
"""The teams of test doubles, by name."""
_SHORT: dict[str, Any] = {"width": 2, "turns": 16, "steps": 14, "max_tokens": 96, "context": 4096}
MODEL_TEAMS: dict[str, TaskMix] = {
    **_many("T1", (*_SHAPES, "turns"), _EASY, **_SHORT),
    **_many("T4", ("debate", "swarm"), {"claims": 3, "independents": 2, "clones": 1}, **_SHORT),
    **_many("T5", ("centralized", "turns"), {"hops": 2, "parts": 2, "distractors": 4, "search_rate": 0.0}, **_SHORT),
    **_many("T6", ("swarm",), {"talks": 2}, **_SHORT),
}
"""Those of a language model: the ledger hunt that the shipped one has learned, and short ones that it has not."""
TABLE = "dpbench sim_n5_comm"
_TABLE = _team("dpbench:sim_n5_comm_t12", "turns", {}, turns=400, max_tokens=32, context=2048)
_MODEL_TABLE = _team("dpbench:sim_n5_comm_t6", "turns", {}, turns=400, max_tokens=24, context=2048)
"""A shorter one: everybody speaks in every step, and each of those words is deleted."""


def teams_of(model: str) -> dict[str, TaskMix]:
    """The teams that a model is labelled in; the table of five where dpbench is installed."""
    found, table = (TEAMS, _TABLE) if model.partition(":")[0] == "fake" else (MODEL_TEAMS, _MODEL_TABLE)
    return found | ({TABLE: table} if find_spec("dpbench") is not None else {})


@dataclass(frozen=True)
class Run:
    """One team that is played once."""

    number: int
    team: str
    spec: Spec
    draws: int
    group: str
    """The instance, which its samples share."""
    is_held_out: bool
    forks: int
    """Seed of its forks."""

    @property
    def name(self) -> str:
        """Its trace's id."""
        return f"{self.group}-{self.number % SAMPLES}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a folder of labels is made by."""

    seed: int = 0
    model: str = "fake:0.7"
    options: Mapping[str, Any] = field(default_factory=dict)
    k: int = 4
    """Pairs of forks behind a label, none of them on the recorded noise."""
    changes: tuple[str, ...] = ("delete",)
    teams: tuple[str, ...] = ()
    """By name, in turn; none: all that there are."""

    def __post_init__(self) -> None:
        if not 2 <= self.k <= 1024:
            raise InputError(f"k is {self.k}", where="--set", fix="2 or more pairs of forks: one has no spread")
        for one in self.changes:
            if one not in CHANGES:
                raise InputError(f"no change {one!r}", where="--set", fix=did_you_mean(one, CHANGES))
        for one in self.teams:
            if one not in teams_of(self.model):
                raise InputError(f"no team {one!r}", where="--set", fix=did_you_mean(one, teams_of(self.model)))

    @cached_property
    def mixes(self) -> dict[str, TaskMix]:
        """The teams by name."""
        known = teams_of(self.model)
        return {name: known[name] for name in self.teams or known}

    def run(self, n: int) -> Run:
        """Run n."""
        group = n // SAMPLES
        team = list(self.mixes)[group % len(self.mixes)]
        instance = child_seed(self.seed, _KEY, group) >> 33
        usual = {"explore": 0.02, "gullible": 0.0} if self.model.partition(":")[0] == "fake" else {}
        spec = self.mixes[team].spec(instance, self.model, {**usual, **self.options})
        name = f"{team.replace(' ', '-').replace(':', '-')}-{self.seed}-{group}"
        is_hidden = bool(uniform(self.seed, _HIDDEN, group) < HELD_OUT)
        draws = keyed_seed(instance, f"sample {n % SAMPLES}")
        return Run(n, team, spec, draws, name, is_hidden, child_seed(self.seed, _KEY, group, n) >> 2)

    def as_dict(self) -> dict[str, Any]:
        """What `about.json` says."""
        plain = asdict(self) | {"changes": list(self.changes), "teams": list(self.mixes), "licence": LICENCE}
        return plain | {"options": {k: v for k, v in self.options.items() if k not in ("device", "batch")}}

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Plan:
        """A plan from what `about.json` says."""
        try:
            given = {k: v for k, v in told.items() if k not in ("licence", "digest")}
            return cls(**{**given, "changes": tuple(told["changes"]), "teams": tuple(told["teams"])})
        except (TypeError, KeyError, AttributeError) as error:
            raise InputError(f"about.json is no plan of labelled messages: {error}", fix="a folder of `bench messages`") from None

    @property
    def digest(self) -> str:
        """Of all that decides what the runs and labels are."""
        teams = {name: asdict(mix) for name, mix in self.mixes.items()}
        return hashlib.blake2b(json.dumps([self.as_dict(), teams], sort_keys=True).encode(), digest_size=8).hexdigest()
