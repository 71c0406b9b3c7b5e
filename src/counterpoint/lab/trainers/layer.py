"""The credit layer: a trainer's rollouts in memory in, an advantage for each of its tokens out, nothing written unless asked.

    from counterpoint.lab.trainers.layer import CreditLayer
    layer = CreditLayer("difference", counterfactual=lambda rollout, agent: checked(rollout.about, without=agent))
    advantages = layer(rollouts).arrays()          # one array for each sample, aligned with its `ids`

Always true: what the mechanism gave to a rollout is what its calls teach, what is kept out by reason (frozen, dropped, stale,
...), what a finer level replaced and what found no call, within 1e-9; `CreditBatch.check` holds the loss to it too.

Amounts of a mechanism that compares rollouts itself are advantages. Those of others are compared `against` the same agent in the
other rollouts of the task, against everybody in them (`task`), or with nothing (`nothing`), as `convention` says.

A call that forks of one task repeat (`Sample.calls`) is one call: each of the k samples in the batch that teach it has a k-th of
the weight, so that it is learnt once, from the mean of what its continuations earned.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np

import counterpoint.registry as registry
from counterpoint.credits.call_rows import CallRows, call_rows
from counterpoint.credits.groups import Convention, convention_of, group_advantages, group_codes
from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.rows import ALONE as GROUP_OF_ONE
from counterpoint.errors import CounterpointError, InputError, NotIdentified, Refused, did_you_mean
from counterpoint.lab.trainers.credit_batch import CreditBatch, batch_of
from counterpoint.lab.trainers.kept_rollouts import KeptRollouts
from counterpoint.lab.trainers.limits import KeptOut, Limits, kept_out
from counterpoint.lab.trainers.rollout import Rollout, check_rollouts, is_finite
from counterpoint.lab.trainers.rollout_traces import trace_of
from counterpoint.trace import Trace
from counterpoint.trace.rows import Credit, CreditRow

ALONE = "nobody to compare with"
Gather = Callable[[list[Any]], list[Any]]
Against = Literal["agent", "task", "nothing"]
_AGAINST = ("agent", "task", "nothing")
_ASKED = ("worth", "counterfactual", "value", "q")
"""Options that are functions of a run: they are called with the rollout in place of its trace."""
_NUMBERS = ("worth", "counterfactual")
"""Those that answer with one number."""


def all_ranks(items: list[Any]) -> list[Any]:
    """The items of every rank of torch.distributed, in their order: what `CreditLayer(gather=)` takes."""
    import torch.distributed as ranks

    out: list[list[Any]] = [[]] * ranks.get_world_size()
    ranks.all_gather_object(out, items)
    return [item for part in out for item in part]


class _Member(NamedTuple):
    """A rollout as other ranks see it: its events and what it earned, without a token."""

    trace: Trace
    rows: tuple[CreditRow, ...] | None
    """None where the mechanism compares."""
    value: Any
    """What the option `value` says of it, where that is a function and the mechanism compares: only its own rank can ask."""
    teaching: tuple[tuple[str, Hashable], ...]
    """The repeated calls that it teaches, each with its task."""


class _Failed(NamedTuple):
    """What a rank that refuses its rollouts tells the others instead."""

    said: str


class _Local(NamedTuple):
    """The rollouts of this rank: why some do not teach, the places of the others, their traces, and what other ranks see."""

    out: KeptOut
    here: list[int]
    traces: dict[int, Trace]
    by_name: dict[str, Rollout]
    members: list[_Member]


class CreditLayer:
    """Credit of one mechanism under a trainer: `layer(rollouts)` gives a `CreditBatch`."""

    def __init__(
        self, credit: str | Mechanism = "group_relative", *, against: Against = "agent",
        convention: str | Convention | None = None, limits: Limits | None = None, gather: Gather | None = None,
        keep: KeptRollouts | None = None, **options: Any,
    ) -> None:  # fmt: skip
        """`credit` is a mechanism or its name, and further keywords are its options: functions of a run (worth, counterfactual,
        value, q) are called with the `Rollout`. `convention` is how a comparison becomes an advantage (one of
        `counterpoint.credits.groups.CONVENTIONS`; None: `trl`, or the mechanism's own). `gather` makes one list of those of all
        ranks (`all_ranks`, `accelerate.utils.gather_object`), where the rollouts of a task are split over them. `keep` keeps some
        for the viewer."""
        if against not in _AGAINST:
            raise InputError(f"nothing to compare against {against!r}", fix=did_you_mean(against, _AGAINST))
        self.credit, self.against, self.convention = credit, against, convention_of(convention or "trl", singleton="zero")
        self.limits, self.gather, self.keep, self.options = limits or Limits(), gather, keep, options
        self.mechanism: Mechanism = registry.get("mechanism", credit) if isinstance(credit, str) else credit
        if convention is not None and self.compares and "convention" in self.mechanism.options:
            options["convention"] = convention
        if unknown := [name for name in options if name not in self.mechanism.options]:
            raise InputError(f"no option {unknown[0]!r}", where=str(credit), fix=did_you_mean(unknown[0], self.mechanism.options))

    @property
    def compares(self) -> bool:
        """Whether the mechanism compares rollouts of a task itself, or has a baseline of its own."""
        return self.needs_others or self.mechanism.relative

    @property
    def needs_others(self) -> bool:
        """Whether the mechanism says nothing of a rollout that is alone in its task."""
        return "group" in self.mechanism.needs or self.options.get("give") == "advantage"

    def __call__(self, rollouts: Sequence[Rollout], *, version: int | None = None) -> CreditBatch:
        """The advantages of these rollouts. `version`: the number of the weights that are about to learn, for `most_stale`."""
        try:
            local = self._local(rollouts, version)
        except CounterpointError as error:
            if self.gather is not None:
                self.gather([_Failed(str(error))])  # the other ranks wait for this one
            raise
        out, here, traces, by_name, members = local
        everyone = self._everyone(members, {rollouts[i].task for i in here})
        rows = self._compared(everyone, by_name)
        repeats = Counter(call for member in everyone for call in member.teaching)
        placed = self._placed([traces[i] for i in here], rows)
        unknown = {rollouts[i].name: reason for i, reason in enumerate(out.rollouts) if reason is not None}
        unknown |= {rollouts[i].name: ALONE for i in here if not rows[rollouts[i].name]}
        batch = batch_of(rollouts, here, placed, out.samples, repeats, unknown)
        batch.check()
        if self.keep is not None:
            self.keep.add([r for r, why in zip(rollouts, out.rollouts, strict=True) if why != "retried"], version)
        return batch

    def _local(self, rollouts: Sequence[Rollout], version: int | None) -> _Local:
        """What this rank can say without the others."""
        check_rollouts(rollouts)
        out = kept_out(rollouts, self.limits, version)
        here = [i for i, reason in enumerate(out.rollouts) if reason is None]
        traces = {i: trace_of(rollouts[i]) for i in here}
        by_name = {rollouts[i].name: rollouts[i] for i in here}
        own = None if self.compares or not here else self._credit([traces[i] for i in here], by_name)
        members = [
            _Member(traces[i], None if own is None else own[k], self._value(rollouts[i]), _teaching(rollouts[i], out.samples[i]))
            for k, i in enumerate(here)
        ]
        return _Local(out, here, traces, by_name, members)

    def _value(self, rollout: Rollout) -> Any:
        """What other ranks are told of a rollout that they cannot ask about."""
        asked = self.options.get("value")
        return asked(rollout) if self.compares and self.gather is not None and callable(asked) else None

    def _credit(
        self, traces: Sequence[Trace], by_name: dict[str, Rollout], values: dict[str, Any] | None = None
    ) -> list[tuple[CreditRow, ...]]:
        """The mechanism's own answer for each trace, its functions called with rollouts, or what their ranks said."""
        options = dict(self.options)
        for name in _ASKED:
            if callable(asked := options.get(name)):
                options[name] = _with_rollout(asked, by_name, (values or {}) if name == "value" else {}, name)
        by_trace: list[list[CreditRow]] = [[] for _ in traces]
        for row in self.mechanism(traces, **options).rows:
            by_trace[row.trace].append(row._replace(trace=0))
        return [tuple(rows) for rows in by_trace]

    def _everyone(self, members: list[_Member], tasks: set[str]) -> list[_Member]:
        """All members of the tasks here, from every rank."""
        if self.gather is not None:
            everyone = [m for m in _gathered(self.gather, members) if m.trace.task_id in tasks]
            names = [m.trace.trace_id for m in everyone]
            if twice := [name for name, n in Counter(names).items() if n > 1]:
                raise InputError("two ranks have a rollout of this name", where=twice[0], fix="names unique over all ranks")
        else:
            everyone = members
            if (self.compares or self.against != "nothing") and (ranks := _ranks()) > 1:
                why = "a group split over ranks would be compared with a part of itself"
                raise Refused(f"{ranks} ranks, and nothing gathers the groups", where="credit layer", why=why,
                              fix="gather=all_ranks, or gather=accelerate.utils.gather_object")  # fmt: skip
        counts = Counter(m.trace.task_id for m in everyone)
        for member in everyone:
            task, wanted = member.trace.task_id, self.limits.group_size
            if wanted is not None and counts[task] < wanted:
                what, why = f"{counts[task]} of the {wanted} rollouts of task {task!r}", "the rest is elsewhere, or was aborted"
                fix = "gather=all_ranks, or group_size=None to compare with those that are here"
                raise Refused(what, where=member.trace.trace_id, why=why, fix=fix)
        return everyone

    def _compared(self, everyone: list[_Member], by_name: dict[str, Rollout]) -> dict[str, list[CreditRow]]:
        """The advantages of every rollout, by its name; none for one that is alone where something is compared."""
        counts = Counter(m.trace.task_id for m in everyone)
        is_alone_fine = not self.needs_others if self.compares else self.against == "nothing"
        some = [m for m in everyone if is_alone_fine or counts[m.trace.task_id] > 1]
        out: dict[str, list[CreditRow]] = {m.trace.trace_id: [] for m in everyone}
        if self.compares:
            found: Sequence[Sequence[CreditRow]] = ()
            try:
                values = {m.trace.trace_id: m.value for m in some} if self.gather is not None else None
                found = self._credit([m.trace for m in some], by_name, values) if some else ()
            except NotIdentified as error:
                if GROUP_OF_ONE not in error.what:
                    raise
                found = [()] * len(some)  # every unit is alone: unknown, and said of each rollout
        else:
            found = self._against([m.rows or () for m in some], some)
        return out | {m.trace.trace_id: list(rows) for m, rows in zip(some, found, strict=True)}

    def _against(self, rows: Sequence[Sequence[CreditRow]], everyone: Sequence[_Member]) -> list[list[CreditRow]]:
        """Amounts as advantages: against the same agent in the task, against everybody in it, or as they are."""
        if self.against == "nothing":
            return [list(some) for some in rows]
        flat = [(i, row) for i, some in enumerate(rows) for row in some]
        agents = [{e.id: e.agent for e in m.trace.events} for m in everyone]
        keys = [(everyone[i].trace.task_id, row.unit, _who(row, agents[i]) if self.against == "agent" else "") for i, row in flat]
        how = convention_of(self.convention)
        values = group_advantages([row.value for _, row in flat], group_codes(keys)[0], how, episodes=[i for i, _ in flat])
        out: list[list[CreditRow]] = [[] for _ in rows]
        for (i, row), value in zip(flat, values.tolist(), strict=True):
            out[i].append(row._replace(value=value, se=None))
        return out

    def _placed(self, traces: Sequence[Trace], rows: dict[str, list[CreditRow]]) -> CallRows:
        """Advantages on calls: of a credit that adds up a call has its effects' too, of another one its own."""
        flat = tuple(row._replace(trace=k) for k, t in enumerate(traces) for row in rows[t.trace_id])
        credit = Credit(self.mechanism_name, "advantages", False, tuple(t.trace_id for t in traces), flat)
        if self.mechanism.additive and not self.compares and len({row.unit for row in flat}) == 1:
            declared = np.bincount([row.trace for row in flat], [row.value for row in flat], len(traces))
            credit = replace(credit, additive=True, declared=declared)
        return call_rows(traces, credit)

    @property
    def mechanism_name(self) -> str:
        """What the credit is called."""
        return self.credit if isinstance(self.credit, str) else "credit"


def _with_rollout(asked: Callable[..., Any], by_name: dict[str, Rollout], told: dict[str, Any], name: str) -> Callable[..., Any]:
    def ask(trace: Trace, *rest: Any) -> Any:
        if trace.trace_id in told:
            return told[trace.trace_id]
        if trace.trace_id not in by_name:
            why = "the rollout is on another rank, and its answers depend on what is asked"
            raise Refused(f"{name!r} is asked of it", where=trace.trace_id, why=why, fix="whole groups on each rank")
        try:
            answer = asked(by_name[trace.trace_id], *rest)
        except CounterpointError:
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            raise InputError(f"{name!r} failed", where=trace.trace_id, why=said, fix="a function of the rollout") from error
        if name in _NUMBERS and not is_finite(answer):
            raise InputError(f"{name!r} answered {answer!r}", where=trace.trace_id, fix="a finite number")
        return answer

    return ask


def _gathered(gather: Gather, members: list[_Member]) -> list[_Member]:
    """The members of all ranks, with those of this one among them."""
    everyone = gather(members)
    if isinstance(everyone, list | tuple) and (failed := [m.said for m in everyone if isinstance(m, _Failed)]):
        raise InputError("another rank refused its rollouts", where="credit layer", why=failed[0], fix="mend what that rank says")
    if not isinstance(everyone, list | tuple) or not all(isinstance(m, tuple) and isinstance(m[0], Trace) for m in everyone):
        what = f"gather gave a {type(everyone).__name__} that is no list of what ranks gave it"
        raise InputError(what, where="credit layer", fix="gather=all_ranks")
    there = {m[0].trace_id for m in everyone}
    if lost := [m.trace.trace_id for m in members if m.trace.trace_id not in there]:
        raise InputError("gather lost it", where=lost[0], fix="the items of every rank, this one's too: gather=all_ranks")
    return [_Member(*m) for m in everyone]


def _who(row: CreditRow, agents: dict[str, str]) -> str:
    """The agent that a unit is of, or the unit itself: what is the same in two rollouts."""
    name = row.unit_id
    if row.unit in ("team", "role", "agent"):
        return name
    return agents.get(name) or agents.get(name.rpartition("#")[0]) or name.rpartition("#")[0]


def _teaching(rollout: Rollout, reasons: Sequence[str | None]) -> tuple[tuple[str, Hashable], ...]:
    """The named calls that a rollout teaches, each with its task."""
    samples = [s for s, why in zip(rollout.samples, reasons, strict=True) if why is None]
    return tuple((rollout.task, call) for sample in samples for call in sample.calls or ())


def _ranks() -> int:
    """The ranks of torch.distributed; 1 where nobody began them."""
    ranks = sys.modules.get("torch.distributed")
    return ranks.get_world_size() if ranks is not None and ranks.is_available() and ranks.is_initialized() else 1
