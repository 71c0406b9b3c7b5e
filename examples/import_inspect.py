"""Read Inspect AI logs: one trace per sample and epoch, with its agents, scores and what its guards refused.

Run it: python examples/import_inspect.py [FILE OR FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import counterpoint

SAMPLE = Path(__file__).parent / "logs" / "inspect"


def main(path: str | Path = SAMPLE) -> None:
    """Print what each sample holds, then what is wrong with any of them."""
    wrong: list[str] = []
    for trace in counterpoint.read_logs(path):
        print(trace, f"({trace.meta['eval']['status']})")
        print("  spawned", {e.to: e.role for e in trace.events if e.type == "spawn" and e.to})
        print("  links", trace.meta["import"].get("links", "none"), "tokens", trace.costs["tokens"], "rewards", trace.rewards)
        for event in trace.events:
            if event.type == "safety_event":
                print("  refused:", trace.text(event) or event.extra)
        wrong += [f"{trace.trace_id}: {p}" for p in counterpoint.problems(trace) if p.severity == "error"]
    print("problems:", wrong)


if __name__ == "__main__":
    main(*sys.argv[1:])
