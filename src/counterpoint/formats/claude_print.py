"""What `claude -p` prints as `json` or `stream-json`, and what Amp and Qwen Code print, which is alike.

| record | becomes |
|---|---|
| `assistant` (records of one message merged) | `orchestrator_decision` of the main agent, `message` of another; `tool_call`s |
| `user` | `tool_result`; `human_intervention` where a person's words are replayed |
| a record with `parent_tool_use_id` | one of the sub-agent that this call made: `spawn`, `return` |
| `result` | the last answer where no record has it; tokens, cost and time of the run |

Tokens: a message printed while it was streamed states its output as it began. `modelUsage` of the result says what each model
had in the end: what messages do not state goes to the last step of that model, as `tokens_of: the run`. Qwen Code's input holds
the cache, as its `total_tokens` says; it prints the words before a call as a message of their own, which has no tokens.

What is lost: the prompt where it is not replayed, times, pieces of a stream (counted in `left_out`).

Always true: the records of one session make one trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from counterpoint.formats.importer import Importer, Session, run_of
from counterpoint.formats.importing.blocks import blocks_of
from counterpoint.formats.importing.dialogue import MAIN, Dialogue, Entry, play, require_half
from counterpoint.formats.importing.files import first_keys
from counterpoint.formats.importing.run_totals import spread, without
from counterpoint.formats.importing.usage import ANTHROPIC, Usage, odd_counts
from counterpoint.formats.importing.values import as_dict, as_list, number, seconds, string, text_of
from counterpoint.trace import Trace

_NOTES = frozenset(
    {"stream_event", "rate_limit_event", "control_request", "control_response", "control_cancel_request", "keep_alive"}
    | {"tool_progress", "auth_status", "tool_use_summary", "prompt_suggestion", "streamlined_text", "transcript_mirror"}
)
_RULE = "parent_tool_use_id names the call"


def _sniff(head: bytes) -> bool:
    keys = first_keys(head)
    if not {"type", "session_id"} <= keys.keys() or b'"tool_call"' in head:
        return False
    kind = keys["type"].strip()
    if kind == b'"system"':
        return "subtype" in keys and ("tools" in keys or "mcp_servers" in keys or "hook_id" in keys or "uuid" in keys)
    if kind == b'"result"':
        return {"subtype", "is_error"} <= keys.keys() and ("usage" in keys or "num_turns" in keys)
    return kind in (b'"assistant"', b'"user"') and "message" in keys and "parent_tool_use_id" in keys


def _read(session: Session) -> Iterator[Trace]:
    for file in session.files:
        runs: dict[str, _Run] = {}
        unknown: Counter[str] = Counter()
        records = 0
        for value in session.documents(file):
            for record in map(as_dict, value if isinstance(value, list) else [value]):
                records += 1
                name = string(record.get("session_id")) or next(reversed(runs), None) or f"print-{run_of(record)}"
                if not runs.setdefault(name, _Run(name)).take(record, f"r{records}", unknown):
                    unknown[f"record of type {record.get('type')}"] += 1
        require_half(file.name, records, unknown)
        session.report.unknown.update(unknown)
        for run in runs.values():
            yield from run.traces(session)


class _Run:
    """One session on its way to a trace."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dialogues: dict[str, Dialogue] = {MAIN: Dialogue()}
        self.steps: dict[str, Entry] = {}
        self.about: dict[str, Any] = {}
        self.result: dict[str, Any] = {}
        self.left_out: Counter[str] = Counter()
        self.odd = 0

    @property
    def is_qwen(self) -> bool:
        """Whether Qwen Code printed it."""
        return "qwen_code_version" in self.about

    def take(self, record: dict[str, Any], name: str, unknown: Counter[str]) -> bool:
        """Take a record; False where its kind is not known."""
        kind, at = string(record.get("type")), seconds(record.get("timestamp"))
        parent = string(record.get("parent_tool_use_id"))
        dialogue = self.dialogues[MAIN]
        if parent:
            dialogue = self.dialogues.setdefault(parent, Dialogue(parent, call=parent, rule=_RULE))
        if kind == "assistant":
            self._answered(dialogue, as_dict(record.get("message")), name, at, unknown)
        elif kind == "user":
            self._told(dialogue, record, string(record.get("uuid")) or name, at, unknown)
        elif kind == "system" and record.get("subtype") == "init":
            self.about.update(record)
        elif kind == "system" and record.get("subtype") == "compact_boundary":
            dialogue.entries.append(Entry("user", "compaction", name, at, by="client", extra={"is_compaction": True}))
        elif kind == "result":
            self.result = record
        elif kind == "system" or kind in _NOTES:
            self.left_out[string(record.get("subtype")) or str(kind)] += 1
        else:
            return False
        return True

    def _answered(self, dialogue: Dialogue, message: dict[str, Any], name: str, at: float | None, unknown: Counter[str]) -> None:
        found = blocks_of(message.get("content"), unknown)
        key = string(message.get("id")) or name
        step = self.steps.get(key) or self._words(dialogue)
        if step is None:
            step = Entry("assistant", id=key, model=string(message.get("model")))
            dialogue.entries.append(step)
        self.steps[key] = step
        step.at = at or step.at
        step.text = "\n".join(filter(None, (step.text, found.text)))
        step.thinking = "\n".join(filter(None, (step.thinking, found.thinking)))
        met = {call.id for call in step.calls if call.id}
        step.calls += [call for call in found.calls if call.id not in met]
        self.odd += odd_counts(as_dict(message.get("usage")), ANTHROPIC)
        step.usage = _usage(message.get("usage")) or step.usage
        step.stop_reason = string(message.get("stop_reason")) or step.stop_reason
        if step.model == "<synthetic>":
            step.model, step.usage, step.error = None, None, step.text or "error"

    def _words(self, dialogue: Dialogue) -> Entry | None:
        """The words that Qwen Code printed just before, whose tokens stand on the call that follows."""
        last = dialogue.entries[-1] if self.is_qwen and dialogue.entries else None
        is_open = last is not None and last.role == "assistant" and not last.calls and last.usage is None
        return last if is_open else None

    def _told(self, dialogue: Dialogue, record: dict[str, Any], name: str, at: float | None, unknown: Counter[str]) -> None:
        found = blocks_of(as_dict(record.get("message")).get("content"), unknown)
        if found.answers:
            dialogue.entries.append(Entry("tool", at=at, answers=found.answers))
        if found.text:
            is_person = dialogue.agent == MAIN and record.get("isSynthetic") is not True
            dialogue.entries.append(Entry("user", found.text, name, at, by=None if is_person else "client"))

    def traces(self, session: Session) -> Iterator[Trace]:
        is_amp = self.name.startswith("T-")
        draft = session.draft(self.name, self.name, system="amp" if is_amp else "qwen-code" if self.is_qwen else "claude-code")
        entries = self.dialogues[MAIN].entries
        self._close(entries)
        totals = {}
        for model, used in as_dict(self.result.get("modelUsage")).items():
            got = as_dict(used)
            read, written = got.get("cacheReadInputTokens"), got.get("cacheCreationInputTokens")
            spelled = {"input_tokens": got.get("inputTokens"), "output_tokens": got.get("outputTokens")}
            cached = {"cache_read_input_tokens": read, "cache_creation_input_tokens": written}
            if usage := Usage.anthropic({**spelled, **cached}):
                totals[model] = usage
        everything = [entry for dialogue in self.dialogues.values() for entry in dialogue.entries]
        spread(everything, totals)
        if self.is_qwen and (whole := _usage(self.result.get("usage"))):
            rest = without(whole, (e.usage for e in everything if e.usage))  # those of sub-agents, whose messages state none
            spread([e for e in everything if not e.usage], {str(self.about.get("model")): rest})
        entries += [entry for entry in everything if (entry.id or "").startswith("tokens:")]
        self._cost(draft, totals, is_amp=is_amp)
        play(draft, self._children())
        draft.lane(MAIN).stops()
        if left_out := {kind: n for kind, n in sorted(self.left_out.items()) if n}:
            draft.meta["left_out"] = left_out
        yield from draft.traces()

    def _children(self) -> list[Dialogue]:
        """All dialogues, with what their calls say about the agents."""
        calls = {call.id: call for d in self.dialogues.values() for e in d.entries for call in e.calls}
        for name, dialogue in self.dialogues.items():
            call = calls.get(name)
            told = as_dict(call.arguments) if call else {}
            dialogue.role = string(told.get("subagent_type")) or (call.tool if call else None)
            dialogue.name = string(told.get("description"))
            if call and dialogue.entries and dialogue.entries[0].role != "user" and string(told.get("prompt")):
                dialogue.entries.insert(0, Entry("user", str(told["prompt"]), by="client"))
        return list(self.dialogues.values())

    def _close(self, entries: list[Entry]) -> None:
        """What the result says of the last answer."""
        steps = [e for e in entries if e.role == "assistant"]
        text = text_of(self.result.get("result") or "")
        if self.result and not steps:
            steps = [Entry("assistant", text, "answer", model=string(self.about.get("model")))]
            steps[0].usage = _usage(self.result.get("usage")) if not self.result.get("modelUsage") else None
            models = list(as_dict(self.result.get("modelUsage")))
            steps[0].model = steps[0].model or (models[0] if models else None)
            entries += steps
        if self.result.get("is_error") is True and steps and not steps[-1].error:
            said = text or "; ".join(map(text_of, as_list(self.result.get("errors")))) or text_of(self.result.get("error") or "")
            steps[-1].error = said[:500] or string(self.result.get("subtype")) or "error"

    def _cost(self, draft: Any, totals: dict[str, Usage], *, is_amp: bool) -> None:
        draft.report.note_odd_counts(self.odd)
        if (cost := number(self.result.get("total_cost_usd"))) is not None:
            draft.costs["cost_usd"] = cost
        if (spent := number(self.result.get("duration_ms"))) is not None:
            draft.costs["wall_clock_s"] = spent / 1000
        if self.steps and not totals and not (is_amp or self.is_qwen):
            draft.report.lacks["the output of calls: stated as they began"] += len(self.steps)
        if string(self.about.get("cwd")):
            draft.meta["project"] = str(self.about["cwd"]).replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
        if version := string(self.about.get("claude_code_version")) or string(self.about.get("qwen_code_version")):
            draft.meta["version"] = version
        if subtype := string(self.result.get("subtype")):
            draft.meta["result"] = subtype
        if not any(e.role == "user" and e.by is None for e in self.dialogues[MAIN].entries):
            draft.report.lacks["the prompt"] += 1


def _usage(raw: Any) -> Usage | None:
    """Tokens as Anthropic counts them, or as Qwen Code does: a total says that the input holds the cache; zeros are none."""
    got = as_dict(raw)
    if "total_tokens" not in got:
        return Usage.anthropic(got) or None
    return Usage.whole(got.get("input_tokens"), got.get("output_tokens"), cached=got.get("cache_read_input_tokens"))


claude_print = Importer(
    suffixes=(".stream.jsonl",),
    sniff=_sniff,
    signs=("type", "session_id", "parent_tool_use_id", "subtype", "total_cost_usd", "num_turns", "modelUsage", "mcp_servers"),
    system="claude-code",
    read_session=_read,
    rank=2,
    becomes={
        "assistant": ("orchestrator_decision", "aggregate", "message", "tool_call", "spawn"),
        "user": ("tool_result", "human_intervention", "return"),
        "result": ("tokens_in", "tokens_out", "cost_usd", "meta"),
    },
    lost="the prompt where it is not replayed, times, pieces of a stream",
    versions="Claude Code 1.0 to 2.1, Amp's stream of 2026, Qwen Code 0.15",
    exact="sub-agents, tool results, tokens of the run for each model, its cost and time",
)
"""What Claude Code, Amp and Qwen Code print."""
