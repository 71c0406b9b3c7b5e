"""Google's Agent Development Kit: sessions as they are saved, a list of their events, or an event per line.

| record | becomes |
|---|---|
| event of `user` | `human_intervention`, which every agent of the session hears |
| event of an agent with text or calls | `orchestrator_decision`, with its tokens and a `tool_call` for each function call |
| function response | `tool_result` of the call of its id; without ids, of the oldest open call of that function (inferred) |
| `transfer_to_agent` | its call and result, and a `message` to the agent that it names |
| `error_code`, `error_message` | the failure of the step |

What is lost: state and artifacts, images, the steps of an agent that was called as a tool (it has a session of its own).

Always true: names are read in both of ADK's spellings (`invocation_id`, `invocationId`); a piece of a streamed answer
(`partial`) is no event, since the whole answer follows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from counterpoint.formats.draft import Draft
from counterpoint.formats.importer import Importer, Session, run_of
from counterpoint.formats.importing.dialogue import Answer, google_usage, require_half
from counterpoint.formats.importing.files import File, first_keys
from counterpoint.formats.importing.google_parts import parts_of
from counterpoint.formats.importing.lane import Lane
from counterpoint.formats.importing.usage import odd_counts
from counterpoint.formats.importing.values import as_dict, as_list, seconds, string
from counterpoint.trace import Trace

_CAMEL = tuple(f"{name}TokenCount" for name in ("prompt", "candidates", "cachedContent", "thoughts", "toolUsePrompt", "total"))
_SNAKE = tuple(
    f"{name}_token_count" for name in ("prompt", "candidates", "cached_content", "thoughts", "tool_use_prompt", "total")
)
_OWNED = (frozenset({"app_name", "user_id"}), frozenset({"appName", "userId"}), frozenset({"past_events", "current_agent_name"}))
_INVOCATION = frozenset({"invocation_id", "invocationId"})
_TURN = frozenset({"partial", "turn_complete", "turnComplete"})
_TRANSFERS = frozenset({"transfer_to_agent", "transfer_to_other_agent"})
_OLDEST = "the oldest open call of the function"


def _sniff(head: bytes) -> bool:
    if b'"events"' not in head and b'"author"' not in head:
        return False
    keys = first_keys(head).keys()
    if keys >= {"author", "content"} and (keys & _INVOCATION or keys & _TURN):
        return True
    return keys >= {"id", "events"} and any(keys >= owned for owned in _OWNED)


def _read(session: Session) -> Iterator[Trace]:
    for file in session.files:
        for about, events in _sessions(session, file):
            unknown: Counter[str] = Counter()
            reader = _Reader(session, about, events)
            for k, event in enumerate(events):
                if string(event.get("author")) is None:
                    unknown["an event without an author"] += 1
                else:
                    reader.event(event, f"e{k}", unknown)
            require_half(file.name, len(events), unknown)
            session.report.unknown.update(unknown)
            if not events:
                session.report.broke(file.name, None, "a session without events")
            yield from reader.traces()


def _sessions(session: Session, file: File) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Sessions, with what is said of each; events that stand alone are one."""
    loose: list[dict[str, Any]] = []
    for _, record in session.entries(file):
        if "author" in record:
            loose.append(record)
        else:
            events = record.get("events")
            past = [e for some in as_list(record.get("past_events")) for e in (some if isinstance(some, list) else [some])]
            yield record, [as_dict(event) for event in (*past, *as_list(events))]
    if loose:
        yield {}, loose


def _get(event: dict[str, Any], snake: str, camel: str) -> Any:
    return event.get(snake) if event.get(snake) is not None else event.get(camel)


class _Reader:
    """One session on its way to a trace."""

    def __init__(self, session: Session, about: dict[str, Any], events: list[dict[str, Any]]) -> None:
        name = string(about.get("id")) or f"google-adk-{run_of(*events)}"
        self.draft: Draft = session.draft(name, name, system="google-adk")
        if app := string(_get(about, "app_name", "appName")):
            self.draft.meta["project"] = app
        self.said: list[tuple[str, str]] = []
        """Who said what, as events that all agents hear."""
        self.met: dict[str, int] = {}
        self.open: dict[str, tuple[str, str, Lane]] = {}
        """Calls without a response: by name of the call, its event, its function and who called."""
        self.targets: dict[str, str] = {}
        """Calls that hand over, and to whom."""
        self.left_out: Counter[str] = Counter()
        self.steps = self.untold = 0

    def event(self, event: dict[str, Any], place: str, unknown: Counter[str]) -> None:
        author, name = str(event["author"]), string(event.get("id")) or place
        if event.get("partial") is True:
            self.left_out["pieces of streamed answers"] += 1
            return
        at = seconds(event.get("timestamp"))
        parts = parts_of(event.get("content") or {"parts": []}, unknown)
        if parts.images:
            self.left_out["images and files"] += parts.images
        if author == "user" and not parts.answers:
            by: dict[str, Any] = {"role": "user", "from_": "user", "source": "user", "trusted": True}
            made = self.draft.event("human_intervention", "user", id=name, at=at, text=parts.text, **by)
            self.said.append(("user", made))
            return
        for k, answer in enumerate(parts.answers):
            self._answer(answer, f"{name}:{k}", at)
        error = string(_get(event, "error_message", "errorMessage")) or string(_get(event, "error_code", "errorCode"))
        if author != "user" and (parts.text or parts.thinking or parts.calls or error):
            self._step(self.draft.lane(author, role=author, leads=True), event, name, at, parts, error)
        elif not parts.answers:
            self.left_out["events of state alone"] += 1

    def _step(self, lane: Lane, event: dict[str, Any], name: str, at: float | None, parts: Any, error: str | None) -> None:
        for speaker, made in self.said[self.met.get(lane.agent, 0) :]:
            if speaker != lane.agent:
                lane.hears(made, "message")
        self.met[lane.agent] = len(self.said)
        got = as_dict(_get(event, "usage_metadata", "usageMetadata"))
        names = _SNAKE if any(key in got for key in _SNAKE) else _CAMEL
        self.draft.report.note_odd_counts(odd_counts(got, names))
        usage = google_usage(got, names)
        self.steps, self.untold = self.steps + 1, self.untold + (usage is None)
        failed: dict[str, Any] = {"ok": False, "error": error} if error else {}
        step = lane.step(
            id=name,
            end=at,
            text=parts.text,
            thinking=parts.thinking,
            usage=usage,
            model=string(_get(event, "model_version", "modelVersion")),
            extra={"finish_reason": _get(event, "finish_reason", "finishReason"), "branch": event.get("branch")},
            **failed,
        )
        assert step is not None
        if parts.text:
            self.said.append((lane.agent, step))
        for k, call in enumerate(parts.calls):
            made = lane.call(call.tool, call.text, id=call.id or f"{name}.{k}", call=call.id or f"{name}.{k}", at=at)
            self.open[call.id or f"{name}.{k}"] = made, call.tool, lane
            if call.tool in _TRANSFERS:
                asked = as_dict(call.arguments)
                self.targets[made] = string(asked.get("agent_name")) or string(asked.get("agentName")) or ""

    def _answer(self, answer: Answer, name: str, at: float | None) -> None:
        call = answer.call
        if call not in self.open:
            call = next((key for key, (_, tool, _) in self.open.items() if tool == answer.tool), None) if call is None else None
            if call is not None:
                self.draft.report.linked(_OLDEST, exact=False)
        if call is None:
            self.draft.report.loose(f"response of {answer.tool or 'a function'} without a call")
            fields: dict[str, Any] = {"source": "tool", "trusted": False, "ok": answer.ok, "error": answer.error}
            self.draft.event("tool_result", "tool", id=name, at=at, text=answer.text, tool=answer.tool, **fields)
            return
        made, tool, lane = self.open.pop(call)
        lane.result(call, answer.text, at=at, id=f"{made}:result", tool=tool, ok=answer.ok, error=answer.error)
        if (target := self.targets.get(made)) and answer.ok is not False:
            self.draft.lane(target, role=target, leads=True)
            lane.send(target, at=at, id=f"{made}:transfer")

    def traces(self) -> Iterator[Trace]:
        if self.untold:
            self.draft.report.lacks["tokens" if self.untold == self.steps else "the tokens of some model calls"] += self.untold
        if self.left_out:
            self.draft.meta["left_out"] = dict(sorted(self.left_out.items()))
        yield from self.draft.traces()


google_adk = Importer(
    suffixes=(".session.json",),
    sniff=_sniff,
    signs=("author", "invocation_id", "invocationId", "app_name", "appName", "events"),
    system="google-adk",
    read_session=_read,
    becomes={
        "event of user": ("human_intervention",),
        "event of an agent": ("orchestrator_decision", "tool_call", "message"),
        "function response": ("tool_result",),
        "usage_metadata": ("tokens_in", "tokens_out"),
    },
    versions="unstated",
    exact="tokens, calls, transfers",
    lost="state, artifacts, steps of an agent called as a tool",
)
"""Sessions of Google's Agent Development Kit."""
