"""Which mechanism answers "who earned it" for these traces, when nobody names one; and each agent's share, for pictures.

Always true: the first that answers, of: what the team would have got without an agent (by a replay that costs no model call), the
recorded votes counted again, the recorded merge made again, the drafts' scores, and the other runs of the task. Where none does,
who earned it is not identified, and nothing is chosen: where words stood first, and even shares, have to be asked for by name. An
answer that gives everything to one of several agents is kept for when nothing better answers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import counterpoint.registry as registry
from counterpoint.credits.default import Beside, Merges, no_reward
from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.row_places import RowPlaces
from counterpoint.errors import CounterpointError, NotIdentified
from counterpoint.trace import Trace
from counterpoint.trace.outcome import as_recorded
from counterpoint.trace.replay import Replay
from counterpoint.trace.rows import Credit, Shares

_ORDER = ("message_delete", "difference", "shapley", "remerge", "ledger", "agent_wise")
"""Mechanisms with a `default`, the best first."""


class CreditChoice(NamedTuple):
    """A credit that was chosen, and why."""

    credit: Credit
    why: str
    passed: dict[str, str]
    """Mechanism that was passed over to the reason."""


class NoMechanism(NotIdentified):
    """No mechanism is identified for these traces; `passed` says of each why not."""

    def __init__(self, traces: Sequence[Trace], unit: str | None, passed: dict[str, str]) -> None:
        whose = "who earned it" if unit is None else f"which {unit} earned it"
        why = no_reward(traces) or "nothing here says what the team would have got without an agent"
        fix = "`--mechanism provenance` says who was the first to say the result's words; `counterpoint credit --list` has more"
        super().__init__(f"no mechanism can say {whose}: {why}", fix, where=traces[0].trace_id)
        self.passed = passed


def choose(
    traces: Sequence[Trace], *, replay: Replay | None = None, merged: Merges | None = None, unit: str | None = None
) -> CreditChoice:
    """The credit of the best mechanism that is identified for these traces; `replay` only where it costs no model call.

    `merged` makes the merges of a recorded team again. With `unit` it is the best of those that have rows of this unit. Where
    none is identified, `NoMechanism` says of each why not.
    """
    beside, passed = Beside(replay, merged), {}  # type: Beside, dict[str, str]
    fallback: CreditChoice | None = None
    for name in _ORDER:
        mechanism: Mechanism = registry.get("mechanism", name)
        one = mechanism.default
        if one is None or one.unit not in (None, unit):
            continue
        try:
            why_not = one.lacks(traces, beside)
            if why_not is None:
                credit = mechanism(list(traces), **one.options, **{option: getattr(beside, option) for option in one.takes})
                has_unit = unit is None or unit in credit.units
                best = _only_one(traces, credit) if one.may_favour_one and unit in (None, "agent") else None
                if credit.rows and has_unit and best is None:
                    return _choice(credit, one.why, passed)
                why_not = next(iter(credit.unidentified.values()), "no unit gets a row")
                if not has_unit:
                    why_not = f"it has rows of {' and '.join(credit.units) or 'nothing'}, and none of a {unit}"
                elif best is not None:
                    why_not = f"it gives everything to {best}, and the others nothing"
                    fallback = fallback or _choice(credit, f"{one.why}; no better answer than: everything to {best}", passed)
        except CounterpointError as error:
            why_not = error.what
        passed[name] = why_not
    if fallback is not None:
        return fallback
    raise NoMechanism(traces, unit, passed)


def _choice(credit: Credit, why: str, passed: dict[str, str]) -> CreditChoice:
    return CreditChoice(replace(credit, notes={**credit.notes, "chosen": why, "passed": passed}), why, passed)


def _only_one(traces: Sequence[Trace], credit: Credit) -> str | None:
    """The one agent that gets everything, in every trace of more than one member; None elsewhere."""
    names: set[str] = set()
    for i, trace in enumerate(traces):
        paid = [name for name, value in RowPlaces(trace).by_agent(credit, i).items() if value]
        if len(paid) != 1 or len(trace.members) < 2:
            return None
        names.update(paid)
    return ", ".join(sorted(names))


def agent_shares(trace: Trace, *, replay: Replay | None = None, merged: Merges | None = None) -> Shares | None:
    """Each agent's share by the mechanism that is chosen for this trace; None where there is no answer.

    Agents plus `unassigned` are the team reward as the run scored itself, which is what all of these share out (the reward that a
    person gave where it did not). A trace without an outcome has no shares.
    """
    try:
        credit = choose([trace], replay=replay, merged=merged).credit
    except CounterpointError:
        return None
    agents = RowPlaces(trace).by_agent(credit)
    whole = float(as_recorded(trace).rewards.get("team", trace.rewards["team"]))
    return Shares(credit.mechanism, whole, agents, whole - math.fsum(agents.values()))
