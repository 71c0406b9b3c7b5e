"""LangSmith runs, of LangChain, LangGraph or anything traced: ingest batches, lists of runs, and trees of them.

Read are `{"post": [...], "patch": [...]}` bodies (a patch is merged into the run that it names), lists and pages of runs, runs
with nested `child_runs`, and files with one of these per line. Model runs become steps with their tokens, tool and retriever
runs calls with their results, LangGraph's sub-graphs sub-agents with spawn and return, `transfer_to_X` tools and
`Command(goto=...)` handoffs, `__interrupt__` human interventions; feedback becomes rewards. Other chains are wrappers.

What is lost: prompts and parsers as steps of their own, streamed chunks, attachments, and what is sent in multipart bodies.

Always true: a run's id is its event's id; a run told in several batches counts once; parents come from `parent_run_id`, else
from `dotted_order`, which states them too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from counterpoint.formats.importer import Importer, Session
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, compact, number, seconds, string, text_of
from counterpoint.formats.spans.langgraph import KEPT, human_of, mark_graphs, mark_tool, result_text
from counterpoint.formats.spans.span import Kind, Span
from counterpoint.formats.spans.trees import traces_of
from counterpoint.trace import Trace

_ORDERED = re.compile(rb'"dotted_order"\s*:\s*"\d{8}T\d{6,}Z')
_TYPED = re.compile(rb'"run_type"\s*:\s*"(?:chain|llm|tool|retriever|embedding|prompt|parser)"')
_LEVEL = re.compile(r"^(\d{8}T\d{6})(\d*)Z([0-9a-fA-F-]{36})$")
_KINDS: dict[str, Kind] = {
    "llm": "llm",
    "tool": "tool",
    "retriever": "retriever",
    "embedding": "retriever",
    "chain": "chain",
    "prompt": "chain",
    "parser": "chain",
}
_AGENTS = frozenset({"AgentExecutor"})
_NO_PATCHED = "the beginning of some runs: only their end was exported"


def _sniff(head: bytes) -> bool:
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"["):
        return False
    return bool(_ORDERED.search(head)) or (bool(_TYPED.search(head)) and (b'"parent_run_id"' in head or b'"child_runs"' in head))


def _read(session: Session) -> Iterator[Trace]:
    runs: dict[str, dict[str, Any]] = {}
    for file in session.files:
        for document in session.documents(file):
            for run, is_patch in _runs(document):
                _merge(runs, run, is_patch, session, file.name)
    spans: list[Span] = []
    metas: dict[str, dict[str, Any]] = {}
    for name, run in runs.items():
        metas[name] = as_dict(as_dict(run.get("extra")).get("metadata"))
        span = _span(run, name, len(spans), metas[name], session)
        spans.append(span)
        if (human := human_of(span, run.get("outputs"), len(runs) + len(spans))) is not None:
            spans.append(human)
    mark_graphs(spans, metas)
    return traces_of(spans, session, system="langsmith")


def _runs(document: Any) -> Iterator[tuple[dict[str, Any], bool]]:
    """Every run in a document, with whether it is only a patch, parents before children."""
    stack: list[tuple[Any, bool]] = [(document, False)]
    while stack:
        value, is_patch = stack.pop()
        if isinstance(value, list):
            stack.extend((one, is_patch) for one in reversed(value))
        elif isinstance(value, dict) and ("run_type" in value or "dotted_order" in value or is_patch):
            children = [{"parent_run_id": value.get("id"), **c} for c in as_list(value.get("child_runs")) if isinstance(c, dict)]
            yield {k: v for k, v in value.items() if k != "child_runs"}, is_patch
            stack.extend((child, is_patch) for child in reversed(children))
        elif isinstance(value, dict):
            stack.extend((value[k], k == "patch") for k in ("patch", "post", "runs", "data") if isinstance(value.get(k), list))


def _levels(run: dict[str, Any]) -> list[re.Match[str]]:
    """The levels of `dotted_order`, outermost first: when each began, and its run."""
    matches = (_LEVEL.match(level) for level in str(run.get("dotted_order") or "").split("."))
    return [level for level in matches if level]


def _merge(runs: dict[str, dict[str, Any]], run: dict[str, Any], is_patch: bool, session: Session, file: str) -> None:
    levels = _levels(run)
    name = string(run.get("id")) or (levels[-1][3] if levels else None)
    if name is None:
        session.report.broke(file, None, "a run without an id")
        return
    if is_patch and name not in runs:
        session.report.lacks[_NO_PATCHED] += 1
    before = runs.setdefault(name, {})
    for key, value in run.items():
        if value not in (None, "", {}, []) or key not in before:
            before[key] = value


def _span(run: dict[str, Any], name: str, order: int, meta: dict[str, Any], session: Session) -> Span:
    levels = _levels(run)
    trace = string(run.get("trace_id")) or (levels[0][3] if levels else name)
    parent = string(run.get("parent_run_id")) or (levels[-2][3] if len(levels) > 1 else None)
    kind = str(run.get("run_type") or "chain")
    if kind not in _KINDS:
        session.report.unknown[kind] += 1
    span = Span(name, trace, parent, string(run.get("name")) or kind, _KINDS.get(kind, "chain"), order=order)
    span.start, span.end = seconds(run.get("start_time")), seconds(run.get("end_time"))
    if span.start is None and levels:
        span.start = _moment(levels[-1])
    error = run.get("error")
    span.ok = False if error or run.get("status") == "error" else True if span.end is not None else None
    span.error = text_of(error) or None
    span.reward = _feedback(run)
    span.extra = {key: meta[key] for key in KEPT if meta.get(key) not in (None, "")}
    span.extra.update({"tags": run["tags"]} if run.get("tags") else {})
    _fill(span, run, meta)
    return span


def _moment(level: re.Match[str]) -> float | None:
    day, clock = level[1].split("T")
    date = f"{day[:4]}-{day[4:6]}-{day[6:]}T{clock[:2]}:{clock[2:4]}:{clock[4:]}"
    return seconds(f"{date}.{level[2][:6]}" if level[2] else date)


def _feedback(run: dict[str, Any]) -> dict[str, float]:
    stats = as_dict(run.get("feedback_stats"))
    averages = {key: number(as_dict(row).get("avg")) for key, row in stats.items()}
    return {key: value for key, value in averages.items() if value is not None}


def _fill(span: Span, run: dict[str, Any], meta: dict[str, Any]) -> None:
    inputs, outputs = as_dict(run.get("inputs")), as_dict(run.get("outputs"))
    if span.kind == "llm":
        span.talks(inputs, outputs)
        span.usage, span.cost_usd = _usage(run, outputs), number(run.get("total_cost"))
        asked = as_dict(as_dict(run.get("extra")).get("invocation_params")).get("model")
        span.model = string(outputs.get("model")) or string(meta.get("ls_model_name")) or string(asked)
    elif span.kind in ("tool", "retriever"):
        span.tool = span.name
        only = inputs.get("input") if set(inputs) == {"input"} else inputs
        span.input, span.output = compact(only or ""), result_text(outputs) if outputs else ""
        span.call = string(as_dict(outputs.get("output")).get("tool_call_id"))
        if span.kind == "tool":
            mark_tool(span, only, outputs)
    else:
        values = {key: value for key, value in outputs.items() if value and key != "__interrupt__"}
        span.talks(inputs, values, with_calls=False)
        if span.name in _AGENTS:
            span.kind, span.agent = "agent", span.name


def _usage(run: dict[str, Any], outputs: dict[str, Any]) -> Usage | None:
    """Where a model run's tokens stand, best first."""
    for got in _counts(outputs):
        if (usage := Usage.openai(got)) is not None:
            return usage
    details = as_dict(run.get("prompt_token_details"))
    reasoning = as_dict(run.get("completion_token_details")).get("reasoning")
    return Usage.whole(
        run.get("prompt_tokens") or None,
        run.get("completion_tokens") or None,
        cached=details.get("cache_read"),
        written=details.get("cache_creation"),
        reasoning=reasoning,
    )


def _counts(outputs: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield as_dict(outputs.get("usage_metadata"))
    for row in as_list(outputs.get("generations")):
        for one in row if isinstance(row, list) else [row]:
            message = as_dict(as_dict(one).get("message"))
            yield as_dict(as_dict(message.get("kwargs", message)).get("usage_metadata"))
    yield as_dict(as_dict(outputs.get("llm_output")).get("token_usage"))
    yield as_dict(outputs.get("usage"))


langsmith = Importer(
    suffixes=(".json", ".jsonl"),
    sniff=_sniff,
    signs=("run_type", "dotted_order", "trace_id", "parent_run_id", "inputs", "outputs"),
    system="langsmith",
    rank=10,
    read_session=_read,
    becomes={
        "llm run": ("orchestrator_decision", "message"),
        "tool or retriever run": ("tool_call", "tool_result"),
        "LangGraph sub-graph": ("spawn", "return"),
        "transfer_to_X, Command(goto=...)": ("message",),
        "__interrupt__": ("human_intervention",),
    },
    versions="unstated",
    exact="tokens, nesting, handoffs",
    lost="prompts and parsers as steps, streamed chunks, attachments, multipart bodies",
)
