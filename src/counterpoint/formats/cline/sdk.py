"""Sessions of Cline's CLI and SDK: `<session>.messages.json`, with `<session>.json` and the sessions of its sub-agents.

Always true: a sub-agent is linked to its call by the words of its task, which is counted as inferred; where it has no messages of
its own, the totals that its call's result states count once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from counterpoint.formats.cline.requests import is_inside, usage_of
from counterpoint.formats.cline.subagents import stated_subagent
from counterpoint.formats.cline.words import said_in, spoken_by
from counterpoint.formats.importer import Session
from counterpoint.formats.importing.blocks import blocks_of
from counterpoint.formats.importing.chat import Call
from counterpoint.formats.importing.dialogue import MAIN, Dialogue, Entry, play, require_half
from counterpoint.formats.importing.report import Report
from counterpoint.formats.importing.usage import odd_counts
from counterpoint.formats.importing.values import as_dict, as_list, count, folder_name, number, seconds, string
from counterpoint.trace import Trace
from counterpoint.trace.keys import PROJECT

_NAMES = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens")
_SPAWNS = frozenset({"spawn_agent", "team_run_task", "team_spawn_teammate", "use_subagents", "agent"})
_LOST = "the transcript of a sub-agent: its totals are what its parent states"


@dataclass
class _Agent:
    """What is known of one agent of a session."""

    name: str
    messages: list[dict[str, Any]] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    document: dict[str, Any] = field(default_factory=dict)
    """The file of its messages, without them."""


def read_sdk(session: Session) -> Iterator[Trace]:
    """The trace of a session and its sub-agents."""
    agents: dict[str, _Agent] = {}
    unknown: Counter[str] = Counter()
    for file in session.files:
        value = as_dict(session.document(file))
        agent = agents.setdefault(file.stem, _Agent(file.stem))
        if "messages" in value:
            kept = [m for m in as_list(value["messages"]) if isinstance(m, dict)]
            unknown["message that is not an object"] += len(as_list(value["messages"])) - len(kept)
            agent.messages, agent.document = kept, {k: v for k, v in value.items() if k != "messages"}
        else:
            agent.about = value
    session.report.records += sum(len(agent.messages) for agent in agents.values())
    lead = next((a for a in agents.values() if a.document.get("agent") == "lead"), None) or next(iter(agents.values()))
    name = string(lead.document.get("sessionId")) or string(lead.about.get("session_id")) or lead.name
    draft = session.draft(name, name, system="cline")
    dialogues: dict[str, Dialogue] = {}
    left_out: Counter[str] = Counter()
    for agent in [lead, *(a for a in agents.values() if a is not lead)]:
        own = MAIN if agent is lead else agent.name.partition("__")[2] or agent.name
        dialogues[agent.name] = Dialogue(own, _entries(agent, draft.report, left_out, unknown))
        dialogues[agent.name].role = None if agent is lead else string(agent.document.get("agent"))
    require_half(name, sum(len(a.messages) for a in agents.values()), unknown)
    session.report.unknown.update({kind: n for kind, n in unknown.items() if n})
    stated = _link([dialogues[lead.name], *(d for n, d in dialogues.items() if n != lead.name)])
    if title := string(as_dict(lead.about.get("metadata")).get("title")):
        draft.meta["title"] = title
    if folder := folder_name(lead.about.get("workspace_root") or lead.about.get("cwd")):
        draft.meta[PROJECT] = folder
    play(draft, [*dialogues.values(), *stated])
    if stated:
        draft.report.lacks[_LOST] += len(stated)
    draft.lane(MAIN).stops()
    if left_out := Counter({kind: n for kind, n in sorted(left_out.items()) if n}):
        draft.meta["left_out"] = dict(left_out)
    yield from draft.traces()


def _entries(agent: _Agent, report: Report, left_out: Counter[str], unknown: Counter[str]) -> list[Entry]:
    rows = [as_dict(message.get("metrics")) for message in agent.messages]
    inside = is_inside(rows, ("inputTokens", "cacheReadTokens", "cacheWriteTokens"))
    entries: list[Entry] = []
    if prompt := string(agent.document.get("system_prompt")):
        entries.append(Entry("system", prompt, "system"))
    for k, message in enumerate(agent.messages):
        blocks = blocks_of(message.get("content"), unknown)
        left_out["images and files"] += blocks.images
        name, at = string(message.get("id")) or f"m{k}", seconds(message.get("ts"))
        if message.get("role") == "assistant":
            calls = [Call(c.id or f"{name}.{n}", c.tool, c.arguments) for n, c in enumerate(blocks.calls)]
            text = "\n".join(filter(None, (blocks.text, spoken_by(calls))))
            entry = Entry("assistant", text, name, at, blocks.thinking, calls)
            _spend(entry, as_dict(message.get("metrics")), inside, report)
            entry.model = string(as_dict(message.get("modelInfo")).get("id")) or string(agent.about.get("model"))
            entries.append(entry)
        elif message.get("role") in ("user", "tool"):
            for answer in blocks.answers:
                answer.ok = True if answer.ok is None else answer.ok
            if blocks.answers:
                entries.append(Entry("tool", id=f"{name}.t", at=at, answers=blocks.answers))
            said = said_in(blocks.texts)
            entries += [Entry("user", note, f"{name}.c{n}", at, by="client") for n, note in enumerate(said.notes)]
            entries += [Entry("user", words, name if n == 0 else f"{name}.{n}", at) for n, words in enumerate(said.words)]
        else:
            unknown[f"message of role {message.get('role')}"] += 1
    _total(entries, as_dict(as_dict(agent.about.get("metadata")).get("usage")), inside)
    return entries


def _spend(entry: Entry, metrics: dict[str, Any], inside: bool, report: Report) -> None:
    report.note_odd_counts(odd_counts(metrics, _NAMES))
    entry.usage = usage_of(_renamed(metrics), inside=inside)
    entry.cost = number(metrics.get("cost")) or None


def _renamed(got: dict[str, Any]) -> dict[str, Any]:
    names = ("tokensIn", "tokensOut", "cacheReads", "cacheWrites")
    return {ours: got.get(theirs) for ours, theirs in zip(names, _NAMES, strict=True)}


def _total(entries: list[Entry], usage: dict[str, Any], inside: bool) -> None:
    """Where no message states its tokens, those of the session stand on the last step."""
    steps = [entry for entry in entries if entry.role == "assistant"]
    if steps and not any(step.usage for step in steps) and count(usage.get("inputTokens")):
        steps[-1].usage, steps[-1].cost = usage_of(_renamed(usage), inside=inside), number(usage.get("totalCost")) or None
        steps[-1].extra["tokens_of"] = "the run"


def _link(dialogues: list[Dialogue]) -> list[Dialogue]:
    """Say which call made which agent; gives those of which only a result is there."""
    calls = [call for d in dialogues for e in d.entries for call in e.calls if call.tool in _SPAWNS]
    taken: set[str | None] = set()
    for child in dialogues[1:]:
        words = next((e.text for e in child.entries if e.role == "user" and e.by is None), "").strip()
        free = [call for call in calls if call.id not in taken and _task(call)]
        alike = [call for call in free if _task(call) == words or (words and _task(call) in words)]
        if alike:
            child.call, child.rule, child.is_exact = alike[0].id, "the words of its task", False
            child.name = string(as_dict(alike[0].arguments).get("agentId"))
            taken.add(alike[0].id)
    answers = {a.call: a for d in dialogues for e in d.entries for a in e.answers if a.call}
    left = [call for call in calls if call.id not in taken and call.id in answers]
    return [found for call in left if (found := stated_subagent(call, answers[call.id or ""])) is not None]


def _task(call: Call) -> str:
    given = as_dict(call.arguments)
    return (string(given.get("task")) or string(given.get("prompt")) or "").strip()
