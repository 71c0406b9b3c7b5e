"""Lines that survive, counted again slowly from raw logs: of Claude Code, which say the whole file before every edit, and of Codex."""

from __future__ import annotations

import json
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import pytest

import counterpoint as cpt
from counterpoint.audits.work.agents import work

SHARED = Path(__file__).parents[3] / "shared" / "data" / "logs"
LOGS, CODEX = SHARED / "claude_code", SHARED / "codex" / "tree_v1_0.125.0_entireio-skills"
Key = tuple[str, str]


def records(root: Path) -> Iterator[dict[str, Any]]:
    """Every record with parts, also those of sub-agents that a log shows inside its own."""
    for path in sorted(root.rglob("*.jsonl")):
        for line in path.read_text().splitlines():
            record = json.loads(line) if line.startswith("{") else {}
            inner = (record.get("data") or {}).get("message")
            for one in (record, inner | {"sessionId": record.get("sessionId")} if isinstance(inner, dict) else {}):
                if isinstance((one.get("message") or {}).get("content"), list):
                    yield one


def recount(root: Path) -> tuple[dict[Key, int], set[Key]]:
    """Session and file to the lines that were written in it and are there at the end; and where the log does not say enough."""
    asked: dict[str, tuple[str, dict[str, Any], str]] = {}
    came: dict[str, tuple[str, bool, Any]] = {}
    copied: set[str] = set()  # a session that goes on repeats the records of the one before
    for record in records(root):
        for part in record["message"]["content"]:
            if isinstance(part, dict) and part.get("type") == "tool_use" and part["name"] in ("Write", "Edit", "MultiEdit"):
                owner = record.get("sessionId", "")
                copied |= {part["id"]} if asked.get(part["id"], ("", {}, owner))[2] != owner else set()
                asked[part["id"]] = part["name"], part["input"], owner
            elif isinstance(part, dict) and part.get("type") == "tool_result":
                told = record.get("timestamp", ""), bool(part.get("is_error")), record.get("toolUseResult")
                came.setdefault(part["tool_use_id"], told)
    files: dict[Key, tuple[str, list[bool]]] = {}
    unclear: set[Key] = set()
    for call in sorted(asked.keys() & came.keys(), key=lambda one: came[one][0]):
        (name, given, session), (_, is_failed, result) = asked[call], came[call]
        key = session, given["file_path"].replace("\\", "/")
        before = result.get("originalFile") if isinstance(result, dict) else None
        if is_failed:
            continue
        unclear |= {key} if call in copied else set()
        if key in files and before is not None and before != files[key][0]:
            unclear.add(key)  # somebody else changed the file
        if key not in files and before is not None:
            files[key] = before, [False] * len(before.split("\n"))
        if key not in files:
            if name != "Write":
                unclear.add(key)
                continue
            files[key] = "", [False]
        text, is_written = files[key]
        after = given["content"] if name == "Write" else _edited(text, given)
        files[key] = after, _carried(text, is_written, after)
    counted = {
        key: sum(w and bool(x.strip()) for w, x in zip(own, text.split("\n"), strict=True)) for key, (text, own) in files.items()
    }
    return counted, unclear


def _edited(text: str, given: dict[str, Any]) -> str:
    for one in given.get("edits", [given]):
        times = -1 if one.get("replace_all") else 1
        text = text.replace(one["old_string"], one["new_string"], times) if one["old_string"] else one["new_string"]
    return text


def _carried(before: str, is_written: list[bool], after: str) -> list[bool]:
    """Which lines were written in the session: all that a diff of the whole files does not find before."""
    out = [True] * len(after.split("\n"))
    for a, b, size in SequenceMatcher(None, before.split("\n"), after.split("\n"), autojunk=False).get_matching_blocks():
        out[b : b + size] = is_written[a : a + size]
    return out


@pytest.mark.skipif(not LOGS.is_dir(), reason="the shared foreign logs are not here")
def test_lines_kept_are_those_of_a_slow_recount_of_the_raw_log() -> None:
    same, apart = 0, []
    for folder in sorted(path for path in LOGS.iterdir() if path.is_dir()):
        truth, unclear = recount(folder)
        for trace in cpt.read_logs(folder):
            ours = {name: sum(of.values()) for name, of in work(trace).files.items()}
            for (session, name), lines in truth.items():
                if session != trace.trace_id or (session, name) in unclear:
                    continue
                same += ours.get(name, 0) == lines
                apart += [f"{session} {name}: {ours.get(name, 0)}, recounted {lines}"] * (ours.get(name, 0) != lines)
    assert same >= 60
    assert not apart


# -- Codex: patches of files that a session made ------------------------------------------------------------------------


def patches(root: Path) -> Iterator[str]:
    """The patches that went through, over all threads, by time."""
    asked: dict[str, tuple[str, str]] = {}
    done: dict[str, str] = {}
    for path in sorted(root.rglob("*.jsonl")):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            said = record.get("payload") or {}
            if said.get("type") == "custom_tool_call" and said.get("name") == "apply_patch":
                asked.setdefault(said["call_id"], (record["timestamp"], said["input"]))
            elif said.get("type") == "custom_tool_call_output":
                done[said["call_id"]] = str(said["output"])
    return (text for call, (_, text) in sorted(asked.items(), key=lambda one: one[1][0]) if "Success" in done.get(call, ""))


def patched(root: Path) -> dict[str, list[tuple[str, bool]]]:
    """File to its lines, and whether each was written in the session; only files that the session made."""
    files: dict[str, list[tuple[str, bool]]] = {}
    path = ""
    for patch in patches(root):
        for part in patch.split("*** ")[1:]:
            head, _, body = part.partition("\n")
            if head.startswith("Move to: ") and path in files:
                files[head[9:]] = files.pop(path)
                kind, path = "Update", head[9:]
            else:
                kind, _, path = head.partition(" File: ")
            if kind == "Add":
                files[path] = [(line[1:], True) for line in body.splitlines() if line.startswith("+")]
            elif kind == "Delete":
                files.pop(path, None)
            elif kind == "Update" and path in files:
                for hunk in body.split("@@")[1:]:
                    _hunk(files[path], [line for line in hunk.partition("\n")[2].splitlines() if line])
    return files


def _hunk(lines: list[tuple[str, bool]], hunk: list[str]) -> None:
    old = [line[1:] for line in hunk if line[0] in " -"]
    at = next(i for i in range(len(lines)) if [x for x, _ in lines[i : i + len(old)]] == old)
    new: list[tuple[str, bool]] = []
    here = at
    for line in hunk:
        if line[0] == "+":
            new.append((line[1:], True))
        else:
            new += [lines[here]] if line[0] == " " else []
            here += 1
    lines[at : at + len(old)] = new


@pytest.mark.skipif(not CODEX.is_dir(), reason="the shared foreign logs are not here")
def test_lines_of_patched_files_are_those_of_a_slow_recount() -> None:
    truth = {path: sum(own and bool(line.strip()) for line, own in lines) for path, lines in patched(CODEX).items()}
    ours: dict[str, int] = {}
    for trace in cpt.read_logs(CODEX):
        for path, of in work(trace).files.items():
            ours[path] = ours.get(path, 0) + sum(of.values())
    assert truth
    assert {path: ours.get(path) for path in truth} == truth
