"""The credit layer in verl's own types: outputs of agent loops, its queue and trainer, and a DataProto."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("verl", reason="the package verl is not installed: pip install '.[verl]'")
torch = pytest.importorskip("torch")

from omegaconf import OmegaConf  # noqa: E402
from verl import DataProto  # noqa: E402
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput, DictConfigWrap  # noqa: E402
from verl.trainer.ppo import ray_trainer  # noqa: E402

from counterpoint.errors import InputError  # noqa: E402
from counterpoint.lab.lm.chat import Chat  # noqa: E402
from counterpoint.lab.trainers.layer import CreditLayer  # noqa: E402
from counterpoint.lab.trainers.verl.layer_data import credit_data, layer_advantage  # noqa: E402
from counterpoint.lab.trainers.verl.layer_loop import CreditLoop  # noqa: E402


def output(agent: str, ids: list[int], mask: list[int], reward: float | None = None, **about: Any) -> AgentLoopOutput:
    return AgentLoopOutput(prompt_ids=[1, 2], response_ids=ids, response_mask=mask, response_logprobs=[-0.5] * len(ids),
                           reward_score=reward, num_turns=2, metrics=AgentLoopMetrics(), extra_fields={"agent": agent, **about})  # fmt: skip


class Team(CreditLoop):
    """Run k: a lead of two turns, k workers of which the last has another policy, a frozen judge; paid k."""

    layer = CreditLayer("agent_wise", convention="prime_rl")
    policy = "policy"

    async def play(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[AgentLoopOutput]:
        k = int(kwargs["session_id"])
        for _ in range(3 - k):
            await asyncio.sleep(0)
        workers = [output(f"w{i}", [8, 8], [1, 1], parent="lead", policy="other" if i == 2 else "policy") for i in range(k)]
        last = output("judge", [9], [1], float(k), frozen=True, reward_extra_info={"solved": k > 1})
        return [output("lead", [5, 7, 6], [1, 0, 1], name="lead", min_global_steps=3), *workers, last]


def loop(kind: Any = Team, *, n: int = 4, response_length: int = 8) -> Any:
    from transformers import PreTrainedTokenizerFast

    rollout = {"n": n, "prompt_length": 8, "response_length": response_length, "calculate_log_probs": True}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout, "model": {"path": "-"}}, "data": {}})
    with tempfile.TemporaryDirectory() as folder:
        Chat.bytes().save(Path(folder))
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(Path(folder) / "tokenizer.json"), eos_token="<|im_end|>")
    return kind(trainer_config=DictConfigWrap(config), server_manager=None, tokenizer=tokenizer, processor=None, dataset_cls=None,
                data_config=DictConfigWrap(config.data))  # fmt: skip


def play(made: Any, count: int, **more: Any) -> list[Any]:
    async def together() -> list[Any]:
        runs = (made.run({}, session_id=i, uid="u1", **more) for i in range(count))
        return await asyncio.gather(*runs, return_exceptions=True)

    return asyncio.run(together())


def test_the_runs_of_a_prompt_are_credited_together_and_only_learners_are_handed_on() -> None:
    samples = play(loop(), 4)
    assert [[out.extra_fields["agent"] for out in outs] for outs in samples] == [
        ["lead"], ["lead", "w0"], ["lead", "w0", "w1"], ["lead", "w0", "w1"]]  # fmt: skip
    assert [outs[0].token_rewards for outs in samples] == [[a, 0.0, a] for a in (-1.5, -0.5, 0.5, 1.5)]
    assert [out.token_rewards for outs in samples for out in outs[1:2]] == [[-1.0] * 2, [0.0] * 2, [1.0] * 2]  # 1, 2, 3 of w0
    told = [(outs[-1].reward_score, outs[-1].extra_fields["reward_extra_info"]) for outs in samples]
    assert told == [(float(k), {"solved": k > 1, "team_reward": float(k)}) for k in range(4)]
    for out in (out for outs in samples for out in outs):
        fields = out.as_dict()
        assert len({len(fields[name]) for name in ("responses", "response_mask", "rollout_log_probs", "rm_scores")}) == 1
        assert fields["rm_scores"].tolist() == pytest.approx(out.token_rewards)
    assert samples[0][0].response_mask == [1, 0, 1]
    assert CreditLoop._under_way == {}


def test_a_run_that_breaks_is_its_own_error_and_the_others_are_compared() -> None:
    class Breaks(Team):
        async def play(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[AgentLoopOutput]:
            if kwargs["session_id"] == 1:
                raise ValueError("the tool is down")
            return await super().play(sampling_params, **kwargs)

    found = play(loop(Breaks), 3)
    assert isinstance(found[1], ValueError)
    assert [found[i][0].token_rewards for i in (0, 2)] == [[-1.0, 0.0, -1.0], [1.0, 0.0, 1.0]]


def test_held_out_prompts_come_back_as_they_were_played() -> None:
    for told in ({"held_out": True}, {"extra_info": {"held_out": True}}):
        (outs,) = play(loop(), 1, **told)
        assert [type(out) for out in outs] == [AgentLoopOutput] * len(outs)
        assert outs[-1].reward_score == 0.0


def test_what_would_go_wrong_silently_is_refused() -> None:
    class Unpaid(Team):
        async def play(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[AgentLoopOutput]:
            return [output("lead", [5], [1])]

    assert all(isinstance(e, InputError) and "u1-0: no reward" in str(e) for e in play(loop(Unpaid), 2))
    assert all("verl would cut it" in str(e) for e in play(loop(response_length=1), 2))
    with pytest.raises(InputError, match=r"rollout\.n=8"):
        loop(n=1)
    with pytest.raises(InputError, match="without a uid"):
        asyncio.run(loop().run({}, session_id=0))


def test_the_outputs_go_through_verls_queue_to_its_trainer() -> None:
    """The V1 trainer's own worker and its own advantage step, with a real TransferQueue on a local Ray."""
    ray = pytest.importorskip("ray")
    tq = pytest.importorskip("transfer_queue", reason="the package TransferQueue is not installed")
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    import counterpoint.lab.trainers.verl.estimator as estimator

    ray.init(address="local", num_cpus=8, include_dashboard=False, log_to_driver=False, object_store_memory=100_000_000)
    try:
        tq.init()
        samples = play(loop(), 4)
        worker: Any = object.__new__(AgentLoopWorkerTQ.__ray_metadata__.modified_class)
        worker.reward_loop_worker_handles, worker.distillation_enabled, worker.processor = None, False, None

        async def put() -> None:
            for i, outs in enumerate(samples):
                await worker._agent_loop_postprocess(outs, False, uid="u1", session_id=i, global_steps=5)

        asyncio.run(put())
        keys = [f"u1_{i}_{k}" for i, outs in enumerate(samples) for k in range(len(outs))]
        config = OmegaConf.create({
            "algorithm": {"adv_estimator": estimator.NAME, "use_kl_in_reward": False, "gamma": 1.0, "lam": 1.0},
            "actor_rollout_ref": {"rollout": {"n": 4}},
        })  # fmt: skip
        meta = tq.KVBatchMeta(keys=keys, tags=[{} for _ in keys], partition_id="train")
        PPOTrainer._compute_advantage(SimpleNamespace(config=config), meta, {})
        found = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=["advantages"])["advantages"]
        for got, out in zip(found.unbind(), [o for outs in samples for o in outs], strict=True):
            np.testing.assert_allclose(got.numpy(), out.token_rewards, rtol=0, atol=1e-6)
    finally:
        tq.close()
        ray.shutdown()


# -- a DataProto


def data(*, shuffled: bool = False) -> DataProto:
    """Two prompts of two runs each; a run is a lead and a worker; the last row of each run is filled up."""
    rows = [(f"u{p}", f"r{r}", agent, float(p + 2 * r)) for p in range(2) for r in range(2) for agent in ("lead", "worker")]
    if shuffled:
        rows = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
    mask = torch.tensor([[1, 0, 1, 1] if agent == "lead" else [1, 1, 0, 0] for _, _, agent, _ in rows])
    rewards = torch.zeros(len(rows), 4)
    for i, (_, _, agent, reward) in enumerate(rows):
        rewards[i, 3 if agent == "lead" else 1] = reward
    tensors = {"responses": torch.arange(len(rows) * 4).reshape(-1, 4), "response_mask": mask, "token_level_rewards": rewards}
    columns = {name: np.array([row[k] for row in rows], object) for k, name in enumerate(("uid", "rollout", "agent"))}
    return DataProto.from_dict(tensors=tensors, non_tensors=columns)


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_dataproto_gets_advantages_in_its_own_order(shuffled: bool) -> None:
    made = data(shuffled=shuffled)
    before = made.batch["response_mask"].clone()
    batch = credit_data(made, CreditLayer("group_relative", convention="prime_rl"))
    for i in range(len(made)):
        value = 1.0 if made.non_tensor_batch["rollout"][i] == "r1" else -1.0
        assert made.batch["advantages"][i].tolist() == (value * before[i]).tolist()
    assert torch.equal(made.batch["response_mask"], before)
    assert torch.equal(made.batch["returns"], made.batch["advantages"])
    assert batch.samples[0][1].ids.data_ptr() == made.batch["responses"][0].data_ptr() or shuffled  # the tensor's own row, no copy


def test_frozen_rows_leave_the_mask_and_each_row_may_be_a_run() -> None:
    made = data()
    made.non_tensor_batch["frozen"] = np.array([agent == "worker" for agent in made.non_tensor_batch["agent"]], object)
    credit_data(made, CreditLayer("group_relative"))
    assert made.batch["response_mask"].sum(-1).tolist() == [3, 0] * 4
    single = data()
    for name in ("rollout", "agent"):
        del single.non_tensor_batch[name]
    theirs = ray_trainer.compute_advantage(data(), adv_estimator="grpo", config=OmegaConf.create({})).batch["advantages"]
    ours = layer_advantage(CreditLayer("group_relative", convention="verl"))(single, adv_estimator="counterpoint").batch["advantages"]
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_what_is_wrong_with_a_dataproto_names_the_run() -> None:
    made = data()
    made.batch["token_level_rewards"][0, 3] += 1
    with pytest.raises(InputError, match="u0-r0: its rows are paid from 0 to 1"):
        credit_data(made, CreditLayer("group_relative"))
    credit_data(made, CreditLayer("agent_wise"), paid="sample")
    del made.non_tensor_batch["uid"]
    with pytest.raises(InputError, match="rows without a uid"):
        credit_data(made, CreditLayer("group_relative"))
