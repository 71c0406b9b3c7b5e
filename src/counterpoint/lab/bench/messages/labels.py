"""Labels of messages by coupled forks: the team with the message and without it, on the same noise, k times over.

    d_i = R(up to m; noise i) - R(up to m, m changed, others react; noise i)    value = mean(d)    se = sd(d, ddof 1) / sqrt(k)

Always true: noise i is none that the run had, so that a label says nothing of the run's own luck; `here` is one more pair, on the
recorded noise, whose first arm is the run itself. A call is made once for all forks of a run that ask the same with the same
seed: both arms get the very same answer, also from a GPU whose last bits depend on what else is computed, and a message that
nobody reads is worth exactly 0. Parts are independent of each other: same plan, same bytes, however often it was cut off.

Changes: `delete`, never delivered; `neutral`, "Nothing was found." in its place; `other`, what another team wrote on the same
instance (one of its kind); `delay`, for what is said among equals: delivered after the receiver's next act.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from counterpoint.credits.forks import fork_seeds
from counterpoint.display import working
from counterpoint.errors import CounterpointError, InputError, NotFound
from counterpoint.files import put
from counterpoint.formats.masking import masked_all
from counterpoint.lab.bench.messages.plan import PART, SAMPLES, Plan, Run
from counterpoint.lab.bench.messages.rows import ABOUT, MessageRow, Messages, has_part, write_part
from counterpoint.lab.lm.model import Call, Completion, Model
from counterpoint.lab.tasks.ledger_hunt import ledger_hunt
from counterpoint.lab.team.edits import Edits
from counterpoint.lab.team.live_replay import LiveReplay
from counterpoint.lab.team.session import DRAWS, assemble, make_model, play_to_trace
from counterpoint.recorder.recorder import LogicalClock, MemorySink, Recorder
from counterpoint.trace import Event, Trace
from counterpoint.trace.keyed import purpose, uniform
from counterpoint.trace.replay import Delete, Do, Fork, Insert, Substitute
from counterpoint.trace.vocabulary import OUTSIDE_ROLES

NEUTRAL = "Nothing was found."
_AT_ONCE = 64
"""Teams under way at once in one process."""
_DRAW = purpose("another team's message")


class OneAnswer:
    """A model that answers each call once: the same question with the same seed gets the very same answer. Its `close` leaves
    the model open, which others use too."""

    def __init__(self, model: Model) -> None:
        self._model, self._known = model, {}  # type: Model, dict[str, asyncio.Future[Completion]]
        self.name, self.version = model.name, model.version
        self.is_instant = getattr(model, "is_instant", False)

    async def complete(self, call: Call) -> Completion:
        """The answer, asked for at the first time."""
        key = call.key(self.name, self.version)
        if key not in self._known:
            self._known[key] = asyncio.ensure_future(self._model.complete(call))
        return await asyncio.shield(self._known[key])

    async def close(self) -> None:
        """Not ours to close."""


def messages_of_team(trace: Trace) -> list[Event]:
    """The messages and returns of the team's own members."""
    own = [e for e in trace.events if e.type in ("message", "return") and e.key is not None]
    return [e for e in own if e.agent not in OUTSIDE_ROLES and e.role not in OUTSIDE_ROLES]


def kind_of(trace: Trace, event: Event) -> str:
    """`return`, `order` (from who spawned the receiver) or `peer`."""
    if event.type == "return":
        return "return"
    is_led = any(e.type == "spawn" and e.agent == event.agent and e.to == event.to for e in trace.events)
    return "order" if is_led else "peer"


@dataclass
class _Labelling:
    """One run whose messages are labelled."""

    run: Run
    plan: Plan
    trace: Trace
    model: OneAnswer
    siblings: Sequence[Trace]
    """Other samples of the instance."""
    seeds: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.seeds = fork_seeds(self.run.forks, self.trace, self.plan.k)

    def change(self, event: Event, name: str) -> Do | None:
        """What is done to a message; None where there is nothing else that could stand there."""
        if name in ("delete", "delay"):
            return Delete() if name == "delete" or self._is_said(event) else None
        text = NEUTRAL if name == "neutral" else self._other(event)
        return None if text is None or text == self.trace.text(event) else Substitute(text)

    def _is_said(self, event: Event) -> bool:
        """Whether it can come later: words among equals, which are heard and set nothing going."""
        return kind_of(self.trace, event) == "peer" and event.to is not None and event.to in self.trace.agents

    def _other(self, event: Event) -> str | None:
        own, kind = self.trace.text(event), kind_of(self.trace, event)
        pool = [t.text(e) for t in self.siblings for e in messages_of_team(t) if kind_of(t, e) == kind and e.task == event.task]
        texts = sorted({t for t in pool if t is not None and t != own})
        at = int(uniform(self.run.forks, _DRAW, self.trace.index[event.id]) * len(texts))
        return texts[at] if texts else None


class Maker:
    """Plays and forks the teams of one plan, many at once, with one model."""

    def __init__(self, plan: Plan, model: Model | None = None) -> None:
        self.plan, self._gate = plan, asyncio.Semaphore(_AT_ONCE)
        self._model = model

    async def part(self, number: int, runs: int) -> tuple[list[MessageRow], list[Trace]]:
        """The rows and runs of one part: those of its runs that are below `runs`."""
        last = min(runs, (number + 1) * PART)
        return await self.labels([self.plan.run(n) for n in range(number * PART, last)])

    async def labels(
        self, runs: Sequence[Run], *, is_shown: bool = False, recorded: Mapping[str, Trace] | None = None
    ) -> tuple[list[MessageRow], list[Trace]]:
        """Rows of these runs, and the runs; `is_shown`: held-out labels too; `recorded`: runs that were played before."""
        models = [OneAnswer(self._model or make_model(r.spec.model, r.spec.make_task(), **r.spec.options)) for r in runs]
        before = recorded or {}
        here = [r for r in runs if r.name not in before]
        new = await asyncio.gather(*(self._played(r, m) for r, m in zip(runs, models, strict=True) if r in here))
        played = {r.name: t for r, t in zip(here, new, strict=True)}
        traces = [played[r.name] if r.name in played else before[r.name] for r in runs]
        every = []
        for i, run in enumerate(runs):
            siblings = [t for j, t in enumerate(traces) if j != i and runs[j].group == run.group]
            every.append(_Labelling(run, self.plan, traces[i], models[i], siblings))
        rows = await asyncio.gather(*(self._rows(one, is_shown=is_shown) for one in every))
        out = masked_all(traces)
        texts = {t.trace_id: t for t in out.traces}
        return [_masked_row(row, texts[row.run]) for some in rows for row in some], out.traces

    async def _played(self, run: Run, model: OneAnswer) -> Trace:
        async with self._gate:
            task, sink = run.spec.make_task(), MemorySink()
            recorder, edits = Recorder(sink, LogicalClock()), Edits(run.draws)
            team = assemble(run.spec, task, task.instance(run.spec.seed), model, recorder, edits=edits)
            team.is_timeless = True
            return await play_to_trace(team, run.spec, sink, trace_id=run.name, meta={DRAWS: run.draws})

    async def _rows(self, one: _Labelling, *, is_shown: bool) -> list[MessageRow]:
        said = messages_of_team(one.trace)
        edges: dict[str, int] = {}
        for edge in one.trace.edges:
            edges[edge.src] = edges.get(edge.src, 0) + 1
        return [
            row
            for some in await asyncio.gather(
                *(self._message(one, e, i, len(said), edges.get(e.id, 0), is_shown=is_shown) for i, e in enumerate(said))
            )
            for row in some
        ]

    async def _message(
        self, one: _Labelling, event: Event, place: int, of: int, readers: int, *, is_shown: bool
    ) -> list[MessageRow]:
        run, trace, text = one.run, one.trace, one.trace.text(event) or ""
        base = MessageRow(
            run=run.name, group=run.group, team=run.team, task=run.spec.task, topology=run.spec.topology, model=run.spec.model,
            seed=run.spec.seed, split="held out" if run.is_held_out else "public", event=event.id, kind=kind_of(trace, event),
            sender=event.from_ or event.agent, receiver=event.to or "all", text=text, place=place, of=of, length=len(text),
            readers=readers, reward=float(trace.rewards["team"]), change="",
        )  # fmt: skip
        changes = {name: do for name in self.plan.changes if (do := one.change(event, name)) is not None}
        if run.is_held_out and not is_shown:
            return [replace(base, change=name) for name in changes]
        return await self._labelled(one, event, base, changes)

    async def _labelled(self, one: _Labelling, event: Event, base: MessageRow, changes: dict[str, Do]) -> list[MessageRow]:
        try:
            kept = await asyncio.gather(*(self._fork(one, Fork(event.id, None, s)) for s in one.seeds))
        except CounterpointError:
            return [replace(base, change=name) for name in changes]  # a run that cannot be forked there: rows without a label
        out = []
        for name, do in changes.items():
            later = one.trace.text(event) or "" if name == "delay" else None
            try:
                asked = (None, *one.seeds)
                gone = await asyncio.gather(*(self._fork(one, Fork(event.id, do, s), later) for s in asked))
            except CounterpointError:
                out.append(replace(base, change=name))  # this team cannot be changed so
                continue
            pairs = [a[0] - b[0] for a, b in zip(kept, gone[1:], strict=True)]
            se = float(np.std(pairs, ddof=1) / np.sqrt(len(pairs)))
            calls = sum(c for _, c in [*kept, *gone])
            out.append(
                replace(
                    base, change=name, value=float(np.mean(pairs)), se=se, here=base.reward - gone[0][0], pairs=pairs,
                    forks=len(kept) + len(gone), calls=calls, calls_here=gone[0][1],
                )
            )  # fmt: skip
        return out

    async def _fork(self, one: _Labelling, fork: Fork, later: str | None = None) -> tuple[float, int]:
        """Reward and model calls of a fork; `later`: the words come after the receiver's next act."""
        replay = LiveReplay(model=one.model)
        async with self._gate:
            made = await replay.fork_here(one.trace, fork)
            calls = int(made.meta["fork"]["calls"].get("re-run", 0))
            if later is not None and (at := _next_act(one.trace, made, fork.at)) is not None:
                to = one.trace.events[one.trace.index[fork.at]].to
                made = await replay.fork_here(made, Fork(at, Insert(later, {"to": to}), None))
                calls += int(made.meta["fork"]["calls"].get("re-run", 0))
        return float(made.rewards["team"]), calls


def _next_act(trace: Trace, without: Trace, at: str) -> str | None:
    """The receiver's next act where the message never came; None where it does nothing more."""
    place, to = trace.index[at], trace.events[trace.index[at]].to
    for event in without.events[place:]:
        if event.agent == to and event.key is not None and event.type not in ("spawn", "return") and "|passed|" not in event.key:
            return event.id
    return None


def _masked_row(row: MessageRow, trace: Trace) -> MessageRow:
    """The row with the text as the masked trace has it."""
    return replace(row, text=trace.text(trace.events[trace.index[row.event]]) or "")


# -- folders -------------------------------------------------------------------------------------------------------------------


def make(folder: Path, plan: Plan, runs: int, *, workers: int = 1) -> None:
    """Label the messages of the plan's first `runs` runs (whole instances) into a folder: what is there is not made again."""
    runs = -(-runs // SAMPLES) * SAMPLES
    settle(folder, plan)
    missing = [n for n in range(-(-runs // PART)) if not has_part(folder, n)]
    with working("parts of 16 runs", len(missing)) as work:
        if workers < 2 or len(missing) < 2:
            for number in missing:
                _make_part(folder, plan, runs, number)
                work.step()
            return
        context = multiprocessing.get_context("spawn")
        with context.Pool(min(workers, len(missing)), initializer=_undisturbed) as pool:  # an interruption ends them at once
            for _ in pool.imap_unordered(partial(_make_part, folder, plan, runs), missing):
                work.step()


def settle(folder: Path, plan: Plan) -> None:
    """A folder holds labels of one plan."""
    path = folder / ABOUT
    if path.is_file():
        other = json.loads(path.read_text()).get("digest")
        if other != plan.digest:
            raise InputError(
                "this folder has labels of another plan", where=str(folder), fix="name another folder, or the same plan"
            )
        return
    put([(path, (json.dumps({**plan.as_dict(), "digest": plan.digest}, indent=1, sort_keys=True) + "\n").encode())])


_MODELS: dict[str, Model] = {}
"""The language model of this process: loaded once for all parts."""


def _undisturbed() -> None:
    """Ctrl-C is the parent's to answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _make_part(folder: Path, plan: Plan, runs: int, number: int) -> None:
    rows, traces = asyncio.run(Maker(plan, shared_model(plan)).part(number, runs))
    write_part(folder, number, rows, traces)


def shared_model(plan: Plan) -> Model | None:
    """The model for all teams of a plan; None for test doubles, which know their task."""
    if plan.model.partition(":")[0] == "fake":
        return None
    if plan.model not in _MODELS:
        first = next(iter(plan.mixes.values())).spec(0, plan.model)
        _MODELS[plan.model] = make_model(plan.model, first.make_task(), **plan.options)
    return _MODELS[plan.model]


def held_out_labels(plan: Plan, groups: Sequence[str], most: int, runs: Mapping[str, Trace]) -> list[MessageRow]:
    """Labels of held-out instances, made now: of those with these names among the plan's first `most` runs, forked as they were
    recorded."""
    wanted, by_group = set(groups), {}  # type: set[str], dict[str, list[Run]]
    for run in map(plan.run, range(most)):
        if run.group in wanted:
            by_group.setdefault(run.group, []).append(run)
    out: list[MessageRow] = []
    with working("held-out instances", len(by_group)) as work:
        for own in by_group.values():
            maker = Maker(plan, shared_model(plan))
            out += asyncio.run(maker.labels(own, is_shown=True, recorded=runs))[0]
            work.step()
    return out


def held_out_rows(found: Messages) -> tuple[MessageRow, ...]:
    """The held-out messages of a folder with their labels, which are made now from the recorded runs."""
    if found.folder is None or not found.about:
        raise NotFound("a file of rows cannot make labels", fix="name the folder, which has about.json and the runs")
    hidden = {r.group: r for r in found.rows if r.split == "held out"}
    if not hidden:
        raise NotFound("no run is held out", where=str(found.folder), fix="label more runs: --samples 40")
    plan = Plan.of(found.about)
    if plan.digest != found.about.get("digest"):
        raise InputError("this version has other teams than the folder's", where=str(found.folder), fix="label a folder anew")
    last = max(int(group.rpartition("-")[2]) for group in hidden)
    return tuple(held_out_labels(plan, list(hidden), (last + 1) * SAMPLES, found.runs()))


def judge_of(name: str | None, options: dict[str, Any]) -> Model | None:
    """The model that judges; it tells how likely its words are."""
    if name is None:
        return None
    if name.partition(":")[0] != "local":
        raise InputError(f"{name} cannot judge here", where="--model", fix="local:NAME, one of `counterpoint models`")
    return make_model(name, ledger_hunt, propensities=True, **options)
