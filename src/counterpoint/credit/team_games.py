"""The game that a trace's agents play: who plays, what a subset of them is worth, and the values of such a game.

Always true: players are the agents that really took part, keyed by name, with the spawn tree over them; agents that would appear
only in another branch are not players (their effect stays with whoever decides to spawn). What a subset is worth is found, in
this order, by `worth(trace, agents)`, by forks (`replay`), or by counting the recorded votes of the subset again. A trace with
none of the three raises `NotIdentified`.

With forks, the absent are never spawned and everybody else reacts; nobody can be without those whom nobody spawned, so these are
no players, and absent agents take their subtrees with them whatever the value asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterpoint.credit.agent_orders import Sampled, by_keys, mean_over_orders, parent_first, tree
from counterpoint.credit.games import MOST_EXACT, Game, TeamGame, VoteGame, exact_owen, exact_shapley, table
from counterpoint.credit.mechanism import team_reward
from counterpoint.credit.vote_games import exact_votes, vote_game
from counterpoint.errors import InputError, NotIdentified, did_you_mean
from counterpoint.trace import Trace
from counterpoint.trace.replay import Delete, Replay
from counterpoint.trace.rows import Cost
from counterpoint.trace.team import Team

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Worth = Callable[[Trace, frozenset[str]], float]
VALUES = ("exact", "sampled", "permission", "nested_owen")


@dataclass(frozen=True)
class Played:
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

    @property
    def all_and_nobody(self) -> tuple[float, float]:
        """v(N) and v(nobody)."""
        everybody = np.ones(self.game.n, np.bool_)
        return self.game.worth(everybody), self.game.worth(~everybody)


def play(trace: Trace, *, worth: Worth | None = None, replay: Replay | None = None, tie: float = 0.5) -> Played:
    """The game of a trace."""
    team = Team(trace)
    chosen = [a for a in range(len(team)) if team.is_member_A[a] and (worth or not replay or team.parent_A[a] >= 0)]
    if not chosen:
        raise NotIdentified("the trace has no agents to share among", "record who acts and who spawns", where=trace.trace_id)
    names = [team.names[a] for a in chosen]
    number = {a: i for i, a in enumerate(chosen)}
    parent_A = np.array([number.get(int(team.parent_A[a]), -1) for a in chosen], np.int64)
    roles = roles_of(trace)
    spent: list[Cost] = []
    game, found = _game(trace, names, worth, replay, tie, spent)
    return Played(names, [roles.get(name, name) for name in names], parent_A, game, found, spent)


def roles_of(trace: Trace) -> dict[str, str]:
    """The first role of each agent: the one it acts in, or else the one it was spawned for."""
    said = {e.to: e.role for e in reversed(trace.events) if e.type == "spawn" and e.to and e.role}
    return said | {e.agent: e.role for e in reversed(trace.events) if e.type != "spawn" and e.role}


def _game(
    trace: Trace, names: list[str], worth: Worth | None, replay: Replay | None, tie: float, spent: list[Cost]
) -> tuple[TeamGame, str]:
    everybody = np.array(names)
    if worth is not None:
        return Game(len(names), lambda present: worth(trace, frozenset(everybody[present].tolist()))), "given"
    if replay is not None:

        def by_forks(present_A: NDArray[np.bool_]) -> float:
            fork, cost = forked_without(trace, everybody[~present_A].tolist(), replay)
            spent.append(cost)
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
    found: Sampled = mean_over_orders(
        lambda order: game.along(order, parents), order_of, game.n, orders or 64, np.random.default_rng(seed), stop_se=stop_se
    )
    return Solved(found.mean_A, found.se_A, found.orders)


def _exact(game: TeamGame, value: str, parent_A: Ints) -> Floats:
    if isinstance(game, VoteGame):
        return exact_votes(game, "shapley" if value == "exact" else value, parent_A)
    if value == "nested_owen":
        return exact_owen(table(game), parent_A)
    return exact_shapley(table(game, parent_A if value == "permission" else None))
