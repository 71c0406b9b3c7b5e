"""AgentV: transcripts of evaluated agents (`agentv.transcript.v1`), a message on each line.

| row | becomes |
|---|---|
| role user | `human_intervention` |
| role assistant | one `orchestrator_decision`, with a `tool_call` and a `tool_result` for each call |
| role system, tool | `message` of `system`, `tool_result` |

Tokens: `token_usage` of a row; what `transcript_token_usage` has beyond these is the last step's. `transcript_cost_usd` is the
cost of the trace.

What is lost: which call was of which span, what the transcript was made from (kept in `meta`).

Always true: the rows of one test, target and session are one trace, in the order of their index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from counterpoint.formats.importer import Importer, Session
from counterpoint.formats.importing.chat import Call
from counterpoint.formats.importing.dialogue import MAIN, Answer, Dialogue, Entry, play, require_half
from counterpoint.formats.importing.files import first_keys
from counterpoint.formats.importing.run_totals import RUN, without
from counterpoint.formats.importing.usage import Usage, odd_counts
from counterpoint.formats.importing.values import as_dict, as_list, compact, count, folder_name, number, seconds, string, text_of
from counterpoint.trace import Trace

_COUNTS = ("input", "output", "cached", "reasoning")
_OK = {"ok": True, "error": False, "timeout": False, "cancelled": False}
_VERSION = b'"agentv.transcript.'


def _sniff(head: bytes) -> bool:
    keys = first_keys(head)
    if keys.get("schema_version", b"").strip().startswith(_VERSION):
        return "role" in keys
    return keys.keys() >= {"test_id", "target", "message_index", "role", "source"} and "schema_version" not in keys


def _read(session: Session) -> Iterator[Trace]:
    for file in session.files:
        unknown: Counter[str] = Counter()
        runs: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
        records = 0
        for _, row in session.entries(file):
            records += 1
            if string(row.get("role")) is None:
                unknown["row without a role"] += 1
                continue
            name = string(as_dict(row.get("source")).get("session_id")) or ""
            runs.setdefault((str(row.get("test_id")), str(row.get("target")), name), []).append(row)
        require_half(file.name, records, unknown)
        session.report.unknown.update(unknown)
        for (test, target, name), rows in runs.items():
            rows.sort(key=lambda row: count(row.get("message_index")) or 0)
            yield from _trace(session, test, target, name, rows)


def _trace(session: Session, test: str, target: str, name: str, rows: list[dict[str, Any]]) -> Iterator[Trace]:
    source = as_dict(rows[0].get("source"))
    draft = session.draft(f"{test}-{name}" if name and name != test else test, test, system="agentv", run=target)
    odd = sum(odd_counts(as_dict(row.get("token_usage")), _COUNTS) for row in rows)
    draft.report.note_odd_counts(odd + odd_counts(as_dict(rows[0].get("transcript_token_usage")), _COUNTS))
    entries = [_entry(row, f"m{k}", string(source.get("model"))) for k, row in enumerate(rows)]
    steps = [entry for entry in entries if entry.role == "assistant"]
    total = _usage(rows[-1].get("transcript_token_usage"))
    if total and steps and (rest := without(total, (step.usage for step in steps if step.usage))):
        steps[-1].usage = steps[-1].usage.plus(rest) if steps[-1].usage else rest
        steps[-1].extra = {**steps[-1].extra, **RUN}
    cost = number(rows[-1].get("transcript_cost_usd"))
    about = {"target": target, "provider": source.get("provider"), "version": source.get("version")}
    draft.meta.update({key: value for key, value in about.items() if string(value)})
    if project := folder_name(source.get("cwd")):
        draft.meta["project"] = project
    play(draft, [Dialogue(entries=entries)])
    if cost is not None:
        draft.own_cost(cost)
    draft.lane(MAIN).stops()
    yield from draft.traces()


def _entry(row: dict[str, Any], name: str, model: str | None) -> Entry:
    role = {"developer": "system", "function": "tool"}.get(row["role"], row["role"])
    content = row.get("content")
    text = text_of(content) if content is not None else ""
    at = seconds(row.get("end_time")) or seconds(row.get("start_time"))
    if role == "tool":
        answer = Answer(text, string(row.get("tool_call_id")), string(row.get("name")), at=at)
        return Entry("tool", id=name, at=at, answers=[answer])
    if role not in ("user", "system", "assistant"):
        return Entry("user", text, name, at, by=role)
    entry = Entry(role, text, name, at)
    if role == "assistant":
        entry.usage, entry.model = _usage(row.get("token_usage")), model
        for k, raw in enumerate(map(as_dict, as_list(row.get("tool_calls")))):
            call = Call(string(raw.get("id")) or f"{name}.{k}", string(raw.get("tool")) or "unnamed", raw.get("input"))
            entry.calls.append(call)
            if "output" in raw or "status" in raw:
                entry.answers.append(_answer(raw, call))
    return entry


def _answer(raw: dict[str, Any], call: Call) -> Answer:
    output, ok = raw.get("output"), _OK.get(str(raw.get("status")))
    text = "" if output is None else compact(output) if isinstance(output, dict) else text_of(output)
    error = (text[:500] or str(raw["status"])) if ok is False else None
    return Answer(text, call.id, call.tool, ok, error, seconds(raw.get("end_time")))


def _usage(stated: Any) -> Usage | None:
    """The input includes the cache, unless there is more in the cache."""
    got = as_dict(stated)
    into, cached = count(got.get("input")), count(got.get("cached")) or 0
    if cached > (into or 0):
        return Usage(into or 0, cached, 0, count(got.get("output")) or 0, count(got.get("reasoning")) or 0)
    return Usage.whole(into, got.get("output"), cached=cached, reasoning=got.get("reasoning"))


agentv = Importer(
    suffixes=(".agentv.jsonl",),
    sniff=_sniff,
    signs=("schema_version", "test_id", "target", "message_index", "tool_calls", "transcript_token_usage"),
    system="agentv",
    read_session=_read,
    rank=2,
    becomes={
        "user row": ("human_intervention",),
        "assistant row": ("orchestrator_decision", "aggregate", "tool_call", "tool_result"),
        "system row": ("message",),
        "tool row": ("tool_result",),
    },
    lost="spans of calls, what the transcript was made from, whether the input includes the cache",
    versions="agentv.transcript.v1",
    exact="tools and how they ended, tokens of the run and of rows that state them, the run's cost",
)
"""Transcripts of AgentV."""
