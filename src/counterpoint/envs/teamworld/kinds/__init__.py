"""The five kinds of items: what a call on one does, what is seen of it, and what it is worth when the team stops.

Always true: a kind's state holds arrays whose first axis is the episode; hidden truth and visible evidence are apart (each class
says which is which); `work` draws and `absorb` records, so a return may be delivered later, changed or never.
"""

from __future__ import annotations

from dataclasses import dataclass

from counterpoint.envs.teamworld.kinds.chain import ChainState
from counterpoint.envs.teamworld.kinds.draft import DraftState
from counterpoint.envs.teamworld.kinds.node import NodeState
from counterpoint.envs.teamworld.kinds.pool import PoolState
from counterpoint.envs.teamworld.kinds.vote import VoteState

__all__ = ["KIND_STATES", "KindState", "KindStates"]

KindState = VoteState | PoolState | DraftState | ChainState | NodeState
KIND_STATES: dict[str, type[KindState]] = {
    "vote": VoteState,
    "pool": PoolState,
    "draft": DraftState,
    "chain": ChainState,
    "node": NodeState,
}


@dataclass
class KindStates:
    """The state of each kind that has items."""

    vote: VoteState | None = None
    pool: PoolState | None = None
    draft: DraftState | None = None
    chain: ChainState | None = None
    node: NodeState | None = None

    def present(self) -> list[tuple[str, KindState]]:
        """The kinds that have items, in the order of items."""
        return [(name, state) for name in KIND_STATES if (state := getattr(self, name)) is not None]
