"""A tiny driver for the text tasks: one worker over an instance's documents and database, with the tools' own formats."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from counterpoint.lab.tasks.task import Act, Choice, Instance, Subtask, TextTask, View, ViewItem
from counterpoint.trace.keyed import purpose, uniform

HITS = 8


def _tokens(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def search(instance: Instance, words: str) -> str:
    """The best documents by the words they share, rare words counting more."""
    bags = {d.id: Counter(_tokens(f"{d.title} {d.text}")) for d in instance.documents}
    often = Counter(word for bag in bags.values() for word in bag)
    asked = set(_tokens(words))
    scores = {id_: sum(1 / often[w] for w in asked if w in bag) / (1 + 0.001 * bag.total()) for id_, bag in bags.items()}
    best = sorted((d for d in instance.documents if scores[d.id]), key=lambda d: (-scores[d.id], d.id))[:HITS]
    return "\n".join(f"{d.id} | {d.title} | {' '.join(d.text.split())[:60]}" for d in best) or "no hit"


def open_(instance: Instance, name: str) -> str:
    """One document."""
    found = next((d for d in instance.documents if d.id == name.strip()), None)
    return f"{found.id} | {found.title}\n{found.text}" if found else f"no document {name!r}"


def sql(instance: Instance, query: str) -> str:
    """A query's header and rows."""
    with sqlite3.connect(":memory:") as base:
        base.executescript(instance.database)
        try:
            rows = base.execute(query)
        except sqlite3.Error as error:
            return f"error: {error}"
        return "\n".join(" | ".join(map(str, line)) for line in [[c[0] for c in rows.description], *rows.fetchall()])


Tools = Mapping[str, Callable[[Instance, str], str]]
TOOLS: Tools = {"search": search, "open": open_, "sql": sql, "notes": lambda i, _: "(no notes)"}


def drawer(seed: int) -> Callable[[str], float]:
    """Keyed draws of one call."""
    return lambda name: float(uniform(seed, purpose(name)))


def choices(instance: Instance, *verbs: str) -> tuple[Choice, ...]:
    """The instance's tools, and ways to end."""
    return (*(Choice("tool", t, None, "words") for t in instance.tools), *(Choice(v) for v in verbs))  # type: ignore[arg-type]


def play(
    task: TextTask,
    instance: Instance,
    subtask: Subtask | None = None,
    *,
    skill: float = 1.0,
    seed: int = 0,
    steps: int = 2_000,
    before: Iterable[ViewItem] = (),
    purpose: str = "work",
    ends: Sequence[str] = ("return",),
    tools: Tools = TOOLS,
    agent: str = "lead.1",
) -> tuple[Act, list[ViewItem]]:
    """One worker until it ends; what it said last, and all that it saw."""
    asked = f"{instance.question}\nAnswer format: {instance.answer_format}"
    if agent == "lead":  # who may hand out parts is told which there are
        asked += "\nThe work can be split into these parts:\n" + "\n".join(f"{s.id}: {s.text}" for s in instance.subtasks)
    seen = [ViewItem("question", "user", asked), *before]
    if subtask is not None:
        seen.append(ViewItem("subtask", "lead", subtask.text, subtask.id))
    for step in range(steps):
        view = View(agent, "worker", purpose, tuple(seen), choices(instance, *ends))
        act = task.work(view, drawer(seed * 1_000_003 + step), skill)
        if act.verb != "tool":
            return act, seen
        seen.append(ViewItem("own", agent, f"TOOL {act.target}: {act.text}"))
        seen.append(ViewItem("result", act.target, tools[act.target](instance, act.text), subtask.id if subtask else ""))
    raise AssertionError(f"no end after {steps} steps")


def calls(seen: Iterable[ViewItem]) -> int:
    """How many calls of tools a worker made."""
    return sum(s.kind == "own" for s in seen)
