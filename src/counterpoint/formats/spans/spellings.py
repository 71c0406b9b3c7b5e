"""What the GenAI conventions call agents, handoffs and turns: every spelling that is read, and the one that is written.

The conventions are in motion. A name that is settled stands first and is the one we write; of what is only proposed (agent
identity in issue 334, turns in 332, iterations in 81, handoffs in pull requests 98 and 447 of semantic-conventions-genai) we
write what has no settled name, and read all.

Always true: the first spelling of a row is the one that is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

AGENT_NAME = ("gen_ai.agent.name", "agent_name", "agent.name")
AGENT_ID = ("gen_ai.agent.id", "agent.id", "agent_id")
"""What was configured, of which several instances may run."""
AGENT_INSTANCE = ("agent.instance.id", "gen_ai.agent.instance.id")
"""The one that acts."""
AGENT_VERSION = ("gen_ai.agent.version", "agent.version")
AGENT_TYPE = ("agent.type.id", "gen_ai.agent.type.id")
"""A digest of how the agent was built."""
IDENTITY_ID = ("gen_ai.agent.identity.id",)
IDENTITY_NAME = ("gen_ai.agent.identity.name",)
"""Whom an agent acts as, in the eyes of those it calls."""
PARENT_PROMPT = ("agent.parent.prompt", "gen_ai.agent.parent.prompt")
CONVERSATION = ("gen_ai.conversation.id", "session.id", "gen_ai.session.id", "conversation.id")
TURN = ("gen_ai.agent.turn", "gen_ai.conversation.turn", "gen_ai.conversation.turn_number", "gen_ai.turn.number")
"""Which exchange with the user it is, from 1."""
ITERATION = ("gen_ai.agent.iteration", "gen_ai.react.round")
"""Which round of the agent's own loop it is, from 1."""
HANDOFF_SOURCE = ("gen_ai.agent.handoff.source.name", "gen_ai.handoff.from_agent", "gen_ai.handoff.source", "ag2.handoff.source")
HANDOFF_TARGET = (
    "gen_ai.agent.handoff.target.name", "gen_ai.transfer.target.name", "gen_ai.handoff.to_agent", "gen_ai.handoff.target",
    "gen_ai.agent.handoff.target", "ag2.handoff.target",
)  # fmt: skip
TRANSFER_MODE = "gen_ai.transfer.mode"
"""`pass_control` is a handoff; `return_to_caller` a call of a sub-agent."""
KEPT = {
    "agent_version": AGENT_VERSION, "agent_type_id": AGENT_TYPE, "agent_identity_id": IDENTITY_ID,
    "agent_identity_name": IDENTITY_NAME, "parent_prompt": PARENT_PROMPT, "conversation_id": CONVERSATION,
    "conversation_turn": TURN, "iteration": ITERATION,
}  # fmt: skip
"""Key in an event's `extra` to the spellings of what stands there."""
PLAN = "plan"
"""The operation of an agent that makes its plan; in `extra`, as `operation`, of a step that was taken in one."""


def first_of(attributes: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """The value of the first of these names that has one."""
    return next((attributes[name] for name in names if attributes.get(name) not in (None, "")), None)


def kept_of(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of an agent and its conversation, by its key in `extra`."""
    found = {key: first_of(attributes, names) for key, names in KEPT.items()}
    return {key: value for key, value in found.items() if value is not None}


def written_of(extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """The same as attributes, in the spelling that is written; values that no attribute has are left out."""
    found = {names[0]: (extra or {}).get(key) for key, names in KEPT.items()}
    return {name: value for name, value in found.items() if isinstance(value, str | int) and not isinstance(value, bool)}


def handoff_of(source: str, target: str) -> dict[str, str]:
    """The attributes of a call by which one agent passes control to another."""
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": f"transfer_to_{target}",
        HANDOFF_SOURCE[0]: source,
        HANDOFF_TARGET[0]: target,
    }
