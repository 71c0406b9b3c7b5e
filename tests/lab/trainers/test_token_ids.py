"""Rows of a person's own team: told ids as they were told, others made again with the tokenizer that is named, all of it counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from counterpoint import Trace, record
from counterpoint.lab.lm.chat import CHATML, Chat
from counterpoint.lab.trainers.token_ids import tokenized
from counterpoint.trace.model_calls import model_call, prompt_ids_of

Ends = Callable[..., tuple[int, str, str]]
TOOLS = [{"type": "function", "function": {"name": "look", "description": "Read", "parameters": {"type": "object"}}}]
WITH_TOOLS = (
    "{% if tools %}<|im_start|>tools\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}"
    "{% for c in m['tool_calls'] or [] %}<call>{{ c['function'] | tojson }}</call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """Bytes as tokens, and a template without and one with a form for tools."""
    for package in ("tokenizers", "jinja2"):
        pytest.importorskip(package)
    for name, template in (("plain", CHATML), ("tools", WITH_TOOLS)):
        chat = Chat.bytes()
        Chat(chat.tokenizer, template=template, ends=chat.ends, names={"eos_token": "<|im_end|>"}).save(tmp_path / name)
    return tmp_path


def answer(text: str, *, logps: bool = False, finish: str = "stop", **more: Any) -> dict[str, Any]:
    rows = [{"token": c, "logprob": -0.1 * (i + 1), "bytes": list(c.encode())} for i, c in enumerate(text)]
    choice = {"message": {"role": "assistant", "content": text, **more}, "finish_reason": finish}
    return {"choices": [choice | ({"logprobs": {"content": rows}} if logps else {})], "model": "gpt-own"}


def recorded(folder: Path, *said: dict[str, Any], asked: Any = None, tools: Any = None, earned: float = 1.0) -> Trace:
    rec = record(folder / "own", task="own", agent="lead")
    asked = asked or [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi <|im_end|>"}]
    with rec:
        for one in said:
            with rec.model_call("gpt-own", messages=asked, **({"tools": tools} if tools else {})) as step:
                step.result(one)
        rec.reward(team=earned)
    assert rec.problems == []
    assert rec.trace is not None
    return rec.trace


def read(trace: Trace, folder: Path) -> list[tuple[str, str]]:
    """Prompts and answers of a trace as the tokenizer writes them."""
    chat, prompts = Chat.read(folder), prompt_ids_of(trace)
    notes = [(e.id, model_call(e) or {}) for e in trace.events if "call" in (e.extra or {})]
    return [tuple(chat.tokenizer.decode(list(ids), skip_special_tokens=False) for ids in (prompts[i], note["token_ids"]))  # type: ignore[misc]
            for i, note in notes if "token_ids" in note]  # fmt: skip


def test_ids_are_those_of_the_template_and_log_probabilities_stay_at_their_tokens(tmp_path: Path, tokenizer: Path) -> None:
    said = [answer("so", logps=True), answer("Hé", logps=True), answer("cut", finish="length"), answer("done")]
    done = tokenized([recorded(tmp_path, *said)], str(tokenizer / "plain"))
    assert (done.made, done.with_logps, dict(done.without)) == (4, 1, {})
    prompt = "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nhi < |im_end|><|im_end|>\n<|im_start|>assistant\n"
    rows = read(done.traces[0], tokenizer / "plain")
    assert [p for p, _ in rows] == [prompt] * 4  # what a text spells does not steer
    assert [a for _, a in rows] == ["so", "Hé<|im_end|>", "cut", "done<|im_end|>"]
    notes = [model_call(e) or {} for e in done.traces[0].events if "call" in (e.extra or {})]
    assert [note.get("logps") for note in notes] == [[-0.1, -0.2], None, None, None]  # é is one token there, and two here
    assert done.line() == "token ids of 4 calls made again with plain, 1 of them with the log-probabilities that were recorded"


def test_an_end_that_the_server_told_is_the_tokenizers(tmp_path: Path, tokenizer: Path) -> None:
    told = answer("so", logps=True)
    told["choices"][0]["logprobs"]["content"].append({"token": "<|im_end|>", "logprob": -3.0, "bytes": None})
    done = tokenized([recorded(tmp_path, told)], str(tokenizer / "plain"))
    assert read(done.traces[0], tokenizer / "plain")[0][1] == "so<|im_end|>"
    assert done.with_logps == 1


def test_ids_that_were_told_stay(tmp_path: Path, tokenizer: Path) -> None:
    told = answer("so", logps=True)
    told["choices"][0]["token_ids"] = [7, 8]
    trace = recorded(tmp_path, told | {"prompt_token_ids": [1] * 9}, told)
    done = tokenized([trace], str(tokenizer / "plain"))
    assert done.made == 1  # the second tells no prompt
    first, second = (model_call(e) or {} for e in done.traces[0].events if "call" in (e.extra or {}))
    assert (first["token_ids"], first["prompt_ids"], first["logps"]) == ([7, 8], [1] * 9, [-0.1, -0.2])
    assert (second["token_ids"], second["logps"]) == ([7, 8], [-0.1, -0.2])
    assert len(second["prompt_ids"]) > 9
    assert tokenized([trace], None).traces == [trace]
    assert tokenized([trace], None).line() is None


def test_calls_of_tools_are_written_as_the_template_writes_them_or_not_at_all(tmp_path: Path, tokenizer: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"page": 3}'}}
    asked = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "", "tool_calls": [call]},
             {"role": "tool", "tool_call_id": "c1", "content": "page 3"}]  # fmt: skip
    trace = recorded(tmp_path, answer("", finish="tool_calls", tool_calls=[call]), answer("so"), asked=asked, tools=TOOLS)
    done = tokenized([trace], str(tokenizer / "tools"))
    assert (done.made, dict(done.without)) == (2, {})
    written = '<call>{"name": "look", "arguments": {"page": 3}}</call>'
    (prompt, called), (_, said) = read(done.traces[0], tokenizer / "tools")
    assert prompt.startswith("<|im_start|>tools\n" + json.dumps(TOOLS))
    assert prompt.endswith(
        f"<|im_start|>assistant\n{written}<|im_end|>\n<|im_start|>tool\npage 3<|im_end|>\n<|im_start|>assistant\n"
    )
    assert (called, said) == (f"{written}<|im_end|>", "so<|im_end|>")
    bare = tokenized([trace], str(tokenizer / "plain"))
    assert (bare.made, sum(bare.without.values())) == (0, 2)
    assert "no form for tools" in str(bare.line())


def test_what_cannot_be_made_is_counted_with_its_reason(tmp_path: Path, tokenizer: Path) -> None:
    picture = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    rec = record(tmp_path / "own", task="own")
    with rec:
        with rec.model_call("m", messages=picture) as step:
            step.result("seen")
        with rec.model_call("m") as step:
            step.result("from nothing")
    done = tokenized([rec.trace], str(tokenizer / "plain"))  # type: ignore[list-item]
    assert done.made == 0
    assert dict(done.without) == {"for they read more than text": 1, "whose messages were not recorded": 1}


def test_the_command_writes_rows_of_an_own_team_and_says_which_ids_it_made(
    ends_of: Callable[[str], Ends], tmp_path: Path, tokenizer: Path
) -> None:
    export = ends_of("export")
    texts = ("good", "bad"), ("good", "fine")
    for earned, pair in enumerate(texts):
        recorded(tmp_path, *(answer(text, logps=text != "fine") for text in pair), earned=earned)
    given = ("task:own", "--store", tmp_path / "own", "--mechanism", "group_relative")
    code, _, err = export(*given, "--to", "rl", "-o", "rows.jsonl")
    assert code == 2
    assert "4 calls without token ids" in err
    assert "--tokenizer makes them again" in err
    code, out, err = export(*given, "--to", "trl", "--tokenizer", tokenizer / "plain", "-o", "rows.jsonl")
    assert (code, err) == (0, "")
    assert "note      token ids of 4 calls made again with plain, 3 of them with the log-probabilities" in out
    assert "note      1 row without log-probabilities: the trainer computes them" in out
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert {(row["policy"], row["group"], row["agent"]) for row in rows} == {("gpt-own", "own", "lead")}
    assert [row["logprobs"] is None for row in rows] == [False, False, False, True]
    assert all(len(row["advantages"]) == len(row["completion_ids"]) for row in rows)
    code, out, _ = export(*given, "--to", "rllm", "--tokenizer", tokenizer / "plain", "-o", "rows2.jsonl", "--json")
    assert code == 0
    assert json.loads(out)["tokenizer"] == {"name": "plain", "made": 4, "with_logps": 3, "left_out": {}}
    assert json.loads(out)["left_out"] == {"without log-probabilities, which this trainer learns from": 1}
    code, _, err = export(*given, "--to", "sft", "--tokenizer", tokenizer / "plain", "-o", "x.jsonl")
    assert (code, "need no token ids" in err) == (2, True)
    code, _, err = export(*given[:3], "--to", "perfetto", "--tokenizer", tokenizer / "plain", "-o", "x.json")
    assert (code, "for the rows of a trainer" in err) == (2, True)
    code, _, err = export(*given, "--to", "trl", "--tokenizer", "no-such-model", "-o", "x.jsonl")
    assert code == 3
    assert "no weights named 'no-such-model'" in err


def test_a_secret_that_was_read_keeps_its_call_at_home(ends_of: Callable[[str], Ends], tmp_path: Path, tokenizer: Path) -> None:
    key = "sk-proj-" + "a1B2c3D4e5F6g7H8" * 3
    for earned in range(2):
        recorded(tmp_path, answer("so"), answer(f"the key is {key}"), earned=earned)
    given = ("task:own", "--store", tmp_path / "own", "--mechanism", "group_relative", "--tokenizer", tokenizer / "plain")
    code, out, _ = ends_of("export")(*given, "--to", "rl", "-o", "rows.jsonl", "--json")
    assert code == 0
    assert json.loads(out)["left_out"] == {"that read or wrote a secret (--mask off keeps them)": 2}
    spelled = Chat.bytes().encode(key)
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert len(rows) == 2
    assert not any(
        row["completion_ids"][i : i + len(spelled)] == spelled for row in rows for i in range(len(row["completion_ids"]))
    )
