"""CoMAS: an answer is paid by its score, its evaluation by what is left; each agent against its own buffer.

    r(solution) = (s - 1) / 2,  r(evaluation) = (3 - s) / 2,  s in 1..3;   A whitened over the agent's turns, less KL to go

Source: CoMAS, arXiv 2510.08529 v2 (4 agents, 8 rounds; REINFORCE++ with PPO's clip).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

comas = Preset(
    source="CoMAS, arXiv 2510.08529 v2",
    grade="P",
    departures="no texts: an answer is what a worker makes of its turn (refine, persist or concede); every answer evaluates "
    "the last one that somebody else gave to the question, s is 3 where it agrees and else 1 + 2 times the share "
    "of oracle judges that accept the first; the scorer is such a judge and does not learn; who answers is the "
    "orchestrator's choice, not a draw; only the workers' acts learn: whoever is called, and when the team stops,"
    " stays as it was at the start",
    reward={"comas": {"replies": True}},
    credit={"agent_wise": {"by": "turn", "key": "batch", "convention": "reinforce_pp", "singleton": "zero"}},
    loss={"clip": {"clip": 0.2, "scale": False, "kl": "k1", "kl_weight": 0.01, "kl_in": "reward"}},
    group=1,
    episodes=32,
    fixed_team=True,
    regime="C",
    needs=("votes", "deliberation", "judges"),
    trains=("w",),
    unit="turn",
    knob={"loss": {"kl_weight": 0.001}},
    guessed=("beta of the KL", "epochs"),
)
