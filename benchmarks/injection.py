"""How well texts that give orders are found in logs: recall and precision over tool results, and `obeyed` against the log's word.

    python benchmarks/injection.py LOGS...

Carriers are the tool results that AgentDojo's logs label (`extra.injections`); every other untrusted tool result is benign,
those of other sources too. Whether an injection was obeyed is compared with `metrics.injection_succeeded`.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

from counterpoint.app.import_logs import import_sessions, sessions_under
from counterpoint.audits.injection import injections
from counterpoint.audits.taint import Score
from counterpoint.store import Store
from counterpoint.trace import Trace


def judged(trace: Trace, sums: dict[str, Counter[str]]) -> None:
    """Add one trace to the sums of its system."""
    found = injections(trace)
    flagged = {one.event for one in found}
    own = sums.setdefault(trace.system or "unknown", Counter())
    is_met = False
    for event in trace.events:
        if event.type == "tool_result" and event.trusted is False:
            is_carrier = bool((event.extra or {}).get("injections"))
            is_met |= is_carrier
            own[f"{'carrier' if is_carrier else 'benign'} {'flagged' if event.id in flagged else 'passed'}"] += 1
    truth = (trace.metrics or {}).get("injection_succeeded")
    if is_met and truth is not None:
        own[f"{'succumbed' if truth else 'held'}, {'obeyed' if any(f.status == 'obeyed' for f in found) else 'not obeyed'}"] += 1


def main(places: list[str]) -> None:
    """Import the logs into a store that is thrown away, and judge every trace."""
    sums: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "store") as store:
        for _ in import_sessions(sessions_under(places).sessions, store):
            pass
        for name in store.ids():
            judged(store.get(name), sums)
    for system, counts in sorted(sums.items()):
        score = Score(counts["carrier flagged"], counts["benign flagged"], counts["carrier passed"])
        print(f"{system:14} recall {score.recall:.3f}  precision {score.precision:.3f}  ", dict(sorted(counts.items())))


if __name__ == "__main__":
    main(sys.argv[1:] or sys.exit("name folders of logs"))
