"""Read MAST: conversations of teams, and the failure modes that people saw in them.

Run it: python examples/import_mast.py [FILE OR FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import counterpoint

SAMPLE = Path(__file__).parent / "logs" / "mast"


def main(path: str | Path = SAMPLE) -> None:
    """Print what each run holds and how it was labelled, then what is wrong with any of them."""
    wrong: list[str] = []
    for trace in counterpoint.read_logs(path):
        links = trace.meta["import"].get("links", {})
        print(trace)
        print("  agents", ", ".join(trace.agents))
        print("  links", links or "none", "tokens", trace.costs["tokens"])
        modes = [name for name, value in (trace.metrics or {}).items() if name.startswith("failure: ") and value]
        print("  failure modes", modes)
        wrong += [f"{trace.trace_id}: {p}" for p in counterpoint.problems(trace) if p.severity == "error"]
    print("problems:", wrong)


if __name__ == "__main__":
    main(*sys.argv[1:])
