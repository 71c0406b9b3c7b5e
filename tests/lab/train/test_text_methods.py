"""LangMARL, HERA and MAS-Zero: which calls are made, how answers are read, how teams are ranked; and whole runs with fakes."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from counterpoint import registry
from counterpoint.errors import InputError
from counterpoint.lab.app.cli.train.prompts import METHODS, prompts
from counterpoint.lab.lm.model import Call, Completion, ModelFailed
from counterpoint.lab.train.not_presets import NOT_PRESETS
from counterpoint.lab.train.text_method import Asker, FakeReviewer, TextSettings, json_in, prompts_of
from counterpoint.lab.train.text_methods import hera, langmarl, mas_zero
from counterpoint.lab.train.text_methods.hera import Insight, Tried
from counterpoint.lab.worlds.teamworld.policies import NAMES

SMALL = {"documents": 20, "rows": 3, "parts": 2}


class Down(FakeReviewer):
    async def complete(self, call: Call) -> Completion:
        raise ModelFailed("down", "nobody is there")


def test_langmarl_reads_credit_and_falls_back_to_the_whole_reply() -> None:
    reply = json.dumps({"agent_1": "plan was vague", "agent_2": "answer correct"})
    found = langmarl.parsed_credit(reply, ["agent_1", "agent_2", "agent_3"])
    assert found == {"agent_1": "plan was vague", "agent_2": "answer correct", "agent_3": reply}
    assert langmarl.parsed_credit("no braces", ["a"]) == {"a": "no braces"}
    assert langmarl.parsed_credit(None, ["a"]) == {}
    assert json_in('Sure: {"a": 1} and {"b": 2}') == {"a": 1}
    assert json_in("{broken") is None


def test_langmarl_calls_only_to_merge_several_gradients() -> None:
    calls = []
    for gradients in ([], ["one"], ["one", "two", "three"]):
        asker = Asker(FakeReviewer())
        merged = asyncio.run(langmarl.merge_advice(asker, gradients))
        calls.append(asker.calls)
    assert calls == [0, 0, 1]
    assert merged == "Name the part before the result."
    down = Asker(Down())
    assert asyncio.run(langmarl.merge_advice(down, ["one", "two"])) == "- one\n- two"  # a call that fails: texts are put together
    assert asyncio.run(langmarl.rewritten(down, "worker", "Do it.", "better")) == "Do it."
    assert (down.calls, down.failed) == (2, 2)


def test_langmarl_rewrites_the_roles_that_took_part() -> None:
    log = asyncio.run(langmarl.run(TextSettings(config=SMALL, iterations=1, batch=2)))
    assert [row["calls"] for row in log.rows] == [2 * (1 + 2) + 2 * (1 + 1)] * 2  # per trace a critic and two gradients; merge, rewrite
    assert log.rows[0]["rewritten"] == ["orchestrator", "worker"]
    first = prompts_of()
    assert log.prompts["worker"] == first["worker"] + "\nSay which part you did."
    assert log.prompts["critic"] == first["critic"]


def test_hera_ranks_by_score_then_tokens_and_reflects_only_on_mixed_groups() -> None:
    group = [Tried("a", 0.8, 900), Tried("b", 0.8, 500), Tried("c", 0.0, 200)]
    assert [t.id for t in hera.hera_rank(group)] == ["b", "a", "c"]
    assert hera.is_mixed(group)
    assert not hera.is_mixed(group[:2])
    assert not hera.is_mixed(group[2:])
    insight = Insight("x", "y", uses=5, successes=3)
    insight.used(True)
    assert insight.utility == pytest.approx(2 / 3)


def test_hera_keeps_a_library() -> None:
    library: list[Insight] = []
    said = ["split ledger parts among workers", "workers split ledger parts", "never split ledger parts among workers", "read totals twice"]
    assert [hera.put_in(library, "t", text) for text in said[:2]] == ["ADD", "KEEP"]
    assert hera.put_in(library, "t", said[2]) == "KEEP"  # it contradicts what is worth keeping
    library[0].used(False)
    assert hera.put_in(library, "t", said[2] + " please") == "PRUNE"
    assert hera.put_in(library, "t", said[3]) == "ADD"
    assert hera.put_in(library, "t", "read totals twice slowly") == "MERGE"
    assert len(library) == 2
    log = asyncio.run(hera.run(TextSettings(config=SMALL, iterations=2, batch=2, model="fake:0.5")))
    assert [row["teams"] for row in log.rows] == [4, 8, 12, 16]
    assert {row["library"] for row in log.rows} <= {"ADD", "KEEP", "MERGE", "PRUNE", "MUTATE", "none"}


def test_mas_zero_designs_criticises_and_chooses() -> None:
    names = ["centralized", "debate"]
    assert mas_zero.design_of('{"topology": "debate", "width": 4}', names, ("centralized", 2)) == ("debate", 4)
    assert mas_zero.design_of('{"topology": "tree", "width": 99}', names, ("centralized", 2)) == ("centralized", 2)
    assert mas_zero.design_of(None, names, ("centralized", 2)) == ("centralized", 2)
    assert [mas_zero.choice_of(reply, 3) for reply in ("2", "Answer 1.", "9", None)] == [1, 0, 2, 2]
    log = asyncio.run(mas_zero.run(TextSettings(config=SMALL, iterations=2, batch=1)))
    assert log.rows[0]["calls"] == 2 * (1 + 1) + 1
    assert (len(log.rows[0]["attempts"]), log.rows[0]["taken"]) == (2, 0)


def test_the_command_logs_scores_and_writes_what_was_reached(tmp_path: Path) -> None:
    dials = [x for name, value in SMALL.items() for x in ("--set", f"{name}={value}")]
    out = tmp_path / "words"
    done = CliRunner().invoke(prompts, ["langmarl", "--set", "iterations=1", "--set", "batch=1", "-o", str(out), *dials])
    assert done.exit_code == 0, done.output
    assert "no gain is claimed" in done.output
    rows = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [0, 1]
    assert "which part you did" in json.loads((out / "prompts.json").read_text())["worker"]
    again = CliRunner().invoke(prompts, ["langmarl", "-o", str(out)])
    assert isinstance(again.exception, InputError)
    with pytest.raises(InputError, match="iterations is 0"):
        TextSettings(iterations=0)


def test_what_is_no_preset_says_why_and_names_what_runs() -> None:
    for method in NOT_PRESETS:
        assert method.name not in registry.ids("preset")
        assert "arXiv" in method.source
        assert len(method.why) > 10
        for policy in re.findall(r"--policy (\w+)", method.works_when):
            assert policy in NAMES
        for words in re.findall(r"counterpoint prompts (\w+)", method.works_when):
            assert words in METHODS
