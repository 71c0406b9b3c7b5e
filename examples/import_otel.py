"""Which agents are in an OpenTelemetry export, who set whom to work, and what did each of them spend?

Run it: python examples/import_otel.py [FOLDER]        (OTLP, Jaeger, Tempo, ClickHouse rows, Claude Code's and Codex's logs)
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from counterpoint import problems, read_logs

SAMPLE = Path(__file__).parent / "logs" / "otel"

errors = []
for trace in read_logs(sys.argv[1] if len(sys.argv) > 1 else SAMPLE, format="otel"):
    spent: Counter[str] = Counter()
    roles = {}
    for event in trace.events:
        spent[event.agent] += (event.tokens_in or 0) + (event.tokens_out or 0)
        if event.type == "spawn" and event.to:
            roles[event.to] = event.role
        elif event.type != "spawn" and event.role:
            roles.setdefault(event.agent, event.role)
    print(f"{trace.trace_id}: {len(trace.events)} events, links {trace.meta['import'].get('links', {})}")
    for agent in trace.agents:
        print(f"  {roles.get(agent) or agent}: {spent[agent]:,} tokens")
    errors += [str(p) for p in problems(trace) if p.severity == "error"]
print("problems:", errors)
