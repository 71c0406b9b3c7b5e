"""Agent Lightning: spans of 0.2 and 0.3, events and rollouts of 1.0, with their rewards.

Spans are read here, events in `events.py`.

One attempt at a rollout is one trace; attempts at the same input share a task. Spans (JSON of the store, one to a line or in
a list, or OTLP whose resource names the rollout) are read as OpenTelemetry's, AgentOps' kinds included. Events (one to a
line, in a list, or in an archive beside their rollout) are model calls, from whose prompts tool results and agents are
inferred. Rewards are the trace's rewards, and stand on the event that a reward's link names.

What is lost: token ids and log probabilities (they are counted where nothing else counts the tokens), a rollout's
configuration; events of other types are kept beside the graph, in `meta`.

Always true: a model call's tokens count once; 1.0 names no agents, so each of its links is inferred.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import structs

from counterpoint.errors import InputError
from counterpoint.formats.agent_lightning.events import Attempts, is_event, is_span, put_attempt
from counterpoint.formats.importer import Importer, Session
from counterpoint.formats.importing.files import File
from counterpoint.formats.importing.values import as_list, compact, decode, string
from counterpoint.formats.spans.raw_records import Records
from counterpoint.formats.spans.trees import traces_of
from counterpoint.trace import Trace, content_ref

_SCANNED = 20
_OTLP = re.compile(rb'"resource_?[sS]pans"\s*:')
_IDS = (re.compile(rb'"rollout_id"\s*:'), re.compile(rb'"attempt_id"\s*:'))
_TORN = (
    (re.compile(rb'"event_type"\s*:\s*"(?:model_request|reward)"'), *_IDS),
    (re.compile(rb'"span_id"\s*:'), re.compile(rb'"sequence_id"\s*:'), *_IDS),
    (re.compile(rb'^\s*\[?\s*\{\s*"rollout"\s*:\s*\{'), _IDS[0]),
)


def _sniff(head: bytes) -> bool:
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"["):
        return False
    if _OTLP.search(head):
        return b'"agentlightning.' in head
    whole = _decoded(head)
    if whole is not None:
        return any(map(_is_ours, _flat(whole)))
    for line in head.split(b"\n")[:_SCANNED]:
        if any(map(_is_ours, _flat(_decoded(line)))):
            return True
    return any(all(part.search(head) for part in parts) for parts in _TORN)


def _decoded(data: bytes) -> Any:
    try:
        return decode(data)
    except InputError:
        return None


def _flat(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _is_ours(value: Any) -> bool:
    return is_span(value) or is_event(value) or _is_archive(value) or _is_rollout(value)


def _is_archive(value: Any) -> bool:
    return isinstance(value, dict) and _is_rollout(value.get("rollout")) and isinstance(value.get("events"), list)


def _is_rollout(value: Any) -> bool:
    return isinstance(value, dict) and {"rollout_id", "input", "status"} <= value.keys() and "span_id" not in value


def _group(files: Sequence[File]) -> Iterable[Session]:
    """Spans, events and rollouts of one store lie in one folder."""
    folders: dict[str, list[File]] = {}
    for file in files:
        folders.setdefault(file.name.rpartition("/")[0], []).append(file)
    return [Session(folder, files_here) for folder, files_here in sorted(folders.items())]


class _Store:
    """What the files of a session hold."""

    def __init__(self) -> None:
        self.rollouts: dict[str, dict[str, Any]] = {}
        self.events: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self.spans = Attempts()

    def take(self, session: Session, file: File) -> None:
        for number, value in _values(session, file):
            if _is_archive(value):
                self._rollout(value["rollout"])
                inside = [e for e in value["events"] if is_event(e)]
                if len(inside) < len(value["events"]):
                    session.report.unknown["an entry that is no event"] += len(value["events"]) - len(inside)
                for event in inside:
                    self._event(event)
            elif is_event(value):
                self._event(value)
            elif is_span(value):
                if not self.spans.add(value):
                    session.report.broke(file.name, number, "a span without an id")
            elif _is_rollout(value):
                self._rollout(value)
            elif isinstance(value, dict) and ("resourceSpans" in value or "resource_spans" in value):
                records = Records()
                records.add(value)
                for raw in records.spans:
                    self.spans.add_raw(raw)
            else:
                session.report.unknown["a record that is no span, event or rollout"] += 1

    def _rollout(self, rollout: dict[str, Any]) -> None:
        if id := string(rollout.get("rollout_id")):
            self.rollouts[id] = rollout

    def _event(self, event: dict[str, Any]) -> None:
        key = str(event["rollout_id"]), str(event["attempt_id"])
        self.events.setdefault(key, []).append(event)

    def task(self, rollout: str) -> str:
        """What was asked, as an id that the attempts at one input share."""
        task_input = self.rollouts.get(rollout, {}).get("input")
        return rollout if task_input is None else content_ref(compact(task_input))[7:23]

    def about(self, rollout: str) -> dict[str, Any] | None:
        """What the store says about a rollout, without its configuration."""
        return {k: v for k, v in self.rollouts.get(rollout, {}).items() if k != "config" and v is not None} or None


def _values(session: Session, file: File) -> Iterator[tuple[int | None, Any]]:
    """The records of a file: those of its lines, or of the one document that it is."""
    first = next(iter(file.lines()), (1, b""))[1] or b""
    is_lines = isinstance(_decoded(first), dict)
    if is_lines:
        yield from session.records(file)
        return
    whole = session.document(file)
    for value in _flat(whole):
        yield None, value
        if isinstance(value, dict) and not _is_ours(value) and isinstance(value.get("spans"), list):
            yield from ((None, inner) for inner in as_list(value["spans"]))


def _read(session: Session) -> Iterator[Trace]:
    store = _Store()
    for file in session.files:
        store.take(session, file)
    for (rollout, attempt), events in store.events.items():
        draft = session.draft(f"{rollout}/{attempt}", store.task(rollout), system="agent-lightning")
        if (about := store.about(rollout)) is not None:
            draft.meta["rollout"] = about
        put_attempt(draft, events)
        is_train = store.rollouts.get(rollout, {}).get("is_train")
        if isinstance(is_train, bool):
            draft.metrics["is_train"] = float(is_train)
        yield from draft.traces()
    for trace in traces_of(store.spans.spans(), session, system="agent-lightning"):
        rollout = store.spans.rollouts[trace.trace_id]
        beside = {"rollout": store.about(rollout), "notes": store.spans.notes.get(trace.trace_id)}
        meta = {**trace.meta, **{name: value for name, value in beside.items() if value}}
        yield structs.replace(trace, task_id=store.task(rollout), meta=meta)


agent_lightning = Importer(
    suffixes=(".jsonl", ".json"),
    sniff=_sniff,
    signs=("rollout_id", "attempt_id", "sequence_id", "event_type", "span_id"),
    system="agent-lightning",
    read_session=_read,
    group=_group,
    rank=20,
    becomes={
        "model_request": (
            "orchestrator_decision",
            "message",
            "tool_call",
            "tool_result",
            "spawn",
            "return",
            "human_intervention",
        ),
        "reward": ("rewards",),
        "agentlightning.annotation": ("rewards", "reward"),
        "agentlightning.operation": ("tool_call", "tool_result"),
        "agentlightning.message, .object, .exception": ("meta",),
        "agent, model and tool spans": ("spawn", "return", "message", "orchestrator_decision", "tool_call", "tool_result"),
        "rollout": ("meta", "metrics"),
    },
    versions="0.2, 0.3, 1.0",
    exact="tokens, rewards, nesting of spans",
    lost="token ids, log-probabilities; 1.0: which agent called (inferred)",
)
