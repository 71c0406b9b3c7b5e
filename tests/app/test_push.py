"""`counterpoint store push` and the collector: what was acknowledged is there, whoever is killed; nothing is doubled or mixed up."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from app.test_serve import serving
from counterpoint import Event, Store, Trace
from counterpoint.app.push import Push, push_while
from counterpoint.errors import InputError, Refused, TryAgain
from counterpoint.lab.app.api.train import train_one
from counterpoint.store.verify import verify
from counterpoint.store.writing import digest_of
from ends_help import Ends
from lab.train.quick import CONFIG


def trace(name: str, n: int = 3, **more: Any) -> Trace:
    events = [Event(id=f"e{i}", t=float(i), type="message", agent="a", role="lead", tokens_out=i, extra={"x": [i, "é"]}) for i in range(n)]
    return Trace(trace_id=name, task_id="t", events=events, edges=[], rewards={"team": 1.0}, costs={}, contents={"c": "text"}, **more)


def filled(folder: Path, names: list[str], **more: Any) -> Path:
    with Store(folder) as store:
        store.add_many([trace(name, **more) for name in names])
    return folder


def test_what_is_pushed_is_equal_and_pushed_once(tmp_path: Path) -> None:
    filled(tmp_path / "node", [f"t{i}" for i in range(5)])
    with serving(tmp_path / "all") as live, Store(tmp_path / "node") as node:
        push = Push(node, live.url)
        assert push.send(["t1"], patience_s=0).counts == {"added": 1, "renamed": 0}
        assert push.send(patience_s=0).counts == {"added": 4, "renamed": 0}
        assert push.send(patience_s=0).counts == {}
        assert [live.store.get(f"t{i}") for i in range(5)] == [node.get(f"t{i}") for i in range(5)]
        again = Push(node, live.url)  # another process knows what was acknowledged
        assert again.backlog() == []
        for path in (tmp_path / "node" / "push").glob("*.acknowledged"):
            path.unlink()
        assert Push(node, live.url).send(patience_s=0).counts == {"unchanged": 5, "renamed": 0}
        node.add(trace("t0", 4))  # it grew here
        assert again.send(patience_s=0).counts == {"updated": 1, "renamed": 0}
        assert len(live.store.get("t0").events) == 4


def test_one_id_of_two_machines_is_two_traces(tmp_path: Path) -> None:
    with serving(tmp_path / "all") as live:
        for who, n in (("one", 2), ("two", 3)):
            with Store(filled(tmp_path / who, ["same", f"own {who}"], n=n)) as node:
                counts = Push(node, live.url).send(patience_s=0).counts
                assert counts == {"added": 2, "renamed": who == "two"}
                assert Push(node, live.url).backlog() == []
        writer = (tmp_path / "two" / "push" / "writer").read_text()
        assert sorted(live.store.ids()) == ["own one", "own two", "same", f"same-{writer}"]
        assert [len(live.store.get(name).events) for name in ("same", f"same-{writer}")] == [2, 3]


def test_what_is_damaged_on_the_way_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path / "node", ["good", "bad"])
    with serving(tmp_path / "all") as live, Store(tmp_path / "node") as node:
        monkeypatch.setattr("counterpoint.app.push.encode_lines", _spoilt)
        done = Push(node, live.url).send(patience_s=0)
        assert done.refused == [("bad", "it is not the trace that was sent: its digest differs")]
        assert live.store.ids() == ["good"]


def _spoilt(one: Trace) -> bytes:
    from counterpoint.trace.lines import encode_lines

    return encode_lines(one if one.trace_id == "good" else trace(one.trace_id, 1))


def test_who_does_not_answer_and_who_is_no_collector(tmp_path: Path) -> None:
    with Store(filled(tmp_path / "node", ["a"])) as node:
        with pytest.raises(TryAgain, match=r"1 trace not at the collector yet.*they are safe in .*counterpoint store push --store"):
            Push(node, "http://127.0.0.1:1").send(patience_s=0)
        with pytest.raises(InputError, match="not an address of a collector"):
            Push(node, "127.0.0.1:4318")
        with serving(tmp_path / "all", token="secret") as live:
            with pytest.raises(Refused, match="asks for its token"):
                Push(node, live.url).send(patience_s=0)
            with pytest.raises(Refused, match="asks for its token"):
                Push(node, live.url, token="other").send(patience_s=0)
            assert Push(node, live.url, token="secret").send(patience_s=0).counts["added"] == 1
        with serving(tmp_path / "odd", is_collecting=False) as live, pytest.raises(Refused, match="answers 404"):
            Push(node, live.url).send(patience_s=0)


def test_a_body_that_is_too_large_is_sent_in_smaller_ones(tmp_path: Path) -> None:
    with Store(filled(tmp_path / "node", [f"t{i}" for i in range(9)])) as node, serving(tmp_path / "all", body=2000) as live:
        assert Push(node, live.url).send(patience_s=60).counts["added"] == 9


def test_traces_are_sent_while_they_are_written_and_at_the_end(tmp_path: Path) -> None:
    notes: list[str] = []
    with serving(tmp_path / "all") as live:
        with push_while(tmp_path / "node", live.url, note=notes.append, every_s=0.02), Store(tmp_path / "node") as node:
            node.add(trace("first"))
            until = time.monotonic() + 600
            while not live.store.ids() and time.monotonic() < until:
                time.sleep(0.02)
            node.add(trace("last"))
        assert sorted(live.store.ids()) == ["first", "last"]
    assert notes == []


def test_a_store_that_is_still_being_made_is_waited_for(tmp_path: Path) -> None:
    notes: list[str] = []
    (tmp_path / "node" / "journal").mkdir(parents=True)  # as far as its writer has come
    with serving(tmp_path / "all") as live:
        with push_while(tmp_path / "node", live.url, note=notes.append, every_s=0.001):
            time.sleep(0.05)  # a follower that gave up here would have said so
            with Store(tmp_path / "node") as node:
                node.add(trace("first"))
        assert live.store.ids() == ["first"]
    assert notes == []


def test_the_traces_of_a_run_are_sent_while_it_is_trained(tmp_path: Path) -> None:
    how: dict[str, Any] = {"resume": False, "allow": (), "progress": None}
    with serving(tmp_path / "all") as live:
        run = train_one(tmp_path / "run", CONFIG, push=live.url, **how)
        with Store(run.store_path) as own:
            assert sorted(live.store.ids()) == sorted(own.ids()) != []
    with pytest.raises(InputError, match="not an address of a collector"):
        train_one(tmp_path / "other", CONFIG, push="collector", **how)
    assert not (tmp_path / "other").exists()


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    """Three nodes send at once; the collector is killed again and again, and one of the nodes is."""
    nodes = [filled(tmp_path / f"node{k}", [f"n{k}-{i}" for i in range(60)]) for k in range(3)]
    port, rng = _free_port(), random.Random(1)
    collector = _collector(tmp_path / "all", port)
    senders = [_sender(node, port) for node in nodes]
    try:
        for _ in range(2):
            seen = _stored(tmp_path / "all")
            until = time.monotonic() + 600
            while _stored(tmp_path / "all") < min(seen + 8, 170) and time.monotonic() < until:
                time.sleep(rng.random() * 0.05)
            os.kill(collector.pid, signal.SIGKILL)
            collector.wait()
            collector = _collector(tmp_path / "all", port)
        until = time.monotonic() + 600
        while not list((nodes[0] / "push").glob("*.acknowledged")) and time.monotonic() < until:
            time.sleep(0.02)
        senders[0].kill()  # a node dies
        assert [s.wait(600) for s in senders[1:]] == [0, 0]
    finally:
        for process in (collector, *senders):
            process.kill()
            process.wait()
    with Store(tmp_path / "all") as all_:
        for node in nodes:
            (file,) = (node / "push").glob("*.acknowledged")
            acknowledged = [line.split(" ", 1)[1] for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]
            names = [name.strip() for name in acknowledged]
            assert node is nodes[0] or len(names) == 60
            with Store(node) as own:
                assert [digest_of(all_.get(name)) for name in names] == [own.version(name) for name in names]
        assert len(all_) == len(set(all_.ids()))
    assert verify(tmp_path / "all").faults == []


def _stored(folder: Path) -> int:
    try:
        with Store(folder, create=False, read_only=True) as store:
            return len(store)
    except Exception:
        return 0


def _free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def _collector(folder: Path, port: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "counterpoint", "serve", "--store", str(folder), "--port", str(port), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["store"] == str(folder)
    return process


SENDER = """
import sys
from counterpoint import Store
from counterpoint.app import push
push._TRACES = 4  # many requests, so that a kill meets some
with Store(sys.argv[1]) as store:
    push.Push(store, sys.argv[2]).send(patience_s=600)
"""


def _sender(node: Path, port: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", SENDER, str(node), f"http://127.0.0.1:{port}"])


def test_the_command(tmp_path: Path, run: Ends) -> None:
    filled(tmp_path / "node", ["a", "b"])
    (tmp_path / "token").write_text("secret\n")
    with serving(tmp_path / "all", token="secret") as live:
        args = ["store", "push", "--store", tmp_path / "node", "--to", live.url, "--token-file", tmp_path / "token"]
        assert run(*args, "id:a") == (0, f"{live.url}: 1 added\n", "")
        assert json.loads(run(*args, "--json")[1])["counts"] == {"added": 1, "renamed": 0}
        assert run(*args) == (0, f"{live.url}: nothing new\n", "")
        assert sorted(live.store.ids()) == ["a", "b"]
