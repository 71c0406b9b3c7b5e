"""The survey's words, each in one place: event types, edge types, topologies, decisions, units, reward families.

Always true: the values are the survey's own spelling (arXiv 2605.02801, section 1 of our digest); nothing else in the
package writes one of these lists again. A code is a value's place in its tuple, and places never change.
"""

from __future__ import annotations

from typing import Literal, get_args

EventType = Literal[
    "orchestrator_decision",
    "spawn",
    "despawn",
    "message",
    "tool_call",
    "tool_result",
    "return",
    "aggregate",
    "human_intervention",
    "safety_event",
]
EdgeType = Literal["temporal", "causal", "spawn", "message", "tool_dependency", "return", "aggregate", "safety_flow"]
Topology = Literal["centralized", "planner_executor_critic", "debate", "swarm", "hierarchical", "harness", "mixed", "unknown"]
Decision = Literal["spawn", "delegate", "communicate", "aggregate", "stop", "noop"]
Source = Literal["user", "tool", "peer", "memory", "system"]
Unit = Literal["team", "orchestrator", "role", "agent", "turn", "message", "tool", "token"]

EVENT_TYPES: tuple[str, ...] = get_args(EventType)
EDGE_TYPES: tuple[str, ...] = get_args(EdgeType)
TOPOLOGIES: tuple[str, ...] = get_args(Topology)
DECISIONS: tuple[str, ...] = get_args(Decision)
SOURCES: tuple[str, ...] = get_args(Source)
UNITS: tuple[str, ...] = get_args(Unit)

# O1-O5, the five orchestration sub-decisions, by the value of an event's `decision`.
SUB_DECISIONS = {"O1": "spawn", "O2": "delegate", "O3": "communicate", "O4": "aggregate", "O5": "stop"}

ACTING = ("orchestrator_decision", "message", "tool_call", "aggregate")
"""Event types in which an agent's model acts. Spawn, despawn, return and tool_result are consequences or observations."""
TEAM_TYPES = (*ACTING, "spawn", "despawn", "return")
"""Event types that only a member of the team brings about."""
OUTSIDE_ROLES = frozenset({"user", "human", "tool", "environment", "system", "memory", "unknown"})
"""Roles and names of those who are heard but are not in the team, or of whom nobody says who they are."""

REWARD_FAMILIES = {
    "R1": "shared team outcome",
    "R2": "individual agent",
    "R3": "role-specific",
    "R4": "process",
    "R5": "tool use",
    "R6": "debate or verifier",
    "R7": "orchestration",
    "R8": "hybrid local-global",
}

# The cost fields that the survey's schema names; `tokens` and `wall_clock_s` are required.
COST_FIELDS = ("tokens", "wall_clock_s", "tool_calls", "messages")
