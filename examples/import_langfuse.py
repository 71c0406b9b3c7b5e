"""Read Langfuse traces: agents, tools and generations of any framework, with the scores they were given.

Run it: python examples/import_langfuse.py [FILE OR FOLDER]
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from counterpoint import problems, read_logs

SAMPLE = Path(__file__).parent / "logs" / "langfuse"


def main(path: str | Path = SAMPLE) -> None:
    """Print the agents, links and tokens of each trace, then what is wrong with any of them."""
    wrong: list[str] = []
    for trace in read_logs(path):
        spent: Counter[str] = Counter()
        for event in trace.events:
            spent[event.agent] += (event.tokens_in or 0) + (event.tokens_out or 0)
        roles = {e.to: e.role for e in trace.events if e.type == "spawn"} | {
            e.agent: e.role for e in trace.events if e.type != "spawn"
        }
        print(trace)
        print("  tokens", {f"{roles.get(agent) or agent} ({agent})": n for agent, n in spent.items() if n})
        print("  links", trace.meta["import"].get("links", "none"))
        print("  scores", trace.rewards, [s["name"] for s in trace.meta.get("scores", [])])
        wrong += [f"{trace.trace_id}: {p}" for p in problems(trace) if p.severity == "error"]
    print("problems:", wrong)


if __name__ == "__main__":
    main(*sys.argv[1:])
