"""Learning from recorded traces: decisions are read back, the world is stepped again, and nothing new is played.

Always true: a recorded episode is stepped again with what was decided in it, and comes out with the return that was recorded, or
is refused; what the learner sees is what the policy saw. Log-probabilities are those that were recorded, never recomputed ones.
Rewards are those that the world paid: a person's score of an episode is counted (`scored_by_people`) and not learned from.
What the log cannot answer is refused (`NotIdentified`), with what would fix it.

Two sources of decisions. A learned policy's trace carries them (`meta["decisions"]`, written by `noted`), each with the
log-probability it was drawn with: it can be cloned and learned from off-policy. A hand-made policy is a function of what it sees,
so it is asked again; it chose with certainty, so it can be cloned and no more: the log says nothing of what else it could have
done. Model calls are rows of their own kind (`counterpoint.credits.call_rows`); a reader of those needs the same three
things: the decisions, the log-probability of each, and the credit of the trace.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from counterpoint.errors import InputError, NotIdentified
from counterpoint.lab.train.policies.acting import Followed
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.rollouts import Rollout, TracedRollout, merge_rollouts, play_out
from counterpoint.lab.worlds.teamworld.action import BAYES, Action
from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.lab.worlds.teamworld.observation import Observation
from counterpoint.lab.worlds.teamworld.policies import NAMES, named
from counterpoint.lab.worlds.teamworld.running import ranks
from counterpoint.lab.worlds.teamworld.world import TeamWorld
from counterpoint.store import Store
from counterpoint.trace import Trace
from counterpoint.trace.outcome import as_recorded, by_hand

DECISIONS = "decisions"
"""The key of a trace's meta that holds what was decided."""
_COLUMNS = {
    "stop": ("round", "choice", "logp"),
    "spawn": ("round", "role", "choice", "size", "number", "forced", "logp", "size_logp"),
    "item": ("round", "item", "copy", "choice", "agent", "brief", "rank", "kept", "logp", "brief_logp", "point_logp"),
    "talk": ("round", "choice", "logp"),
    "rule": ("round", "choice", "logp"),
    "worker": ("round", "item", "agent", "choice", "logp"),
    "act": ("round", "item", "agent", "choice", "logp"),
    "attack": ("round", "choice", "logp"),
    "proposal": ("round", "choice", "logp"),
}
_LOGP = {
    "stop": ("logp",), "spawn": ("logp", "size_logp"), "item": ("logp", "brief_logp", "point_logp"), "talk": ("logp",),
    "rule": ("logp",), "worker": ("logp",), "act": ("logp",), "attack": ("logp",), "proposal": ("logp",),
}  # fmt: skip
_TYPES = ("stop", "spawn", "item", "talk", "rule")
_EXACT = 1e-6
_HELD = 512  # rebuilt episodes that are kept in memory
_SHOWN = 3
LEAST_ESS = 0.1
"""Effective sample size, as a share of the decisions, below which a log does not cover a policy."""


# -- writing


def noted(out: Rollout, episode: int, *, goes_on: bool, workers: bool) -> dict[str, Any]:
    """What was decided in one episode, with the log-probability of each decision, as a trace carries it."""
    tables: dict[str, Any] = {}
    for name, columns in _COLUMNS.items():
        if name in out.tables:
            t = out.tables[name]
            at = np.flatnonzero(t["ep"] == episode)
            kept = {"kept": ~t["mask"][:, 0]} if name == "item" else {}
            if len(at):
                tables[name] = {c: (kept[c] if c in kept else t[c])[at].tolist() for c in columns}
    return {"goes_on": goes_on, "workers": workers, "tables": tables}


# -- reading


@dataclass
class Lines:
    """What was decided in some episodes: columns of all of them, sorted by round."""

    tables: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)

    @staticmethod
    def of(noted_: Sequence[Mapping[str, Any]]) -> Lines:
        """Of as many episodes as notes are given."""
        out: dict[str, dict[str, np.ndarray]] = {}
        for name, columns in _COLUMNS.items():
            parts = [(ep, n["tables"][name]) for ep, n in enumerate(noted_) if name in n["tables"]]
            if not parts:
                continue
            joined = {c: np.concatenate([np.asarray(p[c]).reshape(len(p["round"]), -1) for _, p in parts]) for c in columns}
            ep = np.repeat([ep for ep, _ in parts], [len(p["round"]) for _, p in parts])
            wide = ("choice", "logp") if name == "talk" else ()  # full return and broadcast
            flat = {c: v if c in wide else v[:, 0] for c, v in joined.items()}
            order = np.argsort(flat["round"], kind="stable")
            out[name] = {"ep": ep[order]} | {c: v[order] for c, v in flat.items()}
        return Lines(out)

    def at(self, name: str, now: int) -> dict[str, np.ndarray]:
        """The rows of one table in one round."""
        t = self.tables.get(name)
        if t is None:
            return {}
        a, b = np.searchsorted(t["round"], [now, now + 1])
        return {c: v[a:b] for c, v in t.items()}

    def follow(self, obs: Observation) -> Followed:
        """What was decided in this round."""
        e, roles = obs.episodes, 2 * obs.config.types
        stop, talk = np.zeros(e, np.bool_), np.zeros((e, 2), np.bool_)
        rule, go, number = np.full(e, BAYES), np.zeros((e, roles), np.bool_), np.zeros((e, roles), np.int64)
        size, forced = np.zeros((e, roles)), np.zeros((e, roles), np.bool_)
        for name, into in (("stop", stop), ("talk", talk), ("rule", rule)):
            t = self.at(name, obs.round)
            if t:
                into[t["ep"]] = t["choice"]
        t = self.at("spawn", obs.round)
        if t:
            where = (t["ep"], t["role"])
            go[where], number[where], size[where], forced[where] = t["choice"], t["number"], t["size"], t["forced"]
        extra = {name: rows for name in ("act", "attack", "proposal") if (rows := self.at(name, obs.round))}
        return Followed(stop, go, number, size, forced, self.at("item", obs.round), talk, rule, extra)

    def workers(self) -> Mapping[tuple[int, int, int, int], bool]:
        """What workers chose, by (episode, round, item, agent)."""
        t = self.tables.get("worker", {})
        keys = zip(*(t[c].tolist() for c in ("ep", "round", "item", "agent")), strict=True) if t else []
        return dict(zip(keys, t["choice"].tolist() if t else [], strict=True))


def imitated(policy: Any) -> Callable[[Observation], Followed]:
    """What a hand-made policy decides, in the terms of a learned one; what has no such terms is done and not learned."""

    def follow(obs: Observation) -> Followed:
        action: Action = policy.act(obs)
        e, types = obs.episodes, obs.config.types
        number = np.zeros((e, 2 * types), np.int64)
        s = action.spawns
        np.add.at(number, (s.ep, s.family * types + s.type), s.number * (s.parent == 0))
        talk = np.zeros((e, 2), np.bool_)
        for column, given in enumerate((action.full_return, action.broadcast)):
            if given is not None:
                talk[:, column] = given
        rule = np.full(e, BAYES) if action.rule is None else np.asarray(action.rule)
        size = np.log(np.maximum(number, 1))
        stop = np.asarray(action.stop, np.bool_)
        forced, items = np.zeros(number.shape, np.bool_), _items(obs, action)
        return Followed(stop, number > 0, number, size, forced, items, talk, rule, action=action)

    return follow


def _items(obs: Observation, action: Action) -> dict[str, np.ndarray]:
    """The calls and the closed items of an action as rows: the n-th call on an item is its n-th copy, an agent is taken once."""
    c = action.calls
    calls = np.arange(len(c))
    seen: dict[tuple[int, int], int] = {}
    copy = np.zeros(len(c), np.int64)
    for i, key in enumerate(zip(c.ep.tolist(), c.item.tolist(), strict=True)):
        copy[i] = seen.get(key, 0)
        seen[key] = copy[i] + 1
    width = obs.alive.shape[1]
    _, first = np.unique(c.ep * width + c.agent, return_index=True)
    keep = np.isin(calls, first)
    close = np.zeros(obs.open.shape, np.bool_) if action.close is None else action.close & obs.ready & obs.running[:, None]
    close[c.ep, c.item] = False
    ep, item = np.nonzero(close)
    left = np.zeros(len(ep), np.int64)
    rank = np.concatenate([ranks(c.ep)[keep], left - 1])
    return {
        "ep": np.concatenate([c.ep[keep], ep]), "item": np.concatenate([c.item[keep], item]),
        "copy": np.concatenate([copy[keep], left]), "choice": np.concatenate([c.purpose[keep] + 1, left]),
        "agent": np.concatenate([c.agent[keep], left - 1]), "brief": np.concatenate([c.brief[keep], left]),
        "rank": rank, "kept": np.zeros(len(rank), np.bool_),
    }  # fmt: skip


# -- a log


@dataclass(frozen=True)
class Entry:
    """One trace that can be learned from."""

    id: str
    task: str
    by_hand: str | None
    """The hand-made policy that made it; None where its decisions were drawn and recorded."""
    types: tuple[str, ...]
    """Decision types that it has."""


_WHY = {
    "made": (
        "they were not made by a simulator that can be played again",
        "traces of `counterpoint play --world W1 --store` or of a run's store",
    ),
    "world": ("they are of another world, or version of it", "--world as the traces name it, or a QUERY that selects others"),
    "config": ("the world had other parameters", "--set as in the traces (counterpoint show names them), or a QUERY"),
    "edited": ("somebody forked or edited them", "the traces that were forked"),
    "held_out": ("their tasks are held out for evaluations", "play others: counterpoint play --world W1 --seed 1000 --store"),
    "scored": ("they have no team reward", "traces with a team reward"),
    "unknown": (
        "the decisions of the policy that made them are not known",
        "record decisions: counterpoint train net --set keep_episodes=8 writes them to the run's store",
    ),
    "certain": (
        "a hand-made policy chose with certainty, so what else it could have done was never seen",
        "clone it (--preset clone), or record a policy that samples its actions: counterpoint train net --set keep_episodes=8",
    ),
}


class TraceLog:
    """Recorded traces of one world."""

    def __init__(self, store: Store, ids: Sequence[str], world: TeamWorld, *, held_out: int, off_policy: bool) -> None:
        """`held_out`: seeds below this one are kept for evaluation. `off_policy`: only what was drawn with a recorded chance."""
        self.store, self.world = store, world
        self.entries: list[Entry] = []
        self.left_out: dict[str, int] = {}
        """Why traces cannot be used, and how many."""
        self.scored_by_people = 0
        self._held: OrderedDict[str, Trace] = OrderedDict()
        if off_policy:
            _refuse_silent(store, ids)
        for first in range(0, len(ids), 64):
            for trace in store.batch(ids[first : first + 64]).traces():
                found = _entry(as_recorded(trace), world, held_out, off_policy)
                if isinstance(found, Entry):
                    self.entries.append(found)
                    self.scored_by_people += by_hand(trace, "team") is not None
                else:
                    self.left_out[found] = self.left_out.get(found, 0) + 1
        where = os.fspath(store.path)
        if not self.entries:
            why = max(self.left_out, key=lambda name: self.left_out[name]) if self.left_out else "made"
            what, fix = _WHY[why]
            raise NotIdentified(f"none of {len(ids)} traces can be learned from: {what}", fix, where=where)
        absent = sorted(set(_TYPES) - {name for e in self.entries for name in e.types})
        if off_policy and absent:
            what = f"no decision of type {', '.join(absent)} in {len(self.entries)} traces"
            raise NotIdentified(what, "record more episodes in which the team has to take such a decision", where=where)

    def about(self) -> dict[str, Any]:
        """What is used and what is not, for the run's about.json."""
        policies = sorted({e.by_hand for e in self.entries if e.by_hand})
        left = {_WHY[name][0]: count for name, count in self.left_out.items()}
        told = {"traces": len(self.entries), "tasks": len({e.task for e in self.entries}), "by_hand": policies, "not": left}
        return told | ({"scored_by_people": self.scored_by_people} if self.scored_by_people else {})

    def batch(self, net: Network, rng: np.random.Generator, *, episodes: int, group: int) -> TracedRollout:
        """Traces drawn at random, as a rollout of the learner: whole groups of a task where the preset compares them."""
        if group == 1:
            some = self.store.sample(min(episodes, len(self.entries)), rng, among=[e.id for e in self.entries])
            return rebuilt(some.traces(), self.world, net)
        tasks: dict[str, list[Entry]] = {}
        for entry in self.entries:
            tasks.setdefault(entry.task, []).append(entry)
        drawn: list[Entry] = []
        names = list(tasks)
        for i in rng.permutation(len(names)).tolist():
            own = tasks[names[i]]
            if len(drawn) + min(group, len(own)) <= episodes or not drawn:
                drawn += [own[k] for k in sorted(rng.permutation(len(own))[:group].tolist())]
        return rebuilt(self._traces([e.id for e in drawn]), self.world, net)

    def _traces(self, ids: Sequence[str]) -> list[Trace]:
        missing = [i for i in ids if i not in self._held]
        if missing:
            self._held.update(zip(missing, self.store.batch(missing).traces(), strict=True))
        found = [self._held[i] for i in ids]
        while len(self._held) > _HELD:
            self._held.popitem(last=False)
        return found


def _refuse_silent(store: Store, ids: Sequence[str]) -> None:
    """Raise where no decision of these traces carries a log-probability: told from two columns, before any trace is read."""
    batch = store.hot().batch(list(ids), ["decision", "logp"])
    is_decision = np.array([name is not None for name in batch.column("decision")], np.bool_)
    if is_decision.any() and np.isnan(batch.column("logp")[is_decision]).all():
        what = f"none of {int(is_decision.sum()):,} decisions carries its log-probability"
        raise NotIdentified(what, "record `logp`, the sampler's own, with every decision", where=os.fspath(store.path))


def _entry(trace: Trace, world: TeamWorld, held_out: int, off_policy: bool) -> Entry | str:
    """The trace as an entry, or the key of `_WHY` that says why not."""
    meta = trace.meta
    if not {"world", "version", "config", "seed", "edits"} <= set(meta):
        return "made"
    if meta["world"] != world.name or str(meta["version"]) != world.version:
        return "world"
    if _config(meta["config"]) != world.config:
        return "config"
    if meta["edits"]:
        return "edited"
    if meta["seed"] < held_out:
        return "held_out"
    if "team" not in trace.rewards:
        return "scored"
    if DECISIONS in meta:
        return Entry(trace.trace_id, trace.task_id, None, tuple(meta[DECISIONS]["tables"]))
    if meta.get("policy") not in NAMES:
        return "unknown"
    return "certain" if off_policy else Entry(trace.trace_id, trace.task_id, meta["policy"], _TYPES)


def _config(fields: Mapping[str, Any]) -> Config | None:
    try:
        return Config(**Config.dials(fields))
    except (TypeError, InputError):
        return None


def rebuilt(traces: Sequence[Trace], world: TeamWorld, net: Network) -> TracedRollout:
    """Recorded episodes as a rollout of the learner, with the log-probabilities that were recorded; by a hand-made policy, which
    recorded none, those of this network. `NotIdentified` names a trace that does not come out as it was recorded."""
    traces = [as_recorded(trace) for trace in traces]
    kinds: dict[tuple[Any, ...], list[Trace]] = {}
    for trace in traces:
        note = trace.meta.get(DECISIONS)
        kind = (trace.meta["policy"],) if note is None else (None, note["goes_on"], note["workers"])
        kinds.setdefault(kind, []).append(trace)
    parts, order = [], []
    for kind, some in kinds.items():
        seeds = np.array([t.meta["seed"] for t in some])
        salts = np.zeros(len(some), np.int64)
        if len(kind) == 1:
            out = play_out(world.config, net, seeds, salts, follow=imitated(named(kind[0], world.config)))
        else:
            lines = Lines.of([t.meta[DECISIONS] for t in some])
            said = lines.workers() if kind[2] else None
            out = play_out(
                world.config, net, seeds, salts, follow=lines.follow, goes_on=kind[1], workers=kind[2], said=said
            )  # fmt: skip
            _put(out, lines, some)
        _refuse_other(out, some)
        parts.append(out)
        order += some
    return TracedRollout(merge_rollouts(parts), order)


def _refuse_other(out: Rollout, traces: Sequence[Trace]) -> None:
    gap = np.abs(out.values - np.array([t.rewards["team"] for t in traces]))
    worst = int(gap.argmax())
    if not gap[worst] <= _EXACT:
        paid = traces[worst].rewards["team"]
        what = f"played again with the recorded decisions it is worth {out.values[worst]:.6g}, not {paid:.6g}"
        raise NotIdentified(what, "the trace as it was recorded, by this version of the world", where=traces[worst].trace_id)


def _put(out: Rollout, lines: Lines, traces: Sequence[Trace]) -> None:
    """Write the recorded log-probabilities over those of the network, row by row."""
    for name, columns in _LOGP.items():
        t, told = out.tables.get(name), lines.tables.get(name)
        if t is None and told is None:
            continue
        same = ("ep", "round", *(c for c in ("role", "item", "copy", "agent") if told is not None and c in told))
        if t is None or told is None or any(not np.array_equal(t[c], told[c]) for c in same):
            what = f"its {name} decisions are not those that the world asks for"
            raise NotIdentified(what, "the trace as it was recorded, by this version of the world", where=traces[0].trace_id)
        for column in columns:
            t[column] = told[column].astype(np.float64)
        if name == "stop":
            t["chance"] = np.where(t["choice"], np.exp(t["logp"]), -np.expm1(t["logp"]))
