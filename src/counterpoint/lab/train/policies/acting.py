"""How the network acts: every part of a round's action sampled (or taken greedily), with the log-probability of each.

Always true: the policy keeps no state between rounds; its noise is keyed by (seed, round, place, salt), so a fork can ask it
again and a batch decides as its episodes would one by one. A greedy policy uses no noise. What was decided is recorded row by
row (`Record`) only when asked. An item is decided on only when an agent is free for it: waiting is no decision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch

from counterpoint.lab.train.policies import features as f
from counterpoint.lab.train.policies.choosing import choose_acts, choose_beside, choose_column
from counterpoint.lab.train.policies.features import Pointed, point
from counterpoint.lab.train.policies.network import PURPOSES, Network
from counterpoint.lab.train.policies.record import Record
from counterpoint.lab.worlds.teamworld.action import ANSWER, DECISIONS, Action, Calls, Spawns
from counterpoint.lab.worlds.teamworld.config import KINDS
from counterpoint.lab.worlds.teamworld.observation import Observation
from counterpoint.trace.keyed import mixed, share

SPAWN_EVERY = 16
_CHAIN = KINDS.index("chain")


@dataclass(frozen=True)
class Forced:
    """What is done whatever the policy wants."""

    gate: np.ndarray | None = None
    """(E, roles) spawn arms of forced forks: 0 or 1, -1 where it is free."""
    keeps: np.ndarray | None = None
    """(E, items) for how many calls an item may not be left while anything can be done for it (forced continuation,
    docs/lab/research/stopping.md): a kind that pays only at its end would otherwise be given up before anybody has seen it."""
    tries: np.ndarray | None = None
    """(E,) episodes in which no item may be left before its first call: those who leave everything because their team is too
    small, and spawn no larger one because everything is left, would otherwise never see what a team is worth."""
    sizes: np.ndarray | None = None
    """(E, roles) logarithms of how many come where the arm is forced to 1; not a number where the policy says."""

    def forbid(self, mask: np.ndarray, rows: f.Rows, calls: np.ndarray) -> None:
        """Take leaving (the mask's first column) from rows that may not be left, where anything else can be done."""
        if self.keeps is None and self.tries is None:
            return
        held, made = np.zeros(len(rows), np.bool_), rows.of(calls)
        if self.keeps is not None:
            held |= made < rows.of(self.keeps)
        if self.tries is not None:
            held |= self.tries[rows.ep] & (made == 0)
        mask[:, 0] &= ~held | (rows.copy > 0) | ~mask[:, 1:].any(axis=1)


@dataclass(frozen=True)
class Followed:
    """What was decided in one round of recorded episodes, to be decided again. Axis E, or rows of items."""

    stop: np.ndarray
    go: np.ndarray
    """(E, roles) whom to spawn."""
    number: np.ndarray
    """(E, roles) how many came."""
    size: np.ndarray
    """(E, roles) the log size that was drawn."""
    forced: np.ndarray
    """(E, roles) where the arm was forced."""
    item: Mapping[str, np.ndarray]
    """Decided items: ep, item, copy, choice, agent, brief, rank, kept (may not be left)."""
    talk: np.ndarray
    rule: np.ndarray
    extra: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)
    """Further choices of the round (`choices.py`): act with ep, item, agent, choice; attack and proposal with ep, choice."""
    action: Action | None = None
    """What is carried out, where it is more than these rows can say."""

    def places(self, rows: f.Rows, items: int) -> tuple[np.ndarray, np.ndarray]:
        """(places among the rows, places among the decided items) of the items that are in both."""
        if not len(rows) or not self.item:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        copies = int(max(rows.copy.max(initial=0), self.item["copy"].max(initial=0))) + 1
        mine = (rows.ep * items + rows.item) * copies + rows.copy
        theirs = (self.item["ep"] * items + self.item["item"]) * copies + self.item["copy"]
        _, at, of = np.intersect1d(mine, theirs, assume_unique=True, return_indices=True)
        return at, of

    def allow(self, mask: np.ndarray, at: np.ndarray, of: np.ndarray) -> None:
        """Write into the mask what was allowed: leaving, but where it was forbidden, and what was done."""
        if len(of):
            mask[at, 0] = ~self.item["kept"][of]
            mask[at, self.item["choice"][of]] = True


def salt_now(salt: np.ndarray | None, obs: Observation) -> np.ndarray:
    """(E,) the salts of this round, of salts by episode, or by round and episode: the last row counts from there on."""
    if salt is None:
        return np.zeros(obs.episodes, np.int64)
    return salt if salt.ndim == 1 else np.asarray(salt[min(obs.round, len(salt) - 1)])


def _log_sigmoid(x: np.ndarray) -> np.ndarray:
    return -np.logaddexp(0, -x)


def _log_softmax(x: np.ndarray) -> np.ndarray:
    """Of rows with a few columns: columns are summed as wholes, which is faster than short row after short row."""
    columns = x.T.astype(np.float64, order="C")
    columns -= np.maximum.reduce(columns, axis=0)
    columns -= np.log(np.add.reduce(np.exp(columns), axis=0))
    return columns.T


class TeamPolicy:
    """A `Policy` of TeamWorld, played by a network."""

    def __init__(
        self,
        net: Network,
        *,
        name: str = "learned",
        greedy: bool = True,
        salt: np.ndarray | None = None,
        record: Record | None = None,
        force: Forced | None = None,
        goes_on: bool = False,
        follow: Callable[[Observation], Followed] | None = None,
    ) -> None:
        """`goes_on`: a stop is recorded and not carried out (forced continuation), so that what came after it is seen. `follow`:
        nothing is drawn; what it says is decided again, and recorded with this network's log-probabilities."""
        self.goes_on, self.follow = goes_on, follow
        self.now: Followed | None = None
        """What was decided in this round before, where it is only decided again."""
        self.net, self.name, self.greedy, self.salt, self.record, self.force = net, name, greedy, salt, record, force
        self._words: tuple[Observation, np.ndarray] | None = None  # of the round that is decided

    def noise(self, obs: Observation, decision: str, *keys: Any, ep: np.ndarray | None = None) -> np.ndarray | None:
        """Uniform numbers, one per episode and key; with `ep`, for these episodes, as the last axis. None for a greedy policy."""
        if self.greedy:
            return None
        if self._words is None or self._words[0] is not obs:
            self._words = obs, obs.words(salt_now(self.salt, obs))
        word = self._words[1][DECISIONS.index(decision)]
        if ep is None:
            dims = max([np.ndim(k) for k in keys], default=0)
            word = word.reshape(-1, *[1] * (dims - 1)) if dims > 1 else word
        elif keys and keys[0].shape[-1] == 1:  # a key that is the same for all rows of an episode
            word, keys = mixed(word, keys[0])[:, ep], keys[1:]
        else:
            word = word[ep]
        for key in keys:
            word = mixed(word, key)
        return share(word)

    def act(self, obs: Observation) -> Action:
        """This round's action."""
        return self.decide(obs)[1]

    def decide(self, obs: Observation) -> tuple[Action, Action]:
        """(what the rows of the record say, what is carried out); they differ only where another policy is followed."""
        self.now = None if self.follow is None else self.follow(obs)
        with torch.no_grad():
            made = self._decided(obs)
        return made, made if self.now is None or self.now.action is None else self.now.action

    def _decided(self, obs: Observation) -> Action:
        about = f.context(obs)
        rows = f.item_rows(obs, about, obs.free)
        team = f.team_rows(obs, about, rows)
        stop_logit, rule_logit, talk_logit = (t.numpy().astype(np.float64) for t in self.net.teams(torch.from_numpy(team)))
        logp = np.zeros((obs.episodes, len(DECISIONS)))
        stop = self._stop(obs, stop_logit, logp, team, about.open)
        spawns = self._spawn(obs, about, stop, logp)
        goes = obs.running & ~stop
        calls, close = self._delegate(obs, rows, obs.free & goes[:, None], logp)
        called = np.bincount(calls.ep, minlength=obs.episodes) > 0
        idle = goes & ~called
        idle[spawns.ep] = False
        talk, rule = self._talk(obs, talk_logit, rule_logit, called, team, logp)
        choose_acts(self, obs, calls, logp)
        return Action(
            **choose_beside(self, obs, team),
            stop=stop | idle,
            close=close,
            spawns=spawns,
            calls=calls,
            full_return=talk[:, 0],
            broadcast=talk[:, 1],
            rule=rule,
            logp=logp,
        )

    # -- O5

    def _stop(
        self, obs: Observation, logit: np.ndarray, logp: np.ndarray, team: np.ndarray, open_items: np.ndarray
    ) -> np.ndarray:
        asked = obs.running & (obs.round > 0)
        u, yes = self.noise(obs, "stop"), _log_sigmoid(logit)
        stop = asked & ((logit > 0) if u is None else np.log(u) < yes)
        if self.now is not None:
            stop = asked & self.now.stop
        logp[:, 0] = np.where(asked, np.where(stop, yes, _log_sigmoid(-logit)), 0.0)
        if self.record is not None:
            rows = asked.nonzero()[0]
            self.record.add(
                "stop",
                ep=rows,
                round=obs.round,
                x=team[rows],
                choice=stop[rows],
                logp=logp[rows, 0],
                chance=np.exp(yes[rows]),
                open=open_items[rows],
            )
        return np.zeros_like(stop) if self.goes_on else stop

    # -- O1

    def _spawn(self, obs: Observation, about: f.Context, stop: np.ndarray, logp: np.ndarray) -> Spawns:
        late = obs.config.topology == "debate" and obs.round > 0
        if obs.round % SPAWN_EVERY or late or not (obs.running & ~stop).any():
            return Spawns()
        x = f.role_rows(obs, about)
        roles = x.shape[1]
        gate, size = (t.numpy().astype(np.float64) for t in self.net.roles(torch.from_numpy(x)))
        scale = float(np.exp(self.net.log_scale.item()))
        places = np.arange(roles)[None]
        u = self.noise(obs, "spawn", 0, places)
        go = (gate > 0) if u is None else np.log(u) < _log_sigmoid(gate)
        if self.force is not None and self.force.gate is not None and obs.round == 0:
            go = np.where(self.force.gate >= 0, self.force.gate == 1, go)
        z = self._normal(obs, places)
        if self.force is not None and self.force.sizes is not None and obs.round == 0:
            z = np.where(np.isfinite(self.force.sizes), (self.force.sizes - size) / scale, z)
        wish = size + scale * z
        number = np.clip(np.round(np.exp(np.minimum(wish, 9.0))), 1, obs.config.max_agents).astype(np.int64)
        asked = obs.running & ~stop
        number = np.where(go & asked[:, None], number, 0)
        number = _within(number, obs.config.max_agents - obs.spawned)
        if self.now is not None:
            go, number, wish = self.now.go, self.now.number, self.now.size
            z = np.where(go, (wish - size) / scale, 0.0)
        gate_logp = np.where(go, _log_sigmoid(gate), _log_sigmoid(-gate))
        size_logp = -0.5 * z**2 - np.log(scale)
        logp[:, 1] = np.where(asked, (gate_logp + np.where(go, size_logp, 0.0)).sum(axis=1), 0.0)
        if self.record is not None:
            ep, role = np.nonzero(np.broadcast_to(asked[:, None], go.shape))
            gates = None if self.force is None or obs.round else self.force.gate
            forced = np.zeros(go.shape, np.bool_) if gates is None else gates >= 0
            forced = forced if self.now is None else self.now.forced
            self.record.add(
                "spawn",
                ep=ep,
                round=obs.round,
                x=x[ep, role],
                choice=go[ep, role],
                size=wish[ep, role],
                logp=gate_logp[ep, role],
                size_logp=size_logp[ep, role],
                role=role,
                forced=forced[ep, role],
                number=number[ep, role],
            )
        ep, role = np.nonzero(number)
        return Spawns.of(ep, number[ep, role], role // obs.config.types, role % obs.config.types)

    def _normal(self, obs: Observation, places: np.ndarray) -> np.ndarray:
        a, b = self.noise(obs, "spawn", 1, places), self.noise(obs, "spawn", 2, places)
        if a is None or b is None:
            return np.zeros((obs.episodes, places.shape[1]))
        return np.sqrt(-2 * np.log(np.maximum(a, 1e-300))) * np.cos(2 * np.pi * b)

    # -- O2, O3 per item

    def _delegate(self, obs: Observation, rows: f.Rows, free: np.ndarray, logp: np.ndarray) -> tuple[Calls, np.ndarray | None]:
        keep = np.logical_or.reduce(free, axis=1)[rows.ep]
        if not keep.any():
            return Calls(), None
        if not keep.all():
            rows = rows.subset(keep)
        first, sort = f.distinct(rows.x)
        x = torch.from_numpy(rows.x[first])
        agents = f.agent_rows(obs)
        purpose_logit, brief_logit, query = (t.numpy()[sort] for t in self.net.items(x))
        work = self.net.judge_items(x)[2].numpy()[sort]
        key = self.net.keys(torch.from_numpy(agents)).numpy()
        mask = _legal(obs, rows)
        if self.force is not None:
            self.force.forbid(mask, rows, obs.calls)
        at, of = (rows.ep[:0], rows.ep[:0]) if self.now is None else self.now.places(rows, obs.config.items)
        if self.now is not None:
            self.now.allow(mask, at, of)
        purpose_logp = _log_softmax(np.where(mask, purpose_logit, -np.inf))
        place = rows.item if "pool" not in obs.seen else rows.item + obs.config.items * rows.copy
        draws = self.noise(obs, "delegate", np.arange(3)[:, None], place, ep=rows.ep)
        u, u_brief, u_point = (None, None, None) if draws is None else draws
        purpose = choose_column(purpose_logp, u)
        if self.now is None:
            turns = rows.of(obs.item_type), free.sum(axis=1)[:, None] if obs.config.types == 1 else f.by_type(obs, free)
            reached, rank = _reached(rows, purpose, np.maximum(work, 0.01) / (1 + rows.copy), free.sum(axis=1), *turns)
        else:
            reached, rank, purpose = _again(len(rows), self.now.item, at, of, purpose)
        close = _closed(obs, rows, reached & (purpose == 0) & (rows.copy == 0))
        go = (reached & (purpose > 0)).nonzero()[0]
        pair = self.net.pair.weight.detach().numpy()[0]
        kept = agents if self.record is not None else None
        whom = None if self.now is None else _spread(len(rows), at, self.now.item["agent"][of] if len(of) else of, -1)[go]
        pointed = point(obs, rows, go, rank[go], free, query, key, pair, u_point, kept, whom)
        brief_logp = _log_softmax(brief_logit[go])
        brief = choose_column(brief_logp, None if u_brief is None else u_brief[go])
        if self.now is not None:
            brief = _spread(len(rows), at, self.now.item["brief"][of] if len(of) else of, 0)[go]
        taken = pointed.agent >= 0
        decided = Decided(rows, mask, reached, rank, purpose, purpose_logp, go, pointed, brief, brief_logp)
        decided.add_logp(logp)
        if self.record is not None:
            decided.note(self.record, obs.round)
        at = go[taken]
        calls = Calls(rows.ep[at], rows.item[at], pointed.agent[taken], brief[taken], purpose[at] - 1 + ANSWER)
        return calls, close

    # -- O3 and O4 of the team

    def _talk(
        self,
        obs: Observation,
        talk_logit: np.ndarray,
        rule_logit: np.ndarray,
        called: np.ndarray,
        team: np.ndarray,
        logp: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        u = self.noise(obs, "communicate", np.arange(2)[None])
        yes = _log_sigmoid(talk_logit)
        talk = (talk_logit > 0) if u is None else np.log(u) < yes
        rule_logp = _log_softmax(rule_logit)
        rule = choose_column(rule_logp, self.noise(obs, "aggregate"))
        if self.now is not None:
            talk, rule = self.now.talk, self.now.rule
        talk_logp = np.where(talk, yes, _log_sigmoid(-talk_logit))
        own = rule_logp[np.arange(obs.episodes), rule]
        logp[:, 3] += np.where(called, talk_logp.sum(axis=1), 0.0)
        logp[:, 4] += np.where(called, own, 0.0)
        if self.record is not None and called.any():
            rows = called.nonzero()[0]
            self.record.add("talk", ep=rows, round=obs.round, x=team[rows], choice=talk[rows], logp=talk_logp[rows])
            self.record.add(
                "rule",
                ep=rows,
                round=obs.round,
                x=team[rows],
                choice=rule[rows],
                logp=own[rows],
                talk=talk[rows].astype(np.float32),
            )
        return talk & called[:, None], rule.astype(np.int64)


def _spread(n: int, at: np.ndarray, values: np.ndarray, default: int) -> np.ndarray:
    """(n,) the values at their places, the default elsewhere."""
    out = np.full(n, default)
    out[at] = values
    return out


def _again(
    n: int, item: Mapping[str, np.ndarray], at: np.ndarray, of: np.ndarray, purpose: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(reached, rank, purpose) of all rows, as they were decided."""
    if not len(of):
        return np.zeros(n, np.bool_), np.zeros(n, np.int64), purpose
    reached = np.zeros(n, np.bool_)
    reached[at] = True
    return reached, _spread(n, at, item["rank"][of], 0), _spread(n, at, item["choice"][of], 0)


def _within(number: np.ndarray, room: np.ndarray) -> np.ndarray:
    """The numbers (E, roles), cut where their sum would pass the room left."""
    before = number.cumsum(axis=1) - number
    return np.clip(np.minimum(number, room[:, None] - before), 0, None)


def _legal(obs: Observation, rows: f.Rows) -> np.ndarray:
    """(R, 4) the purposes that an item can take now; leaving is always one."""
    mask = np.zeros((len(rows), len(PURPOSES)), np.bool_)
    mask[:, :2] = True
    seen = obs.of("chain")
    if seen is not None:
        c, at = obs.config, np.flatnonzero(obs.kind[rows.item] == _CHAIN)
        e, i = rows.ep[at], rows.item[at] - seen.first_item
        has, checks = seen.has[e, i], seen.passes[e, i] + seen.fails[e, i]
        mask[at, 1] = seen.attempts[e, i] < c.hop_attempts
        mask[at, 2] = has & (checks < c.hop_checks)
        mask[at, 3] = has & (seen.hop[e, i] + 1 < c.chain_hops)
    return mask


def _reached(
    rows: f.Rows, purpose: np.ndarray, urgency: np.ndarray, room: np.ndarray, types: np.ndarray, able: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Which rows are decided on, and the rank of each that goes among those of its episode: the most urgent first, while agents
    are free. A pool's later copies count only while the earlier ones go. Types of items (`types`, by row) take turns as often as
    agents of theirs are free (`able`, by episode): else a type that is a little more urgent would take those of the others."""
    left = purpose == 0
    before = left.cumsum() - left
    valid = before == (np.maximum.accumulate(np.where(rows.copy == 0, before, 0)) if rows.copy.any() else before)
    goes, last = ~left & valid, -urgency
    keys: tuple[np.ndarray, ...] = (last, rows.ep)
    if able.shape[1] > 1:
        turn = _ahead(goes, np.lexsort((last, types, rows.ep)), rows.ep * able.shape[1] + types)
        keys = (last, turn / np.maximum(able, 0.01)[rows.ep, types], rows.ep)
    rank = _ahead(goes, np.lexsort(keys), rows.ep)
    return valid & (rank < room[rows.ep]), rank


def _ahead(goes: np.ndarray, order: np.ndarray, group: np.ndarray) -> np.ndarray:
    """How many rows that go are before each of its group, in an order that is sorted by groups."""
    goes, group = goes[order], group[order]
    ahead = goes.cumsum() - goes
    out = np.empty(len(order), np.int64)
    out[order] = ahead - ahead[group.searchsorted(group)]
    return out


@dataclass(frozen=True)
class Decided:
    """Over the item rows of a round; `brief`, `brief_logp` and `pointed` are over those that go."""

    rows: f.Rows
    mask: np.ndarray
    reached: np.ndarray
    rank: np.ndarray
    """In which order those that go chose their agents."""
    purpose: np.ndarray
    purpose_logp: np.ndarray
    go: np.ndarray
    """Places of the rows that go."""
    pointed: Pointed
    brief: np.ndarray
    brief_logp: np.ndarray

    @cached_property
    def own(self) -> np.ndarray:
        """Log-probability of each row's purpose."""
        return self.purpose_logp[np.arange(len(self.rows)), self.purpose]

    @cached_property
    def own_brief_logp(self) -> np.ndarray:
        """Log-probability of each brief."""
        return self.brief_logp[np.arange(len(self.go)), self.brief]

    def add_logp(self, logp: np.ndarray) -> None:
        """Add to the (E, 5) log-probabilities of the action: whom (2) and what is said (3)."""
        ep, episodes = self.rows.ep, len(logp)
        logp[:, 2] += np.bincount(ep[self.reached], self.own[self.reached], episodes)
        logp[:, 2] += np.bincount(ep[self.go], self.pointed.logp, episodes)
        logp[:, 3] += np.bincount(ep[self.go], self.own_brief_logp, episodes)

    def note(self, record: Record, now: int) -> None:
        """Write the round's rows."""
        rows, go, pointed, at = self.rows, self.go, self.pointed, self.reached.nonzero()[0]
        n, place = len(at), self.reached.cumsum() - 1  # of a row among those that are written
        spread = {"agent": np.full(n, -1), "brief": np.zeros(n, np.int64), "brief_logp": np.zeros(n), "point_logp": np.zeros(n)}
        mine = place[go]
        for name, values in (
            ("agent", pointed.agent),
            ("brief", self.brief),
            ("brief_logp", self.own_brief_logp),
            ("point_logp", pointed.logp),
        ):
            spread[name][mine] = values
        spread["agent_x"], spread["pair_x"] = np.zeros((n, f.AGENT), np.float32), np.zeros((n, f.PAIR), np.float32)
        whose = mine[pointed.row[pointed.picked]]
        spread["agent_x"][whose], spread["pair_x"][whose] = pointed.agent_x[pointed.picked], pointed.pair_x[pointed.picked]
        own = {"item": rows.item, "copy": rows.copy, "x": rows.x, "mask": self.mask, "choice": self.purpose, "logp": self.own}
        own["rank"] = self.rank
        first = record.count("item")
        record.add("item", ep=rows.ep[at], round=now, **spread, **{name: column[at] for name, column in own.items()})
        if len(pointed.row):
            candidates = {"agent_x": pointed.agent_x, "pair_x": pointed.pair_x, "picked": pointed.picked}
            record.add("candidate", ep=rows.ep[go][pointed.row], round=now, row=first + mine[pointed.row], **candidates)


def _closed(obs: Observation, rows: f.Rows, left: np.ndarray) -> np.ndarray | None:
    """(E, I) the items that rows were left as they are; None where no row was."""
    if not left.any():
        return None
    close = np.zeros(obs.open.shape, np.bool_)
    close[rows.ep[left], rows.item[left]] = True
    return close
