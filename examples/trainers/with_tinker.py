"""Rows as Tinker's datums; sent to a training client where TINKER_API_KEY is set.

Needs: pip install '.[tinker]' in a clone
Run it: python examples/trainers/with_tinker.py rows.jsonl [MODEL]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from counterpoint.lab.trainers.tinker import datums


def main(path: str = "rows.jsonl", model: str = "meta-llama/Llama-3.2-1B") -> None:
    """Build the datums, and make one step with them."""
    made = datums(Path(path).read_bytes())
    tokens = sum(one.model_input.length for one in made)
    if not os.environ.get("TINKER_API_KEY"):
        print(f"{len(made)} datums, {tokens} tokens; none sent: TINKER_API_KEY is not set")
        return
    import tinker

    client = tinker.ServiceClient().create_lora_training_client(base_model=model)
    client.forward_backward(made, loss_fn="importance_sampling").result()
    client.optim_step(tinker.AdamParams(learning_rate=1e-5)).result()
    print(f"{len(made)} datums, {tokens} tokens, one step")


if __name__ == "__main__":
    main(*sys.argv[1:])
