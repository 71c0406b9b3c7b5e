"""`counterpoint demo --lm`: a team of a small language model, recorded on this machine."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from counterpoint.app.samples import browser_words, print_next, samples, write_samples
from counterpoint.app.terminal.output import emit, note
from counterpoint.display import counted, number
from counterpoint.store import Store

_SPEAKER = "smollm2-135m-ledger"
"""An adapter of the package: what was trained, how, and what it solves is in its model.json."""
_HUNT = {"documents": 8, "rows": 2, "parts": 2, "firms": 6, "alias_rate": 0.0, "contradictions": 0.0}


def language_demo(folder: Path, seed: int, *, as_json: bool) -> None:
    """A team of a small language model, recorded: an orchestrator and two workers find rows among papers."""
    import asyncio

    from counterpoint.lab.lm.weights import find, require_extra
    from counterpoint.lab.team.session import Spec, record_team
    from counterpoint.lab.team.state import Limits

    require_extra()
    find(_SPEAKER)  # weights that are not installed are said before anything begins
    note("a model of 135 million weights plays a team of three on this machine: a minute or two", quiet=as_json)
    limits = Limits.of({"width": 2, "turns": 16, "steps": 14, "max_tokens": 96, "context": 4096, "temperature": 0.0})
    spec = Spec(task="ledger_hunt", config=_HUNT, seed=seed, model=f"local:{_SPEAKER}", options={}, limits=limits)
    write_samples(folder, samples(seed))
    begin = time.perf_counter()
    with Store(folder) as store:
        name = f"lm-hunt-{seed}" if f"lm-hunt-{seed}" not in store.ids() else f"lm-hunt-{seed}-{int(time.time())}"
        trace = asyncio.run(record_team(spec, store, trace_id=name))
    took = time.perf_counter() - begin
    solved = bool((trace.metrics or {}).get("task_success"))
    calls = sum("call" in (e.extra or {}) and e.type != "tool_result" for e in trace.events)
    row = {"trace": name, "store": os.fspath(folder), "solved": solved, "reward": trace.rewards["team"], "calls": calls}
    if as_json:
        emit(row | {"agents": len(trace.members), "tokens": trace.costs.get("tokens"), "seconds": round(took, 1)})
        return
    tokens = number(trace.costs.get("tokens"))
    ended = "solved" if solved else "not solved"
    click.echo(f"{ended}: reward {number(trace.rewards['team'], 3)}, {counted(len(trace.members), 'agent')}, ", nl=False)
    click.echo(f"{counted(calls, 'call')}, {tokens} tokens, {took:.0f} s\n")
    place = row["store"]
    steps = [(f"show {name} --store {place}", "what each said"), (f"credit {name} --store {place}", "who earned it")]
    print_next([*steps, (f"view {name} --store {place}", browser_words())], head="Next  ")
