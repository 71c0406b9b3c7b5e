"""From a preset's names to advantages: rewards are paid on traces, a mechanism gives credit, and credit lands on decision rows.

Always true: a decision row gets the most specific credit there is, and one only: its own event's; for a call, that of its
brief (or, with delegate "agent", of the worker's return and call); then the turn's, the agent's, the role's, the
orchestrator's, the team's. With delegate "agent" the worker that was called comes before the orchestrator. A worker's own
decision gets the worker's credit, or the team's. A row that nothing covers, or whose unit the mechanism names as refused, gets
0 and is counted: no credit is made up. The traces given are never changed.

Rewards are summed with their weights; with `gain`, less the value of the draft before the first round: what the team added.
What is paid to the team or to the orchestrator as a whole becomes the trace's team reward; what is paid to finer units
comes on top of it, as signals, for mechanisms that read signals. A mechanism that needs a critic gets the network's: V = the
draft's value so far + what the team critic expects of going on; before the first round, the mean of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch

import counterpoint.registry as registry
from counterpoint.credits.mechanism import Mechanism, identified
from counterpoint.errors import InputError, NotIdentified, did_you_mean
from counterpoint.lab.train.child_process import collecting_seldom
from counterpoint.lab.train.loss import Loss
from counterpoint.lab.train.net_replay import NetReplay
from counterpoint.lab.train.options import prefix_values as option_values
from counterpoint.lab.train.policies.choices import OPTION
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.preset import BESIDE, Preset
from counterpoint.lab.train.returns import team_scale
from counterpoint.lab.train.rollouts import Rollout
from counterpoint.lab.worlds.teamworld.optimum.bound import optimum
from counterpoint.rewards.paying import OURS, pay
from counterpoint.rewards.reward import Reward
from counterpoint.rewards.schedules import Indicator, scaffold_of, weight_at
from counterpoint.trace import Event, Trace
from counterpoint.trace.keys import make_key, parse_key
from counterpoint.trace.rows import Credit, Signals

_MAIN = "orchestrator"
_DECISION = {"stop": "stop", "spawn": "spawn", "talk": "communicate", "rule": "aggregate"}


@dataclass(frozen=True)
class Assigned:
    """Advantages by decision type, and what they rest on."""

    advantages: dict[str, np.ndarray]
    """`item`, `brief` and `point` are rows of the item table; the others of their own."""
    uncovered: dict[str, int]
    """Rows that no credit covers, by decision type; they got 0."""
    credit: Credit
    primary: np.ndarray
    """(N,) what the first reward pays the team, by episode."""
    spent: dict[str, int] = field(default_factory=dict)
    """On forks, where the mechanism made any: how many, their calls, and what a budget is charged for them."""


def advantages(preset: Preset, out: Rollout, traces: Sequence[Trace], net: Network, *, progress: float) -> dict[str, np.ndarray]:
    """Advantages of every decision row of a rollout whose traces are given in the order of its episodes."""
    return assigned(preset, out, traces, net, progress=progress).advantages


def assigned(
    preset: Preset, out: Rollout, traces: Sequence[Trace], net: Network, *, progress: float,
    weights: Mapping[str, float] | None = None, baselines: Mapping[str, float] | None = None,
) -> Assigned:  # fmt: skip
    """The same, with what was not covered and the credit itself; `weights` are those that an indicator has set, `baselines`
    running means that a mechanism goes on from."""
    if len(traces) != len(out.values):
        raise InputError(f"{len(traces)} traces for {len(out.values)} episodes", fix="play with traces: log=True")
    mechanism: Mechanism = registry.get("mechanism", preset.credit_name)
    options = dict(preset.credit[preset.credit_name])
    replay: NetReplay | None = None
    if preset.needs_replay:
        replay = NetReplay(net, {t.trace_id: np.asarray(salt) for t, salt in zip(traces, out.salts, strict=True)})
    paid = pay(
        _with_replay(preset.reward, replay), traces, tasks=out.seeds, reader=preset.credit_name, balance=preset.balance,
        progress=progress, weights=weights, at_first=out.value_TE[0], best=_best(preset, out.config),
    )  # fmt: skip
    if paid.signals is not None:
        options["signals"] = paid.signals
    if "value" in mechanism.options and "critic" in mechanism.needs:
        known = prefix_values(net, out)
        place = {t.trace_id: i for i, t in enumerate(traces)}
        options["value"] = lambda t: [known[e.turn or 0, place[t.trace_id]] for e in t.events]
        if paid.signals is not None:
            options["value"] = _mean_pay(paid.signals)
    if "replay" in mechanism.needs:
        options["replay"] = replay
    if baselines and "start" in mechanism.options:
        options["start"] = baselines
    with collecting_seldom():
        credit, kept = _judged(mechanism, paid.traces, options, out)
        books = [_Book(t) for t in traces]
    for row in credit.rows:
        books[kept[row.trace]].put(row.unit, row.unit_id, row.value)
    for (i, unit_id), _ in credit.unidentified.items():
        books[kept[i]].refuse(unit_id)
    found = _rows(out, books, preset)
    lacking = {name: int(np.isnan(v).sum()) for name, v in found.items()}
    covered = {name: np.nan_to_num(v, nan=0.0) for name, v in found.items()}
    spent = {} if replay is None else replay.spent
    return Assigned(covered, {n: k for n, k in lacking.items() if k}, credit, paid.first, spent)


def _with_replay(rewards: Mapping[str, Mapping[str, Any]], replay: NetReplay | None) -> Mapping[str, Mapping[str, Any]]:
    """Rewards with what forks their traces, those that ask for it."""
    asks = {name: "replay" in registry.get("reward", name).options for name in rewards}
    return {name: {**given, "replay": replay} if asks[name] else given for name, given in rewards.items()}


def _judged(
    mechanism: Mechanism, traces: Sequence[Trace], options: Mapping[str, Any], out: Rollout
) -> tuple[Credit, list[int]]:  # fmt: skip
    """The credit, and the places of its traces; no row at all where the mechanism has nothing to judge in an idle batch."""
    try:
        return identified(mechanism, traces, options)
    except NotIdentified:
        if not _is_idle(out, traces):
            raise
        return Credit("none", mechanism.estimand, False, (), ()), []


def _is_idle(out: Rollout, traces: Sequence[Trace]) -> bool:
    """Whether nobody was called in any episode; or, in a world with questions, nobody was asked one."""
    if "calls" not in out.columns or OPTION in out.tables:
        return False
    if not out.columns["calls"].any():
        return True
    asked = any(e.type == "return" and (e.task or "").startswith("vote ") for trace in traces for e in trace.events)
    return out.config.vote_items > 0 and not asked


def outcomes(preset: Preset, out: Rollout, traces: Sequence[Trace], *, progress: float) -> np.ndarray:
    """(E,) what the preset's rewards pay the team for each episode."""
    paid = pay(
        preset.reward, traces, tasks=out.seeds, reader=preset.credit_name, balance=preset.balance, progress=progress,
        at_first=out.value_TE[0], best=_best(preset, out.config),
    )  # fmt: skip
    return np.array([t.rewards["team"] for t in paid.traces])


def _best(preset: Preset, config: Any) -> float:
    """What an outcome is a share of: the world's optimum, or an upper bound of it; 1 where no reward of the preset asks."""
    return optimum(config).value if any(given.get("share") for given in preset.reward.values()) else 1.0


def by_reward(
    preset: Preset, out: Rollout, traces: Sequence[Trace], net: Network, *, progress: float
) -> list[dict[str, np.ndarray]]:
    """Advantages of each reward of the preset, as if it were the only one and weighed 1."""
    alone = [{name: {o: v for o, v in given.items() if o != "weight"}} for name, given in preset.reward.items()]
    return [advantages(replace(preset, reward=own), out, traces, net, progress=progress) for own in alone]


# -- names


def needs_critic(preset: Preset) -> bool:
    """Whether the credit rests on critics; where it does not, they only say which item is the most work."""
    return not preset.uses_traces or "critic" in registry.get("mechanism", preset.credit_name).needs


def check(preset: Preset) -> None:
    """Raise where a preset names a reward, a mechanism or an option that there is not; before anything is played."""
    for name, given in preset.reward.items():
        _known("reward", name, Reward, given, more=OURS)
        if scaffold_of(given.get("weight"), name) is None:
            weight_at(given.get("weight", 1.0), 0.0, name)
        elif name == next(iter(preset.reward)):
            fix = "an indicator for the rewards after it: it tells when the first alone is enough"
            raise InputError(f"the weight of {name}, the first reward, is driven by an indicator", fix=fix)
    mechanism = _known("mechanism", preset.credit_name, Mechanism, preset.credit[preset.credit_name])
    loss = _known("loss", preset.loss_name, Loss, preset.loss[preset.loss_name])
    if mechanism.from_rows:
        _on_rows(preset, loss)
    loss.resolved(preset.loss[preset.loss_name])
    if preset.balance == "gradient" and not loss.balances:
        fix = "a preset with loss clip or reinforce, or balance gdpo"
        raise InputError(f"loss {preset.loss_name} cannot balance rewards by gradient", fix=fix)
    if preset.balance == "gradient" and len(preset.reward) < 2:
        raise InputError("there is one reward, and nothing to balance", fix="a second reward, or balance sum")


def _on_rows(preset: Preset, loss: Loss) -> None:
    """Raise where a preset wants of rollout rows what only traces have."""
    name = preset.credit_name
    if preset.credit[name]:
        raise InputError(
            f"credit {name} is computed without traces here and takes no options", fix="set options of the loss instead"
        )
    if dict(preset.reward) != {"team_outcome": {}} and name != "qmix":
        raise InputError(
            f"credit {name}, computed without traces, knows the reward team_outcome alone",
            fix="a credit mechanism that reads traces",
        )
    if preset.balance != "sum":
        raise InputError(
            f"credit {name}, computed without traces, has one reward: there is nothing to balance",
            fix="a credit mechanism that reads traces",
        )
    taken = loss.own_credit or ("task_returns",)
    if name not in taken:
        goes = [other for other in registry.ids("loss") if name in registry.get("loss", other).own_credit]
        fix = f"credit {' or '.join(taken)}" + (f", or loss {goes[0]}" if goes else "")
        raise InputError(f"credit {name} and loss {preset.loss_name} do not go together", fix=fix)


def _known(
    kind: str, name: str, of: type[Reward] | type[Mechanism] | type[Loss], given: Mapping[str, Any], more: tuple[str, ...] = ()
) -> Any:
    found = registry.get(kind, name)
    if not isinstance(found, of):
        raise InputError(f"{name} is a {type(found).__name__}, not a {of.__name__}")
    for option in given:
        if option not in (*found.options, *more):
            fix = did_you_mean(option, [*found.options, *more])
            raise InputError(f"{kind} {name} has no option {option!r}", fix=fix)
    return found


# -- rewards


class Scaffolds:
    """Weights that leave by themselves: of rewards whose weight is {"indicator": a}, by what spawning each role was worth."""

    def __init__(self, preset: Preset, roles: int) -> None:
        found = {name: scaffold_of(given.get("weight"), name) for name, given in preset.reward.items()}
        self._scaffolds = {name: scaffold for name, scaffold in found.items() if scaffold is not None}
        self._states = {name: Indicator.of(roles) for name in self._scaffolds}

    def weights(self) -> dict[str, float]:
        """Reward to its weight now."""
        return {name: scaffold.weight(self._states[name]) for name, scaffold in self._scaffolds.items()}

    def update(self, out: Rollout, primary_N: np.ndarray) -> None:
        """Take in a batch: which roles were spawned in an episode, and what the first reward paid for it."""
        if "spawn" not in out.tables:
            return
        t = out.tables["spawn"]
        for name, scaffold in self._scaffolds.items():
            self._states[name] = scaffold.update(self._states[name], t["role"], t["choice"], primary_N[t["ep"]])

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {name: asdict(state) for name, state in self._states.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """From a checkpoint."""
        self._states |= {name: Indicator(**held) for name, held in state.items()}


# -- credit


def prefix_values(net: Network, out: Rollout) -> np.ndarray:
    """(T, E) V of the prefix at each round: value of the draft so far, and what the team critic expects of going on."""
    if OPTION in out.tables:
        return option_values(net, out)
    t = out.tables["stop"]
    known = np.full(out.value_TE.shape, float(out.values.mean()))
    known[1:] = out.value_TE[1:]
    with torch.no_grad():
        going = net.judge_teams(torch.from_numpy(t["x"]))[0].numpy().astype(np.float64)
    known[t["round"], t["ep"]] += going * float(net.team_scale) * team_scale(t)
    return known


class _Book:
    """The credit of one trace, by unit, and by the key of an event."""

    def __init__(self, trace: Trace) -> None:
        self._key: dict[str, str | None] = {}
        self._amount: dict[tuple[str, str], float] = {}
        self.names, self._role = {0: _MAIN}, {_MAIN: _MAIN}
        self._about: dict[tuple[int | None, str, int], tuple[int, ...]] = {}
        """Of a call in a round, by agent and item: the item and the number of the call, as keys have them."""
        self._made: dict[int, Event] = {}
        """Decisions of a world with rules of its own, by their number."""
        for e in trace.events:
            self._key[e.id] = e.key
            if e.options is not None and e.turn is not None:
                self._made[e.turn] = e
            if e.type == "tool_call" and (key := parse_key(e.key)) is not None and key.about:
                self._about[e.turn, key.who, key.about[0]] = key.about
            elif e.type == "spawn" and e.extra and "slot" in e.extra and e.to:
                self.names[e.extra["slot"]], self._role[e.to] = e.to, e.role or ""

    def put(self, unit: str, unit_id: str, value: float) -> None:
        """Enter an amount: under the event's key, where the id is an event's."""
        key = self._key.get(unit_id)
        self._amount[(unit, unit_id) if key is None else ("event", key)] = value

    def refuse(self, unit_id: str) -> None:
        """Enter that a unit has no answer: what it covers gets none from coarser units either."""
        key = self._key.get(unit_id)
        names = [("event", key)] if key is not None else [(u, unit_id) for u in ("agent", "role", "turn", "orchestrator", "team")]
        for name in names:
            self._amount.setdefault(name, np.nan)

    def _first(self, places: Iterable[tuple[str, str]]) -> float | None:
        return next((self._amount[p] for p in places if p in self._amount), None)

    def decision(self, name: str, now: int) -> float:
        """The credit of a decision of the orchestrator."""
        whats = (name, "draft") if name == "aggregate" else (name,)
        own = [("event", make_key(_MAIN, what, (now,))) for what in whats]
        wider = [("turn", f"{_MAIN}#{now}"), ("agent", _MAIN), ("role", _MAIN), ("orchestrator", _MAIN), ("team", "")]
        found = self._first([*own, *wider])
        return np.nan if found is None else found

    def call(self, slot: int, item: int, now: int, *, to_agent: bool) -> float | None:
        """The credit of a call, None where only its decision may have one."""
        name = self.names.get(slot) or ""
        about = self._about.get((now, name, item), ())
        brief = [("event", make_key(name, what, about)) for what in (("brief", "tool") if slot == 0 else ("brief",))]
        return self._first([*self._work(name, about, now), *brief] if to_agent else brief)

    def _work(self, name: str, about: tuple[int, ...], now: int) -> list[tuple[str, str]]:
        """Where the credit of what a worker did with a call may stand."""
        own = [("event", make_key(name, what, about)) for what in ("return", "tool")]
        return [*own, ("turn", f"{name}#{now}"), ("agent", name), ("role", self._role.get(name) or "")]

    def beside(self, who: str, what: str, now: int) -> float:
        """The credit of somebody beside the team; the team's is not theirs."""
        own = [("event", make_key(who, what, (now,))), ("turn", f"{who}#{now}"), ("agent", who), ("role", who)]
        found = self._first(own)
        return np.nan if found is None else found

    def option(self, now: int) -> float:
        """The credit of a decision in a world with rules of its own, by its number; the orchestrator's is not that of others."""
        e = self._made[now]
        own = [("event", e.key or ""), ("turn", f"{e.agent}#{now}"), ("agent", e.agent), ("role", e.role or "")]
        found = self._first([*own, ("orchestrator", e.agent), ("team", "")])
        return np.nan if found is None else found

    def worker(self, slot: int, item: int, now: int) -> float:
        """The credit of what a worker did with a call."""
        name = self.names.get(slot) or ""
        found = self._first([*self._work(name, self._about.get((now, name, item), ()), now), ("team", "")])
        return np.nan if found is None else found


def _mean_pay(signals: Signals) -> Callable[[Trace], dict[str, float]]:
    """The critic where turns are paid apart from the team: what a turn of a round was paid, on average over agents and traces."""
    found: dict[int, list[float]] = {}
    for unit, unit_id, value in zip(signals.units, signals.unit_ids, signals.values.tolist(), strict=True):
        if unit == "turn":
            found.setdefault(int(unit_id.rsplit("#", 1)[1]), []).append(value)
    mean = {now: float(np.mean(pay)) for now, pay in found.items()}
    return lambda trace: {e.id: mean.get(e.turn or 0, 0.0) for e in trace.events}


def _rows(out: Rollout, books: Sequence[_Book], preset: Preset) -> dict[str, np.ndarray]:
    """Credit by decision type, NaN where there is none; those beside the team get credit that is theirs, never the team's."""
    found: dict[str, np.ndarray] = {}
    if OPTION in out.tables:
        found[OPTION] = _each(out.tables[OPTION], lambda ep, now: books[ep].option(now))
    for table, who in BESIDE.items():
        if table in out.tables and who in preset.trains:
            what = "attack" if table == "attack" else "propose"
            found[table] = _each(out.tables[table], lambda ep, now, who=who, what=what: books[ep].beside(who, what, now))  # type: ignore[misc]
    for table, name in _DECISION.items():
        if table in out.tables:
            t = out.tables[table]
            found[table] = _each(t, lambda ep, now, name=name: books[ep].decision(name, now))  # type: ignore[misc]
    for table in ("worker", "act"):
        if table in out.tables:
            columns = (out.tables[table][c].tolist() for c in ("ep", "agent", "item", "round"))
            found[table] = np.array(
                [books[ep].worker(slot, item, now) for ep, slot, item, now in zip(*columns, strict=True)], np.float64
            )
    if "item" in out.tables:
        found |= _item_rows(out.tables["item"], books, preset.delegate == "agent")
    return found


def _item_rows(t: Mapping[str, np.ndarray], books: Sequence[_Book], to_agent: bool) -> dict[str, np.ndarray]:
    """Purposes, briefs and pointers: the call's credit, or else that of the decision to make it."""
    called = t["agent"] >= 0
    own = np.full(len(called), np.nan)
    refused = np.zeros(len(called), np.bool_)
    at = np.flatnonzero(called)
    columns = (t[c][at].tolist() for c in ("ep", "agent", "item", "round"))
    for row, ep, slot, item, now in zip(at.tolist(), *columns, strict=True):
        amount = books[ep].call(slot, item, now, to_agent=to_agent)
        if amount is not None:
            own[row], refused[row] = amount, np.isnan(amount)
    lacks = np.isnan(own) & ~refused
    whom, what = (
        np.where(lacks, _each(t, lambda ep, now, decision=decision: books[ep].decision(decision, now)), own)  # type: ignore[misc]
        for decision in ("delegate", "communicate")
    )
    return {"item": whom, "brief": np.where(called, what, 0.0), "point": np.where(called, whom, 0.0)}


def _each(t: Mapping[str, np.ndarray], amount: Callable[[int, int], float]) -> np.ndarray:
    """An amount by row, which is one for all rows of an episode's round."""
    rounds = int(t["round"].max(initial=0)) + 1
    places, of = np.unique(t["ep"] * rounds + t["round"], return_inverse=True)
    amounts = [amount(*divmod(place, rounds)) for place in places.tolist()]
    return np.array(amounts, np.float64)[of]
