"""Logs of sessions that hang: their last record is a call without an answer."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _write(path: Path, records: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def claude(folder: Path, at: float, *, answers: int = 1, then: str | None = None) -> Path:
    """A Claude Code session that calls `sleep 99999` and a second tool at once; of the two `answers` are answered."""
    session = "11112222-3333-4444-5555-666677778888"
    about = {"sessionId": session, "cwd": "/srv/shop", "version": "2.1.0", "isSidechain": False, "userType": "external"}
    calls = [("toolu_01", "Read", {"file_path": "/srv/shop/door.txt"}), ("toolu_02", "Bash", {"command": "sleep 99999"})]
    usage = {"input_tokens": 1000, "output_tokens": 50}
    said = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-opus-4-5-20251101", "usage": usage}
    content = [{"type": "tool_use", "id": name, "name": tool, "input": args} for name, tool, args in calls]
    records: list[dict[str, Any]] = [
        {"type": "user", "message": {"role": "user", "content": "Wait for the door to dry."}, "uuid": "u1", "parentUuid": None},
        {"type": "assistant", "message": said | {"content": content}, "uuid": "a1", "parentUuid": "u1", "requestId": "req_1"},
    ]
    for k, (name, _, _) in enumerate(calls[:answers]):
        answer = {"type": "tool_result", "tool_use_id": name, "content": "done"}
        records.append({"type": "user", "message": {"role": "user", "content": [answer]}, "uuid": f"r{k}", "parentUuid": "a1"})
    if then is not None:
        records.append({"type": "user", "message": {"role": "user", "content": then}, "uuid": "u2", "parentUuid": "a1"})
    dated = [record | about | {"timestamp": _stamp(at + 2 * k)} for k, record in enumerate(records)]
    return _write(folder / "-srv-shop" / f"{session}.jsonl", dated)


def codex(folder: Path, at: float, *, is_answered: bool = False) -> Path:
    """A Codex session that runs `sleep 99999`."""
    session = "019f0000-1111-7222-8333-444455556666"
    payloads: list[tuple[str, dict[str, Any]]] = [
        ("session_meta", {"id": session, "timestamp": _stamp(at), "cwd": "/srv/barn", "originator": "codex_cli", "cli_version": "0.142.2"}),
        ("turn_context", {"cwd": "/srv/barn", "model": "gpt-5.4"}),
        ("event_msg", {"type": "user_message", "message": "Wait for the paint to dry."}),
        ("response_item", {"type": "function_call", "name": "shell", "arguments": '{"command":["sleep","99999"]}', "call_id": "call_1"}),
    ]
    if is_answered:
        payloads.append(("response_item", {"type": "function_call_output", "call_id": "call_1", "output": "done"}))
    records = [{"timestamp": _stamp(at + k), "type": kind, "payload": payload} for k, (kind, payload) in enumerate(payloads)]
    return _write(folder / f"rollout-{session}.jsonl", records)
