"""Read rollouts of verifiers and prime-rl: rewards by task, and where sub-models were called.

Run it: python examples/import_verifiers.py [FILE OR FOLDER]
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import counterpoint

SAMPLE = Path(__file__).parent / "logs" / "verifiers"


def main(path: str | Path = SAMPLE) -> None:
    """Print what each rollout holds, the mean reward of each task, then what is wrong with any of them."""
    wrong: list[str] = []
    rewards: dict[str, list[float]] = defaultdict(list)
    for trace in counterpoint.read_logs(path):
        print(trace)
        print("  agents", trace.agents, "links", trace.meta["import"].get("links", "none"), "tokens", trace.costs["tokens"])
        if "team" in trace.rewards:
            rewards[trace.task_id].append(trace.rewards["team"])
        wrong += [f"{trace.trace_id}: {p}" for p in counterpoint.problems(trace) if p.severity == "error"]
    for task, found in sorted(rewards.items()):
        print(f"{task}: mean reward {sum(found) / len(found):.2f} of {len(found)}")
    print("problems:", wrong)


if __name__ == "__main__":
    main(*sys.argv[1:])
