"""The credit layer on verifiers' episodes in memory: what each agent earned, written on the nodes of its trace, for prime-rl.

    credit_episodes(episodes, CreditLayer("agent_wise"))          # node.advantages of every sampled token, as prime-rl reads them

An Episode is a run of the team, its `group` (else its task) what it is compared in; each Trace is an agent (`trace.agent.name`),
frozen where it is not `trainable`. Every node that was sampled is a call, once: what several branches share is not repeated. A
branch with a root of its own that a node called (`semantic_parents`) is a sub-agent, `name/1`, `name/2`, ...
`trace.info["counterpoint"]` may say more, as `Sample` has it: role, policy, parent (a trace's id), after, reads (their ids).

Under prime-rl, whose `Algorithm.score_group` is given a finished group of episodes, the whole of it is (a module of yours)

    from prime_rl.orchestrator.algo.base import Algorithm
    Team = credit_algorithm(Algorithm, CreditLayer("agent_wise"))

Always true: advantages are as many as the node's sampled tokens, with every digit; what does not teach (frozen, aborted, kept
out, nobody to compare with) has None, as verifiers has it before anybody scored; tokens, masks and log-probabilities stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.trainers.credit_batch import CreditBatch
from counterpoint.lab.trainers.layer import CreditLayer
from counterpoint.lab.trainers.rollout import Rollout, Sample, Status

Paid = Literal["sample", "team"]
_SAID = ("role", "policy", "parent", "after", "reads")


def credit_episodes(
    episodes: Sequence[Any], layer: CreditLayer, *, paid: Paid = "sample", version: int | None = None
) -> CreditBatch:
    """The advantages of these episodes, written on their nodes.

    `paid`: whether a trace's reward is its agent's own, or, the same in each trace that has one, the team's.
    """
    if paid not in ("sample", "team"):
        raise InputError(f"paid={paid!r}", fix=did_you_mean(paid, ("sample", "team")))
    made = [_rollout(episode, paid) for episode in episodes]
    batch = layer([rollout for rollout, _ in made], version=version)
    chains = [chain for _, own in made for chain in own]
    found = []
    for (_, sample), chain, array, mask in zip(batch.samples, chains, batch.arrays(), batch.masks(), strict=True):
        found.append(np.concatenate([*chain.write(array, mask), np.zeros(0)]) if sample.size else np.zeros(0))
    batch.check(found)
    return batch


def credit_algorithm(base: Any, layer: CreditLayer, *, paid: Paid = "sample") -> Any:
    """prime-rl's `Algorithm` with our credit; contract: PrimeIntellect-ai/prime-rl at 8142e69a, not run against the real one."""

    class CreditAlgorithm(base):
        """Scores a group with a credit layer."""

        async def score_group(self, episodes: Sequence[Any]) -> None:
            """Advantages for a finished group."""
            credit_episodes(episodes, layer, paid=paid)

    return CreditAlgorithm


class _Chain:
    """Nodes of a trace that are one sequence and in no other."""

    def __init__(self, nodes: Sequence[Any]) -> None:
        self.nodes = list(nodes)
        ends = np.cumsum([len(node.token_ids) for node in self.nodes]).tolist()
        self.places = list(zip([0, *ends[:-1]], ends, strict=True))
        self.size = ends[-1] if ends else 0

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: slice) -> list[int]:
        first, last, _ = part.indices(self.size)
        return [i for node, (a, b) in zip(self.nodes, self.places, strict=True) if a < last and b > first
                for i in node.token_ids[max(first - a, 0) : last - a]]  # fmt: skip

    def mask(self) -> np.ndarray:
        """What was sampled."""
        return np.fromiter((m for node in self.nodes for m in node.mask), np.bool_, self.size)

    def spans(self) -> list[tuple[int, int]]:
        """Where each sampled node's answer stands."""
        out = []
        for node, (a, _) in zip(self.nodes, self.places, strict=True):
            if node.sampled and any(node.mask):
                own = np.flatnonzero(node.mask)
                out.append((a + int(own[0]), a + int(own[-1]) + 1))
        return out

    def write(self, array: np.ndarray, mask: np.ndarray) -> Iterator[np.ndarray]:
        """Advantages on the nodes; gives what they hold then, place by place."""
        for node, (a, b) in zip(self.nodes, self.places, strict=True):
            wrote = np.asarray(node.mask, np.bool_)
            node.advantages = array[a:b][wrote].tolist() if mask[a:b].any() else None
            out = np.zeros(b - a)
            out[wrote] = node.advantages or 0.0
            yield out


def _rollout(episode: Any, paid: Paid) -> tuple[Rollout, list[_Chain]]:
    """An episode as a run of a team, and the nodes of each of its samples."""
    samples: list[Sample] = []
    chains: list[_Chain] = []
    first = {trace.id: f"{trace.id}#0" for trace in episode.traces}
    version = _version(episode)
    for trace in episode.traces:
        for sample, chain in _samples(trace, first, version):
            samples.append(sample)
            chains.append(chain)
    rewards = {trace.id: trace.reward for trace in episode.traces if any(r is not None for r in trace.rewards.values())}
    team = None
    if paid == "team" and rewards:
        if max(rewards.values()) - min(rewards.values()) > 1e-6:
            what = f"its traces are paid from {min(rewards.values()):g} to {max(rewards.values()):g}"
            raise InputError(what, where=episode.id, fix="one reward for the team, or paid='sample'")
        team = next(iter(rewards.values()))
    elif paid == "sample":
        samples = _paid(samples, {first[name]: reward for name, reward in rewards.items()})
        team = sum(rewards.values()) if rewards else None
    status: Status = "complete" if rewards else "aborted"
    task = episode.group.id if episode.group is not None else episode.task.key or episode.task.hash
    if not task:
        raise InputError("neither a group nor a key of its task", where=episode.id, fix="episode.group = GroupInfo(id=...)")
    return Rollout(episode.id, task, samples, reward=team, status=status, about=episode), chains


def _paid(samples: Sequence[Sample], rewards: Mapping[str, float]) -> list[Sample]:
    """The samples, the first of each trace with its agent's reward."""
    return [replace(s, reward=rewards[s.name]) if s.name is not None and s.name in rewards else s for s in samples]


def _version(episode: Any) -> int | None:
    """The oldest weights that spoke, where the episode says it."""
    policy = getattr(getattr(episode.run, "work", None), "policy", None)
    return None if policy is None else int(policy.start)


def _samples(trace: Any, first: Mapping[str, str], version: int | None) -> Iterator[tuple[Sample, _Chain]]:
    """A trace's branches without what an earlier one has: the agent, its windows of context, and its sub-agents."""
    number = {id(node): i for i, node in enumerate(trace.nodes)}
    at: dict[int, tuple[str, int]] = {}  # a node's sample, and how many calls of that come before its end
    agents: dict[str, str] = {}
    info = {key: value for key, value in trace.info.get("counterpoint", {}).items() if key in _SAID}
    branches = trace.branches
    for place, branch in enumerate(sorted(branches, key=lambda b: not b.trainable)):
        nodes = [node for node in branch.nodes if number[id(node)] not in at]
        name, chain = f"{trace.id}#{place}", _Chain(nodes)
        agent, parent, after = _whose(trace, branch.nodes, nodes, at, agents, number)
        calls = 0
        for node in nodes:
            calls += bool(node.sampled and any(node.mask))
            at[number[id(node)]] = (name, calls)
        agents[name] = agent
        own: dict[str, Any] = {"parent": parent, "after": after}
        if parent is None and place == 0:
            own |= {key: info[key] for key in ("parent", "after") if key in info}
            own["parent"] = first.get(own["parent"], own["parent"])
        if "reads" in info and place == 0:
            own["reads"] = [first.get(other, other) for other in info["reads"]]
        status: Status = "aborted" if trace.has_error else "dropped" if not branch.trainable else "complete"
        if status == "complete" and trace.is_truncated:
            status = "truncated"
        policy = info.get("policy") or trace.agent.config.model or "policy"
        yield Sample(
            ids=chain, mask=chain.mask(), spans=chain.spans(), agent=agent, role=info.get("role"), policy=policy, name=name,
            version=version, frozen=not trace.agent.trainable, status=status, **own,
        ), chain  # fmt: skip


def _whose(
    trace: Any, path: Sequence[Any], nodes: Sequence[Any], at: Mapping[int, tuple[str, int]], agents: Mapping[str, str],
    number: Mapping[int, int],
) -> tuple[str, str | None, int]:  # fmt: skip
    """Whose nodes these are, the sample that they go on from, and after which of its calls."""
    if len(nodes) < len(path):  # a branch of what is known: the same agent, from there on
        name, calls = at[number[id(path[len(path) - len(nodes) - 1])]]
        return agents[name], name, max(0, calls - 1)
    for node in nodes:
        for link in node.semantic_parents:
            if link.node in at and link.type in ("subagent_call", "compaction", "continuation"):
                name, calls = at[link.node]
                if link.type != "subagent_call":
                    return agents[name], name, max(0, calls - 1)
                subs = sum(agent.startswith(f"{agents[name]}/") for agent in set(agents.values()))
                return f"{agents[name]}/{subs + 1}", name, max(0, calls - 1)
    return trace.agent.name, None, 0
