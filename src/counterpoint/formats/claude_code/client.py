"""What Claude Code itself says in a transcript: memory, hooks, refusals, compaction, errors of the API.

Always true: memory files and attached files are content from outside the team; a refusal or a hook that blocks is an event of
safety; reminders and listings are counted in `left_out`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from counterpoint.formats.claude_code.links import notices
from counterpoint.formats.importing.lane import Lane
from counterpoint.formats.importing.values import as_dict, compact, number, seconds, string, text_of

if TYPE_CHECKING:
    from counterpoint.formats.claude_code.replay import Replay

_REMARKS = {"nested_memory": "memory", "file": "tool", "edited_text_file": "tool", "hook_additional_context": "system"}


def attachment(replay: Replay, record: dict[str, Any], lane: Lane) -> None:
    """What the client attached to the conversation."""
    inside, at, uuid = as_dict(record.get("attachment")), seconds(record.get("timestamp")), string(record.get("uuid"))
    kind = str(inside.get("type"))
    if kind == "queued_command":
        words = text_of(inside.get("prompt"))
        if "<task-notification>" in words:
            for k, notice in enumerate(notices(words)):
                replay.notice(notice, at, lane, uuid and f"{uuid}:{k}")
        elif words:
            lane.told(words, at=at, id=uuid, extra={"queued": True})
    elif kind in _REMARKS:
        source = _REMARKS[kind]
        content = inside.get("content") if inside.get("content") is not None else inside.get("snippet")
        text = text_of(as_dict(content).get("file", content) if isinstance(content, dict) else content)
        what = {"attachment": kind, "path": inside.get("displayPath")}
        lane.told(text, by=source, at=at, id=uuid, source=source, trusted=source == "system", extra=what)
    elif kind in ("hook_blocking_error", "hook_stopped_continuation"):
        _safety(replay, lane, at, uuid, text_of(inside.get("blockingError") or inside.get("message")), attachment=kind)
    else:
        replay.left_out[f"attachment {kind}"] += 1


def system(replay: Replay, record: dict[str, Any], lane: Lane) -> None:
    """What the client says about the session itreplay."""
    kind, at, uuid = str(record.get("subtype")), seconds(record.get("timestamp")), string(record.get("uuid"))
    text = text_of(record.get("content"))
    if kind == "model_refusal_fallback":
        names = ("originalModel", "fallbackModel", "apiRefusalCategory")
        _safety(replay, lane, at, uuid, text, **{name: record.get(name) for name in names})
    elif kind == "stop_hook_summary" and record.get("preventedContinuation"):
        _safety(replay, lane, at, uuid, text_of(record.get("stopReason")), hook="stop")
    elif kind == "api_error":
        what = {"retry": record.get("retryAttempt"), "wait_ms": record.get("retryInMs")}
        error = compact(record.get("error"))[:500]
        lane.told(text or error, by="system", at=at, id=uuid, source="system", ok=False, error=error, extra=what)
    elif kind in ("compact_boundary", "microcompact_boundary"):
        about = as_dict(record.get("compactMetadata"))
        spent = number(about.get("durationMs"))
        what = {"compaction": about.get("trigger"), "tokens_before": about.get("preTokens")}
        lane.told(text, by="memory", at=at, id=uuid, source="memory", dur=spent / 1e3 if spent else None, extra=what)
    else:
        replay.left_out[f"system {kind}"] += 1


def _safety(replay: Replay, lane: Lane, at: float | None, uuid: str | None, text: str, **what: Any) -> None:
    event = replay.draft.event("safety_event", lane.agent, id=uuid, at=at, text=text, role=lane.role, extra=what)
    replay.draft.edge(lane.last, event, "causal")
    lane.hears(event)
