"""Answers for a coding agent on a store of 10,000 sessions: a real client over stdio asks every tool of `counterpoint mcp`."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio
from _timing import arguments, report, row
from mcp import ClientSession, StdioServerParameters, stdio_client

from counterpoint import Event, Trace
from counterpoint.app.mcp.answers import most_tokens
from counterpoint.store import Store

ASKED: list[tuple[str, dict[str, Any]]] = [
    ("search", {}),
    ("search", {"query": "errors>0 words"}),
    ("search", {"trace": "last:1", "query": "kind:tool_call"}),
    ("show", {}),
    ("show", {"event": "e2"}),
    ("top", {}),
    ("top", {"which": "project:shop", "by": "day"}),
    ("top", {"which": "project:shop", "by": "tool"}),
    ("failures", {}),
    ("failures", {"which": "errors>0"}),
    ("blame", {}),
    ("credit", {}),
    ("diff", {"a": "last:1", "b": "last:2"}),
    ("sql", {}),
    ("sql", {"query": "select tool, count(*) n from events where ok = false group by 1 order by 2 desc"}),
    ("sql", {"query": "select title, cost_usd from traces order by cost_usd desc limit 5"}),
    ("issues", {}),
]
_START = 1.7e9


def session(n: int) -> Trace:
    """One of a person's sessions: a question, twelve calls of two agents, some of which fail."""
    events = [Event(id="e0", t=0.0, type="human_intervention", agent="user", content_ref="q")]
    contents = {"q": f"Fix the failing words test number {n}, please"}
    for k in range(1, 25, 2):
        agent, tool = ("main", "Bash") if k % 4 == 1 else ("reader", "Read")
        failed = (n + k) % 7 == 0
        contents[f"c{k}"] = f'{{"command": "pytest tests/test_{k}.py -k {n}"}}'
        contents[f"r{k}"] = ("FAILED tests: fixture not found\n" if failed else "passed\n") * 20
        events += [
            Event(id=f"e{k}", t=float(k), type="tool_call", agent=agent, tool=tool, content_ref=f"c{k}",
                  model="claude-sonnet-4-5", tokens_in=900 + n % 90, tokens_out=50, cost_usd=0.01),
            Event(id=f"e{k + 1}", t=k + 0.5, type="tool_result", agent=agent, tool=tool, content_ref=f"r{k}", ok=not failed,
                  error="fixture not found" if failed else None),
        ]  # fmt: skip
    meta = {"project": ("shop", "docs", "api")[n % 3], "began": _START + 600.0 * n}
    return Trace(trace_id=f"{n:08x}-0000-4000-8000-000000000000", task_id=f"t{n}", events=events, contents=contents, meta=meta)


def fill(folder: Path, count: int) -> None:
    """Sessions in commits of 500."""
    with Store(folder) as store:
        for begin in range(0, count, 500):
            store.add_many([session(n) for n in range(begin, min(begin + 500, count))])


async def asked(folder: Path, repeats: int) -> dict[str, tuple[float, list[float], int]]:
    """For each call its first seconds, those of later ones, and its tokens by the upper bound that the answers keep to."""
    out: dict[str, tuple[float, list[float], int]] = {}
    words = ["-m", "counterpoint", "mcp", "--store", str(folder)]
    server = StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))
    async with stdio_client(server) as (read, write), ClientSession(read, write) as client:
        await client.initialize()
        for name, given in ASKED:
            taken, text = [], ""
            for _ in range(1 + repeats):
                begin = time.perf_counter()
                answer = await client.call_tool(name, given)
                taken.append(time.perf_counter() - begin)
                text = answer.content[0].text
                assert not answer.is_error, text
            out[f"{name} {' '.join(map(str, given.values()))}".strip()] = taken[0], taken[1:], most_tokens(text)
    return out


def rows(count: int, repeats: int) -> list[dict[str, Any]]:
    """A row per call."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "traces"
        fill(folder, count)
        found = anyio.run(asked, folder, repeats)
    out = []
    for name, (first, later, tokens) in found.items():
        about = f"{name}, {count:,} sessions"
        out.append(row(f"{about}: first | later", first * 1e3, statistics.median(later) * 1e3, "ms", limit=1000))
        out.append(row(f"{about}: tokens at most", tokens, None, "tokens", limit=2000))
    return out


def main() -> None:
    """Run and print."""
    asked_for = arguments(__doc__)
    count, repeats = (1_000, 2) if asked_for.quick else (10_000, 5)
    report("Answers for a coding agent", rows(count, repeats), as_json=asked_for.json)


if __name__ == "__main__":
    main()
