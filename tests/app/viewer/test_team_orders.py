"""Steering over the viewer's API: only its own page with the token, only a team that runs; the stream says what took effect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from app.viewer.served import Answer, Viewer, viewing
from app.viewer.test_server_live import Stream
from counterpoint.app.viewer.collection import Collection, Listing
from counterpoint.recorder.orders import Order, control_path, send
from counterpoint.store import Store
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Event
from steer_help import running, until


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Viewer]:
    """A viewer of a store with a finished trace, one that takes no orders, and a team at work in another process."""
    folder = tmp_path_factory.mktemp("steered")
    with Store(folder / "traces") as store, store.record("deaf", task_id="t") as deaf:
        deaf.event(Event(id="e1", t=0.0, type="message", agent="lead"))
        deaf.sync()
        store.add(synthetic_trace(3, 10, trace_id="done"))
        with running(store.path), viewing(Collection(store.path), folder) as found:
            yield found


def order(viewer: Viewer, trace: str, body: Any, **headers: str) -> Answer:
    sent = {"x_counterpoint_token": viewer.token} | headers
    return viewer.ask(f"/api/steer/{quote(trace, safe='')}", method="POST", body=body, **sent)


def sent_so_far(viewer: Viewer) -> bytes:
    path = viewer.site.collection.store_path
    assert path is not None
    return control_path(path, "running").read_bytes()


@pytest.mark.parametrize(
    "headers",
    [{"x_counterpoint_token": ""}, {"x_counterpoint_token": "guess"}, {"origin": "http://evil.example"}, {"sec_fetch_site": "cross-site"}],
    ids=["no token", "wrong token", "foreign origin", "foreign site"],
)
def test_nobody_else_steers(viewer: Viewer, headers: dict[str, str]) -> None:
    before = sent_so_far(viewer)
    assert order(viewer, "running", {"action": "stop"}, **headers).status == 403
    assert sent_so_far(viewer) == before


@pytest.mark.parametrize(
    ("trace", "body", "status", "said"),
    [
        ("nothing", {"action": "pause"}, 404, "no trace 'nothing' is running"),
        ("../running", {"action": "pause"}, 404, "is running"),
        ("running", {"action": "pause", "agent": "lead.7"}, 404, "no agent 'lead.7' so far"),
        ("running", {"action": "dance"}, 400, "no order named 'dance'"),
        ("running", {"action": "message"}, 400, "a message needs a text"),
        ("running", {"agent": "lead"}, 400, "is not an order"),
        ("running", {"action": "pause", "by": "root"}, 400, "is not an order"),
        ("running", b"{", 400, "is not an order"),
        ("done", {"action": "pause"}, 409, "is over"),
        ("deaf", {"action": "pause"}, 409, "takes no orders"),
    ],
)
def test_what_cannot_be_steered_says_why(viewer: Viewer, trace: str, body: Any, status: int, said: str) -> None:
    answer = order(viewer, trace, body)
    assert (answer.status, said in answer.json["error"]["what"]) == (status, True), answer.body
    assert answer.json["error"]["fix"]


def test_it_is_a_write(viewer: Viewer) -> None:
    assert viewer.ask("/api/steer/running").status == 404
    assert viewer.ask("/api/steer/running", method="PUT", body={}, x_counterpoint_token=viewer.token).status == 405
    assert order(viewer, "running/more", {"action": "pause"}).status == 404


def test_without_a_store_there_is_nothing_to_steer(tmp_path: Path) -> None:
    with viewing(Collection(traces=[synthetic_trace(2, 5, trace_id="file")]), tmp_path) as found:
        assert order(found, "file", {"action": "pause"}).status == 404


def live(batch: dict[str, Any]) -> dict[str, Any]:
    return next(one for one in batch["traces"] if one["id"] == "running")


def test_the_stream_says_who_can_be_steered_and_what_took_effect(viewer: Viewer) -> None:
    with Stream(viewer) as stream:
        first = next(stream.batches())
        assert (live(first)["is_steerable"], live(first)["names"], live(first)["agents"]) == (True, ["lead", "lead.1", "lead.2"], 3)
        assert [one["is_steerable"] for one in first["traces"] if one["id"] == "deaf"] == [False]
        answer = order(viewer, "running", {"action": "pause", "agent": "lead.1"})
        assert answer.status == 202
        pause = answer.json
        assert (pause["action"], pause["agent"], pause["tree"]) == ("pause", "lead.1", False)
        batch = stream.until(lambda b: live(b)["paused"])
        assert live(batch)["paused"] == ["lead.1"]
        (applied,) = [one for one in live(batch)["orders"] if one["id"] == pause["id"]]
        assert (applied["action"], applied["agent"]) == ("pause", "lead.1")
        assert live(batch)["agents"] == 3, "the operator is no agent"
        stop = order(viewer, "running", {"action": "stop", "agent": "lead.1", "text": "enough"}).json
        batch = stream.until(lambda b: live(b)["stopped"])
        assert (live(batch)["stopped"], live(batch)["paused"]) == (["lead.1"], [])
        assert live(batch)["orders"][-1]["id"] == stop["id"]


def test_a_steered_trace_is_marked_in_the_list_on_its_page_and_in_a_diff(viewer: Viewer) -> None:
    path = viewer.site.collection.store_path
    assert path is not None
    send(path, "running", Order(action="message", text="to all"))
    until(lambda: viewer.of("running").json["is_steered"])
    rows = {row.id: row.is_steered for row in Listing(viewer.site.collection).traces().rows}
    assert rows == {"running": True, "done": False, "deaf": False}
    assert viewer.ask("/api/traces?q=steered").json["found"] == 1
    assert viewer.of("done").json["is_steered"] is False
    assert viewer.ask("/api/diff?a=done&b=running").json["steered"] == ["running"]
