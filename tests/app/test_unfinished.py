"""A run that goes on, or was cut off, is shown as such, with what was under way; a finished one has no such words."""

from __future__ import annotations

from pathlib import Path

from counterpoint import Event, Store
from counterpoint.trace.ending import ending_words
from ends_help import Ends


def test_a_run_that_was_cut_off_says_so_and_names_what_hung(tmp_path: Path, run: Ends) -> None:
    with Store(tmp_path) as store:
        cut = store.record("cut", task_id="demo")
        cut.event(Event(id="e1", t=0.0, type="spawn", agent="lead", to="ada"))
        cut.open(Event(id="e2", t=1.0, type="tool_call", agent="ada", tool="pytest"))
        cut.edge("e1", "e2", "spawn")
        cut.release()
        code, out, err = run("show", "cut", "--store", tmp_path)
        assert code == 0, err
        assert "open     the end is not recorded: the run is still going, or was interrupted" in out
        assert "without an end: e2 pytest of ada" in " ".join(out.split())
        assert "it began, and no end of it is recorded" in run("show", "cut", "e2", "--store", tmp_path)[1]
        assert "no end of it" not in run("show", "cut", "e1", "--store", tmp_path)[1]
        assert "(cut), not finished" in run("audit", "cut", "--store", tmp_path)[1]

        going = store.resume("cut")
        going.finish(rewards={"team": 0.0})  # sealed, and the tool never answered
        out = run("show", "cut", "--store", tmp_path)[1]
        assert "the end is not recorded" not in out
        assert "open     without an end: e2 pytest of ada" in out
        assert "not finished" not in run("audit", "cut", "--store", tmp_path)[1]


def test_many_are_counted_and_a_finished_run_has_no_such_words(tmp_path: Path, run: Ends) -> None:
    with Store(tmp_path) as store, store.record("whole", task_id="demo") as going:
        for k in range(1, 6):
            going.open(Event(id=f"e{k}", t=float(k), type="message", agent="ada"))
        going.sync()
        assert ending_words(store.get("whole"))[1].endswith("e3 message of ada, and 2 more")
        for k in range(1, 6):
            going.close(f"e{k}", ok=True)
        going.finish()
        assert ending_words(store.get("whole")) == []
        assert "open  " not in run("show", "whole", "--store", tmp_path)[1]
