"""Small instances, and calls of tools without a team around them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from counterpoint.lab.tasks.task import Document, Instance, Subtask
from counterpoint.lab.team.tool import Place

T = TypeVar("T")


def instance(**fields: Any) -> Instance:
    """An instance that has only what a test is about."""
    known: dict[str, Any] = {
        "task": "made_up", "seed": 0, "question": "which?", "answer_format": "a word", "subtasks": (Subtask("s1", "find it"),),
    }  # fmt: skip
    return Instance(**(known | fields))


def documents(**texts: str) -> tuple[Document, ...]:
    """Documents by id, with empty titles."""
    return tuple(Document(id_, "", text) for id_, text in texts.items())


def place(folder: Path | str = "nowhere", agent: str = "lead.1", **fields: Any) -> Place:
    """An agent's place."""
    return Place(agent, Path(folder), fields.pop("shared", {}), **fields)


def run(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine gives."""
    return asyncio.run(work)
