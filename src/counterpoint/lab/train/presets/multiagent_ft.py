"""Multi-agent fine-tuning: an agent imitates its own answers that agree with the majority, truth unread.

    loss = -log pi over an agent's own calls whose claim is the majority's on its item

Source: Subramaniam et al., arXiv 2501.05707 (secondary).
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

multiagent_ft = Preset(
    source="Multiagent Finetuning, arXiv 2501.05707 (secondary)",
    grade="S",
    departures="agents of a family share a network; what is trained is the delegation to an agent and whether it repeats the "
    "draft, since a worker's skill is the world's; critics, who imitate a mix of rounds, have no counterpart; who is "
    "spawned and when to stop is not trained",
    credit={"agreement": {}},
    loss={"sft": {"above": 0.5, "steps": 8}},
    group=1,
    episodes=32,
    regime="C",
    delegate="agent",
    rates={"policy": 0.005, "spawn": 0.01, "critic": 0.003},
    needs=("workers", "votes"),
    trains=("w",),
    unit="agent",
    knob={"credit": {"first": True}},
    guessed=("numbers of the fine-tuning",),
)
