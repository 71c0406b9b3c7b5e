"""Import a tree of logs: processor time of the whole command against `json.loads` over the same files, and its memory.

The trees are made up: Claude Code and Codex (sessions of some hundred turns with tool outputs of a few kB, one sub-agent in
ten turns), MARBLE, and one long session; or the tree is your own, with `--logs FOLDER`. Both candidates are fresh processes that
take turns, start and end included: user and system time of each with all processes it starts, the least of some runs, as others
on the machine can only add to it. The import ends with the traces durable in a store. Memory is the most that one process had.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from _timing import report, row

WORDS = ["the", "loader", "reads", "a", "table", "and", "writes", "rows", "until", "every", "index", "is", "warm", "again"]
PARSE = """
import json, pathlib, sys
for path in pathlib.Path(sys.argv[1]).rglob("*"):
    if path.is_file():
        with path.open("rb") as file:
            for text in [file.read()] if path.suffix == ".json" else file:
                try:
                    json.loads(text)
                except ValueError:
                    pass
"""
"""What a user's own script begins with."""


def words(draw: random.Random, size: int) -> str:
    """About `size` characters of text."""
    return " ".join(draw.choices(WORDS, k=max(1, size // 5)))


def claude(folder: Path, name: str, turns: int, draw: random.Random) -> None:
    """One session of Claude Code, its sub-agents in files of their own."""
    base = {
        "isSidechain": False,
        "userType": "external",
        "cwd": "/repo/shop",
        "sessionId": name,
        "version": "2.1.119",
        "gitBranch": "main",
    }
    clock = 0

    def stamp() -> dict[str, Any]:
        nonlocal clock
        clock += 1
        return {
            "uuid": f"{name}-{clock}",
            "timestamp": f"2026-03-01T{clock // 3600:02d}:{clock // 60 % 60:02d}:{clock % 60:02d}.000Z",
        }

    def turn(
        k: int, rows: list[str], who: dict[str, Any], tool: str, given: dict[str, Any], made: dict[str, Any], text: str
    ) -> None:
        usage = {"input_tokens": 9, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 30000, "output_tokens": 150}
        said = {"id": f"msg_{name}_{k}", "role": "assistant", "model": "claude-sonnet-4-5", "usage": usage}
        for block in (
            {"type": "text", "text": words(draw, 200)},
            {"type": "tool_use", "id": f"toolu_{name}_{k}", "name": tool, "input": given},
        ):
            rows.append(
                json.dumps(
                    {**base, **who, **stamp(), "type": "assistant", "message": {**said, "content": [block]}},
                    separators=(",", ":"),
                )
            )
        result = [{"type": "tool_result", "tool_use_id": f"toolu_{name}_{k}", "content": text}]
        rows.append(
            json.dumps(
                {**base, **who, **stamp(), "type": "user", "message": {"role": "user", "content": result}, "toolUseResult": made},
                separators=(",", ":"),
            )
        )

    rows = [json.dumps({**base, **stamp(), "type": "user", "message": {"role": "user", "content": words(draw, 300)}})]
    for k in range(turns):
        if k % 10 == 5:
            agent = f"a{k:016x}"
            own: list[str] = []
            for j in range(8):
                text = words(draw, draw.choice([300, 2000, 8000]))
                turn(
                    1000 * k + j,
                    own,
                    {"isSidechain": True, "agentId": agent},
                    "Read",
                    {"file_path": f"/repo/{j}.py"},
                    {"content": text},
                    text,
                )
            below = folder / name / "subagents" / f"agent-{agent}.jsonl"
            below.parent.mkdir(parents=True, exist_ok=True)
            below.write_text("\n".join(own) + "\n")
            text = words(draw, 1500)
            turn(
                k,
                rows,
                {},
                "Agent",
                {"prompt": words(draw, 400), "subagent_type": "Explore"},
                {"status": "completed", "agentId": agent},
                text,
            )
        else:
            text = words(draw, draw.choice([300, 2000, 8000]))
            turn(k, rows, {}, "Bash", {"command": words(draw, 60)}, {"stdout": text, "stderr": ""}, text)
    (folder / f"{name}.jsonl").write_text("\n".join(rows) + "\n")


def codex(folder: Path, name: str, turns: int, draw: random.Random) -> None:
    """One rollout of Codex."""
    head = {
        "id": name,
        "timestamp": "2026-03-01T00:00:00Z",
        "cwd": "/repo/shop",
        "originator": "codex_cli_rs",
        "cli_version": "0.144.0",
        "source": "cli",
    }
    records: list[tuple[str, dict[str, Any]]] = [("session_meta", head), ("event_msg", {"type": "task_started", "turn_id": "t1"})]
    total = 0
    for k in range(turns):
        call = {
            "type": "function_call",
            "name": "exec_command",
            "arguments": json.dumps({"cmd": words(draw, 60)}),
            "call_id": f"call_{k}",
        }
        text = words(draw, draw.choice([300, 2000, 8000]))
        total += 30_000
        usage = {
            "input_tokens": total,
            "cached_input_tokens": total // 2,
            "output_tokens": total // 100,
            "total_tokens": total + total // 100,
        }
        records += [
            ("response_item", {"type": "reasoning", "summary": [], "encrypted_content": words(draw, 800)}),
            ("response_item", call),
            ("response_item", {"type": "function_call_output", "call_id": f"call_{k}", "output": text}),
            (
                "event_msg",
                {"type": "token_count", "info": {"total_token_usage": usage, "last_token_usage": usage}, "rate_limits": None},
            ),
        ]
    lines = [
        json.dumps({"timestamp": f"2026-03-01T00:{i // 60 % 60:02d}:{i % 60:02d}.000Z", "type": t, "payload": p})
        for i, (t, p) in enumerate(records)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"rollout-2026-03-01T00-00-00-{name}.jsonl").write_text("\n".join(lines) + "\n")


def marble(root: Path, runs: int, draw: random.Random) -> None:
    """A file of MARBLE's runs, one per line."""

    def said(agent: str) -> dict[str, Any]:
        return {"agent_id": agent, "result": words(draw, 1200)}

    lines = []
    for _ in range(runs):
        agents = [f"agent{k}" for k in range(1, 6)]
        rounds = [
            {
                "iteration": n + 1,
                "task_assignments": {a: words(draw, 300) for a in agents},
                "task_results": [said(a) for a in agents],
                "communications": [f"From {a} to {b}: {words(draw, 200)}" for a, b in pairwise(agents)],
                "summary": words(draw, 900),
                "continue_simulation": True,
            }
            for n in range(5)
        ]
        run = {"task": words(draw, 500), "coordination_mode": "star", "iterations": rounds, "token_usage": 9000}
        lines.append(json.dumps(run))
    root.mkdir(parents=True, exist_ok=True)
    (root / "result.jsonl").write_text("\n".join(lines) + "\n")


def tree(root: Path, kind: str, sessions: int, turns: int) -> None:
    """A tree of made-up sessions."""
    draw = random.Random(7)
    if kind == "marble":
        marble(root, sessions * 5, draw)
        return
    for k in range(sessions):
        name = f"{k:08x}-0000-4000-8000-{'c0de' if kind == 'codex' else '0000'}00000000"
        if kind == "claude_code":
            (root / "-repo-shop").mkdir(parents=True, exist_ok=True)
            claude(root / "-repo-shop", name, turns, draw)
        else:
            codex(root / "2026" / "03" / "01", name, turns, draw)


class Spent(NamedTuple):
    """What a process took, with all that it started."""

    cpu_s: float
    memory_mb: float


def spent(command: list[str]) -> Spent:
    """What a command takes; one thread where a library would start more, so that none waits busily for another."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, env={**os.environ, "OMP_NUM_THREADS": "1"})
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        assert process.returncode == 0, said.read().decode()
    return Spent(used.ru_utime + used.ru_stime, used.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6)


def measured(root: Path, name: str, repeats: int, most: float) -> list[dict[str, Any]]:
    """The rows of one tree; the import may take `most` times the processor time of `json.loads`."""
    ours, theirs = [], []
    for _ in range(repeats):
        theirs.append(spent([sys.executable, "-c", PARSE, str(root)]))
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "counterpoint", "import", str(root), "--store", f"{folder}/store"]
            ours.append(spent(command))
    size = sum(p.stat().st_size for p in root.rglob("*") if p.is_file()) / 1e6
    cpu_s, peer_s = min(one.cpu_s for one in ours), min(one.cpu_s for one in theirs)
    return [
        row(f"{name}: import {size:.0f} MB (peer: json.loads)", cpu_s, peer_s, "CPU s", target=1 / most),
        row(f"{name}: most memory of the process", max(one.memory_mb for one in ours), None, "MB", limit=200),
    ]


def main() -> None:
    """Both kinds of tree, or the user's own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smaller run")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--logs", type=Path, help="a tree of your own")
    asked = parser.parse_args()
    sessions, turns, repeats = (6, 60, 3) if asked.quick else (40, 150, 3)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        if asked.logs:
            rows += measured(asked.logs, asked.logs.name, repeats, 4)
        for kind in () if asked.logs else ("claude_code", "codex", "marble"):
            tree(Path(folder) / kind, kind, sessions, turns)
            rows += measured(Path(folder) / kind, kind, repeats, 6 if kind == "marble" else 4)
        if not asked.logs:
            rows += measured(Path(folder), "all", repeats, 4)
            tree(Path(folder) / "long", "codex", 1, turns * 75)
            rows += measured(Path(folder) / "long", "one session", repeats, 4)
    report("Import, the whole command (our time over json.loads is 1/ratio)", rows, as_json=asked.json)


if __name__ == "__main__":
    main()
