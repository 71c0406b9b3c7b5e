"""Forks of logged sessions at a scripted endpoint: the same answers part nowhere, other answers part where they differ."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import counterpoint as cpt
from chat_endpoint_help import ChatEndpoint
from counterpoint.errors import InputError, NotFound, NotIdentified
from counterpoint.lab.lm.endpoint.messages_api import as_chat, messages_of
from counterpoint.lab.lm.endpoint.messages_api import tool_of as anthropic_tool
from counterpoint.lab.lm.model import Call, Message
from counterpoint.lab.team.log_tools import RecordedAnswers, changes
from counterpoint.registry import get
from counterpoint.trace import Trace
from counterpoint.trace.activity import waiting_of
from counterpoint.trace.conversation import Conversation, is_compaction
from counterpoint.trace.naming import title_of
from log_chats_help import assert_chat, sample, samples
from logs import assert_sound

Answer = tuple[str, list[tuple[str, str]]]
FETCH = ("WebFetch", '{"prompt": "How to add an index", "url": "https://example.org/indexes"}')


def script(*answers: Answer) -> Callable[[dict[str, Any]], Answer]:
    """One answer after the other."""
    rest = iter(answers)
    return lambda asked: next(rest)


def fork(trace: Trace, at: str, answers: Iterable[Answer], do: Any = None, **more: Any) -> tuple[Any, ChatEndpoint]:
    """A fork at an endpoint that gives these answers; what was forked must be sound."""
    with ChatEndpoint(script(*answers)) as endpoint:
        found = cpt.fork(trace, at, do, model="openai:x", base_url=endpoint.url, **more)
    assert_sound(found.trace)
    return found, endpoint


@pytest.fixture(scope="module")
def checkout() -> Trace:
    """A session of Claude Code: two agents, a fetch, a command that was refused."""
    return sample("claude_code", "0a")


# -- the same answers ----------------------------------------------------------------------------------------------------------


def _in_words(conversation: Conversation) -> list[int]:
    """The turns that a model is asked for; none where the log lacks what one of them reads."""
    turns = range(len(conversation.turns))
    try:
        for i in turns:
            conversation.prompt(i)
    except NotIdentified:
        return []
    said = [i for i in turns if not is_compaction(conversation.turns[i])]
    return [i for i in said if conversation.reply(i).text or conversation.reply(i).calls]


@pytest.mark.parametrize(
    "system", ["claude-code", "codex", "gemini-cli", "opencode", "qwen-code", "pi", "kimi-code", "openhands"]
)
def test_the_same_answers_part_nowhere_and_are_asked_for_with_the_same_messages(system: str) -> None:
    count = 0
    for trace in (t for t in samples() if t.system == system):
        for agent in trace.agents:
            conversation = Conversation(trace, agent)
            turns = _in_words(conversation)
            if not turns:
                continue
            said = [(conversation.reply(i).text, list(conversation.reply(i).calls)) for i in turns]
            first = conversation.turns[turns[0]].events[0].id
            found, endpoint = fork(trace, first, said, cap={"calls": 100})
            assert found.diff.is_same, found.diff.first
            assert [r["messages"] for r in endpoint.requests] == [conversation.prompt(i) for i in turns]
            assert found.trace.meta["fork"]["calls"] == {"recorded": len(turns), "re-run": 0, "tools": 0}
            count += 1
    assert count


def test_going_along_with_the_log_ends_where_the_calls_do(checkout: Trace) -> None:
    conversation = Conversation(checkout, "main")
    said = [(conversation.reply(i).text, list(conversation.reply(i).calls)) for i in range(2)]
    found, _ = fork(checkout, "msg_a1", said, cap={"calls": 2})
    assert found.trace.meta["fork"]["ended"] == "the calls that were allowed are made"
    assert found.diff.first is not None
    assert found.diff.first.event.a == "msg_a3"  # the third answer is not asked for
    assert found.diff.changed == ()


# -- other answers -------------------------------------------------------------------------------------------------------------


def test_other_words_part_there_and_equal_calls_are_answered_by_the_recording(checkout: Trace) -> None:
    found, endpoint = fork(checkout, "msg_a2", [("Let me read.", [FETCH]), ("Not without you.", [])])
    first = found.diff.first
    assert first is not None
    assert (first.event.a, first.text_b) == ("msg_a2", "Let me read.")
    about = found.trace.meta["fork"]
    assert about["answers"] == {"recording": 1}
    assert about["ended"] == "the agent called nothing more"
    last = endpoint.requests[-1]["messages"]
    assert_chat(last)
    assert last[-1] == {
        "role": "tool",
        "tool_call_id": "toolu_a4",
        "content": checkout.contents[_ref(checkout, "toolu_a4:result")],
    }
    assert (found.trace.meta["parent"], found.trace.meta["forked_from"]) == (checkout.trace_id, checkout.trace_id)
    badges = {e.id: (e.extra or {})["badge"] for e in found.trace.events}
    assert (badges["a-001"], badges["toolu_a4"], badges["toolu_a4:result"]) == ("reused", "recorded", "recorded")
    step = next(e for e in found.trace.events if e.id.startswith("fork_step"))
    assert (step.model, step.tokens_in, step.tokens_out, badges[step.id]) == ("x", 100, 10, "re-run")
    assert {"fork_step1", "toolu_a4"} <= {e.id for e in found.trace.events}
    assert ("fork_step1", "toolu_a4", "causal") in {(e.src, e.dst, e.type) for e in found.trace.edges}
    assert checkout.rewards == found.trace.rewards == {}


def test_a_call_that_nobody_answers_ends_the_fork(checkout: Trace) -> None:
    found, endpoint = fork(checkout, "msg_a2", [("", [("Bash", '{"command": "ls"}'), FETCH])])
    about = found.trace.meta["fork"]
    assert about["held"] == ["Bash", "WebFetch"]  # the fetch was recorded without a command before it
    assert about["ended"].startswith("nobody answers WebFetch: the recording has no equal call in the same state")
    assert len(endpoint.requests) == 1
    assert waiting_of(found.trace) == ()  # it is over
    assert title_of(found.trace) == f"fork at msg_a2: {title_of(checkout)}"


def test_what_is_read_again_in_the_same_state_is_answered_again() -> None:
    again = [("Once more.", [("Read", '{"path": "a"}'), ("Read", '{"path": "a"}')]), ("Done.", [])]
    found, endpoint = fork(_reads_and_commands(), "c0", again)
    assert [m["content"] for m in endpoint.requests[1]["messages"][-2:]] == ["Read a", "Read a"]
    results = [e for e in found.trace.events if e.type == "tool_result"]
    assert [(e.extra or {}).get("answered_by") for e in results] == [None, "the recording, of an equal read"]
    assert found.trace.meta["fork"]["answers"] == {"recording": 2}


def test_a_spawn_that_is_equal_brings_what_its_agent_did(checkout: Trace) -> None:
    task = {"subagent_type": "Explore", "prompt": "Find slow queries in /repo/shop/db.", "description": "Look at the queries"}
    found, endpoint = fork(checkout, "msg_a1", [("One is enough.", [("Agent", json.dumps(task))]), ("It is the index.", [])])
    ids = [e.id for e in found.trace.events]
    assert ids == ["a-001", "fork_step1", "toolu_a1", "toolu_b1", "toolu_b1:result", "msg_b2", ids[-1]]
    assert endpoint.requests[1]["messages"][-1]["content"] == "Table orders has no index on customer."
    assert (found.trace.events[5].id, ids[-1], "return") in {(e.src, e.dst, e.type) for e in found.trace.edges}


def test_a_guess_is_marked_and_not_trusted(checkout: Trace) -> None:
    answers = [("", [("Bash", '{"command": "ls"}')]), ("a.sql b.sql", []), ("Two files.", [])]
    found, endpoint = fork(checkout, "msg_a2", answers, tools="model")
    result = next(e for e in found.trace.events if e.type == "tool_result" and (e.extra or {}).get("answered_by"))
    assert result.trusted is False
    assert (result.extra or {})["answered_by"] == "openai:x (a guess)"
    assert (result.extra or {})["badge"] == "simulated"
    assert found.trace.text(result) == "a.sql b.sql"
    asked = endpoint.requests[1]["messages"][1]["content"]
    assert '"command"' in asked
    assert "psql" not in asked  # the only recorded command was refused: its answer is no example
    assert endpoint.requests[2]["messages"][-1]["content"] == "a.sql b.sql"


def test_the_sandbox_runs_programs_and_nothing_else(checkout: Trace) -> None:
    pytest.importorskip("counterpoint.lab.team.tools.python")
    answers = [("", [("python", '{"code": "print(6 * 7)"}')]), ("", [("Bash", '{"command": "ls"}')])]
    found, endpoint = fork(checkout, "msg_a2", answers, tools="python")
    about = found.trace.meta["fork"]
    assert about["answers"] == {"recording": 0, "the tool python in the sandbox": 1}
    assert endpoint.requests[1]["messages"][-1]["content"].strip() == "42"
    assert (about["held"], about["tools"]) == (["Bash"], "python")
    assert about["ended"].endswith("and python is another tool")


def test_edits_reach_the_model(checkout: Trace) -> None:
    found, endpoint = fork(checkout, "toolu_a4:result", [("I stop.", [])], cpt.Substitute("Nothing is there."))
    assert endpoint.requests[0]["messages"][-1]["content"] == "Nothing is there."
    first = found.diff.first
    assert first is not None
    assert (first.event.a, first.text_b) == ("toolu_a4:result", "Nothing is there.")
    _, endpoint = fork(checkout, "msg_a4", [("Yes.", [])], cpt.Insert("Ask before you write."))
    assert endpoint.requests[0]["messages"][-1]["content"].endswith("Use migrations, never psql.\n\nAsk before you write.")
    found, endpoint = fork(checkout, "msg_a2", [("Read.", [])], cpt.Force({"tool": FETCH[0], "arguments": json.loads(FETCH[1])}))
    assert len(endpoint.requests) == 1  # the first answer is the edit's
    assert endpoint.requests[0]["messages"][-1]["tool_call_id"] == "toolu_a4"
    step = next(e for e in found.trace.events if e.id == "fork_step1")
    assert (step.model, (step.extra or {})["edited"]) == (None, True)


# -- when a recorded answer holds ----------------------------------------------------------------------------------------------


def test_a_recorded_answer_holds_only_in_the_state_in_which_it_was_given() -> None:
    """Recorded: Read a, Bash x, Read b, Bash y. By the rule, m is [x] before Read b and before Bash y."""
    conversation = Conversation(_reads_and_commands(), "main")
    read = lambda path: ("Read", json.dumps({"path": path}))  # noqa: E731
    bash = lambda command: ("Bash", json.dumps({"command": command}))  # noqa: E731

    def taken(*calls: tuple[str, str]) -> list[str | None]:
        answers = RecordedAnswers(conversation, 0, 0)
        return [None if (event := answers.take(*call)) is None else event.id for call in calls]

    assert taken(read("a"), bash("x"), read("b"), bash("y")) == ["c0", "c1", "c2", "c3"]
    assert taken(bash("x"), read("b")) == ["c1", "c2"]  # a read less
    assert taken(read("new"), read("a"), bash("x"), bash("y"), read("b")) == [None, "c0", "c1", "c3", None]
    assert taken(read("b")) == [None]  # before x, the file may be another
    assert taken(bash("y"), bash("x")) == [None, None]
    assert taken(bash("z"), read("a")) == [None, None]
    assert taken(read("a"), read("a")) == ["c0", None]  # given once
    answers = RecordedAnswers(conversation, 0, 2)  # the recording has gone on to Read b, after Bash x
    assert (answers.take(*read("a")), answers.again(*read("a"))) == (None, None)  # read before x, which may have changed it
    assert answers.take(*read("b")).id == "c2"  # type: ignore[union-attr]
    assert (answers.take(*read("b")), answers.again(*read("b")).id) == (None, "r2")  # type: ignore[union-attr]
    assert answers.again(*bash("x")) is None
    assert changes("Bash")
    assert not changes("read_file")


def _reads_and_commands() -> Trace:
    calls = [("Read", "a", "path"), ("Bash", "x", "command"), ("Read", "b", "path"), ("Bash", "y", "command")]
    contents: dict[str, str] = {"q": "Go."}
    events = [cpt.Event(id="q", t=0, type="human_intervention", agent="user", to="main", content_ref="q", source="user")]
    edges = [cpt.Edge("q", "c0", "message")]
    for k, (tool, value, name) in enumerate(calls):
        contents |= {f"c{k}": json.dumps({name: value}), f"r{k}": f"{tool} {value}"}
        events.append(cpt.Event(id=f"c{k}", t=2 * k + 1, type="tool_call", agent="main", tool=tool, content_ref=f"c{k}"))
        events.append(cpt.Event(id=f"r{k}", t=2 * k + 2, type="tool_result", agent="main", tool=tool, content_ref=f"r{k}"))
        edges += [cpt.Edge(f"c{k}", f"r{k}", "tool_dependency")]
        edges += [cpt.Edge(f"r{k}", f"c{k + 1}", "causal")] if k < 3 else []
    return cpt.Trace(trace_id="t", task_id="t", events=events, edges=edges, contents=contents, meta={"import": {}})


# -- errors --------------------------------------------------------------------------------------------------------------------


def test_what_does_not_work_is_one_clear_error(checkout: Trace) -> None:
    with pytest.raises(NotIdentified, match="nothing says how this team would have continued") as error:
        cpt.fork(checkout, "msg_a2")
    assert "--model openai:NAME" in str(error.value.fix)
    with pytest.raises(InputError, match="is no decision"):
        cpt.fork(checkout, "toolu_a4:result", model="openai:x", base_url="http://127.0.0.1:9/v1")
    with pytest.raises(InputError, match="no score"):
        cpt.fork(checkout, "msg_a2", cpt.Delete(), samples=2, model="openai:x", base_url="http://127.0.0.1:9/v1")
    with pytest.raises(NotFound, match="no tool named 'bash'"):
        fork(checkout, "msg_a2", [], tools="bash")
    with pytest.raises(InputError, match="no limit"):
        fork(checkout, "msg_a2", [], cap={"dollars": 1})
    with pytest.raises(InputError, match="no logged session"):
        cpt.fork(checkout, "msg_a2", model="fake")
    with pytest.raises(cpt.CounterpointError, match="budget") as spent:
        fork(checkout, "msg_a2", [], cap={"tokens": 10})
    assert spent.value.exit_code == 5


@pytest.mark.parametrize(
    ("status", "said", "kind"),
    [
        (400, "This model's maximum context length is 8192 tokens. Please reduce the length.", "longer than the model's context"),
        (404, "no such model", "the endpoint refused the request"),
    ],
)
def test_an_endpoint_that_refuses_is_told_as_it_said_it(checkout: Trace, status: int, said: str, kind: str) -> None:
    refusal = (status, {"error": {"message": said}})
    with ChatEndpoint(script(), refusal=refusal) as endpoint, pytest.raises(cpt.CounterpointError, match=kind):
        cpt.fork(checkout, "msg_a2", model="openai:x", base_url=endpoint.url)


def test_an_endpoint_that_fails_on_the_way_ends_the_fork_and_keeps_what_came(checkout: Trace) -> None:
    answers = iter([("Let me read.", [FETCH])])

    def once(asked: dict[str, Any]) -> Answer:
        found = next(answers, None)
        return found if found is not None else ("", [])  # an answer of nothing fails

    with ChatEndpoint(once) as endpoint:
        model = get("model", "openai")("x", base_url=endpoint.url, retries=0)
        found = cpt.fork(checkout, "msg_a2", model=model)
    assert "the answer is empty" in found.trace.meta["failed"]
    assert found.trace.events[-1].id == "toolu_a4:result"


# -- Anthropic -----------------------------------------------------------------------------------------------------------------


def assert_anthropic(messages: list[dict[str, Any]]) -> None:
    """The Messages API's rules: turns, and every use answered at the head of the next message."""
    _, told = messages_of(messages)
    assert [m["role"] for m in told] == ["user", "assistant"] * (len(told) // 2) + ["user"]
    for message, after in zip(told, [*told[1:], None], strict=True):
        assert message["content"]
        uses = [b["id"] for b in message["content"] if b["type"] == "tool_use"]
        assert all(b["text"].strip() for b in message["content"] if b["type"] == "text")
        if uses:
            assert after is not None
            assert [b.get("tool_use_id") for b in after["content"][: len(uses)]] == uses
            assert all(b["type"] == "text" for b in after["content"][len(uses) :])


def test_the_messages_at_every_event_of_every_sample_pass_the_rules_of_anthropic() -> None:
    built = 0
    for trace in samples():
        for conversation in (Conversation(trace, agent) for agent in trace.agents):
            for i in range(len(conversation.turns)):
                try:
                    messages = conversation.prompt(i)
                except NotIdentified:
                    continue
                assert_anthropic(messages)
                built += 1
    assert built >= 280


def test_an_endpoint_of_anthropic_is_asked_in_its_own_form(checkout: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_KEY", "k-123")
    with ChatEndpoint(script(("Let me read.", [FETCH]), ("Done.", []))) as endpoint:
        found = cpt.fork(checkout, "msg_a2", model="anthropic:c", base_url=endpoint.url, key_env="LAB_KEY")
    assert endpoint.paths == ["/v1/messages"] * 2
    assert endpoint.headers[0]["x-api-key"] == "k-123"
    assert "authorization" not in endpoint.headers[0]
    asked = endpoint.requests[1]
    assert [t["name"] for t in asked["tools"]] == ["Agent", "Bash", "WebFetch"]
    assert asked["messages"][-2]["content"][0] == {"type": "text", "text": "Let me read."}
    assert asked["messages"][-1]["content"][0]["tool_use_id"] == "toolu_a4"
    assert asked["max_tokens"] == 4096
    assert found.trace.meta["fork"]["answers"] == {"recording": 1}
    step = next(e for e in found.trace.events if e.id == "fork_step1")
    assert (step.model, step.tokens_in, step.tokens_out) == ("c", 105, 10)  # cached tokens are read, too


def test_the_forms_of_anthropic_by_hand() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "Read", "arguments": '{"path": "a"}'}}
    system, told = messages_of(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Go."},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": ""},
            {"role": "user", "content": "And?"},
        ]
    )
    assert system == "Be brief."
    assert told == [
        {"role": "user", "content": [{"type": "text", "text": "Go."}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "Read", "input": {"path": "a"}}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "(no output)"},
                {"type": "text", "text": "And?"},
            ],
        },
    ]
    tool = {"type": "function", "function": {"name": "Read", "description": "Reads.", "parameters": {"type": "object"}}}
    assert anthropic_tool(tool) == {"name": "Read", "description": "Reads.", "input_schema": {"type": "object"}}
    chat = as_chat({"content": [{"type": "text", "text": "a"}], "stop_reason": "max_tokens", "usage": {"input_tokens": 3}})
    assert chat["choices"][0]["finish_reason"] == "length"
    assert chat["usage"] == {"prompt_tokens": 3, "completion_tokens": None}


def test_a_model_of_anthropic_answers_as_any_other() -> None:
    with ChatEndpoint(script(("Forty-two.", []))) as endpoint:
        model = get("model", "anthropic")("c", base_url=endpoint.url.removesuffix("/v1"))
        answer = asyncio.run(model.complete(Call(messages=(Message("user", "6 x 7?"),), seed=3, stop=("\n", "###"))))
    assert (model.name, answer.text, answer.finish) == ("anthropic:c", "Forty-two.", "stop")
    assert "seed" not in endpoint.requests[0]
    assert endpoint.requests[0]["stop_sequences"] == ["###"]
    with pytest.raises(InputError, match="no option 'heat'"):
        get("model", "anthropic")("c", heat=1)


def _ref(trace: Trace, event: str) -> str:
    return str(trace.events[trace.index[event]].content_ref)


def test_the_projects_own_endpoint_answers_a_logged_session(checkout: Trace, tmp_path: Any) -> None:
    """A tiny random model reads the whole conversation, calls and results in it, and says something that no log says."""
    pytest.importorskip("torch")
    from serving_help import served
    from tiny_help import make_tiny

    folder = make_tiny(tmp_path / "tiny", context=8192, texts=("Add the index on customer. The page is slow.",))
    with served(folder) as end:
        found = cpt.fork(checkout, "msg_a4", model="openai:tiny", base_url=end.url, cap={"calls": 1})
    with served(make_tiny(tmp_path / "small", context=512)) as end, pytest.raises(NotIdentified, match="longer than the model's"):
        cpt.fork(checkout, "msg_a4", model="openai:tiny", base_url=end.url, cap={"calls": 1})
    assert_sound(found.trace)
    about = found.trace.meta["fork"]
    assert about["calls"] == {"recorded": 0, "re-run": 1, "tools": 0}
    assert found.diff.first is not None
    assert found.diff.first.event.a == "msg_a4"
    step = next(e for e in found.trace.events if e.id == "fork_step1")
    assert step.tokens_in is not None
    assert step.tokens_in > 400
