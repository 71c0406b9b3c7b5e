"""Forks of live teams: the program runs again over the recording, with one event changed; only what changed is asked anew.

Always true: every event before `at` comes out as it was recorded, which is checked by key and content, and keeps its id; a call
with an unchanged prompt is answered by the recording (so re-execution ends by itself where a change makes no difference), the
others are sampled with the same keyed seed (coupled) or, with a seed of the fork's own, afresh. An irreversible tool is never
run without consent. The recorded trace is not changed. `do=None` without a seed gives the trace's events again.

Badges, in each event's extra: `reused` (kept from before the edit), `recorded` (happened again, answered by the recording or
the same to the letter), `re-run` (a model or tool was asked again, or its content changed), `simulated` (an effect that was
held back).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from msgspec.structs import replace

from counterpoint.audits.diff import fingerprint
from counterpoint.display import working
from counterpoint.errors import InputError, NotFound, NotIdentified, did_you_mean
from counterpoint.lab.lm.model import Call, Completion, Model
from counterpoint.lab.tasks.task import TextTask
from counterpoint.lab.team.agent import Team
from counterpoint.lab.team.edits import PASSED, Edits, edit_note
from counterpoint.lab.team.harness import harness
from counterpoint.lab.team.memory import Memory
from counterpoint.lab.team.session import Spec, assemble, check_same, drawing_seed, end_of, make_model, play
from counterpoint.recorder.control import RecordedControl
from counterpoint.recorder.recorder import LogicalClock, MemorySink, Recorder, timed
from counterpoint.trace import Edge, Event, Trace, summed_costs
from counterpoint.trace.replay import Delete, Do, Fork, Insert

BADGES = ("reused", "recorded", "re-run", "simulated")
_AT_ONCE = 8
_FIX = "play it again with this version: `counterpoint play`"
_FINISHED = "a model recorded it while it learned; play teams of the finished one: counterpoint play --model local:RUN"
T = TypeVar("T")


class _Lazy:
    """The model of a recording, made when a call is not recorded: a fork that changes no prompt needs no model."""

    def __init__(self, trace: Trace, make: Callable[[], Model]) -> None:
        about = trace.meta.get("model") or {}
        self.name, self.version = str(about.get("name", "")), str(about.get("version", ""))
        self._make, self._made = make, None  # type: Callable[[], Model], Model | None

    async def complete(self, call: Call) -> Completion:
        """Ask the model, and make it first."""
        if self._made is None:
            made = self._make()
            if made.version != self.version:
                fix = _FINISHED if self.name == "engine" else f"use the model that recorded it: {self.name} {self.version}"
                raise NotIdentified(f"the model has changed: {made.version}", fix)
            self._made = made
        return await self._made.complete(call)

    async def close(self) -> None:
        """Close what was made."""
        if self._made is not None:
            await self._made.close()


class LiveReplay:
    """Forks traces of `counterpoint play`; `allow` names irreversible tools that may run, and code that a trace names."""

    def __init__(self, *, model: Model | None = None, allow: Sequence[str] = (), is_full: bool = False) -> None:
        """`model` answers what the recording cannot; without it, the model that the trace names. A full replay asks everything
        again, which a deterministic model answers the same way: what a recording is checked against."""
        self._model, self._allow, self._is_full = model, frozenset(allow), is_full

    def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
        """The trace that would have come about, had `do` been done at event `at`."""
        return _in_loop(lambda: self._fork(trace, Fork(at, do, seed)))

    def forks(self, trace: Trace, forks: Sequence[Fork]) -> list[Trace]:
        """Many forks at once, in the order given; their model calls run side by side."""

        async def every() -> list[Trace]:
            gate = asyncio.Semaphore(_AT_ONCE)

            async def one(fork: Fork) -> Trace:
                async with gate:
                    forked = await self._fork(trace, fork)
                    work.step()
                    return forked

            with working("forks", len(forks)) as work:
                return await asyncio.gather(*(one(f) for f in forks))

        return _in_loop(every)

    async def fork_here(self, trace: Trace, fork: Fork) -> Trace:
        """One fork in the event loop that runs here, for who makes forks of many traces at once."""
        return await self._fork(trace, fork)

    def returns(self, trace: Trace, forks: Sequence[Fork]) -> np.ndarray:
        """The team reward of each fork."""
        return np.array([t.rewards["team"] for t in self.forks(trace, forks)], np.float64)

    def message_before(self, trace: Trace, event: str, text: str) -> Trace | None:
        """The trace in which the agent of this event is told something just before it; to be forked at the event.

        Its prompts are the same up to there. None where there is no moment to tell it: it has not acted or been told anything
        before, or something else is done at that moment already.
        """
        place = trace.index[event]
        agent, notes = trace.events[place].agent, list(trace.meta.get("edits", ()))
        heard = [
            i for i, e in enumerate(trace.events[:place])
            if e.key is not None and PASSED not in e.key and (e.agent == agent or (e.type == "message" and e.to == agent))
        ]  # fmt: skip
        taken = {str(note["key"]) for note in notes}
        if not heard or (last := trace.events[heard[-1]]).key is None or last.key in taken or last.type == "spawn":
            return None
        note = edit_note(last.id, last.key, place, Insert(text, {"to": agent}), None)
        return replace(trace, meta={**trace.meta, "edits": [*notes, note]})

    # -- one fork --------------------------------------------------------------------------------------------------------

    async def _fork(self, trace: Trace, fork: Fork) -> Trace:
        spec, notes = self._checked(trace, fork)
        task = spec.make_task()
        if why := str(getattr(task, "no_fork", "")):
            raise NotIdentified(f"{task.name} does not fork: {why}", "credit it without forks", where=trace.trace_id)
        model: Any = self._model or _Lazy(trace, lambda: _model_of(spec, task))
        check_same(trace, task, model, harness(spec.harness))
        sink = MemorySink()
        team = assemble(
            spec,
            task,
            task.instance(spec.seed),
            model,
            Recorder(sink, LogicalClock()),
            control=RecordedControl(trace),
            edits=Edits.of(drawing_seed(trace.meta, spec), notes, [e.key for e in trace.events]),
            memory=Memory() if self._is_full else Memory.of(trace),
            consent=self._allow,
        )
        try:
            outcome = await play(team, spec.make_topology())
        finally:
            if self._model is None:
                await model.close()
        kept = notes[-1]["count"] if len(notes) > len(trace.meta.get("edits", ())) else len(trace.events)
        rewards, metrics, ended = end_of(team, outcome)
        out = _assembled(trace, sink, team, notes, kept)
        forked = replace(
            out, rewards=rewards, metrics=metrics, costs=dict(summed_costs(out.events)), meta=_meta(trace, notes, team, ended)
        )
        _compare(trace, forked, kept, fork)
        return forked

    def _checked(self, trace: Trace, fork: Fork) -> tuple[Spec, list[dict[str, Any]]]:
        if not isinstance(trace.meta.get("team"), dict):
            raise NotIdentified("this trace is not a recording of a live team", "fork a trace of `counterpoint play`")
        spec = Spec.of(trace.meta["team"])
        # the model has a rule of its own: `_model_of`
        spec.check_consent(self._allow, where=trace.trace_id, with_model=False, is_fork=True)
        place = trace.index.get(fork.at)
        if place is None:
            ends = f"{trace.events[0].id} to {trace.events[-1].id}"
            raise NotFound(f"no event {fork.at!r}", where=trace.trace_id, fix=f"one of {ends}")
        event = trace.events[place]
        if event.key is not None and PASSED in event.key:  # what was passed over is decided where the decision is
            place = next((i for i, e in enumerate(trace.events) if e.key == str(event.key).split(PASSED)[0]), place)
        if event.key is None:
            raise InputError(f"event {fork.at} has no stable key", where=trace.trace_id, fix="fork at what the team did")
        if event.key == "user|question" and isinstance(fork.do, Delete):
            raise InputError("a team without a question does nothing", where=fork.at, fix="substitute another question")
        if isinstance(fork.do, Insert) and (to := fork.do.about.get("to", "lead")) not in trace.agents:
            raise InputError(f"there is no agent {to!r} to hear a message", fix=did_you_mean(str(to), trace.agents))
        notes = list(trace.meta.get("edits", ()))
        if fork.do is not None or fork.seed is not None:
            notes.append(edit_note(fork.at, event.key, place, fork.do, fork.seed))
        return spec, notes


def _model_of(spec: Spec, task: TextTask) -> Model:
    """The model that a trace names, where making it reaches nothing that a stranger's trace could choose."""
    kind, _, rest = spec.model.partition(":")
    if kind == "fake" or (kind == "local" and rest.replace("-", "").replace("_", "").replace(".", "").isalnum()):
        return make_model(spec.model, task, **spec.options)
    fix = f"name the model again, as in --model {kind}:..." + (" --base-url URL" if kind == "openai" else "")
    fix = (_FINISHED if kind == "engine" else fix) + "; or credit without forks, such as remerge"
    raise NotIdentified(f"the recording cannot answer a changed call, and {kind} models are asked only where you name them", fix)


def _meta(trace: Trace, notes: list[dict[str, Any]], team: Team, ended: dict[str, Any]) -> dict[str, Any]:
    same = {k: v for k, v in trace.meta.items() if k not in ("ended", "answer", "why", "steered", "edits", "fork", "parent")}
    about = {"calls": dict(team.calls), "held": list(team.held)}
    return same | ended | {"edits": notes, "parent": trace.trace_id, "fork": about}


def _assembled(trace: Trace, sink: MemorySink, team: Team, notes: list[dict[str, Any]], kept: int) -> Trace:
    """The fork's trace: what was kept first, in the recorded order and under its ids; then the rest."""
    place = {e.key: i for i, e in enumerate(trace.events[:kept])}
    events = sorted(sink.events.values(), key=lambda e: place.get(e.key, kept))
    names = {e.id: f"e{i + 1}" for i, e in enumerate(events)}
    before = {e.key: fingerprint(e) for e in trace.events}
    out = [_badged(replace(e, id=names[e.id]), place, before, team, names) for e in events]
    number = {e.id: i for i, e in enumerate(out)}
    edges = [Edge(names[e.src], names[e.dst], e.type) for e in sink.edges]
    edges.sort(key=lambda e: (number[e.dst], number[e.src]))
    out = timed(out, edges, trace.events[:kept])
    tag = "~".join(n["id"].removeprefix("fork-") for n in notes) or "again"
    root = trace.meta.get("root", trace.trace_id.split("~")[0])
    return replace(trace, trace_id=f"{root}~{tag}", events=out, edges=edges, contents=dict(sink.contents))


def _badged(event: Event, place: dict[Any, int], before: dict[Any, Any], team: Team, names: dict[str, str]) -> Event:
    badge = "reused" if event.key in place else team.badges.get(event.key or "")
    if badge is None or badge == "recorded":
        badge = "recorded" if before.get(event.key) == fingerprint(event) else "re-run"
    extra = {**(event.extra or {}), "badge": badge}
    if "of" in extra:
        extra["of"] = names.get(extra["of"], extra["of"])
    ids = extra["call"].get("prompt_ids") if isinstance(extra.get("call"), dict) else None
    if ids is not None:  # runs name the events that they are taken from
        renamed = [part if isinstance(part, int) else [names[part[0]], *part[1:]] for part in ids]
        extra["call"] = {**extra["call"], "prompt_ids": renamed}
    return replace(event, extra=extra)


def _compare(trace: Trace, forked: Trace, kept: int, fork: Fork) -> None:
    """Whether what came before the fork came out as it was."""
    for a, b in zip(trace.events[:kept], forked.events, strict=False):
        if a.key != b.key or fingerprint(a) != fingerprint(b):
            how = f"as {b.key}" if a.key != b.key else f"as {b.type} {forked.text(b)!r:.60}"
            what = f"event {a.id} ({a.key}) does not come out as it was recorded, but {how}"
            raise NotIdentified(what, _FIX, where=trace.trace_id)
    if len(forked.events) < kept:
        raise NotIdentified("the run ends before the event that is forked", _FIX, where=trace.trace_id)


def _in_loop(make: Callable[[], Awaitable[T]]) -> T:
    """Run it to its end, also where a loop runs already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_awaited(make))
    result: list[T] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            result.append(asyncio.run(_awaited(make)))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work, name="counterpoint-fork")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return result[0]


async def _awaited(make: Callable[[], Awaitable[T]]) -> T:
    return await make()
