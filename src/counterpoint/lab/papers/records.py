"""The rows of the corpus and the words they may use.

Always true: a record is frozen and holds only what its line in the file says; every tag has one closed list of words,
here and nowhere else; `NA` is a word of its own (the axis does not apply) and an absent arXiv id is None.
"""

from __future__ import annotations

import msgspec

# The survey's reward families and the tag words that belong to each: R6 is tagged by who decides.
FAMILIES: dict[str, tuple[str, ...]] = {
    "R1": ("shared",),
    "R2": ("individual",),
    "R3": ("role",),
    "R4": ("process",),
    "R5": ("tool",),
    "R6": ("debate", "verifier"),
    "R7": ("orchestration",),
    "R8": ("hybrid",),
}

# field -> words. Units and topologies are complete, also where the pool has no such row yet.
PAPER_VOCABULARY: dict[str, tuple[str, ...]] = {
    "category": ("rl_method", "benchmark", "classical_marl", "industry", "survey", "framework"),
    "is_rl": ("yes", "partial", "no"),
    "reward_type": (*(word for words in FAMILIES.values() for word in words), "NA"),
    "credit_granularity": ("team", "orchestrator", "role", "agent", "turn", "message", "tool", "token", "NA"),
    "orchestration_form": (
        "centralized",
        "planner_executor_critic",
        "debate",
        "swarm",
        "hierarchical",
        "harness",
        "mixed",
        "unknown",
        "NA",
    ),
    "scenario": ("general", "coding", "math", "research", "tool_use", "web"),
    "is_core": ("core", "supporting", "case"),
    "verified": ("yes", "partial", "no"),
}

EXCLUDED_VOCABULARY: dict[str, tuple[str, ...]] = {
    "source": ("arXiv", "OpenReview", "ACL Anthology", "company docs", "company blog", "GitHub/project page"),
    "query_family": (
        "multi-agent LLM",
        "agent swarm",
        "orchestration",
        "credit assignment",
        "reinforcement learning",
        "post-training",
        "prompt injection",
        "tool use",
        "benchmark",
        "industrial agent system",
        "classical MARL",
        "safety",
    ),
    "stage": ("abstract_screen", "full_text_screen", "artifact_screen", "duplicate_screen"),
}


def family(reward_type: str) -> str:
    """The family R1-R8 of a reward tag, or `-` for none."""
    return next((name for name, words in FAMILIES.items() if reward_type in words), "-")


class Paper(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A retained entry of the pool."""

    key: str
    title: str
    first_author: str
    affiliation: str = "unknown"
    year: int
    arxiv_id: str | None = None
    venue: str = "unknown"
    url: str
    category: str
    is_rl: str
    reward_type: str
    credit_granularity: str
    orchestration_form: str
    scenario: str
    is_core: str
    one_liner: str
    verified: str = "no"
    notes: str = ""


class Excluded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record that was screened and left out, with the reason."""

    record_id: str
    source: str
    query_family: str
    screening_label: str
    identifier: str
    url: str
    date_screened: str
    stage: str
    exclusion_reason: str


class Erratum(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A statement of the survey that a first-hand reading did not bear out.

    `kind`: `stated`, the reading was set against the survey's sentence; `implied`, it contradicts a tag; `data`, a slip
    in a field. `label` grades the evidence; `sheet` names the sections of the project's formula sheet that hold it.
    """

    id: str
    kind: str
    keys: tuple[str, ...]
    field: str
    survey: str
    found: str
    evidence: str
    label: str
    sheet: str


class Mark(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A judgement about one paper that its 18 fields do not hold; `stated` is the survey's own, where it differs."""

    key: str
    mark: str
    value: str
    reason: str
    label: str
    stated: str | None = None
    erratum: str | None = None


class ClaimSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a claim is counted: which rows it is about (`select`) and which of them fulfil it.

    A selector maps a field to its allowed words; `!NA` allows all but that word. Without one, the rows that carry
    `mark` are meant. `complete` promises a mark on every selected row, so that an unread row shows. `stated` holds the
    survey's numbers, to be compared with the counts and never printed in their place. `errata` are those that touch the
    claim other than through a mark. `moved`: `since` reports work that makes the claim untrue of the field today.
    """

    id: str
    statement: str
    boundary: str
    select: dict[str, tuple[str, ...]] | None = None
    mark: str | None = None
    strict: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    strict_select: dict[str, tuple[str, ...]] | None = None
    complete: bool = False
    stated: dict[str, int] = {}
    errata: tuple[str, ...] = ()
    since: str | None = None
    since_refs: tuple[str, ...] = ()
    moved: bool = False
