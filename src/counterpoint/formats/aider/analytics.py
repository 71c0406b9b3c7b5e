"""Aider's analytics log (`--analytics-log`): an event on each line, with the tokens and the cost of each message.

Always true: a launch begins a run, and a run is a trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from counterpoint.formats.importer import Session, run_of
from counterpoint.formats.importing.dialogue import MAIN, Dialogue, Entry, play, require_half
from counterpoint.formats.importing.files import File
from counterpoint.formats.importing.usage import Usage, odd_counts
from counterpoint.formats.importing.values import as_dict, number, seconds, string
from counterpoint.trace import Trace

_COUNTS = ("prompt_tokens", "completion_tokens")
_NOTES = frozenset(
    {"repo", "no-repo", "auto_commits", "message_send_starting", "cli session", "gui session", "copy-paste mode", "model warning"}
    | {"ai-comments file-add", "ai-comments execute", "auto_model_selection", "oauth_flow_initiated", "oauth_flow_success"}
    | {"oauth_flow_failure", "oauth_flow_failed", "oauth_flow_code_received", "oauth_flow_save_failed"}
)


def runs_of(session: Session, file: File) -> Iterator[Trace]:
    """The traces of the runs in a log."""
    runs: list[list[tuple[int, dict[str, Any]]]] = []
    unknown: Counter[str] = Counter()
    records = 0
    for number_, record in session.records(file):
        records += 1
        event = string(record.get("event"))
        if not runs or event == "launched":
            runs.append([])
        runs[-1].append((number_, record))
        if event not in _NOTES | {"launched", "message_send", "message_send_exception", "exit"} and not (event or "").startswith(
            "command_"
        ):
            unknown[f"event {event}"] += 1
    require_half(file.name, records, unknown)
    session.report.unknown.update(unknown)
    for run in runs:
        yield from _run(session, run)


def _run(session: Session, run: list[tuple[int, dict[str, Any]]]) -> Iterator[Trace]:
    head = run[0][1]
    name = f"aider-run-{run_of(head.get('user_id'), head.get('time'), head.get('event'))}"
    draft = session.draft(name, name, system="aider")
    entries: list[Entry] = []
    left_out: Counter[str] = Counter()
    for line, record in run:
        event, got, at = str(record.get("event")), as_dict(record.get("properties")), seconds(record.get("time"))
        if event == "message_send":
            draft.report.note_odd_counts(odd_counts(got, _COUNTS))
            usage = Usage.whole(got.get("prompt_tokens"), got.get("completion_tokens"))
            cost = number(got.get("cost"))
            entry = Entry("assistant", "", f"r{line}", at, usage=usage, cost=cost, model=string(got.get("main_model")))
            entry.extra = {"edit_format": string(got.get("edit_format"))}
            entries.append(entry)
        elif event == "message_send_exception":
            entries.append(Entry("assistant", "", f"r{line}", at, error=string(got.get("exception")) or "error"))
        elif event == "exit":
            draft.meta["exit_reason"] = string(got.get("reason"))
        elif event in _NOTES or event.startswith("command_"):
            left_out[event] += 1
    if not entries:
        return
    draft.report.lacks["words: the analytics log has none"] += len(entries)
    play(draft, [Dialogue(entries=entries)])
    draft.lane(MAIN).stops()
    draft.meta["left_out"] = dict(sorted(left_out.items()))
    yield from draft.traces()
