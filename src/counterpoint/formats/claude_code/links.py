"""Which spawn made which sub-agent, in Claude Code's records.

Always true: a sub-agent is claimed by one spawn and a spawn makes one sub-agent; what the records state (sidecar, structured
result, progress, notification, the id in the result's text) is an exact link; equal prompts are an inferred one, and two
equal prompts do not claim the same sub-agent. What is left over is reported as unlinked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from counterpoint.formats.claude_code.talk import Message, Talks, user_text
from counterpoint.formats.importing.report import Report
from counterpoint.formats.importing.values import as_dict, as_list, seconds, string, text_of

SPAWNS = ("Task", "Agent")
_TAIL = re.compile(r"^agentId:\s*([A-Za-z0-9_-]+)|^agent_id:\s*(\S+@\S+)", re.M)
_NOTICE = re.compile(r"<task-notification>(.*?)(?:</task-notification>|\Z)", re.S)
_FIELD = re.compile(r"<(task-id|tool-use-id|status|summary|result)>(.*?)</\1>", re.S)
_LETTER = re.compile(r"<teammate-message\s[^>]*>\s*(.*?)\s*</teammate-message>", re.S)


@dataclass(slots=True)
class Answer:
    """A tool's result as the records give it."""

    block: dict[str, Any]
    record: dict[str, Any]

    @property
    def at(self) -> float | None:
        return seconds(self.record.get("timestamp"))

    @property
    def text(self) -> str:
        return text_of(self.block.get("content"))

    @property
    def made(self) -> dict[str, Any]:
        """The structured result, where it is one."""
        return as_dict(self.record.get("toolUseResult"))

    @property
    def is_error(self) -> bool:
        return self.block.get("is_error") is True


@dataclass(slots=True)
class Notice:
    """A background task tells that it ended."""

    task: str
    tool_use: str | None
    status: str
    text: str


@lru_cache(maxsize=256)
def notices(text: str) -> list[Notice]:
    """The task notifications in a text. Each is asked for twice: to link, and to play."""
    found = []
    for body in _NOTICE.findall(text):
        got = {name: value.strip() for name, value in _FIELD.findall(body)}
        if "task-id" in got:
            words = got.get("result") or got.get("summary", "")
            found.append(Notice(got["task-id"], got.get("tool-use-id"), got.get("status", ""), words))
    return found


class Links:
    """Spawn calls and the agents they made."""

    def __init__(self, talks: Talks, report: Report) -> None:
        self.talks, self.report = talks, report
        self.answers: dict[str, Answer] = {}
        """Tool-use id to its result."""
        self.child: dict[str, str] = {}
        """Tool-use id of a spawn to the agent it made."""
        self.name: dict[str, str] = {}
        """Name of a teammate or named agent to its id."""
        self._calls: dict[str, dict[str, Any]] = {}
        self._noticed: dict[str, str] = {}
        everybody = [talks.main, *talks.others.values()]
        for talk in everybody:
            for item in talk.items:
                self._gather(item)
        self._link()

    def _gather(self, item: Message | dict[str, Any]) -> None:
        if isinstance(item, Message):
            for block, _ in item.blocks:
                if block.get("type") == "tool_use" and block.get("name") in SPAWNS and isinstance(block.get("id"), str):
                    self._calls[block["id"]] = as_dict(block.get("input"))
            return
        for block in as_list(as_dict(item.get("message")).get("content")):
            if isinstance(block, dict) and block.get("type") == "tool_result" and isinstance(block.get("tool_use_id"), str):
                self.answers.setdefault(block["tool_use_id"], Answer(block, item))
        words = user_text(item) if item.get("type") == "user" else as_dict(item.get("attachment")).get("prompt")
        if isinstance(words, str) and "<task-notification>" in words:
            self._noticed.update({n.tool_use: n.task for n in notices(words) if n.tool_use})

    def _link(self) -> None:
        sidecars = {talk.tool_use: name for name, talk in self.talks.others.items() if talk.tool_use and talk.about}
        progress = {talk.tool_use: name for name, talk in self.talks.others.items() if talk.tool_use and not talk.about}
        for call, given in self._calls.items():
            answer = self.answers.get(call)
            child, rule = self._stated(call, answer, sidecars, progress)
            if child is not None and child not in self.child.values():
                self._take(call, child, given)
                self.report.linked(rule)
        self._by_prompt()

    def _stated(
        self, call: str, answer: Answer | None, sidecars: dict[str, str], progress: dict[str, str]
    ) -> tuple[str | None, str]:
        if call in sidecars:
            return sidecars[call], "sidecar"
        if answer is not None:
            made = answer.made
            child = string(made.get("agentId")) or string(made.get("agent_id")) or string(made.get("teammate_id"))
            if child is not None:
                return child, "structured result"
        if call in progress:
            return progress[call], "progress record"
        if call in self._noticed:
            return self._noticed[call], "task notification"
        tail = _TAIL.search(answer.text) if answer is not None and not answer.is_error else None
        return (tail[1] or tail[2], "id in the result's text") if tail else (None, "")

    def _take(self, call: str, child: str, given: dict[str, Any]) -> None:
        self.child[call] = child
        if name := string(given.get("name")):
            self.name[name] = child
        if "@" in child:
            self.name.setdefault(child.split("@")[0], child)

    def _by_prompt(self) -> None:
        """What nothing states: the spawn whose prompt is word for word what the sub-agent was told first."""
        taken = set(self.child.values())
        free: dict[str, list[str]] = {}
        for name, talk in self.talks.others.items():
            if name not in taken and (prompt := _plain(talk.prompt())):
                free.setdefault(prompt, []).append(name)
        for call, given in self._calls.items():
            prompt = _plain(str(given.get("prompt") or ""))
            if call not in self.child and free.get(prompt):
                self._take(call, free[prompt].pop(0), given)
                self.report.linked("same prompt", exact=False)

    def linked(self) -> set[str]:
        """Agents that hang on a spawn."""
        return set(self.child.values())


def _plain(prompt: str) -> str:
    letter = _LETTER.search(prompt)
    return " ".join((letter[1] if letter else prompt).split())
