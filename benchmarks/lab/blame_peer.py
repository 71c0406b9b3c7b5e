"""`blame` beside AgentDebugX (arXiv 2607.18754) on the labelled runs of Who&When, both without a language model.

    python benchmarks/lab/blame_peer.py [--json] [--seed N]

Both read the same runs: every entry of the history as an event of its speaker with its number; what the terminal answers is a
tool result, its text the error where it says that it failed. AgentDebugX is its deterministic pipeline, all rule packs and its
heuristic attributor; where it blames a tool's answer, the call before it counts as blamed; runs of which it says nothing are
counted apart and as misses. `blame` is held out, five folds. Needs `agentdebugx` beside the package and the logs
(`WHO_AND_WHEN=FOLDER`), and says so where one is missing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import chdir
from tempfile import TemporaryDirectory

import numpy as np

from counterpoint.lab.bench.blame_cases import LabelledRun, hits_of, near_hits, ranks_of, who_and_when
from counterpoint.lab.bench.claims.blame_who_when import maker, nested

Row = dict[str, float]


def peer_steps(known: LabelledRun) -> list[int]:
    """The entries that AgentDebugX blames, the first first."""
    from agentdebug import AgentDebug, EventType
    from agentdebug.diagnose.detect import HeuristicAnalyzer
    from agentdebug.diagnose.pipeline import DiagnosePipeline

    steps, debugger = known.steps, AgentDebug()
    events = known.trace.events
    goal = " ".join(steps.texts[i] for i in steps.order if events[i].type == "human_intervention")
    with debugger.trace(goal=goal, framework="messages") as session:
        for i in steps.order:
            event, text = events[i], steps.texts[i]
            if not event.id[1:].isdigit() or event.type == "human_intervention":
                continue
            is_result = event.type == "tool_result"
            kind = EventType.TOOL_RESULT if is_result else EventType.AGENT_STEP
            error = text if is_result and steps.failed(i) else None
            session.record(kind, agent_name=event.agent, step_index=steps.number(i), output=text, error=error)
    pipeline = DiagnosePipeline.local_default()
    pipeline.detector = HeuristicAnalyzer(rule_packs=["all"])
    found = pipeline.run(session.trajectory)
    hypotheses = found.attribution.hypotheses if found.attribution is not None else []
    calls = {steps.number(r): steps.numbers[k] for k, r in enumerate(steps.results) if r >= 0}
    return list(dict.fromkeys(calls.get(h.step_index, int(h.step_index)) for h in hypotheses if h.step_index is not None))


def peer_row(known: Sequence[LabelledRun]) -> Row:
    """What AgentDebugX gets right."""
    sums = {"step": 0.0, "top 3": 0.0, "within one": 0.0, "agent": 0.0, "says nothing": 0.0}
    for k in known:
        said = peer_steps(k)
        truth = k.steps.numbers[k.truth] if k.truth >= 0 else -9
        agents = [k.trace.events[i].agent for i in k.steps.order if said and k.steps.number(i) == said[0]]
        sums["step"] += truth in said[:1]
        sums["top 3"] += truth in said[:3]
        sums["within one"] += bool(said) and abs(said[0] - truth) <= 1
        sums["agent"] += k.agent in agents
        sums["says nothing"] += not said
    return {name: value / len(known) for name, value in sums.items()}


def our_row(known: Sequence[LabelledRun], part: str, seed: int) -> Row:
    """What `blame` gets right, held out."""
    held = nested(known, maker(part, seed, is_gold=False), part, seed, is_gold=False)
    first = float(np.mean([r <= 3 for r in ranks_of(known, held.scores)]))
    return {
        "step": float(np.mean(hits_of(known, held.scores)[0])),
        "top 3": first,
        "within one": float(np.mean(near_hits(known, held.scores))),
        "agent": float(np.mean(held.agents)),
        "says nothing": 0.0,
    }


def main(arguments: Sequence[str]) -> int:
    """Print the table; 0 also where something is missing, with a note."""
    try:
        import agentdebug  # noqa: F401
    except ImportError:
        print("agentdebugx is not installed: pip install agentdebugx==0.5.2")
        return 0
    every = who_and_when()
    if not every:
        print("the labelled runs of Who&When are not here: WHO_AND_WHEN=FOLDER names their folder")
        return 0
    seed = int(arguments[arguments.index("--seed") + 1]) if "--seed" in arguments else 300
    rows = []
    for part in sorted({k.world for k in every}):
        known = [k for k in every if k.world == part]
        with TemporaryDirectory() as away, chdir(away):  # it writes what it reads into the folder that it runs in
            rows.append({"runs": f"{len(known)} {part}", "of": "agentdebugx, heuristic", **peer_row(known)})
        rows.append({"runs": f"{len(known)} {part}", "of": "blame, held out", **our_row(known, part, seed)})
    for row in rows:
        words = "  ".join(f"{name} {value:.1%}" if isinstance(value, float) else str(value) for name, value in row.items())
        print(json.dumps(row) if "--json" in arguments else words)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
