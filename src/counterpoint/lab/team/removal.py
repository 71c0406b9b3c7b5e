"""What a recorded episode of a package's world would have paid without what some agents did: exact, and without a model call.

Always true: the package's own steps are taken again from the seed, with an empty action for those who are left out, which is what
the package makes of one (DPBench: WAIT); everybody else does what they did. Where the episode would then have gone on longer than
it did, it ends where the recording does: what others would have done is not known. With everybody it is the recorded score.
"""

from __future__ import annotations

from collections.abc import Collection

from counterpoint.lab.tasks.packages.world_task import Moves, WorldTask, world_task
from counterpoint.lab.team.session import TURNS
from counterpoint.trace import Trace

_LEAD = "lead."


class Removal:
    """The replays of one trace."""

    @classmethod
    def of(cls, trace: Trace) -> Removal | None:
        """The replays of a trace that was played turn by turn in a world; None of any other."""
        team = trace.meta.get("team") or {}
        is_world = team.get("topology") == TURNS and ":" in str((trace.meta.get("task") or {}).get("name"))
        return cls(trace) if is_world else None

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        name = str((trace.meta.get("task") or {}).get("name"))
        self.task: WorldTask = world_task(name)
        self.seed = int(trace.meta["team"]["seed"])
        self.moves = Moves.read(str(trace.meta.get("answer", "")), self.task.actions) or Moves()
        self.members = tuple(f"{_LEAD}{agent}" for agent in self.task.agents)
        self._scores: dict[frozenset[str], float] = {}

    def score(self, removed: Collection[str]) -> float:
        """The team's reward without what these did."""
        out = frozenset(removed)
        if out not in self._scores:
            episode = self.task.episode(self.seed)
            self.moves.play(episode, without=[name.removeprefix(_LEAD) for name in out])
            self._scores[out] = float(episode.team_reward)
        return self._scores[out]
