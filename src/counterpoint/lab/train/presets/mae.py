"""Multi-Agent Evolve: one proposes questions, one solves them, one judges; each role against its own batch.

    proposer (q + [q >= 0.7] (1 - s) + f) / 3,  solver (j + f) / 2,  judge f;      A = (r - mean) / std over the role's batch

Source: Multi-Agent Evolve, arXiv 2510.23595; official code (REINFORCE++, no KL).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

mae = Preset(
    source="Multi-Agent Evolve, arXiv 2510.23595; official code",
    grade="R",
    departures="a proposal is two dials, how hard and how many, not a text; oracle judges with chosen errors take the "
    "judge's place and do not learn; format is always kept; solvers are the workers, who learn whether to repeat "
    "the draft, and their pay teaches who is called with which brief; the team's size, its rule and its stop do "
    "not learn; one rollout per task, not five answers to one question",
    reward={"mae": {"solver": "worker", "score": "score"}},
    credit={"agent_wise": {"by": "role", "key": "batch", "convention": "reinforce_pp", "singleton": "zero"}},
    loss={"clip": {"clip": 0.2, "scale": False}},
    group=1,
    episodes=32,
    fixed_team=True,
    regime="B",
    delegate="agent",
    needs=("votes", "judges", "proposer"),
    trains=("w", "proposer"),
    unit="role",
    knob={"reward": {"mae": {"least": 0.5}}},
)
