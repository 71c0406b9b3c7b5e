"""Credit in words: LangMARL (2604.00722). No number flows; what can be computed is who gets which text.

Always true: an agent that the critic's reply does not name gets the whole reply; advice is merged by a model only where there
is more than one piece of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def split_reply(parsed: Mapping[str, str], agents: Sequence[str], reply: str) -> dict[str, str]:
    """Agent to its evaluation: its part of the critic's reply, or all of it."""
    return {agent: parsed.get(agent, reply) for agent in agents}


def merge_calls(pieces: int) -> int:
    """Model calls to merge so many pieces of advice for one agent: one for two and more, none otherwise."""
    return int(pieces > 1)
