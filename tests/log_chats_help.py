"""For tests of logged conversations: the samples as traces, and the rules of a chat with tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from counterpoint.trace import Trace
from logs import SAMPLES, files_of, importer, sessions


def samples() -> Iterator[Trace]:
    for folder in sorted(SAMPLES.iterdir()):
        for session in sessions(folder.name, files_of(folder)):
            yield from importer(folder.name).read_session(session)


def sample(name: str, begin: str) -> Trace:
    for session in sessions(name, files_of(SAMPLES / name)):
        for trace in importer(name).read_session(session):
            if trace.trace_id.startswith(begin):
                return trace
    raise LookupError(begin)


def assert_chat(messages: list[dict[str, Any]]) -> None:
    """OpenAI's rules, and that roles take turns."""
    rest = messages[1:] if messages[0]["role"] == "system" else messages
    roles = [m["role"] for m in rest]
    assert "system" not in roles
    assert roles[0] == "user"
    assert roles[-1] in ("user", "tool")
    waiting: list[str] = []
    met: set[str] = set()
    for before, message in zip([None, *rest], rest, strict=False):
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            continue
        assert waiting == []
        assert before is None or before["role"] != message["role"]
        assert message["content"] or message.get("tool_calls")
        for call in message.get("tool_calls", ()):
            assert call["id"] not in met
            assert call["function"]["name"]
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
            met.add(call["id"])
            waiting.append(call["id"])
    assert waiting == []
