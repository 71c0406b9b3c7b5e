"""Forks of a person's own team: its code runs again over its recording, with one thing changed.

Always true: what was recorded before the edit comes out as it was, or the fork is `NotIdentified`, with the first difference; the
code runs in this process, one fork at a time, and nothing that it records goes to a store. Events that repeat recorded ones keep
their ids, and stand in the recorded order. Without an edit and without a seed every event is as it was, but for its times.

Badges, in each event's extra: `reused` (from before the edit), `recorded` (happened again, answered by the recording or the same
to the letter), `re-run` (called again, or its content changed), `simulated` (an effect that was held back).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from hashlib import blake2b
from itertools import count
from typing import Any

import numpy as np
from msgspec.structs import replace

from counterpoint.audits.diff import fingerprint
from counterpoint.credits.mechanism import team_reward
from counterpoint.display import working
from counterpoint.errors import CounterpointError, InputError, NotFound, NotIdentified
from counterpoint.recorder.answers import Unpackable, loaded_class, unpack
from counterpoint.recorder.control import orders_by_key
from counterpoint.recorder.lanes import RecordingSession, current
from counterpoint.recorder.memory_run import MemoryRun
from counterpoint.recorder.player import FIX, Player, in_loop, is_call, places_of
from counterpoint.recorder.problems import error_text
from counterpoint.recorder.recorded_calls import event_name, framework_agents, is_ours
from counterpoint.recorder.recorder import timed
from counterpoint.recorder.replaying import playing
from counterpoint.recorder.safe_points import SafePoints, StoppedByOperator
from counterpoint.recorder.sealing import end_replay
from counterpoint.recorder.team_file import TeamFile
from counterpoint.trace import Edge, Event, Trace, summed_costs
from counterpoint.trace.keys import REPLAY
from counterpoint.trace.model_calls import renamed_call
from counterpoint.trace.replay import Do, Force, Fork, Insert

_one_at_a_time = threading.RLock()
_AGAIN = "record it with this version: `with counterpoint.record(...)` around decorated functions keeps what a replay needs"


class ForkRun(MemoryRun):
    """The recording of one fork, in memory: what a session writes to instead of a store."""

    def __init__(self, trace_id: str, player: Player) -> None:
        super().__init__(trace_id, player.trace.task_id)
        self._player = player
        self.metrics: dict[str, Any] | None = None
        self.is_finished = False

    def event(self, event: Event) -> None:
        """Keep an event."""
        super().event(event)
        self._player.begins(event)
        self._player.happens(event)

    def open(self, event: Event) -> str:
        """Keep an event that has begun."""
        self._player.begins(event)
        if event.type == "safety_event":  # a framework's check, which is no call
            self._player.happens(event)
        return super().open(event)

    def edge(self, src: str, dst: str, type: str) -> None:
        """Keep an edge: what reads something changed may be changed."""
        super().edge(src, dst, type)
        self._player.read(src, dst)

    def finish(self, rewards: Any, costs: Any, metrics: Any, meta: dict[str, Any]) -> Trace:
        """The trace as the team's own code sees it at the end."""
        self.rewards, self.metrics, self.is_finished = dict(rewards), metrics, True
        of, events = self._player.trace, list(self.events.values())
        told = {**of.meta, **meta}
        return replace(
            of, trace_id=self.trace_id, events=events, edges=self.edges, contents=self.contents, rewards=self.rewards,
            metrics=metrics, costs=dict(summed_costs(events)) | dict(costs or {}), meta=told,
        )  # fmt: skip


class OneRun:
    """One run of the team's code in the place of a recording."""

    def __init__(self, player: Player) -> None:
        self.player = player
        self._outer: RecordingSession | None = None
        self.own: RecordingSession | None = None
        """The session of the recording that the team's code itself begins, else the one around it."""

    def session(self, agent: str, guard: Any) -> RecordingSession:
        """The recording that the code begins: there may be one."""
        if self.own is not None and self.own is not self._outer:
            what = "the function begins two recordings: a fork is of one run"
            raise InputError(what, where="--team", fix="a function that runs the team once")
        if self._outer is not None:
            self._outer.is_over = True
        points = SafePoints(None, again=orders_by_key(self.player.trace))
        sink = ForkRun(self.player.trace.trace_id, self.player)
        self.own = RecordingSession(sink, agent, guard, player=self.player, points=points)  # type: ignore[arg-type]
        self.own.kept = {"seed": self.player.trace.meta[REPLAY].get("seed"), "root": agent}
        return self.own

    def play(self, function: Callable[..., Any]) -> BaseException | None:
        """Run it, in a context of its own, and in a thread of its own where a loop runs; what it raised."""
        context = copy_context()
        if not in_loop():
            return context.run(self._play, function)
        with ThreadPoolExecutor(1, "counterpoint-fork") as pool:
            return pool.submit(context.run, self._play, function).result()

    def _play(self, function: Callable[..., Any]) -> BaseException | None:
        note = self.player.trace.meta[REPLAY]
        self._outer = outer = self.session(str(note.get("root") or "main"), None)
        playing.set(self)
        current.set(outer.root)
        raised: BaseException | None = None
        try:
            args, kwargs = self.arguments(function)
            with contextlib.redirect_stdout(sys.stderr):
                value = function(*args, **kwargs)
                if inspect.isawaitable(value):
                    asyncio.run(_awaited(value))
        except Exception as error:
            raised = error
        except StoppedByOperator:
            pass
        except SystemExit as error:
            raised = error if error.code else None
        finally:
            self.player.close()
        if self.own is outer and not outer.is_over:
            end_replay(outer, {REPLAY: outer.kept})
        return raised

    def arguments(self, function: Callable[..., Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of the function: none, or those that the root agent was called with."""
        asked = inspect.signature(function).parameters.values()
        if not any(p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in asked):
            return [], {}
        try:
            args, kwargs = unpack(str(self.player.trace.meta[REPLAY].get("given")), self.player.find).value
            inspect.signature(function).bind(*args, **kwargs)
        except (Unpackable, TypeError, ValueError) as error:
            what = f"takes {', '.join(map(str, asked))}, and the recording does not say what it was given"
            fix = "a function without arguments that runs the team once, or the decorated root agent itself"
            raise InputError(what, where="--team", fix=fix) from error
        return args, kwargs


async def _awaited(value: Any) -> Any:
    return await value


class TeamReplay:
    """Forks traces of the team that `team` runs: a `FILE:FUNCTION`, or the function itself."""

    def __init__(self, team: str | Callable[..., Any], *, allow: Collection[str] = (), model: Any = None) -> None:
        """`allow` names tools with effects that may run; `model`, a function or a model of LangChain, or the name of one, answers
        new calls."""
        self._team = TeamFile(team) if isinstance(team, str) else None
        self._function = None if isinstance(team, str) else team
        self._model = TeamFile(model).load(is_function=False) if isinstance(model, str) else model
        self._allow = frozenset(allow)

    def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
        """The trace that would have come about, had `do` been done at event `at`."""
        fork = Fork(at, do, seed)
        _check(trace, fork)
        with _one_at_a_time:
            function = self._function if self._team is None else self._team.load()
            assert function is not None
            find = loaded_class if self._team is None else self._team.find
            player = Player(trace, fork, find=find, allow=self._allow, model=self._model)
            run = OneRun(player)
            raised = run.play(function)
        if player.failure is not None:
            raise player.failure
        if isinstance(raised, CounterpointError):
            raise raised
        return _forked(player, run, fork, raised)

    def forks(self, trace: Trace, forks: Sequence[Fork]) -> list[Trace]:
        """Many forks, one after another: they run the same code in one process."""
        with working("forks", len(forks)) as work:
            made = []
            for one in forks:
                made.append(self.fork(trace, one.at, one.do, one.seed))
                work.step()
        return made

    def returns(self, trace: Trace, forks: Sequence[Fork]) -> np.ndarray:
        """The team reward of each fork."""
        return np.array([team_reward(one) for one in self.forks(trace, forks)], np.float64)


def _check(trace: Trace, fork: Fork) -> None:
    """What cannot be forked is refused before anything runs."""
    if not isinstance(trace.meta.get(REPLAY), dict):
        raise NotIdentified("this trace keeps no answers to give again", _AGAIN, where=trace.trace_id)
    place = trace.index.get(fork.at)
    if place is None:
        raise NotFound(f"no event {fork.at!r}", where=trace.trace_id, fix="counterpoint show lists events")
    event = trace.events[place]
    if fork.do is None:
        return
    if isinstance(fork.do, (Force, Insert)):
        what = f"nothing in your code asks what to do at {fork.at}"
        raise NotIdentified(what, "--substitute VALUE at a model's step, or --do delete", where=trace.trace_id)
    agent = {"spawn": event.to, "return": event.agent}.get(event.type)
    if agent is not None and agent in framework_agents(trace):
        raise _not_editable(trace, event)
    if not is_call(trace, event) and not places_of(trace, event):
        what = f"{fork.at} is a {event.type} that your code told: it does not wait for one"
        fix = "a tool's result, a model's step, or the spawn or return of a decorated agent"
        raise NotIdentified(what, fix, where=trace.trace_id)


# -- the fork's trace ------------------------------------------------------------------------------------------------------------


def _forked(player: Player, run: OneRun, fork: Fork, raised: BaseException | None) -> Trace:
    trace, sink = player.trace, run.own.run if run.own is not None else None
    assert isinstance(sink, ForkRun)
    if not sink.events:
        if raised is not None:
            raise NotIdentified(f"the function fails: {error_text(raised)}", FIX, where=trace.trace_id)
        fix = "a function that enters `with counterpoint.record(...)` or calls decorated functions"
        raise NotIdentified("the function recorded nothing", fix, where=trace.trace_id)
    is_same = fork.do is None and fork.seed is None
    if not player.is_applied or (raised is not None and is_same and "failed" not in trace.meta):
        why = "ends before it" if raised is None else f"fails before it: {error_text(raised)}"
        if is_same:
            why = f"fails: {error_text(raised)}"
        raise _not_reached(trace, fork, sink, why)
    twins = _twins(player, sink)
    kept = len(trace.events) if is_same else player.place
    events, edges = _ordered(player, sink, twins, kept)
    _compare(trace, events, kept, player.edited)
    note = {"at": fork.at, "key": None, "count": player.place, "do": None if fork.do is None else type(fork.do).__name__.lower(),
            "seed": fork.seed, "notes": player.notes}  # fmt: skip
    if hasattr(fork.do, "value"):
        note["value"] = fork.do.value
    tag = blake2b(json.dumps(note, sort_keys=True, default=str).encode(), digest_size=4).hexdigest()
    notes = [*(trace.meta.get("edits") or []), *([] if is_same else [{"id": f"fork-{tag}", **note}])]
    root = trace.meta.get("root", trace.trace_id.split("~")[0])
    names = "~".join(n["id"].removeprefix("fork-") for n in notes) or "again"
    same = {k: v for k, v in trace.meta.items() if k not in ("edits", "fork", "parent", "failed")}
    calls = {"recorded": player.counts["recorded"], "re-run": player.counts["model calls"], "tools": player.counts["tool calls"]}
    about = {"calls": calls, "held": [sink.events[e].tool or "" for e in player.held if e in sink.events]}
    if raised is not None:
        same["failed"] = error_text(raised)
    kept_now = {**trace.meta[REPLAY], **(run.own.kept if run.own is not None else {})}
    return replace(
        trace, trace_id=f"{root}~{names}", events=events, edges=edges, contents=dict(sink.contents), rewards=sink.rewards,
        metrics=sink.metrics, costs=dict(summed_costs(events)),
        meta={**same, REPLAY: kept_now, "edits": notes, "parent": trace.trace_id, "fork": about},
    )  # fmt: skip


def _not_reached(trace: Trace, fork: Fork, sink: ForkRun, why: str) -> NotIdentified:
    """Why an edit was not made."""
    event = trace.events[trace.index[fork.at]]
    name = event_name(event)
    if event.type not in ("spawn", "return") or not any(event_name(one) == name for one in sink.events.values()):
        return NotIdentified(f"the run does not come to {fork.at} again, but {why}", FIX, where=trace.trace_id)
    return _not_editable(trace, event)


def _not_editable(trace: Trace, event: Event) -> NotIdentified:
    """Of an agent that is a framework's own, what can be edited instead."""
    agent = str(event.to) if event.type == "spawn" else event.agent
    what = f"the {event.type} of {agent} is its framework's own: no function with @rec.agent makes it, and nothing can change it"
    own = [e.id for e in trace.events if e.agent == agent and (e.type == "tool_result" or (is_call(trace, e) and e.model))]
    fix = f"--at {own[-1]}, the last that {agent}'s model or tools answered" if own else "what it reads or writes: a model's step"
    return NotIdentified(what, fix, where=trace.trace_id)


def _twins(player: Player, sink: ForkRun) -> dict[str, Event]:
    """Events of the fork to the recorded ones that they repeat."""
    trace, twins = player.trace, dict(player.claimed)
    answers = {e.src: e.dst for e in trace.edges if e.type == "tool_dependency"}
    for edge in sink.edges:
        if edge.type == "tool_dependency" and edge.src in twins and (result := answers.get(twins[edge.src].id)) is not None:
            twins[edge.dst] = trace.events[trace.index[result]]
    taken = {event.id for event in twins.values()}
    left = [e for e in trace.events if e.id not in taken]
    named = dict(zip(_names(left), left, strict=True))
    mine = [e for e in sink.events.values() if e.id not in twins]
    for name, event in zip(_names(mine), mine, strict=True):
        if name in named:
            twins[event.id] = named[name]
    return twins


def _names(events: Sequence[Event]) -> list[tuple[Any, ...]]:
    """A name for each event that its twin in another run has, too: what it is, and the how manieth of its agent's."""
    counts: Counter[tuple[Any, ...]] = Counter()
    out = []
    for event in events:
        name = event_name(event)
        counts[name] += 1
        out.append((*name, counts[name]))
    return out


def _ordered(player: Player, sink: ForkRun, twins: dict[str, Event], kept: int) -> tuple[list[Event], list[Edge]]:
    """Events in the recorded order, under the recorded ids, with badges and times; new ones after what they read."""
    trace, events = player.trace, list(sink.events.values())
    read: dict[str, list[str]] = {}
    for edge in sink.edges:
        read.setdefault(edge.dst, []).append(edge.src)
    at: dict[str, tuple[int, int]] = {}
    last: dict[str, tuple[int, int]] = {}
    for event in events:
        own = (trace.index[twins[event.id].id], 0) if event.id in twins else (-1, 0)
        before = max([at[src] for src in read.get(event.id, ()) if src in at], default=(-1, 0))
        before = before if event.id in twins else max(before, last.get(event.agent, (0, 0)))
        at[event.id] = last[event.agent] = own if own > before else (before[0], before[1] + 1)
    events.sort(key=lambda e: at[e.id])
    numbers = [int(e.id[1:]) for e in trace.events if e.id[:1] == "e" and e.id[1:].isdigit()]
    fresh = count(max(numbers, default=0) + 1)
    names = {e.id: twins[e.id].id if e.id in twins else f"e{next(fresh)}" for e in events}
    out = [_badged(event, twins.get(event.id), player, kept, names) for event in events]
    number = {e.id: i for i, e in enumerate(out)}
    edges = [Edge(names[e.src], names[e.dst], e.type) for e in sink.edges]
    edges.sort(key=lambda e: (number[e.dst], number[e.src]))
    return timed(out, edges, trace.events[:kept]), edges


def _badged(event: Event, twin: Event | None, player: Player, kept: int, names: Mapping[str, str]) -> Event:
    is_same = twin is not None and fingerprint(twin) == fingerprint(event)
    badge = player.badges.get(event.id)
    if twin is not None and player.trace.index[twin.id] < kept:
        badge = "reused"
    elif badge in (None, "recorded"):
        badge = "recorded" if is_same else "re-run"
    dur = twin.dur if twin is not None and badge in ("reused", "recorded") else event.dur
    extra = {**(event.extra or {}), "badge": badge}
    if "call" in extra:
        extra["call"] = renamed_call(_as_told(extra["call"], twin if badge in ("reused", "recorded") else None), names)
    return replace(event, id=names[event.id], dur=dur, extra=extra)


def _as_told(note: dict[str, Any], twin: Event | None) -> dict[str, Any]:
    """What an endpoint told of a call that was not made again: it is in the recording alone."""
    kept = {} if twin is None else (twin.extra or {}).get("call") or {}
    return {name: one for name, one in kept.items() if name in ("finish", "token_ids", "logps", "token_bytes")} | note


def _compare(trace: Trace, events: Sequence[Event], kept: int, edited: Collection[str]) -> None:
    """Whether what came before the edit came out as it was."""
    again = {e.id: e for e in events}
    for event in trace.events[:kept]:
        other = again.get(event.id)
        if event.id not in edited and not is_ours(event) and (other is None or fingerprint(other) != fingerprint(event)):
            how = "does not happen again" if other is None else "comes out differently"
            what = f"event {event.id} ({event.type} of {event.agent}) {how}, before anything was changed"
            raise NotIdentified(what, FIX, where=trace.trace_id)
    new = next((e for e in events if e.id not in trace.index and not is_ours(e)), None)
    if kept == len(trace.events) and new is not None:
        raise NotIdentified(f"{new.agent} does more than it did: a {new.type} that is not recorded", FIX, where=trace.trace_id)
