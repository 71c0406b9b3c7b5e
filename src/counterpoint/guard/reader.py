"""What the readers of all formats share: which call started which agent, how deep it is, and who makes a call.

Always true: a spawn counts from the moment it is let through, under its call's name; as soon as the agent's own id is known,
under that; a spawn that failed does not count.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from zlib import crc32

from counterpoint.guard.quick_json import dumps
from counterpoint.guard.state import GuardState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any


def seconds(text: Any) -> float | None:
    """A time as the records write it (2026-01-31T12:34:56.789Z), in seconds since the epoch."""
    if not isinstance(text, str) or len(text) < 19:
        return None
    try:
        year, month, day = int(text[:4]), int(text[5:7]), int(text[8:10])
        clock: float = int(text[11:13]) * 3600 + int(text[14:16]) * 60 + int(text[17:19])
        if text[19:20] == "." and text.endswith("Z"):
            clock += float(text[19:-1])
        elif text[19:] != "Z":
            return _other_seconds(text)
    except ValueError:
        return None
    # Days since 1970 by the civil calendar, with years that begin in March: importing `datetime` costs a tenth of a call.
    year, month = (year - 1, month + 9) if month < 3 else (year, month - 3)
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - 719469
    return float(days * 86400 + clock)


def _other_seconds(text: str) -> float | None:
    from datetime import datetime

    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None


def call_key(tool: str, args: Any) -> str:
    """One call with its input, as a short text."""
    return f"{tool}:{crc32(dumps(args, sort_keys=True).encode()):08x}"


def prompt_sum(text: Any) -> int | None:
    """A sum of a prompt's words: a spawn and the agent that it made have the same."""
    words = " ".join(text.split()) if isinstance(text, str) else ""
    return crc32(words.encode("utf-8", "replace")) if words else None


class SessionReader(ABC):
    """Takes a session's new records into a state; a format says how they are read."""

    spawns: tuple[str, ...] = ()
    """The tools that start one agent."""
    starters: tuple[str, ...] = ()
    """The tools that start any number of them: refused like a spawn, and counted by the agents that appear."""

    def __init__(self, state: GuardState) -> None:
        self.state, self.tally = state, state.tally

    @abstractmethod
    def root(self, transcript: str) -> str:
        """The session's own transcript, also where a sub-agent's file is named."""

    @abstractmethod
    def files_of(self, transcript: str) -> Iterator[tuple[str, str]]:
        """The files of a session, each with its agent; those that the records name come after the records were taken."""

    def on_file(self, path: str, agent: str) -> None:  # noqa: B027 - not every format asks for it
        """A file is read for the first time."""

    @abstractmethod
    def take(self, record: dict[str, Any], agent: str) -> None:
        """Count one record of an agent's file."""

    @abstractmethod
    def calls_of(self, record: dict[str, Any]) -> list[tuple[str, str, Any]]:
        """The tool calls in a record: id, tool and input."""

    def update(self, transcript: str, *, to_end: bool = False) -> None:
        """Read what is new in all files of the session."""
        for path, agent in self.files_of(transcript):
            if path not in self.state.files:
                self.on_file(path, agent)
            for record in self.state.lines(path, agent, to_end=to_end):
                try:
                    self.take(record, agent)
                except (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError):
                    self.state.unread += 1  # a record like no other: the next ones are read all the same

    def in_order(self, transcript: str) -> Iterator[tuple[str, dict[str, Any], float | None]]:
        """Every record of a session that is over, with its agent, by time; without a time, behind the one before it."""
        scratch = type(self)(GuardState())
        scratch.update(transcript, to_end=True)
        rows = []
        for place, (path, entry) in enumerate(scratch.state.files.items()):
            last = float("-inf")
            for number, record in enumerate(GuardState().lines(path, entry[2], to_end=True)):
                at = seconds(record.get("timestamp"))
                last = last if at is None else max(last, at)
                rows.append((last, place, number, path, entry[2], record, at))
        rows.sort(key=lambda row: row[:3])
        for _, _, _, path, agent, record, at in rows:
            if path not in self.state.files:
                self.state.files[path] = [0, 0, agent]
                self.on_file(path, agent)
            yield agent, record, at

    def is_spawn(self, tool: str) -> bool:
        """Whether a tool starts an agent, or several."""
        return tool in self.spawns or tool in self.starters

    def key(self, tool: str, args: Any) -> str:
        """One call with its input, as `Tally.on_result` has earlier ones."""
        return call_key(tool, args)

    def caller(self, call: Mapping[str, Any]) -> str:
        """The agent that makes a call, as the hook is told."""
        agent = call.get("agent_id")
        return agent if isinstance(agent, str) and agent else "main"

    def is_granted(self, call: Any) -> bool:
        """Whether this very spawn was let through before."""
        return isinstance(call, str) and call in self.state.spawns and bool(self.state.spawns[call][3])

    def depth(self, agent: str) -> int:
        """Spawns between the main agent and this one."""
        if agent == "main":
            return 0
        return int(self.tally.agents[agent][0]) if agent in self.tally.agents else 1

    def grant(self, call: str, tool: str, agent: str, args: Any, now: float | None) -> None:
        """A spawn may go on: it counts from now, before anything of it is written."""
        if tool not in self.spawns:
            return
        prompt = next((args[name] for name in ("prompt", "message") if name in args), None) if isinstance(args, dict) else None
        spawn = self.state.spawns.setdefault(call, [agent, None, prompt_sum(prompt), False])
        self.start(call, spawn, now)

    def start(self, call: str, spawn: list[Any], at: float | None) -> None:
        """A spawn has begun, and its agent has no name yet."""
        if spawn[1] is None and not spawn[3]:
            spawn[3] = True
            self.tally.on_agent(f"call:{call}", self.depth(spawn[0]) + 1, at)

    def link_prompt(self, agent: str, prompt: str, at: float | None) -> None:
        """An agent that no record names belongs to the spawn with the same prompt, else to nobody."""
        known, wanted = {spawn[1] for spawn in self.state.spawns.values()}, prompt_sum(prompt)
        if agent in known:
            return
        for call, spawn in self.state.spawns.items():
            if spawn[1] is None and wanted is not None and spawn[2] == wanted:
                self.link(call, agent, at)
                return
        self.tally.on_agent(agent, 1, at)

    def link(self, call: Any, agent: str, at: float | None) -> None:
        """This call made this agent."""
        spawn = self.state.spawns.get(call) if isinstance(call, str) else None
        if spawn is None:
            self.tally.on_agent(agent, 1, at)
            return
        if spawn[1] is not None:
            return
        spawn[1] = agent
        begun = self.tally.agents.pop(f"call:{call}", None)
        self.tally.on_agent(agent, self.depth(spawn[0]) + 1, begun[1] if begun else at)
