"""Read Who&When: failed runs of teams, and who made the decisive mistake when.

Run it: python examples/import_who_and_when.py [FILE OR FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import counterpoint

SAMPLE = Path(__file__).parent / "logs" / "who_and_when"


def main(path: str | Path = SAMPLE) -> None:
    """Print what each run holds and how it was labelled, then what is wrong with any of them."""
    wrong: list[str] = []
    for trace in counterpoint.read_logs(path):
        links = trace.meta["import"].get("links", {})
        print(trace)
        print("  agents", ", ".join(trace.agents))
        print("  links", links or "none", "tokens", trace.costs["tokens"])
        for event in trace.events:
            if (event.extra or {}).get("is_mistake"):
                print("  mistake at", event.id, "by", event.agent, "label agrees:", trace.meta["labels"]["agrees"])
        wrong += [f"{trace.trace_id}: {p}" for p in counterpoint.problems(trace) if p.severity == "error"]
    print("problems:", wrong)


if __name__ == "__main__":
    main(*sys.argv[1:])
