"""A task of which only the screen is there (`ui_messages.json`): what it showed, in order.

Always true: a message that was shown twice, as a question and as done, is one call.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from counterpoint.formats.cline.requests import Request, info_of
from counterpoint.formats.cline.words import outcome
from counterpoint.formats.importing.chat import Call
from counterpoint.formats.importing.dialogue import Answer, Entry
from counterpoint.formats.importing.values import seconds, string, text_of

_CALLS = {
    "command": "execute_command",
    "use_mcp_server": "use_mcp_tool",
    "browser_action_launch": "browser_action",
    "browser_action": "browser_action",
    "followup": "ask_followup_question",
    "new_task": "new_task",
    "use_subagents": "use_subagents",
    "tool": "tool",
}
_OUTPUTS = {
    "command_output": "execute_command",
    "mcp_server_response": "use_mcp_tool",
    "browser_action_result": "browser_action",
    "subtask_result": "newTask",
    "codebase_search_result": "codebaseSearch",
}
_ERRORS = frozenset({"error", "diff_error", "clineignore_error", "rooignore_error", "command_permission_denied", "api_req_failed",
                     "condense_context_error", "mistake_limit_reached"})  # fmt: skip
_WORDS = frozenset({"task", "user_feedback"})
_SPOKEN = frozenset({"text", "completion_result", "plan_mode_respond", "act_mode_respond"})
_REQUESTS = frozenset({"api_req_started", "deleted_api_reqs", "condense_context"})
_NOTES = frozenset(
    {
        "api_req_finished", "api_req_retried", "api_req_retry_delayed", "api_req_rate_limited", "api_req_deleted", "error_retry",
        "user_feedback_diff", "shell_integration_warning", "shell_integration_warning_with_suggestion", "checkpoint_created",
        "checkpoint_saved", "load_mcp_documentation", "generate_explanation", "info", "task_progress", "hook_status",
        "hook_output_stream", "subagent", "subagent_usage", "conditional_rules_applied", "mcp_server_request_started", "image",
        "mcp_notification", "browser_session_status", "sliding_window_truncation", "user_edit_todos", "resume_task",
        "resume_completed_task", "condense", "summarize_task", "report_bug", "auto_approval_max_req_reached",
        "too_many_tools_warning", "inspect_site_result", "invalid_model", "payment_required_prompt", "commit_changes",
    }
)  # fmt: skip

_KNOWN = frozenset({*_CALLS, *_OUTPUTS, *_ERRORS, *_WORDS, *_SPOKEN, *_REQUESTS, *_NOTES, "reasoning"})


def screen_entries(
    ui: list[dict[str, Any]], requests: list[Request], left_out: Counter[str], unknown: Counter[str]
) -> list[Entry]:
    """The entries of a task that its screen shows."""
    return _Screen(requests, left_out, unknown).read(ui)


def unknown_kinds(ui: list[dict[str, Any]]) -> Counter[str]:
    """The messages of a screen that are of no known kind."""
    kinds = (string(message.get("say")) or string(message.get("ask")) for message in ui)
    return Counter(f"message that says {kind}" for kind in kinds if kind not in _KNOWN)


class _Screen:
    def __init__(self, requests: list[Request], left_out: Counter[str], unknown: Counter[str]) -> None:
        self.requests = {request.name: request for request in requests}
        self.left_out, self.unknown = left_out, unknown
        self.entries: list[Entry] = []
        self.open: list[tuple[str, str]] = []
        self.shown: tuple[str, str] | None = None

    def read(self, ui: list[dict[str, Any]]) -> list[Entry]:
        for k, message in enumerate(ui):
            kind = string(message.get("say")) or string(message.get("ask"))
            if message.get("partial") is True and k + 1 < len(ui):
                self.left_out["messages that were being written"] += 1
            elif kind is None or message.get("type") not in ("say", "ask"):
                self.unknown[f"message of type {message.get('type')}"] += 1
            else:
                self._message(k, kind, message)
        return self.entries

    def _message(self, k: int, kind: str, message: dict[str, Any]) -> None:
        text, at, is_ask = text_of(message.get("text")), seconds(message.get("ts")), message.get("type") == "ask"
        if f"r{k}" in self.requests:
            self._begin(self.requests[f"r{k}"])
        elif kind in _WORDS or (kind == "text" and not any(e.role == "assistant" or e.role == "user" for e in self.entries)):
            self.entries.append(Entry("user", text, f"u{k}", at))
        elif kind == "reasoning":
            step = self._step(k, at)
            step.thinking = "\n".join(filter(None, (step.thinking, text or text_of(message.get("reasoning")))))
        elif kind in _SPOKEN:
            words = string(info_of(text).get("response")) or text
            if words and not (kind == "completion_result" and is_ask):
                step = self._step(k, at)
                step.text = step.text if words in step.text.split("\n\n") else "\n\n".join(filter(None, (step.text, words)))
        elif kind in _CALLS:
            self._call(k, kind, text, at)
        elif kind in _OUTPUTS:
            self._output(_OUTPUTS[kind], text, at)
        elif kind in _ERRORS:
            self._error(k, text, at)
        elif kind in _NOTES or kind in _REQUESTS:
            self.left_out[kind] += 1
        else:
            self.unknown[f"message that says {kind}"] += 1

    def _begin(self, request: Request) -> None:
        entry = Entry("assistant", request.text, request.name, request.end or request.at, model=request.model)
        entry.usage, entry.cost, entry.error, entry.extra = request.usage, request.cost, request.error, dict(request.extra)
        last = self.entries[-1] if self.entries else None
        if last is not None and last.role == "assistant" and str(last.id).startswith("s") and not last.calls and not entry.extra:
            self.entries.pop()  # it was shown before the request that it came of
            entry.text, entry.thinking = last.text, last.thinking
        self.entries.append(entry)
        self.open, self.shown = [], None

    def _step(self, k: int, at: float | None) -> Entry:
        """The step that is being shown; what stands before its request is one of its own."""
        last = next((e for e in reversed(self.entries) if e.role != "tool"), None)
        if last is None or last.role != "assistant" or last.extra.get("is_compaction"):
            last = Entry("assistant", id=f"s{k}", at=at)
            self.entries.append(last)
        return last

    def _call(self, k: int, kind: str, text: str, at: float | None) -> None:
        if self.shown is not None and self.shown[0] == kind and text in ("", self.shown[1]):
            self.shown = None
            return
        self.shown = (kind, text)
        got = info_of(text)
        tool = string(got.get("tool")) or string(got.get("toolName")) or _CALLS[kind]
        arguments = {key: value for key, value in got.items() if key not in ("tool", "toolName")} or (
            {kind: text} if text else {}
        )
        self._step(k, at).calls.append(Call(f"c{k}", tool, arguments))
        self.open.append((f"c{k}", _CALLS[kind] if kind != "tool" else tool))

    def _output(self, tool: str, text: str, at: float | None) -> None:
        """What a command printed, piece by piece, or what a server said."""
        last = self.entries[-1] if self.entries else None
        if last is not None and last.role == "tool" and last.answers[-1].tool == tool:
            answer = last.answers[-1]
            answer.text = "\n".join(filter(None, (answer.text, text)))
        else:
            call = next((name for name, t in self.open if t == tool), None)
            answer = Answer(text, call, tool, at=at)
            self.open = [row for row in self.open if row[0] != call]
            self.entries.append(Entry("tool", at=at, answers=[answer]))
        ok, error = outcome(tool, answer.text)
        answer.ok, answer.error = (ok, error) if not ok else (None if tool == "execute_command" else True, None)

    def _error(self, k: int, text: str, at: float | None) -> None:
        """What went wrong: of the call that waits, or of the step."""
        if self.open:
            call, tool = self.open.pop()
            self.entries.append(Entry("tool", at=at, answers=[Answer(text, call, tool, False, text[:500] or "error")]))
        else:
            self.entries.append(Entry("error", text, f"e{k}", at))
