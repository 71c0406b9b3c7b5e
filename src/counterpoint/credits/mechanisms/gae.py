"""Generalised advantage estimation along the team's actions, or along each agent's own, with a given critic.

    A_t = d_t + gamma lam A_{t+1},  d_t = r_t + gamma V_{t+1} - V_t

Always true: only actions are steps; tool output and other observations are skipped. Nothing flows between traces (nor between
agents when `chain="agent"`). Rewards are those that the events carry, or else the team's reward on the last step of a chain;
with `signals`, what they pay an event at its step, a turn or an agent at its last one; who is paid nothing has no rows.
`by="turn"` makes a turn one step: what a team (or an agent) did in a round has one advantage.

Sources: GAE arXiv 1506.02438; verl's masking; `preset` = ppo (whitened), mappo (arXiv 2103.01955), ippo (local critic, chain
per agent), maac (CoLLM-MAAC arXiv 2601.21972: lam 0, gamma 1, normalised per agent and turn), maporl (2502.18439: chain per
agent). Departures: unit is the action, not the token; `token_spread` goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np

from counterpoint.credits import advantages
from counterpoint.credits.example import running_mean
from counterpoint.credits.groups import group_advantages, group_codes, whiten
from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.rows import TraceUnit, actions, credit_of, event_unit, paid_steps, signals_by_trace, values_of
from counterpoint.credits.shared_options import LAMBDA, VALUE, Discount, PaidSignals, StepBy
from counterpoint.errors import InputError, NotIdentified, did_you_mean
from counterpoint.options import Channel, Share
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit

_ESTIMAND = "A_t: GAE of the action with the given critic"
_PRESETS: Mapping[str, dict[str, Any]] = {
    "plain": {},
    "ppo": {"normalise": "whiten"},
    "mappo": {"gamma": 0.99, "normalise": "mappo"},
    "ippo": {"gamma": 0.99, "chain": "agent"},
    "maac": {"lam": 0.0, "normalise": "agent_turn"},
    "maporl": {"chain": "agent", "normalise": "whiten"},
}


def _normalised(amounts: np.ndarray, how: str | None, turns: Sequence[tuple[str, int | None]]) -> np.ndarray:
    if how is None:
        return amounts
    if how == "whiten":
        return whiten(amounts)
    if how == "mappo":
        return whiten(amounts, ddof=0, eps=1e-5, eps_at="add")
    if how == "agent_turn":
        return group_advantages(amounts, group_codes(turns)[0], "collm_maac")
    raise InputError(f"no normalisation {how!r}", fix="whiten, mappo or agent_turn")


def _named(trace: Trace, places: Sequence[int], signals: Mapping[str, float]) -> bool:
    """Whether any signal is about this chain: its events, its turns or its agent."""
    events = (trace.events[i] for i in places)
    return any(name in signals for e in events for name in (e.id, e.agent, f"{e.agent}#{e.turn}"))


def _gae_credit(
    traces: Sequence[Trace],
    *,
    value: Annotated[Callable[[Trace], Any] | None, VALUE] = None,
    preset: str = "plain",
    gamma: Discount | None = None,
    lam: Annotated[Share | None, LAMBDA] = None,
    chain: str | None = None,
    normalise: str | None = None,
    channel: Channel = "team",
    signals: PaidSignals = None,
    by: StepBy = "action",
) -> Credit:
    if preset not in _PRESETS:
        raise InputError(f"no preset {preset!r}", fix=did_you_mean(preset, _PRESETS))
    base = {"gamma": 1.0, "lam": 0.95, "chain": "team", "normalise": None, **_PRESETS[preset]}
    overrides = {"gamma": gamma, "lam": lam, "chain": chain, "normalise": normalise}
    use = {**base, **{k: v for k, v in overrides.items() if v is not None}}
    if use["chain"] not in ("team", "agent"):
        raise InputError(f"no chain {use['chain']!r}", fix="team or agent")
    given_to = None if signals is None else signals_by_trace(signals)
    rewards, values, segments, turns = [], [], [], []  # type: list[float], list[float], list[int], list[Any]
    rows: list[list[TraceUnit]] = []
    for i, trace in enumerate(traces):
        critic = values_of(trace, value, "a critic (value=)")
        for number, steps in enumerate(_chains(trace, use["chain"], by)):
            given_here = None if given_to is None else given_to.get(trace.trace_id, {})
            if given_here is not None and not _named(trace, [p for places in steps for p in places], given_here):
                continue
            rewards += paid_steps(trace, steps, channel, given_here)
            for event in (trace.events[places[0]] for places in steps):
                if event.id not in critic:
                    raise InputError(f"the critic has no value for event {event.id!r}", where=trace.trace_id)
                values.append(float(critic[event.id]))
                segments.append(i * 1_000_000 + number)
                turns.append((event.agent, event.turn))
            rows += [_units(trace, i, places, by) for places in steps]
    amounts, _ = advantages.gae(rewards, values, segments=segments, gamma=use["gamma"], lam=use["lam"])
    amounts = _normalised(amounts, use["normalise"], turns) if len(amounts) else amounts
    pairs = [(unit, a) for units, a in zip(rows, amounts.tolist(), strict=True) for unit in units]
    return credit_of("gae", _ESTIMAND, traces, pairs, notes={"preset": preset, **use} | ({"by": by} if by == "turn" else {}))


def _chains(trace: Trace, chain: str, by: str) -> list[list[list[int]]]:
    """The steps of each chain, as places of events: actions, or all actions of a turn."""
    if by not in ("action", "turn"):
        raise InputError(f"no step by {by!r}", fix="action or turn")
    chains: dict[str, list[list[int]]] = {}
    for place in actions(trace):
        event = trace.events[place]
        own = chains.setdefault(event.agent if chain == "agent" else "", [])
        if by == "turn" and event.turn is None:
            raise NotIdentified("an action has no turn number", "record `turn`, or by='action'", where=trace.trace_id)
        if by == "turn" and own and trace.events[own[-1][0]].turn == event.turn:
            own[-1].append(place)
        else:
            own.append([place])
    return list(chains.values())


def _units(trace: Trace, number: int, places: Sequence[int], by: str) -> list[TraceUnit]:
    if by == "action":
        event = trace.events[places[0]]
        return [TraceUnit(number, event_unit(event), event.id)]
    turn = trace.events[places[0]].turn
    return [TraceUnit(number, "turn", f"{name}#{turn}") for name in dict.fromkeys(trace.events[p].agent for p in places)]


gae = Mechanism(
    sees="round",
    unit="message",
    estimand=_ESTIMAND,
    assumptions="the critic is right on average at the prefixes; the chain's order is the order of time",
    cost="a critic",
    additive=False,
    source="GAE, arXiv 1506.02438; verl, MAPPO and CoMLRL code",
    run=_gae_credit,
    needs=("critic",),
    example=lambda: Example(rollouts(), {"value": running_mean}),
    relative=True,
    live={"value": "task:value_before"},
)
