"""The six topologies: each takes away or adds what the rules page says, as often as it says."""

from __future__ import annotations

from typing import Any

import numpy as np

from counterpoint.lab.worlds.teamworld.action import Action, Calls, Spawns
from counterpoint.lab.worlds.teamworld.engine import Batch
from lab.worlds.teamworld.other_rules import ruled

E = 2500


def team(number: int = 4, episodes: int = E, **changes: Any) -> Batch:
    """Teams of agents of family B that stand ready."""
    base: dict[str, Any] = {"vote_items": 1, "max_agents": 12, "types": 1, "round_price": 0.0}
    batch = Batch(ruled(**(base | changes)), np.arange(episodes))
    batch.step(Action(stop=np.zeros(episodes, np.bool_), spawns=Spawns.of(np.arange(episodes), number)))
    return batch


def call(batch: Batch, item: Any, agent: Any, say: Any = None, **parts: Any) -> None:
    """The same calls in every episode; `say` puts votes into the workers' mouths."""
    e = batch.state.episodes
    items, agents = np.broadcast_arrays(np.atleast_1d(item), np.atleast_1d(agent))
    calls = Calls.of(np.repeat(np.arange(e), len(items)), np.tile(items, e), np.tile(agents, e))
    wide: dict[str, Any] = {k: np.full(e, v) for k, v in parts.items()}
    batch.step(
        Action(stop=np.zeros(e, np.bool_), calls=calls, **wide), None if say is None else lambda c, claims: np.tile(say, e)
    )


def votes(batch: Batch) -> Any:
    out = batch.state.kinds.vote
    assert out is not None
    return out


def close_to(hits: np.ndarray, chance: float) -> None:
    assert hits.size >= 200
    assert abs(hits.mean() - chance) <= 5 * np.sqrt(max(chance * (1 - chance), 1e-9) / hits.size) + 1e-12, (hits.mean(), chance)


def test_the_critic_passes_and_rejects() -> None:
    batch = team(topology="planner_executor_critic", critic_price=0.5)
    call(batch, [0, 0, 0], [1, 2, 3])
    v = votes(batch)
    assert (v.tally.sum(axis=(1, 2, 3)) + v.rejected.sum(axis=(1, 2)) == 3).all()
    assert (batch.state.calls == 3).all()
    assert np.allclose(batch.state.costs[:, 5], 1.5)
    for right in (True, False):
        fresh = team(topology="planner_executor_critic")
        truth = votes(fresh).truth[:, 0]
        say = (truth if right else 1 - truth).astype(np.int64)
        calls = Calls.of(np.arange(E), 0, 1)
        fresh.step(Action(stop=np.zeros(E, np.bool_), calls=calls), lambda c, claims: say)  # noqa: B023
        close_to(votes(fresh).rejected[:, 0, 1] == 1, 0.05 if right else 0.4)
        rejected = votes(fresh).rejected[:, 0, 1] == 1
        assert (votes(fresh).first[rejected] == -1).all()
        assert (votes(fresh).answer[rejected] == 0).all()


def _copies(first: list[int], heard: list[bool], **changes: Any) -> np.ndarray:
    """Votes of a fourth agent, free of knowledge of its own about a question that is hard beyond hope."""
    sure: dict[str, Any] = {"skill_b": (0.5,) * 3, "misconception_b": (0.0,) * 3}
    batch = team(**(sure | changes))
    for i, (say, public) in enumerate(zip(first, heard, strict=True)):
        call(batch, 0, i + 1, [say], broadcast=public)
    before = votes(batch).tally[:, 0, 1].copy()
    call(batch, 0, 4)
    return (votes(batch).tally[:, 0, 1] - before)[:, 1] == 1


def test_a_debate_conforms_to_the_public_majority() -> None:
    close_to(_copies([1, 1, 1], [True] * 3, topology="debate"), 0.6 + 0.4 * 0.5)
    close_to(_copies([1, 1, 0], [True] * 3, topology="debate"), 0.6 / 3 + (1 - 0.6 / 3) * 0.5)
    close_to(_copies([1, 0], [True] * 2, topology="debate"), 0.5)
    close_to(_copies([1, 1, 1], [False] * 3, topology="debate"), 0.5)
    close_to(_copies([1, 1, 1], [True] * 3, topology="centralized"), 0.5)


def test_a_debate_hears_only_if_the_last_returns_were_broadcast() -> None:
    close_to(_copies([1, 1, 1], [False, False, True], topology="debate"), 0.8)
    close_to(_copies([1, 1, 1], [True, True, False], topology="debate"), 0.5)


def test_a_swarm_copies_the_last_note() -> None:
    close_to(_copies([0, 0, 1], [False] * 3, topology="swarm", memory_copy=0.4), 0.4 + 0.6 * 0.5)
    close_to(_copies([], [], topology="swarm", memory_copy=0.4), 0.5)


def test_returns_are_lost_level_by_level() -> None:
    batch = team(1, topology="hierarchical", level_loss=0.3, max_depth=3)
    no = np.zeros(E, np.bool_)
    for parent in (1, 2):
        batch.step(Action(stop=no, spawns=Spawns.of(np.arange(E), 1, 1, 0, parent)))
    assert batch.state.depth[0, :4].tolist() == [0, 1, 2, 3]
    for agent, kept in ((1, 1.0), (2, 0.7), (3, 0.49)):
        before = votes(batch).tally.sum(axis=(1, 2, 3))
        call(batch, 0, agent)
        close_to(votes(batch).tally.sum(axis=(1, 2, 3)) - before == 1, kept)


def test_the_harness_charges_at_the_gateway() -> None:
    batch = team(topology="harness", gateway_price=0.25, vote_items=2)
    call(batch, [0, 1], [1, 2])
    assert np.allclose(batch.state.costs[:, 5], 0.5)


def test_topologies_play_the_same_instance() -> None:
    drawn = []
    for topology in ("centralized", "swarm", "harness", "debate", "hierarchical", "planner_executor_critic"):
        batch = team(topology=topology, episodes=50, vote_items=3)
        drawn.append(np.concatenate([votes(batch).truth, votes(batch).difficulty, batch.state.item_type], axis=1))
    assert all(np.array_equal(d, drawn[0]) for d in drawn)
