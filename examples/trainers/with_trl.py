"""A tiny Llama learns with TRL's GRPOTrainer, paid by a team's task and credited by Counterpoint. On a CPU, in a minute.

Needs: pip install '.[trl]' in a clone
Run it: python examples/trainers/with_trl.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from tiny_model import make
from trl import GRPOConfig

from counterpoint.lab.train.lm.run import train_language
from counterpoint.lab.trainers.team_play import TeamPlay
from counterpoint.lab.trainers.trl.grpo import CreditGRPOTrainer

TASK = {
    "name": "colours:colours",
    "topology": "harness",
    "limits": {"width": 1, "max_tokens": 8, "turns": 6, "steps": 3, "repairs": 0},
}


def shown(folder: Path) -> Path:
    """A model that speaks the team's language: it has imitated somebody who says either word."""
    if not (folder / "shown" / "model").exists():
        imitate = {"teams": 24, "steps": 30, "batch": 12, "lr": 1e-2, "warmup": 4}
        told = {"model": str(make(folder / "tiny")), "task": [TASK], "imitate": imitate, "eval_episodes": 1, "workers": 1}
        train_language(folder / "shown", told)
    return folder / "shown" / "model"


def main(folder: str = "with-trl") -> None:
    """Imitate, then learn from what is paid."""
    torch.set_num_threads(1)
    model = shown(Path(folder))
    learn = {"credit": ["group_relative"], "groups": 3, "samples": 8, "resample": 0}
    with TeamPlay({"model": str(model), "task": [TASK], "learn": learn, "workers": 1}) as teams:
        before = teams.evaluate(32)
        args = GRPOConfig(
            f"{folder}/out", per_device_train_batch_size=24, gradient_accumulation_steps=2, steps_per_generation=2,
            num_generations=2, max_steps=5, learning_rate=4e-3, lr_scheduler_type="constant", report_to=[], use_cpu=True,
            bf16=False, save_strategy="no", logging_steps=1, disable_tqdm=True, gradient_checkpointing=False,
        )  # fmt: skip
        trainer = CreditGRPOTrainer(str(model), teams, args)
        trainer.train()
        teams.load(trainer.model.state_dict(), version=args.max_steps)
        print(f"solved before {before['solved']:.2f}, after {teams.evaluate(32)['solved']:.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
