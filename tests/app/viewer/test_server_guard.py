"""Who the viewer answers: its own name, its own page, and writes with the token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import counterpoint as cpt
from app.viewer.served import Viewer, filled, simulated, viewing
from counterpoint.app.viewer.collection import Collection
from counterpoint.app.viewer.guard_page import Door
from counterpoint.testing import synthetic_trace

SECRET = "a-secret-of-some-length"


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Viewer]:
    folder = tmp_path_factory.mktemp("guarded")
    with viewing(Collection(filled(folder / "traces")), folder) as found:
        yield found


PATHS = ["/", "/t/plain", "/api/traces", "/api/t/plain", "/api/live", "/nothing"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:{port}", "", "[::1]", "127.1:{port}"])
def test_a_foreign_name_is_refused(viewer: Viewer, host: str, path: str) -> None:
    answer = viewer.ask(path, host=host.format(port=viewer.port))
    assert answer.status == 403
    assert viewer.token.encode() not in answer.body


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "[::1]:{port}"])
def test_the_names_of_this_machine_are_answered(viewer: Viewer, host: str) -> None:
    assert viewer.ask("/api/traces", host=host.format(port=viewer.port)).status == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:{port}", "http://localhost:{port}", "http://127.0.0.1", "http://127.0.0.1:1"]
)
@pytest.mark.parametrize("path", PATHS[:4])
def test_a_foreign_origin_is_refused(viewer: Viewer, origin: str, path: str) -> None:
    answer = viewer.ask(path, origin=origin.format(port=viewer.port))
    assert answer.status == 403
    assert "access-control-allow-origin" not in answer.headers


def test_its_own_page_is_answered_and_other_sites_are_not(viewer: Viewer) -> None:
    own = f"http://127.0.0.1:{viewer.port}"
    assert viewer.ask("/api/traces", origin=own, sec_fetch_site="same-origin").status == 200
    assert viewer.ask("/api/traces", sec_fetch_site="cross-site").status == 403
    assert viewer.ask("/api/traces", sec_fetch_site="same-site").status == 403
    assert viewer.ask("/t/plain", sec_fetch_site="cross-site").status == 200  # a link in a chat may lead here


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_has_the_protective_headers(viewer: Viewer, path: str) -> None:
    if path != "/api/live":
        headers = viewer.ask(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"


# -- writing -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["", "wrong", "{token}x", "{head}", "\xff"])
@pytest.mark.parametrize("path", ["/api/t/plain/fork", "/api/traces", "/", "/api/t/plain"])
def test_a_write_without_the_token_is_refused(viewer: Viewer, token: str, path: str) -> None:
    given = token.format(token=viewer.token, head=viewer.token[:-1])
    answer = viewer.ask(path, method="POST", body={"kind": "delete", "event": "e1"}, x_counterpoint_token=given)
    assert answer.status == 403
    assert viewer.ask(path, method="POST", body={}).status == 403


def test_a_token_in_the_address_or_a_cookie_does_not_write(viewer: Viewer) -> None:
    body = {"kind": "delete", "event": "e1"}
    cookie = f"{viewer.site.door.cookie}={viewer.token}"
    assert viewer.ask(f"/api/t/plain/fork?token={viewer.token}", method="POST", body=body, cookie=cookie).status == 403


def test_a_write_from_a_foreign_page_is_refused_even_with_the_token(viewer: Viewer) -> None:
    assert viewer.fork(simulated().trace_id, "delete", "e9", origin="http://evil.example").status == 403


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods_are_refused(viewer: Viewer, method: str) -> None:
    assert viewer.ask("/api/traces", method=method).status == 403
    assert viewer.ask("/api/traces", method=method, x_counterpoint_token=viewer.token).status == 405
    assert viewer.ask("/api/traces", method="POST", body={}, x_counterpoint_token=viewer.token).status == 405


# -- outcomes ------------------------------------------------------------------------------------------------------------


def test_a_thumb_is_stored_with_its_author_and_seen_at_once(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_AUTHOR", "ann")
    assert viewer.ask("/api/t/plain/score", method="POST", body={"value": 1}).status == 403
    token = {"x_counterpoint_token": viewer.token}
    for body, status in (({}, 400), ({"value": "x"}, 400), ({"proposal": 9}, 404)):
        assert viewer.ask("/api/t/plain/score", method="POST", body=body, **token).status == status
    before = viewer.of("plain").json["rewards"]
    answer = viewer.ask("/api/t/plain/score", method="POST", body={"value": 0.25, "note": "meh"}, **token)
    assert answer.status == 201
    said = [(o["channel"], o["value"], o["by"], o["why"]) for o in answer.json["given"]]
    assert said == [("team", before["team"], "source", ""), ("team", 0.25, "ann", "meh")]
    assert viewer.of("plain", "/outcomes").json == answer.json
    assert viewer.of("plain").json["rewards"]["team"] == 0.25


# -- forks ---------------------------------------------------------------------------------------------------------------


def test_a_fork_is_stored_beside_its_original_and_its_events_have_badges(viewer: Viewer) -> None:
    trace = simulated()
    vote = next(e for e in trace.events if e.type == "return")
    answer = viewer.fork(trace.trace_id, "delete", vote.id)
    assert answer.status == 201
    told = answer.json
    assert told["line"].startswith("reused ")
    assert "does not show an effect" in told["line"]
    about = viewer.of(told["id"]).json
    assert about["parent"] == trace.trace_id
    expected = cpt.world("W1", vote_items=12).fork(trace, vote.id, cpt.Delete())
    assert about["events"] == len(expected.events)
    badges = {viewer.of(told["id"], f"/event/{n}").json["badge"] for n in range(0, about["events"], 7)}
    assert badges <= {"reused", "re-run", "simulated"}
    assert "reused" in badges
    assert viewer.of(trace.trace_id, "/event/0").json["badge"] is None
    diff = viewer.ask(f"/api/diff?a={trace.trace_id}&b={told['id']}").json
    assert diff["different"] > 0


def test_a_fork_by_force_and_substitution_takes_json_or_text(viewer: Viewer) -> None:
    trace = simulated()
    vote = next(e for e in trace.events if e.type == "return")
    asked = viewer.fork(trace.trace_id, "substitute", vote.id, "1")
    assert asked.status == 201, asked.body
    first = next(e.id for e in trace.events if e.decision == "spawn")
    for value in ({"spawn": 1}, '{"spawn": 1}'):
        forced = viewer.fork(trace.trace_id, "force", first, value)
        assert forced.status == 201, forced.body


@pytest.mark.parametrize(
    ("kind", "event", "value", "status"),
    [("explode", "e1", None, 400), ("substitute", "e1", None, 400), ("force", "e1", "[1]", 400), ("delete", "nothing", None, 404)],
)
def test_a_wrong_edit_says_why(viewer: Viewer, kind: str, event: str, value: str | None, status: int) -> None:
    answer = viewer.fork(simulated().trace_id, kind, event, value)
    assert answer.status == status
    assert answer.json["error"]["what"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"kind":1,"event":"e1"}', b"x" * (2 << 20)])
def test_a_body_that_is_no_edit_is_wrong_input(viewer: Viewer, body: bytes) -> None:
    assert viewer.ask("/api/t/plain/fork", method="POST", body=body, x_counterpoint_token=viewer.token).status == 400


def test_what_cannot_be_replayed_is_refused_and_no_code_that_a_trace_names_is_run(tmp_path: Path) -> None:
    import msgspec

    trap = tmp_path / "trap_of_the_viewer.py"
    trap.write_text(f"open({str(tmp_path / 'sprung')!r}, 'w').close()\nworld = None\n")
    named = msgspec.structs.replace(synthetic_trace(2, 6, trace_id="named"), meta={"world": "trap_of_the_viewer:world"})
    plain = synthetic_trace(2, 6, trace_id="plain")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        with viewing(Collection(traces=[named, plain]), tmp_path) as found:
            for name in ("named", "plain"):
                assert found.of(name).json["can_fork"] is False
                answer = found.fork(name, "delete", "e1")
                assert answer.status == 409
                assert answer.json["error"]["exit"] == 5
    assert not (tmp_path / "sprung").exists()


def test_the_fork_of_a_file_is_held_by_the_viewer(tmp_path: Path) -> None:
    trace = simulated()
    vote = next(e for e in trace.events if e.type == "return")
    with viewing(Collection(traces=[trace]), tmp_path) as found:
        told = found.fork(trace.trace_id, "delete", vote.id).json
        assert told["kept"] is None
        assert found.of(told["id"]).json["parent"] == trace.trace_id
        assert found.ask("/api/traces").json["total"] == 2


# -- a token for everything ----------------------------------------------------------------------------------------------


def test_with_a_token_of_ones_own_reading_needs_it_too(tmp_path: Path) -> None:
    with viewing(Collection(traces=[synthetic_trace(2, 6, trace_id="plain")]), tmp_path, token=SECRET) as found:
        for path in ("/", "/api/traces", "/api/t/plain", "/api/live", "/?token=wrong-wrong-wrong"):
            assert found.ask(path).status == 401
        assert found.ask("/api/traces", x_counterpoint_token=SECRET).status == 200
        link = found.ask(f"/t/plain?e=e1&token={SECRET}")
        assert link.status == 303
        assert link.headers["location"] == "/t/plain?e=e1"
        cookie = link.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert found.ask("/api/traces", cookie=cookie.split(";")[0]).status == 200
        assert found.ask("/api/traces", cookie=f"{found.site.door.cookie}=wrong").status == 401
        away = found.ask(f"//evil.example/x?token={SECRET}")
        assert away.headers["location"].startswith("/evil.example")


def test_a_host_header_must_name_the_address_it_listens_on() -> None:
    door = Door("192.0.2.7", 8000, SECRET, everything=True)
    assert door.is_own("192.0.2.7:8000")
    assert not door.is_own("192.0.2.8:8000")
    anywhere = Door("0.0.0.0", 8000, SECRET, everything=True)
    assert anywhere.is_own("192.0.2.8:8000")
    assert not anywhere.is_own("evil.example:8000")
    assert not anywhere.is_own("192.0.2.8:8001")


# -- notes ---------------------------------------------------------------------------------------------------------------


def test_a_note_is_stored_with_its_author_and_seen_at_once(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_AUTHOR", "ann")
    where = "/api/t/plain/annotations"
    assert viewer.ask(where, method="POST", body={"text": "x"}).status == 403
    token = {"x_counterpoint_token": viewer.token}
    for body, status in (({}, 400), ({"colour": 1}, 400), ({"text": "x", "event": "nobody"}, 404), ({"remove": "zz"}, 404)):
        assert viewer.ask(where, method="POST", body=body, **token).status == status
    answer = viewer.ask(where, method="POST", body={"name": "verdict", "label": "wrong", "text": "why"}, **token)
    assert answer.status == 201
    (said,) = answer.json["given"]
    assert (said["name"], said["label"], said["text"], said["by"], said["event"]) == ("verdict", "wrong", "why", "ann", -1)
    assert viewer.of("plain", "/annotations").json == answer.json
    assert viewer.ask(where, method="POST", body={"remove": said["id"]}, **token).json == {"given": []}
    assert viewer.of("plain", "/annotations").json == {"given": []}
