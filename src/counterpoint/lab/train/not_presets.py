"""Published methods that are no preset: why not, and what counts as working for each.

Always true: what is said to work has a command or a function here that does it, and a test.
"""

from __future__ import annotations

from typing import NamedTuple


class NotPreset(NamedTuple):
    """One method, or the part of one that cannot be data of a preset."""

    name: str
    source: str
    why: str
    """Why it cannot be a preset."""
    works_when: str
    """What stands in for it, and how to run that."""


NOT_PRESETS = (
    NotPreset(
        "halo",
        "HALO, arXiv 2505.13516",
        "a search at run time: nothing is learned",
        "a policy of every TeamWorld, simulations count as calls: counterpoint play --world W1 --policy halo (or halo_released)",
    ),
    NotPreset(
        "agentspawn",
        "AgentSpawn, arXiv 2602.07072",
        "a script at run time: nothing is learned",
        "a policy of every TeamWorld, with the chances of its spawns: counterpoint play --world W1 --policy agentspawn",
    ),
    NotPreset(
        "hera",
        "HERA, arXiv 2604.00901",
        "what it learns is a library of insights in words",
        "counterpoint train prompts hera: teams are ranked, insights kept, scores logged; no gain is claimed",
    ),
    NotPreset(
        "langmarl",
        "LangMARL, arXiv 2604.00722",
        "what it learns are prompts",
        "counterpoint train prompts langmarl: a critic's advice is merged, prompts rewritten, scores logged; no gain is claimed",
    ),
    NotPreset(
        "mas_zero",
        "MAS-Zero, arXiv 2505.14996",
        "it designs a team for each task in words, and no weights change",
        "counterpoint train prompts mas_zero: design, play, critique, choose; scores logged, no gain is claimed",
    ),
    NotPreset(
        "latentmas",
        "LatentMAS, arXiv 2511.20639",
        "agents hand hidden states on: nothing is trained, and there is no message to credit",
        "not run here; a trace names tensors as it does texts, so such a team can be recorded",
    ),
    NotPreset(
        "lamo",
        "LAMO, arXiv 2604.13488",
        "it reads images of user interfaces; reward, credit and numbers were not found",
        "not run here; a language model with a preset of roles (dr_mas, marsrl) is the nearest that text worlds allow",
    ),
    NotPreset(
        "sirius (repair)",
        "SiriuS, arXiv 2502.04780",
        "failed traces are repaired by a model that rewrites them; the rest of the method is the preset sirius",
        "the preset learns from successes alone, and its departures say so",
    ),
    NotPreset(
        "magic (rewriting)",
        "MAGIC, arXiv 2602.01539",
        "its attacker rewrites prompts, which needs a model; the two learning sides are the preset magic",
        "the attacks AV1 to AV8 of TeamWorld stand in for rewritten prompts, and its departures say so",
    ),
)
