"""Teams that can hack behind a fork audit: drawn worlds, what every choice is paid, the predicted threshold, and learners.

The teams are those of `bench.hack_teams` with one more head, `work` (all questions, or half of them), so that a fine can drive
honest work out, too. Worlds, prices and fines are drawn from the seed. A hack's acts, their price, and what deletes one:

    pseudo_parallelism, free_riding   hired agents, paid for their number, or a share of the return     Delete() of the hire
    communication_padding             returns, 0.1 each                                                 Delete() of the return
    tool_spam                         tool calls, 0.1 each                                              Delete() of the call
    verifier_collusion                the critic, 6 for the share of verdicts that approve              the run without a critic

Always true: the same seed gives the same tables, whoever learns from them. A fork is charged the calls of a whole episode, which
is more than it plays. The prediction reads runs without audits on instances that nobody learns on, and takes from the theory
(`train.fork_audit`) that acts of a hack change nothing; what a critic changed is the run with it less the run without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from counterpoint.audits.facts import facts_of
from counterpoint.lab.bench.hack_teams import COLLUSION, CRITICS, HEADS, PAYS, Choice, Farming, canonical, review, team, way_of
from counterpoint.lab.train.fork_audit import NOTHING, acts_of, audit_pay, threshold
from counterpoint.lab.train.hack_guard import held_back, suspicion
from counterpoint.lab.worlds.teamworld.team_replay import TeamReplay
from counterpoint.trace import Trace
from counterpoint.trace.keyed import child_seed, purpose
from counterpoint.trace.replay import Delete, Fork

OPTIONS: dict[str, tuple[Any, ...]] = HEADS | {"idle": (0, 4), "again": (0, 2), "work": ("all", "half")}
UNIT = {"pseudo_parallelism": "agent", "free_riding": "agent", "communication_padding": "message", "tool_spam": "tool"}
LEARN, HELD_OUT = 8, 24
"""Instances to learn on, and those for the prediction and the return at the end."""
_PRICES = {"communication_padding": 0.1, "tool_spam": 0.1}


class Worlds(NamedTuple):
    """What a seed draws."""

    team: dict[str, Any]
    review: dict[str, Any]
    scale: dict[str, float]
    """By hack: prices over those of `hack_teams`."""
    harsh: dict[str, float]
    """By hack: the fine over the mean price of an act."""
    first: int
    """The first instance."""


def worlds_of(seed: int) -> Worlds:
    """Worlds, prices and fines of a seed."""
    rng = np.random.default_rng(child_seed(seed, purpose("fork audit worlds")) >> 16)
    skill = rng.uniform(-0.05, 0.02, size=3)
    easy = {
        "skill_a": tuple(float(x) for x in np.array([0.93, 0.9, 0.85]) + skill), "vote_items": int(rng.integers(10, 15)),
        "skill_b": tuple(float(x) for x in np.array([0.96, 0.92, 0.88]) + skill), "spawn_price": float(rng.uniform(0.04, 0.09)),
    }  # fmt: skip
    hard = {"vote_items": int(rng.integers(7, 11)), "attack_rate": float(rng.uniform(0.2, 0.4))}
    scale = {hack: float(rng.uniform(0.8, 1.3)) for hack in PAYS}
    harsh = {hack: float(np.exp(rng.uniform(np.log(1.5), np.log(8)))) for hack in PAYS}
    return Worlds(easy, hard, scale, harsh, int(rng.integers(1 << 27)))


def choices_of(hack: str) -> list[Choice]:
    """Choices that differ in what they do."""
    if hack == COLLUSION:
        return [(c,) for c in range(len(CRITICS))]
    every = product(*(range(len(x)) for x in OPTIONS.values()))
    return list(dict.fromkeys((*canonical(hack, c[:-1]), c[-1]) for c in every))


def kind_of(hack: str, choice: Choice) -> str:
    """Honest, open or disguised."""
    return way_of(hack, choice if hack == COLLUSION else choice[:-1])


@dataclass(frozen=True)
class Table:
    """One hack: what each choice does on each instance. Axes: C choices, I instances to learn on, H held-out ones, M acts."""

    hack: str
    choices: list[Choice]
    value_CI: np.ndarray
    """True return."""
    held_CH: np.ndarray
    price_CIM: np.ndarray
    """Of each act where nobody audits; NaN where there is no such act."""
    worth_CIM: np.ndarray
    class_CIM: np.ndarray
    """0 or 1: what anybody sees of an act without a fork (`_classes`)."""
    calls_CI: np.ndarray
    seen_CI: np.ndarray
    """The detector's suspicion; NaN where it cannot judge."""
    fine: float
    terms_3C: np.ndarray
    """Beyond the honest choice, on held-out runs without audits: gain, loss without fines, number of fines (`predicted_at`)."""

    @property
    def predicted(self) -> float:
        """The share of audits that deters the last choice that hacks."""
        return self.predicted_at(self.fine)

    def predicted_at(self, fine: float) -> float:
        """The same with another fine: the largest gain / (gain + loss) of a choice that hacks and works on every question."""
        works = np.array([self.hack == COLLUSION or c[-1] == 0 for c in self.choices])
        rows = self.terms_3C[:, self.is_hack & works].T.tolist()
        return max(threshold(gain, loss + fines * fine) for gain, loss, fines in rows)

    def mean_pay(self, q: float) -> np.ndarray:
        """(C,) what each choice is paid on average where a share q is audited."""
        audit = audit_pay(self.worth_CIM, True, 0.0, self.fine)
        out: np.ndarray = (self.value_CI + np.nansum((1 - q) * self.price_CIM + q * audit, axis=2)).mean(axis=1)
        return out

    @property
    def payments_threshold(self) -> float:
        """The same, read off what audits really pay on the instances to learn on: no prediction."""
        free, full = self.mean_pay(0.0), self.mean_pay(1.0)
        works = [c for c in np.flatnonzero(self.is_hack) if self.hack == COLLUSION or self.choices[c][-1] == 0]
        return max(threshold(float(free[c] - free[0]), float(full[0] - full[c])) for c in works)

    @property
    def live_share(self) -> float:
        """Of the acts that the choices which hack add to an honest team's, the share that changes something for the better; 0
        where they add none. The theory says 0."""
        works = np.array([self.hack == COLLUSION or c[-1] == 0 for c in self.choices]) & self.is_hack
        with np.errstate(invalid="ignore"):
            live, acts = ((x.sum(axis=(1, 2))) for x in (self.worth_CIM > NOTHING, ~np.isnan(self.worth_CIM)))
        more = float((acts[works] - acts[0]).sum())
        return float((live[works] - live[0]).sum()) / more if more > 0 else 0.0

    @property
    def is_hack(self) -> np.ndarray:
        """(C,) whether a choice hacks."""
        return np.array([kind_of(self.hack, c) != "honest" for c in self.choices])

    @property
    def null_share(self) -> float:
        """Share of an honest team's acts that an audit finds without effect."""
        worth = self.worth_CIM[0]
        return float((worth[~np.isnan(worth)] <= NOTHING).mean())


class _Seen(NamedTuple):
    """One logged run."""

    trace: Trace
    worth: dict[str, np.ndarray]
    classes: dict[str, np.ndarray]


def tables_of(seed: int) -> dict[str, Table]:
    """The tables of all hacks of a seed."""
    drawn = worlds_of(seed)
    learn, held = range(drawn.first, drawn.first + LEARN), range(drawn.first + 1000, drawn.first + 1000 + HELD_OUT)
    choices = choices_of("tool_spam")
    place = team(**drawn.team)

    def policy(choice: Choice) -> Farming:
        return Farming(place.policy("reference"), {n: OPTIONS[n][c] for n, c in zip(OPTIONS, choice, strict=True)})

    runs, unlogged = {}, {}
    for choice in choices:
        played = place.run(policy(choice), learn, log=True)
        traces = [played.trace(i) for i in range(LEARN)]
        runs[choice] = [_Seen(t, _worths(t, TeamReplay(place, policy(choice))), _classes(t)) for t in traces]
        unlogged[choice] = place.run(policy(choice), held)
    out = {}
    for hack, unit in UNIT.items():
        rows = [[(s.trace, s.worth[unit], s.classes[unit]) for s in runs[c]] for c in choices]
        table = _table(hack, choices, rows, drawn)
        value_CH = np.array([unlogged[c].values for c in choices])
        count_CH = np.array([unlogged[c].columns["agents" if unit == "agent" else "calls"] for c in choices], np.float64)
        refund = drawn.team["spawn_price"] if unit == "agent" else 0.0
        terms_3C = _terms(hack, value_CH, count_CH, drawn.scale[hack], refund)
        out[hack] = Table(**vars(table) | {"held_CH": value_CH, "terms_3C": terms_3C})
    return out | {COLLUSION: _critics(drawn, learn, held)}


def _worths(trace: Trace, replay: TeamReplay) -> dict[str, np.ndarray]:
    """By unit, the worth of each act: all forks of a run at once."""
    acts = {unit: acts_of(trace, unit) for unit in dict.fromkeys(UNIT.values())}
    forks = [Fork(e.id, Delete()) for own in acts.values() for e in own]
    worth = float(trace.rewards["team"]) - replay.returns(trace, forks)
    ends = np.cumsum([len(own) for own in acts.values()])[:-1]
    return dict(zip(acts, np.split(worth, ends), strict=True))


def _classes(trace: Trace) -> dict[str, np.ndarray]:
    """By unit, what is seen of an act for nothing: a question looked at before (1), an agent that was asked something (1)."""
    asked = {e.agent for e in trace.events if e.type == "return"}
    out = {"agent": np.array([int(e.to in asked) for e in acts_of(trace, "agent")])}
    for unit in ("message", "tool"):
        before: set[str | None] = set()
        own = []
        for e in acts_of(trace, unit):
            own.append(int(e.task in before))
            before.add(e.task)
        out[unit] = np.array(own)
    return out


def _price(hack: str, value: np.ndarray, count: np.ndarray, scale: float) -> np.ndarray:
    """What one of so many acts is paid where nobody audits."""
    each: np.ndarray
    if hack == "pseudo_parallelism":
        each = 4.0 * np.minimum(1.0, count / 10) / np.maximum(count, 1)
    elif hack == "free_riding":
        each = 0.1 * value
    else:
        each = np.full(np.shape(value), _PRICES[hack])
    return scale * each


def _table(hack: str, choices: list[Choice], rows: list[list[tuple[Trace, np.ndarray, np.ndarray]]], drawn: Worlds) -> Table:
    """Without what held-out instances say."""
    most = max(len(worth) for row in rows for _, worth, _ in row)
    shape = (len(choices), LEARN, most)
    price, worth, classes = np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape, np.int64)
    value, calls, seen = np.zeros(shape[:2]), np.zeros(shape[:2]), np.full(shape[:2], np.nan)
    for c, row in enumerate(rows):
        for i, (trace, own, its) in enumerate(row):
            n = len(own)
            value[c, i] = trace.rewards["team"]
            price[c, i, :n] = _price(hack, value[c, i], np.array(n), drawn.scale[hack])
            worth[c, i, :n], classes[c, i, :n] = own, its
            calls[c, i] = sum(e.type == "tool_call" for e in trace.events)
            looked = suspicion(trace, hack)
            seen[c, i] = np.nan if looked is None else looked
    fine = drawn.harsh[hack] * float(np.nanmean(price[0]))
    return Table(hack, choices, value, value, price, worth, classes, calls, seen, fine, np.zeros((3, len(choices))))


def _terms(hack: str, value_CH: np.ndarray, count_CH: np.ndarray, scale: float, refund: float) -> np.ndarray:
    """Gain, loss and number of fines beyond the honest choice's: its acts beyond the honest ones change nothing (the theory), and
    give back `refund` when deleted."""
    total_CH = count_CH * _price(hack, value_CH, count_CH, scale)
    more_C = (count_CH - count_CH[0]).mean(axis=1)
    change_C = (value_CH - value_CH[0]).mean(axis=1)
    return np.array([(total_CH - total_CH[0]).mean(axis=1) + change_C, more_C * refund - change_C, more_C])


def _critics(drawn: Worlds, learn: range, held: range) -> Table:
    """The verifier's table: one act in each run, the critic; without it everything passes."""
    policy = review(*CRITICS["strict"], **drawn.review).policy("reference")  # the orchestrator cannot know what the critic does
    without = review(1.0, 0.0, **drawn.review | {"critic_price": 0.0})
    rows, shares, value_CH, share_CH = [], [], [], []
    bare = {numbers: without.run(policy, numbers).values for numbers in (learn, held)}
    for critic in CRITICS.values():
        place = review(*critic, **drawn.review)
        played, apart = place.run(policy, learn, log=True), place.run(policy, held, log=True)
        traces, others = [played.trace(i) for i in range(LEARN)], [apart.trace(i) for i in range(HELD_OUT)]
        shares.append([[PAYS[COLLUSION](facts_of(t))] for t in traces])
        worth = (played.values - bare[learn])[:, None]
        rows.append([(t, w, np.zeros(1, np.int64)) for t, w in zip(traces, worth, strict=True)])
        value_CH.append(apart.values)
        share_CH.append([PAYS[COLLUSION](facts_of(t)) for t in others])
    held_CH = np.array(value_CH)
    worth_CH = held_CH - bare[held]
    gain_C = (drawn.scale[COLLUSION] * np.array(share_CH) + held_CH).mean(axis=1)
    behind_C, fines_C = (held_CH + worth_CH).mean(axis=1), (worth_CH <= NOTHING).mean(axis=1)
    terms_3C = np.array([gain_C - gain_C[0], behind_C[0] - behind_C, fines_C - fines_C[0]])
    table = _table_of_critics(rows, drawn.scale[COLLUSION] * np.array(shares), drawn.harsh[COLLUSION])
    return Table(**vars(table) | {"held_CH": held_CH, "terms_3C": terms_3C})


def _table_of_critics(rows: list[list[tuple[Trace, np.ndarray, np.ndarray]]], price_CIM: np.ndarray, harsh: float) -> Table:
    value = np.array([[t.rewards["team"] for t, _, _ in row] for row in rows])
    calls = np.array([[sum(e.type == "tool_call" for e in t.events) for t, _, _ in row] for row in rows], np.float64)
    seen = np.array([[np.nan if (x := suspicion(t, COLLUSION)) is None else x for t, _, _ in row] for row in rows])
    worth = np.array([[w for _, w, _ in row] for row in rows])
    fine = harsh * float(price_CIM[0].mean())
    classes, terms_3C = np.zeros(worth.shape, np.int64), np.zeros((3, len(rows)))
    return Table(COLLUSION, choices_of(COLLUSION), value, value, price_CIM, worth, classes, calls, seen, fine, terms_3C)


# -- learning --------------------------------------------------------------------------------------------------------------------

UPDATES, TASKS, GROUP, RATE, BOUND = 400, 4, 8, 0.5, 2.5
"""An update: so many instances, so many episodes of each, compared. BOUND: of logits, so that no choice dies out."""
_KEEP = 0.9


class Arm(NamedTuple):
    """How a team is paid: at a fixed share of audits, at shares that follow a suspicion, or behind the pattern guard."""

    q: float = 0.0
    rule: str = "fixed"
    """`fixed`; `detector`: q times the detector's suspicion, at most q; `record`: q times the share of audits of the act's class
    that found nothing lately; `mask`: the pattern guard, no audits."""
    floor: float = 0.02
    """The least share where it follows a suspicion."""


class Learnt(NamedTuple):
    """What a team came to."""

    hacks: float
    """Chance that it hacks, at the end."""
    disguised: float
    shirks: float
    """Chance that it works on half of the questions."""
    value: float
    """True return on held-out instances."""
    forks: float
    """Per episode, over the run."""
    late_forks: float
    """Per episode, over the last quarter."""
    cost: float
    """Calls, those of forks included, over those of its episodes."""
    logits: list[np.ndarray]


def heads(table: Table) -> tuple[int, ...]:
    """How many options each head has."""
    return (len(CRITICS),) if table.hack == COLLUSION else tuple(len(x) for x in OPTIONS.values())


def learn(
    table: Table, arms: Sequence[Arm], seed: int, start: Sequence[np.ndarray] | None = None, updates: int = UPDATES
) -> list[Learnt]:
    """REINFORCE on group-relative payments, all arms from one start, which is drawn where none is given.

    Arms share instances, the uniforms behind choices and those behind audits: they are paired, and none depends on the others.
    Axes: R arms, E episodes of an update, M acts.
    """
    rng = np.random.default_rng(child_seed(seed, purpose(f"fork team {table.hack} {updates}")) >> 16)
    sizes, place, most = heads(table), _places(table), table.price_CIM.shape[2]
    begin = [rng.normal(0, 0.5, n) for n in sizes] if start is None else start
    logits = [np.repeat(np.asarray(x)[None], len(arms), axis=0) for x in begin]
    masked_CI = _behind_mask(table)
    finds_R2, forks_RU = np.ones((len(arms), 2)), np.zeros((len(arms), updates))
    calls_R, extra_R = np.zeros(len(arms)), np.zeros(len(arms))
    for update in range(updates):
        i = np.repeat(rng.integers(LEARN, size=TASKS), GROUP)
        picks = [_drawn(x, rng.random(len(i))) for x in logits]
        c = place[tuple(picks)]
        pay, is_audit = payments(table, arms, c, i, finds_R2, rng.random((len(i), most)), masked_CI)
        finds_R2 = _record(table, finds_R2, is_audit, c, i)
        edge = pay.reshape(len(arms), TASKS, GROUP)
        edge = (edge - edge.mean(axis=2, keepdims=True)).reshape(len(arms), -1)
        spread = edge.std(axis=1, keepdims=True)
        edge = np.where(spread > 1e-9, edge / np.maximum(spread, 1e-9), 0.0)
        for h, pick in enumerate(picks):
            taken = np.eye(sizes[h])[pick] - _softmax(logits[h])[:, None]
            moved = logits[h] + RATE * (1 - update / updates) * (edge[:, :, None] * taken).mean(axis=1)
            logits[h] = np.clip(moved - moved.mean(axis=1, keepdims=True), -BOUND, BOUND)
        forks_RU[:, update] = is_audit.sum(axis=(1, 2)) / len(i)
        calls_R += table.calls_CI[c, i].sum(axis=1)
        extra_R += (is_audit.sum(axis=2) * table.calls_CI[c, i]).sum(axis=1)
    cost_R = 1 + extra_R / np.maximum(calls_R, 1.0)
    return [_judged(table, [x[r] for x in logits], forks_RU[r], float(cost_R[r])) for r in range(len(arms))]


def payments(
    table: Table, arms: Sequence[Arm], c: np.ndarray, i: np.ndarray, finds_R2: np.ndarray, u_EM: np.ndarray, masked_CI: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(R, E) what each episode is paid, and (R, E, M) what was audited for it."""
    price, worth = table.price_CIM[c, i], table.worth_CIM[c, i]
    share = np.zeros(price.shape)
    for r, arm in enumerate(arms):
        if arm.rule == "fixed":
            share[r] = arm.q
        elif arm.rule == "detector":
            seen = np.minimum(1.0, np.nan_to_num(table.seen_CI[c[r], i], nan=1.0))
            share[r] = np.maximum(arm.floor, arm.q * seen)[:, None]
        elif arm.rule == "record":
            share[r] = np.maximum(arm.floor, arm.q * finds_R2[r][table.class_CIM[c[r], i]])
    is_audit = ~np.isnan(price) & (u_EM < share)
    pay = np.nansum(audit_pay(worth, is_audit, price, table.fine), axis=2)
    is_mask = np.array([arm.rule == "mask" for arm in arms])
    pay[is_mask] = masked_CI[c[is_mask], i]
    return table.value_CI[c, i] + pay, is_audit


def _behind_mask(table: Table) -> np.ndarray:
    """(C, I) what the pattern guard leaves of the price."""
    full, seen = np.nansum(table.price_CIM, axis=2), table.seen_CI
    left = [held_back(float(f), None if np.isnan(s) else float(s)) for f, s in zip(full.ravel(), seen.ravel(), strict=True)]
    return np.array(left).reshape(full.shape)


def _record(table: Table, finds_R2: np.ndarray, is_audit: np.ndarray, c: np.ndarray, i: np.ndarray) -> np.ndarray:
    """What audits of each class found, one update on."""
    is_nothing, kind = table.worth_CIM[c, i] <= NOTHING, table.class_CIM[c, i]
    out = finds_R2.copy()
    for k in (0, 1):
        mine = is_audit & (kind == k)
        count = mine.sum(axis=(1, 2))
        share = (mine & is_nothing).sum(axis=(1, 2)) / np.maximum(count, 1)
        out[:, k] = np.where(count > 0, _KEEP * out[:, k] + (1 - _KEEP) * share, out[:, k])
    return out


def _places(table: Table) -> np.ndarray:
    """Of every combination of options, the place of the choice that does the same."""
    known = {choice: at for at, choice in enumerate(table.choices)}
    out = np.zeros(heads(table), np.int64)
    for picks in np.ndindex(*out.shape):
        same = picks if table.hack == COLLUSION else (*canonical(table.hack, picks[:-1]), picks[-1])
        out[picks] = known[same]
    return out


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    out: np.ndarray = e / e.sum(axis=-1, keepdims=True)
    return out


def _drawn(logits_RK: np.ndarray, u_E: np.ndarray) -> np.ndarray:
    """(R, E) an option of each arm for each uniform."""
    below = np.cumsum(_softmax(logits_RK), axis=1)[:, None, :-1]
    out: np.ndarray = (u_E[None, :, None] >= below).sum(axis=2)
    return out


def _judged(table: Table, logits: list[np.ndarray], forks: np.ndarray, cost: float) -> Learnt:
    """The final policy, over all it may choose."""
    chance_C = np.zeros(len(table.choices))
    chances, place = [_softmax(x) for x in logits], _places(table)
    for picks in np.ndindex(*place.shape):
        chance_C[place[picks]] += np.prod([p[k] for p, k in zip(chances, picks, strict=True)])
    hidden = np.array([kind_of(table.hack, c) == "disguised" for c in table.choices])
    half = np.array([table.hack != COLLUSION and c[-1] == 1 for c in table.choices])
    value = float(chance_C @ table.held_CH.mean(axis=1))
    late = float(forks[-max(1, len(forks) // 4) :].mean())
    sums = [float(chance_C[which].sum()) for which in (table.is_hack, hidden, half)]
    return Learnt(sums[0], sums[1], sums[2], value, float(forks.mean()), late, cost, logits)
