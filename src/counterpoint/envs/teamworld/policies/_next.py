"""What to call next, kind by kind: a priority for every item (−inf: leave it), the family to call, and the purpose.

Always true: these functions read what is seen and tables computed in advance. "optimal" play follows the exact tables of
`optimum/`; "plain" play is the rule of thumb beside it. A question's play is optimal in both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from counterpoint.envs.teamworld import action as do
from counterpoint.envs.teamworld.config import Config
from counterpoint.envs.teamworld.observation import Observation
from counterpoint.envs.teamworld.optimum import chain, draft, pool, vote

Want = tuple[np.ndarray, np.ndarray, np.ndarray]
"""(priority, family, purpose), each (E, n)."""


@dataclass(frozen=True)
class Wishes:
    """What the wishes rest on."""

    extra: float
    """Points per call that time costs."""
    brief: tuple[int, ...]
    """By kind."""
    play: str
    """"optimal" or "plain"."""
    cap: int
    """Calls per item, for everybody alike; 0 without a cap."""


def _by_cap(calls: np.ndarray, ready: np.ndarray, cap: int) -> np.ndarray:
    return np.where(ready & (calls < cap), 100.0 - calls, -np.inf)


def next_vote(obs: Observation, wishes: Wishes) -> Want:
    """Call while the next vote is worth its price; first what will take longest."""
    seen = obs.of("vote")
    at = slice(seen.first_item, seen.first_item + obs.config.vote_items)
    if wishes.cap:
        t = vote.tables(obs.config, wishes.brief[0], wishes.extra)
        family = np.full(seen.answer.shape, int(np.argmax([t.go_A[0], t.go_B[0]])))
        return _by_cap(obs.calls[:, at], obs.ready[:, at], wishes.cap), family, np.zeros_like(family)
    wanted, whom = _vote_wants(obs.config, wishes.brief[0], wishes.extra)
    state = vote_state(obs)
    family = whom.take(state)
    return np.where(obs.ready[:, at], wanted.take(state), -np.inf), family, np.zeros_like(family)


@lru_cache(maxsize=64)
def _vote_wants(config: Config, brief: int, extra: float) -> tuple[np.ndarray, np.ndarray]:
    """(priority, family) in every state of a question."""
    t = vote.tables(config, brief, extra)
    return np.where(t.action > 0, 1.0 + t.calls, -np.inf), np.where(t.action == 0, -1, t.action - 1)


def vote_state(obs: Observation) -> np.ndarray:
    """(E, n) the state of every question, as the tables count them; worked out once for an observation."""
    seen = obs.of("vote")
    if not hasattr(seen, "state"):
        tally, side = seen.tally, obs.config.max_votes + 1
        seen.state = tally[:, :, 0, 1].astype(np.int64)
        for column in (tally[:, :, 0, 0], tally[:, :, 1, 1], tally[:, :, 1, 0]):
            seen.state *= side
            seen.state += column
    return seen.state


def next_pool(obs: Observation, wishes: Wishes) -> Want:
    """Search on while a call is worth its price. Plain: while the last round found more than its calls cost."""
    seen, c = obs.of("pool"), obs.config
    at = slice(seen.first_item, seen.first_item + c.pool_items)
    ready, calls = obs.ready[:, at], obs.calls[:, at]
    family = np.full(calls.shape, _pool_family(obs, wishes))
    zeros = np.zeros_like(family)
    if wishes.cap:
        return np.where(ready & (calls < wishes.cap), 0.5, -np.inf), family, zeros
    price = c.price[int(family.flat[0])] + wishes.extra + c.brief_price * wishes.brief[1]
    if wishes.play == "optimal":
        table = pool.rule(c, wishes.brief[1], wishes.extra, int(family.flat[0]))
        go = table[np.minimum(calls, c.pool_calls - 1), np.minimum(seen.count, c.pool_slots)]
    else:
        team = np.maximum(1, obs.alive.sum(axis=1) - 1)[:, None]
        go = (calls < 3 * team) | (c.pool_weight * seen.news > price * team)
    return np.where(ready & go, 0.5, -np.inf), family, zeros


def _pool_family(obs: Observation, wishes: Wishes) -> int:
    c = obs.config
    g = c.brief_factor[wishes.brief[1]]
    worth = [
        pool.fixed_value(c, p * g, c.price[f] + c.brief_price * wishes.brief[1] + wishes.extra, c.pool_calls)
        for f, p in enumerate(c.pool_find)
    ]
    return int(np.argmax(worth))


def next_draft(obs: Observation, wishes: Wishes) -> Want:
    """Revise until patience runs out; never after a seen loss. Plain: a patience of four."""
    seen, c = obs.of("draft"), obs.config
    at = slice(seen.first_item, seen.first_item + c.draft_items)
    ready, calls = obs.ready[:, at], obs.calls[:, at]
    rule = draft.rule(c, wishes.brief[2], wishes.extra, c.orchestrator_works)
    family = np.full(calls.shape, rule.family)
    if wishes.cap:
        return _by_cap(calls, ready, wishes.cap), family, np.zeros_like(family)
    if wishes.play == "optimal":
        go = rule.go[(seen.shown > 0).astype(np.int64), np.minimum(calls, c.draft_calls), np.minimum(seen.zeros, c.draft_calls)]
    else:
        go = (seen.zeros < 4) & (rule.value > 0)
    return np.where(ready & go & ~seen.lost, 5.0, -np.inf), family, np.zeros_like(family)


def next_chain(obs: Observation, wishes: Wishes) -> Want:
    """Attempt, verify, redo or go on. Plain: one check per attempt, redo what fails it."""
    seen, c = obs.of("chain"), obs.config
    at = slice(seen.first_item, seen.first_item + c.chain_items)
    ready = obs.ready[:, at]
    table = chain.decide(c, c.orchestrator_works, wishes.brief[3], wishes.extra)
    family = np.full(seen.hop.shape, table.family)
    last = seen.hop == c.chain_hops - 1
    if wishes.cap or wishes.play != "optimal":
        checks = min(wishes.cap - 1 if wishes.cap else 1, c.hop_checks)
        redo = (seen.fails > 0) & (seen.attempts < c.hop_attempts)
        verify = (seen.passes + seen.fails < checks) & (seen.fails == 0)
        act = np.where(~seen.has | redo, chain.ANSWER, np.where(verify, chain.VERIFY, np.where(last, chain.STOP, chain.NEXT)))
    else:
        index = np.zeros(seen.hop.shape, np.int64)
        for h in range(c.chain_hops - 1):
            code = seen.history[:, :, h]
            index = np.where(
                code >= 0, table.after[index, table.local[np.maximum(code, 0) // 16, np.maximum(code, 0) % 16]], index
            )
        local = table.local[seen.passes, seen.fails]
        act = np.where(seen.has, table.action[index, np.maximum(seen.attempts - 1, 0), local], table.first)
    purpose = np.select([act == chain.VERIFY, act == chain.NEXT], [do.VERIFY, do.NEXT], do.ANSWER)
    return np.where(ready & (act != chain.STOP), 10.0, -np.inf), family, purpose


def next_node(obs: Observation, wishes: Wishes) -> Want:
    """Build what is ready, the longest unbuilt paths first."""
    seen, c = obs.of("node"), obs.config
    at = slice(seen.first_item, seen.first_item + c.counts[4])
    g = c.brief_factor[wishes.brief[4]]
    family = int(np.argmax([c.node_weight * c.node_right[f] * g - c.price[f] for f in (0, 1)]))
    wanted = (seen.needs & ~seen.done[:, :, None]).sum(axis=1)
    shape = seen.done.shape
    return np.where(obs.ready[:, at], 1.0 + wanted, -np.inf), np.full(shape, family), np.zeros(shape, np.int64)


NEXT: dict[str, Callable[[Observation, Wishes], Want]] = {
    "vote": next_vote,
    "pool": next_pool,
    "draft": next_draft,
    "chain": next_chain,
    "node": next_node,
}
