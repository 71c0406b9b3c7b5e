"""plugin_name: PPO's clipped loss on the summed rewards of a rollout against the other rollouts of its task.

    A_i = R_i - mean(R)      over the group; loss: clip 0.2

Always true: a preset is data; whatever it names is looked up when a run starts.
"""

from __future__ import annotations

from counterpoint.lab.train.preset import Preset

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


# -- test_plugin_name.py -----------------------------------------------------------------------------------------------
"""plugin_name keeps the contract of a preset: it names what there is, and learns on a small world."""

# from here import plugin_name
from counterpoint.lab.testing import check_preset


def test_it_keeps_the_contract() -> None:
    check_preset(plugin_name)


def test_an_update_by_hand() -> None:
    assert plugin_name.episodes / plugin_name.group == 4  # tasks per update, each played four times
