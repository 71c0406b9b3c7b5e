"""Rows in verl: its trainer's own advantage step gives back our credit, and its own estimator the same where credit is GRPO.

Needs: pip install '.[verl]' in a clone
Run it: python examples/trainers/with_verl.py rows.pkl
"""

from __future__ import annotations

import sys

from omegaconf import OmegaConf
from verl import DataProto
from verl.trainer.ppo.ray_trainer import compute_advantage

import counterpoint.lab.trainers.verl.estimator  # noqa: F401 - verl finds it by itself where Counterpoint is installed
from counterpoint.lab.trainers.verl import rows_of


def main(path: str = "rows.pkl") -> None:
    """Read the rows, and let verl compute what its loss is given."""
    data = compute_advantage(DataProto.load_from_disk(path), adv_estimator="counterpoint", config=OmegaConf.create({}))
    rows = rows_of(data)
    given = data.batch["advantages"]
    gap = max(abs(float(given[i, k]) - a) for i, row in enumerate(rows) for k, a in enumerate(row.advantages))
    print(f"{len(rows)} rows of {len({row.group for row in rows})} tasks; advantages differ by {gap:g} at most")


if __name__ == "__main__":
    main(*sys.argv[1:])
