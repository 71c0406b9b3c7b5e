"""The viewer's server over a socket: every question, names that mean mischief, tags, errors."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from app.viewer.served import HOSTILE, SCRIPT, Answer, Viewer, filled, viewing
from counterpoint import Event, Store, Trace, content_ref
from counterpoint.app.cli import cli
from counterpoint.app.viewer.collection import Collection
from counterpoint.app.viewer.one_file import reopened
from counterpoint.testing import synthetic_trace
from lab.app.runs_made import made


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Viewer]:
    folder = tmp_path_factory.mktemp("viewed")
    for seed in (0, 1):
        made(folder / "runs" / f"grpo-{seed}", "grpo", seed, hand_made={"serial": 4.0, "reference": 7.0})
        made(folder / "runs" / f"c3-{seed}", "c3", seed, mean=6.0)
    made(folder / "runs" / "dear", "dear", 0, calls=5000)
    collection = Collection(filled(folder / "traces"), folders=[folder / "runs"])
    with viewing(collection, folder) as found:
        yield found


def head(answer: Answer) -> dict[str, Any]:
    """The JSON at the beginning of an answer in bytes."""
    (length,) = struct.unpack("<I", answer.body[:4])
    found: dict[str, Any] = json.loads(answer.body[4 : 4 + length])
    return found


def run_id(viewer: Viewer, name: str) -> str:
    return next(row["id"] for row in viewer.ask("/api/runs").json if row["id"].endswith(name))


# -- the page ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/t/plain", "/t/x%2Fy", "/d/a..b", "/r", "/r/runs%2Fx", "/c?s=a%3Dx", "/live", "/t/x?e=e1&v=credit", "/runs", "/diff", "/compare", "/traces"])
def test_every_page_is_the_one_page(viewer: Viewer, path: str) -> None:
    answer = viewer.ask(path)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert f'id="counterpoint-boot">{{"token":"{viewer.token}"'.encode() in answer.body
    assert b"<!--counterpoint-data-->" not in answer.body


def test_the_beginning_of_an_id_leads_to_the_whole_address(viewer: Viewer) -> None:
    run = run_id(viewer, "dear")
    for path, whole in (("/t/plai?v=map", "/t/plain?v=map"), ("/r/dear", f"/r/{quote(run, safe='')}")):
        answer = viewer.ask(path)
        assert (answer.status, answer.headers["location"]) == (307, whole)
    assert viewer.ask("/t/no-such-trace").status == viewer.ask("/r/no-such-run").status == 200


def test_only_the_pages_own_script_may_run(viewer: Viewer) -> None:
    policy = viewer.ask("/").headers["content-security-policy"]
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "unsafe-eval" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "connect-src 'self'" in policy
    assert viewer.ask("/").headers["x-content-type-options"] == "nosniff"


def test_without_the_built_page_it_says_how_to_build_it(tmp_path: Path) -> None:
    with viewing(Collection(), tmp_path, page=None) as found:
        answer = found.ask("/")
        assert answer.status == 503
        assert b"make page" in answer.body
        assert found.ask("/api/traces").status == 200


@pytest.mark.parametrize("path", ["/nothing", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/viewer.html", "/page/viewer.html", "//etc/passwd"])
def test_an_unknown_address_answers_with_the_page_and_nothing_is_a_file(viewer: Viewer, path: str) -> None:
    answer = viewer.ask(path)
    assert b"root:" not in answer.body
    assert b"counterpoint-boot" in answer.body
    assert answer.status == (200 if path == "//etc/passwd" else 404)
    assert viewer.ask(path, method="POST", x_counterpoint_token=viewer.token).status == 405


# -- traces --------------------------------------------------------------------------------------------------------------


def test_traces_lists_the_newest_first_with_facets(viewer: Viewer) -> None:
    told = viewer.ask("/api/traces").json
    assert told["found"] == told["total"] == len(told["rows"]) == 3 + len(HOSTILE)
    assert [row["active"] for row in told["rows"]] == sorted((row["active"] for row in told["rows"]), reverse=True)
    assert told["zone"]
    assert told["facets"]["topology"] == {"debate": len(HOSTILE), "centralized": 2}
    row = next(row for row in told["rows"] if row["id"] == "plain")
    assert len(row["lanes"]) == 24
    assert max(row["lanes"]) <= 1.0
    assert viewer.ask("/api/traces?q=agents%3E4").json["found"] < told["found"]
    assert len(viewer.ask("/api/traces?limit=2").json["rows"]) == 2


def test_alerts_are_counted_as_the_trace_itself_counts_them(viewer: Viewer) -> None:
    names = [row["id"] for row in viewer.ask("/api/traces").json["rows"]]
    told = viewer.ask("/api/alerts?" + "&".join(f"id={_query(name)}" for name in [*names, "nothing"])).json
    assert list(told) == names
    for name in names:
        alerts = viewer.of(name).json["alerts"]
        assert told[name]["count"] == len(alerts)
        assert told[name]["text"] == (alerts[0]["text"] if alerts else "")
    assert any(one["count"] for one in told.values())


def test_a_trace_is_downloaded_as_one_file_with_choices(tmp_path: Path) -> None:
    key, page = "sk-" + "a1B2" * 10, "<!doctype html><head><title>x</title></head><!--counterpoint-data--><script type='module'>1</script>"
    with Store(tmp_path / "traces") as store:
        said = {0.0: f"the key is {key}", 5.0: "the end"}
        events = [Event(id=f"e{t:g}", t=t, type="message", agent="lead", content_ref=content_ref(text)) for t, text in said.items()]
        store.add(Trace(trace_id="a/b", task_id="share", events=events, edges=[], contents={content_ref(text): text for text in said.values()}))
    with viewing(Collection(tmp_path / "traces"), tmp_path) as found, pytest.MonkeyPatch.context() as patch:
        patch.setattr("counterpoint.app.viewer.one_file.PAGE", tmp_path / "page.html")
        (tmp_path / "page.html").write_text(page)

        def texts(words: str) -> list[str]:
            answer = found.of("a/b", f"/file{words}")
            assert answer.status == 200
            assert answer.headers["content-disposition"] == 'attachment; filename="a-b.html"'
            assert answer.headers["content-security-policy"] == "sandbox"
            return list(reopened(answer.body)[1]["traces"]["a/b"]["texts"].values())

        assert texts("") == ["the key is [masked:key:0001]", "the end"]
        assert texts("?mask=0") == [f"the key is {key}", "the end"]
        assert texts("?from=4&to=6") == ["the end"]
        assert texts("?texts=0") == []
        assert found.of("a/b", "/file?from=90&to=99").status == 404
        assert found.of("a/b", "/file?from=x").status == 400


def test_a_wrong_query_says_what_would_work(viewer: Viewer) -> None:
    answer = viewer.ask("/api/traces?q=agentz%3E4")
    assert answer.status == 400
    assert answer.json["error"]["exit"] == 2
    assert "agents" in answer.json["error"]["fix"]


@pytest.mark.parametrize("name", ["plain", *HOSTILE])
def test_every_question_about_a_trace_whatever_its_id(viewer: Viewer, name: str) -> None:
    about = viewer.of(name).json
    assert about["id"] == name
    columns = head(viewer.of(name, "/columns"))
    assert columns["events"] == about["events"] == len(columns["ids"])
    assert head(viewer.of(name, "/bins"))["levels"]
    assert head(viewer.of(name, "/window?from=0&to=1e9&limit=5"))["events"] == 5
    detail = viewer.of(name, "/event/3").json
    assert detail["n"] == 3
    assert detail["id"] == columns["ids"][3]
    assert len(viewer.of(name, "/talk?agent=-1&tree=0&first=1&count=4").json["rows"]) == 4
    assert viewer.of(name, "/find?q=kind%3Aspawn").json["events"]
    assert viewer.of(name, "/methods").json
    assert viewer.of(name, "/credit?method=uniform&unit=agent").json["method"] == "uniform"
    assert viewer.of(name, "/safety").json["tainted"] >= 0
    assert viewer.ask(f"/api/diff?a=plain&b={_query(name)}").json["a"] == "plain"


def _query(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")


def test_an_odd_trace_answers_every_question_or_says_why_not(viewer: Viewer) -> None:
    from counterpoint.testing import odd_trace

    name = odd_trace().trace_id
    for rest in ("", "/columns", "/bins", "/window", "/event/0?whole=1", "/talk", "/find?q=x", "/methods", "/safety"):
        assert viewer.of(name, rest).status == 200, rest


@pytest.mark.parametrize(
    ("rest", "status"),
    [
        ("/event/99999", 404), ("/event/-1", 404), ("/event/1e3", 404), ("/event/" + "9" * 400, 404), ("/nothing", 404), ("/event", 404),
        ("/window?from=x", 400), ("/window?from=nan", 400), ("/talk?first=x", 400), ("/credit", 400), ("/credit?method=nobody", 404),
        ("/find?q=agentz%3E4", 400), ("/fork", 404),
    ],
)
def test_a_wrong_question_is_an_error_in_json(viewer: Viewer, rest: str, status: int) -> None:
    answer = viewer.of("plain", rest)
    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"
    assert answer.json["error"]["what"]


@pytest.mark.parametrize(
    "path",
    [
        "/api/t/none", "/api/t/..%2f..%2fcounterpoint.json", "/api/t/../../etc/passwd", "/api/t/%00", "/api", "/api/", "/api/t",
        "/api/nothing", "/api/run?id=../../etc", "/api/run?id=/etc", "/api/diff?a=plain&b=/etc/passwd", "/api/compare?spec=a%3D/etc+b%3D/tmp",
    ],
)
def test_names_are_looked_up_and_never_paths(viewer: Viewer, path: str) -> None:
    answer = viewer.ask(path)
    assert answer.status == 404
    assert b"root:" not in answer.body
    assert answer.json["error"]["exit"] == 3


def test_bytes_that_are_no_text_and_missing_words_are_wrong_input(viewer: Viewer) -> None:
    assert viewer.ask("/api/t/%ff%fe").status == 400
    assert viewer.ask("/api/diff?a=plain").status == 400
    assert viewer.ask("/api/run").status == 400
    assert viewer.ask("/api/compare").status == 400


# -- tags and packing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/api/traces", "/api/t/plain", "/api/t/plain/columns", "/api/runs"])
def test_what_a_browser_has_is_not_sent_again(viewer: Viewer, path: str) -> None:
    first = viewer.ask(path)
    again = viewer.ask(path, if_none_match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert viewer.ask(path, if_none_match='"another"').body == first.body


def test_large_answers_are_packed_for_those_who_can_unpack(viewer: Viewer) -> None:
    plain = viewer.of("plain", "/columns")
    packed = viewer.of("plain", "/columns", accept_encoding="gzip")
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert packed.headers["vary"] == "accept-encoding"


def test_a_trace_that_changes_has_another_tag(tmp_path: Path) -> None:
    with Store(tmp_path / "traces") as store:
        store.add(synthetic_trace(2, 6, trace_id="grows"))
        with viewing(Collection(store.path), tmp_path) as found:
            before = found.of("grows")
            store.add(synthetic_trace(2, 9, trace_id="grows"))
            after = found.of("grows", if_none_match=before.headers["etag"])
            assert after.status == 200
            assert after.json["events"] > before.json["events"]


def test_a_store_that_comes_later_is_found(tmp_path: Path) -> None:
    with viewing(Collection(tmp_path / "traces"), tmp_path) as found:
        assert found.ask("/api/traces").json["total"] == 0
        assert found.of("late").status == 404
        with Store(tmp_path / "traces") as store:
            store.add(synthetic_trace(2, 6, trace_id="late"))
        assert found.ask("/api/traces").json["total"] == 1
        assert found.of("late").status == 200


def test_opened_traces_are_kept_up_to_a_number_of_events(tmp_path: Path) -> None:
    collection = Collection(filled(tmp_path / "traces"), limit=200)
    one = collection.get("plain")
    assert collection.get("plain") is one
    for name in HOSTILE * 2:
        collection.get(name)
    assert sum(len(trace.events) for _, trace in collection._opened.values()) <= 200
    assert collection.get("plain") is not one
    collection.close()


# -- runs ----------------------------------------------------------------------------------------------------------------


def test_runs_are_listed_opened_and_compared(viewer: Viewer) -> None:
    rows = viewer.ask("/api/runs").json
    assert {row["preset"] for row in rows} == {"grpo", "c3", "dear"}
    name = run_id(viewer, "grpo-0")
    told = viewer.ask(f"/api/run?id={_query(name)}").json
    curves = {one["name"]: one for one in told["series"]}
    assert {"reward/held out", "reward/in training", "loss"} <= curves.keys()
    assert curves["reward/held out"]["low"][-1] < curves["reward/held out"]["y"][-1] < curves["reward/held out"]["high"][-1]
    sides = " ".join(f"{label}={','.join(run_id(viewer, f'{label}-{seed}') for seed in (0, 1))}" for label in ("grpo", "c3"))
    compared = viewer.ask(f"/api/compare?spec={_query(sides)}").json
    assert compared["refusal"] is None
    assert [row["name"] for row in compared["rows"]] == ["grpo", "c3"]
    assert compared["rows"][1]["mean"] > compared["rows"][0]["mean"]
    assert compared["differences"][0]["label"] == "c3"
    named = [f"{label}={run_id(viewer, f'{label}-{seed}')}" for label in ("grpo", "c3") for seed in (0, 1)]
    said = json.loads(CliRunner().invoke(cli, ["compare", "runs", *named, "--json"], catch_exceptions=False).stdout)
    assert compared["differences"] == said["differences"]
    assert [row["share_of_optimum"] for row in compared["rows"]] == [side["share_of_optimum"] for side in said["sides"]]
    assert "paired on 40 tasks of s1" in compared["heading"]
    assert compared["curves"]
    assert compared["levels"] == told["levels"] == [
        {"name": "optimum", "value": 10.0, "is_bound": True},
        {"name": "reference", "value": 7.0, "is_bound": False},
        {"name": "serial", "value": 4.0, "is_bound": False},
    ]
    assert compared["moved"]
    assert "a" not in compared["moved"][0]


def test_what_compare_refuses_is_refused_with_the_reason(viewer: Viewer) -> None:
    spec = f"a={run_id(viewer, 'grpo-0')} b={run_id(viewer, 'dear')}"
    refused = viewer.ask(f"/api/compare?spec={_query(spec)}").json
    assert "more than 5% apart" in refused["refusal"]
    assert refused["rows"] == []
    anyway = viewer.ask(f"/api/compare?spec={_query(spec)}&anyway=1").json
    assert "more than 5% apart" in anyway["refusal"]
    assert len(anyway["rows"]) == 2


def test_a_task_that_moved_leads_to_the_traces_of_both_sides(tmp_path: Path) -> None:
    from lab.app.runs_made import FIRST, TASKS

    for name, mean in (("x", 5.0), ("y", 6.0)):
        folder = made(tmp_path / "runs" / name, name, mean=mean)
        with Store(folder / "store") as store:
            store.add_many(synthetic_trace(2, 6, trace_id=f"{name}-{k}", task_id=f"s1-{FIRST + k}") for k in range(TASKS))
    with viewing(Collection(folders=[tmp_path / "runs"]), tmp_path) as found:
        spec = f"x={run_id(found, '/x')} y={run_id(found, '/y')}"
        moved = found.ask(f"/api/compare?spec={_query(spec)}").json["moved"][0]
        k = moved["task"] - FIRST
        assert moved["a"].endswith(f":x-{k}")
        assert found.ask(f"/api/diff?a={_query(moved['a'])}&b={_query(moved['b'])}").status == 200


def test_the_traces_of_a_run_are_asked_for_under_its_name(tmp_path: Path) -> None:
    folder = made(tmp_path / "runs" / "kept")
    with Store(folder / "store") as store:
        store.add(synthetic_trace(2, 6, trace_id="sample"))
    with viewing(Collection(folders=[tmp_path / "runs"]), tmp_path) as found:
        told = found.ask(f"/api/run?id={_query(run_id(found, 'kept'))}").json
        assert len(told["samples"]) == 1
        assert found.of(told["samples"][0]).json["id"] == told["samples"][0]


def test_a_store_that_is_removed_and_made_anew_is_another_store(tmp_path: Path) -> None:
    home = tmp_path / "traces"
    with Store(home) as store:
        store.add(synthetic_trace(2, 6, trace_id="old"))
    with viewing(Collection(home), tmp_path) as found:
        assert [row["id"] for row in found.ask("/api/traces").json["rows"]] == ["old"]
        assert found.of("old").status == 200
        shutil.rmtree(home)
        assert found.ask("/api/traces").json["rows"] == []
        assert found.of("old").status == 404
        with Store(home) as store:
            store.add(synthetic_trace(2, 6, trace_id="new"))
        assert [row["id"] for row in found.ask("/api/traces").json["rows"]] == ["new"]
        assert found.of("new").status == 200
        assert found.of("old").status == 404


def test_a_list_says_how_many_match_and_how_many_there_are(viewer: Viewer) -> None:
    every = viewer.ask("/api/traces").json
    assert every["found"] == every["total"] == len(every["rows"])
    none = viewer.ask("/api/traces?q=nothing-is-called-so").json
    assert (none["found"], none["total"], none["rows"]) == (0, every["total"], [])
