"""TRL: rows come back the same, the loss is the one that a hand computes, and the toy task is learnt by its trainers too."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl", reason="the package trl is not installed: pip install '.[trl]'")
torch = pytest.importorskip("torch")

from datasets import Dataset, load_dataset  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402
from trl import DPOConfig, DPOTrainer, GRPOConfig, SFTConfig, SFTTrainer  # noqa: E402
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer, packing  # noqa: E402

from counterpoint.errors import CounterpointError, InputError  # noqa: E402
from counterpoint.lab.trainers.row import TrainingRow, as_record, check_same  # noqa: E402
from counterpoint.lab.trainers.tables import dataset  # noqa: E402
from counterpoint.lab.trainers.team_play import TeamPlay  # noqa: E402
from counterpoint.lab.trainers.trl import rows_of, trl  # noqa: E402
from counterpoint.lab.trainers.trl.grpo import CreditGRPOTrainer  # noqa: E402
from counterpoint.lab.trainers.trl.rollout_worker import TeamRolloutWorker, samples_of  # noqa: E402
from trainers_help import TASK, rows, text_calls, toy_model  # noqa: E402

LEARN = {"groups": 3, "samples": 8, "resample": 0}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return toy_model(tmp_path_factory.mktemp("toy"))


@pytest.fixture
def teams(model: Path) -> Iterator[TeamPlay]:
    with TeamPlay({"model": str(model), "task": [TASK], "learn": LEARN, "workers": 1}) as play:
        yield play


def config(folder: Path, **more: Any) -> GRPOConfig:
    usual: dict[str, Any] = {
        "per_device_train_batch_size": 24, "gradient_accumulation_steps": 2, "steps_per_generation": 2, "num_generations": 2,
        "max_steps": 1, "learning_rate": 4e-3, "lr_scheduler_type": "constant", "report_to": [], "use_cpu": True, "bf16": False,
        "logging_steps": 1, "save_strategy": "no", "disable_tqdm": True, "gradient_checkpointing": False,
    }  # fmt: skip
    return GRPOConfig(str(folder), **{**usual, **more})


def small(vocabulary: int = 300) -> list[TrainingRow]:
    """Rows of different lengths that the toy model can read, with another advantage for every token."""
    return [dataclasses.replace(r, prompt_ids=r.prompt_ids % vocabulary, completion_ids=r.completion_ids % vocabulary) for r in rows()]


def test_datasets_gives_the_rows_back(tmp_path: Path) -> None:
    for path, data in dataset({"p": [as_record(row) for row in rows()]}, trl.columns, "Rows", "Said.").items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(data)
    found = load_dataset(str(tmp_path), "p", split="train", cache_dir=str(tmp_path / "cache"))
    check_same(rows(), rows_of(found), "datasets")
    shorter = [{**as_record(rows()[0]), "advantages": [1.0, 2.0]}]
    with pytest.raises(InputError, match="2 advantages for 1 tokens"):
        rows_of(shorter)


def by_hand(folder: Path, given: list[TrainingRow], low: float, high: float) -> float:
    """-1/N sum min(rho A, clip(rho) A), token by token, each row alone."""
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    total, count = 0.0, 0
    for row in given:
        whole = torch.as_tensor(np.concatenate([row.prompt_ids, row.completion_ids]))[None]
        with torch.no_grad():
            logps = network(whole).logits[0, :-1].log_softmax(-1).gather(1, whole[0, 1:, None])[:, 0].numpy()
        assert row.logps is not None
        for now, before, earned in zip(logps[len(row.prompt_ids) - 1 :], row.logps, row.advantages, strict=True):
            rho = np.exp(now - before)
            total -= min(rho * earned, np.clip(rho, 1 - low, 1 + high) * earned)
            count += 1
    return total / count


def test_the_loss_is_the_one_computed_by_hand(model: Path, tmp_path: Path) -> None:
    given = small()  # seven rows in batches of two times four: one is made up
    args = config(tmp_path, per_device_train_batch_size=4, learning_rate=0.0, epsilon=0.2, epsilon_high=0.3)
    trainer = CreditGRPOTrainer(str(model), given, args)
    trainer.train()
    told = trainer.state.log_history[0]
    assert told["rows"] == 7
    assert told["loss"] == pytest.approx(by_hand(model, given, 0.2, 0.3), abs=2e-5)
    other = [dataclasses.replace(row, advantages=np.full(len(row.advantages), row.advantages.mean())) for row in given]
    assert told["loss"] != pytest.approx(by_hand(model, other, 0.2, 0.3), abs=1e-2)  # per token is not per row


def test_rows_that_nobody_told_the_probabilities_of_are_on_the_policy(model: Path, tmp_path: Path) -> None:
    given = [dataclasses.replace(row, logps=None if i % 2 else row.logps) for i, row in enumerate(small())]
    args = config(tmp_path, per_device_train_batch_size=4, learning_rate=0.0, epsilon=0.2, epsilon_high=0.3)
    trainer = CreditGRPOTrainer(str(model), given, args)
    trainer.train()
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    whole = []
    for row in given:  # the weights that learn are those that say how likely it was
        ids = torch.as_tensor(np.concatenate([row.prompt_ids, row.completion_ids]))[None]
        with torch.no_grad():
            logps = network(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0].numpy()
        whole.append(row if row.logps is not None else dataclasses.replace(row, logps=logps[len(row.prompt_ids) - 1 :]))
    assert trainer.state.log_history[0]["loss"] == pytest.approx(by_hand(model, whole, 0.2, 0.3), abs=2e-5)


def test_the_toy_task_is_learnt(teams: TeamPlay, model: Path, tmp_path: Path) -> None:
    before = teams.evaluate(32)
    assert 0.1 < before["reward"] < 0.8  # it was shown either word
    trainer = CreditGRPOTrainer(str(model), teams, config(tmp_path, max_steps=5))
    trainer.train()
    assert next(h["teams/flat"] for h in trainer.state.log_history if "teams/flat" in h) == 0
    teams.load(trainer.model.state_dict(), 5)
    assert teams.evaluate(32)["reward"] > before["reward"] + 0.15


@pytest.mark.parametrize(
    ("more", "says"), [({"loss_type": "grpo"}, "averages over rows"), ({"temperature": 0.7}, "the teams sample at 1.0")]
)
def test_settings_that_change_what_rows_weigh_are_refused(teams: TeamPlay, tmp_path: Path, more: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        CreditGRPOTrainer("unread", teams, config(tmp_path, **more))


def test_one_learner_learns_from_one_policy(model: Path, tmp_path: Path) -> None:
    mixed = [dataclasses.replace(row, policy=f"p{i % 2}") for i, row in enumerate(small())]
    with pytest.raises(InputError, match="rows of 2 policies"):
        CreditGRPOTrainer(str(model), mixed, config(tmp_path))


def test_rows_without_log_probabilities_are_for_grpo_and_not_for_the_asynchronous_trainer() -> None:
    bare = dataclasses.replace(rows()[0], logps=None)
    (back,) = trl.read(trl.to_bytes([bare], ".jsonl"), ".jsonl")
    assert back.logps is None
    with pytest.raises(InputError, match="no log-probabilities, and TRL learns from them"):
        samples_of(bare, 0)


# -- the asynchronous trainer


def attention(q: Any, k: Any, v: Any, q_ends: Any, k_ends: Any, *_: Any, softmax_scale: float, causal: bool, **__: Any) -> Any:
    """What flash attention computes for sequences laid end to end, in plain torch: it has no CPU kernel."""
    assert causal
    out = torch.empty_like(q)
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    for a, b, c, d in zip(q_ends[:-1], q_ends[1:], k_ends[:-1], k_ends[1:], strict=True):
        scores = torch.einsum("qhd,khd->hqk", q[a:b], k[c:d]) * softmax_scale
        hidden = torch.ones(b - a, d - c, dtype=torch.bool).triu(int(d - c - (b - a)) + 1)
        out[a:b] = torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), v[c:d])
    return out


def test_packed_samples_have_every_token_and_its_advantage_once() -> None:
    for number, row in enumerate(rows()):
        packed = packing.TreeRow()
        for sample in samples_of(row, number):
            packed.add(dataclasses.asdict(sample))
        found = packed.pack()
        order = np.argsort(found["token_index"].numpy(), kind="stable")
        np.testing.assert_allclose(found["advantages"].numpy()[order], row.advantages, rtol=0, atol=1e-6)
        np.testing.assert_allclose(found["old_log_probs"].numpy()[order], row.logps, rtol=0, atol=1e-6)
        assert found["input_ids"].tolist() == [*row.prompt_ids, *row.completion_ids]
        assert {s.model_version for s in samples_of(row, number)} == {int(row.version or 0)}


def test_the_asynchronous_trainer_learns_from_the_worker(
    teams: TeamPlay, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What it asks of a GPU: a kernel, and how fast the device could be, for a metric.
    monkeypatch.setattr(packing, "_flash_attn", lambda: SimpleNamespace(flash_attn_varlen_func=attention))
    monkeypatch.setattr("trl.experimental.async_grpo.async_grpo_trainer.get_peak_flops_per_device", lambda *_: None)
    args = AsyncGRPOConfig(
        str(tmp_path), per_device_train_batch_size=8, gradient_accumulation_steps=2, max_steps=3, learning_rate=4e-3, report_to=[],
        use_cpu=True, bf16=False, dtype="float32", logging_steps=1, save_strategy="no", disable_tqdm=True, weight_sync_steps=1,
        gradient_checkpointing=False, lr_scheduler_type="constant", token_budget=0,
    )  # fmt: skip
    worker = TeamRolloutWorker(teams)
    trainer = AsyncGRPOTrainer(
        str(model), args=args, train_dataset=Dataset.from_dict({"prompt": ["-"]}), rollout_worker=worker, weight_transfer=worker
    )
    trainer.train()
    told = [h for h in trainer.state.log_history if "loss" in h]
    assert len(told) == 3
    assert all(np.isfinite(h["loss"]) for h in told)
    assert abs(told[0]["ratio"] - 1) < 1e-3  # the engine's log-probabilities are the trainer's
    assert teams.version >= 3
    now, sent = trainer.model.state_dict(), teams.engine.weights["words"]
    torch.testing.assert_close(sent, now["model.embed_tokens.weight"].float())


def test_what_goes_wrong_while_teams_play_is_raised_in_the_trainer(teams: TeamPlay, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> list[TrainingRow]:
        raise InputError("no such card")

    monkeypatch.setattr(teams, "rows", broken)
    worker = TeamRolloutWorker(teams)
    worker.start()
    assert worker._thread is not None
    worker._thread.join()
    with pytest.raises(CounterpointError, match="no such card"):
        worker.check_health(1000)
    worker.stop()


def test_samples_that_the_trainer_would_drop_stop_it(teams: TeamPlay) -> None:
    worker = TeamRolloutWorker(teams, token_budget=10)
    worker.start()
    assert worker._thread is not None
    worker._thread.join()
    with pytest.raises(CounterpointError, match=r"tokens, and the trainer takes 10"):
        worker.check_health(1000)
    worker.stop()


# -- pairs and examples


def test_pairs_and_examples_are_learnt_from(model: Path, tmp_path: Path) -> None:
    from counterpoint.lab.trainers.dpo import dpo
    from counterpoint.lab.trainers.sft import sft

    usual = {"report_to": [], "use_cpu": True, "bf16": False, "max_steps": 1, "logging_steps": 1, "save_strategy": "no",
             "disable_tqdm": True, "per_device_train_batch_size": 2, "gradient_checkpointing": False}  # fmt: skip
    for trainer, made in ((dpo, (DPOTrainer, DPOConfig)), (sft, (SFTTrainer, SFTConfig))):
        assert trainer.write_texts is not None
        folder = tmp_path / made[0].__name__
        for path, data in dataset({"p": trainer.write_texts(text_calls())}, trainer.columns, "Rows", "Said.").items():
            (folder / path).parent.mkdir(exist_ok=True, parents=True)
            (folder / path).write_bytes(data)
        found = load_dataset(str(folder), "p", split="train", cache_dir=str(tmp_path / "cache"))
        learner = made[0](str(model), args=made[1](str(folder / "out"), **usual), train_dataset=found)
        learner.train()
        assert np.isfinite(learner.state.log_history[0]["loss"])
