"""Inspect AI logs: `.eval` archives, whole `.json` logs, samples and events alone.

Archives are packed by deflate or zstd, with samples whole or in chunks.

`eval_log.py` unpacks an `.eval` and reads the log's header and samples from it, `agents.py` says which agent each event belongs
to, and `sample.py` puts a sample down as events.

One trace per sample and epoch. A model event is a step of the agent whose span it lies in; a span of type agent is an agent,
made by the call that its tool event names (`agent_span_id`) or by the agent around it; a tool event is a tool's answer; an
approval that rejects, modifies or terminates is a safety event, and so is an answer stopped by a content filter; input at the
console and approvals by people are human interventions; scores are rewards. Events of older logs that are nested in a tool's
event, or have steps and no spans, are read too.

What is lost: state and store changes, sandbox calls, logger lines, the raw request and response, images.

Always true: an archive that unpacks beyond the limits is refused; a sample that cannot be read is counted and the others go
on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from counterpoint.formats.draft import Draft
from counterpoint.formats.importer import Importer, Session, run_of
from counterpoint.formats.importing.chat import Message, messages_of
from counterpoint.formats.importing.files import first_keys
from counterpoint.formats.importing.values import as_dict, as_list, count, number, string
from counterpoint.formats.inspect.agents import MAIN
from counterpoint.formats.inspect.eval_log import MAGIC, EvalLog, Sample, read_log, scores_of, usage_of
from counterpoint.formats.inspect.sample import SamplePlay
from counterpoint.trace import Trace

_ENTRY = re.compile(rb"_journal/start\.json|samples/[^/\x00]{1,200}_epoch_\d+")
# Events alone: as a list, one on each line, or under `events`.
_EVENT = re.compile(
    rb'"event"\s*:\s*"(?:sample_init|span_begin|span_end|model|tool|step|subtask|state|store|sandbox|info|input|score|approval)"'
)
_EVENT_MARKS = (b'"working_start"', b'"span_id"', b'"pending"')
_NAMES = ("eval_id", "run_id", "task_id", "task", "model", "created", "task_version")
_SAID = ("target", "metadata", "limit", "error", "choices")


def _sniff(head: bytes) -> bool:
    if head[:4] == MAGIC:
        return _ENTRY.search(head) is not None
    keys = first_keys(head) if b'"event"' in head or b'"eval"' in head or b'"epoch"' in head else {}
    if keys.keys() >= {"id", "epoch"} and not keys.keys().isdisjoint({"input", "target", "events", "messages"}):
        return True  # a sample alone
    if "event" in keys or "events" in keys:
        return _EVENT.search(head) is not None and any(mark in head for mark in _EVENT_MARKS)
    return "eval" in keys and keys["eval"][:1] == b"{" and ("status" in keys or "version" in keys) and b'"task"' in head


def _read(session: Session) -> Iterator[Trace]:
    for file in session.files:
        parsed = read_log(session, file)
        if parsed is None:
            continue
        log, samples = parsed
        if not log.has_samples:
            session.report.lacks["samples: the log has none, or only summaries of them"] += 1
        for sample in samples:
            draft = _begun(session, log, sample)
            try:
                _play(draft, sample)
            except RecursionError:
                session.report.broke(file.name, None, f"sample {sample.data.get('id')!r} is nested too deeply")
                continue
            yield from draft.traces()


def _begun(session: Session, log: EvalLog, sample: Sample) -> Draft:
    data = sample.data
    own = string(log.eval.get("eval_id")) or string(log.eval.get("run_id"))
    run = None if own else string(data.get("uuid")) or run_of(data)
    key = own or string(log.eval.get("created")) or f"sample-{run}"
    if "eval_id" not in log.eval and (task := string(log.eval.get("task_id"))):
        key = f"{key}-{task}"
    task = string(log.eval.get("task")) or "task"
    name = f"{key}/{data.get('id')}/{count(data.get('epoch')) or 1}"
    draft = session.draft(name, f"{task}/{data.get('id')}", system="inspect", run=run)
    draft.meta["eval"] = {field: log.eval[field] for field in _NAMES if log.eval.get(field) is not None} | {"status": log.status}
    fields = {field: data[field] for field in _SAID if data.get(field) not in (None, {}, [], "")}
    draft.meta["sample"] = {"id": data.get("id"), "epoch": data.get("epoch"), **fields}
    if data.get("error_retries"):
        draft.meta["sample"]["failed_attempts"] = len(as_list(data["error_retries"]))
    return draft


def _play(draft: Draft, sample: Sample) -> None:
    data = sample.data
    replay = SamplePlay(draft, sample)
    if any(e.get("event") in ("model", "tool") for e in replay.events):
        replay.run()
    else:
        _play_messages(draft, sample, replay.asked)
    scores = scores_of(data.get("scores"))
    draft.rewards.update(scores)
    if len(scores) == 1:
        draft.rewards["team"] = next(iter(scores.values()))
    by_scorer = {name: s for name, s in as_dict(data.get("scores")).items() if isinstance(s, dict)}
    if by_scorer:
        names = ("value", "answer", "explanation", "metadata")
        draft.meta["scores"] = {n: {k: s[k] for k in names if s.get(k) is not None} for n, s in by_scorer.items()}
    for field in ("total_time", "working_time"):
        if (value := number(data.get(field))) is not None:
            draft.metrics[f"{field}_s"] = value
    _compare(draft, data)
    if sample.missing:
        draft.report.lacks["attachments that the log does not hold"] += sample.missing


def _compare(draft: Draft, data: dict[str, Any]) -> None:
    """The sample's own sum of tokens against the events'."""
    stated = [u for usage in as_dict(data.get("model_usage")).values() if (u := usage_of(usage)[0]) is not None]
    wanted = sum(u.input + u.output for u in stated)
    counted = sum((row.get("tokens_in") or 0) + (row.get("tokens_out") or 0) for row in draft.rows.values())
    if wanted > counted:
        draft.report.lacks["tokens that the sample counts and no model event states"] += wanted - counted


def _play_messages(draft: Draft, sample: Sample, asked: frozenset[str]) -> None:
    """A sample that was kept without its events: the conversation alone."""
    lane = draft.lane(MAIN, role="solver", leads=True)
    messages = messages_of(sample.data.get("messages"), sample.text)
    if messages:
        draft.report.lacks["events: only the final conversation was kept"] += 1
    for k, message in enumerate(messages):
        id = message.id or f"message-{k}"
        if message.role == "assistant":
            lane.step(id=id, text=message.text, thinking=message.thinking, only_calls=bool(message.calls))
            for call in message.calls:
                lane.call(call.tool, call.text, call=call.id, id=call.id)
        elif message.role == "tool":
            error = message.error
            lane.result(message.call, message.text or error or "", id=id, tool=message.tool, ok=False if error else None)
        elif message.role == "user" and _is_asked(message, asked):
            lane.prompt(message.text, id=id)
        else:
            lane.prompt(message.text, by="system", source="system", id=id)


def _is_asked(message: Message, asked: frozenset[str]) -> bool:
    return message.source in ("input", "operator") or message.text in asked


inspect = Importer(
    suffixes=(".eval",),
    sniff=_sniff,
    signs=("eval", "samples", "status", "version", "task", "plan"),
    system="inspect",
    read_session=_read,
    becomes={
        "model": ("orchestrator_decision", "message", "tool_call", "return", "aggregate"),
        "message of a model's input": ("human_intervention", "message", "tool_result"),
        "tool": ("tool_call", "tool_result", "spawn", "return"),
        "span of an agent": ("spawn", "return"),
        "approval": ("safety_event", "human_intervention"),
        "input, interrupt": ("human_intervention",),
        "score": ("rewards",),
    },
    versions="0.3, log version 2",
    exact="tokens, times, scores, agents' spans",
    lost="state changes, sandbox calls, logger lines, raw requests, images",
)
