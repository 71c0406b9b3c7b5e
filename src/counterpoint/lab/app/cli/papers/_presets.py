"""From a paper to the presets that implement it, and to what they got in the rows that come with the package.

Always true: a preset belongs to a paper whose key is its name, or whose arXiv id its source names.
"""

from __future__ import annotations

import re
from typing import Any

import counterpoint.registry as registry
from counterpoint.display import counted
from counterpoint.errors import CounterpointError
from counterpoint.lab.papers.records import Paper


def presets_of(paper: Paper) -> list[dict[str, Any]]:
    """The presets of a paper: name, source, and its results world by world, each with the command that prints it."""
    names = [name for name in registry.ids("preset") if _is_of(name, paper)]
    found = _results(names) if names else {}
    return [{"preset": n, "source": _source(n), "results": found.get(n, [])} for n in names]


def _source(name: str) -> str:
    try:
        return str(registry.get("preset", name).source)
    except CounterpointError:  # one that cannot be loaded is no reason to hide the paper
        return ""


def _is_of(name: str, paper: Paper) -> bool:
    if name == paper.key.replace("-", "_"):
        return True
    return paper.arxiv_id is not None and re.search(rf"\b{re.escape(paper.arxiv_id)}\b", _source(name)) is not None


def _results(names: list[str]) -> dict[str, list[dict[str, Any]]]:
    from counterpoint.lab.app.race_page import interval, released_name
    from counterpoint.lab.bench.race.result import result_of
    from counterpoint.lab.bench.race.rows import RELEASED

    out: dict[str, list[dict[str, Any]]] = {}
    for plan, world in ((plan, w) for plan, path in RELEASED.items() for w in result_of(path).worlds):
        command = f"counterpoint compare standings {released_name(plan)}"
        ranked = [one for one in world.standings if one.is_ranked]
        for one in ranked:
            if one.method in names:
                rank = f"rank {one.rank:g} [{one.rank_low}, {one.rank_high}] of {len(ranked)}"
                seeds = f"{counted(len(one.seeds), 'seed')} of {world.budget:,} calls"
                text = f"{world.world}: {interval(one.share)} % of the bound, {rank}, {seeds}"
                what = {"world": world.world, "budget": world.budget, "share": one.share[0], "rank": one.rank}
                more = {"seeds": len(one.seeds), "text": text, "command": f"{command} {one.method}"}
                out.setdefault(one.method, []).append(what | more)
    return out
