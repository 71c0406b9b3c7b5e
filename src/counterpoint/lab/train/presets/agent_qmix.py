"""Agent Q-Mix: who talks to whom, one of six acts per agent and round, learned by a monotone mix of utilities.

    Q_tot = |w2(s)| . elu(q |W1(s)| + b1(s)) + V(s);   y = r + gamma max Q_tot';   r = 1.5 outcome - 0.1 min(tokens / 10^4, 1)

Source: Agent Q-Mix, arXiv 2604.00344; official code, which writes r to every round and never fits the last one.
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

agent_qmix = Preset(
    source="Agent Q-Mix, arXiv 2604.00344; official code",
    grade="R",
    departures="the utilities of all workers' acts enter the mix as one, their mean, beside those of the other sub-"
    "decisions, because a team's size changes and a mixer's width does not; the outcome is the share of the "
    "optimum, not 0 or 1; softmax behaviour whose temperature falls, not epsilon-greedy; the batch just played "
    "instead of a replay buffer; the value of the draft so far shapes the reward, as a potential, because an "
    "episode has a dozen rounds and not two; no graph network and no recurrence: a worker sees what is on the "
    "board",
    reward={"agent_qmix": {"w_outcome": 1.5, "w_tokens": 0.1, "most": 10_000, "share": True}},
    credit={"qmix": {}},
    loss={"td": {"gamma": 0.99, "tau_from": 1.0, "tau_to": 0.5, "epochs": 24, "shaped": True}},
    group=1,
    episodes=32,
    regime="A",
    rates={"policy": 5e-3, "spawn": 2e-2, "critic": 3e-3},
    needs=("votes", "communication"),
    trains=("O3",),
    unit="agent",
    as_released={"loss": {"each_step": True, "drop_last": True, "shaped": False}},
    knob={"loss": {"epochs": 8}},
)
