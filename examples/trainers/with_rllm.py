"""Rows as rLLM's episodes: what an AgentFlow of yours would return, with advantages that are taken as they are.

Run it: python examples/trainers/with_rllm.py rows.jsonl
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(path: str = "rows.jsonl") -> None:
    """Read the episodes; as rLLM's own type where it is installed."""
    records = [json.loads(line) for line in Path(path).read_text().splitlines()]
    try:
        from rllm.types import Episode

        records = [Episode(**record).model_dump() for record in records]
        told = "as rllm.types.Episode"
    except ImportError:
        told = "as plain records: rllm is not installed"
    steps = [step for record in records for trajectory in record["trajectories"] for step in trajectory["steps"]]
    assert all(len(step["advantage"]) == len(step["response_ids"]) for step in steps)
    print(f"{len(records)} episodes, {len(steps)} steps, {told}")


if __name__ == "__main__":
    main(*sys.argv[1:])
