"""Claude managed agents: the events of a session, as the sessions API lists them, with those of its threads.

| event | becomes |
|---|---|
| `user.message`, `user.define_outcome`, `user.tool_confirmation`, `user.interrupt` | `human_intervention` |
| what an agent says and calls in one model request | one `orchestrator_decision` with a `tool_call` each |
| `agent.tool_result`, `agent.mcp_tool_result`, `user.custom_tool_result` | `tool_result` |
| `session.thread_created` | `spawn` |
| `agent.thread_message_sent`, `agent.thread_message_received` | `message`, `return` |
| `span.outcome_evaluation_end` | a step of the grader, and the reward `outcome` |

Read are pages (`{"data": [...]}`), lists and lines of events, also with the session and its threads beside them. A file with the
id of a thread in its name holds that thread's events, and belongs to the other files of its folder.

Tokens: `span.model_request_end`, once for each request; what the session states beyond them is told as missing.

What is lost: what the model thought, statuses and phases (counted in `left_out`), images, the events of threads not exported.

Always true: an event's id is read once; a model request without a word is a step, as it cost tokens.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from counterpoint.formats.importer import Importer, Session, run_of
from counterpoint.formats.importing.chat import arguments_text
from counterpoint.formats.importing.dialogue import MAIN, require_half
from counterpoint.formats.importing.files import File, first_keys
from counterpoint.formats.importing.lane import Lane
from counterpoint.formats.importing.usage import ANTHROPIC, Usage, odd_counts
from counterpoint.formats.importing.values import as_dict, as_list, number, seconds, string, text_of
from counterpoint.trace import Trace

_TYPE = re.compile(
    rb'"type"\s*:\s*"(?:user\.(?:message|interrupt|define_outcome|tool_confirmation|custom_tool_result)|session\.(?:status_|thread_)'
    rb"|agent\.(?:message|thinking|(?:custom_|mcp_)?tool_|thread_)|span\.(?:model_request|outcome_evaluation)_)"
)
_THREAD = re.compile(r"(?:^|/)([^/]*?)(s(?:es)?thr_[A-Za-z0-9]+|thread_[A-Za-z0-9]+)[^/]*$")
_NOTED = re.compile(
    r"^(?:agent\.thinking|session\.(?:status_|thread_status_|updated|deleted|usage)|workflow_run\.|span\.\w+_ongoing)"
)
_CALLED = ("tool_use_id", "mcp_tool_use_id", "custom_tool_use_id")
_JUDGED = {"satisfied": 1.0, "needs_revision": 0.0, "max_iterations_reached": 0.0, "failed": 0.0}
_LESS = "tokens that the session states and none of its model requests does"
_GRADER = "grader"


def _sniff(head: bytes) -> bool:
    keys = first_keys(head)
    if b'"processed_at"' not in head or _TYPE.search(head) is None:
        return False
    return keys.keys() >= {"id", "type"} or "data" in keys or "events" in keys


def _group(files: Sequence[File]) -> Iterable[Session]:
    """A file is a session, unless files of threads lie beside it: those and what is in their folder are one."""
    with_threads = {f.name.rpartition("/")[0] for f in files if _THREAD.search(f.name)}
    groups: dict[str, list[File]] = {}
    for file in files:
        folder = file.name.rpartition("/")[0]
        groups.setdefault(folder if folder in with_threads else file.name, []).append(file)
    return [Session(name, sorted(some, key=lambda f: bool(_THREAD.search(f.name)))) for name, some in groups.items()]


def _read(session: Session) -> Iterator[Trace]:
    reader = _Reader(session)
    for file in session.files:
        match = _THREAD.search(file.name)
        for value in session.documents(file):
            reader.document(value, match[2] if match else MAIN)
    yield from reader.traces()


class _Reader:
    """One session on its way to a trace."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.events: dict[str, tuple[str, dict[str, Any]]] = {}
        """Event id to its thread and itself."""
        self.about: dict[str, Any] = {}
        self.models: dict[str, str] = {}
        self.parents: dict[str, str] = {}
        self.primary: set[str] = {MAIN}
        self.own: set[str] = set()
        """Threads whose own events are here."""
        self.steps: dict[str, str | None] = {}
        """Thread to the step of its open request."""
        self.filled: dict[str, list[str]] = {}
        """Step to the words in it."""
        self.asked: dict[str, float] = {}
        self.left_out: Counter[str] = Counter()

    def document(self, value: Any, thread: str) -> None:
        """Take in a page, a list, an event, a session or a thread."""
        if isinstance(value, list):
            for one in value:
                self.document(one, thread)
            return
        got = as_dict(value)
        if got.get("type") == "session":
            self.about = got
            self._model(MAIN, got)
        elif got.get("type") == "session_thread":
            self._thread(got)
        elif "type" in got:
            name = string(got.get("id")) or f"event{len(self.events)}"
            self.own.add(thread)
            self.events.setdefault(name, (thread, got))
        else:
            for part in ("session", "threads", "data", "events"):
                self.document(got.get(part) or [], thread)

    def _thread(self, thread: dict[str, Any]) -> None:
        name, parent = string(thread.get("id")), string(thread.get("parent_thread_id"))
        if name is not None and parent is not None:
            self._model(name, thread)
            self.parents[name] = parent
        elif name is not None:
            self.primary.add(name)
            self._model(MAIN, thread)

    def _model(self, thread: str, holder: dict[str, Any]) -> None:
        model = as_dict(holder.get("agent")).get("model")
        if name := string(model) or string(as_dict(model).get("id")):
            self.models.setdefault(thread, name)

    def traces(self) -> Iterator[Trace]:
        first = next(iter(self.events), "")
        name = string(self.about.get("id")) or f"managed-{run_of(first)}"
        self.draft = self.session.draft(name, name, system="claude-managed-agents")
        self.draft.lane(MAIN, role=string(as_dict(self.about.get("agent")).get("name")), leads=True)
        unknown: Counter[str] = Counter()
        rows = sorted(self.events.items(), key=lambda row: seconds(row[1][1].get("processed_at")) or float("inf"))
        for id_, (thread, event) in rows:
            named = string(event.get("session_thread_id"))
            thread = (
                MAIN if (named or thread) in self.primary else named if named and "thread" not in str(event["type"]) else thread
            )
            if not self._event(self.draft.lane(thread), thread, id_, event):
                unknown[str(event.get("type"))] += 1
        require_half(self.session.files[0].name, len(rows), unknown)
        self.session.report.unknown.update(unknown)
        self._settle()
        yield from self.draft.traces()

    def _event(self, lane: Lane, thread: str, id_: str, event: dict[str, Any]) -> bool:
        """Put an event down; False where its kind is not known."""
        kind, at = str(event.get("type")), seconds(event.get("processed_at"))
        if kind.startswith("agent.") and kind.endswith("tool_use"):
            self._open(lane, thread, id_, at)
            server = string(event.get("mcp_server_name"))
            tool = string(event.get("name")) or "unnamed"
            lane.call(
                f"{server}.{tool}" if server else tool, arguments_text(event.get("input")), call=id_, id=f"{id_}:call", at=at
            )
            self._fill(thread, "")
        elif kind.endswith("tool_result"):
            self._result(lane, thread, event, at)
        elif kind == "agent.message":
            self._open(lane, thread, id_, at)
            self._fill(thread, _words(event))
        elif kind.startswith("span.model_request"):
            self._request(lane, thread, id_, event, at)
        elif kind.startswith(("user.", "system.")):
            return self._told(lane, thread, kind, id_, event, at)
        elif kind.startswith(("session.thread_created", "agent.thread_")):
            return self._between(lane, thread, kind, id_, event, at)
        elif kind.startswith("span.outcome_evaluation") and not kind.endswith("ongoing"):
            self._judged(kind, id_, event, at)
        elif kind == "session.error":
            self._failed(
                lane, id_, text_of(as_dict(event.get("error")).get("message") or as_dict(event.get("error")).get("type")), at
            )
        elif _NOTED.match(kind):
            self._note(lane, thread, kind, event)
        else:
            return False
        return True

    # -- model requests --------------------------------------------------------------------------------------------------

    def _open(self, lane: Lane, thread: str, id_: str, at: float | None) -> str:
        step = self.steps.get(thread)
        if step is None:
            start = self.asked.pop(thread, None)
            made = lane.step(id=id_, at=start, end=at, model=self.models.get(thread))
            assert made is not None
            step = self.steps[thread] = made
        return step

    def _fill(self, thread: str, text: str) -> None:
        step = self.steps[thread]
        assert step is not None
        words = self.filled.setdefault(step, [])
        words.append(text)
        self.draft.set(step, text="\n".join(filter(None, words)))

    def _within(self, lane: Lane, thread: str, id_: str, at: float | None) -> None:
        """What an agent does during a model request is that request's step."""
        if thread in self.asked or self.steps.get(thread):
            self._open(lane, thread, f"{id_}:step", at)
            self._fill(thread, "")

    def _request(self, lane: Lane, thread: str, id_: str, event: dict[str, Any], at: float | None) -> None:
        if event["type"] == "span.model_request_start":
            self.steps[thread] = None
            if at is not None:
                self.asked[thread] = at
            return
        step = self._open(lane, thread, string(event.get("model_request_start_id")) or id_, at)
        got = as_dict(event.get("model_usage"))
        self.draft.report.note_odd_counts(odd_counts(got, ANTHROPIC))
        failed: dict[str, Any] = {"ok": False, "error": "the model request failed"} if event.get("is_error") is True else {}
        self.draft.set(step, end=at, usage=Usage.anthropic(got), **failed)
        if step in self.filled or failed:
            self.steps[thread] = None

    def _result(self, lane: Lane, thread: str, event: dict[str, Any], at: float | None) -> None:
        call = next((c for key in _CALLED if (c := string(event.get(key)))), None)
        lane = next((one for one in self.draft.lanes.values() if call is not None and one.called(call)), lane)
        self.steps[lane.agent] = None
        failed, text = event.get("is_error"), _words(event)
        ok = not failed if isinstance(failed, bool) else None
        if call is None or lane.called(call) is None:
            self.draft.report.loose(f"answer {call or '?'} without a call")
        lane.result(call, text, at=at, id=string(event.get("id")), ok=ok, error=(text[:500] or "error") if ok is False else None)

    # -- people, threads, graders ----------------------------------------------------------------------------------------

    def _told(self, lane: Lane, thread: str, kind: str, id_: str, event: dict[str, Any], at: float | None) -> bool:
        self.steps[thread] = None
        if kind == "system.message":
            lane.prompt(_words(event), by="system", source="system", id=id_, at=at)
        elif kind in ("user.message", "user.define_outcome"):
            lane.prompt(_words(event) or text_of(event.get("description") or ""), id=id_, at=at)
        elif kind == "user.tool_confirmation":
            text = ": ".join(filter(None, (string(event.get("result")), string(event.get("deny_message")))))
            lane.prompt(text, id=id_, at=at, extra={"confirms": event.get("tool_use_id")})
        elif kind == "user.interrupt":
            lane.prompt("", id=id_, at=at, extra={"is_interrupt": True})
        else:
            return False
        return True

    def _between(self, lane: Lane, thread: str, kind: str, id_: str, event: dict[str, Any], at: float | None) -> bool:
        """What passes between threads: told by the thread that made the other one, and again by the other, which is left out."""
        role = string(event.get("to_agent_name")) or string(event.get("from_agent_name")) or string(event.get("agent_name"))
        other = next((t for n in ("session", "to_session", "from_session") if (t := string(event.get(f"{n}_thread_id")))), None)
        if kind == "agent.thread_context_compacted":
            self.steps[thread] = None
            lane.prompt("", by="client", source="system", id=id_, at=at, extra={"is_compaction": True})
        elif other is None:
            return False
        elif kind == "session.thread_created":
            if other not in self.primary:
                self._within(lane, thread, id_, at)
                lane.spawn(other, role=role, name=role, id=id_, at=at)
                self.draft.report.linked("the thread that the session states")
        elif other in self.primary or other == self.parents.get(thread):
            if other in self.primary and MAIN not in self.own and kind.endswith("received"):
                lane.prompt(_words(event), by="coordinator", source="system", id=id_, at=at)
            else:
                self.left_out[kind] += 1
        elif kind == "agent.thread_message_sent":
            self.draft.lane(other, role=role, name=role)
            self._within(lane, thread, id_, at)
            lane.send(other, _words(event), id=id_, at=at)
        else:
            self.steps[thread] = None
            self.draft.lane(other, role=role, name=role).returns(lane.agent, _words(event), id=id_, at=at)
            self.steps[other] = None
        return True

    def _judged(self, kind: str, id_: str, event: dict[str, Any], at: float | None) -> None:
        if kind.endswith("_start"):
            if at is not None:
                self.asked[_GRADER] = at
            return
        lane, main = self.draft.lane(_GRADER, role=_GRADER), self.draft.lane(MAIN)
        if main.last is not None:
            lane.hears(main.last, "message")
        result = string(event.get("result"))
        usage, extra = Usage.anthropic(event.get("usage")), {"result": result, "iteration": event.get("iteration")}
        step = lane.step(
            id=id_,
            at=self.asked.pop(_GRADER, None),
            end=at,
            text=text_of(event.get("explanation") or ""),
            usage=usage,
            extra=extra,
        )
        if result in _JUDGED:
            self.draft.rewards["outcome"] = _JUDGED[result]
        if step is not None and result == "needs_revision":
            main.hears(step, "message")

    def _failed(self, lane: Lane, id_: str, text: str, at: float | None) -> None:
        lane.prompt(text, by="client", source="system", id=id_, at=at, ok=False, error=text[:500] or "error")

    def _note(self, lane: Lane, thread: str, kind: str, event: dict[str, Any]) -> None:
        self.left_out[kind] += 1
        reason = string(as_dict(event.get("stop_reason")).get("type"))
        if kind == "session.status_idle" and reason and lane.last and self.draft.rows[lane.last]["type"] == "step":
            self.draft.set(lane.last, extra={"finish_reason": reason})
        if kind == "session.usage":
            self.about = {**self.about, "usage": event.get("usage")}

    def _settle(self) -> None:
        """What the session states of itself."""
        self.draft.lane(MAIN).stops()
        total = Usage.anthropic(self.about.get("usage"))
        stated = sum((row.get("tokens_in") or 0) + (row.get("tokens_out") or 0) for row in self.draft.rows.values())
        if total and total.input + total.output > stated:
            self.draft.report.lacks[_LESS] += total.input + total.output - stated
        elif not total and not stated:
            self.draft.report.lacks["tokens"] += 1
        cost = as_dict(as_dict(self.about.get("usage")).get("list_cost"))
        if str(cost.get("currency", "usd")).lower() == "usd" and (cents := number(cost.get("amount"))):
            self.draft.costs["cost_usd"] = cents / 100
        if title := string(self.about.get("title")):
            self.draft.meta["title"] = title
        if self.left_out:
            self.draft.meta["left_out"] = dict(sorted(self.left_out.items()))


def _words(event: dict[str, Any]) -> str:
    parts = [p for p in as_list(event.get("content")) if as_dict(p).get("type") not in ("image", "document", "redacted")]
    content = event.get("content")
    return content if isinstance(content, str) else "\n".join(filter(None, map(text_of, parts)))


managed_agents = Importer(
    suffixes=(".session-events.json",),
    sniff=_sniff,
    signs=("processed_at", "model_usage", "model_request_start_id", "session_thread_id", "tool_use_id", "stop_reason"),
    system="claude-managed-agents",
    group=_group,
    read_session=_read,
    rank=1,
    becomes={
        "user.message, user.define_outcome, user.tool_confirmation, user.interrupt": ("human_intervention",),
        "agent.message, agent.tool_use, span.model_request_end": ("orchestrator_decision", "message", "aggregate", "tool_call"),
        "agent.tool_result, user.custom_tool_result": ("tool_result",),
        "session.thread_created": ("spawn",),
        "agent.thread_message_sent, agent.thread_message_received": ("message", "return"),
        "span.outcome_evaluation_end": ("message", "rewards"),
        "session.error": ("message", "error"),
    },
    lost="what the model thought, statuses and phases, images, events of threads that were not exported",
    versions="the sessions API of 2026-04-01, as anthropic 2.10 types it",
    exact="tokens of each model request, tools, errors, threads, times",
)
"""Sessions of Claude managed agents."""
