"""Agent Lightning's own types, adapter and advantage step: each call of a run gets what it earned, where it would get the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("agentlightning", reason="the package agentlightning is not installed: pip install '.[agentlightning]'")
torch = pytest.importorskip("torch")
pytest.importorskip("verl", reason="the package verl is not installed")

from agentlightning.verl.agl_rollout_manager import CompletedRollout, Triplet  # noqa: E402
from agentlightning.verl.rollout_adapter import RolloutAdapter  # noqa: E402

from counterpoint.errors import InputError  # noqa: E402
from counterpoint.lab.trainers.agent_lightning_layer import credited, rollouts_of  # noqa: E402
from counterpoint.lab.trainers.layer import CreditLayer  # noqa: E402
from counterpoint.lab.trainers.limits import Limits  # noqa: E402
from counterpoint.lab.trainers.verl.estimator import passed_on  # noqa: E402

WORLD = {"max_prompt_length": 8, "max_response_length": 12, "device": torch.device("cpu"), "pad_token_id": 0}


def call(prompt: list[int], ids: list[int], user: str | None, version: int = 3) -> tuple[Triplet, dict[str, Any]]:
    """A call as the gateway records it, and as the manager hands it on."""
    served = {"model": "m", "version": version}
    triplet = Triplet(prompt={"token_ids": prompt}, response={"token_ids": ids, "log_probs": [-1.0] * len(ids)}, metadata={"server": served})
    data = {"request": {"messages": [], "user": user}, "server": served,
            "response": {"prompt_token_ids": prompt, "choices": [{"token_ids": ids}]}}  # fmt: skip
    return triplet, {"event_type": "model_request", "rollout_id": "r", "attempt_id": "0", "timestamp": 0.0, "data": data}


def run(name: str, task: str, reward: float | None, place: int, *calls: tuple[Triplet, dict[str, Any]]) -> CompletedRollout:
    failed = {"event_type": "model_request", "data": {"request": {"user": "nobody"}, "status": "error", "response": {}}}
    events = [failed, *(event for _, event in calls), {"event_type": "reward", "data": {"value": reward}}]
    return CompletedRollout(rollout_id=name, data_id=task, step=0, sample_idx_in_step=place, enqueue_time=0.0, final_reward=reward,
                            triplets=[t for t, _ in calls], events=events)  # fmt: skip


def team(name: str, reward: float | None, place: int, workers: int) -> CompletedRollout:
    """A lead who goes on after its workers, so that Agent Lightning can merge its two calls only where nobody else spoke."""
    lead, last = call([1, 2], [3, 4], "lead"), call([1, 2, 3, 4, 5], [6], "lead")
    return run(name, "task", reward, place, lead, *(call([7, k], [8, 9, k], f"w{k}") for k in range(workers)), last)


def batch_of(runs: list[CompletedRollout], layer: CreditLayer, level: str = "transition", **more: Any) -> tuple[Any, dict[str, Any], Any]:
    adapter = credited(layer)(**WORLD, reward_fillna_value=0.0, trace_aggregator_level=level, **more)
    out, metrics = adapter.get_train_data_batch(runs, global_steps=3)
    return out, metrics, adapter


def taught(out: Any) -> dict[tuple[str, tuple[int, ...]], list[float]]:
    """By run and answer, what each token is taught."""
    found: dict[tuple[str, tuple[int, ...]], list[float]] = {}
    advantages, _ = passed_on(out.batch["token_level_scores"], out.batch["response_mask"])
    for i, name in enumerate(out.non_tensor_batch["rollout_id_list"]):
        n = int(out.batch["attention_mask"][i, -out.batch["responses"].shape[1] :].sum())
        assert advantages[i, n:].abs().sum() == 0
        found[str(name), tuple(out.batch["responses"][i, :n].tolist())] = advantages[i, :n].tolist()
    return found


def test_a_row_has_what_its_call_earned_token_for_token() -> None:
    runs = [team("b", 0.0, 1, 2), team("a", 1.0, 0, 1)]
    layer = CreditLayer("agent_wise")
    out, metrics, adapter = batch_of(runs, layer)
    plain, _ = RolloutAdapter(**WORLD, reward_fillna_value=0.0, trace_aggregator_level="transition").get_train_data_batch(runs)
    assert torch.equal(out.batch["responses"], plain.batch["responses"])
    assert len({float(row.sum()) for row in plain.batch["token_level_scores"][:3]}) == 1  # identical credit, as it comes
    wanted = {(r.name, tuple(s.ids)): a.tolist() for (r, s), a in zip(adapter.batch.samples, adapter.batch.arrays(), strict=True)}
    assert taught(out) == wanted  # bit for bit
    assert wanted["b", (3, 4)][0] < wanted["b", (8, 9, 1)][0] == 0.0  # the second worker is in one run alone
    assert out.batch["token_level_scores"].dtype == torch.float32
    assert (metrics["credit/rollouts"], metrics["credit/unknown"], metrics["training/n_sample"]) == (2, 0, 7)


def test_calls_that_are_merged_into_one_row_keep_their_own_amounts() -> None:
    def solo(name: str, reward: float, place: int) -> CompletedRollout:
        return run(name, "task", reward, place, call([1, 2], [3, 4], "a"), call([1, 2, 3, 4, 5, 5], [6, 7], "b"), call([9], [8], "c"))

    value = lambda rollout: [0.0, 0.25, 0.5, rollout.reward]  # noqa: E731
    out, _, _ = batch_of([solo("a", 1.0, 0), solo("b", 2.0, 1)], CreditLayer("ledger", value=value, against="nothing"), "trajectory")
    assert taught(out)["a", (3, 4, 5, 5, 6, 7)] == [0.25, 0.25, 0.0, 0.0, 0.25, 0.25]
    assert taught(out)["b", (8,)] == [1.5]
    assert out.batch["response_mask"][0].tolist()[:7] == [1, 1, 0, 0, 1, 1, 0]


def test_an_answer_that_is_cut_off_keeps_the_beginning_of_its_advantages() -> None:
    runs = [run(name, "task", reward, i, call([1], list(range(1, 20)), "a")) for i, (name, reward) in enumerate((("a", 1.0), ("b", 3.0)))]
    out, _, _ = batch_of(runs, CreditLayer("group_relative", convention="prime_rl"))
    assert taught(out) == {("a", tuple(range(1, 13))): [-1.0] * 12, ("b", tuple(range(1, 13))): [1.0] * 12}
    room = batch_of(runs, CreditLayer("group_relative"), "trajectory", max_total_length=5)[0]
    assert [len(ids) for _, ids in taught(room)] == [4, 4]


def test_old_weights_lonely_runs_and_failed_runs_are_dropped() -> None:
    old = run("old", "task", 1.0, 0, call([1], [2], "a", version=0), call([3], [4], "a"))
    new, failed = run("new", "task", 3.0, 1, call([1], [2], "a")), run("failed", "task", None, 2, call([1], [2], "a"))
    alone = run("alone", "other", 1.0, 3, call([1], [2], "a"))
    out, metrics, adapter = batch_of([old, new, failed, alone], CreditLayer("group_relative", limits=Limits(most_stale=2)))
    assert out.batch["is_drop_mask"].tolist() == [True, False, False, True, True]
    assert adapter.batch.unknown == {"failed": "aborted", "alone": "nobody to compare with"}
    assert metrics["credit/unknown"] == 2


def test_agents_are_told_by_the_request() -> None:
    one = team("a", 1.0, 0, 1)
    assert [s.agent for s in rollouts_of([one])[0].samples] == ["lead", "w0", "lead"]
    about = lambda request: {"agent": request["user"], "frozen": request["user"] == "w0"}  # noqa: E731
    assert [s.frozen for s in rollouts_of([one], about)[0].samples] == [False, True, False]
    assert {(s.policy, s.version) for s in rollouts_of([one])[0].samples} == {("m", 3)}
    with pytest.raises(InputError, match="a call 0: no word 'agnet'"):
        rollouts_of([one], lambda request: {"agnet": "x"})
    one.events.pop(1)
    with pytest.raises(InputError, match="a: no request for call 0"):
        rollouts_of([one])


def test_rows_that_are_not_what_the_calls_wrote_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    make = RolloutAdapter.get_train_data_batch

    def other(self: Any, *args: Any, **more: Any) -> Any:
        out, metrics = make(self, *args, **more)
        out.batch["responses"][1, 0] += 1
        return out, metrics

    monkeypatch.setattr(RolloutAdapter, "get_train_data_batch", other)
    with pytest.raises(InputError, match="a row that no call wrote"):
        batch_of([team("a", 1.0, 0, 1), team("b", 0.0, 1, 1)], CreditLayer("group_relative"))


def test_agent_lightning_own_identical_step_refuses_different_amounts() -> None:
    module = pytest.importorskip("agentlightning.verl.rollout_level_advantage")
    out, _, _ = batch_of([team("a", 1.0, 0, 2), team("b", 0.0, 1, 1)], CreditLayer("agent_wise"))
    out.batch["token_level_rewards"] = out.batch["token_level_scores"]
    out.non_tensor_batch["uid"] = np.array(out.non_tensor_batch["data_id_list"])
    with pytest.raises(RuntimeError, match="share the same scalar"):
        module.compute_rollout_level_advantage(out, adv_estimator="grpo", gamma=1.0, lam=1.0, num_repeat=1)
