"""Rows as slime's samples, and the advantages that slime's trainer asks for by their index.

Run it: python examples/trainers/with_slime.py rows.pt
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

import torch

from counterpoint.lab.trainers.slime import advantages


def main(path: str = "rows.pt") -> None:
    """What slime does with the file: read samples, pass some of their fields on, ask for advantages."""
    samples = torch.load(path, weights_only=True)["samples"]
    data = {
        "sample_indices": [sample["index"] for sample in samples],
        "response_lengths": [sample["response_length"] for sample in samples],
        "kl": [torch.zeros(sample["response_length"]) for sample in samples],
    }
    advantages(SimpleNamespace(load_debug_rollout_data=path), data)
    total = sum(len(a) for a in data["advantages"])
    print(f"{len(samples)} samples, {total} advantages, {len({s['group_index'] for s in samples})} groups")


if __name__ == "__main__":
    main(*sys.argv[1:])
