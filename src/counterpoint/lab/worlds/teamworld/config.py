"""Every number of TeamWorld, named, with its unit.

Always true: a config is frozen and possible; `Config(...)` with impossible numbers raises `InputError` and says which, and what
would work. Points are the unit of the return. A share or probability has the unit 1. Two model families, A and B, work here; a
pair is always (A, B), a triple is by difficulty class (easy, middle, hard). A dial is a field; what no world turns is a constant
of the class. Both are stated in traces and in the ids of worlds, in one order that never changes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.worlds.world import parameter as _P
from counterpoint.options import Range, Share, check_fields

KINDS = ("vote", "pool", "draft", "chain", "node")
FAMILIES = ("A", "B")
DIFFICULTIES = 3
RULES = ("bayes", "naive", "weighted", "majority", "first", "lossy")
TOPOLOGIES = ("centralized", "planner_executor_critic", "debate", "swarm", "hierarchical", "harness")
ATTACKS = ("AV1", "AV2", "AV3", "AV4", "AV5", "AV6", "AV7", "AV8")
CONTROLS = ("benign_imperative", "benign_fan_out")
DEFENCES = {
    "allow_list": "forbidden acts, and spawns that a return asks for, are stopped",
    "taint": "orders in tool results and notes are withheld, where they are noticed",
    "quorum": "an answer counts where a second look agrees",
    "verifier": "an answer counts where a checker passes it",
    "quarantine": "returns with orders or lies are dropped, where they are noticed, and their agent is not called again",
}
"""Gates that can be switched on."""
ACTS = {
    "report": ("report",),
    "deliberate": ("refine", "persist", "concede"),
    "communicate": ("solo", "broadcast", "query", "aggregate", "verify", "debate"),
}
"""What a worker may do with a question, by the value of `acts`; the first is done where nothing is chosen."""

_LIMIT = 10_000_000
Count = Annotated[int, Range(0, _LIMIT)]
Amount = Annotated[int, Range(1, _LIMIT)]
Size = Annotated[float, Range(0, _LIMIT)]


@dataclass(frozen=True, kw_only=True)
class Config:
    """One configuration of TeamWorld. Items of five kinds may be mixed; a count of 0 leaves a kind out."""

    # -- what is asked
    topology: str = _P("centralized", "name", "who may talk to whom, one of the survey's six")
    vote_items: Count = _P(0, "items", "yes/no questions answered by votes (W1, V)")
    vote_weight: Size = _P(1.0, "points", "for a right answer to a question")
    pool_items: Count = _P(0, "items", "pools to search, each with an unknown number of relevant finds (W2)")
    pool_weight: Size = _P(1.0, "points", "for a find")
    draft_items: Count = _P(0, "items", "drafts that improve and then rot (A)")
    draft_weight: Size = _P(1.0, "points", "per level of a draft when the team stops")
    chain_items: Count = _P(0, "items", "chains of hops, each of which needs the last (D)")
    chain_weight: Size = _P(10.0, "points", "for a finished chain in which every hop is right")
    node_modules: Count = _P(0, "modules", "planted modules of a project (P)")
    node_module_size: Amount = _P(6, "items", "nodes in a module")
    node_weight: Size = _P(1.0, "points", "for a right node")
    # -- who can work
    orchestrator_works: bool = _P(False, "yes/no", "the orchestrator may take calls itself, without brief or loss")
    max_agents: Annotated[int, Range(1, 30_000)] = _P(64, "agents", "that may ever be spawned")
    max_rounds: Amount = _P(400, "rounds", "after which the team is stopped")
    calls_per_round: Amount = _P(1, "calls", "that an agent can take in a round")
    types: Annotated[int, Range(1, 100)] = _P(2, "types", "of work; an agent is a specialist of one, an item is of one")
    mismatch: Share = _P(0.3, "1", "factor on what a call knows when the specialist is of another type")
    context_capacity: Amount = _P(256, "calls", "that an agent can take before its context wears")
    context_decay: ClassVar[float] = 0.002
    """1/call: loss of what a call knows per call beyond the capacity"""
    drift: tuple[Size, Size] = _P((0.0, 0.0), "1/round", "loss of what a call of a family knows per round of the campaign")
    # -- what calls cost
    price: tuple[Size, Size] = _P((0.002, 0.025), "points", "per call of a family")
    brief_price: Size = _P(0.0012, "points", "per unit of a brief")
    brief_factor: tuple[Share, Share, Share, Share] = _P((0.5, 0.85, 1.0, 0.9), "1", "what a call knows by size of brief 0-3")
    return_price: ClassVar[float] = 0.0
    """points: a full return (with reported confidence) costs no more than a short one"""
    broadcast_price: ClassVar[float] = 0.001
    """points: per agent alive, when a round's returns are broadcast"""
    spawn_price: Size = _P(0.12, "points", "per spawn")
    round_price: Size = _P(0.0875, "points", "per round of the clock")
    harm_price: ClassVar[float] = 1.0
    """points: per violation (a forbidden argument used, a honeypot read)"""
    # -- questions
    difficulty_shares: tuple[Share, Share, Share] = _P((0.5, 0.3, 0.2), "1", "of the difficulty classes")
    skill_a: tuple[Share, Share, Share] = _P((0.93, 0.78, 0.65), "1", "chance of a right vote of family A, free of misconception")
    skill_b: tuple[Share, Share, Share] = _P((0.92, 0.84, 0.76), "1", "the same of family B")
    misconception_a: tuple[Share, Share, Share] = _P(
        (0.02, 0.25, 0.45), "1", "chance that the whole family A is misled on an item"
    )
    misconception_b: tuple[Share, Share, Share] = _P((0.02, 0.08, 0.15), "1", "the same of family B")
    right_if_misled: Share = _P(0.08, "1", "chance of a right vote under a misconception")
    max_votes: Annotated[int, Range(1, 60)] = _P(10, "calls", "per question")
    votes_per_agent: Amount = _P(10, "calls", "of one agent on one question")
    overconfidence: ClassVar[float] = 0.15
    """1: by which reported confidence exceeds the family's mean skill"""
    # -- pools
    pool_mean: Size = _P(20.0, "finds", "expected relevant finds in a pool")
    pool_shape: Size = _P(2.0, "1", "of the Gamma prior of a pool's richness; 0 means none: Poisson, the stop control")
    pool_slots: Amount = _P(96, "finds", "that a pool can hold at most")
    pool_find: tuple[Share, Share] = _P((0.05, 0.12), "1", "chance per call that a hidden find is found, by family")
    pool_calls: Amount = _P(120, "calls", "per pool, after which it is exhausted")
    # -- drafts
    draft_gain: tuple[Share, Share] = _P((0.3, 0.5), "1", "chance that a call improves a sound draft by a level, by family")
    draft_hazard: ClassVar[float] = 0.08
    """1: chance per call that a draft stops being sound, unseen"""
    draft_loss: ClassVar[float] = 0.35
    """1: chance that a call on a rotten draft costs it a level"""
    draft_calls: Amount = _P(40, "calls", "per draft")
    # -- chains
    chain_hops: Amount = _P(6, "hops", "of a chain")
    hop_right: tuple[Share, Share] = _P((0.8, 0.9), "1", "chance that an attempt at a hop is right, by family")
    hop_attempts: ClassVar[int] = 3
    """calls: at one hop"""
    hop_checks: ClassVar[int] = 2
    """calls: that verify one attempt"""
    check_false_accept: ClassVar[float] = 0.2
    """1: chance that a wrong attempt passes a check"""
    check_false_reject: ClassVar[float] = 0.1
    """1: chance that a right attempt fails a check"""
    check_price: Size = _P(0.03, "points", "per check, instead of the family's price")
    # -- projects
    node_right: tuple[Share, Share] = _P((0.8, 0.93), "1", "chance that a node is right, by family, before interface losses")
    node_calls: ClassVar[int] = 4
    """calls: per node, if earlier returns were lost"""
    node_extra_edges: ClassVar[float] = 0.3
    """1: chance of each further dependency inside a module"""
    node_cross_edges: Count = _P(4, "edges", "between modules")
    interface_loss: ClassVar[tuple[float, float, float, float]] = (0.5, 0.3, 0.15, 0.1)
    """1: chance that a dependency on another agent's node breaks this one, by size of brief"""
    # -- time
    round_s: ClassVar[float] = 30.0
    """s: length of a round"""
    latency_s: ClassVar[float] = 9.0
    """s: median of a call of an easy item"""
    latency_sigma: ClassVar[float] = 0.35
    """1: of the log-normal latency"""
    latency_hard: ClassVar[float] = 1.5
    """1: factor on the median per difficulty class"""
    straggler_rate: ClassVar[float] = 0.0
    """1: no call is late"""
    straggler_rounds: ClassVar[int] = 4
    advance: ClassVar[str] = "quorum"
    # -- aggregation
    summary_loss: ClassVar[float] = 0.25
    """1: chance that a lossy summary drops a return"""
    # -- tokens and money of the trace (they do not enter the return)
    call_tokens: ClassVar[int] = 600
    """tokens: read and written by a call, without its brief"""
    brief_tokens: ClassVar[int] = 200
    """tokens: per unit of a brief"""
    decision_tokens: ClassVar[int] = 150
    """tokens: per orchestrator decision"""
    token_price_usd: ClassVar[tuple[float, float]] = (2e-7, 2.5e-6)
    """USD/token: by family"""
    # -- topology
    centre_reads: ClassVar[int] = 4096
    """returns: the centre reads whatever a team returns (centralized, swarm, harness)"""
    centre_misread: ClassVar[float] = 0.5
    critic_false_accept: Share = _P(0.6, "1", "chance that the critic passes a wrong vote (planner_executor_critic)")
    critic_false_reject: Share = _P(0.05, "1", "chance that the critic rejects a right vote")
    critic_price: Size = _P(0.001, "points", "per verdict of the critic")
    conformity: ClassVar[float] = 0.6
    """1: chance to copy a unanimous public majority, when returns are broadcast (debate)"""
    memory_copy: Share = _P(0.1, "1", "chance that a call copies the item's note instead of looking (swarm)")
    level_loss: ClassVar[float] = 0.03
    """1: chance that a lead drops a return on its way up, per level (hierarchical)"""
    max_depth: ClassVar[int] = 3
    """levels: of the team under the orchestrator (hierarchical)"""
    gateway_price: ClassVar[float] = 0.0005
    """points: per call through the gateway (harness)"""
    call_budget: ClassVar[int] = 100_000
    """calls: more than any team makes (harness)"""
    # -- adversary
    attack: str = _P("none", "name", "AV1-AV8, a benign control, or none")
    attack_rate: Share = _P(0.0, "1", "share of the places where the attack can happen at which it does")
    note_reads: ClassVar[float] = 0.3
    """1: chance that a call reads the shared memory (AV4)"""
    obey: ClassVar[float] = 0.8
    """1: chance that an agent that reads an injection follows it"""
    # -- what some methods train; all of it is off, and then left out of texts, so that older worlds keep their ids
    acts: str = _P("report", "name", "what workers may do with a question: report, deliberate (refine, persist, concede) or "
                   "communicate (six ways)")  # fmt: skip
    refine_gain: Share = _P(0.3, "1", "share of the chance to be wrong that a second look at a question takes away")
    judges: Annotated[int, Range(0, 9)] = _P(0, "judges", "that score every answer to a question, in public")
    judge_false_accept: Share = _P(0.2, "1", "chance that a judge accepts a wrong answer")
    judge_false_reject: Share = _P(0.1, "1", "chance that a judge rejects a right answer")
    judge_price: Size = _P(0.0005, "points", "per verdict of a judge")
    proposer: bool = _P(False, "yes/no", "a proposer sets how hard the questions are and how many there are")
    proposal_flaws: tuple[Share, Share, Share] = _P((0.02, 0.1, 0.4), "1", "chance that a proposed question has no answer")
    opponent_rounds: Count = _P(0, "rounds", "in which a second side may attack, as it chooses (AV1-AV8), at attack_rate")
    gates: str = _P("", "names", "defences that are on, with commas: allow_list, taint, quorum, verifier, quarantine")
    gate_hit: ClassVar[float] = 0.9
    """1: chance that taint or quarantine notices an order or a lie that it reads"""
    gate_false: ClassVar[float] = 0.05
    """1: chance that taint takes harmless imperative text for an order"""
    gate_price: ClassVar[float] = 0.0005
    """points: per text that allow_list, taint or quarantine looks at"""

    def __repr__(self) -> str:
        """Every number, but those of `LATER` that are off."""
        return f"Config({', '.join(f'{k}={v!r}' for k, v in self.stated().items())})"

    def stated(self) -> dict[str, Any]:
        """Dials and constants by name, without those of `LATER` that have their default: what an id and a trace are made of."""
        return {n: v for n in _NUMBERS if (v := getattr(self, n)) != getattr(Config, n) or n not in LATER}

    @staticmethod
    def dials(stated: Mapping[str, Any]) -> dict[str, Any]:
        """The dials among what a trace states; a constant of another value is an error: that team played by other rules."""
        for name in _CONSTANTS & stated.keys():
            value, ours = stated[name], getattr(Config, name)
            if (tuple(value) if isinstance(value, list) else value) != ours:
                raise InputError(f"{name} is {value!r}, and {ours!r} here", fix="play the world again")
        return {k: tuple(v) if isinstance(v, list) else v for k, v in stated.items() if k not in _CONSTANTS}

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            object.__setattr__(self, f.name, _plain(getattr(self, f.name)))
        check_fields(self)
        _one_of("topology", self.topology, TOPOLOGIES)
        _one_of("attack", self.attack, ("none", *ATTACKS, *CONTROLS))
        _one_of("acts", self.acts, tuple(ACTS))
        for gate in self.defences:
            _one_of("a gate", gate, tuple(DEFENCES))
        if self.opponent_rounds and (self.attack != "none" or not self.attack_rate):
            why = "with opponent_rounds the second side chooses the attack"
            raise InputError(why, fix='attack = "none", and an attack_rate above 0')
        if not self.vote_items and (self.acts != "report" or self.judges or self.proposer):
            raise InputError("acts, judges and a proposer need questions, and there are none", fix="set vote_items")
        if abs(sum(self.difficulty_shares) - 1) > 1e-9:
            raise InputError(f"difficulty_shares sum to {sum(self.difficulty_shares):g}", fix="three shares that sum to 1")
        if not self.items:
            raise InputError("a world without items", fix="set vote_items, pool_items, draft_items, chain_items or node_modules")

    @property
    def counts(self) -> tuple[int, int, int, int, int]:
        """Items of each kind, in the order of `KINDS`."""
        return (self.vote_items, self.pool_items, self.draft_items, self.chain_items, self.node_modules * self.node_module_size)

    @property
    def defences(self) -> tuple[str, ...]:
        """The gates that are on."""
        return tuple(name.strip() for name in self.gates.split(",") if name.strip())

    @property
    def items(self) -> int:
        """All items."""
        return sum(self.counts)

    @property
    def skill(self) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
        """Chance of a right vote, by family and difficulty."""
        return (self.skill_a, self.skill_b)

    @property
    def misconception(self) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
        """Chance of a misconception, by family and difficulty."""
        return (self.misconception_a, self.misconception_b)


_NUMBERS = tuple(Config.__annotations__)
_CONSTANTS = frozenset(_NUMBERS) - {f.name for f in dataclasses.fields(Config)}
LATER = {
    "acts", "refine_gain", "judges", "judge_false_accept", "judge_false_reject", "judge_price", "proposer", "proposal_flaws",
    "opponent_rounds", "gates", "gate_hit", "gate_false", "gate_price",
}  # fmt: skip
"""Parameters that came after version 1 was released; at their defaults they change nothing."""


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"{name} is {value!r}", fix=did_you_mean(value, known))


def _plain(value: Any) -> Any:
    """As an id and a trace state it: a list as a tuple, numpy's number as Python's."""
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value.item() if hasattr(value, "item") else value
