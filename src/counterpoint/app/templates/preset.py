"""plugin_name: PPO's clipped loss on the summed rewards of a rollout against the other rollouts of its task.

    A_i = R_i - mean(R)      over the group; loss: clip 0.2

Always true: a preset is data; whatever it names is looked up when a run starts.
"""

from __future__ import annotations

from counterpoint.train.preset import Preset

plugin_name = Preset(
    source="an example of how a preset is written",
    grade="M",
    departures="none: it is its own source",
    credit={"group_relative": {"convention": "dr_grpo"}},
    loss={"clip": {"clip": 0.2}},
    reward={"team_outcome": {}},
    group=4,
    episodes=16,
)
