"""SAGE: a challenger, a planner, a solver and a critic; what the critic rejects pays nobody.

    challenger (q + 1 - s + f) / 3,  planner (p + s) / 2,  solver (s + f) / 2,  critic f;      A whitened over the role's batch

Source: SAGE, arXiv 2603.15255 (abstract; weights and normalisation in the manner of Multi-Agent Evolve).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

sage = Preset(
    source="SAGE, arXiv 2603.15255",
    grade="S",
    departures="read from the abstract: weights, thresholds and loss are ours; a task is two dials, how hard and how many; "
    "the planner is the orchestrator, and its plan is scored by the share of calls that go to specialists; oracle"
    " judges take the critic's place and do not learn; solvers are the workers, who learn whether to repeat the "
    "draft; the planner learns who is called with which brief, and nothing else",
    reward={
        "sage": {"challenger": "proposer", "planner": "orchestrator", "solver": "worker", "critic": "judge", "score": "score"}
    },
    credit={"agent_wise": {"by": "role", "key": "batch", "convention": "reinforce_pp", "singleton": "zero"}},
    loss={"clip": {"clip": 0.2, "scale": False}},
    group=1,
    episodes=32,
    fixed_team=True,
    regime="B",
    needs=("votes", "judges", "proposer"),
    trains=("w", "O2", "O3", "proposer"),
    unit="role",
    knob={"reward": {"sage": {"least": 0.7}}},
    guessed=("weights", "threshold", "credit", "loss"),
)
