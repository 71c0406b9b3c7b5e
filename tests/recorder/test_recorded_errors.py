"""What a team raises is recorded with its words, secrets masked, and its causes; nothing that an error does harms the team."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from counterpoint import Event, record
from counterpoint.app.cli import cli
from counterpoint.audits.failures import failures
from counterpoint.recorder.problems import error_text

KEY = "sk-proj-" + "Zk3J9fQ2mX7vB1nL5tR8wY4cD6hG0pSaEuIo" * 2


def _made(error: BaseException, *, cause: BaseException | None = None) -> BaseException:
    try:
        try:
            if cause is not None:
                raise cause
        except BaseException as inner:
            raise error from inner
        raise error
    except BaseException as found:
        return found


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("page s3 is empty"), "ValueError: page s3 is empty"),
        (ValueError(), "ValueError"),
        (_made(RuntimeError("no answer"), cause=KeyError("s3")), "RuntimeError: no answer\ncaused by KeyError: 's3'"),
        (
            ExceptionGroup("two", [OSError("one"), ValueError("other")]),
            "ExceptionGroup: two (2 sub-exceptions)\nwith OSError: one\nwith ValueError: other",
        ),
        (Unspeakable(), "Unspeakable"),
        (ValueError("x" * 5000), "ValueError: " + "x" * 1988 + " [cut]"),
    ],
)
def test_an_error_is_its_type_its_words_and_its_causes(error: BaseException, told: str) -> None:
    assert error_text(error) == told


def test_what_was_being_handled_is_told_unless_it_was_put_away() -> None:
    def fails(hides: bool) -> None:
        try:
            raise KeyError("k")
        except KeyError:
            if hides:
                raise ValueError("v") from None
            raise ValueError("v")  # noqa: B904

    for hides, told in ((False, "ValueError: v\nwhile handling KeyError: 'k'"), (True, "ValueError: v")):
        with pytest.raises(ValueError, match="v") as found:
            fails(hides)
        assert error_text(found.value) == told


def test_errors_that_cause_each_other_come_to_an_end() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert error_text(one) == "ValueError: one\ncaused by ValueError: two"


def test_secrets_in_a_message_are_masked(tmp_path: Path) -> None:
    with record(tmp_path, task="demo", agent="lead") as rec:
        look = rec.tool(_raising(ConnectionError(f"401: Authorization: Bearer {KEY} was refused")))
        with pytest.raises(ConnectionError):
            look()
    (call, result) = rec.trace.events[:2]
    assert call.error == result.error
    assert call.error.startswith("ConnectionError: 401: ")
    assert "refused" in call.error
    assert KEY not in call.error


def _raising(error: BaseException) -> Any:
    def fails() -> None:
        raise error

    return fails


@pytest.mark.parametrize("how", ["agent", "tool", "model", "acting", "tool_call", "model_call"])
def test_every_kind_of_work_says_why_it_failed(tmp_path: Path, how: str) -> None:
    rec = record(tmp_path, task="demo", agent="lead")
    with pytest.raises(LookupError), rec:  # noqa: PT012
        if how in ("agent", "tool", "model"):
            getattr(rec, how)(_raising(LookupError("no page 3")))()
        else:
            with getattr(rec, how)("who"):
                raise LookupError("no page 3")
    assert [e.error for e in rec.trace.events if e.ok is False][-1] == "LookupError: no page 3"
    assert rec.trace.meta["failed"] == "LookupError: no page 3"
    found = failures(rec.trace)
    assert [one.reason for one in found] == ["LookupError: no page 3"]


def test_coroutines_and_generators_too(tmp_path: Path) -> None:
    with record(tmp_path, task="demo", agent="lead") as rec:

        @rec.agent
        async def late() -> None:
            await asyncio.sleep(0)
            raise LookupError("late")

        @rec.agent
        def parts() -> Any:
            yield "a"
            raise LookupError("parts")

        with pytest.raises(LookupError):
            asyncio.run(late())
        with pytest.raises(LookupError):
            list(parts())
    assert [e.error for e in rec.trace.events if e.error] == ["LookupError: late", "LookupError: parts"]


def test_people_are_shown_the_words(tmp_path: Path) -> None:
    rec = record(tmp_path, task="demo", trace_id="t1", agent="lead")
    with pytest.raises(LookupError), rec:
        rec.agent(_raising(_made(LookupError("no page 3"), cause=OSError("disk on fire"))))()
    event = next(e.id for e in rec.trace.events if e.error)
    for said in (["audit", "t1", "--failures"], ["show", "t1", event]):
        told = CliRunner().invoke(cli, [*said, "--store", str(tmp_path)])
        assert told.exit_code == 0
        assert "LookupError: no page 3" in told.output
    assert "OSError: disk on fire" in CliRunner().invoke(cli, ["show", "t1", event, "--store", str(tmp_path)]).output


def test_a_record_that_could_not_be_written_is_said_and_left_out(tmp_path: Path) -> None:
    with record(tmp_path, task="demo", agent="lead") as rec:
        rec.noop("kept")
        assert rec.session is not None
        rec.session.run.event(Event(id="odd", t=0, type="message", agent="x", extra={"value": object()}))  # no JSON
        rec.stop("done")
    assert [e.decision for e in rec.trace.events] == ["noop", "stop"]
    assert any(p.startswith("a record could not be written and is left out: ") for p in rec.problems), rec.problems


def test_a_future_that_fails_or_is_cancelled_ends_its_call_with_that(tmp_path: Path) -> None:
    with record(tmp_path, task="demo", agent="lead") as rec:

        @rec.tool
        def later(error: BaseException | None) -> asyncio.Future[str]:
            found = asyncio.get_running_loop().create_future()
            if error is None:
                found.cancel()
            else:
                found.set_exception(error)
            return found

        async def both() -> None:
            for error in (ValueError("page s3 is empty"), None):
                with pytest.raises((ValueError, asyncio.CancelledError)):
                    await later(error)

        asyncio.run(both())
    assert rec.problems == []
    for type_ in ("tool_call", "tool_result"):
        found = [e for e in rec.trace.events if e.type == type_]
        assert [(e.ok, e.error) for e in found] == [(False, "ValueError: page s3 is empty"), (False, "CancelledError")]
    assert "open_events" not in rec.trace.meta


def test_a_call_that_went_wrong_says_so_with_its_answer_whoever_told(tmp_path: Path) -> None:
    with record(tmp_path, task="demo", agent="lead") as rec:
        with rec.tool_call("search", "words") as call:
            call.result("nothing", ok=False, error="no page has them")
        with suppress(ValueError), rec.tool_call("search", "more words") as call:
            call.result("a page", ok=True, error="slow")
            raise ValueError("late")
    for type_ in ("tool_call", "tool_result"):
        found = [(e.ok, e.error) for e in rec.trace.events if e.type == type_]
        assert found == [(False, "no page has them"), (False, "ValueError: late")]


def test_a_stream_that_breaks_ends_its_call_with_the_error(tmp_path: Path) -> None:
    with record(tmp_path, task="demo", agent="lead") as rec:

        @rec.tool
        async def pages() -> Any:
            yield "one"
            raise ValueError("no second page")

        async def read() -> None:
            with pytest.raises(ValueError, match="no second page"):
                assert [page async for page in pages()] == []

        asyncio.run(read())
    found = next(e for e in rec.trace.events if e.type == "tool_result")
    assert (found.ok, found.error) == (False, "ValueError: no second page")
