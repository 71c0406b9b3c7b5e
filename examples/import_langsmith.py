"""Read LangSmith runs: a LangGraph supervisor with its agents, and a graph that stopped to ask a human.

Run it: python examples/import_langsmith.py [FILE OR FOLDER]
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from counterpoint import problems, read_logs

SAMPLE = Path(__file__).parent / "logs" / "langsmith"


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
        print("  humans", [trace.text(e) for e in trace.events if e.type == "human_intervention"])
        wrong += [f"{trace.trace_id}: {p}" for p in problems(trace) if p.severity == "error"]
    print("problems:", wrong)


if __name__ == "__main__":
    main(*sys.argv[1:])
