"""Whose tokens the totals of a Copilot session are.

An `assistant.message` states what it wrote. What went in stands in `session.shutdown` alone, for each model (and agent, in newer
versions); the input includes the cache. It goes to the last step of that model, as `tokens_of: the run`, without what its steps
stated. `assistant.usage`, which printed streams have, is exact for each call.

A shutdown of a session that was resumed replaces an earlier one where it holds it: each number is as large, and it wrote as
much as all messages so far. Else it counts from the resumption on, and is added.

Always true: the tokens of a trace are those of its shutdowns, or more where its messages state more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from counterpoint.formats.draft import Draft
from counterpoint.formats.importing.dialogue import MAIN, Dialogue, Entry
from counterpoint.formats.importing.usage import Usage, odd_counts
from counterpoint.formats.importing.values import as_dict, count, string

_COUNTS = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens", "reasoningTokens")
_NO_END = "what went into the model: it is stated at the end of a session, and there is none"
_ONLY_OUTPUT = {"tokens_stated": "output"}
Totals = dict[tuple[str | None, str], Usage]
"""Agent (None for all together) and model to tokens."""


def usage_of(got: dict[str, Any]) -> Usage | None:
    """Tokens in Copilot's spelling: the input includes the cache."""
    into, out, read, wrote, thought = (got.get(name) for name in _COUNTS)
    return Usage.whole(into, out, cached=read, written=wrote, reasoning=thought)


class RunTotals:
    """What the events of one session say about tokens."""

    def __init__(self) -> None:
        self.totals: Totals = {}
        self.odd = 0
        self._ended: float | None = None
        self._start: Any = None
        self._written: dict[int, int] = {}
        """Identity of a step to what it wrote, as its messages state."""
        self._is_exact: set[int] = set()
        self._waiting: dict[str, Usage] = {}

    def wrote(self, agent: str, step: Entry, data: dict[str, Any]) -> None:
        """A message of a step: the parts of one API call state the same number."""
        out = count(data.get("outputTokens"))
        self.odd += odd_counts(data, ("outputTokens",))
        if out is not None:
            self._written[id(step)] = max(out, self._written.get(id(step), 0))
        if agent in self._waiting:
            step.usage = self._waiting.pop(agent)
            self._is_exact.add(id(step))

    def called(self, agent: str, step: Entry | None, data: dict[str, Any]) -> None:
        """The usage of one call: of the agent's last step, or of the next where that has its own."""
        usage = usage_of(data)
        self.odd += odd_counts(data, _COUNTS)
        if usage is None:
            return
        if step is None or id(step) in self._is_exact:
            before = self._waiting.get(agent)
            self._waiting[agent] = before.plus(usage) if before else usage
            return
        step.usage, step.model = usage, string(data.get("model")) or step.model
        self._is_exact.add(id(step))

    def closed(self, data: dict[str, Any], at: float | None) -> None:
        """A shutdown."""
        found = self._of(data)
        if not found:
            return
        start, self._ended = data.get("sessionStartTime"), at
        holds = all(
            key in found and all(a >= b for a, b in zip(found[key], usage, strict=True)) for key, usage in self.totals.items()
        )
        if self._written:
            holds = holds and sum(usage.output for usage in found.values()) >= sum(self._written.values())
        else:
            holds = holds and start == self._start
        if self.totals and not holds:
            for key, usage in self.totals.items():
                found[key] = found[key].plus(usage) if key in found else usage
        self.totals, self._start = found, start

    def _of(self, data: dict[str, Any]) -> Totals:
        """The totals of a shutdown: for each agent where these sum up to those of the session, else of all together."""
        found = self._models(None, data)
        agents: Totals = {}
        for agent, metrics in as_dict(data.get("agentMetrics")).items():
            agents.update(self._models(agent, as_dict(metrics)))
        together: dict[str, Usage] = {}
        for (_, model), usage in agents.items():
            together[model] = together.get(model, Usage()).plus(usage)
        return agents if agents and together == {model: usage for (_, model), usage in found.items()} else found

    def _models(self, agent: str | None, data: dict[str, Any]) -> Totals:
        out: Totals = {}
        for model, metric in as_dict(data.get("modelMetrics")).items():
            got = as_dict(as_dict(metric).get("usage"))
            self.odd += odd_counts(got, _COUNTS)
            if usage := usage_of(got):
                out[agent, model] = usage
        return out

    def settle(self, draft: Draft, dialogues: dict[str, Dialogue], owner: dict[str, str]) -> None:
        """Put the tokens on the steps."""
        draft.report.note_odd_counts(self.odd)
        steps = [(d.agent, e) for d in dialogues.values() for e in d.entries if e.role == "assistant"]
        for _, step in steps:
            if step.usage is None and (out := self._written.get(id(step))) is not None:
                step.usage, step.extra = Usage(output=out), {**step.extra, **_ONLY_OUTPUT}
        if not self.totals:
            partly = sum("tokens_stated" in step.extra for _, step in steps)
            draft.report.lacks.update({_NO_END: partly} if partly else {})
        self._name_models([step for _, step in steps])
        for (agent, model), total in self.totals.items():
            lane = None if agent is None else MAIN if agent == MAIN else owner.get(agent, agent)
            mine = [e for name, e in steps if e.model == model and lane in (None, name)]
            rest = _without(total, (e.usage for e in mine if e.usage))
            if not rest:
                continue
            if not mine:
                place = dialogues.get(lane or MAIN) or dialogues[MAIN]
                mine = [Entry("assistant", "", f"tokens:{agent or 'run'}:{model}", self._ended, model=model)]
                place.entries += mine
            last = mine[-1]
            last.usage = last.usage.plus(rest) if last.usage else rest
            last.extra = {**{k: v for k, v in last.extra.items() if k != "tokens_stated"}, "tokens_of": "the run"}

    def _name_models(self, steps: list[Entry]) -> None:
        """Steps that state no model have the one that no step states, where there is one such."""
        models = dict.fromkeys(model for _, model in self.totals)
        unmet = [model for model in models if not any(step.model == model for step in steps)]
        only = unmet if len(unmet) == 1 else list(models) if len(models) == 1 else []
        for step in steps:
            if step.model is None and only:
                step.model = only[0]

    def forget_inputs(self, draft: Draft) -> None:
        """What went into a call that states only what it wrote is not 0, and its price is not known where no total has it."""
        for row in draft.rows.values():
            if row.get("extra", {}).get("tokens_stated") == "output":
                row.pop("tokens_in", None)
                if not self.totals:
                    row.pop("cost_usd", None)


def _without(total: Usage, stated: Iterable[Usage]) -> Usage:
    """What is left of a total when what the steps state is taken out; nothing is less than none."""
    for usage in stated:
        total = Usage(*(max(a - b, 0) for a, b in zip(total, usage, strict=True)))
    return total
