"""OpenHands: the events of its SDK, those before it (`actions.py`), and the output of evaluations.

Events are on lines, in a list, or one in each file of a conversation's `events` folder.

| record | becomes |
|---|---|
| `SystemPromptEvent` | `message` of `system` |
| `MessageEvent` of the user, of the agent | `human_intervention`, `orchestrator_decision` |
| `ActionEvent`s of one `llm_response_id` | one `orchestrator_decision`, with a `tool_call` each |
| `ObservationEvent`, `UserRejectObservation`, `AgentErrorEvent` | `tool_result` |
| `ConversationErrorEvent` | `error` of the step before |
| `Condensation`, `CondensationSummaryEvent` | `message` of the client |
| action, observation (before the SDK) | `orchestrator_decision`, `tool_call`, `tool_result`; `spawn`, `return` of a delegate |

Tokens: `stats` of the SDK are sums since the conversation began; the last ones, of all its models together, stand on the last
step. Before it each model response states its own.

What is lost: tokens of each call (SDK), recalled knowledge and other state (counted in `left_out`), images.

Always true: an event's id is read once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.draft import Draft
from counterpoint.formats.importer import Importer, Session, run_of
from counterpoint.formats.importing.chat import Call
from counterpoint.formats.importing.dialogue import Answer, Dialogue, Entry, play, require_half
from counterpoint.formats.importing.files import File, first_keys
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, compact, decode, number, seconds, string, text_of
from counterpoint.formats.openhands.actions import Story, about, flat, traces_of_run
from counterpoint.trace import Trace

_KIND = re.compile(rb'"kind"\s*:\s*"(?:[A-Za-z]*Event|[A-Za-z]*Observation|Condensation)"')
_FOLDER = re.compile(r"^(.*)/events/(?:event-[^/]+|(\d+))\.json$")
_MARK = re.compile(rb"^--JSON Event--[ \t]*\r?\n", re.M)
_BESIDE = re.compile(r"^(.*)/base_state\.json$")
_OLD = re.compile(rb'"(?:action|observation)"\s*:\s*"')
_RESULTS = frozenset({"ObservationEvent", "UserRejectObservation", "AgentErrorEvent"})
_SUMMARIES = frozenset({"Condensation", "CondensationSummaryEvent"})
_STATE = frozenset(
    {"ConversationStateUpdateEvent", "PauseEvent", "CondensationRequest", "TokenEvent", "InterruptEvent", "StreamingDeltaEvent"}
)
_BANNER = 1 << 13
_ONLY = ("prompt_tokens", "completion_tokens")


def _sniff(head: bytes) -> bool:
    if (mark := _MARK.search(head[:_BANNER])) is not None:  # what the client prints with `--json`
        return _KIND.search(head[mark.end() :]) is not None
    keys = first_keys(head)
    if keys.keys() >= {"kind", "id", "timestamp", "source"}:
        return _KIND.search(head) is not None
    if "instance_id" in keys and ("history" in keys or "trajectory" in keys):
        is_old = b'"cause"' in head or b'"tool_call_metadata"' in head or (b'"is_demo"' not in head and b'"extras"' in head)
        return (is_old and _OLD.search(head) is not None) or (b'"test_result"' in head and _KIND.search(head) is not None)
    if keys.keys() >= {"id", "agent", "stats"}:
        return b'"usage_to_metrics"' in head
    if not {"source", "timestamp"} <= keys.keys():
        return False
    return {"action", "args"} <= keys.keys() or {"observation", "content", "extras"} <= keys.keys()


def _group(files: Sequence[File]) -> Iterable[Session]:
    groups: dict[str, list[File]] = {}
    for file in files:
        match = _FOLDER.match(file.name) or _BESIDE.match(file.name)
        groups.setdefault(match[1] if match else file.name, []).append(file)
    return [Session(name, sorted(some, key=_order)) for name, some in groups.items()]


def _order(file: File) -> tuple[int, str]:
    """Events by their number: 10 comes after 9."""
    match = _FOLDER.match(file.name)
    return int(match[2]) if match and match[2] else -1 - bool(_BESIDE.match(file.name)), file.name


def _read(session: Session) -> Iterator[Trace]:
    reader = _Reader(session)
    for file in session.files:
        if _BESIDE.match(file.name):
            reader.beside(as_dict(session.document(file)))
            continue
        for value in _documents(session, file):
            for event in value if isinstance(value, list) else [value]:
                run = as_dict(event)
                history = as_list(run.get("history")) or as_list(run.get("trajectory"))
                if not history:
                    reader.take(run)
                elif any("kind" in event for event in flat(history)):
                    yield from _Reader(session).evaluation(run, file.name)
                else:
                    yield from traces_of_run(session, run, file.name)
    yield from reader.all(session.files[0].name)


def _documents(session: Session, file: File) -> Iterator[Any]:
    """The documents in a file, or the events between the marks that the client prints; words around them are no events."""
    if _MARK.search(file.head(_BANNER)) is None:
        yield from session.documents(file)
        return
    for number_, piece in enumerate(_MARK.split(file.data())[1:], 1):
        try:
            yield decode(piece[: piece.rfind(b"}") + 1])
            session.report.records += 1
        except InputError as error:
            session.report.broke(file.name, None, f"event {number_}: {error.what}")


class _Reader:
    """One conversation on its way to a trace."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.run: dict[str, Any] = {}
        """What an evaluation says of it."""
        self.entries: list[Entry] = []
        self.responses: dict[str, Entry] = {}
        self.seen: set[str] = set()
        self.first: str | None = None
        """The id of its first event."""
        self.stats: dict[str, Any] = {}
        self.left_out: Counter[str] = Counter()
        self.old = Story()
        self.records = 0
        self.unknown: Counter[str] = Counter()

    def beside(self, state: dict[str, Any]) -> None:
        """Take the state that is kept beside the events; what an event says of the totals comes after it."""
        self._state({"key": "stats", "value": state.get("stats")}, "base_state")

    def take(self, event: dict[str, Any]) -> None:
        """Take an event of the SDK or of what was before it."""
        self.records += 1
        is_old = "kind" not in event and ("action" in event or "observation" in event)
        self.first = self.first or (compact([event.get("timestamp"), event.get("message")]) if is_old else None)
        if not (self.old.event(event, self.records) if is_old else self.event(event)):
            self.unknown[f"event of kind {event.get('kind')}"] += 1

    def evaluation(self, run: dict[str, Any], where: str) -> Iterator[Trace]:
        """The trace of one run of an evaluation with the SDK."""
        for event in flat(as_list(run.get("history"))):
            self.take(event)
        self.run, self.stats = run, self.stats or {"run": as_dict(run.get("metrics"))}
        yield from self.all(where)

    def all(self, where: str) -> Iterator[Trace]:
        """The traces of what was taken."""
        require_half(where, self.records, self.unknown)
        self.session.report.unknown.update(self.unknown)
        if self.entries:
            yield from self.traces()
        story = self.old
        if any(d.entries for d in story.dialogues.values()):
            draft = self._draft()
            play(draft, list(story.dialogues.values()))
            about(draft, {}, story.left_out)
            yield from draft.traces()

    def _draft(self) -> Draft:
        key = self.session.key.rsplit("/", 1)[-1]
        own = key if self.session.files and _FOLDER.match(self.session.files[-1].name) and not self.entries else None
        name = string(self.run.get("instance_id")) or own or f"openhands-{run_of(self.first)}"  # one that grew keeps its name
        return self.session.draft(name, name, system="openhands", run=run_of(self.run) if self.run else None)

    def event(self, event: dict[str, Any]) -> bool:
        """Take an event; False where its kind is not known."""
        kind, name, at = string(event.get("kind")), string(event.get("id")), seconds(event.get("timestamp"))
        if name in self.seen:
            return True
        self.seen.update([name] if name else [])
        self.first = self.first or name
        if kind == "ActionEvent":
            self._action(event, name, at)
        elif kind in _RESULTS:
            self._result(event, kind, at)
        elif kind == "MessageEvent":
            self._message(event, name, at)
        elif kind == "SystemPromptEvent":
            self.entries.append(Entry("system", text_of(event.get("system_prompt")), name, at))
        elif kind in _SUMMARIES:
            extra = {"is_compaction": True}
            self.entries.append(Entry("user", text_of(event.get("summary")), name, at, by="client", extra=extra))
        elif kind == "ConversationErrorEvent":
            self.entries.append(Entry("error", text_of(event.get("detail") or event.get("code")), name, at))
        elif kind in _STATE:
            self._state(event, kind)
        else:
            return False
        return True

    def _state(self, event: dict[str, Any], kind: str) -> None:
        value = as_dict(event.get("value"))
        stats = value if event.get("key") == "stats" else as_dict(value.get("stats"))
        if found := as_dict(stats.get("usage_to_metrics")) or as_dict(stats.get("service_to_metrics")):
            self.stats = found
        else:
            self.left_out[kind] += 1

    def _message(self, event: dict[str, Any], name: str | None, at: float | None) -> None:
        message = as_dict(event.get("llm_message"))
        text, source = text_of(message.get("content")), event.get("source")
        if source == "agent" or message.get("role") == "assistant":
            thinking = text_of(message.get("reasoning_content") or event.get("reasoning_content"))
            self.entries.append(Entry("assistant", text, name, at, thinking))
        else:
            self.entries.append(Entry("user", text, name, at, by=None if source == "user" else "client"))

    def _action(self, event: dict[str, Any], name: str | None, at: float | None) -> None:
        response = string(event.get("llm_response_id"))
        entry = self.responses.get(response) if response else None
        if entry is None:
            entry = Entry("assistant", text_of(event.get("thought")), name, at, text_of(event.get("reasoning_content")))
            self.entries.append(entry)
            if response:
                self.responses[response] = entry
        call = as_dict(event.get("tool_call"))
        tool = string(event.get("tool_name")) or string(call.get("name")) or "unnamed"
        arguments = call.get("arguments") or as_dict(call.get("function")).get("arguments") or event.get("action")
        entry.calls.append(Call(string(event.get("tool_call_id")) or string(call.get("id")), tool, arguments))

    def _result(self, event: dict[str, Any], kind: str, at: float | None) -> None:
        seen = as_dict(event.get("observation"))
        code = seen.get("exit_code")
        failed = seen.get("is_error") is True or (isinstance(code, int) and code != 0)
        text = text_of(seen.get("content") or seen.get("output") or "")
        if kind != "ObservationEvent":
            text, failed = text_of(event.get("error") or event.get("rejection_reason")), True
        ok = False if failed else True if kind == "ObservationEvent" else None
        extra = {"is_rejected": True} if kind == "UserRejectObservation" else {}
        call, tool = string(event.get("tool_call_id")), string(event.get("tool_name"))
        answer = Answer(text, call, tool, ok, (text[:500] or "error") if failed else None, at, extra)
        self.entries.append(Entry("tool", at=at, answers=[answer]))

    def traces(self) -> Iterator[Trace]:
        draft = self._draft()
        metrics = [as_dict(m) for m in self.stats.values()]
        used = [u for m in metrics if (u := Usage.openai(_spelled(m.get("accumulated_token_usage"))))]
        last = next((e for e in reversed(self.entries) if e.role == "assistant"), None)
        if last is not None and used:
            last.usage = used[0]
            for usage in used[1:]:
                last.usage = last.usage.plus(usage)
            last.cost = sum(number(m.get("accumulated_cost")) or 0.0 for m in metrics) or None
            last.model = next((model for m in metrics if (model := string(m.get("model_name")))), None)
            last.extra = {**last.extra, "tokens_of": "the run"}
        play(draft, [Dialogue(entries=self.entries)])
        about(draft, self.run, self.left_out)
        yield from draft.traces()


def _spelled(usage: Any) -> dict[str, Any]:
    """Its counts under OpenAI's names: the prompt's includes the cache."""
    got = as_dict(usage)
    details = {"cached_tokens": got.get("cache_read_tokens"), "cache_creation": got.get("cache_write_tokens")}
    reasoning = {"reasoning_tokens": got.get("reasoning_tokens")}
    return {**{n: got.get(n) for n in _ONLY}, "prompt_tokens_details": details, "completion_tokens_details": reasoning}


openhands = Importer(
    suffixes=(".openhands.jsonl",),
    sniff=_sniff,
    signs=("kind", "source", "llm_response_id", "tool_call_id", "llm_message", "observation", "tool_call_metadata"),
    system="openhands",
    group=_group,
    read_session=_read,
    rank=1,
    becomes={
        "SystemPromptEvent, Condensation": ("message",),
        "MessageEvent": ("human_intervention", "message", "orchestrator_decision"),
        "ActionEvent": ("orchestrator_decision", "tool_call"),
        "ObservationEvent, AgentErrorEvent, UserRejectObservation": ("tool_result",),
        "ConversationErrorEvent": ("error",),
        "action": ("orchestrator_decision", "human_intervention", "message", "tool_call", "spawn"),
        "observation": ("tool_result", "return", "error"),
        "test_result": ("rewards", "meta"),
    },
    lost="tokens of each call (SDK), recalled knowledge and other state, images",
    versions="SDK 1.x; events of OpenHands 0.9 to 0.6x; evaluations of either",
    exact="tools, errors, delegations, times; tokens of each response before the SDK, of the conversation since",
)
"""Conversations of the OpenHands SDK."""
