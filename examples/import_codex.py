"""Read the logs of OpenAI Codex: who was in the team, what they did, who hangs on whom, what it cost.

Run it: python examples/import_codex.py [FOLDER, such as ~/.codex/sessions]
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import counterpoint
from counterpoint import Trace, problems

SAMPLE = Path(__file__).parent / "logs" / "codex"


def show(trace: Trace) -> None:
    """One trace in a few lines. What the log lacks, and which links were inferred, is in `trace.meta["import"]`."""
    kinds = Counter(e.type for e in trace.events)
    agents = {e.agent for e in trace.events}
    print(f"{trace.trace_id}: {len(agents)} agents, {len(trace.events)} events, {len(trace.edges)} edges")
    print("  events:", ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items())))
    print("  links:", trace.meta["import"].get("links", {}))
    print("  tokens:", sum(e.tokens_in or 0 for e in trace.events), "in,", sum(e.tokens_out or 0 for e in trace.events), "out")
    for event in trace.events:
        if event.type == "safety_event":
            said = (event.extra or {}).get("outcome", "refused")
            print(f"  safety: {said} ({event.role} {event.agent[-4:]}): {event.error or ''}".rstrip(": "))


def main(folder: str = str(SAMPLE)) -> None:
    """Read, show, check."""
    found: list[str] = []
    for trace in counterpoint.read_logs(folder):
        show(trace)
        found += [str(p) for p in problems(trace) if p.severity == "error"]
    print("problems:", found)


if __name__ == "__main__":
    main(*sys.argv[1:])
