"""What the guard of a recording counts of the acts that it sees.

Always true: without a guard nothing is counted, and nothing is refused here.
"""

from __future__ import annotations

from counterpoint.recorder.lanes import Scope


def agent_depth(scope: Scope) -> int:
    """Spawns between the root and the agent of a scope."""
    lanes, boss, depth = scope.session.lanes.lanes, scope.lane.boss, 0
    while boss is not None and depth < len(lanes):
        boss, depth = lanes[boss].boss if boss in lanes else None, depth + 1
    return depth


def count_call(scope: Scope | None, tool: str, text: str | None) -> Scope | None:
    """A tool's call has begun; gives its scope."""
    if scope is not None and scope.session.guard is not None:
        scope.session.guard.on_call(str(scope.event), tool, text)
    return scope


def count_answer(scope: Scope, ok: bool) -> None:
    """A tool has answered."""
    if scope.session.guard is not None:
        is_root = scope.lane is scope.session.lanes.root.lane
        scope.session.guard.on_result("main" if is_root else scope.lane.agent, str(scope.event), ok)
