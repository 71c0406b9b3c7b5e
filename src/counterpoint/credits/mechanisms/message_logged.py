"""Message credit from many recorded runs, doubly robust: sent against not sent, where nothing can replay.

    tau(s) = E[R | the run reached slot s, message sent] - E[R | the run reached slot s, message not sent]
    psi    = m1(x) - m0(x) + a (R - m1(x)) / e(x) - (1 - a) (R - m0(x)) / (1 - e(x))        tau(s) = mean of psi over the runs

A slot is the same message in other runs: its stable key, or its type, sender, receiver, task and number where it has none. A run
has reached it where what led to it (the sender's last recorded cause, its event before it, or its spawn) has happened, and x is
what had happened by then. `contrast="said"` compares what the message said with anything else said in its slot:

    tau(s, c) = E[R | slot s says c] - E[R | slot s says something else]

Always true: no row without 20 effective runs in each arm and an estimated chance of both between 0.02 and 0.98; what is refused
has a reason. e is estimated (a logistic regression, cross-fitted by run) unless every message has a logged `logp` and
`propensity="logged"`: then no model need be right. Estimated, e or (m0, m1) must be. What decided and is not in the features
(a confounder) biases it, and no number here can show that: docs/lab/research/logged-credit.md.

Robins, Rotnitzky, Zhao 1994; cross-fitting: arXiv 1608.00060. Departures: one effect per slot; refusals. Rows: unit message.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from counterpoint.credits.doubly_robust import LEAST_ESS
from counterpoint.credits.forks import MESSAGES, check_ids, messages_of
from counterpoint.credits.logged_effects import Cases, logged_effects, task_features
from counterpoint.credits.mechanism import Mechanism, team_reward
from counterpoint.credits.rows import keys_of
from counterpoint.credits.shared_options import (
    FEATURES,
    PROPENSITY_FEATURES,
    EventIds,
    EventTypes,
    Folds,
    GroupKey,
    Penalty,
    Propensity,
)
from counterpoint.errors import InputError, NotIdentified, did_you_mean
from counterpoint.options import Channel
from counterpoint.trace import Event, Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit, CreditRow
from counterpoint.trace.vocabulary import OUTSIDE_ROLES

_ESTIMAND = "E[R | the slot is reached, message sent] - E[R | reached, not sent]; or of what it said against anything else"
_CONTRASTS = ("sent", "said")
About = Callable[[Trace, Event, Event], Sequence[float]]
"""(trace, the event that led to the slot, a message of the slot) to what was known then."""


class _Place(NamedTuple):
    """A slot in one run that reached it."""

    trace: int
    cause: Event
    message: Event | None


def stable_slot(event: Event) -> Hashable:
    """The event's stable key, without which it is known by type, sender, receiver and task; its number is added by the caller."""
    return event.key if event.key is not None else (event.type, event.agent, event.to, event.task)


def _slots(trace: Trace) -> dict[Hashable, Event]:
    """Every event of the trace by its slot; the n-th of one slot is numbered."""
    out: dict[Hashable, Event] = {}
    count: Counter[Hashable] = Counter()
    for event in trace.events:
        name = stable_slot(event)
        out[name, count[name]] = event
        count[name] += 1
    return out


def _causes(trace: Trace, wanted: Collection[str]) -> dict[str, Event]:
    """Message to what led to it: its last recorded cause of the same agent, or the agent's event before it, or its spawn."""
    causes: dict[str, Event] = {}
    before: dict[str, Event] = {}
    for event in trace.events:
        if event.id in wanted and event.agent in before:
            causes[event.id] = before[event.agent]
        before[event.agent] = event
        if event.type == "spawn" and event.to:
            before.setdefault(event.to, event)
    by_edge: dict[str, int] = {}
    for edge in trace.edges:
        if edge.dst in wanted and edge.src in trace.index:
            src = trace.index[edge.src]
            if trace.events[src].agent == trace.events[trace.index[edge.dst]].agent:
                by_edge[edge.dst] = max(by_edge.get(edge.dst, -1), src)
    return causes | {at: trace.events[src] for at, src in by_edge.items()}


def _content(trace: Trace, event: Event) -> str:
    claim = (event.extra or {}).get("claim")
    return f"claim {claim}" if claim is not None else trace.text(event) or ""


class _Group:
    """The runs of one task, by slot."""

    def __init__(self, traces: Sequence[Trace], places: Sequence[int], types: Collection[str]) -> None:
        self.traces = traces
        self.slots = {i: _slots(traces[i]) for i in places}
        self.messages = {i: {e.id for e in messages_of(traces[i], types)} for i in places}
        self.causes = {i: _causes(traces[i], self.messages[i]) for i in places}
        names = {i: {event.id: name for name, event in self.slots[i].items()} for i in places}
        leads: dict[Hashable, Counter[Hashable]] = defaultdict(Counter)
        for i in places:
            for at, cause in self.causes[i].items():
                leads[names[i][at]][names[i][cause.id]] += 1
        self.cause = {name: max(count, key=lambda c: (count[c], str(c))) for name, count in leads.items()}
        self.names = names

    def reached(self, name: Hashable) -> list[_Place]:
        """The runs in which what leads to a slot has happened."""
        out = []
        for i, slots in self.slots.items():
            cause, message = slots.get(self.cause[name]), slots.get(name)
            if cause is not None:
                is_after = message is not None and message.id in self.messages[i]
                out.append(_Place(i, cause, message if is_after else None))
        return out


class _Asked(NamedTuple):
    contrast: str
    features: About
    propensity_features: About | None
    fit: dict[str, Any]
    channel: str
    value: str


def _answer(group: _Group, name: Hashable, content: str | None, asked: _Asked) -> tuple[float, float, dict[int, float]] | str:
    """(tau, se, propensity by run) of a slot, or why there is none."""
    if name not in group.cause:
        return "nothing that its sender did is recorded before it, so that no other run can be said to have come so far"
    places = group.reached(name)
    if content is not None:
        places = [p for p in places if p.message is not None]
        arm = np.array([_content(group.traces[p.trace], p.message) == content for p in places if p.message is not None], np.bool_)
    else:
        arm = np.array([p.message is not None for p in places], np.bool_)
    arms = int(arm.sum()), int((~arm).sum())
    if min(arms) < LEAST_ESS:
        what = "sent it" if content is None else "said so"
        runs = "run" if arms[0] == 1 else "runs"
        return f"{arms[0]} {runs} {what} and {arms[1]} did not; each arm needs {LEAST_ESS:g}"
    one = next(p.message for p in places if p.message is not None)
    known = lambda make: np.array([list(make(group.traces[p.trace], p.cause, one)) for p in places], np.float64)  # noqa: E731
    x = known(asked.features)
    z = x if asked.propensity_features is None else known(asked.propensity_features)
    logp = [p.message.logp if p.message is not None else None for p in places]
    logged = np.array([math.nan if v is None else min(1.0, math.exp(v)) for v in logp])
    rewards = np.array([team_reward(group.traces[p.trace], asked.channel) for p in places])
    number = np.array([p.trace for p in places])
    cases = Cases(x, z, arm, logged, rewards, number, np.zeros(len(places), np.bool_))
    fit = logged_effects(cases, leaf_N=np.zeros(len(places), np.int64), **asked.fit)
    answered = np.flatnonzero(np.isfinite(fit.tau_N))
    if not len(answered):
        return next(iter(fit.reasons.values())).removeprefix("not identified: ")
    at = int(answered[0])
    chances = {int(number[j]): float(fit.propensity_N[j]) for j in answered.tolist()}
    return float(fit.tau_N[at]), float(fit.se_N[at]), chances


def _message_logged_credit(
    traces: Sequence[Trace],
    *,
    contrast: str = "sent",
    value: str = "effect",
    types: EventTypes = MESSAGES,
    ids: EventIds = None,
    features: Annotated[About, FEATURES] = task_features,
    propensity_features: Annotated[About | None, PROPENSITY_FEATURES] = None,
    propensity: Propensity = "estimate",
    folds: Folds = 5,
    penalty: Penalty = 1.0,
    key: GroupKey = "task_id",
    channel: Channel = "team",
) -> Credit:
    for word, known in ((contrast, _CONTRASTS), (value, ("effect", "advantage"))):
        if word not in known:
            raise InputError(f"no {word!r}", fix=did_you_mean(word, known))
    check_ids(traces, ids)
    fit = {"propensity": propensity, "folds": folds, "penalty": penalty}
    asked = _Asked(contrast, features, propensity_features, fit, channel, value)
    members: dict[Hashable, list[int]] = {}
    for i, name in enumerate(keys_of(traces, key)):
        members.setdefault(name, []).append(i)
    rows: list[CreditRow] = []
    silent: dict[tuple[int, str], str] = {}
    for places in members.values():
        _group_rows(_Group(traces, places, types), places, types, ids, asked, rows, silent)
    rows.sort(key=lambda row: (row.trace, traces[row.trace].index[row.unit_id]))
    if silent and not rows:
        own = [why for (i, at), why in silent.items() if traces[i].events[traces[i].index[at]].agent not in OUTSIDE_ROLES]
        why = Counter(own or silent.values()).most_common(1)[0][0].removeprefix("not identified: ")
        raise NotIdentified(why, "more runs of the task, or a replay and --mechanism message_delete")
    ids_of = tuple(t.trace_id for t in traces)
    notes = {"contrast": contrast, "value": value, "propensity": propensity}
    return Credit("message_logged", _ESTIMAND, False, ids_of, tuple(rows), unidentified=silent, notes=notes)


def _group_rows(
    group: _Group,
    places: Sequence[int],
    types: Collection[str],
    ids: Collection[str] | None,
    asked: _Asked,
    rows: list[CreditRow],
    silent: dict[tuple[int, str], str],
) -> None:
    known: dict[tuple[Hashable, str | None], Any] = {}
    for i in places:
        for event in messages_of(group.traces[i], types, ids):
            name = group.names[i][event.id]
            about = (name, _content(group.traces[i], event) if asked.contrast == "said" else None)
            if about not in known:
                known[about] = _answer(group, name, about[1], asked)
            effect = known[about]
            if isinstance(effect, str):
                silent[i, event.id] = f"not identified: {effect}"
            elif i not in effect[2]:
                silent[i, event.id] = "not identified: in this run one arm hardly ever occurs (a chance below 0.02)"
            else:
                share = 1.0 if asked.value == "effect" else 1.0 - effect[2][i]
                se = abs(share) * effect[1] if math.isfinite(effect[1]) else None
                rows.append(CreditRow(i, "message", event.id, share * effect[0], se))


def _many() -> list[Trace]:
    """The example's runs of one task, many times over, the third worker silent in every other one."""
    from msgspec.structs import replace

    out = []
    for n in range(24):
        for trace in rollouts()[:3]:
            gone = {e.id for e in trace.events if e.agent == "w3" and e.type == "return"} if n % 2 else set()
            events = [e for e in trace.events if e.id not in gone]
            edges = [e for e in trace.edges if e.src not in gone and e.dst not in gone]
            reward = {"team": float(trace.rewards["team"]) - (0.25 if gone else 0.0)}
            out.append(replace(trace, trace_id=f"{trace.trace_id}-{n}", events=events, edges=edges, rewards=reward))
    return out


message_logged = Mechanism(
    unit="message",
    estimand=_ESTIMAND,
    assumptions="what decided whether it was sent is in the features; the estimated chance or the outcome model is right (with a "
    "logged propensity neither need be); both arms occur",
    cost="none beyond the runs: no fork, no call",
    additive=False,
    source="Robins, Rotnitzky, Zhao 1994; cross-fitting arXiv 1608.00060; docs/lab/research/logged-credit.md. Departures: one "
    "effect per slot, a gate that refuses",
    run=_message_logged_credit,
    needs=("group",),
    example=lambda: Example(_many(), {"contrast": "said", "types": ("message",), "ids": ["e6", "e7", "e8"]}),
)
