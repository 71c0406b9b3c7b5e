"""What recurs over the runs of a query, as the list of traces shows it."""

from __future__ import annotations

import shlex

from msgspec.structs import replace

import counterpoint as cpt
from counterpoint.app.viewer.causes import recurring_causes
from counterpoint.app.viewer.collection import Collection
from counterpoint.app.viewer.panels.blame import blame
from counterpoint.lab.bench.expert_chat import broken_chats, expert_chat


def test_the_causes_are_those_of_blame_and_what_is_left_out_is_counted() -> None:
    failed = list(broken_chats(range(12), shapes=["panel"]))
    won = replace(expert_chat(1), trace_id="won", rewards={"team": 1.0})
    silent = replace(won, trace_id="silent", rewards={})
    told = recurring_causes(Collection(traces=[*failed, won, silent]), "")
    direct = cpt.blame(failed).causes()
    assert [(c.words, c.who, c.runs, c.example) for c in told.causes] == [(c.words, c.who, c.runs, c.trace_id) for c in direct]
    assert (told.judged, told.left_out) == (len(failed), 2)
    one = recurring_causes(Collection(traces=failed), f"id:{failed[0].trace_id}")
    assert (one.judged, len(one.causes)) == (1, 1)


def test_a_run_that_succeeded_says_so_with_a_command_and_no_bare_options() -> None:
    (note,) = blame.answer(replace(expert_chat(1), trace_id="odd name's", rewards={"team": 1.0})).notes  # type: ignore[misc]
    command = shlex.join(["counterpoint", "blame", "odd name's", "--all"])
    assert note == f"the run succeeded (team reward 1): nobody is to blame; `{command}` ranks its steps as if it had failed"
