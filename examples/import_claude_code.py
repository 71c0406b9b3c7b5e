"""Where did the tokens of a Claude Code session go? The spawn tree with each sub-agent's own tokens and cost.

Run it: python examples/import_claude_code.py [FOLDER]        (yours: ~/.claude/projects)
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

from counterpoint import Trace, problems, read_logs

SAMPLE = Path(__file__).parent / "logs" / "claude_code"


def tree(trace: Trace) -> None:
    """Print who spawned whom, with what each spent."""
    spent: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    children: dict[str, list[str]] = defaultdict(list)
    for event in trace.events:
        spent[event.agent][0] += (event.tokens_in or 0) + (event.tokens_out or 0)
        spent[event.agent][1] += event.cost_usd or 0
        if event.type == "spawn":
            children[event.agent].append(event.to or f"(failed: {event.error})")

    def show(agent: str, depth: int) -> None:
        own = spent.get(agent, [0, 0.0])
        print(f"  {'  ' * depth}{agent}  {own[0]:,} tokens  ${own[1]:.4f}")
        for child in children.pop(agent, []):
            show(child, depth + 1)

    show("main", 0)


errors = []
for trace in read_logs(sys.argv[1] if len(sys.argv) > 1 else SAMPLE):
    about = trace.meta["import"]
    print(f"{trace.trace_id}: {len(trace.events)} events, links {about.get('links', {})}")
    tree(trace)
    errors += [str(p) for p in problems(trace) if p.severity == "error"]
print("problems:", errors)
