"""Interventions: what a fork does to one event, carried into the engine by (episode, round, stage, agent, item).

Always true: an edit touches its own event and nothing before it; everything after it happens by the same rules as ever. An edit
that its event cannot take is one `InputError`, raised before anything runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.worlds.teamworld.action import DECISIONS, Action, Calls, Spawns
from counterpoint.lab.worlds.teamworld.config import FAMILIES, RULES, Config
from counterpoint.trace.replay import Delete, Do, Force, Insert, Substitute

# What can be edited: the decisions, a spawn or despawn, and the parts of a call.
STAGES = (*DECISIONS, "spawned", "despawned", "brief", "tool_call", "tool_result", "return", "safety", "insert")
NEUTRAL = "neutral"
"""As the value of a Substitute: the same event without what an adversary planted in its call."""
_FORCED = {
    "stop": {"stop"},
    "spawn": {"spawn", "family", "type", "parent"},
    "delegate": {"calls"},
    "communicate": {"brief", "full_return", "broadcast"},
    "aggregate": {"rule"},
}


@dataclass(frozen=True)
class Edit:
    """One intervention in one episode of a batch."""

    ep: int
    round: int
    stage: str
    do: Do
    slot: int = -1
    item: int = -1


def check_edit(config: Config, edit: Edit) -> None:
    """Whether the event can take this."""
    do, stage = edit.do, edit.stage
    if isinstance(do, Force):
        if stage not in _FORCED:
            raise InputError(f"a {stage} cannot be forced", fix="force a decision; delete or substitute a message")
        for name in do.action:
            if name not in _FORCED[stage]:
                raise InputError(f"a {stage} decision has no {name!r}", fix=did_you_mean(name, _FORCED[stage]))
        if "rule" in do.action and do.action["rule"] not in RULES:
            raise InputError(f"no rule {do.action['rule']!r}", fix=did_you_mean(str(do.action["rule"]), RULES))
    elif is_neutral(do):
        if stage not in ("brief", "tool_call", "tool_result", "return"):
            raise InputError(f"a {stage} cannot be made neutral", fix="a brief, tool call, tool result or return; else delete it")
    elif isinstance(do, Substitute):
        if stage not in ("brief", "tool_result", "return", "spawned"):
            raise InputError(f"a {stage} has no content to substitute", fix="force a decision; delete it")
        if do.value is None and stage not in ("tool_result", "return"):
            raise InputError(f"a {stage} cannot be resampled", fix="give a value")
        if do.draw < 1:
            raise InputError(f"draw is {do.draw}", fix="1 or more")
    elif isinstance(do, Insert):
        item = do.about.get("item")
        if not isinstance(item, int) or not 0 <= item < config.vote_items or do.value not in (0, 1):
            raise InputError(
                "an inserted message is a vote", fix='value 0 or 1, about={"item": a question, "family": "A" or "B"}'
            )
        if do.about.get("family", "A") not in FAMILIES:
            raise InputError(f"no family {do.about['family']!r}", fix="A or B")


def is_neutral(do: Do) -> bool:
    """Whether this takes back what was planted, and nothing else."""
    return isinstance(do, Substitute) and do.value == NEUTRAL


def find(edits: list[Edit], *stages: str) -> list[Edit]:
    """The edits of this round at some stages."""
    return [e for e in edits if e.stage in stages]


def edited_action(config: Config, action: Action, edits: list[Edit]) -> Action:
    """The action with decisions forced or turned into noops."""
    for edit in find(edits, *DECISIONS):
        forced: Mapping[str, Any] = edit.do.action if isinstance(edit.do, Force) else {}
        is_deleted = isinstance(edit.do, Delete)
        action = _EDITS[edit.stage](config, action, edit.ep, forced, is_deleted)
    return action


def _stop(config: Config, action: Action, ep: int, forced: Mapping[str, Any], is_deleted: bool) -> Action:
    stop = np.array(action.stop)
    stop[ep] = bool(forced.get("stop", stop[ep])) and not is_deleted
    if stop[ep]:  # a team that stops does nothing else in that round
        action = _delegate(config, _spawn(config, action, ep, {}, True), ep, {}, True)
    return replace(action, stop=stop)


def _spawn(config: Config, action: Action, ep: int, forced: Mapping[str, Any], is_deleted: bool) -> Action:
    s = action.spawns
    keep = s.ep != ep
    others = Spawns(s.ep[keep], s.number[keep], s.family[keep], s.type[keep], s.parent[keep])
    despawns = action.despawns
    if despawns is not None:
        stays = despawns[0] != ep
        despawns = (despawns[0][stays], despawns[1][stays])
    if is_deleted or not forced:
        return replace(action, spawns=others if is_deleted else s, despawns=despawns if is_deleted else action.despawns)
    family = FAMILIES.index(forced.get("family", "B"))
    new = Spawns.of(ep, int(forced.get("spawn", 0)), family, int(forced.get("type", 0)), int(forced.get("parent", 0)))
    joined = [np.concatenate([getattr(others, n), getattr(new, n)]) for n in ("ep", "number", "family", "type", "parent")]
    return replace(action, spawns=Spawns(*joined), despawns=despawns)


def _delegate(config: Config, action: Action, ep: int, forced: Mapping[str, Any], is_deleted: bool) -> Action:
    others = action.calls.where(action.calls.ep != ep)
    if is_deleted:
        return replace(action, calls=others)
    rows = [[*row, *(2, 0)[len(row) - 2 :]] for row in forced.get("calls", [])]
    new = [Calls.of(ep, *row) for row in rows]
    return replace(action, calls=Calls.joined([others, *new]))


def _communicate(config: Config, action: Action, ep: int, forced: Mapping[str, Any], is_deleted: bool) -> Action:
    calls = replace(action.calls, brief=action.calls.brief.copy())
    mine = calls.ep == ep
    if is_deleted or "brief" in forced:
        calls.brief[mine] = 0 if is_deleted else int(forced["brief"])

    def flag(name: str) -> np.ndarray:
        old = getattr(action, name)
        out = np.zeros(len(action.stop), np.bool_) if old is None else np.array(old)
        out[ep] = bool(forced.get(name, out[ep])) and not is_deleted
        return out

    return replace(action, calls=calls, full_return=flag("full_return"), broadcast=flag("broadcast"))


def _aggregate(config: Config, action: Action, ep: int, forced: Mapping[str, Any], is_deleted: bool) -> Action:
    if is_deleted:
        return action  # the engine leaves the draft as it is
    rule = np.zeros(len(action.stop), np.int64) if action.rule is None else np.array(action.rule)
    rule[ep] = RULES.index(forced["rule"]) if "rule" in forced else rule[ep]
    return replace(action, rule=rule)


_EDITS = {"stop": _stop, "spawn": _spawn, "delegate": _delegate, "communicate": _communicate, "aggregate": _aggregate}


def edited_calls(calls: Calls, edits: list[Edit]) -> Calls:
    """The calls without those whose brief never arrived, and with other briefs where they were substituted."""
    for edit in find(edits, "brief"):
        mine = (calls.ep == edit.ep) & (calls.agent == edit.slot) & (calls.item == edit.item)
        if isinstance(edit.do, Delete):
            calls = calls.where(~mine)
        elif isinstance(edit.do, Substitute) and not is_neutral(edit.do):
            calls = replace(calls, brief=np.where(mine, int(edit.do.value), calls.brief))
    return calls
