"""Dense baseline: the feedback that `counterpoint` gets, nothing else of it: clipped steps on item returns.

    A = lambda-return of the call along its own item, less a critic of drafts (`lab/train/returns.py`);  clip 0.2

No forks, no trials, no forced continuation, no critic of teams. What ours is worth beyond its feedback is the difference to this.
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

dense_clip = Preset(
    source="PPO's clipped step, arXiv 1707.06347, on the returns of docs/lab/research/partition.md",
    grade="T",
    departures="a baseline, not a published method: returns run along an item, and the critic reads the verifier's draft scores",
    credit={"task_returns": {}},
    loss={"clip": {"clip": 0.2}},
    group=8,
    episodes=32,
    unit="turn",
    knob={"loss": {"clip_high": 0.28}},
)
