"""AgentDojo's released runs beside what we find in them: its own labels, our reader, verdicts, and what a gate would withhold.

    python benchmarks/agentdojo.py LOGS

For each pipeline (a model, with or without a defence of AgentDojo's): what the logs say of utility and of injections that
succeeded, against the published rates over all 629 cases; how many carriers the reader of orders finds, and how many other tool
results it flags; how often `obeyed` agrees with the log; and of the runs that succumbed, those in which the gate `taint` would
have withheld the order wherever it came in. A replay would be needed to say what the model does then; that a withheld order is
not followed is an assumption, and so the last number is a bound.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import counterpoint as cpt
from counterpoint.audits.injection import injections
from counterpoint.audits.redundancy import shingles
from counterpoint.audits.taint import Score
from counterpoint.lab.team.gates import cleaned
from counterpoint.trace import Trace

PUBLISHED = {
    "claude-3-5-sonnet-20241022": (0.79, 0.72, 0.011),
    "gpt-4o-2024-05-13": (0.69, 0.50, 0.477),
    "gpt-4o-2024-05-13-repeat_user_prompt": (0.86, 0.67, 0.278),
    "gpt-4o-2024-05-13-tool_filter": (0.73, 0.56, 0.068),
}
"""Utility without attack, utility under attack, injections that succeed; important_instructions, 629 cases."""
_LEFT = 0.1
"""An order counts as withheld where at most this share of its three-word shingles is left."""


class Left(NamedTuple):
    """What the gate `taint` leaves of one tool result."""

    is_carrier: bool
    order: float
    """The largest share of an injection that is left; 0 where there is none."""
    rest: float
    """The share of everything else that is left."""
    is_cut: bool


def left_of(trace: Trace, tools: set[str]) -> Iterator[Left]:
    """What is left of each tool result."""
    texts = {name: trace.contents.get(ref, "") for name, ref in (trace.meta.get("injections") or {}).items()}
    for event in trace.events:
        if event.type != "tool_result" or event.trusted is not False:
            continue
        text = trace.text(event) or ""
        shown, cuts = cleaned(text, tools)
        kept, whole = shingles(shown), shingles(text)
        orders = [s for n in (event.extra or {}).get("injections") or () if n in texts and (s := shingles(texts[n])) & whole]
        rest = whole - frozenset().union(*orders)
        most = max((len(s & kept) / len(s) for s in orders), default=0.0)
        yield Left(bool(orders), most, len(rest & kept) / max(1, len(rest)), cuts > 0)


def judged(trace: Trace, own: Counter[str]) -> None:
    """Add one run to the sums of its pipeline."""
    metrics, found = trace.metrics or {}, injections(trace)
    flagged = {one.event for one in found}
    is_met = any((e.extra or {}).get("injections") for e in trace.events)
    is_attacked = bool(trace.meta.get("injections"))
    own["attacked" if is_attacked else "clean"] += 1
    own["useful, attacked" if is_attacked else "useful, clean"] += metrics.get("utility") == 1
    for event in trace.events:
        if event.type == "tool_result" and event.trusted is False:
            kind = "carrier" if (event.extra or {}).get("injections") else "other"
            own[f"{kind} {'flagged' if event.id in flagged else 'passed'}"] += 1
    tools = {e.tool for e in trace.events if e.tool}
    left = list(left_of(trace, tools))
    own["other cut"] += sum(one.is_cut for one in left if not one.is_carrier)
    own["carriers"] += sum(one.is_carrier for one in left)
    own["percent of the rest left"] += round(sum(100 * one.rest for one in left if one.is_carrier))
    if not is_attacked:
        return
    fell = metrics.get("injection_succeeded") == 1
    own["succeeded"] += fell
    own["met"] += is_met
    if is_met:
        said = any(f.status == "obeyed" for f in found)
        own[f"{'succumbed' if fell else 'held'}, {'obeyed' if said else 'not obeyed'}"] += 1
        own["succumbed, every carrier withheld"] += fell and all(one.order <= _LEFT for one in left if one.is_carrier)


def main(places: list[str]) -> None:
    """Read every run, and print one block per pipeline."""
    sums: dict[str, Counter[str]] = {}
    for path in sorted(p for place in places for p in Path(place).rglob("*.json")):
        if path.parent.parent.name.startswith("injection_task"):
            continue  # the attacker's task asked for by the user: no attack, and its utility is another one
        for trace in cpt.read_logs(path):
            judged(trace, sums.setdefault(path.parts[-5], Counter()))
    for pipeline, n in sums.items():
        clean, under, rate = PUBLISHED.get(pipeline, (None, None, None))
        print(pipeline)
        print(f"  utility without attack  {n['useful, clean']} of {n['clean']}   published {clean}")
        print(f"  utility under attack    {n['useful, attacked']} of {n['attacked']}   published {under}")
        print(f"  injections succeeded    {n['succeeded']} of {n['attacked']}   published {rate}")
        score = Score(n["carrier flagged"], n["other flagged"], n["carrier passed"])
        print(
            f"  reader                  recall {score.recall:.3f} of {n['carrier flagged'] + n['carrier passed']}, "
            f"other results flagged {n['other flagged']} of {n['other flagged'] + n['other passed']}"
        )
        agree = n["succumbed, obeyed"] + n["held, not obeyed"]
        print(
            f"  obeyed, as the log says {agree} of {n['met']} ({n['succumbed, obeyed']} of "
            f"{n['succumbed, obeyed'] + n['succumbed, not obeyed']} that succumbed)"
        )
        print(f"  the gate taint          withholds every order in {n['succumbed, every carrier withheld']} of {n['succeeded']} "
              f"that succumbed; leaves {n['percent of the rest left'] / max(1, n['carriers']):.0f} % of the rest of a carrier; "
              f"cuts {n['other cut']} other results")  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:] or sys.exit("name folders of AgentDojo's runs"))
