"""What an invented agent does: think, call tools, speak, return; and what its lead decides.

Always true: an act starts when what it reads is over; each function adds events for one agent, one after another in time,
and returns `(when it is over, handle of the last event)`.
"""

from __future__ import annotations

from typing import Any

from counterpoint.envs.synthetic.script import Script
from counterpoint.trace.vocabulary import Decision, EdgeType

_TOOLS = ("web.search", "web.fetch", "python", "files.read", "web.search", "db.query", "python", "files.read")
_FROM_OUTSIDE = frozenset(("web.search", "web.fetch"))
_ERRORS = ("timeout", "not found", "rate limited", "bad arguments")
# Natural logarithms of 0.95, 0.8, 0.6, 0.4 and 0.2, written out so that no library computes them.
_LOGPS = (-0.0513, -0.2231, -0.5108, -0.9163, -1.6094)
_OPTIONS: dict[Decision, tuple[str, ...]] = {
    "spawn": ("spawn", "delegate", "stop", "noop"),
    "delegate": ("delegate", "spawn", "noop"),
    "communicate": ("communicate", "noop"),
    "aggregate": ("aggregate", "spawn", "noop"),
    "stop": ("stop", "spawn", "noop"),
    "noop": ("noop", "stop", "spawn"),
}


class Actor:
    """One agent instance: its name, role, sub-task and place in the spawn tree, and how far it has come."""

    __slots__ = ("alarm", "asked", "calls", "item", "model", "name", "number", "path", "role", "task", "tool", "tries", "turn")

    def __init__(self, name: str, role: str, number: int, *, path: str = "", model: str = "atlas-small") -> None:
        self.name, self.role, self.number, self.model = name, role, number, model
        self.path = f"{path}/{name}" if path else name
        self.task = f"task-{number}"
        self.turn = self.item = self.tries = self.asked = 0
        self.tool, self.alarm = "", -1
        self.calls: list[tuple[int, int]] = []
        """Start and handle of each tool call."""


def lead(name: str = "orchestrator", role: str = "lead") -> Actor:
    """The agent that decides for the team."""
    return Actor(name, role, 0, model="atlas-large")


def _thought(script: Script, actor: Actor, tokens_in: int, tokens_out: int) -> dict[str, Any]:
    price = script.price(tokens_in, tokens_out)
    return {"tokens_in": tokens_in, "tokens_out": tokens_out, "cost_usd": price, "model": actor.model}


def decide(
    script: Script, who: Actor, at: int, decision: Decision, reads: list[tuple[int, EdgeType]], **fields: Any
) -> tuple[int, int]:
    """An orchestration decision, with what was offered and how likely the choice was."""
    w = script.dice.word()
    dur = 250 + (w & 511)
    handle = script.add(
        at,
        "orchestrator_decision",
        who.name,
        dur,
        role=who.role,
        content_ref=script.ref("stop" if decision == "stop" else "plan", who.number),
        turn=who.turn,
        decision=decision,
        options=list(_OPTIONS[decision]),
        logp=_LOGPS[(w >> 9) % 5],
        policy="atlas-large@3",
        key=f"{who.path}/{decision}/{who.asked}/0",
        **_thought(script, who, 400 + 60 * who.turn + (w >> 16 & 1023), 20 + (w >> 26 & 63)),
        **fields,
    )
    who.turn, who.asked = who.turn + 1, who.asked + 1
    for src, kind in reads:
        script.edge(src, handle, kind)
    return at + dur, handle


def spawn(script: Script, who: Actor, child: Actor, at: int, decision: int, dur: int = 20) -> tuple[int, int]:
    """`who` brings `child` to life, as decided."""
    handle = script.add(
        at,
        "spawn",
        who.name,
        dur,
        role=child.role,
        to=child.name,
        content_ref=script.ref("spawn", child.number),
        task=child.task,
        key=child.path,
    )
    script.edge(decision, handle, "causal")
    return at + dur, handle


def work(script: Script, who: Actor, at: int, last: int, kind: EdgeType, count: int) -> tuple[int, int]:
    """`count` steps (a tool call and its result) one after another; the first reads `last` by an edge of `kind`."""
    word, ref, begin = script.dice.word, script.ref, at
    name, role, task, number = who.name, who.role, who.task, who.number
    for step in range(script.steps_done, script.steps_done + count):
        w = word()
        is_bad = step in script.incidents
        tool = who.tool = "web.fetch" if is_bad else who.tool if who.tries else _TOOLS[w & 7]
        think, wait = 300 + 64_000 // (16 + (w >> 3 & 1023)), 60 + 256_000 // (16 + (w >> 13 & 1023))
        tokens_in, tokens_out = 600 + min(who.turn, 120) * 150 + (w >> 23 & 255), 30 + (w >> 31 & 127)
        call = script.add(
            at, "tool_call", name, think, role=role, tool=tool, content_ref=ref("call", number), tokens_in=tokens_in,
            tokens_out=tokens_out, cost_usd=script.price(tokens_in, tokens_out), model=who.model, turn=who.turn, task=task,
            key=f"{who.path}/{tool}/{who.item}/{who.tries}",
        )  # fmt: skip
        script.edge(last, call, kind)
        _heed(script, who, call)
        who.calls.append((at, call))
        at += think
        is_ok = is_bad or (w >> 38 & 63) > 1
        is_outside = tool in _FROM_OUTSIDE
        last = script.add(
            at, "tool_result", name, wait, role=role, tool=tool, trusted=not is_outside, turn=who.turn, task=task, ok=is_ok,
            content_ref=ref("injection" if is_bad else "result" if is_ok else "error", number),
            error=None if is_ok else _ERRORS[w >> 44 & 3], source="tool" if is_outside else None,
        )  # fmt: skip
        script.edge(call, last, "tool_dependency")
        at, kind, who.turn = at + wait, "causal", who.turn + 1
        who.item, who.tries = (who.item + 1, 0) if is_ok or who.tries else (who.item, 1)
        script.failed_calls += not is_ok
        if is_bad:
            _alarm(script, who, at, last)
    script.steps_done += count
    script.busy += at - begin
    return at, last


def _alarm(script: Script, who: Actor, at: int, result: int) -> None:
    """The guard's note that a tool result held an instruction; it takes no time of the agent's."""
    who.alarm = script.add(
        at,
        "safety_event",
        who.name,
        0,
        role=who.role,
        content_ref=script.ref("safety", who.number),
        trusted=False,
        source="tool",
        task=who.task,
        ok=False,
        error="instruction in tool output",
    )
    script.edge(result, who.alarm, "safety_flow")


def _heed(script: Script, who: Actor, act: int) -> None:
    """The agent's next act after an alarm has read it."""
    if who.alarm >= 0:
        script.edge(who.alarm, act, "safety_flow")
        who.alarm = -1


def say(
    script: Script, who: Actor, to: Actor, at: int, purpose: str, reads: list[tuple[int, EdgeType]], **fields: Any
) -> tuple[int, int]:
    """A message from one agent to another."""
    w = script.dice.word()
    dur = 200 + 32_000 // (16 + (w & 511))
    handle = script.add(
        at,
        "message",
        who.name,
        dur,
        role=who.role,
        from_=who.name,
        to=to.name,
        content_ref=script.ref(purpose, who.number),
        trusted=True,
        turn=who.turn,
        task=who.task,
        **_thought(script, who, 300 + 80 * min(who.turn, 120) + (w >> 9 & 255), 40 + (w >> 17 & 127)),
        **fields,
    )
    who.turn += 1
    _heed(script, who, handle)
    for src, kind in reads:
        script.edge(src, handle, kind)
    return at + dur, handle


def report(script: Script, who: Actor, to: Actor, at: int, last: int, reads: list[tuple[int, EdgeType]]) -> int:
    """Two agents in five report before they return; noted in `reads` for the agent that hears it. Gives when it is over."""
    if script.dice.below(5) < 2:
        at, message = say(script, who, to, at, "message", [(last, "causal")])
        reads.append((message, "message"))
    return at


def give_back(script: Script, who: Actor, to: Actor, at: int, last: int, kind: EdgeType = "causal") -> tuple[int, int]:
    """The agent's result goes to its spawner; what it was worth by itself is paid on it."""
    w = script.dice.word()
    dur = 300 + (w & 1023)
    handle = script.add(
        at,
        "return",
        who.name,
        dur,
        role=who.role,
        from_=who.name,
        to=to.name,
        content_ref=script.ref("return", who.number),
        trusted=True,
        turn=who.turn,
        task=who.task,
        ok=True,
        reward={"individual": (w >> 10) % 101 / 100},
        **_thought(script, who, 500 + 100 * min(who.turn, 120) + (w >> 18 & 255), 80 + (w >> 26 & 255)),
    )
    _heed(script, who, handle)
    script.edge(last, handle, kind)
    return at + dur, handle


def aggregate(script: Script, who: Actor, at: int, reads: list[tuple[int, EdgeType]]) -> tuple[int, int]:
    """What came back is merged into one answer."""
    w = script.dice.word()
    dur = 500 + 12 * min(len(reads), 200) + (w & 1023)
    handle = script.add(
        at,
        "aggregate",
        who.name,
        dur,
        role=who.role,
        content_ref=script.ref("aggregate", who.number),
        turn=who.turn,
        **_thought(script, who, 400 + 90 * len(reads), 120 + (w >> 10 & 255)),
    )
    who.turn += 1
    for src, kind in reads:
        script.edge(src, handle, kind)
    return at + dur, handle


def despawn(script: Script, who: Actor, team: list[Actor], at: int, after: int) -> int:
    """The agents that are done are ended, one after another; when the last is."""
    for child in team:
        handle = script.add(at, "despawn", who.name, 2, role=child.role, to=child.name, task=child.task)
        script.edge(after, handle, "temporal")
        at += 2
    return at
