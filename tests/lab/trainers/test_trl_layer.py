"""The credit layer in TRL's GRPOTrainer: the batch is what a hand computes, for teams of any number of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl", reason="the package trl is not installed: pip install '.[trl]'")
torch = pytest.importorskip("torch")

from datasets import Dataset  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402

from counterpoint.errors import InputError  # noqa: E402
from counterpoint.lab.bench.claims import under_trl  # noqa: E402
from counterpoint.lab.trainers.layer import CreditLayer  # noqa: E402
from counterpoint.lab.trainers.trl import team_task  # noqa: E402
from counterpoint.lab.trainers.trl.team_grpo import TeamGRPOTrainer  # noqa: E402
from counterpoint.lab.trainers.trl.team_task import learn, tiny_model  # noqa: E402


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    torch.set_num_threads(1)


def config(folder: Path, **more: Any) -> GRPOConfig:
    usual: dict[str, Any] = {
        "per_device_train_batch_size": 4, "num_generations": 2, "max_steps": 1, "learning_rate": 0.0, "beta": 0.0, "report_to": [],
        "use_cpu": True, "bf16": False, "gradient_checkpointing": False, "save_strategy": "no", "disable_tqdm": True,
        "logging_steps": 1, "lr_scheduler_type": "constant",
    }  # fmt: skip
    return GRPOConfig(str(folder), **{**usual, **more})


def play(prompts: list[str], trainer: Any) -> dict[str, list[Any]]:
    """Run i of a batch has a lead and i workers, of whom the last is frozen."""
    rows: dict[str, list[Any]] = {key: [] for key in ("prompt_ids", "completion_ids", "logprobs", "rollout", "prompt", "agent",
                                                      "name", "parent", "env_mask", "frozen", "task")}  # fmt: skip
    for i in range(len(prompts)):
        for k in range(i + 1):
            ids = [5 + k] * (k + 2)
            row = ([2], ids, [-1.0] * len(ids), i, i, f"a{k}", f"a{k}", "a0" if k else None, [1, 0, *[1] * k][: len(ids)],
                   k == 3, f"task {i // 2}")  # fmt: skip
            for key, value in zip(rows, row, strict=True):
                rows[key].append(value)
    return rows


def paid(completions: list[Any], rollout: list[int], agent: list[str], **_: Any) -> list[float | None]:
    return [float(run**2) if who == "a0" else None for run, who in zip(rollout, agent, strict=True)]


def trainer_of(folder: Path, layer: CreditLayer, *, rollout_func: Any = play, reward: Any = paid, **more: Any) -> TeamGRPOTrainer:
    model, tokenizer = tiny_model(0)
    tasks = Dataset.from_dict({"prompt": ["lead", "worker"] * 2})
    own = {name: more.pop(name) for name in ("paid",) if name in more}
    return TeamGRPOTrainer(model, reward, config(folder, **more), train_dataset=tasks, processing_class=tokenizer,
                           rollout_func=rollout_func, layer=layer, **own)  # fmt: skip


def kept(trainer: Any) -> list[dict[str, Any]]:
    """What reaches TRL's loss."""
    seen: list[dict[str, Any]] = []
    loss = trainer._compute_loss
    trainer._compute_loss = lambda model, inputs: seen.append(inputs) or loss(model, inputs)
    trainer.train()
    return seen


def test_rows_of_teams_of_every_size_reach_the_loss_with_their_advantages(tmp_path: Path) -> None:
    # runs 0 and 1 are paid 0 and 1, runs 2 and 3 are paid 4 and 9: -0.5, 0.5, -2.5, 2.5 against the mean
    trainer = trainer_of(tmp_path, CreditLayer("group_relative", convention="prime_rl"))
    (batch,) = kept(trainer)
    assert batch["advantages"].shape == batch["completion_ids"].shape == (10, 5)
    found = {}
    for ids, advantages, mask in zip(batch["completion_ids"], batch["advantages"], batch["tool_mask"], strict=True):
        n = int((ids > 4).sum())
        taught = advantages[(mask == 1) & (ids > 4)]
        found.setdefault((int(ids[0]) - 5, n), []).append((sorted(set(taught.tolist())), advantages[n:].abs().sum().item()))
    assert sorted(found[0, 2]) == [([-2.5], 0), ([-0.5], 0), ([0.5], 0), ([2.5], 0)]
    assert sorted(found[1, 3]) == [([-2.5], 0), ([0.5], 0), ([2.5], 0)]
    assert found[3, 5] == [([], 0)]  # the frozen one teaches nothing
    taught = 4 * 1 + 3 * 2 + 2 * 3  # tokens that the mask leaves of a0, a1 and a2
    assert int((batch["tool_mask"] * batch["completion_mask"]).sum()) == int(batch["num_items_in_batch"]) == taught
    told = trainer.state.log_history[0]
    assert (told["credit/rows"], told["credit/rollouts"], told["credit/unknown"]) == (10, 4, 0)
    trainer.batch.check()


def test_the_loss_is_the_one_computed_by_hand(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, CreditLayer("group_relative", convention="prime_rl"))
    kept(trainer)  # on the policy every ratio is 1: minus the mean advantage of 1, 3, 6 and 6 tokens
    by_hand = -(1 * -0.5 + 3 * 0.5 + 6 * -2.5 + 6 * 2.5) / 16
    assert trainer.state.log_history[0]["loss"] == pytest.approx(by_hand, abs=1e-5)


def test_identical_credit_of_single_agents_is_trl_own(tmp_path: Path) -> None:
    def single(prompts: list[str], trainer: Any) -> dict[str, list[Any]]:
        n = len(prompts)
        return {"prompt_ids": [[2]] * n, "completion_ids": [[5 + i, 6] for i in range(n)], "logprobs": [[-1.0, -1.0]] * n,
                "rollout": list(range(n)), "agent": ["a"] * n}  # fmt: skip

    def reward(completions: list[Any], completion_ids: list[list[int]], **_: Any) -> list[float]:
        return [float(ids[0] ** 2) for ids in completion_ids]

    ours = kept(trainer_of(tmp_path / "ours", CreditLayer("group_relative", convention="trl"), rollout_func=single, reward=reward))
    model, tokenizer = tiny_model(0)
    tasks = Dataset.from_dict({"prompt": ["lead", "worker"] * 2})
    theirs = kept(GRPOTrainer(model, reward, config(tmp_path / "theirs"), train_dataset=tasks, processing_class=tokenizer,
                              rollout_func=lambda p, t: {k: v for k, v in single(p, t).items() if k not in ("rollout", "agent")}))  # fmt: skip
    by_row = [{int(ids[0]): float(a.reshape(-1)[0]) for ids, a in zip(b["completion_ids"], b["advantages"], strict=True)}
              for (b,) in (ours, theirs)]  # fmt: skip
    assert by_row[0] == pytest.approx(by_row[1], abs=1e-5)
    assert len(by_row[0]) == 4


def test_a_number_of_rows_that_does_not_divide_is_filled_up_with_rows_that_teach_nothing(tmp_path: Path) -> None:
    def odd(prompts: list[str], trainer: Any) -> dict[str, list[Any]]:
        return {key: values[:9] for key, values in play(prompts, trainer).items()}

    args = {"steps_per_generation": 2, "gradient_accumulation_steps": 2, "per_device_train_batch_size": 2}
    batches = kept(trainer_of(tmp_path, CreditLayer("group_relative"), rollout_func=odd, **args))
    assert [len(b["advantages"]) for b in batches] == [5, 5]
    blank = [row for b in batches for row, ids in zip(b["tool_mask"] * b["completion_mask"], b["completion_ids"], strict=True)
             if int(ids[0]) < 5]  # fmt: skip
    assert len(blank) == 1
    assert int(blank[0].sum()) == 0


def test_rows_paid_by_themselves_and_runs_without_a_reward(tmp_path: Path) -> None:
    def each(completions: list[Any], rollout: list[int], agent: list[str], **_: Any) -> list[float | None]:
        return [None if run == 0 else float(run * int(who[1:])) for run, who in zip(rollout, agent, strict=True)]

    layer = CreditLayer("agent_wise", convention="prime_rl", singleton="zero")
    trainer = trainer_of(tmp_path / "each", layer, reward=each, paid="sample")
    kept(trainer)
    assert list(trainer.batch.unknown.values()) == ["aborted", "nobody to compare with"]
    both = zip(trainer.batch.samples, trainer.batch.numbers(), strict=True)
    of = {(int(r.name.rpartition("-")[2]), s.agent): a for (r, s), a in both}
    assert of[2, "a2"] == -1.0  # 4 against 6
    assert of[3, "a1"] == 0.5  # 3 against 2
    with pytest.raises(InputError, match="its rows are paid from 0 to"):
        kept(trainer_of(tmp_path / "team", CreditLayer("agent_wise"), reward=each))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda rows: {k: v for k, v in rows.items() if k != "rollout"}, "no column 'rollout'"),
        (lambda rows: {k: v for k, v in rows.items() if k != "prompt"}, "10 rows for 4 prompts"),
        (lambda rows: {**rows, "agent": ["a"]}, "1 values of 'agent' for 10 rows"),
        (lambda rows: {**rows, "prompt": [7] * 10}, "rows of no prompt"),
        (lambda rows: {**rows, "rollout": [0] * 10}, "two samples of one name|rows of 2 tasks"),
    ],
)
def test_rows_that_cannot_be_told_apart_are_refused(tmp_path: Path, change: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        kept(trainer_of(tmp_path, CreditLayer("group_relative"), rollout_func=lambda p, t: change(play(p, t))))


def test_settings_that_change_what_rows_weigh_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="averages over rows"):
        trainer_of(tmp_path, CreditLayer("group_relative"), loss_type="grpo")
    with pytest.raises(InputError, match="paid='rows'"):
        trainer_of(tmp_path, CreditLayer("group_relative"), paid="rows")


def test_the_team_task_is_learnt_with_computed_credit(tmp_path: Path) -> None:
    done = learn("computed", 0, 0, steps=12)
    assert done["score"] > done["before"] + 0.2
    assert done["best"] == pytest.approx(0.76)
    assert np.isfinite(done["score"])


def test_a_model_of_ones_own_learns_the_task_in_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs on a GPU with SmolLM2-135M, here with a tiny Llama that knows English words, and one that does not."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    for name, spoken in (("knows", team_task.ENGLISH.values()), ("not", list(team_task.ENGLISH.values())[-8:])):
        words = ["<eos>", "How", "many", "workers", "are", "called", "Answer", ":", "Which", "colour", "has", "the", "?"]
        words += [word.strip() for word in spoken]
        plain = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<eos>"))
        plain.pre_tokenizer = Whitespace()
        PreTrainedTokenizerFast(tokenizer_object=plain, eos_token="<eos>").save_pretrained(tmp_path / name)
        shape = LlamaConfig(vocab_size=len(words), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
                            num_key_value_heads=2, max_position_embeddings=32, eos_token_id=0)  # fmt: skip
        LlamaForCausalLM(shape).save_pretrained(tmp_path / name)
    monkeypatch.setenv("COUNTERPOINT_LM", str(tmp_path / "knows"))
    done = learn("computed", 0, 0, steps=1)
    assert done["score"] == done["before"]
    assert done["best"] == pytest.approx(0.76)
    monkeypatch.setenv("COUNTERPOINT_LM", str(tmp_path / "not"))
    with pytest.raises(InputError, match="words that are the same token"):
        learn("computed", 0, 0, steps=1)


def test_a_model_of_ones_own_begins_as_a_weak_team(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lead says any number, each worker is right in 1 of 5 and every wrong answer is as likely as the next."""
    monkeypatch.setattr(team_task, "_WEAK_RATE", 1e-2)  # two layers learn slowly
    model, tokenizer = tiny_model(0)
    speech = team_task.Speech(tokenizer, {word: word for word in team_task.WORDS})
    right = team_task.right_answers(0)
    team_task.imitate(model, speech, right)
    with torch.no_grad():
        asked = [speech.ids(speech.question(item)) for item in team_task.ITEMS]
        answers = team_task.likely_words(model, asked, [speech.token(word) for word in team_task.ANSWERS]).exp()
        counts = team_task.likely_words(model, [speech.ids("lead")], [speech.token(word) for word in team_task.COUNTS]).exp()
    wanted = [[0.2 if right[item] == word else 0.8 / 7 for word in team_task.ANSWERS] for item in team_task.ITEMS]
    assert np.abs(answers.numpy() - wanted).max() < 0.06
    assert np.abs(counts.numpy() - 0.125).max() < 0.06


def test_questions_of_one_length_are_read_at_once_and_say_the_same() -> None:
    model, _ = tiny_model(1)
    asked = [[2], [3, 5], [3, 6], [2], [3, 5, 7]]
    with torch.no_grad():
        found = team_task.likely_words(model, asked, [4, 9]).numpy()
        alone = [model(torch.tensor([ids])).logits[0, -1].log_softmax(-1)[[4, 9]].numpy() for ids in asked]
    assert found == pytest.approx(np.array(alone), abs=1e-5)


def test_the_claim_runs_every_arm_and_compares_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(under_trl, "_STEPS", 2)
    monkeypatch.setenv("COUNTERPOINT_RUNS", str(tmp_path))
    rows = {row.name: row for row in under_trl.under_trl(seed=0, seeds=1)}
    assert len(rows) == 8
    assert rows["before anything is learnt: share of the best"].value == pytest.approx(-0.07421875 / 0.76)
    assert not rows["computed: share of the best team's reward"].ok  # in two updates nobody learns it
    files = sorted(tmp_path.rglob("*.json"))
    assert [file.name for file in files] == [f"{arm}-0-0-0.json" for arm in ("computed", "dr-mas", "identical", "reward-K")]

    before = [file.stat().st_mtime_ns for file in files[:-1]]
    told = files[-1].read_bytes()
    files[-1].unlink()  # what was cut off is made again, what ended is read
    assert {row.name: row for row in under_trl.under_trl(seed=0, seeds=1)} == rows
    assert [file.stat().st_mtime_ns for file in files[:-1]] == before
    assert files[-1].read_bytes() == told

    monkeypatch.setattr(under_trl, "_STEPS", 3)
    with pytest.raises(InputError, match=r"computed-0-0-0\.json: 2 updates, where this claim makes 3.*delete"):
        list(under_trl.under_trl(seed=0, seeds=1))
