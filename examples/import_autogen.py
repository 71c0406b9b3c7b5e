"""Import what AutoGen, AG2 and Magentic-One leave behind: event logs, messages, console logs, chat histories.

Run it: python examples/import_autogen.py [FOLDER]
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import counterpoint

SAMPLE = Path(__file__).parent / "logs" / "autogen"


def main(folder: str = str(SAMPLE)) -> None:
    """Print each log's agents, events, links and tokens, and whether anything is wrong with the traces."""
    wrong: list[str] = []
    for trace in counterpoint.read_logs(folder):
        print(f"{trace.trace_id} ({trace.system}): {len({e.agent for e in trace.events})} agents, {len(trace.events)} events")
        print("  events:", dict(sorted(Counter(e.type for e in trace.events).items())))
        for ask in (e for e in trace.events if e.type == "orchestrator_decision" and e.to):
            print(f"  {ask.agent} asked {ask.to}")
        print("  links:", trace.meta["import"].get("links", {}))
        spent = Counter[str]()
        for e in trace.events:
            spent[e.agent] += (e.tokens_in or 0) + (e.tokens_out or 0)
        print("  tokens:", {agent: n for agent, n in sorted(spent.items()) if n})
        wrong += [str(p) for p in counterpoint.problems(trace) if p.severity == "error"]
    print("problems:", wrong)


if __name__ == "__main__":
    main(*sys.argv[1:])
