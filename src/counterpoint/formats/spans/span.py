"""Spans of any tracer, in one form: who did what, inside what, from when to when.

Dialects (OTLP, Jaeger, OpenInference, LangSmith, Langfuse, the OpenAI Agents SDK, Agent Lightning) are read into `Span`;
`trees.py` makes traces of them, so that an agent inside a tool is a sub-agent in every dialect.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from counterpoint.errors import InputError
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, compact, decode, string, text_of

Kind = Literal["agent", "llm", "tool", "handoff", "guardrail", "human", "retriever", "evaluator", "chain"]


@dataclass(slots=True)
class Span:
    """One span, normalised. What a dialect does not say stays None."""

    id: str
    trace: str
    """The tracer's own trace id; spans of one trace become one trace of ours."""
    parent: str | None = None
    name: str = ""
    kind: Kind = "chain"
    """`chain` is any wrapper that is none of the others: workflows, nodes, turns, HTTP."""
    start: float | None = None
    """Seconds since the epoch."""
    end: float | None = None
    """None while it runs, or where the source lost its end."""
    agent: str | None = None
    """On an agent span: its name. On others: the agent that acts, where the source says so without nesting."""
    agent_id: str | None = None
    """The agent instance, where the source has one; otherwise the agent span's own id is the instance."""
    definition: str | None = None
    """The id of what was configured, of which several instances may run; the agent itself where no agent span says more."""
    model: str | None = None
    usage: Usage | None = None
    """Only on spans that are one model call; sums on wrappers are for checking."""
    cost_usd: float | None = None
    input: str = ""
    output: str = ""
    tool: str | None = None
    call: str | None = None
    """The id of a tool call, where the model's answer and the tool's span share one."""
    to: str | None = None
    """On a handoff: the agent that control passes to."""
    ok: bool | None = None
    error: str | None = None
    verdict: str | None = None
    """On a guardrail: allow, deny, triggered, ..."""
    reward: dict[str, float] = field(default_factory=dict)
    """Scores that were attached to the span."""
    links: list[str] = field(default_factory=list)
    """Ids of spans that this one names as its cause, beside its parent."""
    order: int = 0
    """Place in the source, to break ties of time."""
    dialect: str | None = None
    """The system whose conventions it follows, where spans of several are read together."""
    host: str | None = None
    """The machine whose clock its times are, where the source names it."""
    extra: dict[str, Any] = field(default_factory=dict)
    """What else is worth keeping, by the source's name."""

    def talks(self, asked: Any, answered: Any, *, with_calls: bool = True) -> None:
        """Take in the last of what was asked and of what was answered, and the tools that the answer calls."""
        answer = last_answer(answered) if answered else LastAnswer("")
        self.input, self.output = last_request(asked) if asked else "", answer.text
        if answer.calls and with_calls:
            self.extra["tool_calls"] = [call._asdict() for call in answer.calls]


_HOSTS = ("host.id", "host.name", "k8s.node.name", "k8s.pod.uid", "k8s.pod.name", "container.id")


def host_of(resource: dict[str, Any]) -> str | None:
    """The machine that a resource names, by what OpenTelemetry calls it."""
    return next((name for key in _HOSTS if (name := string(resource.get(key)))), None)


def close_wrappers(spans: list[Span], wrappers: Set[str]) -> None:
    """Give each wrapper the beginning and the end of what is in it."""
    inside: dict[str, list[Span]] = {}
    for span in spans:
        if span.id not in wrappers:
            inside.setdefault(span.trace, []).append(span)
    for span in spans:
        held = inside.get(span.trace, [])
        if span.id not in wrappers or not held:
            continue
        starts = [s.start for s in held if s.start is not None]
        ends = [s.end for s in held if s.end is not None]
        span.start = min(starts, default=span.start)
        span.end = max(ends) if len(ends) == len(held) else None


# -- What a model was told --------------------------------------------------------------------------------------------
# What it said and which tools it called, in the shapes in which frameworks store messages.
#
# Known shapes: OpenAI chat and responses, Anthropic blocks, LangChain messages (plain and serialised), GenAI message parts, and
# LLM results with `generations`; each as an object or as JSON text.
#
# Always true: nothing here raises; a value of no known shape is its own text.

_HUMAN = frozenset({"user", "human"})
_CALL_PARTS = frozenset({"tool_call", "tool_use", "function_call", "tool-call"})
_RESULT_PARTS = frozenset({"tool_call_response", "tool_result", "function_call_output", "tool-result"})
_DEEP = 12


class ToolUse(NamedTuple):
    """A tool call inside a model's answer."""

    id: str | None
    name: str
    arguments: str


class LastAnswer(NamedTuple):
    """A model's answer."""

    text: str
    calls: tuple[ToolUse, ...] = ()


def opened(value: Any) -> Any:
    """The value itself, or what is in it where it is JSON text of an object or a list."""
    for _ in range(2):  # some exports encode twice
        if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "[", '"'):
            break
        try:
            value = decode(value)
        except InputError:
            break
    return value


def last_answer(value: Any) -> LastAnswer:
    """The last answer in a value: its words, and the tools it calls."""
    messages = _messages(opened(value), 0)
    last = messages[-1] if messages else opened(value)
    calls = tuple(_calls(last))
    words = _words(last) if messages or calls else text_of(last)
    return LastAnswer(words, calls)


def last_request(value: Any) -> str:
    """What the last human message in a value says; where there is none, the text of the value."""
    value = opened(value)
    messages = _messages(value, 0)
    human = [m for m in messages if _role(m) in _HUMAN]
    if human or messages:
        return _words((human or messages)[-1])
    task = as_dict(value).get("task")
    return task if isinstance(task, str) and task else text_of(value)


def _messages(value: Any, depth: int) -> list[dict[str, Any]]:
    """The messages in a value, flat, in order."""
    if depth > _DEEP:
        return []
    if isinstance(value, list):
        if value and all(isinstance(v, dict) and _is_block(v) for v in value):
            return [{"role": "assistant", "content": value}]
        return [m for part in value for m in _messages(opened(part) if isinstance(part, str) else part, depth + 1)]
    if not isinstance(value, dict):
        return []
    if "lc" in value and isinstance(value.get("kwargs"), dict):
        ids = as_list(value.get("id"))
        kind = str(ids[-1]).removesuffix("Chunk").removesuffix("Message").lower() if ids else ""
        return [{"type": kind, **value["kwargs"]}]
    if _role(value) and ("content" in value or "parts" in value or "tool_calls" in value):
        return [value]
    if isinstance(value.get("generations"), list):
        return [_generated(g) for row in value["generations"] for g in (row if isinstance(row, list) else [row])]
    for name in ("messages", "choices", "message", "output", "input"):
        inner = value.get(name)
        if isinstance(inner, (list, dict)) and (messages := _messages(inner, depth + 1)):
            return messages
    return []


def _generated(value: Any) -> dict[str, Any]:
    """One of a LangChain result's generations as a message."""
    got = as_dict(value)
    inner = as_dict(got.get("message"))
    inner = as_dict(inner["kwargs"]) if "kwargs" in inner else inner
    return {**inner, "role": "assistant", "content": got.get("text") or inner.get("content")}


def _is_block(part: dict[str, Any]) -> bool:
    kind = part.get("type")
    return "toolName" in part or ("role" not in part and isinstance(kind, str) and kind in _CALL_PARTS | {"text", "thinking"})


def _role(message: dict[str, Any]) -> str:
    role = message.get("role") or message.get("type")
    return role.lower() if isinstance(role, str) else ""


def _words(message: Any) -> str:
    """The words of one message, without its calls."""
    if not isinstance(message, dict):
        return text_of(message)
    content = message.get("content") if "content" in message else message.get("parts", message.get("text"))
    if not isinstance(content, list):
        return text_of(content)
    parts = [p for p in content if not (isinstance(p, dict) and (_is_call(p) or string(p.get("type")) in _RESULT_PARTS))]
    return "\n".join(text for text in map(text_of, parts) if text)


def _is_call(part: dict[str, Any]) -> bool:
    return string(part.get("type")) in _CALL_PARTS or "toolName" in part


def _calls(message: Any) -> list[ToolUse]:
    if not isinstance(message, dict):
        return []
    listed = as_list(message.get("tool_calls")) or as_list(as_dict(message.get("additional_kwargs")).get("tool_calls"))
    content = as_list(message.get("content")) or as_list(message.get("parts"))
    parts = [p for p in content if isinstance(p, dict) and _is_call(p)]
    if message.get("type") == "function_call":
        parts.append(message)
    return [call for one in [*listed, *([] if listed else parts)] if (call := _call(one)) is not None]


def _call(value: Any) -> ToolUse | None:
    got = as_dict(value)
    inner = as_dict(got.get("function"))
    name = string(inner.get("name")) or string(got.get("name")) or string(got.get("toolName"))
    if name is None:
        return None
    arguments = next((v for v in (inner.get("arguments"), *(got.get(k) for k in ("args", "arguments", "input"))) if v), "")
    id_ = string(got.get("id")) or string(got.get("call_id")) or string(got.get("tool_call_id")) or string(got.get("toolCallId"))
    return ToolUse(id_, name, compact(arguments))
