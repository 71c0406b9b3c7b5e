"""Two writers and a reader at once, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from counterpoint.store import Store

WRITER = """
import sys
from counterpoint.store import Store
from counterpoint.trace import Edge, Event, Trace

who, folder, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = Store(folder)
for k in range(count):
    name = f"{who}{k}"
    with store.record(name, task_id="many", meta={"expected": k + 2}) as run:
        for i in range(k + 2):
            run.event(Event(id=f"e{i}", t=i, type="message", agent=who))
            if i:
                run.edge(f"e{i - 1}", f"e{i}", "causal")
        run.finish(rewards={"team": k})
    shared = [Event(id="e0", t=0, type="message", agent="both", tokens_in=k)]
    store.add(Trace(trace_id=f"shared{k}", task_id="many", events=shared, meta={"expected": 1}))
    if k % 10 == 9:
        store.compact(grace_s=0)
"""

READER = """
import sys
from counterpoint.store import Store

store = Store(sys.argv[1], read_only=True)
seen = 0
while seen < int(sys.argv[2]):
    ids = store.ids()
    assert len(ids) >= seen, "a committed trace vanished"
    for name in ids[-3:]:
        trace = store.get(name)
        assert len(trace.events) == len(trace.edges) + 1 == trace.meta["expected"], name
    counted, events = store.sql("select count(*), sum(n_events) from traces").rows[0]
    assert counted >= seen
    assert len(store.rows()) >= seen
    seen = len(ids)
print("read", seen)
"""


def test_two_writers_and_a_reader(tmp_path: Path) -> None:
    folder, count = tmp_path / "store", 12
    Store(folder).close()
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, who, folder, str(count)]) for who in ("a", "b")]
    reader = subprocess.Popen([sys.executable, "-c", READER, folder, str(3 * count)], stdout=subprocess.PIPE, text=True)
    assert [w.wait(timeout=600) for w in writers] == [0, 0]
    out, _ = reader.communicate(timeout=600)
    assert (reader.returncode, out) == (0, f"read {3 * count}\n")
    with Store(folder) as store:
        assert sorted(store.ids()) == sorted([f"{w}{k}" for w in ("a", "b", "shared") for k in range(count)])
        assert store.open_ids() == []
        assert all(len(store.get(name).events) == store.get(name).meta["expected"] for name in store.ids())
        assert store.sql("select count(distinct trace_id), count(*) from traces").rows == [(3 * count, 3 * count)]
