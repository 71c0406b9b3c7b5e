"""What a worker may do with a question, call by call: deliberate (refine, persist, concede) or communicate (six ways).

Always true: an act changes what is said, what it costs and who is read, never the truth; with acts, a worker's newest counted
answer takes the place of its older one. Draws are the call's own, so no other call can shift them.

    refine      looks; from its second call on a question on, with less of a chance to be wrong (`refine_gain`)
    persist     says again what it said last; no look        concede    says what the draft says; no look
    solo        looks                                        broadcast  looks, and its answer is on the board for all
    query       looks, asks one who has answered, and where they differ looks once more (`refine_gain`)
    aggregate   looks, and says what most of the board and it say (its own where they are equally many)
    verify      looks, and has it checked (`check_false_accept`, `check_false_reject`); says the opposite where that fails
    debate      looks; where one who has answered differs, both look once more, and most of the three looks is said, to all

Sources of the names: Learning to Deliberate, arXiv 2509.03817; Agent Q-Mix, arXiv 2604.00344.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoint.lab.worlds.teamworld.action import Calls
from counterpoint.lab.worlds.teamworld.config import ACTS, Config
from counterpoint.lab.worlds.teamworld.questions import VoteState
from counterpoint.lab.worlds.teamworld.state import BatchState
from counterpoint.lab.worlds.teamworld.work import Work
from counterpoint.trace.keyed import purpose

_SECOND, _OTHER, _CHECK = (purpose(f"act {n}") for n in ("second", "other", "check"))
REFINE, PERSIST, CONCEDE = range(3)
SOLO, BROADCAST, QUERY, AGGREGATE, VERIFY, DEBATE = range(6)


@dataclass(frozen=True)
class Peers:
    """Who else has answered the questions of some calls. Axes: calls, agent slots."""

    answer: np.ndarray
    """What each agent's counted answer is, -1 without one; -1 for the worker itself."""
    board: np.ndarray
    """Whether it is on the board."""
    own: np.ndarray
    """(calls,) the worker's own counted answer, -1 without one."""

    @property
    def one(self) -> np.ndarray:
        """(calls,) the slot of one who has answered, -1 where nobody has."""
        some = self.answer >= 0
        return np.where(some.any(axis=1), some.argmax(axis=1), -1)


def peers(kind: Any, ep: np.ndarray, item: np.ndarray, agent: np.ndarray) -> Peers:
    """Of these calls on questions (their state, or what is seen of it); `item` counts within the kind."""
    answer, at = kind.held[ep, item].astype(np.int64), np.arange(len(ep))
    own = answer[at, agent]
    answer[at, agent] = -1
    return Peers(answer, kind.shared[ep, item] & (answer >= 0), own)


def possible(config: Config, known: Peers, standing: np.ndarray, agent: np.ndarray) -> np.ndarray:
    """(calls, acts) what each worker can choose; `standing`: whether the question has a counted answer."""
    out = np.ones((len(agent), len(ACTS[config.acts])), np.bool_)
    if config.acts == "deliberate":
        out[:, PERSIST], out[:, CONCEDE] = known.own >= 0, standing
    elif config.acts == "communicate":
        out[:, QUERY] = out[:, DEBATE] = known.one >= 0
        out[:, AGGREGATE] = known.board.any(axis=1)
    out[agent == 0, 1:] = False  # the orchestrator's own calls are not a worker's
    return out


def looks(config: Config, act: np.ndarray) -> np.ndarray:
    """Whether each call makes a look of its own, which is paid for and can be attacked."""
    return (act == REFINE) if config.acts == "deliberate" else np.ones(len(act), np.bool_)


def again(config: Config, act: np.ndarray, attempt: np.ndarray) -> np.ndarray | None:
    """Whether a look is a second one, which is less often wrong; None where workers only report."""
    return (act == REFINE) & (attempt > 0) if config.acts == "deliberate" else None


@dataclass(frozen=True)
class Talk:
    """What the acts of some calls come to. Axis: calls."""

    say: Callable[[np.ndarray], np.ndarray]
    """From what the look gave to what is said."""
    reads: np.ndarray
    """(calls, slots) whose answers are read."""
    shared: np.ndarray
    """Whether the answer goes on the board."""
    messages: np.ndarray
    """How many are sent or read among workers."""
    more: np.ndarray
    """Further looks and checks that were made."""
    price: np.ndarray
    """Points that they cost."""


def talked(config: Config, s: BatchState, kind: VoteState, w: Work, act: np.ndarray, look: np.ndarray) -> Talk:
    """The acts of these calls, whose own look gave `look`."""
    known = peers(kind, w.ep, w.item, w.agent)
    if config.acts == "deliberate":
        return _deliberated(kind, w, act, known)
    at, one = np.arange(len(act)), known.one
    other = known.answer[at, one]  # -1 as a place is the last slot; it is only used where there is one
    differ = (one >= 0) & (other != look) & np.isin(act, (QUERY, DEBATE))
    price = np.array(config.price)
    theirs = s.family[w.ep, np.maximum(one, 0)].astype(np.int64)
    gain = np.ones(len(act), np.bool_)
    second, third = kind.look(w, _SECOND, gain=gain), kind.look(w, _OTHER, gain=gain, family=theirs)
    votes = np.stack([(known.board & (known.answer == v)).sum(axis=1) for v in (0, 1)], axis=1)
    truth, u = kind.truth[w.ep, w.item], w.draw(_CHECK)

    def say(first: np.ndarray) -> np.ndarray:
        counts = votes.copy()
        counts[at, first] += 1
        fails = np.where(first == truth, u < config.check_false_reject, u >= config.check_false_accept)
        out = np.where((act == QUERY) & differ, second, first)
        out = np.where((act == DEBATE) & differ, (first + second + third >= 2).astype(np.int64), out)
        most = np.where(counts[:, 0] == counts[:, 1], first, (counts[:, 1] > counts[:, 0]).astype(np.int64))
        out = np.where(act == AGGREGATE, most, out)
        return np.where((act == VERIFY) & fails, 1 - first, out)

    reads = np.where((act == AGGREGATE)[:, None], known.board, False)
    asks = np.flatnonzero(np.isin(act, (QUERY, DEBATE)) & (one >= 0))
    reads[asks, one[asks]] = True
    messages = np.where(act == BROADCAST, s.alive[w.ep].sum(axis=1) - 2, 0) + np.where(act == AGGREGATE, reads.sum(axis=1), 0)
    messages[asks] = 2
    more = np.where(differ, np.where(act == DEBATE, 2, 1), 0) + (act == VERIFY)
    paid = np.where(differ, price[w.family] + np.where(act == DEBATE, price[theirs], 0.0), 0.0)
    return Talk(say, reads, np.isin(act, (BROADCAST, DEBATE)), messages, more, paid + config.check_price * (act == VERIFY))


def _deliberated(kind: VoteState, w: Work, act: np.ndarray, known: Peers) -> Talk:
    draft, nothing = kind.answer[w.ep, w.item].astype(np.int64), np.zeros(len(act), np.int64)

    def say(first: np.ndarray) -> np.ndarray:
        return np.where(act == PERSIST, known.own, np.where(act == CONCEDE, draft, first))

    reads = (known.answer >= 0) & (act == CONCEDE)[:, None]
    return Talk(say, reads, np.ones(len(act), np.bool_), nothing, nothing, nothing.astype(np.float64))


def call_prices(config: Config, c: Calls, price: np.ndarray) -> np.ndarray:
    """What the calls cost by family, nothing for those that look at nothing."""
    return price if config.acts != "deliberate" else np.where(looks(config, c.acts), price, 0.0)
