"""verl: rows come back the same, our advantages reach its loss as they are, and are its own where the credit is GRPO, RLOO or GAE."""

from __future__ import annotations

import asyncio
import dataclasses
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("verl", reason="the package verl is not installed: pip install '.[verl]'")
torch = pytest.importorskip("torch")

from omegaconf import OmegaConf  # noqa: E402
from verl import DataProto  # noqa: E402
from verl.experimental.agent_loop.agent_loop import DictConfigWrap  # noqa: E402
from verl.trainer.ppo import core_algos  # noqa: E402
from verl.trainer.ppo.ray_trainer import compute_advantage  # noqa: E402
from verl.workers.rollout.replica import TokenOutput  # noqa: E402

from counterpoint.credits.call_rows import call_rows  # noqa: E402
from counterpoint.credits.mechanisms.gae import gae  # noqa: E402
from counterpoint.credits.mechanisms.group_relative import group_relative  # noqa: E402
from counterpoint.errors import InputError, Refused  # noqa: E402
from counterpoint.lab.lm.chat import Chat  # noqa: E402
from counterpoint.lab.lm.engine import Ask  # noqa: E402
from counterpoint.lab.trainers.row import check_same, training_rows  # noqa: E402
from counterpoint.lab.trainers.verl import batch, rows_of, tasks, verl  # noqa: E402
from counterpoint.lab.trainers.verl.agent_loop import TeamAgentLoop  # noqa: E402
from counterpoint.lab.trainers.verl.estimator import NAME  # noqa: E402
from counterpoint.trace import Event, Trace  # noqa: E402
from driver_help import LegalEngine  # noqa: E402
from trainers_help import rows  # noqa: E402

CHAT = Chat.bytes()
HUNT: dict[str, Any] = {"set": {"documents": 6, "rows": 2, "parts": 2, "firms": 5}, "limits": {"width": 2, "turns": 8, "steps": 4, "max_tokens": 64}}


def advantages(data: DataProto, **config: Any) -> Any:
    """What verl's trainer computes of a batch with our estimator."""
    return compute_advantage(data, adv_estimator=NAME, config=OmegaConf.create(config)).batch["advantages"]


def test_rows_come_back_from_a_dataproto_and_its_file(tmp_path: Path) -> None:
    made = batch(rows(), pad_id=3, prompt_length=16, response_length=20)
    assert (made.batch["prompts"].shape, made.batch["responses"].shape) == ((7, 16), (7, 20))
    check_same(rows(), rows_of(made), "verl")
    (tmp_path / "rows.pkl").write_bytes(verl.to_bytes(rows(), ".pkl"))
    check_same(rows(), rows_of(DataProto.load_from_disk(tmp_path / "rows.pkl")), "verl")
    with pytest.raises(InputError, match="completion_ids of 13 tokens where 12 fit"):
        batch(rows(), response_length=12)
    bare = [dataclasses.replace(row, logps=None) for row in rows()]  # verl's actor computes them
    check_same(bare, rows_of(pickle.loads(verl.to_bytes(bare, ".pkl"))), "verl")
    assert "rollout_log_probs" not in batch(bare).batch
    assert verl.without_logps(bare) == []
    assert verl.without_logps([*bare, *rows()]) == bare


def test_advantages_reach_the_loss_as_they_are() -> None:
    found = advantages(batch(rows()))
    for got, row in zip(found.numpy(), rows(), strict=True):
        np.testing.assert_allclose(got[: len(row.advantages)], row.advantages, rtol=0, atol=1e-6)
        assert not got[len(row.advantages) :].any()
    masked = [dataclasses.replace(rows()[6], mask=np.arange(13) % 2)]
    assert not advantages(batch(masked)).numpy()[0, ::2].any()
    for change, says in (({"use_kl_in_reward": True}, "use_kl_loss"),):
        with pytest.raises(InputError, match=says):
            advantages(batch(rows()), **change)
    broken = batch(rows())
    broken.batch["token_level_rewards"][0, 0] = torch.nan
    with pytest.raises(InputError, match="NaN or infinite"):
        advantages(broken)


# -- the same numbers as verl's own


def single(name: str, task: str, reward: float, values: tuple[float, ...] = ()) -> Trace:
    """A run of a few calls by one agent."""
    calls = max(1, len(values))
    note = {"prompt_ids": [1, 2], "token_ids": [3, 4, 5], "logps": [-0.5] * 3}
    events = [Event(id=f"e{i}", t=float(i), type="message", agent="a", role="agent", turn=i + 1, tokens_out=3, extra={"call": note}) for i in range(calls)]
    return Trace(trace_id=name, task_id=task, events=events, edges=[], rewards={"team": reward})


@pytest.mark.parametrize(("convention", "theirs"), [("verl", "grpo"), ("rloo", "rloo")])
def test_credit_by_groups_is_verls_own(convention: str, theirs: str) -> None:
    earned = {"one": (1.0, 0.0, 0.0), "two": (1.0, 0.25, 0.0, 0.5)}
    traces = [single(f"{task}{i}", task, r) for task, some in earned.items() for i, r in enumerate(some)]
    made = batch(training_rows(call_rows(traces, group_relative(traces, convention=convention))).rows)
    ours = advantages(made)
    scores = torch.zeros_like(made.batch["token_level_rewards"])
    scores[:, -1] = torch.tensor([t.rewards["team"] for t in traces])
    mask, groups = made.batch["response_mask"], made.non_tensor_batch["uid"]
    their, _ = core_algos.get_adv_estimator_fn(theirs)(token_level_rewards=scores, response_mask=mask, index=groups, config=OmegaConf.create({}))
    torch.testing.assert_close(ours, their, rtol=0, atol=1e-6)


def test_credit_by_a_critic_is_verls_own() -> None:
    """One token per call, so that verl's steps are our turns; verl whitens at the end, so whitened numbers are compared."""
    values, gamma, lam = (0.1, 0.4, 0.3), 0.9, 0.8
    traces = [single("t", "one", 1.0, values)]
    given = gae(traces, value=lambda trace: list(values), gamma=gamma, lam=lam)
    made = batch(training_rows(call_rows(traces, given)).rows)
    ours = advantages(made)[:, 0]
    rewards = torch.tensor([[0.0, 0.0, 1.0]])
    their, _ = core_algos.compute_gae_advantage_return(rewards, torch.tensor([values]), torch.ones(1, 3), torch.tensor(gamma), torch.tensor(lam))
    whitened = (ours - ours.mean()) * torch.rsqrt(ours.var() + 1e-8)
    torch.testing.assert_close(whitened, their[0], rtol=0, atol=1e-6)


# -- the agent loop


class Server:
    """Answers as verl's server does: tokens and their log-probabilities."""

    def __init__(self) -> None:
        self.engine, self.asked = LegalEngine(CHAT), 0

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> TokenOutput:
        self.asked += 1
        await asyncio.sleep(0)
        assert set(CHAT.lines) <= set(sampling_params["stop_token_ids"])
        answer = self.engine.answer(Ask(prompt=prompt_ids, most=sampling_params["max_tokens"], temperature=1.0, seed=self.asked))
        steps = {"min_global_steps": 4, "max_global_steps": 5}
        return TokenOutput(token_ids=list(answer.token_ids), log_probs=list(answer.logps), extra_fields=steps)


def loop(folder: Path, server: Any, *, n: int = 4, response_length: int = 4096, **more: Any) -> TeamAgentLoop:
    rollout = {"n": n, "calculate_log_probs": True, "prompt_length": 65536, "response_length": response_length}
    config = OmegaConf.create({"actor_rollout_ref": {"model": {"path": str(folder)}, "rollout": rollout}, "data": {}})
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), eos_token="<|im_end|>")
    return TeamAgentLoop(
        trainer_config=DictConfigWrap(config), server_manager=server, tokenizer=tokenizer, processor=None, dataset_cls=None,
        data_config=DictConfigWrap(config.data), **more,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    CHAT.save(tmp_path)
    return tmp_path


def play(made: TeamAgentLoop, told: dict[str, Any], n: int) -> list[Any]:
    async def all_samples() -> list[Any]:
        about = {"team": told["team"], "uid": "u1", "global_steps": 5, "raw_prompt": told["prompt"]}
        return await asyncio.gather(*(made.run({"temperature": 1.0}, session_id=i, **about) for i in range(n)), return_exceptions=True)

    return asyncio.run(all_samples())


def test_samples_of_a_prompt_are_credited_together(folder: Path) -> None:
    server = Server()
    samples = play(loop(folder, server, prices={"call": 0.01}), tasks("T1", [3], **HUNT)[0], 4)
    assert sum(len(outs) for outs in samples) == server.asked
    earned = [outs[-1].reward_score for outs in samples]
    assert len(set(earned)) > 1
    for outs, reward in zip(samples, earned, strict=True):
        for out in outs:
            fields = out.as_dict()
            assert len({len(fields[name]) for name in ("responses", "response_mask", "rollout_log_probs", "rm_scores")}) == 1
            assert set(fields["rm_scores"].sign().tolist()) == {float(np.sign(reward - np.mean(earned)))}
            assert (out.extra_fields["min_global_steps"], out.extra_fields["max_global_steps"]) == (4, 5)
        assert outs[-1].extra_fields["reward_extra_info"]["team_reward"] == reward
    assert TeamAgentLoop._under_way == {}


def test_a_held_out_prompt_gets_its_reward_and_needs_no_others(folder: Path) -> None:
    (outs,) = play(loop(folder, Server()), tasks("T1", [3], held_out=True, **HUNT)[0], 1)
    scores = [float(out.as_dict()["rm_scores"].sum()) for out in outs]
    assert scores == [0.0] * (len(outs) - 1) + [outs[-1].reward_score]


def test_what_would_go_wrong_silently_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match=r"rollout\.n=8"):
        loop(folder, Server(), n=1)
    found = play(loop(folder, Server(), response_length=2), tasks("T1", [3], **HUNT)[0], 2)
    assert all(isinstance(e, InputError) and "verl would cut it" in str(e) for e in found)

    class Silent(Server):
        async def generate(self, *args: Any, **more: Any) -> TokenOutput:
            return (await super().generate(*args, **more)).model_copy(update={"log_probs": None})

    found = play(loop(folder, Silent()), tasks("T1", [3], **HUNT)[0], 2)
    assert all("calculate_log_probs=True" in str(e) for e in found)
    (refused,) = play(loop(folder, Server()), tasks("driver_help:odd", [3])[0], 1)
    assert isinstance(refused, Refused)  # a dataset is a file, and a file cannot give permission


def test_verl_loads_the_estimator_by_itself() -> None:
    from importlib.metadata import entry_points

    named = [e.value for e in entry_points(group="verl.plugins") if e.name == "counterpoint"]
    if not named:
        pytest.skip("Counterpoint is not installed here, only found")
    assert named == ["counterpoint.lab.trainers.verl.estimator"]


def test_the_outputs_go_through_verls_queue_to_its_trainer(folder: Path) -> None:
    """The V1 trainer's own worker and its own advantage step, with a real TransferQueue on a local Ray."""
    ray = pytest.importorskip("ray")
    tq = pytest.importorskip("transfer_queue", reason="the package TransferQueue is not installed")
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    ray.init(address="local", num_cpus=8, include_dashboard=False, log_to_driver=False, object_store_memory=100_000_000)
    try:
        tq.init()
        samples = play(loop(folder, Server(), prices={"call": 0.01}), tasks("T1", [3], **HUNT)[0], 3)
        worker: Any = object.__new__(AgentLoopWorkerTQ.__ray_metadata__.modified_class)
        worker.reward_loop_worker_handles, worker.distillation_enabled, worker.processor = None, False, None

        async def put() -> None:
            for i, outs in enumerate(samples):
                await worker._agent_loop_postprocess(outs, False, uid="u1", session_id=i, global_steps=5)

        asyncio.run(put())
        keys = [f"u1_{i}_{k}" for i, outs in enumerate(samples) for k in range(len(outs))]
        config = OmegaConf.create({
            "algorithm": {"adv_estimator": NAME, "use_kl_in_reward": False, "gamma": 1.0, "lam": 1.0},
            "actor_rollout_ref": {"rollout": {"n": 3}},
        })  # fmt: skip
        trainer: Any = SimpleNamespace(config=config)
        meta = tq.KVBatchMeta(keys=keys, tags=[{} for _ in keys], partition_id="train")
        PPOTrainer._compute_advantage(trainer, meta, {})
        found = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=["advantages"])["advantages"]
        for got, out in zip(found.unbind(), [o for outs in samples for o in outs], strict=True):
            np.testing.assert_allclose(got.numpy(), out.token_rewards, rtol=0, atol=1e-6)
    finally:
        tq.close()
        ray.shutdown()
