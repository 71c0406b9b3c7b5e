"""What came from outside: whose content nobody on the user's side wrote.

Always true: only events that are marked as untrusted are outside. In a session that works on a repository, what tools on
files and the shell say is the user's own, and so are the notes of the session; it is from outside where the command reaches
the network, where the file was fetched or cloned during the session, and where it lies among packages or downloads. Without a
repository every untrusted event is outside.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from counterpoint.trace import Event, Trace

_KEY = "_came_from_outside"
_HARNESSES = ("claude_code", "codex", "kimi", "gemini_cli", "opencode", "openhands", "pi", "qwen_code", "swe_agent")
"""Sources whose sessions are work on a repository."""
_OWN = re.compile(
    r"(?:read|readfile|read_file|view|cat|grep|glob|ls|list_?dir(?:ectory)?|find|search_?files?|bash|bashoutput|killbash|killshell"
    r"|shell|shell_command|local_shell\w*|exec|exec_command|write_stdin|wait|run_terminal_cmd|terminal|run_pytest|edit|multiedit"
    r"|write|writefile|write_file|notebook\w*|apply_patch|str_?replace\w*|task\w*|todo\w*|settodolist|update_plan|toolsearch|skill"
    r"|agent|spawn_agent|team\w*|sendmessage|workflow|askuserquestion|exitplanmode|enterplanmode|schedulewakeup|reportfindings"
    r"|artifact|python\w*|lsp|think)",
    re.IGNORECASE,
)
_WRITES = re.compile(
    r"(?:bash|shell|shell_command|local_shell\w*|exec|exec_command|run_terminal_cmd|edit|multiedit|write|writefile|write_file"
    r"|apply_patch|str_?replace\w*|notebookedit)",
    re.IGNORECASE,
)
"""Tools that only a session on files has."""
_SHOWS = re.compile(
    r"(?:read|readfile|read_file|view|cat|grep|glob|ls|list_?dir(?:ectory)?|find|search_?files?|bash|bashoutput|shell|shell_command"
    r"|local_shell\w*|exec|exec_command|write_stdin|run_terminal_cmd|terminal|python\w*|str_?replace\w*)",
    re.IGNORECASE,
)
"""Tools whose answer holds what lies in files, or what a command said."""
_WRITTEN = frozenset(
    {"content", "contents", "new_string", "old_string", "new_str", "old_str", "insert_text", "file_text", "description"}
)
"""Arguments that say what is written, not where from."""
_NETWORK = re.compile(
    r"(?:^|[\s;&|(`'\"])(?:curl|wget|aria2c|httpie?|https?|lynx|w3m|ftp|sftp|scp|rsync|ssh|nc|telnet|gh|glab|aws|gcloud|gsutil"
    r"|git\s+(?:-C\s+\S+\s+)?(?:clone|pull|fetch|submodule)|(?:pip3?|uv(?:\s+pip)?|npm|pnpm|yarn|bun|cargo|go|gem|brew|apt(?:-get)?"
    r"|conda|poetry)\s+(?:install|add|i|get|download|update|ci|info|show|view|search)|docker\s+pull|yt-dlp|mail|mutt"
    r"|huggingface-cli|hf)\s"
)
_LOCAL_HOST = re.compile(r"https?://(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\])")
_PACKAGES = re.compile(
    r"(?:^|[/\\\s'\"])(?:node_modules|site-packages|dist-packages|bower_components|vendor|third_party|Downloads|\.cargo/registry"
    r"|go/pkg/mod|\.m2/repository|\.npm|\.cache)[/\\]"
)
_CLONED = re.compile(
    r"\bgit\s+(?:-C\s+\S+\s+)?clone\s+(?:--?\S+\s+)*['\"]?(\S+?)['\"]?(?:\s+['\"]?([^\s;&|'\"-][^\s;&|'\"]*))?(?=[\s;&|'\"]|$)"
)
_SAVED = re.compile(r"(?:\s(?:-o|-O|--output(?:-document)?|-P|-d)[\s=]+|>{1,2}\s*)['\"]?([^\s;&|'\"<>]{3,})")
_LAST_OF_LINK = re.compile(r"/([\w.-]{3,}\.\w{1,5})(?:[?#\s'\"]|$)")


def outside(trace: Trace) -> frozenset[int]:
    """The numbers of the events whose content came from outside."""
    cached = vars(trace).get(_KEY)
    if cached is None or cached[0] != len(trace.events):
        cached = vars(trace)[_KEY] = len(trace.events), frozenset(_outside(trace))
    numbers: frozenset[int] = cached[1]
    return numbers


def _outside(trace: Trace) -> Iterator[int]:
    marked = [i for i, e in enumerate(trace.events) if e.trusted is False]
    if not marked or not _has_repository(trace):
        yield from marked
        return
    calls = calls_of(trace)
    brought = _Brought()
    for i, event in enumerate(trace.events):
        if event.type == "tool_call":
            brought.take(_command(trace, event))
        elif event.trusted is False and not _is_own(trace, event, calls.get(event.id), brought):
            yield i


def _has_repository(trace: Trace) -> bool:
    """Whether the session works on files of the user's: its harness is for that, it says in which folder, or it has the tools."""
    report = trace.meta.get("import")
    is_said = bool(trace.meta.get("cwd")) or (isinstance(report, dict) and report.get("format") in _HARNESSES)
    return is_said or any(e.type == "tool_call" and _WRITES.fullmatch(e.tool or "") for e in trace.events)


def calls_of(trace: Trace) -> dict[str, Event]:
    """A result's id to its call."""
    events, index = trace.events, trace.index
    pairs = ((edge.dst, events[index[edge.src]]) for edge in trace.edges if edge.src in index)
    return {dst: event for dst, event in pairs if event.type == "tool_call"}


def _command(trace: Trace, call: Event) -> str:
    """The words of a call: its arguments without the marks of JSON."""
    text = trace.text(call) or ""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return text
    return _flat(value)


def _flat(node: object) -> str:
    if isinstance(node, dict):
        return "\n".join(_flat(value) for key, value in node.items() if key not in _WRITTEN)
    return " ".join(map(_flat, node)) if isinstance(node, list) else str(node)


def _is_own(trace: Trace, event: Event, call: Event | None, brought: _Brought) -> bool:
    if event.source in ("memory", "system"):  # its notes, and what the harness itself says, as a transcript to a reviewer
        return True
    if (event.extra or {}).get("attachment"):  # a file that the user or the harness puts into the conversation
        return not _is_foreign(str((event.extra or {}).get("path") or ""), brought)
    tool = event.tool or (call.tool if call is not None else None)
    if event.type != "tool_result" or tool is None or not _OWN.fullmatch(tool):
        return False
    words = _command(trace, call) if call is not None and _SHOWS.fullmatch(tool) else ""
    return not (_reaches_out(words) or _is_foreign(words, brought))


def _is_foreign(words: str, brought: _Brought) -> bool:
    """Whether a command or a path names what was fetched, or what lies among packages and downloads."""
    return bool(_PACKAGES.search(words)) or brought.names(words)


def _reaches_out(command: str) -> bool:
    return bool(_NETWORK.search(f"{command} ")) and not _LOCAL_HOST.search(command)


class _Brought:
    """Files and folders that commands of the session fetched from outside."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def take(self, command: str) -> None:
        if not _reaches_out(command):
            return
        for link, folder in _CLONED.findall(command):
            self._names.add(folder or link.rstrip("/").removesuffix(".git").rsplit("/", 1)[-1].rsplit(":", 1)[-1])
        self._names.update(name for name in _SAVED.findall(command) if not name.startswith(("/dev/", "&")))
        if re.search(r"\bwget\b|\bcurl\b.*\s-\w*O|\bscp\b|\brsync\b", command):
            self._names.update(_LAST_OF_LINK.findall(command))
        self._names.discard(".")

    def names(self, command: str) -> bool:
        """Whether a command or a path names one of them."""
        named = [re.escape(name.lstrip("./")) for name in self._names if name.lstrip("./")]
        return bool(named) and re.search(rf"(?:^|[\s/'\"=])(?:{'|'.join(named)})(?:[/\s'\":]|$)", command) is not None
