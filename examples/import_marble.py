"""Read MARBLE: iterations of a team under a planner, with their scores.

Run it: python examples/import_marble.py [FILE OR FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import counterpoint

SAMPLE = Path(__file__).parent / "logs" / "marble"


def main(path: str | Path = SAMPLE) -> None:
    """Print what each run holds and how it was labelled, then what is wrong with any of them."""
    wrong: list[str] = []
    for trace in counterpoint.read_logs(path):
        links = trace.meta["import"].get("links", {})
        print(trace)
        print("  agents", ", ".join(trace.agents))
        print("  links", links or "none", "tokens", trace.costs["tokens"])
        scores = {e.id: e.reward for e in trace.events if e.reward}
        print("  scores", scores, "metrics", trace.metrics)
        wrong += [f"{trace.trace_id}: {p}" for p in counterpoint.problems(trace) if p.severity == "error"]
    print("problems:", wrong)


if __name__ == "__main__":
    main(*sys.argv[1:])
