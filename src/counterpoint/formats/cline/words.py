"""What the clients write around the words of people and models: tags, calls as XML, results as text.

Always true: nothing raises on a strange text; what is not understood stays as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from counterpoint.formats.importing.chat import Call
from counterpoint.formats.importing.values import as_list

_TOOLS = (
    "write_to_file|read_file|simple_read_file|replace_in_file|apply_diff|multi_apply_diff|insert_content|search_and_replace|"
    "edit_file|apply_patch|edit|delete_file|search_files|list_files|list_code_definition_names|codebase_search|execute_command|"
    "browser_action|use_mcp_tool|access_mcp_resource|ask_followup_question|plan_mode_respond|plan_mode_response|"
    "act_mode_respond|attempt_completion|new_task|switch_mode|fetch_instructions|update_todo_list|condense|summarize_task|"
    "report_bug|new_rule|load_mcp_documentation|web_fetch|web_search|generate_explanation|use_skill|skill|use_subagents|"
    "run_slash_command|generate_image|focus_chain"
)
_XML = re.compile(rf"<({_TOOLS})>(.*?)(?:</\1>|\Z)", re.S)
_FIELD = re.compile(r"<(\w+)>(.*)</\1>|<(\w+)>([^<]*)\Z", re.S)
_THINKING = re.compile(r"<thinking>(.*?)(?:</thinking>|\Z)", re.S)
_INJECTED = re.compile(
    r"<(environment_details|file_content|folder_content|url_content|workspace_diagnostics|git_working_state|git_commit|"
    r"terminal_output|explicit_instructions|system-reminder|custom_instructions|slack_messages|task_progress_info)\b[^>]*>"
    r".*?(?:</\1>|\Z)",
    re.S,
)
_SAID = re.compile(r"<(task|feedback|answer|user_message|user_input|user_query)\b[^>]*>\s*(.*?)\s*(?:</\1>|\Z)", re.S)
_RESULT = re.compile(r"\A\s*\[([a-z]\w+)(?: for [^\n]*?| in [^\n]*?)?\] Result:[ \t]*\n?", re.S)
_DONE = re.compile(r"\A\s*\[new_task completed\] Result:\s*(.*)\Z", re.S)
_FAILED = re.compile(r"The tool execution failed with the following error:\s*<error>\s*(.*?)\s*(?:</error>|\Z)", re.S)
_STATUS = re.compile(r'\A\s*\{\s*"status"\s*:\s*"(error|denied)"')
_DENIED = "The user denied this operation."
_EXIT = re.compile(r"\b[Ee]xit code:? (-?\d+)")
_CLIENT = (
    "[ERROR]", "[TASK RESUMPTION]", "# task_progress", "# TODO LIST", "# Task progress", "[Duplicate file read", "[[NOTE]",
    "You seem to be having trouble", "(This is an automated message", "The user has switched", "New instructions for task",
)  # fmt: skip
_MODEL = re.compile(r"<model>([^<\n]+)</model>")
_SPOKEN = {
    "attempt_completion": "result",
    "plan_mode_respond": "response",
    "plan_mode_response": "response",
    "act_mode_respond": "response",
}


@dataclass
class Speech:
    """What a message of the user holds, in the order in which it is dealt with."""

    results: list[tuple[str, str]] = field(default_factory=list)
    """Tool and text."""
    words: list[str] = field(default_factory=list)
    """What a person said."""
    notes: list[str] = field(default_factory=list)
    """What the client said."""
    returned: list[str] = field(default_factory=list)
    """Results of tasks that were delegated."""


def said_in(texts: list[str]) -> Speech:
    """The texts of one message of the user."""
    said = Speech()
    open_tool: str | None = None
    for raw in texts:
        text = _INJECTED.sub("", raw).strip()
        if not text:
            continue
        if done := _DONE.match(text):
            said.returned.append(done[1].strip())
        elif head := _RESULT.match(text):
            body = text[head.end() :].strip()
            said.results.append((head[1], body))
            said.words += words_in(body)
            open_tool = None if body else head[1]
        elif open_tool is not None:
            said.results[-1] = (open_tool, text)
            said.words += words_in(text)
            open_tool = None
        elif words := words_in(text):
            said.words += words
        elif text.startswith(_CLIENT):
            said.notes.append(text)
        else:
            said.words.append(text)
    return said


def words_in(text: str) -> list[str]:
    """A person's words, where tags say which they are."""
    return [words for match in _SAID.finditer(text) if (words := _INJECTED.sub("", match[2]).strip())]


def outcome(tool: str | None, text: str) -> tuple[bool, str | None]:
    """Whether a result is a success, as the clients word it, and what went wrong."""
    if failed := _FAILED.search(text):
        return False, failed[1][:500] or "error"
    if _DENIED in text or _STATUS.match(text):
        return False, _DENIED if _DENIED in text else text[:500]
    if tool == "use_mcp_tool" and text.startswith("Error:"):
        return False, text[:500]
    if tool in ("execute_command", "run_commands") and (code := _EXIT.search(text)) and int(code[1]) != 0:
        return False, f"exit code {code[1]}"
    return True, None


def split_calls(text: str, name: str) -> tuple[str, str, list[Call]]:
    """The words of an answer, its thoughts, and the calls that are written in it as XML."""
    thoughts = [thought.strip() for thought in _THINKING.findall(text)]
    text = _THINKING.sub("", text)
    calls = [Call(f"{name}.{k}", match[1], _fields(match[2])) for k, match in enumerate(_XML.finditer(text))]
    return _XML.sub("", text).strip(), "\n".join(filter(None, thoughts)), calls


def _fields(body: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    while match := _FIELD.search(body):
        name, value = (match[1], match[2]) if match[1] else (match[3], match[4])
        end = body.find(f"</{name}>", match.start()) if name not in ("content", "diff", "args", "result") else -1
        if match[1] and end >= 0:
            value, rest = body[match.start() + len(name) + 2 : end], body[end + len(name) + 3 :]
        else:
            rest = body[match.end() :]
        fields[name] = value.strip("\n")
        body = rest
    return fields


def spoken_by(calls: list[Call]) -> str:
    """What calls say to the person: the result of the task, a plan."""
    fields = ((_SPOKEN.get(call.tool), call.arguments) for call in calls)
    texts = [arguments.get(name) for name, arguments in fields if name and isinstance(arguments, dict)]
    return "\n".join(text.strip() for text in texts if isinstance(text, str) and text.strip())


def model_in(content: Any) -> str | None:
    """The model that the client's notes name."""
    texts = [content] if isinstance(content, str) else [b.get("text") for b in as_list(content) if isinstance(b, dict)]
    found = [m[1].strip() for text in texts if isinstance(text, str) and (m := _MODEL.search(text))]
    return found[-1] if found else None
