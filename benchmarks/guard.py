"""The guard's hook: CPU of one call on a session of 50 MB that grows between calls, against reading the session each time."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _timing import arguments, report, row

import counterpoint.guard.hook as hook

_READS = "import json, sys\nfor line in open(sys.argv[1], 'rb'): json.loads(line)"


def turn(n: int) -> str:
    """What a turn of an agent adds: an answer with a call, and its result."""
    at = f"2026-01-01T{n // 3600 % 24:02}:{n // 60 % 60:02}:{n % 60:02}.000Z"
    use = {"type": "tool_use", "id": f"toolu_{n:020}", "name": "Read", "input": {"file_path": f"src/module_{n}.py"}}
    usage = {"input_tokens": 4, "output_tokens": 90, "cache_read_input_tokens": 50_000, "cache_creation_input_tokens": 900}
    message = {"id": f"msg_{n:020}", "model": "claude-sonnet-4-5", "content": [use], "usage": usage}
    result = {"type": "tool_result", "tool_use_id": use["id"], "content": f"line {n} of a file that was read\n" * 150}
    about = {"sessionId": "s", "timestamp": at, "isSidechain": False, "cwd": "/repo", "version": "2.1.0"}
    records = [
        {"type": "assistant", "uuid": f"{n:08x}-aaaa-4000-8000-{n:012x}", "message": message, **about},
        {"type": "user", "uuid": f"{n:08x}-bbbb-4000-8000-{n:012x}", "message": {"content": [result]}, **about},
    ]
    return "".join(json.dumps(record) + "\n" for record in records)


def cpu_ms(command: list[str], given: bytes = b"") -> float:
    """CPU milliseconds of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, input=given, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3


def rows(folder: Path, megabytes: int, repeats: int) -> list[dict[str, Any]]:
    """Measured in turns, so that a busy machine is busy for all."""
    path, n = folder / "s.jsonl", 0
    with path.open("w") as out:
        while out.tell() < megabytes * 1_000_000:
            out.write(turn(n))
            n += 1
    program = Path(hook.__file__).with_name("__main__.py")
    command = [sys.executable, "-S", str(program), "--limit", "agents=1000", "--limit", "tokens=1e12"]
    call = {"session_id": "s", "transcript_path": str(path), "tool_name": "Bash", "tool_input": {}, "tool_use_id": "t"}
    given = json.dumps({**call, "hook_event_name": "PreToolUse"}).encode()
    first = cpu_ms(command, given)
    taken: dict[str, list[float]] = {"call": [], "whole": [], "nothing": []}
    for _ in range(repeats):
        with path.open("a") as out:
            out.write(turn(n) + turn(n + 1))
        n += 2
        taken["call"].append(cpu_ms(command, given))
        taken["whole"].append(cpu_ms([sys.executable, "-c", _READS, str(path)]))
        taken["nothing"].append(cpu_ms([sys.executable, "-c", "pass"]))
    call_ms, whole, nothing = (statistics.median(times) for times in taken.values())
    size = f"{megabytes} MB"
    return [
        row(f"a call, session of {size} | json.loads of all lines", call_ms, whole, "ms CPU", target=5, limit=50),
        row("a call | python -c pass", call_ms, nothing, "ms CPU"),
        row(f"the first call, which reads {size} | json.loads of all lines", first, whole, "ms CPU"),
    ]


def main() -> None:
    """Run and print."""
    asked = arguments(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["COUNTERPOINT_GUARD"] = folder + "/state"
        report("Guard", rows(Path(folder), 50, 5 if asked.quick else 21), as_json=asked.json)


if __name__ == "__main__":
    main()
