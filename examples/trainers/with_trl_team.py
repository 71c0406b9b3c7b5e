"""A team of your own in TRL's GRPOTrainer: a lead and two workers, each to find its own word, paid as a team. On a CPU.

Needs: pip install '.[trl]' in a clone
Run it: python examples/trainers/with_trl_team.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from datasets import Dataset
from tiny_model import make
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig

from counterpoint.lab.trainers.layer import CreditLayer
from counterpoint.lab.trainers.trl.team_grpo import TeamGRPOTrainer

WORDS = ("red", "blue")
RIGHT = {"lead": "blue", "ann": "red", "bob": "blue"}
DRAW = torch.Generator().manual_seed(0)
PAID = []


def play(prompts, trainer):
    """A run of the team for each prompt, a row for each agent: TRL's `rollout_func`, played with the weights that learn."""
    model, tokenizer = trainer.accelerator.unwrap_model(trainer.model), trainer.processing_class
    words = [tokenizer.encode(word)[0] for word in WORDS]
    rows = []
    for agent in RIGHT:
        ids = tokenizer.encode(f"{agent}, say one: ")
        with torch.no_grad():
            likely = model(torch.tensor([ids])).logits[0, -1].log_softmax(-1)[words]
        for run, k in enumerate(torch.multinomial(likely.softmax(-1), len(prompts), True, generator=DRAW).tolist()):
            rows.append({
                "prompt_ids": ids, "completion_ids": [words[k]], "logprobs": [float(likely[k])], "rollout": run, "prompt": run,
                "agent": agent, "name": agent, "parent": None if agent == "lead" else "lead", "said": WORDS[k],
            })  # fmt: skip
    rewards = [score({row["agent"]: row["said"] for row in rows if row["rollout"] == run}) for run in range(len(prompts))]
    PAID.append(sum(rewards) / len(rewards))
    return {name: [row[name] for row in rows] for name in rows[0]} | {"paid": [rewards[row["rollout"]] for row in rows]}


def score(said):
    """What a team is paid: the share of its agents who said their word."""
    return sum(RIGHT[agent] == word for agent, word in said.items()) / len(RIGHT)


def reward(completions, paid, **_):
    """TRL's reward function: the team's, for each of its rows."""
    return paid


def without(rollout, agent):
    """The checker's answer for the same run without one agent."""
    return score({row["agent"]: row["said"] for row in rollout.about if row["agent"] != agent})


def main(folder: str = "with-trl-team") -> None:
    """Learn, and say what the team was paid at first and at last."""
    torch.set_num_threads(1)
    path = make(Path(folder) / "tiny")
    args = GRPOConfig(
        f"{folder}/out", per_device_train_batch_size=16, num_generations=16, max_steps=20, learning_rate=4e-3, beta=0.0,
        lr_scheduler_type="constant", report_to=[], use_cpu=True, bf16=False, save_strategy="no", logging_steps=20,
        disable_tqdm=True, gradient_checkpointing=False, max_completion_length=1,
    )  # fmt: skip
    trainer = TeamGRPOTrainer(
        AutoModelForCausalLM.from_pretrained(path), reward, args, train_dataset=Dataset.from_dict({"prompt": ["colours"] * 16}),
        processing_class=AutoTokenizer.from_pretrained(path), rollout_func=play,
        layer=CreditLayer("difference", counterfactual=without),
    )  # fmt: skip
    trainer.train()
    print(f"paid at first {PAID[0]:.2f}, at last {PAID[-1]:.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
