"""Start-up: what `counterpoint --help` and `import counterpoint` cost before anything is done."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from _timing import arguments, report, row


def cpu_ms(command: list[str], repeats: int) -> float:
    """Median CPU milliseconds of a process, user and system; `os.times` would count in steps of 10 ms."""
    taken = []
    for _ in range(repeats):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3)
    return statistics.median(taken)


def rows(repeats: int) -> list[dict[str, Any]]:
    command = str(Path(sys.executable).parent / "counterpoint")
    python, imported = ([sys.executable, "-c", code] for code in ("pass", "import counterpoint"))
    nothing = cpu_ms(python, repeats)
    return [
        row("counterpoint --help | python -c pass", cpu_ms([command, "--help"], repeats), nothing, "ms CPU", limit=120),
        row("import counterpoint | python -c pass", cpu_ms(imported, repeats), nothing, "ms CPU", limit=100),
    ]


def main() -> None:
    """Run and print."""
    asked = arguments(__doc__)
    report("Start-up", rows(7 if asked.quick else 21), as_json=asked.json)


if __name__ == "__main__":
    main()
