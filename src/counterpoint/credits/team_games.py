"""The game that a trace's agents play: who plays, what a subset of them is worth, and the values of such a game.

Always true: players are the agents that really took part, keyed by name, with the spawn tree over them; agents that would appear
only in another branch are not players (their effect stays with whoever decides to spawn). What a subset is worth is found, in
this order, by `worth(trace, agents)`, by forks (`replay`), or by counting the recorded votes of the subset again. A trace with
none of the three raises `NotIdentified`.

With forks, the absent are never spawned and everybody else reacts; nobody can be without those whom nobody spawned, so these are
no players, and absent agents take their subtrees with them whatever the value asked for. Everybody together is worth what the run
scored itself, as the forks do (`credit.own_scores`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterpoint.credits.games import (
    MOST_EXACT,
    Game,
    Sampled,
    TeamGame,
    VoteGame,
    above,
    by_keys,
    exact_owen,
    exact_shapley,
    mean_over_orders,
    parent_first,
    table,
    tree,
)
from counterpoint.credits.masked_replay import read_by_merges
from counterpoint.credits.mechanism import team_reward
from counterpoint.credits.own_scores import beside_forks, unused
from counterpoint.display import working
from counterpoint.errors import InputError, NotIdentified, did_you_mean
from counterpoint.trace import Trace
from counterpoint.trace.replay import Delete, Replay
from counterpoint.trace.rows import Cost, Credit, CreditRow
from counterpoint.trace.team import team_of

# -- Exact values of majority-vote games of any number of agents, item by item, and the votes that a trace holds ------
# Always true: the values of a sum of games are the sums of their values, and who has no vote on an item (nor anybody below with
# one) is a dummy there; so each item is solved among its few voters and, where the tree matters, their ancestors. Before a
# player stands a random margin M of right over wrong votes, and all that is needed is its distribution:
#
#     shapley      M: votes of a random prefix of the other voters
#     nested_owen  M: level by level, whole sibling subtrees of a random prefix, and the ancestors
#     permission   phi_i = integral over t in 0..1 of E[v(S_t and i) - v(S_t without i)], each other player in S_t with chance t
#                  (Owen's multilinear extension); a polynomial in t, so Gauss-Legendre with enough nodes is exact

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def vote_game(trace: Trace, number: Mapping[str, int], tie: float = 0.5) -> VoteGame | None:
    """The majority game of a trace's returned claims, over the agents numbered; None where the trace has none.

    A vote is a return on a task "vote ITEM" that carries its claim (`extra.claim`) and whether it was right (reward R2), and that
    some merge read, as far as that was recorded: one that came too late is worth nothing to anybody. An item pays
    `meta.config.vote_weight`, or 1; items that nobody answered pay the coin's share to everybody and nobody.
    """
    merged = read_by_merges(trace)
    rows = [
        (number[e.agent], e.task, float(e.reward["R2"]) > 0.5)
        for e in trace.events
        if merged is None or e.id in merged
        if e.type == "return" and e.task and e.task.startswith("vote ") and e.agent in number
        if e.extra and "claim" in e.extra and e.reward and "R2" in e.reward
    ]
    if not rows:
        return None
    item = {task: j for j, task in enumerate(dict.fromkeys(task for _, task, _ in rows))}
    config = trace.meta.get("config") or {}
    return VoteGame(
        len(number),
        np.array([a for a, _, _ in rows], np.int64),
        np.array([item[task] for _, task, _ in rows], np.int64),
        np.array([right for _, _, right in rows], np.bool_),
        np.full(len(item), float(config.get("vote_weight", 1.0))),
        tie,
    )


def exact_votes(game: VoteGame, value: str = "shapley", parent_A: Ints | None = None) -> Floats:
    """(players,) the exact value of a majority game: `shapley`, or over a spawn tree `nested_owen` or `permission`."""
    if value != "shapley" and parent_A is None:
        raise InputError(f"{value} needs the spawn tree", fix="give parent_A")
    out = np.zeros(game.n)
    up = above(parent_A) if parent_A is not None else [[] for _ in range(game.n)]
    margin_J: list[dict[int, int]] = [{} for _ in game.weight_J]
    for a, j, sign in zip(game.agent_V.tolist(), game.item_V.tolist(), game.sign_V.tolist(), strict=True):
        margin_J[j][a] = margin_J[j].get(a, 0) + sign
    solved: dict[tuple[object, ...], Sequence[float]] = {}
    for margins, weight in zip(margin_J, game.weight_J.tolist(), strict=True):
        if not margins:
            continue
        item = _Item(margins, up if value != "shapley" else [[] for _ in range(game.n)])
        if item.key not in solved:
            solved[item.key] = item.permission(game) if value == "permission" else item.owen(game)
        np.add.at(out, item.players, np.multiply(solved[item.key], weight))
    return out


class _Item:
    """One item: its voters and their ancestors as a small forest, numbered parents first."""

    def __init__(self, margins: Mapping[int, int], up: Sequence[Sequence[int]]) -> None:
        players = sorted(
            {*margins, *(b for a in margins for b in up[a])}, key=lambda a: (len(up[a]), up[a][::-1], margins.get(a, 0), a)
        )
        place = {a: i for i, a in enumerate(players)}
        self.players = players
        self.parent = [place[up[a][0]] if up[a] else -1 for a in players]
        self.own = [margins.get(a, 0) for a in players]
        self.reach = sum(map(abs, self.own))
        """No margin is beyond this."""
        self.children: list[list[int]] = [[] for _ in range(len(players) + 1)]
        for i, p in enumerate(self.parent):
            self.children[p].append(i)  # the roots under the last, -1
        self.key = (*self.parent, None, *self.own)

    def share(self, game: VoteGame) -> Floats:
        return game.share(np.arange(-self.reach, self.reach + 1))

    def shift(self, chance: Floats, by: int) -> Floats:
        out = np.roll(chance, by, axis=-1)
        if by > 0:
            out[..., :by] = 0.0
        elif by < 0:
            out[..., by:] = 0.0
        return out

    def joined(self, first: Floats, second: Floats) -> Floats:
        """The distribution of the sum of two independent margins, row by row."""
        out = np.zeros(np.broadcast_shapes(first.shape, second.shape))
        for k in np.flatnonzero(second.reshape(-1, second.shape[-1]).any(axis=0)).tolist():
            out += self.shift(first, k - self.reach) * second[..., k : k + 1]
        return out

    def nothing(self, rows: int | None = None) -> Floats:
        out = np.zeros(2 * self.reach + 1 if rows is None else (rows, 2 * self.reach + 1))
        out[..., self.reach] = 1.0
        return out

    def owen(self, game: VoteGame) -> list[float]:
        total = self.own.copy()
        for i in reversed(range(len(total))):
            if self.parent[i] >= 0:
                total[self.parent[i]] += total[i]
        share, out = self.share(game), [0.0] * len(total)
        before = {-1: self.nothing()}
        for group in (-1, *range(len(total))):
            for i in self.children[group]:
                others = [total[j] for j in self.children[group] if j != i]
                here = self.joined(before[group], self._prefix(others))
                before[i] = self.shift(here, self.own[i])
                out[i] = float((before[i] - here) @ share)
        return out

    def _prefix(self, others: Sequence[int]) -> Floats:
        """The margin of a random prefix of others: sets of size s have chance s! (k-s)! / (k+1)!."""
        by_size = np.zeros((len(others) + 1, 2 * self.reach + 1))
        by_size[0, self.reach] = 1.0
        for other in others:
            by_size[1:] += self.shift(by_size[:-1], other)
        k = len(others)
        chance = np.array([1.0 / ((k + 1) * math.comb(k, s)) for s in range(k + 1)])
        return chance @ by_size

    def permission(self, game: VoteGame) -> list[float]:
        nodes, weights = np.polynomial.legendre.leggauss((len(self.own) + 1) // 2)
        t, w = (nodes + 1) / 2, weights / 2
        here, n = t[:, None], len(self.own)
        inside: list[Floats] = [self.nothing(len(t))] * n  # the margin of a subtree whose root is in
        for i in reversed(range(n)):
            inside[i] = self.nothing(len(t))
            for j in self.children[i]:
                inside[i] = self.joined(inside[i], self._maybe(inside[j], here))
            inside[i] = self.shift(inside[i], self.own[i])
        share, out = self.share(game), [0.0] * n
        around, depth = {-1: self.nothing(len(t))}, {-1: 0}
        for group in (-1, *range(n)):
            for i in self.children[group]:
                rest = around[group]
                for j in self.children[group]:
                    rest = rest if j == i else self.joined(rest, self._maybe(inside[j], here))
                gain = (self.joined(rest, inside[i]) - rest) @ share
                out[i] = float((w * t ** depth[group]) @ gain)
                around[i], depth[i] = self.shift(rest, self.own[i]), depth[group] + 1
        return out

    def _maybe(self, inside: Floats, t: Floats) -> Floats:
        return t * inside + (1 - t) * self.nothing(len(inside))


Worth = Callable[[Trace, frozenset[str]], float]
Step = Callable[[], object]
VALUES = ("exact", "sampled", "permission", "nested_owen")


@dataclass(frozen=True)
class TraceGame:
    """A trace as a game."""

    names: list[str]
    """Player number to agent."""
    roles: list[str]
    """Player number to role; its name for an agent without one."""
    parent_A: Ints
    """Player number of the spawner, -1 for none among the players."""
    game: TeamGame
    worth: str
    """Where the worth comes from: given, forks or votes."""
    spent: list[Cost]
    """One entry for every fork made so far."""

    @property
    def cost(self) -> Cost:
        """All forks together."""
        return Cost(sum(c.forks for c in self.spent), sum(c.tokens for c in self.spent))

    @cached_property
    def all_and_nobody(self) -> tuple[float, float]:
        """v(N) and v(nobody)."""
        everybody = np.ones(self.game.n, np.bool_)
        return self.game.worth(everybody), self.game.worth(~everybody)


def play(
    trace: Trace, *, worth: Worth | None = None, replay: Replay | None = None, tie: float = 0.5, step: Step = lambda: None
) -> TraceGame:
    """The game of a trace; `step` is called after each subset that was forked."""
    team = team_of(trace)
    chosen = [a for a in range(len(team)) if team.is_member_A[a] and (worth or not replay or team.parent_A[a] >= 0)]
    if not chosen:
        raise NotIdentified("the trace has no agents to share among", "record who acts and who spawns", where=trace.trace_id)
    names = [team.names[a] for a in chosen]
    number = {a: i for i, a in enumerate(chosen)}
    parent_A = np.array([number.get(int(team.parent_A[a]), -1) for a in chosen], np.int64)
    roles = roles_of(trace)
    spent: list[Cost] = []
    if replay is not None and worth is None:
        born = next((e.id for e in trace.events if e.type == "spawn" and e.to in names), None)
        trace = beside_forks(trace, replay, born, "team")
    game, final = _game(trace, names, worth, replay, tie, spent, step)
    return TraceGame(names, [roles.get(name, name) for name in names], parent_A, game, final, spent)


def roles_of(trace: Trace) -> dict[str, str]:
    """The first role of each agent: the one it acts in, or else the one it was spawned for."""
    spawned = {e.to: e.role for e in reversed(trace.events) if e.type == "spawn" and e.to and e.role}
    return spawned | {e.agent: e.role for e in reversed(trace.events) if e.type != "spawn" and e.role}


def _game(
    trace: Trace, names: list[str], worth: Worth | None, replay: Replay | None, tie: float, spent: list[Cost], step: Step
) -> tuple[TeamGame, str]:
    everybody = np.array(names)
    if worth is not None:
        return Game(len(names), lambda present: worth(trace, frozenset(everybody[present].tolist()))), "given"
    if replay is not None:

        def by_forks(present_A: NDArray[np.bool_]) -> float:
            fork, cost = forked_without(trace, everybody[~present_A].tolist(), replay)
            spent.append(cost)
            step()
            return team_reward(fork)

        return Game(len(names), by_forks), "forks"
    votes = vote_game(trace, {name: i for i, name in enumerate(names)}, tie)
    if votes is None:
        raise NotIdentified(
            "nothing says what a part of the team is worth: the trace holds no scored votes",
            "give worth=(trace, agents) -> number, or a replay that can fork",
            where=trace.trace_id,
        )
    return votes, "votes"


def forked_without(trace: Trace, absent: list[str], replay: Replay) -> tuple[Trace, Cost]:
    """The trace in which these agents are never spawned, fork by fork, and what the forks cost."""
    forks = tokens = 0
    gone = set(absent)
    while True:
        at = next((i for i, e in enumerate(trace.events) if e.type == "spawn" and e.to in gone), None)
        if at is None:
            return trace, Cost(forks, tokens)
        gone.discard(trace.events[at].to or "")
        trace = replay.fork(trace, trace.events[at].id, Delete())
        forks += 1
        tokens += sum((e.tokens_in or 0) + (e.tokens_out or 0) for e in trace.events[at:])


class Solved(NamedTuple):
    """The value of a game."""

    value_A: Floats
    se_A: Floats | None
    """None where the value is exact."""
    orders: int
    """Orders sampled; 0 where the value is exact."""


def solve(
    game: TeamGame,
    value: str,
    parent_A: Ints,
    *,
    orders: int | None = None,
    seed: int | list[int] = 0,
    stop_se: float | None = None,
) -> Solved:
    """`exact` or `sampled` Shapley, or over the spawn tree `permission` or `nested_owen`: exact where that is cheap (votes, or at
    most 14 players) and no number of orders is asked for."""
    if value not in VALUES:
        raise InputError(f"no value {value!r}", fix=did_you_mean(value, VALUES))
    if orders is not None and (orders < 2 or value == "exact"):
        raise InputError(f"orders={orders} with value={value!r}", fix="an exact value has no orders, a sampled one 2 or more")
    small = game.n <= MOST_EXACT
    if value == "exact" and not small and not isinstance(game, VoteGame):
        raise InputError(f"{game.n} agents are too many for an exact value", fix=f"at most {MOST_EXACT}; or value='sampled'")
    if value != "sampled" and orders is None and (small or isinstance(game, VoteGame)):
        return Solved(_exact(game, value, parent_A), None, 0)
    team = tree(parent_A)
    kinds = {"nested_owen": (lambda keys: parent_first(team, keys), None), "permission": (by_keys, parent_A)}
    order_of, parents = kinds.get(value, (by_keys, None))
    sampled: Sampled = mean_over_orders(
        lambda order: game.along(order, parents), order_of, game.n, orders or 64, np.random.default_rng(seed), stop_se=stop_se
    )
    return Solved(sampled.mean_A, sampled.se_A, sampled.orders)


def _exact(game: TeamGame, value: str, parent_A: Ints) -> Floats:
    if isinstance(game, VoteGame):
        return exact_votes(game, "shapley" if value == "exact" else value, parent_A)
    if value == "nested_owen":
        return exact_owen(table(game), parent_A)
    return exact_shapley(table(game, parent_A if value == "permission" else None))


def game_credit(
    mechanism: str,
    estimand: str,
    traces: Sequence[Trace],
    give: Callable[[int, TraceGame], list[CreditRow]],
    *,
    worth: Worth | None,
    replay: Replay | None,
    tie: float,
    notes: dict[str, Any] | None = None,
) -> Credit:
    """Credit that shares v(N) - v(nobody) of every trace's game: `give` solves the game of a trace, given with its place."""
    rows: list[CreditRow] = []
    declared, costs = [], []
    for k, trace in enumerate(traces):
        with working("subsets of the team") as work:
            played = play(trace, worth=worth, replay=replay, tie=tie, step=work.step)
            rows += give(k, played)
            everybody, nobody = played.all_and_nobody
        declared.append(everybody - nobody)
        costs.append(played.cost)
    return Credit(
        mechanism=mechanism,
        estimand=estimand,
        additive=True,
        trace_ids=tuple(t.trace_id for t in traces),
        rows=tuple(rows),
        declared=np.array(declared),
        cost=Cost(sum(c.forks for c in costs), sum(c.tokens for c in costs)),
        notes={**(notes or {}), **(unused(traces, "team") if worth is None and replay is not None else {})},
    )
