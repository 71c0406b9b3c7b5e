"""Forks of TeamWorld traces: the episode is run again, exactly, with one event changed.

Always true: events before `at` come out the same, which is checked event by event (key and content); a trace that does not come
out the same is refused, with the reason. `do=None` and no seed gives the trace again. Nothing is changed in the trace given.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from counterpoint.errors import InputError, NotFound, NotIdentified, Refused
from counterpoint.lab.worlds.teamworld.action import DECISIONS, Action, as_action
from counterpoint.lab.worlds.teamworld.config import KINDS, Config
from counterpoint.lab.worlds.teamworld.edits import Edit
from counterpoint.lab.worlds.teamworld.engine import Batch
from counterpoint.lab.worlds.teamworld.policies import NAMES, Policy, named
from counterpoint.lab.worlds.teamworld.running import AGGREGATE, KIND_SPAN, RESULT, RETURN
from counterpoint.lab.worlds.teamworld.setting import Setting, columns, traced
from counterpoint.lab.worlds.world import Runs
from counterpoint.trace import Trace
from counterpoint.trace.replay import Delete, Do, Force, Fork, Insert, Substitute

_DO = {"delete": Delete, "substitute": Substitute, "insert": Insert, "force": Force}


class _Place(NamedTuple):
    """Where an event is, for the engine."""

    stage: str
    round: int
    cut: int
    slot: int = -1
    item: int = -1


class TeamReplay:
    """Forks traces of one world. `policy` goes on after the fork; without it, the policy that the trace names."""

    def __init__(self, world: Setting, policy: Policy | None = None) -> None:
        self.world, self.policy = world, policy

    def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
        """The trace that would have come about, had `do` been done at event `at`."""
        batch, policy, edits, world = self._play_forks(trace, [Fork(at, do, seed)], log=True)
        name = policy.name if policy is not None else None
        out = traced(world, batch, np.array([trace.meta["seed"]]), name, edits)(0)
        actions = trace.meta.get("actions")
        if actions is not None:
            # what a person did before the fork stays recorded; after it the policy goes on
            out.meta["actions"] = actions if policy is None else actions[: (trace.events[trace.index[at]].turn or 0) + 1]
        self._compare(trace, out, at)
        return out

    def forks(self, trace: Trace, forks: Sequence[Fork]) -> Runs:
        """Many forks of one trace, all at once: their returns, in the order given. Not logged, and the prefix is not compared."""
        groups = [list(range(len(forks)))]
        if trace.meta.get("actions") is not None:  # recorded actions end where each fork begins
            turns = [trace.events[trace.index[f.at]].turn if f.at in trace.index else 0 for f in forks]
            groups = [[i for i, t in enumerate(turns) if t == turn] for turn in sorted({t or 0 for t in turns})]
        done = [(rows, self._play_forks(trace, [forks[i] for i in rows], log=False)[0]) for rows in groups]
        order = np.argsort(np.concatenate([rows for rows, _ in done]))
        tables = [columns(batch) for _, batch in done]
        joined = {name: np.concatenate([t[name] for t in tables])[order] for name in tables[0]}
        values = np.concatenate([batch.value() for _, batch in done])[order]
        return Runs(seeds=np.full(len(forks), trace.meta["seed"]), values=values, columns=joined)

    def returns(self, trace: Trace, forks: Sequence[Fork]) -> np.ndarray:
        """The returns of many forks, in the order given."""
        return self.forks(trace, forks).values

    def _play_forks(
        self, trace: Trace, forks: list[Fork], *, log: bool
    ) -> tuple[Batch, Policy | None, list[list[dict[str, Any]]], Setting]:
        config = self._config(trace)
        world = self.world if config == self.world.config else self.world.replace(**Config.dials(trace.meta["config"]))
        is_changed = any(f.do is not None or f.seed is not None for f in forks)
        policy = self._policy(trace, config, is_changed=is_changed)
        edits, notes = [], []
        places = {at: _place(trace, at) for at in {fork.at for fork in forks}}
        for ep, fork in enumerate(forks):
            new = _note(places[fork.at], fork)
            notes.append([*trace.meta["edits"], new] if new else list(trace.meta["edits"]))
            edits += [e for e in (_edit(ep, note) for note in notes[-1]) if e is not None]
        batch = Batch(config, np.full(len(forks), trace.meta["seed"]), log=log, edits=edits)
        _freshen(batch, notes)
        actions: list[dict[str, Any]] = trace.meta.get("actions") or []
        last = max(p.round for p in places.values()) if is_changed and policy is not None else len(actions)
        while not batch.state.done.all():
            if batch.round < len(actions) and batch.round <= last:
                batch.step(_repeated(config, actions[batch.round], len(forks)))
            elif policy is None:
                break
            else:
                batch.step(policy.act(batch.observe()))
        return batch, policy, notes, world

    def _config(self, trace: Trace) -> Config:
        meta = trace.meta
        if not {"world", "version", "config", "seed", "edits"} <= set(meta):
            raise NotIdentified(
                "the trace was not made by a simulator", "fork a trace of `counterpoint play --world`", where=trace.trace_id
            )
        if meta["world"] != self.world.name:
            raise Refused(
                f"a trace of {meta['world']!r}", where=trace.trace_id, fix=f"fork it there; this is {self.world.name!r}"
            )
        if str(meta["version"]) != self.world.version:
            raise Refused(
                f"a trace of {meta['world']} version {meta['version']}",
                where=trace.trace_id,
                why=f"this is version {self.world.version}: the same seed gives another episode",
                fix="record it again",
            )
        return Config(**Config.dials(meta["config"]))

    def _policy(self, trace: Trace, config: Config, *, is_changed: bool) -> Policy | None:
        """Who goes on; None for an episode stepped by hand that is only repeated."""
        if self.policy is not None:
            return self.policy
        name = trace.meta.get("policy")
        if name in NAMES:
            return named(name, config)
        if not is_changed and trace.meta.get("actions") is not None:
            return None
        who = f"the policy {name!r}" if name else "the person who stepped it by hand"
        raise NotIdentified(
            f"how {who} would have continued is unknown",
            "name a policy that goes on: TeamReplay(world, policy)",
            where=trace.trace_id,
        )

    def _compare(self, trace: Trace, out: Trace, at: str) -> None:
        for old, new in zip(trace.events, out.events, strict=False):
            if old.id == at:
                return
            if (old.key, old.content_ref) != (new.key, new.content_ref):
                raise Refused(
                    f"event {old.id} does not come out again",
                    where=trace.trace_id,
                    why=f"{old.key} became {new.key}: another policy, or an edited trace",
                    fix="give the policy that made it",
                )


def _repeated(config: Config, data: dict[str, Any], episodes: int) -> Action:
    """A recorded action of one episode, for each of many copies of it."""
    one = as_action(config, data)
    if episodes == 1:
        return one
    every = np.arange(episodes)

    def flat(record: Any) -> Any:
        n = len(record)
        columns_ = {k: None if v is None else np.tile(v, episodes) for k, v in vars(record).items()}
        return type(record)(**columns_ | {"ep": np.repeat(every, n)})

    wide: Any = lambda a: None if a is None else np.repeat(a, episodes, axis=0)  # noqa: E731
    gone = None if one.despawns is None else (np.repeat(every, len(one.despawns[1])), np.tile(one.despawns[1], episodes))
    return Action(
        stop=wide(one.stop),
        close=wide(one.close),
        spawns=flat(one.spawns),
        despawns=gone,
        calls=flat(one.calls),
        full_return=wide(one.full_return),
        broadcast=wide(one.broadcast),
        rule=wide(one.rule),
        attack=wide(one.attack),
        proposal=wide(one.proposal),
    )


def _place(trace: Trace, at: str) -> _Place:
    """Where an event of a trace is."""
    index = trace.index.get(at)
    if index is None:
        raise NotFound(f"no event {at!r}", where=trace.trace_id, fix=f"one of {trace.events[0].id} to {trace.events[-1].id}")
    event, turn = trace.events[index], trace.events[index].turn or 0
    slots = {"orchestrator": 0} | {e.to: e.extra["slot"] for e in trace.events if e.type == "spawn" and e.extra}
    item = int(event.task.split()[1]) if event.task else -1
    results = sum(e.type == "tool_result" and e.turn == event.turn for e in trace.events[:index])
    match event.type:
        case "orchestrator_decision":
            stage = (event.extra or {})["sub_decision"]
            return _Place(stage, turn, AGGREGATE if stage == "aggregate" else DECISIONS.index(stage))
        case "aggregate":
            return _Place("aggregate", turn, AGGREGATE)
        case "spawn" | "despawn":
            asked = event.type == "spawn" and "planted" in (event.extra or {})  # it came at the end of the round
            return _Place(f"{event.type}ed", turn, AGGREGATE - 1 if asked else DECISIONS.index("spawn"), slot=slots[event.to])
        case "message" if event.role == "orchestrator":
            return _Place("brief", turn, RESULT + results - 1, slots[event.to], item)
        case "tool_call" | "safety_event":
            stage = "safety" if event.type == "safety_event" else "tool_call"
            return _Place(stage, turn, RESULT + results - 1, slots[event.agent], item)
        case "tool_result":
            return _Place("tool_result", turn, RESULT + results, slots[event.agent], item)
        case "return":
            kind = str(event.task).split()[0]
            earlier = [e for e in trace.events[:index] if e.type == "return" and e.turn == event.turn]
            place = sum(str(e.task).split()[0] == kind for e in earlier)
            return _Place("return", turn, RETURN + KIND_SPAN * KINDS.index(kind) + place, slots[event.agent], item)
    raise InputError(f"event {at} is a {event.type} of {event.agent}", where=trace.trace_id, fix="fork at what the team did")


def _note(place: _Place, fork: Fork) -> dict[str, Any] | None:
    """A fork as plain data, as the trace carries it."""
    if fork.do is None and fork.seed is None:
        return None
    if fork.seed is not None and fork.seed < 0:
        raise InputError(f"seed is {fork.seed}", fix="0 or more")
    do = None
    if fork.do is not None:
        name = next(n for n, kind in _DO.items() if isinstance(fork.do, kind))
        do = {"name": name, **{k: dict(v) if hasattr(v, "items") else v for k, v in vars(fork.do).items()}}
    note = {
        "at": fork.at,
        "stage": place.stage,
        "round": place.round,
        "cut": place.cut,
        "slot": place.slot,
        "item": place.item,
        "called": place.round if place.stage == "return" else None,
        "do": do,
        "seed": fork.seed,
    }
    tag = blake2b(json.dumps(note, sort_keys=True, default=str).encode(), digest_size=4).hexdigest()
    return {"id": f"fork-{tag}", **note}


def _edit(ep: int, note: dict[str, Any]) -> Edit | None:
    if note["do"] is None:
        return None
    fields = {k: v for k, v in note["do"].items() if k != "name"}
    do = _DO[note["do"]["name"]](**fields)
    stage = "insert" if isinstance(do, Insert) else note["stage"]
    return Edit(ep, note["round"], stage, do, note["slot"], note["item"])


def _freshen(batch: Batch, notes: list[list[dict[str, Any]]]) -> None:
    """Switch to fresh noise where the forks say so, in their order."""
    for depth in range(max(len(n) for n in notes)):
        row = [n[depth] if depth < len(n) else {"round": 0, "cut": 0, "seed": None} for n in notes]
        if any(r["seed"] is not None for r in row):
            seeds = np.array([-1 if r["seed"] is None else r["seed"] for r in row])
            batch.fresh_from(np.array([r["round"] for r in row]), np.array([r["cut"] for r in row]), seeds)
