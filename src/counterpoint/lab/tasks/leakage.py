"""The leakage test: the truth of a task in any text that agents were given and did not write themselves.

Always true: the first line of a task's truth file is a marker that stands nowhere else, and the rest is the whole solution. The
marker in any text is a leak. The solution is one in a text from outside (a prompt, a tool's answer, the user's words) unless an
agent had written it before: who works it out may say it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from counterpoint.lab.tasks.task import Instance, TextTask
from counterpoint.trace import Event, Trace
from counterpoint.trace.keyed import bits, purpose

_BY_AGENTS = ("message", "return", "aggregate", "orchestrator_decision", "tool_call")
_OUTSIDE = ("user", "operator")
_ECHOES = ("python", "note", "notes")
"""Tools whose answers are what agents wrote or computed."""


@dataclass(frozen=True)
class Leak:
    """One text that holds what it must not."""

    where: str
    """The event or part of the instance, or the number of the text."""
    what: Literal["marker", "solution"]


def marker(task: str, seed: int) -> str:
    """The first line of a truth file: 64 random bits that nobody guesses."""
    return f"TRUTH-{int(bits(seed, purpose('truth marker'), purpose(task))):016x}"


def truth(instance: Instance, task: TextTask) -> tuple[str, str]:
    """The marker and the whole solution."""
    head, _, rest = task.truth_file(instance).partition("\n")
    return head.strip(), rest.strip()


def readable_texts(instance: Instance) -> dict[str, str]:
    """Every text of an instance that some agent may read, by where it stands."""
    out = {"question": instance.question, "answer format": instance.answer_format, "database": instance.database}
    out |= {f"subtask {s.id}": s.text for s in instance.subtasks}
    out |= {f"document {d.id}": f"{d.id} | {d.title}\n{d.text}" for d in instance.documents}
    out |= {f"file {path}": text for path, text in instance.files.items()}
    out |= {f"shard {i} {j}": text for i, shard in enumerate(instance.shards) for j, text in enumerate(shard)}
    return out | {f"planted {i}": p.text for i, p in enumerate(instance.planted)}


def leaks(instance: Instance, texts: Trace | Iterable[str], task: TextTask, *, written: Iterable[str] = ()) -> list[Leak]:
    """Where the truth is found in a trace, or in texts such as prompts; `written` is what agents had written before them."""
    key, solution = truth(instance, task)
    if isinstance(texts, Trace):
        return _in_trace(texts, key, solution)
    known = any(solution in text for text in written)
    out = []
    for i, text in enumerate(texts):
        if key and key in text:
            out.append(Leak(str(i), "marker"))
        elif solution and not known and solution in text:
            out.append(Leak(str(i), "solution"))
    return out


def _in_trace(trace: Trace, key: str, solution: str) -> list[Leak]:
    out = [Leak(ref, "marker") for ref, text in trace.contents.items() if key in text]
    out += [Leak(event.id, "marker") for event in trace.events if key in str(event.extra or "")]
    known = False
    for event in trace.events:
        text, is_own = trace.text(event) or "", _is_own(event)
        outside = _prompt(event, trace) if is_own else [text]
        if not known and any(solution in one for one in outside):
            out.append(Leak(event.id, "solution"))
        known = known or (is_own and solution in text)
    return out


def _is_own(event: Event) -> bool:
    """Whether an agent wrote what this event says."""
    by_agent = event.type in _BY_AGENTS and event.agent not in _OUTSIDE
    return by_agent or (event.type == "tool_result" and event.tool in _ECHOES)


def _prompt(event: Event, trace: Trace) -> list[str]:
    """The messages of the prompt that led to this event, where the trace keeps them."""
    call = (event.extra or {}).get("call")
    refs = call.get("prompt") if isinstance(call, dict) else None
    return [trace.contents.get(ref, "") for ref in refs if isinstance(ref, str)] if isinstance(refs, list | tuple) else []
