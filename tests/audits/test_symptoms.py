"""What is wrong in one run, by what is alike in all runs: keys, names, counts, and what led to it."""

from __future__ import annotations

import random

import pytest

from audits.made import Story
from counterpoint.audits.symptoms import Symptom, cause_of, symptom_key, symptoms


def failing(story: Story, text: str, *, tool: str = "Bash", agent: str = "lead", asked: str = "go") -> str:
    call = story.add("tool_call", agent, tool=tool, text=asked)
    return story.add("tool_result", agent, reads=call, by="tool_dependency", tool=tool, ok=False, text=text, error=text)


def only(story: Story, kind: str) -> Symptom:
    (found,) = [one for one in symptoms(story.trace()) if one.kind == kind]
    return found


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("The user doesn't want to proceed with this tool use.", "refused"),
        ("This command requires approval", "approval"),
        ("File has not been read yet. Read it first before writing to it.", "unread"),
        ("String to replace not found in file.", "match"),
        ("Request was aborted.", "aborted"),
        ("API Error: 529 overloaded_error", "limit"),
        ("context deadline exceeded", "timeout"),
        ("ECONNREFUSED 127.0.0.1", "network"),
        ("MCP error -32000: Connection closed", "network"),
        ("Request failed with status code 404", "http"),
        ("bash: pnpm: command not found", "command"),
        ("ls: cannot access 'a': No such file or directory", "path"),
        ("EISDIR: illegal operation on a directory, read", "directory"),
        ("listen EPERM: operation not permitted 0.0.0.0", "rights"),
        ("f() got an unexpected keyword argument 'x'", "arguments"),
        ("SyntaxError: Unexpected token", "syntax"),
        ("AssertionError: assert 1 == 2", "tests"),
        ("ValueError: Channel does not exist!", "missing channel"),
        ("ValueError: Channel External_ not found in the channels list", "missing channel"),
        ("Error: new item 1340995114 not found or available", "missing item"),
        ("Agent type 'wizard' not found. Available agents: Explore", "missing agent type"),
        ("Subagent type not found: nobody", "missing agent type"),
        ("no such line", "missing line"),
        ("resource with id abc not found", "missing resource"),
        ("not found", "missing"),
        ("KeyError: 'User 12 does not exist'", "missing"),
        ("ValueError: No files found with the given query ('x').", "nothing"),
        ("File not found: /a/b", "path"),
        ("Tool permission request failed: ZodError: [", "asking"),
        ("The user did not allow it.", "refused"),
        ("The user cancelled it.", "aborted"),
        ("unexpected argument ''", "arguments"),
        ("Code execution failed at line 'x'", "Code execution failed at line …"),
        ("FAILED tests/test_a.py::test_b", "tests"),
        ("Exit code 1", "unsaid"),
        (None, "unsaid"),
        ("the moon is full in house 7", "the moon is full in house #"),
    ],
)
def test_a_cause_is_told_by_the_words_of_many_tools(reason: str | None, code: str) -> None:
    assert cause_of(reason)[0] == code


def test_what_is_particular_to_a_run_is_in_no_key() -> None:
    keys = set()
    for number in (7, 4711):
        story = Story(trace_id=f"run-{number}")
        failing(story, f"weird fault {number} in /home/ada/p{number}/x.py")
        found = only(story, "failure")
        keys.add((found.key, found.name))
    assert keys == {(symptom_key("failure", "Bash", "weird fault # in …"), "Bash: weird fault # in …")}


def test_what_is_missing_names_the_issue_whatever_tool_asks_for_it() -> None:
    story = Story()
    failing(story, "ValueError: Channel External not found in the channels list", tool="send_message")
    failing(story, "ValueError: Channel does not exist!", tool="read_messages")
    failing(story, "not found", tool="read_messages")
    found = {one.name: one.count for one in symptoms(story.trace()) if one.kind == "failure"}
    assert found == {"No such channel": 2, "read_messages: asks for what does not exist": 1}


def test_causes_of_the_run_are_one_issue_whatever_the_tool_and_those_of_a_tool_are_its_own() -> None:
    story = Story()
    failing(story, "The user doesn't want to proceed with this tool use.", tool="Edit")
    failing(story, "The user doesn't want to proceed with this tool use.", tool="Bash")
    failing(story, "No such file or directory", tool="Read")
    failing(story, "No such file or directory", tool="Bash")
    names = sorted(one.name for one in symptoms(story.trace()) if one.kind == "failure")
    assert names == ["A person says no to a call", "Bash: a path that is not there", "Read: a path that is not there"]
    assert [one.count for one in symptoms(story.trace()) if one.name == names[0]] == [2]


def test_a_failure_that_a_later_call_mended_is_counted_and_not_open_and_costs_the_step_that_made_it() -> None:
    story = Story(meta={"began": 1000.0})
    step = story.add("orchestrator_decision", "lead", tokens_in=100, tokens_out=20, cost_usd=0.5)
    for _ in range(2):  # both of one step
        call = story.add("tool_call", "lead", tool="Bash", reads=step, text="x")
        story.add("tool_result", "lead", reads=call, by="tool_dependency", tool="Bash", ok=False, error="No such file or directory")
    found = only(story, "failure")
    assert (found.count, found.open, found.tokens, found.cost_usd) == (2, 2, 120, 0.5)
    assert found.events == ("e3", "e5")
    call = story.add("tool_call", "lead", tool="Bash", text="y")
    story.add("tool_result", "lead", reads=call, by="tool_dependency", tool="Bash", ok=True, text="fine")
    assert (only(story, "failure").count, only(story, "failure").open) == (2, 0)


def test_a_loop_is_four_calls_alike_in_a_row_with_one_result() -> None:
    def asked(*results: str) -> list[Symptom]:
        story = Story()
        for result in results:
            call = story.add("tool_call", "lead", tool="Read", content_ref="ask")
            story.add("tool_result", "lead", reads=call, by="tool_dependency", tool="Read", ok=True, content_ref=result)
        return [one for one in symptoms(story.trace()) if one.kind == "loop"]

    assert asked("same", "same", "same") == []
    assert asked("same", "same", "other", "same", "same") == []
    (found,) = asked("same", "same", "same", "same", "same")
    assert (found.count, found.name) == (5, "Read: the same call again and again, with the same result")


def test_spawns_beyond_what_a_team_of_people_would_start_are_runaway() -> None:
    story = Story()
    for k in range(101):
        story.add("spawn", "lead", to=f"w{k}")
    assert [one.name for one in symptoms(story.trace()) if one.kind == "runaway"] == ["Runs that start more than 100 sub-agents"]
    deep = Story()
    for k in range(5):
        deep.add("spawn", f"a{k}", to=f"a{k + 1}")
    found = only(deep, "runaway")
    assert (found.count, found.events) == (1, ("e5",))


def test_a_run_that_ends_in_a_call_is_stuck() -> None:
    story = Story(system="claude_code")
    story.add("orchestrator_decision", "lead", turn=0)
    story.add("tool_call", "lead", tool="Bash", text="sleep 99999", turn=None)
    found = only(story, "stuck")
    assert (found.name, found.events) == ("Runs end while Bash has no answer", ("e2",))


def test_other_runs_change_no_key() -> None:
    """The same run gives the same symptoms whatever else is looked at before it: nothing is learnt from other runs."""
    draw = random.Random(3)
    texts = ["No such file or directory", "boom 3", "Exit code 2", "user rejected the call", "timeout after 3 s"]

    def run(k: int) -> Story:
        story = Story(trace_id=f"r{k}")
        for _ in range(draw.randrange(1, 5)):
            failing(story, draw.choice(texts), tool=draw.choice(["Bash", "Read"]))
        return story

    stories = [run(k) for k in range(20)]
    one_way = {s.trace().trace_id: symptoms(s.trace()) for s in stories}
    draw.shuffle(stories)
    assert {s.trace().trace_id: symptoms(s.trace()) for s in stories} == one_way
