"""What both of Kimi's dialects are read into: one story per agent, of what it heard, its steps and the answers to its calls.

Always true: a story is in the order of its records; a step holds its calls, and a call knows its answer once `answered` has
run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import unescape
from typing import Any, Literal

from counterpoint.errors import InputError
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, count, decode, text_of

MAIN = "main"
"""The agent that the user speaks to; both dialects call it so, or leave it unnamed."""

_FIELD = re.compile(r"^(\w+): (.*)$")
_TAG = re.compile(r"<subagent\b([^>]*)>|</subagent>")
_ATTRIBUTE = re.compile(r'([\w-]+)="([^"]*)"')


@dataclass(slots=True)
class Answer:
    """What came back from a call."""

    call: str
    at: float | None
    text: str
    ok: bool | None
    of: StepCall | None = None


@dataclass(slots=True)
class StepCall:
    """A tool call of a step; `args` is JSON text, complete or not."""

    id: str
    name: str
    args: str = ""
    at: float | None = None
    answer: Answer | None = None

    def arguments(self) -> dict[str, Any]:
        """The arguments as an object, empty where they are torn."""
        try:
            return as_dict(decode(self.args)) if self.args else {}
        except InputError:
            return {}


@dataclass(slots=True)
class ModelStep:
    """One answer of the model."""

    id: str
    at: float | None
    text: str = ""
    thinking: str = ""
    calls: list[StepCall] = field(default_factory=list)
    usage: Usage | None = None
    model: str | None = None
    end: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def spend(self, usage: Usage, message: str | None) -> None:
        """Take in the tokens of the model's message; the same message told again is not counted again."""
        known = self.extra.setdefault("message_ids", [])
        if self.usage is None or (message is not None and message not in known):
            self.usage = usage if self.usage is None else self.usage.plus(usage)
            known.append(message)


@dataclass(slots=True)
class Incoming:
    """Words that came in: from a person, from the program around the agent, or of a task in the background."""

    id: str
    at: float | None
    text: str
    by: Literal["user", "system", "task"] = "user"
    task: str | None = None
    status: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Verdict:
    """A person or a hook let a call pass, or did not."""

    id: str
    at: float | None
    call: str | None
    by: str
    ok: bool
    text: str = ""
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class SideCall:
    """Tokens of a model call that is no step: compaction, a title."""

    id: str
    at: float | None
    usage: Usage
    model: str | None
    scope: str | None


@dataclass(slots=True)
class SubagentRecord:
    """A sub-agent that the session's state names, without the call that made it."""

    child: str
    at: float | None


@dataclass(slots=True)
class Stop:
    """The end of a turn."""

    at: float | None
    reason: str


Item = ModelStep | Incoming | Answer | Verdict | SideCall | SubagentRecord | Stop


@dataclass
class Story:
    """One agent."""

    agent: str
    role: str | None = None
    parent: str | None = None
    """Who made it, where the source says so."""
    made_by: str | None = None
    """The call that made it, where the source says so."""
    prompt: str | None = None
    """What it was first asked."""
    model: str | None = None
    created: float | None = None
    items: list[Item] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    turn: int = 0
    step: ModelStep | None = None
    last_call: StepCall | None = None

    def begin(self, id: str, at: float | None) -> ModelStep:
        """A new step."""
        self.step = ModelStep(id, at, model=self.model)
        self.items.append(self.step)
        return self.step

    def current(self, at: float | None) -> ModelStep:
        """The present step; one is made where its beginning was not recorded."""
        return self.step or self.begin(f"turn{self.turn}.step{len(self.items)}", at)

    def steps(self) -> list[ModelStep]:
        """Its steps, in order."""
        return [item for item in self.items if isinstance(item, ModelStep)]


def answered(story: Story) -> None:
    """Join answers and calls. Ids come again in long sessions, so an answer is to the latest open call of its id."""
    open_calls: dict[str, StepCall] = {}
    for item in story.items:
        if isinstance(item, ModelStep):
            open_calls.update({call.id: call for call in item.calls})
        elif isinstance(item, Answer) and (call := open_calls.pop(item.call, None)) is not None:
            item.of, call.answer = call, item


def words_of(content: Any) -> str:
    """The words of a message; of a picture or a sound there is only its kind, in brackets."""
    if not isinstance(content, list):
        return text_of(content)
    words = [text_of(part) if as_dict(part).get("type") in ("text", None) else f"[{part['type']}]" for part in content]
    return "\n".join(word for word in words if word)


def header(text: str) -> dict[str, str]:
    """The `key: value` lines that an answer of the Agent tool begins with."""
    fields: dict[str, str] = {}
    for line in text.split("\n"):
        if not (match := _FIELD.match(line)):
            break
        fields.setdefault(match[1], match[2].strip())
    return fields


@dataclass(slots=True)
class SwarmMember:
    """One `<subagent>` of an AgentSwarm's answer."""

    agent: str | None
    item: str | None
    outcome: str
    text: str
    is_resumed: bool
    has_started: bool


def members(text: str) -> list[SwarmMember]:
    """The sub-agents of an `<agent_swarm_result>`; what a sub-agent wrote may hold such tags itself."""
    listed: list[SwarmMember] = []
    depth, begin, attributes = 0, 0, ""
    for tag in _TAG.finditer(text):
        if tag[1] is None:
            depth -= 1
            if depth == 0:
                listed.append(_member(attributes, text[begin : tag.start()].strip()))
            depth = max(depth, 0)
        else:
            if depth == 0:
                attributes, begin = tag[1], tag.end()
            depth += 1
    return listed


def _member(attributes: str, text: str) -> SwarmMember:
    got = {name: unescape(value) for name, value in _ATTRIBUTE.findall(attributes)}
    has_started = got.get("state") != "not_started"
    return SwarmMember(
        got.get("agent_id"), got.get("item"), got.get("outcome", "unknown"), text, got.get("mode") == "resume", has_started
    )


def usage_of(value: Any) -> Usage | None:
    """Kimi's four counts, in the spelling of either dialect; input is their sum without the output."""
    got = as_dict(value)
    fresh = count(got.get("input_other", got.get("inputOther")))
    read = count(got.get("input_cache_read", got.get("inputCacheRead")))
    wrote = count(got.get("input_cache_creation", got.get("inputCacheCreation")))
    out = count(got.get("output"))
    if fresh is None and out is None:
        return None
    return Usage(fresh or 0, read or 0, wrote or 0, out or 0)
