"""MAPoRL: each answer of a debate is paid its own score now and the team's mean score later, and a few bonuses.

    R_ta = (v_ta + sum over t' > t of gamma^(t'-t) mean_b v_t'b) / sum of gamma^(t'-t),  gamma 0.3;    PPO on each agent's turns

Source: MAPoRL, arXiv 2502.18439; official code (GSM8K configuration). The released signs of the influence bonuses are reversed.
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

maporl = Preset(
    source="MAPoRL, arXiv 2502.18439; official code",
    grade="R",
    departures="an answer is what a worker makes of its turn (refine, persist or concede), not a text, and oracle judges "
    "with chosen errors stand in for the verifier; who is not asked again keeps the answer that stands; a turn is"
    " one decision, so that gamma 0 keeps turns apart as the source's sequences are; V is the mean pay of a "
    "round; the size of the four bonuses is ours; only the workers' acts learn: whoever is called, and when the "
    "team stops, stays as it was at the start",
    reward={"maporl": {"channel": "score", "gamma": 0.3, "alpha": [0.1, 0.1, 0.1, 0.1], "by_task": True}},
    credit={"gae": {"preset": "maporl", "gamma": 0.0, "lam": 0.95}},
    loss={"clip": {"clip": 0.2, "scale": False, "epochs": 4, "kl": "k1", "kl_weight": 0.002, "kl_in": "reward"}},
    group=4,
    episodes=32,
    fixed_team=True,
    regime="C",
    needs=("votes", "deliberation", "judges"),
    trains=("w",),
    unit="turn",
    as_released={"reward": {"maporl": {"as_released": True}}},
    knob={"reward": {"maporl": {"gamma": 0.9}}},
    guessed=("the four bonuses",),
)
