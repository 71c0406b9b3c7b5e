"""Rows for trainers: who gets them, what is refused, and what each target's file holds, whatever is installed."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from counterpoint import registry
from counterpoint.errors import InputError, Refused, install
from counterpoint.lab.trainers import rllm, skyrl, slime
from counterpoint.lab.trainers.row import as_float32, check_same, only_policy
from counterpoint.lab.trainers.text_call import same_question
from counterpoint.lab.trainers.trainer import need, say_version
from trainers_help import rows, text_calls


def test_rows_of_two_policies_are_not_mixed() -> None:
    with pytest.raises(InputError, match="rows of 2 policies"):
        only_policy([dataclasses.replace(r, policy=p) for r, p in zip(rows(), "ab" * 9, strict=False)])
    with pytest.raises(InputError, match="no rows of the policy 'q'"):
        only_policy(rows(), "q")


def test_numbers_that_would_be_rounded_are_refused() -> None:
    values = np.array([0.1, -1 / 3, 7.0])
    assert np.abs(as_float32(values, "advantages", "here") - values).max() < 1e-6
    with pytest.raises(InputError, match="rounded by more than 1e-06"):
        as_float32(np.array([1234.5678901]), "advantages", "here")
    with pytest.raises(InputError, match="rounded"):
        as_float32(np.array([1e300]), "advantages", "here")


@pytest.mark.parametrize("part", ["group", "version", "policy", "prompt_ids", "mask", "logps", "advantages"])
def test_a_change_on_the_way_is_noticed(part: str) -> None:
    ours = rows()
    old = getattr(ours[2], part)
    changed = dataclasses.replace(ours[2], **{part: "other" if isinstance(old, str) else old + 2e-6 if part == "logps" else old + 1})
    with pytest.raises(InputError, match=f"trl changed {part}"):
        check_same(ours, [*ours[:2], changed, *ours[3:]], "trl")
    with pytest.raises(InputError, match="trl changed"):
        check_same(ours, ours[::-1], "trl")
    with pytest.raises(InputError, match="6 rows came back of 7"):
        check_same(ours, ours[1:], "trl")


def test_a_package_that_was_never_tried_is_said_and_one_that_is_missing_refused() -> None:
    assert say_version("numpy", (np.__version__,)) is None
    assert "was never tried" in (say_version("numpy", ("0.0.1",)) or "")
    assert say_version("no-such-package", ("1",)) is None
    with pytest.raises(Refused, match=re.escape(install("verl"))):
        need("no_such_package", "verl")


def test_answers_to_one_question_are_rated_by_what_they_earned_on_average() -> None:
    which, who = same_question(text_calls())
    assert [c.answer for c in which.calls] == ["red", "blue"]
    assert (who.earned, who.given) == ([pytest.approx(0.3), 0.25], [2, 1])
    pairs = registry.get("trainer", "dpo").write_texts(text_calls())
    assert [(p["chosen"][0]["content"], p["rejected"][0]["content"]) for p in pairs] == [("red", "blue"), ("lead", "worker")]
    kto = registry.get("trainer", "kto").write_texts(text_calls())
    assert [r["label"] for r in kto] == [True, False, True, True, True]


# -- by their documented shape: these packages cannot be had here


def test_rllm_groups_and_lengths() -> None:
    made = rllm.episodes(rows())
    fields = {"id", "prompt_ids", "response_ids", "logprobs", "advantage", "weight_version", "metadata"}
    steps = [s for e in made for t in e["trajectories"] for s in t["steps"]]
    assert all(set(s) == fields and len(s["advantage"]) == len(s["response_ids"]) for s in steps)
    ids = [e["id"] for e in made]
    assert len(set(ids)) == len(ids)
    by_task = {i.split(":")[0] for i in ids}  # as rLLM takes the task out of an id
    assert len(by_task) == len({r.group for r in rows()})
    check_same(rows(), rllm.rows_of(made), "rllm")
    steps[0]["advantage"] = steps[0]["advantage"][:-1]
    with pytest.raises(InputError, match="rLLM would take zeros"):
        rllm.rows_of(made)


def test_skyrl_has_rewards_per_token_and_no_two_calls_under_one_id() -> None:
    made = skyrl.generated(rows())
    per_call = ("prompt_token_ids", "response_ids", "rewards", "loss_masks", "rollout_logprobs", "stop_reasons", "trajectory_ids")
    assert {len(made[name]) for name in per_call} == {len(rows())}
    assert [len(r) for r in made["rewards"]] == [len(s) for s in made["response_ids"]]
    ids = [(i["instance_id"], i["repetition_id"]) for i in made["trajectory_ids"]]
    assert len(set(ids)) == len(ids)
    assert [i[0] for i in ids] == [r.group for r in rows()]
    torch = pytest.importorskip("torch")
    earned, mask = torch.tensor([[0.5, -0.25]]), torch.tensor([[1.0, 0.0]])
    advantages, returns = skyrl.passed_on(earned, mask, index=["a"])
    assert advantages.tolist() == returns.tolist() == [[0.5, 0.0]]
    with pytest.raises(InputError, match="rewards of the shape"):
        skyrl.passed_on(earned[:, :1], mask)


def test_slime_finds_its_advantages_by_the_index_of_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "rows.pt"
    path.write_bytes(registry.get("trainer", "slime").to_bytes(rows(), ".pt"))
    some = [5, 0, 3]  # what a data-parallel rank gets, in its order
    data: dict[str, Any] = {
        "sample_indices": some, "response_lengths": [len(rows()[i].completion_ids) for i in some],
        "kl": [torch.zeros(len(rows()[i].completion_ids)) for i in some],
    }  # fmt: skip
    slime.advantages(SimpleNamespace(load_debug_rollout_data=str(path)), data)
    for i, found in zip(some, data["advantages"], strict=True):
        np.testing.assert_allclose(found.numpy(), rows()[i].advantages, rtol=0, atol=1e-6)
    assert [len(r) for r in data["returns"]] == data["response_lengths"]
    data["kl"][0] = data["kl"][0][:-1]
    with pytest.raises(InputError, match="--context-parallel-size 1"):
        slime.advantages(SimpleNamespace(load_debug_rollout_data=str(path)), data)
    monkeypatch.setenv(slime.ROWS, str(path))
    data["sample_indices"] = [99]
    with pytest.raises(InputError, match="sample 99 of 7 rows"):
        slime.advantages(SimpleNamespace(), data)
