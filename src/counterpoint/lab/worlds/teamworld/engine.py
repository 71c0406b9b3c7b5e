"""The engine: many episodes of one configuration, one round at a time.

Always true: a round is validated whole before anything changes; the episodes of a batch never touch each other, so a batch
gives what its episodes give one by one; logging changes no number. The order inside a round is that of the rules page: stop,
spawn, delegate, communicate, calls, aggregate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.worlds.teamworld import attacks, defences
from counterpoint.lab.worlds.teamworld.action import BAYES, Action, Calls, Spawns
from counterpoint.lab.worlds.teamworld.acts import call_prices
from counterpoint.lab.worlds.teamworld.calls import answered, judged, kind_of, passed, replace_answers
from counterpoint.lab.worlds.teamworld.config import DIFFICULTIES, KINDS, RULES, Config
from counterpoint.lab.worlds.teamworld.edits import Edit, check_edit, edited_action, edited_calls, find
from counterpoint.lab.worlds.teamworld.event_log import EventLog
from counterpoint.lab.worlds.teamworld.events import Writer
from counterpoint.lab.worlds.teamworld.observation import Observation, check_action, limits, observation
from counterpoint.lab.worlds.teamworld.questions import VoteState
from counterpoint.lab.worlds.teamworld.running import Running, Table, despawn, ranks, spawn
from counterpoint.lab.worlds.teamworld.state import COSTS, BatchState, blank, copied, picked
from counterpoint.lab.worlds.teamworld.tables import tables_of
from counterpoint.lab.worlds.teamworld.work import add_at
from counterpoint.trace.keyed import purpose
from counterpoint.trace.replay import Delete, Insert

# -- The way back (O4): what arrives passes the topology, and enters the draft by the rule ----------------------------
# Always true: a return is written to the log whether or not it is read; what is not delivered, rejected, or dropped by a lossy
# summary enters no draft. Nothing here looks at a worker's truth except to score it.

_SUMMARY = purpose("lossy summary")
_LOSSY = RULES.index("lossy")


def deliver(batch: Running, arrived: dict[str, Table], action: Action, goes: np.ndarray, edits: list[Edit]) -> None:
    """The way back, then aggregation by each episode's rule."""
    s, c = batch.state, batch.config
    rule = np.full(s.episodes, BAYES) if action.rule is None else np.asarray(action.rule, np.int64)
    heard = np.zeros(s.episodes, np.bool_) if action.broadcast is None else np.asarray(action.broadcast, np.bool_) & goes
    if heard.any():
        s.costs[heard, _MESSAGES] += c.broadcast_price * (s.alive[heard].sum(axis=1) - 1)
    tables: list[tuple[str, Table]] = []
    read = np.zeros(s.episodes, np.bool_)
    for edit in find(edits, "insert"):
        read[edit.ep] |= goes[edit.ep]
    for name, table in arrived.items():
        sent, delivered, rejected = passed(batch, name, table, edits)
        if c.topology == "planner_executor_critic" and name == "vote":
            verdicts = np.bincount(table["ep"][sent], minlength=s.episodes)
            s.costs[:, _TOPOLOGY] += c.critic_price * verdicts
            s.counts[:, 2] += verdicts
            votes: Any = s.kinds.vote
            np.add.at(votes.rejected, tuple(table[k][rejected] for k in ("ep", "item", "family")), 1)
        accepts = _verdicts(batch, table, sent) if c.judges and name == "vote" else None
        if batch.writer:
            batch.writer.returned(name, table, sent, delivered, rejected, accepts)
        _obeyed(batch, table, delivered, edits)
        if not sent.all():
            s.counts[:, 2] -= np.bincount(table["ep"][~sent], minlength=s.episodes)
        read[table["ep"][delivered]] = True
        counted = delivered & ~rejected
        lossy = rule[table["ep"]] == _LOSSY
        if lossy.any():
            counted &= ~(lossy & (batch.way_back(name, table)(_SUMMARY) < c.summary_loss))
        tables.append((name, table if counted.all() else {k: v[counted] for k, v in table.items()}))
    frozen = {e.ep for e in find(edits, "aggregate") if isinstance(e.do, Delete)}
    for name, table in tables:
        _absorb(batch, name, table, rule, heard, frozen)
    _inserted(batch, edits, rule, goes)
    s.counts[:, 2] += read
    if batch.writer:
        quality = batch.quality()
        batch.writer.aggregated(np.flatnonzero(goes), action, rule, quality - s.costs.sum(axis=1), quality)


def _verdicts(batch: Running, table: Table, sent: np.ndarray) -> np.ndarray:
    """(calls, judges) who accepts which answer; the judges are paid."""
    s, c, accepts = batch.state, batch.config, judged(batch, table, sent)
    count = c.judges * np.bincount(table["ep"][sent], minlength=s.episodes)
    s.costs[:, _TOPOLOGY] += c.judge_price * count
    s.further += count
    s.counts[:, 2] += count
    return accepts


def _obeyed(batch: Running, table: Table, delivered: np.ndarray, edits: list[Edit]) -> None:
    """Spawns that injected returns asked for, and got, as far as there is room (AV6)."""
    heard = np.flatnonzero(table["asks"] & delivered)
    if not len(heard):
        return
    s, ep = batch.state, table["ep"][heard]
    s.asks += np.bincount(ep, minlength=s.episodes)
    heard = heard[ranks(ep) < (batch.config.max_agents - s.spawned)[ep]]
    because = table["back"][heard] if batch.writer else None
    spawn(batch, Spawns.of(table["ep"][heard], 1, 0), edits, injected=True, because=because)


def _absorb(batch: Running, name: str, t: Table, rule: np.ndarray, heard: np.ndarray, frozen: set[int]) -> None:
    """Returns of one kind enter the draft; the draft answers of `frozen` episodes stay as they are."""
    s = batch.state
    kind: Any = getattr(s.kinds, name)
    s.counts[:, 1] += np.bincount(t["ep"], minlength=s.episodes)
    match name:
        case "vote":
            if batch.config.acts != "report":
                kind.hold(t)
            kind.absorb(t["ep"], t["item"], t["family"], t["claim"], t["confidence"])
            thaw = ~np.isin(t["ep"], list(frozen)) if frozen else slice(None)
            ep, item = t["ep"][thaw], t["item"][thaw]
            kind.answer[ep, item] = answers(batch.config, kind, ep, item, rule[ep])
            kind.public[t["ep"], t["item"]] = heard[t["ep"]]
        case "pool":
            kind.absorb(t["ep"], t["item"], t["finds"])
        case "draft":
            kind.absorb(t["ep"], t["item"], t["claim"])
        case "chain":
            kind.absorb(t["ep"], t["item"], t["claim"], t["right"], t["purpose"])
        case "node":
            kind.absorb(t["ep"], t["item"], t["agent"], t["right"])


def _inserted(batch: Running, edits: list[Edit], rule: np.ndarray, goes: np.ndarray) -> None:
    """Messages that a fork puts in: votes from outside the team."""
    for edit in find(edits, "insert"):
        if not isinstance(edit.do, Insert) or not goes[edit.ep]:
            continue
        votes, item = batch.state.kinds.vote, edit.do.about["item"]
        ep, items = np.array([edit.ep]), np.array([item])
        family = np.array(["AB".index(edit.do.about.get("family", "A"))])
        votes.absorb(ep, items, family, np.array([int(edit.do.value)]), np.array([0.8]))  # type: ignore[union-attr]
        votes.answer[ep, items] = answers(batch.config, votes, ep, items, rule[ep])  # type: ignore[union-attr, arg-type]
        batch.state.counts[edit.ep, 2] += 1
        if batch.writer:
            batch.writer.inserted(edit.ep, item, int(edit.do.value))


# -- how votes become an answer ----------------------------------------------------------------------------------------


_EDGE = 1e-12


@lru_cache(maxsize=64)
def _likelihood(config: Config, naive: bool) -> np.ndarray:
    """(family, difficulty, right votes, wrong votes): the chance of those votes of one family, given the difficulty."""
    size = config.max_votes + 1
    right, wrong = np.arange(size)[:, None], np.arange(size)[None]
    out = np.empty((2, DIFFICULTIES, size, size))
    for f in (0, 1):
        for z in range(DIFFICULTIES):
            s, r, m = (
                np.clip(p, _EDGE, 1 - _EDGE) for p in (config.skill[f][z], config.right_if_misled, config.misconception[f][z])
            )
            if naive:
                s, m = m * r + (1 - m) * s, 0.0
            out[f, z] = m * r**right * (1 - r) ** wrong + (1 - m) * s**right * (1 - s) ** wrong
    return out


def posterior(config: Config, tally: np.ndarray, *, naive: bool = False) -> np.ndarray:
    """P(yes) for tallies (..., 2 families, 2 answers), at knowledge 1.

    bayes   argmax_y Σ_z share_z Π_f [ m·r^c (1−r)^w + (1−m)·s^c (1−s)^w ],  c and w the votes of f for and against y,
            s = skill[f][z], r = right_if_misled, m = misconception[f][z], all seen through the knowledge g
    naive   the same with each vote on its own: s' = m·r + (1−m)·s per vote, no shared misconception
    """
    table = _likelihood(config, naive)
    no, yes = np.minimum(tally[..., 0], config.max_votes), np.minimum(tally[..., 1], config.max_votes)
    if_yes = if_no = 0.0
    for z, share in enumerate(config.difficulty_shares):
        if_yes = if_yes + share * table[0, z, yes[..., 0], no[..., 0]] * table[1, z, yes[..., 1], no[..., 1]]
        if_no = if_no + share * table[0, z, no[..., 0], yes[..., 0]] * table[1, z, no[..., 1], yes[..., 1]]
    return np.asarray(if_yes / (if_yes + if_no))


_SMALL = 1 << 17


def _leans(config: Config, naive: bool) -> np.ndarray:
    """P(yes) − ½ for every tally, flat; for limits on votes that leave the table small."""
    known = tables_of(config).leans
    if naive not in known:
        every = np.indices((config.max_votes + 1,) * 4).reshape(4, -1).T.reshape(-1, 2, 2)
        known[naive] = posterior(config, every, naive=naive) - 0.5
    return known[naive]


def _lean(config: Config, tally: np.ndarray, *, naive: bool) -> np.ndarray:
    """P(yes) − ½ for tallies (rows, 2 families, 2 answers)."""
    side = config.max_votes + 1
    if side**4 > _SMALL:
        return posterior(config, tally, naive=naive) - 0.5
    t = np.minimum(tally, config.max_votes).reshape(-1, 4)
    return _leans(config, naive)[((t[:, 0].astype(np.int64) * side + t[:, 1]) * side + t[:, 2]) * side + t[:, 3]]


def answers(config: Config, votes: VoteState, ep: np.ndarray, item: np.ndarray, rule: np.ndarray) -> np.ndarray:
    """The draft answer of these questions under the rule of each."""
    old, tally = votes.answer[ep, item], votes.tally[ep, item]
    lean = np.zeros(len(ep))
    present = np.bincount(rule, minlength=len(RULES)).nonzero()[0]
    for number in present.tolist():
        rows = (rule == number).nonzero()[0] if len(present) > 1 else slice(None)
        match RULES[number]:
            case "bayes" | "naive" as name:
                lean[rows] = _lean(config, tally[rows], naive=name == "naive")
            case "weighted":
                sums = votes.confidence[ep[rows], item[rows]]
                lean[rows] = sums[:, 1] - sums[:, 0]
            case "first":
                first = votes.first[ep[rows], item[rows]]
                lean[rows] = np.where(first < 0, 0, 2.0 * first - 1)
            case _:
                counts = tally[rows].sum(axis=1, dtype=np.int64)
                lean[rows] = counts[:, 1] - counts[:, 0]
    lean[np.abs(lean) < _EDGE] = 0
    return np.where(lean == 0, old, lean > 0).astype(np.int8)


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
        return observation(self.config, self.state, self, self._limits, self._kind)

    # -- acting

    def step(
        self, action: Action, answers: Callable[[Calls, np.ndarray], np.ndarray] | None = None, *, trusted: bool = False
    ) -> np.ndarray:
        """One round; (E,) rewards that sum to the return. `answers(calls, claims)` may replace what workers say. What is illegal
        is refused and changes nothing; a `trusted` policy, which acts by what it is shown as legal, is not checked."""
        if trusted:
            return self._step(action, answers, is_checked=True)
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

    def _step(
        self, action: Action, answers: Callable[[Calls, np.ndarray], np.ndarray] | None, *, is_checked: bool = False
    ) -> np.ndarray:
        edits = self._edits.get(self.round, [])
        if edits:
            action = edited_action(self.config, action, edits)
        if not is_checked:
            check_action(self.config, self.state, action, self._limits)
        s = self.state
        ran = ~s.done
        self._others(action, ran)
        before = self.value() if self.config.opponent_rounds else None
        costs = s.costs.sum(axis=1)
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
        if len(calls) and not self._is_sorted(calls):
            calls = calls.where(np.lexsort((self._kind[calls.item], calls.ep)))
        if log:
            log.spawn_decision(np.flatnonzero(goes), action)
        spawn(self, action.spawns, edits)
        despawn(self, action, edits)
        if log:
            log.call_decisions(np.flatnonzero(goes), action, action.calls)
        self._work(calls, action, goes, edits, answers)
        s.counts[ran, 2] += 1 + 4 * goes[ran]
        self._advance(goes)
        if before is not None and log:
            log.settled(self.value() - before)
        return self._finish(ran, stops, costs)

    def _is_sorted(self, calls: Calls) -> bool:
        """Whether the calls stand episode by episode already, in a world with one kind of items."""
        return len(self.state.kinds.present()) == 1 and bool((calls.ep[1:] >= calls.ep[:-1]).all())

    def _others(self, action: Action, ran: np.ndarray) -> None:
        """What those beside the team do before its round: the proposer in the first, the second side in every one."""
        s, c = self.state, self.config
        if c.proposer and self.round == 0 and ran.any():
            votes, ep = s.kinds.vote, np.flatnonzero(ran)
            assert votes is not None
            if action.proposal is not None:
                votes.propose(c, s.seed, ep, action.proposal[ep])
                s.open[:, votes.first_item : votes.first_item + c.vote_items] &= votes.asked
            s.counts[ep, 2] += 1
            if self.writer:
                self.writer.proposed(ep, action.proposal, votes.soundness(c, s.seed))
        if c.opponent_rounds:
            s.attack[...] = 0 if action.attack is None else np.where(ran, action.attack, 0)
            s.opposed += s.attack > 0
            s.counts[ran, 2] += 1
            if self.writer:
                self.writer.opposed(np.flatnonzero(ran))

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
        arrived: dict[str, Table] = {}
        place = ranks(calls.ep)
        present = s.kinds.present()
        for name, kind in present:
            rows = slice(None) if len(present) == 1 else np.flatnonzero(self._kind[calls.item] == KINDS.index(name))
            x = calls.where(rows)
            if not len(x):
                continue
            table, attack = answered(self, name, kind, x, place[rows], edits)
            if "confidence" in table:
                table["confidence"] = np.where(full[x.ep], table["confidence"], 1.0)
            if answers is not None:
                replace_answers(name, kind, x, table, answers)
            self._charge(x, attack)
            if c.gates:
                defences.charge(self, name, x.ep, table["family"])
            if "more" in table:
                s.costs[:, _CALLS] += np.bincount(x.ep, table["more_price"], s.episodes)
                s.costs[:, _MESSAGES] += c.broadcast_price * np.bincount(x.ep, table["messages"], s.episodes)
                s.further += np.bincount(x.ep, table["more"], s.episodes).astype(np.int64)
            add_at(s.calls, (x.ep, x.item), np.int32(1))
            if self.writer:
                self.writer.called(name, x, table, attack)
            arrived[name] = table
        if len(calls):
            add_at(s.taken, (calls.ep, calls.agent), np.int32(1))
        deliver(self, arrived, action, goes, edits)

    def _charge(self, x: Calls, attack: attacks.Attacked | None) -> None:
        """What the calls cost, and the harm done."""
        s, c = self.state, self.config
        count = lambda w=None: np.bincount(x.ep, w, s.episodes)  # noqa: E731
        own, calls = x.agent == 0, count()
        price = call_prices(c, x, tables_of(c).price[s.family[x.ep, x.agent]])
        if c.chain_items:
            check = (x.purpose == 1) & (self._kind[x.item] == KINDS.index("chain"))
            price = np.where(check, c.check_price, price)
        s.costs[:, _CALLS] += count(price)
        brief = np.where(own, 0, x.brief) if attack is None else np.where(own, 0, x.brief) + attack.padding
        s.costs[:, _MESSAGES] += c.brief_price * count(brief)
        s.counts[:, 0] += calls
        s.counts[:, 2] += (count(4.0 - 2 * own)).astype(np.int64)
        if c.topology == "harness":
            s.costs[:, _TOPOLOGY] += c.gateway_price * calls
        if attack is not None:
            s.violations += count(attack.violation).astype(np.int64)
            s.costs[:, _HARM] += c.harm_price * count(attack.violation)
            s.counts[:, 2] += count(attack.violation | attack.blocked).astype(np.int64)

    # -- time travel

    def snapshot(self) -> Snapshot:
        """The state now, detached from what comes after."""
        edits = {turn: list(edits_there) for turn, edits_there in self._edits.items()}
        return Snapshot(self.config, copied(self.state), self.writer.log.copied() if self.writer else None, edits)

    def restore(self, snapshot: Snapshot, episodes: np.ndarray | None = None) -> None:
        """Go back to a snapshot; `episodes` takes some of them, each as often as wanted (without a log)."""
        self.state = copied(snapshot.state) if episodes is None else picked(snapshot.state, episodes)
        # edits name episodes by place, so they only travel with all of them
        self._edits = {turn: list(edits_there) for turn, edits_there in snapshot.edits.items()} if episodes is None else {}
        if self.writer and episodes is None and snapshot.log is not None:
            self.writer = Writer(self.config, self.state, snapshot.log.copied())
        elif self.writer:
            self.writer = None

    def branch(self, edits: Sequence[Edit]) -> None:
        """Interventions for what comes next."""
        for edit in edits:
            check_edit(self.config, edit)
            self._edits.setdefault(edit.round, []).append(edit)
