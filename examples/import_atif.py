"""Read ATIF trajectories (Harbor): sub-agents inside a document and in files of their own become one trace.

Run it: python examples/import_atif.py [FILE OR FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import counterpoint

SAMPLE = Path(__file__).parent / "logs" / "atif"


def main(path: str | Path = SAMPLE) -> None:
    """Print what each run holds, then what is wrong with any of them."""
    wrong: list[str] = []
    for trace in counterpoint.read_logs(path):
        report = trace.meta["import"]
        print(trace)
        print("  spawned", {e.to: e.role for e in trace.events if e.type == "spawn"})
        print("  links", report.get("links", "none"), "tokens", trace.costs["tokens"])
        for sentence in report.get("unlinked_first", ()):
            print("  missing:", sentence)
        wrong += [f"{trace.trace_id}: {p}" for p in counterpoint.problems(trace) if p.severity == "error"]
    print("problems:", wrong)


if __name__ == "__main__":
    main(*sys.argv[1:])
