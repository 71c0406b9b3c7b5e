"""The counts and cross-tables of the survey's statistics page, from the rows.

Always true: no number is written here; counts come largest first and ties by name; the cells of a cross-table sum to
the number of rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from counterpoint.corpus.records import Excluded, Paper


def counts(papers: Iterable[Paper], field: str) -> dict[str, int]:
    """How many rows carry each word of a field."""
    tally = Counter(getattr(p, field) for p in papers)
    return dict(sorted(tally.items(), key=lambda item: (-item[1], item[0])))


def cross(papers: Sequence[Paper], rows: str, columns: str) -> dict[str, dict[str, int]]:
    """How many rows carry each pair of words; pairs that do not occur are 0."""
    tally = Counter((getattr(p, rows), getattr(p, columns)) for p in papers)
    names = sorted({pair[0] for pair in tally})
    heads = sorted({pair[1] for pair in tally})
    return {name: {head: tally[name, head] for head in heads} for name in names}


def statistics(papers: Sequence[Paper], excluded: Sequence[Excluded]) -> dict[str, Any]:
    """All sections of the survey's statistics."""
    return {
        "headline": {
            "retained": len(papers),
            "excluded": len(excluded),
            "audited": len(papers) + len(excluded),
        },
        "category": counts(papers, "category"),
        "reward_type": counts(papers, "reward_type"),
        "credit_granularity": counts(papers, "credit_granularity"),
        "reward_type_x_credit_granularity": cross(papers, "reward_type", "credit_granularity"),
        "orchestration_form_x_credit_granularity": cross(papers, "orchestration_form", "credit_granularity"),
    }
