"""Rows as verifiers' episodes: every branch is a call with its advantages, as prime-rl reads them.

Needs: pip install '.[verifiers]' in a clone
Run it: python examples/trainers/with_verifiers.py rows.jsonl
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import verifiers.v1 as vf


def main(path: str = "rows.jsonl") -> None:
    """Read the episodes and look at their branches."""
    episodes = [vf.WireEpisode.model_validate(json.loads(line)) for line in Path(path).read_text().splitlines()]
    branches = [branch for episode in episodes for trace in episode.traces for branch in trace.branches]
    credited = sum(branch.advantages is not None for branch in branches)
    print(f"{len(episodes)} episodes, {len(branches)} branches, {credited} with advantages")


if __name__ == "__main__":
    main(*sys.argv[1:])
