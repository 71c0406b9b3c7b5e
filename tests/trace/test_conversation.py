"""Messages of a logged session are what its model had been told: by hand, and by the rules of both protocols for all samples."""

from __future__ import annotations

from typing import Any

import pytest

from counterpoint.errors import InputError, NotFound, NotIdentified
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.conversation import CONTINUE, NO_ANSWER, NO_TEXT, Conversation, conversation_at
from counterpoint.trace.replay import Delete, Force, Insert, Substitute
from counterpoint.trace.tool_signatures import tools_of
from counterpoint.trace.trace import content_ref
from counterpoint.trace.turn_edits import INSERTED, start_of
from log_chats_help import assert_chat, sample, samples


def session(*rows: tuple[Any, ...], edges: tuple[tuple[str, str, str], ...], **meta: Any) -> Trace:
    """A trace of rows (id, type, agent, text, more fields)."""
    contents: dict[str, str] = {}
    events = []
    for t, (name, kind, agent, text, more) in enumerate(rows):
        if text is not None:
            more = {"content_ref": content_ref(text), **more}
            contents[content_ref(text)] = text
        events.append(Event(id=name, t=t, type=kind, agent=agent, **more))
    links = [Edge(src, dst, kind) for src, dst, kind in edges]  # type: ignore[arg-type]
    return Trace(trace_id="s", task_id="s", events=events, edges=links, contents=contents, meta={"import": {}, **meta})


def small() -> Trace:
    return session(
        ("q", "human_intervention", "user", "Mend it.", {"to": "main", "source": "user"}),
        ("s1", "orchestrator_decision", "main", "I look.", {"turn": 0}),
        ("c1", "tool_call", "main", '{"path":"a"}', {"tool": "Read"}),
        ("c2", "tool_call", "main", None, {"tool": "Bash"}),
        ("r1", "tool_result", "main", "A", {"tool": "Read", "trusted": False}),
        ("s2", "orchestrator_decision", "main", "Done.", {"turn": 1}),
        edges=(
            ("q", "s1", "message"), ("s1", "c1", "causal"), ("s1", "c2", "causal"), ("c1", "r1", "tool_dependency"),
            ("r1", "s2", "causal"),
        ),
    )  # fmt: skip


# -- samples --------------------------------------------------------------------------------------------------------------------


def test_the_messages_at_every_event_of_every_sample_pass_the_rules_of_chats() -> None:
    built, refused = 0, 0
    for trace in samples():
        for agent in trace.agents:
            conversation = Conversation(trace, agent)
            for i in range(len(conversation.turns)):
                try:
                    messages = conversation.prompt(i)
                except NotIdentified:
                    refused += 1
                    continue
                assert_chat(messages)
                built += 1
    assert built >= 280
    assert refused <= built / 4  # pseudo-agents, and agents whose task is not in the log


def test_every_answer_of_a_sample_with_words_is_a_message_of_a_later_turn() -> None:
    trace = sample("claude_code", "0a")
    conversation = Conversation(trace, "main")
    last = conversation.prompt(len(conversation.turns) - 1)
    said = [m["content"] for m in last if m["role"] == "assistant"]
    assert said == [conversation.reply(i).text for i in range(len(conversation.turns) - 1)]
    results = [m["content"] for m in last if m["role"] == "tool"]
    assert results[:2] == ["Table orders has no index on customer.", "The page loads 4 MB of pictures."]
    assert results[4].startswith("The user doesn't want to proceed")  # a refusal answers the call
    assert last[-1]["content"].endswith("Not on the live database, please.\n\nUse migrations, never psql.")


# -- by hand -------------------------------------------------------------------------------------------------------------------


def test_messages_by_hand() -> None:
    conversation, turn = conversation_at(small(), "s2")
    assert turn == 1
    assert conversation.prompt(turn) == [
        {"role": "user", "content": "Mend it."},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "Read", "arguments": '{"path":"a"}'}},
                {"id": "c2", "type": "function", "function": {"name": "Bash", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "A"},
        {"role": "tool", "tool_call_id": "c2", "content": NO_ANSWER},
    ]
    assert conversation.notes(turn) == [
        "the trace has no system prompt: the model answers without one",
        "1 call had no answer when the agent went on; a text says so in its place",
    ]
    assert conversation_at(small(), "c2")[1] == 0  # a call is part of the answer that made it


def test_a_pending_answer_of_calls_alone_is_one_turn() -> None:
    trace = session(
        ("q", "human_intervention", "user", "Go.", {"to": "a", "source": "user"}),
        ("c1", "tool_call", "a", "{}", {"tool": "x", "tokens_out": 3}),
        ("c2", "tool_call", "a", "{}", {"tool": "y"}),
        ("r1", "tool_result", "a", "1", {"tool": "x"}),
        ("r2", "tool_result", "a", "2", {"tool": "y"}),
        ("c3", "tool_call", "a", "{}", {"tool": "z"}),
        edges=(
            ("q", "c1", "message"), ("q", "c2", "message"), ("c1", "r1", "tool_dependency"), ("c2", "r2", "tool_dependency"),
            ("r1", "c3", "causal"), ("r2", "c3", "causal"),
        ),
    )  # fmt: skip
    conversation = Conversation(trace, "a")
    assert [[e.id for e in turn.calls] for turn in conversation.turns] == [["c1", "c2"], ["c3"]]
    assert [m["role"] for m in conversation.prompt(1)] == ["user", "assistant", "tool", "tool"]


def test_a_compaction_leaves_its_summary_alone() -> None:
    rows = [
        ("q", "human_intervention", "user", "Mend it.", {"to": "main", "source": "user"}),
        ("s1", "orchestrator_decision", "main", "I look.", {"turn": 0}),
        ("m", "message", "memory", "So far: nothing.", {"source": "memory", "extra": {"is_summary": True}}),
        ("q2", "human_intervention", "user", "Go on.", {"to": "main", "source": "user"}),
        ("s2", "orchestrator_decision", "main", "Done.", {"turn": 1}),
    ]
    edges = (("q", "s1", "message"), ("m", "s2", "message"), ("q2", "s2", "message"), ("s1", "s2", "causal"))
    conversation = Conversation(session(*rows, edges=edges), "main")
    assert conversation.prompt(1) == [{"role": "user", "content": "So far: nothing.\n\nGo on."}]
    assert "the conversation begins with the summary of a compaction, as the model read it" in conversation.notes(1)
    # a client that keeps the latest words names the first of them
    rows[2] = ("m", "message", "client", "Sum.", {"source": "system", "extra": {"is_compaction": True, "kept_from": "s1"}})
    kept = Conversation(session(*rows, edges=edges), "main")
    assert [m["content"] for m in kept.prompt(1)] == ["Sum.", "I look.", "Go on."]
    # in Codex the agent's own summary stands behind what people had said
    own = ("m", "orchestrator_decision", "main", "Sum.", {"turn": 1, "extra": {"is_compaction": True}})
    edges = (("q", "s1", "message"), ("s1", "m", "causal"), ("q2", "s2", "message"), ("m", "s2", "causal"))
    codex = session(rows[0], rows[1], own, rows[3], rows[4], edges=edges)
    assert Conversation(codex, "main").prompt(2) == [{"role": "user", "content": "Sum.\n\nGo on."}]
    named = Trace(**{name: getattr(codex, name) for name in codex.__struct_fields__} | {"system": "codex"})
    assert Conversation(named, "main").prompt(2) == [{"role": "user", "content": "Mend it.\n\nSum.\n\nGo on."}]


def test_turns_that_were_taken_back_are_not_read_again() -> None:
    trace = session(
        ("q", "human_intervention", "user", "One.", {"source": "user"}),
        ("s1", "orchestrator_decision", "a", "1", {"turn": 0}),
        ("q2", "human_intervention", "user", "Two.", {"source": "user"}),
        ("s2", "orchestrator_decision", "a", "2", {"turn": 1}),
        ("b", "human_intervention", "user", "rolled back", {"source": "user", "extra": {"turns_rolled_back": 1}}),
        ("q3", "human_intervention", "user", "Three.", {"source": "user"}),
        ("s3", "orchestrator_decision", "a", "3", {"turn": 2}),
        edges=(
            ("q", "s1", "message"), ("s1", "s2", "causal"), ("q2", "s2", "message"), ("b", "s3", "message"), ("q3", "s3", "message"),
        ),
    )  # fmt: skip
    assert [m["content"] for m in Conversation(trace, "a").prompt(2)] == ["One.", "1", "Three."]


def test_two_answers_without_a_word_between_them_say_so() -> None:
    trace = session(
        ("q", "human_intervention", "user", "One.", {"source": "user"}),
        ("s1", "orchestrator_decision", "a", "1", {"turn": 0}),
        ("s2", "orchestrator_decision", "a", "2", {"turn": 1}),
        edges=(("q", "s1", "message"), ("s1", "s2", "causal")),
    )
    conversation = Conversation(trace, "a")
    assert [m["content"] for m in conversation.prompt(1)] == ["One.", "1", CONTINUE]
    assert f"nothing was heard between two answers: the user says {CONTINUE!r}" in conversation.notes(1)


def test_texts_that_are_absent_are_refused() -> None:
    whole = small()
    cut = Trace(**{n: getattr(whole, n) for n in whole.__struct_fields__} | {"contents": {}})
    with pytest.raises(NotIdentified, match="no text for"):
        Conversation(cut, "main").prompt(1)
    bare = session(("s1", "orchestrator_decision", "a", None, {"turn": 0, "tokens_out": 5}), edges=())
    with pytest.raises(NotIdentified, match="what this agent was asked is not in the log"):
        Conversation(bare, "a").prompt(0)
    quiet = Trace(**{n: getattr(whole, n) for n in whole.__struct_fields__} | {
        "events": [e if e.id != "r1" else Event(id="r1", t=4, type="tool_result", agent="main", tool="Read") for e in whole.events]
    })  # fmt: skip
    assert Conversation(quiet, "main").prompt(1)[2]["content"] == NO_TEXT  # a log of results without their texts


def test_masks_and_images_are_told() -> None:
    rows = small()
    told = Trace(**{n: getattr(rows, n) for n in rows.__struct_fields__} | {
        "contents": {**rows.contents, content_ref("A"): "key [masked:key:0001]"},
        "meta": {"import": {"lacks": {"the pixels of an image": 2}}},
    })  # fmt: skip
    notes = Conversation(told, "main").notes(1)
    assert "1 secret in the texts is masked, and the model reads the masks" in notes
    assert "2 images of this session are not in the log: the model sees none" in notes


def test_tools_are_the_logs_or_inferred() -> None:
    conversation = Conversation(small(), "main")
    functions, notes = tools_of(conversation)
    assert [f["function"]["name"] for f in functions] == ["Bash", "Read"]
    assert functions[1]["function"]["parameters"] == {
        "type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"],
    }  # fmt: skip
    assert notes == ["the definitions of 2 tools are inferred from recorded calls: tools that were offered and never called lack"]
    stated = {"name": "Read", "description": "Reads.", "input_schema": {"type": "object", "properties": {"path": {}}}}
    known = Trace(
        **{n: getattr(small(), n) for n in small().__struct_fields__} | {"meta": {"tools": [stated, "odd", {"name": "a b"}]}}
    )
    functions, notes = tools_of(Conversation(known, "main"))
    assert [(f["function"]["name"], f["function"]["description"][:6]) for f in functions] == [
        ("Read", "Reads."),
        ("Bash", "The to"),
    ]
    assert notes[1] == "the definitions of 1 tool are the log's own"


# -- edits ---------------------------------------------------------------------------------------------------------------------


def test_a_changed_result_is_read_by_the_next_turn() -> None:
    start = start_of(small(), "r1", Substitute("B"))
    assert (start.turn, start.forced) == (1, None)
    assert start.conversation.prompt(1)[2]["content"] == "B"
    assert small().contents[content_ref("A")] == "A"


def test_a_message_can_be_added_and_taken_away() -> None:
    start = start_of(small(), "s2", Insert("Be brief."))
    assert start.conversation.prompt(start.turn)[-1] == {"role": "user", "content": "Be brief."}
    assert INSERTED in start.trace.index
    trace = session(
        ("q", "human_intervention", "user", "One.", {"source": "user"}),
        ("q2", "human_intervention", "user", "Two.", {"source": "user"}),
        ("s1", "orchestrator_decision", "a", "1", {"turn": 0}),
        edges=(("q", "s1", "message"), ("q2", "s1", "message")),
    )
    start = start_of(trace, "q2", Delete())
    assert start.conversation.prompt(start.turn) == [{"role": "user", "content": "One."}]


def test_another_decision_is_taken_as_it_is_written() -> None:
    forced = start_of(small(), "s1", Force({"tool": "Bash", "arguments": {"command": "ls"}})).forced
    assert forced is not None
    assert forced.calls == (("Bash", '{"command": "ls"}'),)
    words = start_of(small(), "s1", Substitute("I run it.")).forced
    assert words is not None
    assert (words.text, words.calls) == ("I run it.", (("Read", '{"path":"a"}'), ("Bash", "{}")))
    other = start_of(small(), "c1", Substitute({"path": "b"})).forced
    assert other is not None
    assert other.calls[0] == ("Read", '{"path": "b"}')
    less = start_of(small(), "c2", Delete()).forced
    assert less is not None
    assert less.calls == (("Read", '{"path":"a"}'),)
    assert start_of(small(), "s2", Substitute()).forced is None  # drawn again: the model is asked


def test_what_cannot_be_forked_says_what_can() -> None:
    with pytest.raises(NotFound):
        start_of(small(), "nothing", None)
    with pytest.raises(InputError, match="r1 is no decision") as error:
        start_of(small(), "r1", None)
    assert "fork at s2, which read it" in str(error.value.fix)
    with pytest.raises(InputError, match="a call needs its answer"):
        start_of(small(), "r1", Delete())
    with pytest.raises(InputError, match="nothing would be left"):
        start_of(small(), "s2", Delete())
    for action in ({"spawn": 2}, {"tool": 3}, {"calls": [{"tool": "x", "arguments": "y"}]}, {"text": 4}):
        with pytest.raises(InputError):
            start_of(small(), "s1", Force(action))
    with pytest.raises(InputError, match="no words"):
        start_of(small(), "s1", Insert(" "))
