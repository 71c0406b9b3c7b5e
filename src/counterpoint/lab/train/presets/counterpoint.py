"""Ours: soft policy iteration on causal cones, all-stops stopping, a critic of whole teams, forced spawn forks.

Purposes (leave, answer, verify, next) and stops are learned from critics of every alternative at once, teams from a critic of
their size and make-up; briefs, pointers and rules by clipped steps on what those critics leave unexplained; two forced spawn
decisions in 24 episodes keep both arms covered.
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

counterpoint = Preset(
    source="docs/lab/research: stopping.md, spawn-credit.md (forced forks), partition.md (ledger, cone form), staleness.md",
    grade="M",
    departures="spawns move towards the best of a regression over team sizes and shares, not by a natural gradient per arm, and "
    "from the middle of a run on teams are set by greedy trials; critics are small networks",
    credit={"task_returns": {}},
    loss={"soft": {}},
    forks=0.1,
    keeps=0.15,
    tries=0.5,
    goes_on=True,
    widens=(40, 4),
    trial_every=10,
    rates={"policy": 5e-3, "spawn": 2e-2, "critic": 3e-3},
    unit="turn",
    knob={"forks": 0.2},
)
