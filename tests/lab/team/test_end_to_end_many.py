"""A thousand sub-agents at once, as a user would run them: a task of one's own, a swarm, a trace that holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from counterpoint import Store, problems

# VmHWM and not ru_maxrss: the latter survives exec, and would tell of the process that ran the test.
_MEASURED = """
import sys
from counterpoint.app.cli import main
try:
    main(sys.argv[1:])
finally:
    peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(int(peak.split()[1]) // 1024, file=sys.stderr)
"""


def test_a_thousand_sub_agents_at_once(tmp_path: Path) -> None:
    words = [
        "play",
        "--task",
        "many_help:many",
        "--set",
        "parts=1000",
        "--topology",
        "swarm",
        "--cap",
        "width=1000",
        "--model",
        "fake:1",
    ]
    words += ["--store", str(tmp_path), "--id", "a", "-q", "--json"]
    places = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(places)}
    done = subprocess.run([sys.executable, "-c", _MEASURED, *words], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["ended"], told["agents"]) == ("stopped", 1001), "the lead and a thousand workers"
    assert told["rewards"]["team"] > 0.9
    assert int(done.stderr.split()[-1]) < 800, "MB of memory"
    with Store(tmp_path, read_only=True) as store:
        trace = store.get("a")
    assert [str(p) for p in problems(trace) if p.severity == "error"] == []
    assert not any(e.error == "limit" for e in trace.events)
    ends = [(e.t, 1) for e in trace.events if e.model] + [(e.t + (e.dur or 0.0), -1) for e in trace.events if e.model]
    at_once = most = 0
    for _, change in sorted(ends, key=lambda end: (end[0], end[1])):
        at_once += change
        most = max(most, at_once)
    assert most == 1000
