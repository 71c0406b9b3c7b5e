"""What the orchestrators of a batch see: what came back, who is there, what was spent. Never the truth.

Always true: no array here holds truth, difficulty, misconceptions, soundness, modules, planted attacks or compromised flags;
arrays are read-only views of the state. A policy's own noise comes from `uniform`, which is keyed by (seed, round, place) like
all else.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.worlds.teamworld.action import ANSWER, DECISIONS, Action, Calls, Spawns
from counterpoint.lab.worlds.teamworld.acts import peers, possible
from counterpoint.lab.worlds.teamworld.config import ACTS, ATTACKS, KINDS, RULES, Config
from counterpoint.lab.worlds.teamworld.running import Running
from counterpoint.lab.worlds.teamworld.state import BatchState
from counterpoint.trace.keyed import bits, mixed, purpose, share

# -- Whether an action is legal, asked before anything changes --------------------------------------------------------
# Always true: an illegal action raises one `InputError` that names the first offence (episode, agent or item, what would work)
# and leaves the state as it was.


def limits(config: Config) -> np.ndarray:
    """(N,) calls allowed per item."""
    chain = config.chain_hops * config.hop_attempts * (1 + config.hop_checks)
    return np.repeat([config.max_votes, config.pool_calls, config.draft_calls, chain, config.node_calls], config.counts)


def _refuse(bad: np.ndarray, ep: np.ndarray, what: Any, fix: str) -> None:
    """Raise for the first offending row; `what(row)` says it."""
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(what(row), where=f"episode {int(ep[row])}", fix=fix)


def _inside(values: np.ndarray, low: int, high: int, ep: np.ndarray, name: str) -> None:
    _refuse((values < low) | (values >= high), ep, lambda r: f"no {name} {int(values[r])}", f"{low} to {high - 1}")


_KINDS = {"b": "yes/no", "iu": "whole", "f": "real"}


def _of_kind(name: str, value: Any, kind: str) -> None:
    if np.asarray(value).dtype.kind not in kind:
        raise InputError(f"{name} holds {np.asarray(value).dtype}", fix=f"an array of {_KINDS[kind]} numbers")


def _pair(despawns: Any) -> dict[str, Any]:
    if despawns is None:
        return {}
    if not isinstance(despawns, tuple) or len(despawns) != 2:
        raise InputError("despawns is not a pair", fix="(episodes, agents)")
    return {"ep": despawns[0], "agent": despawns[1]}


def _flat(name: str, columns: dict[str, Any]) -> None:
    """Columns of whole numbers, flat and of one length."""
    for column, value in columns.items():
        if not isinstance(value, np.ndarray) or value.ndim != 1 or len(value) != len(columns["ep"]):
            raise InputError(f"{name}.{column} has shape {np.shape(value)}", fix="flat arrays of one length")
        _of_kind(f"{name}.{column}", value, "iu")


def check_action(config: Config, state: BatchState, action: Action, call_limits: np.ndarray) -> None:
    """Every part of the action, in the order of the round."""
    e, n = state.episodes, config.items
    shapes = [
        ("stop", action.stop, (e,)),
        ("close", action.close, (e, n)),
        ("full_return", action.full_return, (e,)),
        ("broadcast", action.broadcast, (e,)),
        ("rule", action.rule, (e,)),
        ("logp", action.logp, (e, 5)),
        ("attack", action.attack, (e,)),
        ("proposal", action.proposal, (e, 2)),
    ]
    for name, value, shape in shapes:
        if value is not None and np.shape(value) != shape:
            raise InputError(f"{name} has shape {np.shape(value)}", fix=f"shape {shape}")
        if value is not None:
            _of_kind(name, value, {"rule": "iu", "logp": "f", "attack": "iu", "proposal": "iu"}.get(name, "b"))
    if action.logp is not None and not np.isfinite(action.logp).all():
        raise InputError("logp is not finite", fix="log-probabilities of what was chosen")
    calls = {k: v for k, v in vars(action.calls).items() if v is not None}
    for name, columns in (("spawns", vars(action.spawns)), ("calls", calls), ("despawns", _pair(action.despawns))):
        _flat(name, columns)
    if action.rule is not None:
        _inside(np.asarray(action.rule), 0, len(RULES), np.arange(e), "rule")
    _check_others(config, state, action)
    acts = ~state.done & ~np.asarray(action.stop)
    _check_spawns(config, state, action.spawns, acts)
    if action.despawns is not None:
        _check_despawns(state, *action.despawns, calls=action.calls, acts=acts)
    if len(action.calls):
        _check_calls(config, state, action.calls, acts, call_limits)


def _check_others(config: Config, state: BatchState, action: Action) -> None:
    """What a proposer and a second side may do."""
    every = np.arange(state.episodes)
    if action.attack is not None:
        attack = np.where(state.done, 0, action.attack)
        _inside(attack, 0, len(ATTACKS) + 1, every, "attack")
        spent = (attack > 0) & (state.opposed >= config.opponent_rounds)
        fix = "0: no attack" if config.opponent_rounds else "set opponent_rounds and attack_rate: this world has no second side"
        _refuse(spent, every, lambda r: f"attacks in more than {config.opponent_rounds} rounds", fix)
    if action.proposal is not None:
        late = (state.round > 0) & ~state.done
        fix = "propose in the first round" if config.proposer else "set proposer"
        _refuse(late | (not config.proposer), every, lambda r: "nobody can propose questions now", fix)
        for dial in (0, 1):
            _inside(np.asarray(action.proposal)[:, dial], 0, 3, every, "dial")


def _check_acts(config: Config, x: Calls, kind: Any, item: np.ndarray) -> None:
    """Whether each worker can do with its question what it chose."""
    if x.act is None:
        return
    _inside(x.act, 0, len(ACTS[config.acts]), x.ep, "act")
    if config.acts != "report":
        may = possible(config, peers(kind, x.ep, item, x.agent), kind.tally[x.ep, item].any(axis=(1, 2)), x.agent)
        bad = ~may[np.arange(len(x)), x.act]
        name = ACTS[config.acts]
        _refuse(bad, x.ep, lambda r: f"agent {int(x.agent[r])} cannot {name[x.act[r]]}", "there is nothing to go by yet")


def _check_spawns(config: Config, state: BatchState, s: Spawns, acts: np.ndarray) -> None:
    if not len(s):
        return
    _inside(s.ep, 0, state.episodes, s.ep, "episode")
    _refuse(~acts[s.ep], s.ep, lambda r: "spawns after it has stopped", "spawn only while it runs")
    _refuse(s.number < 0, s.ep, lambda r: f"spawns {int(s.number[r])} agents", "a number of 0 or more")
    _inside(s.family, 0, 2, s.ep, "family")
    _inside(s.type, 0, config.types, s.ep, "type of work")
    _inside(s.parent, 0, state.alive.shape[1], s.ep, "agent slot")
    _refuse(
        ~state.alive[s.ep, s.parent],
        s.ep,
        lambda r: f"agent {int(s.parent[r])} is not alive and cannot be a parent",
        "a live parent",
    )
    if config.topology == "hierarchical":
        deep = state.depth[s.ep, s.parent] >= config.max_depth
        _refuse(
            deep, s.ep, lambda r: f"agent {int(s.parent[r])} is at the lowest of {config.max_depth} levels", "a parent further up"
        )
    else:
        _refuse(s.parent != 0, s.ep, lambda r: f"only the orchestrator spawns in a {config.topology} team", "parent 0")
    if config.topology == "debate":
        _refuse(state.round[s.ep] > 0, s.ep, lambda r: "spawns after the debate began", "spawn in the first round")
    total = state.spawned + np.bincount(s.ep, s.number, state.episodes).astype(np.int64)
    over = total > config.max_agents
    _refuse(
        over,
        np.arange(state.episodes),
        lambda r: f"would have spawned {int(total[r])} agents, over the limit of {config.max_agents}",
        "spawn fewer, or set max_agents",
    )


def _check_despawns(state: BatchState, ep: np.ndarray, agent: np.ndarray, *, calls: Calls, acts: np.ndarray) -> None:
    _inside(ep, 0, state.episodes, ep, "episode")
    _inside(agent, 1, state.alive.shape[1], ep, "agent slot")
    _refuse(~acts[ep] | ~state.alive[ep, agent], ep, lambda r: f"agent {int(agent[r])} is not alive", "despawn a live agent")
    width = state.alive.shape[1]
    _, where, count = np.unique(ep * width + agent, return_inverse=True, return_counts=True)
    _refuse(count[where] > 1, ep, lambda r: f"agent {int(agent[r])} is despawned twice", "once")
    called = np.isin(ep * width + agent, calls.ep * width + calls.agent)
    _refuse(called, ep, lambda r: f"agent {int(agent[r])} is called and despawned in one round", "one of the two")


def _check_calls(config: Config, state: BatchState, c: Calls, acts: np.ndarray, call_limits: np.ndarray) -> None:
    width, n = state.alive.shape[1], config.items
    _inside(c.ep, 0, state.episodes, c.ep, "episode")
    _refuse(~acts[c.ep], c.ep, lambda r: "calls after it has stopped", "call only while it runs")
    _inside(c.agent, 0, width, c.ep, "agent slot")
    _inside(c.item, 0, n, c.ep, "item")
    _inside(c.brief, 0, 4, c.ep, "size of brief")
    _inside(c.purpose, 0, 3, c.ep, "purpose")
    if not config.orchestrator_works:
        _refuse(
            c.agent == 0, c.ep, lambda r: "the orchestrator takes no calls here", "call a sub-agent, or set orchestrator_works"
        )
    _refuse(~state.alive[c.ep, c.agent], c.ep, lambda r: f"agent {int(c.agent[r])} is not alive", "call an agent that is alive")
    busy = state.busy[c.ep, c.agent] > state.round[c.ep]
    _refuse(busy, c.ep, lambda r: f"agent {int(c.agent[r])} is busy", "call a free agent")
    _refuse(~state.open[c.ep, c.item], c.ep, lambda r: f"item {int(c.item[r])} is closed", "call an open item")
    load = np.bincount(c.ep * width + c.agent, minlength=0)
    over = load[c.ep * width + c.agent] > config.calls_per_round
    _refuse(
        over, c.ep, lambda r: f"agent {int(c.agent[r])} gets more than {config.calls_per_round} calls in a round", "fewer calls"
    )
    per_item = np.bincount(c.ep * n + c.item, minlength=0)[c.ep * n + c.item]
    too_many = state.calls[c.ep, c.item] + per_item > call_limits[c.item]
    _refuse(
        too_many, c.ep, lambda r: f"item {int(c.item[r])} has had its {int(call_limits[c.item[r]])} calls", "call another item"
    )
    if (per_item > 1).any():
        pair = (c.ep * n + c.item) * width + c.agent
        _, where, count = np.unique(pair, return_inverse=True, return_counts=True)
        twice = count[where] > 1
        _refuse(twice, c.ep, lambda r: f"agent {int(c.agent[r])} is called twice on item {int(c.item[r])}", "once a round")
    _check_kinds(config, state, c, per_item)


def _check_kinds(config: Config, state: BatchState, c: Calls, per_item: np.ndarray) -> None:
    """What each kind of item forbids."""
    starts = np.concatenate([[0], np.cumsum(config.counts)])
    for kind, kind_state in state.kinds.present():
        first, end = starts[KINDS.index(kind)], starts[KINDS.index(kind) + 1]
        rows = np.flatnonzero((c.item >= first) & (c.item < end))
        x = c.where(rows)
        if not len(x):
            continue
        if kind in ("draft", "chain", "node"):
            is_double = per_item[rows] > 1
            _refuse(is_double, x.ep, lambda r, x=x: f"item {int(x.item[r])} takes one call at a time", "one call")
        if kind != "chain":
            _refuse(x.purpose != ANSWER, x.ep, lambda r, x=x: f"item {int(x.item[r])} can only be answered", f"purpose {ANSWER}")
        bad = kind_state.refusals(config, x.ep, x.item - first, x.purpose)
        _refuse(
            bad,
            x.ep,
            lambda r, x=x, kind=kind: f"item {int(x.item[r])} ({kind}) cannot take this call now",
            "see what is ready in the observation",
        )
        if kind == "vote":
            _check_acts(config, x, kind_state, x.item - first)
        elif x.act is not None:
            _refuse(x.act != 0, x.ep, lambda r, x=x: f"item {int(x.item[r])} is not a question", "acts are for questions")
        if kind == "vote" and config.votes_per_agent < config.max_votes:
            before = (kind_state.callers[x.ep, x.item - first] == x.agent[:, None]).sum(axis=1)
            _refuse(
                before >= config.votes_per_agent,
                x.ep,
                lambda r, x=x: f"agent {int(x.agent[r])} has voted on item {int(x.item[r])}",
                "another agent",
            )


_POLICY = purpose("policy")
# What is seen of each kind.
SEEN = {
    "vote": ("tally", "rejected", "confidence", "first", "public", "answer", "callers", "held", "shared", "asked"),
    "pool": ("found", "news"),
    "draft": ("shown", "zeros", "lost"),
    "chain": ("hop", "has", "attempts", "passes", "fails", "history"),
    "node": ("needs", "done", "by"),
}


@dataclass(frozen=True)
class Observation:
    """Axes: E episodes, K slots (0 is the orchestrator itself), N items of all kinds."""

    config: Config
    round: int
    """Decisions made so far."""
    running: np.ndarray
    """(E,) episodes that have not stopped."""
    clock: np.ndarray
    """(E,) rounds of time passed."""
    spent: np.ndarray
    """(E,) points spent so far."""
    asks: np.ndarray
    """(E,) requests to spawn that returns carried."""
    alive: np.ndarray
    """(E, K)"""
    free: np.ndarray
    """(E, K) who can be called this round."""
    family: np.ndarray
    """(E, K)"""
    type: np.ndarray
    """(E, K) what each agent is a specialist of."""
    depth: np.ndarray
    """(E, K) levels below the orchestrator."""
    taken: np.ndarray
    """(E, K) calls taken."""
    spawned: np.ndarray
    """(E,) agents ever spawned."""
    item_type: np.ndarray
    """(E, N) what each item is about."""
    open: np.ndarray
    """(E, N) items not closed."""
    ready: np.ndarray
    """(E, N) items that can be called this round."""
    calls: np.ndarray
    """(E, N) calls made on each."""
    kind: np.ndarray
    """(N,) index into `KINDS`."""
    seen: dict[str, Any]
    """By kind that has items: a namespace of the arrays named in `SEEN`, `first_item`, and for pools `count` (E, n)."""
    noise: Any
    """See `uniform`."""
    attacks_left: np.ndarray
    """(E,) rounds in which the second side may still attack: for its policy, and nothing to the team's."""

    @property
    def episodes(self) -> int:
        """E."""
        return len(self.running)

    def of(self, kind: str) -> Any:
        """What is seen of a kind; None when it has no items."""
        return self.seen.get(kind)

    def uniform(self, decision: str, *keys: Any, ep: np.ndarray | None = None) -> np.ndarray:
        """Keyed draws for a policy: (E, ...) numbers for a sub-decision of this round; keys broadcast behind the episode axis.
        With `ep`, draws of these episodes, one each, as often as each is there: they are the last axis, and so are keys."""
        return self.noise(DECISIONS.index(decision), keys) if ep is None else self.noise(DECISIONS.index(decision), keys, ep)

    def words(self, salt: np.ndarray) -> np.ndarray:
        """(decisions, E) what `uniform` mixes a policy's further keys into, `salt` (E,) being the first of them."""
        return mixed(self.noise.words(), salt)


def _view(array: np.ndarray) -> np.ndarray:
    out = array.view()
    out.flags.writeable = False
    return out


def detached(obs: Observation) -> Observation:
    """The observation, copied, so that it stays as it is while the episode goes on."""
    own = lambda value: _view(value.copy()) if isinstance(value, np.ndarray) else value  # noqa: E731
    parts = {kind: SimpleNamespace(**{n: own(v) for n, v in vars(part).items()}) for kind, part in obs.seen.items()}
    changes: dict[str, Any] = {f.name: own(getattr(obs, f.name)) for f in dataclasses.fields(obs)}
    return dataclasses.replace(obs, **(changes | {"seen": parts}))


def _ready(config: Config, s: BatchState, call_limits: np.ndarray) -> np.ndarray:
    ready = s.open & (s.calls < call_limits) & ~s.done[:, None]
    for name, kind in s.kinds.present():
        at = slice(kind.first_item, kind.first_item + config.counts[KINDS.index(name)])
        if name == "chain":
            checked = kind.passes + kind.fails >= config.hop_checks  # type: ignore[union-attr]
            ends = (kind.hop == config.chain_hops - 1) & (kind.attempts >= config.hop_attempts)  # type: ignore[union-attr]
            ready[:, at] &= ~(kind.has & checked & ends)  # type: ignore[union-attr]
        if name == "node":
            waits = (kind.needs & ~kind.done[:, None, :]).any(axis=2)  # type: ignore[union-attr]
            ready[:, at] &= ~kind.done & ~waits  # type: ignore[union-attr]
    return ready


class _Noise:
    """The noise of a round's policies. The words of all its decisions are mixed at once, when the first of them is asked for."""

    def __init__(self, batch: Running, now: int) -> None:
        self._batch, self._now = batch, now
        self._words: np.ndarray | None = None

    def words(self) -> np.ndarray:
        """(decisions, E)"""
        if self._words is None:
            batch, places = self._batch, np.arange(len(DECISIONS))[:, None]
            s, every = batch.state, np.arange(batch.state.episodes)
            seeds = np.stack([batch.seeds(every, place) for place in range(len(DECISIONS))]) if s.fresh_seed.shape[1] else s.seed
            self._words = mixed(bits(seeds, _POLICY, self._now), places)
        return self._words

    def __call__(self, place: int, keys: tuple[Any, ...], ep: np.ndarray | None = None) -> np.ndarray:
        dims = max([np.ndim(k) for k in keys], default=0) if ep is None else 0
        word = self.words()[place] if ep is None else self.words()[place][ep]
        word = word.reshape(-1, *[1] * (dims - 1)) if dims > 1 else word
        for key in keys:
            word = mixed(word, key)
        return share(word)


def observation(config: Config, s: BatchState, batch: Running, call_limits: np.ndarray, kinds: np.ndarray) -> Observation:
    """The present observation of a batch, whose items have these limits and are of these kinds."""
    parts = {}
    for name, kind in s.kinds.present():
        view = SimpleNamespace(**{n: _view(getattr(kind, n)) for n in SEEN[name]}, first_item=kind.first_item)
        if name == "pool":
            view.count = _view(kind.found.sum(axis=2))  # type: ignore[union-attr]
            del view.found
        parts[name] = view
    free = s.alive & (s.busy <= s.round[:, None]) & ~s.done[:, None]
    free[:, 0] &= config.orchestrator_works
    now = batch.round
    return Observation(
        config=config,
        round=now,
        running=_view(~s.done),
        clock=_view(s.clock),
        spent=_view(s.costs.sum(axis=1)),
        asks=_view(s.asks),
        alive=_view(s.alive),
        free=_view(free),
        family=_view(s.family),
        type=_view(s.type),
        depth=_view(s.depth),
        taken=_view(s.taken),
        spawned=_view(s.spawned),
        item_type=_view(s.item_type),
        open=_view(s.open),
        ready=_view(_ready(config, s, call_limits)),
        calls=_view(s.calls),
        kind=_view(kinds),
        seen=parts,
        noise=_Noise(batch, now),
        attacks_left=_view(config.opponent_rounds - s.opposed),
    )
