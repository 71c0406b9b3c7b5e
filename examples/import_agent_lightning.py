"""Import spans and events of Agent Lightning: one trace per attempt, with its rewards, ready to compare in groups.

Run it: python examples/import_agent_lightning.py [FOLDER]
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import counterpoint

SAMPLE = Path(__file__).parent / "logs" / "agent_lightning"


def main(folder: str = str(SAMPLE)) -> None:
    """Print each attempt's agents, events, links and tokens, and whether anything is wrong with the traces."""
    wrong: list[str] = []
    for trace in counterpoint.read_logs(folder):
        print(f"{trace.trace_id} ({trace.system}): {len({e.agent for e in trace.events})} agents, {len(trace.events)} events")
        print("  events:", dict(sorted(Counter(e.type for e in trace.events).items())))
        for spawn in (e for e in trace.events if e.type == "spawn"):
            print(f"  {spawn.agent} made {spawn.to or 'nobody'} ({spawn.role or 'no role'})")
        print("  rewards:", trace.rewards, "of task", trace.task_id)
        print("  links:", trace.meta["import"].get("links", {}))
        spent = Counter[str]()
        for e in trace.events:
            spent[e.agent] += (e.tokens_in or 0) + (e.tokens_out or 0)
        print("  tokens:", {agent: n for agent, n in sorted(spent.items()) if n})
        wrong += [str(p) for p in counterpoint.problems(trace) if p.severity == "error"]
    print("problems:", wrong)


if __name__ == "__main__":
    main(*sys.argv[1:])
