"""Cases to learn blame from and to judge it by: runs with a planted mistake in our own worlds, and Who&When where it is at hand.

Always true: a planted case is decisive (its run fails, the run without the mistake succeeds); same seed, same cases. Nothing of
Who&When is read unless `who_and_when()` is called.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import counterpoint.registry as registry
from counterpoint.audits.blame.injecting import inject
from counterpoint.audits.blame.learning import LEDGER_RECIPES, RIDGES, Case, averaged
from counterpoint.audits.blame.ledgers import AGENT_SIGNALS, LEDGER_SIGNALS, agent_table
from counterpoint.audits.blame.ranker import HASHED, Ranker, softmax, table
from counterpoint.audits.blame.signals import signals
from counterpoint.audits.blame.steps import Floats, Steps, plain_words
from counterpoint.errors import Refused
from counterpoint.formats.importer import Session
from counterpoint.formats.importing.files import File
from counterpoint.lab.bench.expert_chat import broken_chats
from counterpoint.lab.bench.expert_chat.ledger_runs import written_runs
from counterpoint.lab.lm.model import Model
from counterpoint.lab.team.live_replay import LiveReplay
from counterpoint.lab.team.session import Spec, assemble, make_model, play_to_trace
from counterpoint.lab.team.state import Limits
from counterpoint.lab.worlds.world import world
from counterpoint.recorder.recorder import LogicalClock, MemorySink, Recorder
from counterpoint.trace import Trace
from counterpoint.trace.keyed import child_seed, purpose
from counterpoint.trace.mistake import mistake_of

PLACES = tuple(f"place_{p}" for p in range(5)) + tuple(f"place_last_{p}" for p in range(3)) + ("early",)
"""Signals of absolute places: habits of a world, not of mistakes."""
WHERE = "WHO_AND_WHEN"
"""The variable that says where the logs of Who&When are."""
_NEAR = Path("..") / "shared" / "data" / "logs" / "who_and_when"
TEAMS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("ledger_hunt", "centralized", {"documents": 30, "rows": 4, "parts": 3}),
    ("sql_audit", "centralized", {}),
    ("pointer_chase", "centralized", {}),
    ("split_evidence", "debate", {}),
    ("module_dag", "planner_executor_critic", {}),
    ("timetables", "hierarchical", {}),
    ("ledger_hunt", "hierarchical", {"documents": 30, "rows": 4, "parts": 3}),
    ("split_evidence", "centralized", {}),
)
SMALL_TEAMS = (*TEAMS[:3], TEAMS[6])
"""Teams whose runs are quick to do again."""
_WORLDS = ("W2", "P")
CHATS = 1_800
"""Seeds of the generator that a ranker is made of."""
_FEW = 300
"""Cases for which the ridges are as they are written."""


@dataclass(frozen=True)
class LabelledRun:
    """A run whose decisive step and agent are known."""

    trace: Trace
    steps: Steps
    truth: int
    """The place of the step among the candidates; -1 where the label is on something that nobody could be blamed for."""
    agent: str
    world: str

    def case(self, names: Sequence[str], *, group: str | None = None) -> Case:
        """The run as a case with these columns."""
        more = gold_signals(self) if set(GOLD_SIGNALS) & set(names) else {}
        return Case(table(self.steps, list(names), more), self.truth, self.trace.task_id if group is None else group)


def column_names(*, places: bool, words: bool) -> list[str]:
    """The signals by name, with those of absolute places and the hashed words where asked."""
    trace = next(iter(broken_chats(range(40))))
    found = [name for name in signals(Steps(trace)) if places or name not in PLACES]
    return found + (list(HASHED) if words else [])


# -- planted ---------------------------------------------------------------------------------------------------------------


def chats(seed: int, shape: str, count: int) -> list[LabelledRun]:
    """Conversations of experts who err, from so many seeds of the generator; about half of them fail by a mistake."""
    base = _base(seed)
    return [k for t in broken_chats(range(base, base + count), shapes=(shape,)) for k in _known(t, shape)]


def ranker_of_chats(known: Sequence[LabelledRun], names: Sequence[str], *, seed: int = 0) -> Ranker:
    """A ranker that has seen planted mistakes only: the mean over ridges. Absolute places and words are habits of a world."""
    cases = [k.case(names, group=k.trace.trace_id) for k in known]
    habits = [j for j, name in enumerate(names) if name in PLACES or name in HASHED]
    for case in cases:
        case.x[:, habits] = 0.0
    # The ridge guards against what is only a habit of the generator, so it does not give way to more of its conversations.
    recipes = [recipe._replace(ridge=recipe.ridge * len(cases) / _FEW) for recipe in RIDGES]
    return averaged(cases, names, recipes=recipes, seed=seed)[0]


def planted(
    seed: int, *, teams: int = 6, worlds: int = 12, of: Sequence[tuple[str, str, Mapping[str, Any]]] = TEAMS
) -> list[LabelledRun]:
    """Runs of live teams of fakes and of simulated teams with one decisive mistake each."""
    base = _base(seed)
    out: list[LabelledRun] = []
    for task, topology, config in of:
        for i in range(teams):
            spec = Spec(
                task=task, config=config, seed=(base + i) % (1 << 31), topology=topology, model="fake:1",
                options={"explore": 0.0}, limits=Limits(width=3),
            )  # fmt: skip
            out += _of_run(team_run(spec), LiveReplay(), f"{task} {topology}", base + i)
    for name in _WORLDS:
        found = world(name)
        runs = found.run("reference", [(base + i) % (1 << 31) for i in range(worlds)], log=True)
        for i in range(worlds):
            out += _of_run(runs.trace(i), found, name, base + i)
    return out


def _base(seed: int) -> int:
    return child_seed(seed, purpose("blame")) % (1 << 40)


def team_run(spec: Spec, model: Model | None = None) -> Trace:
    """A live team, recorded in memory; without a model that plays it is made as the spec says."""
    task, sink = spec.make_task(), MemorySink()
    model = model or make_model(spec.model, task, **spec.options)
    team = assemble(spec, task, task.instance(spec.seed), model, Recorder(sink, LogicalClock()))
    return asyncio.run(play_to_trace(team, spec, sink, trace_id=f"{spec.task}-{spec.topology}-{spec.seed}"))


def _of_run(trace: Trace, replay: Any, name: str, seed: int) -> Iterator[LabelledRun]:
    """Mistakes in one run that went well, subtle ones and others."""
    if name not in _WORLDS and trace.rewards["team"] < 1:
        return
    rng = np.random.default_rng([seed % (1 << 32), 5])
    for broken in inject(trace, replay, count=2, seed=seed % (1 << 32), subtlety=float(rng.random()), tries=4):
        yield from _known(broken, name)


def _known(trace: Trace, name: str) -> Iterator[LabelledRun]:
    mistake, steps = mistake_of(trace), Steps(trace)
    if mistake is not None and mistake.step in steps.numbers:
        yield LabelledRun(trace, steps, steps.numbers.index(mistake.step), mistake.agent, name)


# -- Who&When --------------------------------------------------------------------------------------------------------------


def who_and_when() -> list[LabelledRun]:
    """The labelled runs that are at hand: in the folder that the variable names, else beside the repository; else none."""
    folder = Path(os.environ.get(WHERE) or _NEAR)
    out = []
    for path in sorted(folder.rglob("*.json")) if folder.is_dir() else ():
        file = File(path.relative_to(folder).as_posix(), path.stat().st_size, lambda p=path: p.open("rb"))  # type: ignore[misc]
        for trace in registry.get("format", "who_and_when").read_session(Session(path.stem, [file])):
            labels = trace.meta.get("labels") or {}
            if "mistake_step" not in labels or "mistake_agent" not in labels:
                continue
            out.append(known_run(trace, "hand-crafted" if trace.topology == "centralized" else "generated"))
    return out


def needed_logs() -> list[LabelledRun]:
    """The labelled runs, for a claim that says nothing without them."""
    if not (found := who_and_when()):
        fix = f"set {WHERE}=FOLDER, the folder that its files are in"
        raise Refused("this claim is about the logs of Who&When, and they are not here", fix=fix)
    return found


GOLD_SIGNALS = ("shows_gold", "after_gold")
"""Signals that need the right answer, which a user seldom has: who shows it, and what comes after it was shown."""
_GOLD = 3
"""Characters that a right answer needs to be found in a text."""


def gold_signals(known: LabelledRun) -> dict[str, Floats]:
    """Whether a step, or the answer of its tool, shows the right answer, and whether it had been shown before; 0 where it is too
    short or in the question."""
    steps, n = known.steps, len(known.steps)
    gold = plain_words(str((known.trace.meta.get("labels") or {}).get("ground_truth") or ""))
    asked = " ".join(plain_words(steps.texts[i]) for i in steps.order if i not in steps.at)[:2000]
    shows = np.zeros(n)
    if len(gold.strip()) >= _GOLD and gold not in asked:
        for k, i in enumerate(steps.places):
            texts = [steps.texts[i], *([steps.texts[steps.results[k]]] if steps.results[k] >= 0 else [])]
            shows[k] = float(any(gold in plain_words(text) for text in texts))
    return {"shows_gold": shows, "after_gold": (np.cumsum(shows) - shows > 0).astype(np.float64)}


# -- teams with a ledger ---------------------------------------------------------------------------------------------------


WRITTEN = 0.5
"""What a run written by hand counts beside a labelled one."""


def ledger_ranker(cases: Sequence[Case], seed: int, names: Sequence[str] = LEDGER_SIGNALS) -> Ranker:
    """A ranker of the steps of such runs, from labelled ones and those written by hand."""
    return averaged([*cases, *_written(tuple(names))], names, recipes=LEDGER_RECIPES, is_weighed=True, seed=seed)[0]


@cache
def _written(names: tuple[str, ...]) -> list[Case]:
    known = [known_run(trace, "written") for trace in written_runs()]
    return [k.case(names)._replace(weight=WRITTEN) for k in known]


def known_run(trace: Trace, world: str) -> LabelledRun:
    """A run of Who&When's form with its label."""
    steps, at = Steps(trace), int((trace.metrics or {}).get("mistake_step", -1))
    truth = steps.numbers.index(at) if at in steps.numbers else -1
    return LabelledRun(trace, steps, truth, str(trace.meta["labels"]["mistake_agent"]), world)


def agent_cases(known: Sequence[LabelledRun]) -> list[Case]:
    """The agents of such runs, of which one is labelled; the first where the labelled one says nothing."""
    out = []
    for k in known:
        agents, x = agent_table(k.steps)
        out.append(Case(x, agents.index(k.agent) if k.agent in agents else 0, k.trace.task_id))
    return out


def agent_ranker(cases: Sequence[Case], seed: int) -> Ranker:
    """A ranker of the agents of such runs."""
    return averaged(cases, AGENT_SIGNALS, recipes=LEDGER_RECIPES, is_weighed=True, seed=seed)[0]


# -- judging ---------------------------------------------------------------------------------------------------------------


def hits(known: LabelledRun, place: int) -> tuple[float, float]:
    """Whether this candidate is the decisive step, and whether its agent is the one."""
    if not 0 <= place < len(known.steps):
        return 0.0, 0.0
    return float(place == known.truth), float(known.trace.events[known.steps.places[place]].agent == known.agent)


def hits_of(known: Sequence[LabelledRun], scores: Sequence[Floats]) -> tuple[list[float], list[float]]:
    """Whether the first of each ranking is right: step, agent."""
    told = [hits(k, int(np.argmax(s))) for k, s in zip(known, scores, strict=True)]
    return [s for s, _ in told], [a for _, a in told]


def ranks_of(known: Sequence[LabelledRun], scores: Sequence[Floats]) -> list[float]:
    """The place of each decisive step in its ranking, from 1; infinite where the label is on no step."""
    found = [np.flatnonzero(np.argsort(-s, kind="stable") == k.truth) for k, s in zip(known, scores, strict=True)]
    return [float(place[0]) + 1 if len(place) else float("inf") for place in found]


def near_hits(known: Sequence[LabelledRun], scores: Sequence[Floats]) -> list[float]:
    """Whether the first of each ranking is the labelled entry of the log, or the one before or after it."""
    told = []
    for k, s in zip(known, scores, strict=True):
        at = k.steps.numbers[int(np.argmax(s))]
        told.append(float(k.truth >= 0 and abs(at - k.steps.numbers[k.truth]) <= 1))
    return told


def agent_hits(known: Sequence[LabelledRun], scores: Sequence[Floats]) -> list[float]:
    """Whether the agent whose steps are likeliest together is the one."""
    out = []
    for k, score in zip(known, scores, strict=True):
        sums: Counter[str] = Counter()
        for place, p in zip(k.steps.places, softmax(score).tolist(), strict=True):
            sums[k.trace.events[place].agent] += p
        out.append(float(sums.most_common(1)[0][0] == k.agent))
    return out


_CONSTANTS = 12


def constants(known: Sequence[LabelledRun]) -> dict[str, tuple[list[float], list[float]]]:
    """Every constant: the n-th entry of each log, the last ones, the agent who speaks most, a step at random (its chance)."""
    out = {f"always entry {n}": [_entry(k, n) for k in known] for n in range(_CONSTANTS)}
    out |= {f"always the last step but {n}": [hits(k, len(k.steps) - 1 - n) for k in known] for n in range(3)}
    out["a step at random"] = [_random(k) for k in known]
    out["first step of who speaks most"] = [hits(k, _talker(k)) for k in known]
    return {name: ([s for s, _ in rows], [a for _, a in rows]) for name, rows in out.items()}


def error_rule(known: Sequence[LabelledRun]) -> tuple[list[float], list[float]]:
    """The step before the first failed result, else the first step."""
    rows = []
    for k in known:
        bad = [n for n, r in enumerate(k.steps.results) if r >= 0 and k.steps.failed(r)]
        rows.append(hits(k, bad[0] if bad else 0))
    return [s for s, _ in rows], [a for _, a in rows]


def _entry(known: LabelledRun, number: int) -> tuple[float, float]:
    """Entry `number` of the log, whoever it is of; a log that is shorter is missed."""
    numbers = known.steps.numbers
    return hits(known, numbers.index(number)) if number in numbers else (0.0, 0.0)


def _random(known: LabelledRun) -> tuple[float, float]:
    n = len(known.steps)
    told = [hits(known, k) for k in range(n)]
    return sum(s for s, _ in told) / n, sum(a for _, a in told) / n


def _talker(known: LabelledRun) -> int:
    agents = known.steps.agents
    return agents.index(max(dict.fromkeys(agents), key=agents.count))
