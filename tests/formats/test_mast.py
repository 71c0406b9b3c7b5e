"""MAST: the conversation, and each failure mode as a number under its own name."""

from __future__ import annotations

import json
from typing import Any

import pytest

import logs
from counterpoint.errors import InputError
from counterpoint.formats.mast import mast
from counterpoint.trace import Trace

PATH = logs.SAMPLES / "mast" / "7a1c_human.json"


def read(**run: Any) -> Trace:
    base = {"instance_id": "i", "problem_statement": "p", "trajectory": [{"content": ["x"], "role": "user", "name": "A"}], "note": {}}
    (trace,) = logs.imported("mast", {"i_human.json": json.dumps({**base, **run}).encode()})
    return trace


def test_the_sample() -> None:
    (trace,) = logs.imported("mast", logs.files_of(logs.SAMPLES / "mast"))
    assert (trace.trace_id, trace.task_id, trace.rewards) == ("mast/7a1c", "7a1c", {"team": 0.0})
    assert [(e.id, e.type, e.agent, trace.text(e)) for e in trace.events] == [
        ("task", "human_intervention", "user", "A box holds 12 eggs.\nHow many eggs are in 3 boxes?"),
        ("s0", "message", "mathproxyagent", "Let us solve a problem.\nHow many eggs are in 3 boxes of 12?"),
        ("s1", "message", "assistant", "12 + 3 = 15"),
        ("s2", "message", "mathproxyagent", "Go on until the query is solved."),
        ("s3", "message", "assistant", "\\boxed{15}"),
    ]
    assert {(e.src, e.type) for e in trace.edges if e.dst == "s3"} == {("s2", "message"), ("s1", "causal")}
    assert trace.metrics == {
        "failure: No attempt to verify outcome": 1.0,
        "failure: Step repetition": 0.0,
        "failure: Trajectory restart": 0.0,
    }
    assert trace.meta["import"]["lacks"]["a yes or no to some failure modes"] == 1
    assert trace.meta["labels"]["note"] == ["adds where it should multiply"]
    assert trace.meta["labels"]["other_data"]["answer"] == "36"


def test_answers_of_any_case() -> None:
    trace = read(note={"options": {"a": " Yes", "b": "NO", "c": True, "d": None, "e": 7}})
    assert trace.metrics == {"failure: a": 1.0, "failure: b": 0.0, "failure: c": 1.0}


def test_what_is_not_labelled_is_absent() -> None:
    trace = read(note=None, other_data={"correct": "yes"})
    assert (trace.metrics, trace.rewards, trace.meta["labels"]) == (None, {}, {"other_data": {"correct": "yes"}})


def test_a_speaker_without_a_name_goes_by_its_role() -> None:
    trace = read(trajectory=[{"content": "x", "role": "Planner"}, {"content": None}, 5])
    assert [e.agent for e in trace.events] == ["user", "Planner", "unnamed", "unnamed"]


def test_more_turns_keep_the_ids() -> None:
    whole = json.loads(PATH.read_bytes())
    full = [e.id for e in read(**whole).events]
    for n in range(1, len(whole["trajectory"])):
        part = [e.id for e in read(**{**whole, "trajectory": whole["trajectory"][:n]}).events]
        assert part == full[: n + 1]


@pytest.mark.parametrize("head", [b"", b"{", b'{"a":1}', b'{"instance_id": 1}', b'{"x": {"instance_id": 1, "problem_statement": 2, "trajectory": []}}'])
def test_other_files_are_not_taken(head: bytes) -> None:
    assert mast.sniff(head) is False
    assert mast.read is not None
    with pytest.raises(InputError):
        list(mast.read(head))


def test_a_run_without_a_trajectory_is_refused() -> None:
    assert mast.read is not None
    with pytest.raises(InputError, match="holds no session"):
        list(mast.read(b'{"instance_id": "i", "problem_statement": "p", "trajectory": null}'))


# -- logs of the systems ---------------------------------------------------------------------------------------------------

HYPER = """\
HyperAgent_x__y-1 - INFO - Initialized HyperAgent instance
HyperAgent_x__y-1 - INFO - Planner's Response: Thought: look first.
More of the thought.

Intern Name: Codebase Navigator
HyperAgent_x__y-1 - INFO - Inner-Navigator-Assistant's Response: ```python
find()
```
HyperAgent_x__y-1 - INFO - Navigator->Planner: It is in a.py.
"""
CHATDEV = """\
[2025-17-01 11:36:40 INFO] **[Preprocessing]**

**task_prompt**: Write a game of chess.

[2025-17-01 11:36:42 INFO] HTTP Request: POST https://example.org "HTTP/1.1 200 OK"
[2025-17-01 11:36:43 INFO] **[OpenAI_Usage_Info Receive]**
prompt_tokens: 100
completion_tokens: 20
[2025-17-01 11:36:46 INFO] Chief Product Officer: **Chief Product Officer<->Chief Executive Officer on : DemandAnalysis, turn 0**

A desktop program.
[2025-17-01 11:36:50 INFO] Chief Executive Officer: **Chief Product Officer<->Chief Executive Officer on : DemandAnalysis, turn 0**

<INFO> Application
"""
METAGPT = """\
=== MetaGPT Agent Communication Log - 2025-01-17 ===

[2025-01-17 13:37:24] FROM: Human TO: {'<all>'}
ACTION: metagpt.actions.add_requirement.UserRequirement
CONTENT:
write a poem
--------------------------------------------------------------------------------

[2025-01-17 13:37:30] NEW MESSAGES:

SimpleCoder:
def poem(): ...
--------------------------------------------------------------------------------

[2025-01-17 13:37:35] NEW MESSAGES:

SimpleTester:
assert poem()
--------------------------------------------------------------------------------
"""
LOGGER = """\
2025-01-17 13:37:24.100 | INFO     | metagpt.const:get_metagpt_root:15 - Package root set to /x
2025-01-17 13:37:26.100 | INFO     | metagpt.roles.role:_act:391 - Alice(SimpleCoder): to do SimpleWriteCode
def poem(): ...
2025-01-17 13:37:30.100 | INFO     | metagpt.roles.role:_act:391 - Bob(SimpleTester): to do SimpleWriteTest
"""
MANUS = """\
2025-03-22 22:23:06.548 | INFO     | app.agent.base:run:137 - Executing step 1/30
2025-03-22 22:23:09.000 | INFO     | app.agent.toolcall:think:53 - ✨ Manus's thoughts: I will run code.
2025-03-22 22:23:09.100 | INFO     | app.agent.toolcall:execute_tool:140 - 🔧 Activating tool: 'python_execute'...
2025-03-22 22:23:10.000 | INFO     | app.agent.toolcall:act:150 - 🎯 Tool 'python_execute' completed its mission! Result: Observed output:
42
"""
APPWORLD = """\
******************** Task 1/1 (82e2fac_1) ********************
What is the title of the most-liked song?
Response from Supervisor Agent
I ask Spotify.
Message to Spotify Agent
Which song is most liked?
Entering Spotify Agent message loop
Response from Spotify Agent
print(apis.spotify.show())
Code Execution Output
["a song"]
Reply from Spotify Agent to Supervisor
It is "a song".
Exiting Spotify Agent message loop
Message to Supervisor Agent
It is "a song".
"""
AG2_OUTLINE = """\
instance_id: 3
trajectory:
  content: Solve 2 + 2.
  role: assistant
  name: mathproxyagent
  content: It is
   4.
  role: user
  name: assistant
"""
SAID = {
    "hyperagent": (HYPER, [("Planner", None), ("Inner-Navigator-Assistant", None), ("Navigator", "Planner")]),
    "chatdev": (CHATDEV, [("Chief Product Officer", "Chief Executive Officer"), ("Chief Executive Officer", "Chief Product Officer")]),
    "metagpt": (METAGPT, [("human", None), ("SimpleCoder", None), ("SimpleTester", None)]),
    "metagpt logger": (LOGGER, [("SimpleCoder", None), ("SimpleTester", None)]),
    "openmanus": (MANUS, [("Manus", None), ("Manus", None)]),
    "appworld": (APPWORLD, [("Supervisor", None), ("Supervisor", "Spotify"), ("Spotify", None), ("Spotify", None), ("Spotify", "Supervisor")]),
    "ag2": (AG2_OUTLINE, [("mathproxyagent", None), ("assistant", None)]),
}


def speakers(trace: Trace) -> list[tuple[str, str | None]]:
    return [(e.agent, e.to) for e in trace.events if e.id != "task" and not e.id.endswith(":call")]


@pytest.mark.parametrize("name", SAID)
@pytest.mark.parametrize("shape", ["file", "text", "lines", "row", "nested row"])
def test_every_system_is_read_by_its_speakers(name: str, shape: str) -> None:
    text, wanted = SAID[name]
    if shape == "file" and name == "ag2":
        pytest.skip("the outline stands in rows alone")
    rows = {
        "text": {"instance_id": "i", "problem_statement": "", "trajectory": text},
        "lines": {"instance_id": "i", "problem_statement": "", "trajectory": text.split("\n")},
        "row": {"mas_name": name, "trace_id": 3, "trace": text, "annotations": [{"failure mode": "1.1 Odd\n\nlong", "annotator_1": True, "annotator_2": False}]},
        "nested row": {"mas_name": name, "llm_name": "gpt-4o", "trace_id": 3, "trace": {"key": "k", "trajectory": text}, "mast_annotation": {"1.1": 1, "1.2": 0}},
    }  # fmt: skip
    data = text.encode() if shape == "file" else json.dumps([rows[shape]]).encode()
    (trace,) = logs.imported("mast", {"log.txt": data})
    assert speakers(trace) == wanted
    if shape == "row":
        assert trace.metrics == {"failure: 1.1 Odd": 0.5}
    if shape == "nested row":
        assert (trace.metrics, trace.meta["models"]) == ({"failure: 1.1": 1.0, "failure: 1.2": 0.0}, ["gpt-4o"])


def test_what_the_logs_say_beside_the_words() -> None:
    (chatdev,) = logs.imported("mast", {"a.log": CHATDEV.encode()})
    assert (chatdev.tokens, chatdev.meta["title"], chatdev.costs["wall_clock_s"]) == (120, "Write a game of chess.", 4.0)
    assert (chatdev.events[-1].at, chatdev.events[-1].dur) == (1737113806.0, 4.0)  # the day stands before the month
    (manus,) = logs.imported("mast", {"a.log": MANUS.encode()})
    assert [(e.type, e.tool) for e in manus.events] == [("message", None), ("tool_call", "python_execute"), ("tool_result", "python_execute")]
    (hyper,) = logs.imported("mast", {"a.log": HYPER.encode()})
    assert hyper.meta["left_out"] == {"line of the program": 1}
    assert "More of the thought." in (hyper.text(hyper.events[0]) or "")


def test_a_console_inside_a_row_and_a_text_of_nobody_we_know() -> None:
    console = "---------- user ----------\nGo.\n---------- MagenticOneOrchestrator ----------\nPlan.\n---------- WebSurfer ----------\nPage.\n"
    (trace,) = logs.imported("mast", {"x.json": json.dumps([{"mas_name": "Magentic", "trace_id": 1, "trace": console}]).encode()})
    assert sorted(trace.members) == ["MagenticOneOrchestrator", "WebSurfer"]
    (odd,) = logs.imported("mast", {"x.json": json.dumps([{"mas_name": "New", "trace_id": 1, "trace": "words"}]).encode()})
    assert odd.meta["import"]["unknown"] == {"a log of a system we do not know: kept as one message": 1}


# -- tokens that a program tells on lines of their own, and documents that quote logs


def manus_line(at: int, text: str, where: str = "app.agent.toolcall:think:53") -> str:
    return f"2025-03-22 22:23:{at:02}.000 | INFO     | {where} - {text}\n"


def manus_usage(read: int, wrote: int | None, total: int) -> str:
    if wrote is None:  # as older versions wrote it
        return f"Token usage: Input={read}, Cumulative Input={total}"
    rest = f"Cumulative Input={total}, Cumulative Completion={wrote}, Total={read + wrote}, Cumulative Total={total}"
    return f"Token usage: Input={read}, Completion={wrote}, {rest}"


@pytest.mark.parametrize("shape", ["file", "row"])
def test_openmanus_states_its_tokens_per_call(shape: str) -> None:
    llm = "app.llm:update_token_count:250"
    text = (
        manus_line(1, "Executing step 1/30", "app.agent.base:run:137")
        + manus_line(2, manus_usage(1000, 50, 1000), llm)
        + manus_line(3, "\u2728 Manus's thoughts: I will look.")
        + manus_line(4, manus_usage(300, 20, 1300), llm)  # a tool that calls the model itself
        + manus_line(5, "\U0001f3af Tool 'browser_use' completed its mission! Result: a page", "app.agent.toolcall:act:150")
        + manus_line(6, manus_usage(2000, None, 3300), llm)
        + manus_line(7, "Estimated completion tokens for streaming response: 70", "app.llm:ask:300")
        + manus_line(8, "\u2728 Manus's thoughts: Found it.")
        + manus_line(9, manus_usage(10, 5, 3310), llm)
    )
    row = {"mas_name": "OpenManus", "trace_id": 3, "trace": {"trajectory": text}}
    (trace,) = logs.imported("mast", {"log.txt": text.encode() if shape == "file" else json.dumps([row]).encode()})
    said = [(e.tokens_in, e.tokens_out) for e in trace.events if e.tokens_in is not None]
    assert said == [(1000, 50), (300 + 2000 + 10, 20 + 70 + 5)]
    assert trace.costs["tokens"] == 1050 + 320 + 2070 + 15
    assert "tokens" not in trace.meta["import"].get("lacks", {})


def test_metagpts_logger_states_its_tokens_after_the_role() -> None:
    cost = "Total running cost: $0.020 | Max budget: $3.000 | Current cost: $0.013, prompt_tokens: 342, completion_tokens: 98"
    line = f"2025-01-17 13:37:28.100 | INFO     | metagpt.utils.cost_manager:update_cost:57 - {cost}\n"
    (trace,) = logs.imported("mast", {"log.txt": (LOGGER + line).encode()})
    assert [(e.agent, e.tokens_in, e.tokens_out) for e in trace.events if e.tokens_in] == [("SimpleTester", 342, 98)]


@pytest.mark.parametrize("name", sorted(SAID))
def test_a_document_that_quotes_a_log_is_no_log(name: str) -> None:
    text = SAID[name][0]
    definition = "1.1 Disobey Task Specification: \nThis error occurs when an agent fails to adhere to constraints of the task.\n\n"
    long = "A paragraph of a paper that goes on about agents. " * 6
    for document in (definition + text, f"# Failures\n\nExamples.\n\n{text}", f"{long.strip()}\n{text}"):
        assert not mast.sniff(document.encode()), "it begins with a title or a paragraph, and quotes a log below"
    if name != "ag2":
        assert mast.sniff(("/usr/lib/x.py:3: UserWarning: old\n\n" + text).encode()), "what a program prints before is no document"
