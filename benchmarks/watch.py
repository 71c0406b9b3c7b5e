"""Watch a month of logs in which nothing grows: CPU seconds per second, and the memory that it takes.

The tree is made up: sessions of Claude Code in folders of projects, old and imported before. The watch runs in a process of its
own; its CPU time is the kernel's, over the seconds after it has come to rest.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMMAND = [sys.executable, "-c", "from counterpoint.app.cli import main; main()", "watch"]


def session(name: str) -> str:
    """A small session."""
    about = {"sessionId": name, "cwd": "/repo/shop", "version": "2.0.14", "uuid": f"{name}-0", "parentUuid": None}
    said = {"role": "user", "content": "Mend the build. " * 200}
    return json.dumps({"type": "user", "timestamp": "2026-10-01T00:00:00.000Z", "message": said, **about}) + "\n"


def tree(folder: Path, sessions: int, projects: int) -> None:
    """A month of sessions, all of them older than a day."""
    for n in range(sessions):
        path = folder / f"project-{n % projects}" / f"session-{n:06}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(session(path.stem))
        old = time.time() - 86_400 * (1 + 29 * n / sessions)
        os.utime(path, (old, old))


def used(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print one row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=6_000)
    parser.add_argument("--projects", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=60.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        logs, store = Path(place) / "logs", Path(place) / "store"
        tree(logs, asked.sessions, asked.projects)
        subprocess.run([*COMMAND, str(logs), "--once", "--store", str(store)], check=True, stderr=subprocess.DEVNULL)
        process = subprocess.Popen([*COMMAND, str(logs), "--store", str(store), "--json"])
        try:
            before = -1.0
            while used(process.pid) - before > 0.05:  # until it has come to rest
                before = used(process.pid)
                time.sleep(3)
            begin, since = used(process.pid), time.monotonic()
            time.sleep(asked.seconds)
            share = (used(process.pid) - begin) / (time.monotonic() - since)
            status = Path(f"/proc/{process.pid}/status").read_text()
            memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024
        finally:
            process.kill()
            process.wait()
        print(f"{asked.sessions:,} sessions, idle: {100 * share:.2f} % of a core, {memory:.0f} MB at most")


if __name__ == "__main__":
    main()
