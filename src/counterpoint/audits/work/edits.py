"""The changes to files that a tool call asks for, read from what it was called with.

Always true: a call is read by the shape of its arguments (a path with a content, with an old and a new text, or with a list of
these), by a patch in them, or by a command that writes what follows it to a file; the name of a tool says only that a call whose
contents are not recorded was one that writes. What is read is what was asked: whether the call failed is for the reader to know.

Forms: Claude Code's Write, Edit, MultiEdit and NotebookEdit; Codex's apply_patch, also inside a script; str_replace editors
(SWE-agent, OpenHands, Kimi, Gemini, Qwen); unified diffs; here-documents of a shell.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

Kind = Literal["write", "append", "replace", "insert", "delete", "move"]
_PATHS = ("file_path", "filePath", "path", "target_file", "absolute_path", "filename", "notebook_path")
_WHOLE = ("content", "file_text", "contents", "new_source")
_OLD = ("old_string", "old_str", "oldString", "old_text", "oldText", "old")
_NEW = ("new_string", "new_str", "newString", "new_text", "newText", "new")
_COMMANDS = ("command", "cmd", "script")
_WRITERS = re.compile(
    r"(?:^|_)(?:write|edit|multiedit|notebookedit|patch_apply|apply_patch|create_file|str_replace)(?:_?file)?\w*$|^(?:Write|Edit)"
    r"|WriteFile|StrReplaceFile|write_file|edit_file",
    re.I,
)
_NO_WRITERS = re.compile(r"todo|memory|task|plan|submit", re.I)
_PATCH = re.compile(r"\*\*\* (?:Begin Patch|Add File:|Update File:|Delete File:)")
_PATCHES = re.compile(r"\*\*\* Begin Patch\n.*?(?:\*\*\* End Patch|\Z)", re.S)
_LITERAL = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|`(?:[^`\\]|\\.)*`", re.S)
_HEREDOC = re.compile(
    r"(?:^|[\n;&|(])[ \t]*(?:cat|tee)\b(?P<before>[^\n<;|&]*)<<-?[ \t]*(?P<q>['\"]?)(?P<end>\w+)(?P=q)(?P<after>[^\n]*)\n"
    r"(?P<body>.*?)\n?^[ \t]*(?P=end)[ \t]*$",
    re.S | re.M,
)
_INTO = re.compile(r"(>>?)[ \t]*(['\"]?)([^\s'\"|&;<>]+)\2")
_REMOVED = re.compile(r"(?:^|[;&\n(])[ \t]*rm[ \t]+((?:-\w+[ \t]+)*)([^\n;&|]+)")
_CHANGES = re.compile(
    r"(?:^|[;&|(\n])[ \t]*(?:cd[ \t]+\S+[ \t]*&&[ \t]*)?(?:(?:sudo|uv run|npx|pnpm|yarn|poetry run)[ \t]+)*"
    r"(sed[ \t]+(?:-\w+[ \t]+)*-i|perl[ \t]+-\w*i|git[ \t]+(?:-C[ \t]+\S+[ \t]+)?(?:checkout|restore|reset|stash|revert|merge|"
    r"rebase|cherry-pick|apply|am|clean|pull|mv|rm)|mv|cp|rm|gofmt[ \t]+-w|prettier[ \t].*--write|"
    r"(?:eslint|ruff|stylelint)[ \t].*--fix|ruff[ \t]+format|black|cargo[ \t]+fmt|go[ \t]+fmt)\b"
)


class Edit(NamedTuple):
    """One change to one file."""

    kind: Kind
    path: str
    new: str = ""
    old: str = ""
    every: bool = False
    """Every place of the old text is replaced."""
    line: int | None = None
    """The line after which a text is inserted, from 1; None where nothing says it."""
    is_lines: bool = False
    """Old and new are whole lines."""


def edits_of(tool: str | None, text: str | None) -> list[Edit] | None:
    """The edits of a call, none for one that changes no file; None for one that does and whose contents are not recorded."""
    edits = list(_edits(text)) if text else []
    is_writer = tool is not None and _WRITERS.search(tool) is not None and _NO_WRITERS.search(tool) is None
    return edits if edits or not is_writer else None


def commands_of(tool: str | None, text: str | None) -> list[str]:
    """The commands that a call runs in a shell, as they are written."""
    args = _decoded(text) if text else None
    if isinstance(args, dict):
        return [command for name in _COMMANDS if (command := _command(args.get(name)))]
    if text and "exec_command(" in text:  # a script that calls a shell
        return [command for args in _calls(text, "exec_command(") for name in _COMMANDS if (command := _command(args.get(name)))]
    return [text] if text and tool is not None and re.search(r"bash|shell|terminal", tool, re.I) and args is None else []


def may_change_files(command: str) -> str | None:
    """The part of a command that may change files in a way which no record shows; None where nothing suggests it."""
    match = _CHANGES.search(_HEREDOC.sub("\n", command))
    return None if match is None else " ".join(re.sub(r"-C\s+\S+\s+", "", match[1]).split()[:2])


def removed_by(command: str) -> list[str]:
    """The files that a command names and removes; names with wildcards are left out."""
    bare = _HEREDOC.sub("\n", command)
    words = [word.strip("'\"") for match in _REMOVED.finditer(bare) for word in match[2].split()]
    return [word for word in words if word and not word.startswith("-") and not set("*?[$>") & set(word)]


# -- arguments -------------------------------------------------------------------------------------------------------------


def _edits(text: str) -> Iterator[Edit]:
    args = _decoded(text)
    if isinstance(args, dict):
        edits = list(_of_arguments(args))
        if edits:
            yield from edits
            return
        for text_value in _strings(args):
            yield from _of_text(text_value)
        for name in _COMMANDS:
            yield from _of_command(_command(args.get(name)) or "")
    elif not isinstance(args, list):
        yield from _of_text(text)
        if not _PATCH.search(text):
            yield from _of_command(text)


def _decoded(text: str) -> Any:
    if text[:1] not in "{[":
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _first(args: dict[str, Any], names: tuple[str, ...]) -> str | None:
    return next((args[name] for name in names if isinstance(args.get(name), str)), None)


def _of_arguments(args: dict[str, Any]) -> Iterator[Edit]:
    path = _first(args, _PATHS)
    if not path:
        return
    many = next((args[name] for name in ("edits", "edit") if isinstance(args.get(name), (list, dict))), None)
    for one in [many] if isinstance(many, dict) else many or []:
        if isinstance(one, dict):
            yield from _replacement(path, one)
    if many is not None:
        return
    if _first(args, _OLD) is not None:
        yield from _replacement(path, args)
    elif isinstance(args.get("insert_line"), int):
        new = _first(args, (*_NEW, "insert_text", "text")) or ""
        yield Edit("insert", path, new, line=args["insert_line"], is_lines=True)
    elif (whole := _first(args, _WHOLE)) is not None:
        if isinstance(args.get("cell_id"), str):  # one cell of a notebook
            path = f"{path}#{args['cell_id']}"
        yield Edit("append" if args.get("mode") == "append" else "write", path, whole)


def _replacement(path: str, args: dict[str, Any]) -> Iterator[Edit]:
    old, new = _first(args, _OLD), _first(args, _NEW)
    if old is None or (new is None and not any(name in args for name in _NEW)):
        if old is not None and args.get("command") == "str_replace":
            yield Edit("replace", path, "", old)
        return
    every = any(args.get(name) is True for name in ("replace_all", "replaceAll", "allow_multiple"))
    yield Edit("replace", path, new or "", old, every=every) if old else Edit("write", path, new or "")


def _strings(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth < 4 and isinstance(value, (list, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _strings(one, depth + 1)


def _command(value: Any) -> str | None:
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return str(value[-1]) if len(value) == 3 and value[1] in ("-c", "-lc") else " ".join(value)
    return value if isinstance(value, str) else None


def _calls(text: str, name: str) -> Iterator[dict[str, Any]]:
    """The objects that a script calls a function with, where they are written out."""
    at = text.find(name)
    while at >= 0:
        try:
            args, _ = json.JSONDecoder().raw_decode(text, at + len(name))
        except (ValueError, RecursionError):
            args = None
        if isinstance(args, dict):
            yield args
        at = text.find(name, at + 1)


# -- patches ---------------------------------------------------------------------------------------------------------------


def _of_text(text: str) -> Iterator[Edit]:
    """Patches in a text: as they are, or inside the strings of a script."""
    if _PATCH.match(text.lstrip()):
        yield from _patch(text)
    elif "*** Begin Patch" in text:
        literals = [m[0] for m in _LITERAL.finditer(text) if "*** Begin Patch" in m[0]]
        for patch in map(_unquoted, literals) if literals else _PATCHES.findall(text):
            yield from _patch(patch)
    elif re.search(r"^--- .*\n\+\+\+ .*\n@@ ", text, re.M):
        yield from _unified(text)


def _unquoted(literal: str) -> str:
    inner = literal[1:-1]
    if literal[0] == "`":
        return re.sub(r"\\([`$\\])", r"\1", inner)
    try:
        return str(json.loads(literal))
    except ValueError:
        return inner.replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\")


def _patch(text: str) -> Iterator[Edit]:
    """A patch by file: `*** Add File`, `*** Delete File`, `*** Update File` with hunks after `@@`, `*** Move to`."""
    path, is_new, hunk = "", False, []  # type: str, bool, list[str]
    for line in [*text.splitlines(), "*** End Patch"]:
        if line.startswith("***") or (line.startswith("@@") and not is_new):
            yield from _hunk(path, hunk, is_new)
            hunk = []
            if line.startswith(("*** Add File: ", "*** Update File: ")):
                path, is_new = line.split(": ", 1)[1].strip(), line.startswith("*** Add")
            elif line.startswith("*** Delete File: "):
                yield Edit("delete", line.split(": ", 1)[1].strip())
                path = ""
            elif line.startswith("*** Move to: "):
                moved = line.split(": ", 1)[1].strip()
                yield Edit("move", path, moved)
                path = moved
        elif path:
            hunk.append(line)


def _hunk(path: str, lines: list[str], is_new: bool) -> Iterator[Edit]:
    if not path or not lines:
        return
    if is_new:
        yield Edit("write", path, "\n".join(line[1:] for line in lines if line.startswith("+")))
        return
    old = [line[1:] for line in lines if line[:1] in ("", " ", "-")]
    new = [line[1:] for line in lines if line[:1] in ("", " ", "+")]
    if old == new:
        return
    if old:
        yield Edit("replace", path, "\n".join(new), "\n".join(old), is_lines=True)
    else:
        yield Edit("insert", path, "\n".join(new), is_lines=True)


def _unified(text: str) -> Iterator[Edit]:
    """A unified diff by file."""
    path, is_new, is_gone, hunk = "", False, False, []  # type: str, bool, bool, list[str]
    for line in [*text.splitlines(), "--- "]:
        if line.startswith(("--- ", "diff ", "@@ ", "+++ ")):
            yield from _hunk("" if is_gone else path, hunk, is_new)
            hunk = []
            if line.startswith("--- "):
                is_new, before = line[4:].startswith("/dev/null"), _diff_path(line)
                path = ""
            elif line.startswith("+++ "):
                is_gone = line[4:].startswith("/dev/null")
                path = before if is_gone else _diff_path(line)
                if is_gone:
                    yield Edit("delete", path)
        elif path and line[:1] in ("", " ", "+", "-"):
            hunk.append(line)


def _diff_path(line: str) -> str:
    path = line[4:].split("\t")[0].strip()
    return path[2:] if path.startswith(("a/", "b/")) else path


# -- shells ----------------------------------------------------------------------------------------------------------------


def _of_command(command: str) -> Iterator[Edit]:
    """What `cat > FILE <<EOF` and `tee FILE <<EOF` write."""
    for match in _HEREDOC.finditer(command):
        around = f"{match['before']} {match['after']}"
        into = _INTO.search(around)
        if into is not None:
            yield Edit("append" if into[1] == ">>" else "write", into[3], match["body"])
        elif match[0].lstrip("\n;&|( \t").startswith("tee"):
            words = [word for word in match["before"].split() if not word.startswith("-")]
            if words:
                yield Edit("append" if " -a" in match["before"] else "write", words[-1].strip("'\""), match["body"])
