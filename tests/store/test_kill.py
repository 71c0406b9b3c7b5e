"""kill -9 at random moments: every acknowledged event is there, no trace is half, and the store goes on working.

A moment is a number of steps that the writer has taken, never a time; see writer.py.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

from counterpoint.store import Store
from counterpoint.trace import Event, Trace

KILLS = int(os.environ.get("COUNTERPOINT_KILLS", "40"))


def _acknowledged(acks: Path) -> tuple[dict[str, int], set[str]]:
    synced: dict[str, int] = {}
    sealed: set[str] = set()
    for line in acks.read_text().splitlines() if acks.exists() else ():
        name, count, what = line.split()
        synced[name] = max(synced.get(name, 0), int(count))
        if what == "sealed":
            sealed.add(name)
    return synced, sealed


def _is_prefix(trace: Trace) -> bool:
    n = len(trace.events)
    chain = [(f"e{i - 1}", f"e{i}") for i in range(1, n)]
    in_order = [e.id for e in trace.events] == [f"e{i}" for i in range(n)]
    # The last event may be there without the edge to it, which is the next line.
    return in_order and [(e.src, e.dst) for e in trace.edges] in (chain, chain[:-1])


def _complete(store: Store, part: Trace) -> None:
    """Go on where the dead writer stopped."""
    with store.resume(part.trace_id) as run:
        known = {(e.src, e.dst) for e in part.edges}
        for i in range(part.meta["expected"]):
            if i >= len(part.events):
                run.event(Event(id=f"e{i}", t=i, type="message", agent="a"))
            if i and (f"e{i - 1}", f"e{i}") not in known:
                run.edge(f"e{i - 1}", f"e{i}", "causal")
        run.finish()


def test_nothing_acknowledged_is_lost_and_nothing_is_half(tmp_path: Path) -> None:
    rng = random.Random(7)
    folder, acks = tmp_path / "store", tmp_path / "acks"
    script = Path(__file__).with_name("writer.py")
    writer = subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdin is not None
    assert writer.stdout is not None
    checked: set[str] = set()
    torn = resumed = cut_off = 0
    for seed in range(KILLS):
        steps, how = rng.randrange(rng.choice([60, 500])), ("itself", "outside")[seed % 2]
        writer.stdin.write(f"{folder}\t{acks}\t{seed}\t{steps}\t{how}\n")
        writer.stdin.flush()
        assert writer.stdout.readline() == "done\n"
        torn += any(not f.read_bytes().endswith(b"\n") for f in folder.glob("journal/*.jsonl"))
        with Store(folder) as store:
            assert store.unsealed == []
            synced, sealed = _acknowledged(acks)
            assert sealed <= set(store.ids())
            cut_off += bool(synced.keys() & set(store.open_ids()))
            for name in set(store.ids()) - checked:
                whole = store.get(name)
                assert _is_prefix(whole)
                assert len(whole.events) == len(whole.edges) + 1 == whole.meta["expected"]
                assert "unfinished" not in whole.meta
                checked.add(name)
            for name in store.open_ids():
                part = store.get(name)
                assert _is_prefix(part)
                assert len(part.events) >= synced.get(name, 0)
                _complete(store, part)
                resumed += 1
                checked.add(name)
            lost = {n for n, count in synced.items() if count and n not in store.ids()}
            assert not lost
    writer.stdin.close()
    assert writer.wait() == 0
    assert cut_off > KILLS // 8, "hardly a writer died in the middle of a trace of which something was acknowledged"
    with Store(folder, create=False) as store:
        assert store.open_ids() == []
        assert store.sql("select count(*), sum(n_events) from traces").rows[0][0] == len(store.ids()) > KILLS
        rows = store.sql("select count(*) from events").rows[0][0]
        assert rows == sum(r.events for r in store.rows())
    print(f"{KILLS} kills, {len(checked)} traces, {resumed} cut off and resumed, {torn} torn tails")
