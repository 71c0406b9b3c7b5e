"""The engine: many episodes of one configuration, one round at a time.

Always true: a round is validated whole before anything changes; the episodes of a batch never touch each other, so a batch
gives what its episodes give one by one; logging changes no number. The order inside a round is that of the rules page: stop,
spawn, delegate, communicate, calls, aggregate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from counterpoint.envs.teamworld import attacks
from counterpoint.envs.teamworld.action import Action, Calls
from counterpoint.envs.teamworld.calls import answered, kind_of, spoken
from counterpoint.envs.teamworld.config import KINDS, Config
from counterpoint.envs.teamworld.delivery import arrivals, deliver, put_off
from counterpoint.envs.teamworld.edits import Edit, check_edit, edited_action, edited_calls
from counterpoint.envs.teamworld.events import EventLog, Writer
from counterpoint.envs.teamworld.kinds import add_at
from counterpoint.envs.teamworld.legal import check_action, limits
from counterpoint.envs.teamworld.observation import Observation, observation
from counterpoint.envs.teamworld.population import despawn, spawn
from counterpoint.envs.teamworld.running import Running, ranks
from counterpoint.envs.teamworld.state import COSTS, BatchState, blank, copied, picked
from counterpoint.errors import InputError

_CALLS, _MESSAGES, _, _TIME, _HARM, _TOPOLOGY = range(len(COSTS))


@dataclass(frozen=True)
class Snapshot:
    """The whole state of a batch, detached."""

    config: Config
    state: BatchState
    log: EventLog | None
    edits: dict[int, list[Edit]] = field(default_factory=dict)


def _checked(seeds: Sequence[int] | np.ndarray) -> np.ndarray:
    """Seeds as a flat array of whole numbers, 0 and up."""
    array = np.asarray(seeds)
    if array.size == 0:
        return np.zeros(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu" or (array.dtype.kind == "i" and array.min() < 0):
        raise InputError("seeds are not a list of whole numbers from 0 up", fix="such as range(100)")
    return array.astype(np.int64)


class Batch(Running):
    """E episodes of one configuration, stepped together."""

    def __init__(
        self, config: Config, seeds: Sequence[int] | np.ndarray, *, log: bool = False, edits: Sequence[Edit] = ()
    ) -> None:
        state = blank(config, _checked(seeds))
        attacks.plant(config, state)
        rows = EventLog(state.episodes, config.max_agents + 1, config.items)
        super().__init__(config, state, Writer(config, state, rows) if log else None)
        self._limits, self._kind = limits(config), kind_of(config)
        for edit in edits:
            check_edit(config, edit)
        self._edits: dict[int, list[Edit]] = {}
        for edit in edits:
            self._edits.setdefault(edit.round, []).append(edit)

    # -- looking

    def observe(self) -> Observation:
        """What the orchestrators see."""
        return observation(self.config, self.state, self)

    # -- acting

    def step(self, action: Action, answers: Callable[[Calls, np.ndarray], np.ndarray] | None = None) -> np.ndarray:
        """One round; (E,) rewards that sum to the return. `answers(calls, claims)` may replace what workers say."""
        if answers is not None:
            return self._spoken_step(action, answers)
        return self._step(action, None)

    def _spoken_step(self, action: Action, answers: Callable[[Calls, np.ndarray], np.ndarray]) -> np.ndarray:
        """A round whose answers come from outside: one that is refused changes nothing."""
        saved = self.snapshot()
        try:
            return self._step(action, answers)
        except Exception:
            self.restore(saved)
            raise

    def _step(self, action: Action, answers: Callable[[Calls, np.ndarray], np.ndarray] | None) -> np.ndarray:
        edits = self._edits.get(self.round, [])
        if edits:
            action = edited_action(self.config, action, edits)
        check_action(self.config, self.state, action, self._limits)
        s = self.state
        costs = s.costs.sum(axis=1)
        ran = ~s.done
        stops = ran & np.asarray(action.stop, np.bool_)
        goes = ran & ~stops
        log = self.writer
        if log:
            log.stop_decision(np.flatnonzero(ran), action)
        if action.close is not None:
            s.open[goes] &= ~action.close[goes]
        calls = action.calls
        if edits:
            calls = edited_calls(calls, edits)
        calls = calls.where(np.lexsort((self._kind[calls.item], calls.ep))) if len(calls) else calls
        if log:
            log.spawn_decision(np.flatnonzero(goes), action)
        spawn(self, action.spawns, edits)
        despawn(self, action, edits)
        if log:
            log.call_decisions(np.flatnonzero(goes), action, action.calls)
        self._work(calls, action, goes, edits, answers)
        s.counts[ran, 2] += 1 + 4 * goes[ran]
        self._advance(goes)
        return self._finish(ran, stops, costs)

    def _finish(self, ran: np.ndarray, stops: np.ndarray, costs: np.ndarray) -> np.ndarray:
        """End what has stopped or run out of rounds; the round's rewards."""
        s = self.state
        over = ran & ~stops & (s.round >= self.config.max_rounds)
        s.truncated |= over
        ends = stops | over
        s.done |= ends
        reward = costs - s.costs.sum(axis=1)
        if ends.any():
            reward = reward + np.where(ends, self.quality(), 0.0)
        return np.where(ran, reward, 0.0)

    def _advance(self, goes: np.ndarray) -> None:
        s = self.state
        s.round[goes] += 1
        s.clock[goes] += 1
        s.costs[goes, _TIME] += self.config.round_price

    # -- O2, O3, O4

    def _work(self, calls: Calls, action: Action, goes: np.ndarray, edits: list[Edit], answers: Any) -> None:
        """The calls are answered, what arrives is aggregated."""
        s, c = self.state, self.config
        full = np.zeros(s.episodes, np.bool_) if action.full_return is None else np.asarray(action.full_return, np.bool_)
        arrived = arrivals(self, goes)
        place, longest = ranks(calls.ep), np.zeros(s.episodes, np.int64)
        for name, kind in s.kinds.present():
            rows = np.flatnonzero(self._kind[calls.item] == KINDS.index(name))
            x = calls.where(rows)
            if not len(x):
                continue
            table, attack = answered(self, name, kind, x, place[rows], edits)
            if "confidence" in table:
                table["confidence"] = np.where(full[x.ep], table["confidence"], 1.0)
            if answers is not None:
                spoken(name, kind, x, table, answers)
            self._charge(x, full, attack)
            add_at(s.calls, (x.ep, x.item), np.int32(1))
            if self.writer:
                self.writer.called(name, x, table, attack)
            now = table["delay"] == 0
            if not now.all():
                now = put_off(self, name, table, longest)
            arrived.setdefault(name, []).append({k: v[now] for k, v in table.items()} if not now.all() else table)
        if len(calls):
            add_at(s.taken, (calls.ep, calls.agent), np.int32(1))
        s.clock += longest
        s.costs[:, _TIME] += c.round_price * longest
        deliver(self, arrived, action, goes, edits)

    def _charge(self, x: Calls, full: np.ndarray, attack: attacks.Attacked | None) -> None:
        """What the calls cost, and the harm done."""
        s, c = self.state, self.config
        count = lambda w=None: np.bincount(x.ep, w, s.episodes)  # noqa: E731
        own = x.agent == 0
        price = np.array(c.price)[s.family[x.ep, x.agent]]
        if c.chain_items:
            check = (x.purpose == 1) & (self._kind[x.item] == KINDS.index("chain"))
            price = np.where(check, c.check_price, price)
        s.costs[:, _CALLS] += count(price)
        brief = np.where(own, 0, x.brief) if attack is None else np.where(own, 0, x.brief) + attack.padding
        s.costs[:, _MESSAGES] += c.brief_price * count(brief) + c.return_price * count() * full
        s.counts[:, 0] += count().astype(np.int64)
        s.counts[:, 2] += (count(4.0 - 2 * own)).astype(np.int64)
        if c.topology == "harness":
            s.costs[:, _TOPOLOGY] += c.gateway_price * count()
        if attack is not None:
            s.violations += count(attack.violation).astype(np.int64)
            s.costs[:, _HARM] += c.harm_price * count(attack.violation)
            s.counts[:, 2] += count(attack.violation | attack.blocked).astype(np.int64)

    # -- time travel

    def snapshot(self) -> Snapshot:
        """The state now, detached from what comes after."""
        edits = {turn: list(found) for turn, found in self._edits.items()}
        return Snapshot(self.config, copied(self.state), self.writer.log.copied() if self.writer else None, edits)

    def restore(self, snapshot: Snapshot, episodes: np.ndarray | None = None) -> None:
        """Go back to a snapshot; `episodes` takes some of them, each as often as wanted (without a log)."""
        self.state = copied(snapshot.state) if episodes is None else picked(snapshot.state, episodes)
        # edits name episodes by place, so they only travel with all of them
        self._edits = {turn: list(found) for turn, found in snapshot.edits.items()} if episodes is None else {}
        if self.writer and episodes is None and snapshot.log is not None:
            self.writer = Writer(self.config, self.state, snapshot.log.copied())
        elif self.writer:
            self.writer = None

    def branch(self, edits: Sequence[Edit]) -> None:
        """Interventions for what comes next."""
        for edit in edits:
            check_edit(self.config, edit)
            self._edits.setdefault(edit.round, []).append(edit)
