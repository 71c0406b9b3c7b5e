"""The board of issues over a socket: what it shows, one issue with its runs, and a decision, which only the token can write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import counterpoint as cpt
from app.test_issues import DAY, made
from app.viewer.served import Viewer, viewing
from counterpoint.app.api.issues import issues
from counterpoint.app.viewer.collection import Collection


@pytest.fixture
def viewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Viewer]:
    monkeypatch.setenv("COUNTERPOINT_AUTHOR", "ann")
    with cpt.Store(tmp_path / "traces") as store:
        store.add(made("a", ["No such file or directory"] * 5, began=1e9))
        store.add(made("b", ["/x/y: No such file or directory", "bad key sk-ant-api03-" + "a1B2" * 20], began=1e9 + DAY, project="till"))
    with viewing(Collection(tmp_path / "traces"), tmp_path) as found:
        yield found


def decide(viewer: Viewer, name: str, body: object, **headers: str) -> int:
    sent = {"x_counterpoint_token": viewer.token} | headers
    return viewer.ask(f"/api/issues/{name}", method="POST", body=body, **sent).status


def test_the_board_is_that_of_the_command(viewer: Viewer) -> None:
    told = viewer.ask("/api/issues").json
    board = issues(store=viewer.site.collection.store_path)
    assert [(one["id"], one["state"], one["runs"], one["count"]) for one in told["issues"]] == [
        (one.id, one.state, one.runs, one.count) for one in board
    ]
    assert (told["runs"], told["unread"], next(iter(told["kinds"]))) == (2, [], "injection")
    assert "a1B2" not in viewer.ask("/api/issues").body.decode()
    assert [one["runs"] for one in viewer.ask("/api/issues?q=project:till").json["issues"]] == [1, 1]


def test_one_issue_has_its_runs_with_their_events(viewer: Viewer) -> None:
    name = viewer.ask("/api/issues").json["issues"][0]["id"]
    told = viewer.ask(f"/api/issues/{name[:5]}").json
    assert [(run["trace_id"], run["project"], run["count"], run["events"]) for run in told["runs"]] == [
        ("b", "till", 1, ["r1"]), ("a", "shop", 5, ["r1", "r2", "r3"]),
    ]  # fmt: skip
    assert (told["left_out"], told["what"]) == (0, "calls that fail")
    assert [run["trace_id"] for run in viewer.ask(f"/api/issues/{name}?q=project:shop").json["runs"]] == ["a"]
    assert viewer.ask("/api/issues/00000000").status == 404


def test_a_decision_is_kept_as_the_command_keeps_it(viewer: Viewer) -> None:
    name = viewer.ask("/api/issues").json["issues"][0]["id"]
    assert decide(viewer, name, {"state": "resolved", "note": "asks first"}) == 201
    kept = issues(store=viewer.site.collection.store_path).one(name)
    assert kept.decided is not None
    assert (kept.state, kept.decided.by, kept.decided.note) == ("resolved", "ann", "asks first")
    assert viewer.ask(f"/api/issues/{name}").json["issue"]["decided"].endswith(": asks first")
    with cpt.Store(viewer.site.collection.store_path, create=False) as store:
        store.add(made("c", ["No such file or directory"], began=4e9))
    assert viewer.ask("/api/issues").json["issues"][0]["state"] == "regressed"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"state": "done"}, 400),
        ({"state": "open", "who": "me"}, 400),
        ({}, 400),
        ([], 400),
        (b"{", 400),
    ],
)
def test_what_is_no_decision_is_refused(viewer: Viewer, body: object, status: int) -> None:
    name = viewer.ask("/api/issues").json["issues"][0]["id"]
    assert decide(viewer, name, body) == status
    assert issues(store=viewer.site.collection.store_path).one(name).decided is None


def test_without_the_token_nothing_is_written(viewer: Viewer) -> None:
    name = viewer.ask("/api/issues").json["issues"][0]["id"]
    assert decide(viewer, name, {"state": "ignored"}, x_counterpoint_token="guess") == 403
    assert decide(viewer, name, {"state": "ignored"}, origin="http://evil.example") == 403
    assert decide(viewer, "../../etc", {"state": "ignored"}) in (404, 405)
    assert issues(store=viewer.site.collection.store_path).one(name).decided is None


def test_without_a_store_there_is_one_clear_error(tmp_path: Path) -> None:
    with viewing(Collection(traces=[made("a", [], began=1e9)]), tmp_path) as found:
        answer = found.ask("/api/issues")
    assert answer.status == 404
    assert "none is on view" in answer.json["error"]["what"]
