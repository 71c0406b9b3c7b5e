"""A team with an adapter of its own for each role, as Tinker's datums, in memory; one step where TINKER_API_KEY is set.

What was said is written here by hand, so that nothing is asked of a server: yours come from `sampling_client.sample(...)`.

Needs: pip install '.[tinker]' in a clone
Run it: python examples/trainers/with_tinker_team.py [MODEL]
"""

from __future__ import annotations

import os
import sys

import numpy as np
from tinker import ModelInput, SampledSequence

from counterpoint.lab.trainers.layer import CreditLayer
from counterpoint.lab.trainers.rollout import Rollout
from counterpoint.lab.trainers.tinker_layer import datums_of, samples_of


def said(*tokens):
    """What a sampling client gives for one prompt."""
    ids, logps = np.asarray(tokens, np.int32), np.full(len(tokens), -0.5, np.float32)
    return SampledSequence(stop_reason="stop", sequence_id="s", tokens_np=ids, logprobs_np=logps)


def played(name, answer, reward):
    """A lead of two turns, and a worker that it called after the first; a frozen judge."""
    asked, more = ModelInput.from_ints([1, 2]), ModelInput.from_ints([1, 2, 3, 4, *answer])
    lead = samples_of([(asked, said(3, 4)), (more, said(5))], agent="lead", name="lead")
    worker = samples_of([(ModelInput.from_ints([7]), said(*answer))], agent="worker", parent="lead", policy="worker")
    judge = samples_of([(ModelInput.from_ints([9]), said(8))], agent="judge", frozen=True)
    return Rollout(name, "task", [*lead, *worker, *judge], reward=reward)


def main(model="meta-llama/Llama-3.2-1B"):
    """Credit two runs of a task, and make one step of each policy with them."""
    layer = CreditLayer("agent_wise")
    data = datums_of(layer([played("good", [6, 6], 1.0), played("bad", [8], 0.0)]))
    for policy, own in data.items():
        print(policy, [one.loss_fn_inputs["advantages"].to_numpy().round(2).tolist() for one in own])
    if not os.environ.get("TINKER_API_KEY"):
        print("none sent: TINKER_API_KEY is not set")
        return
    import tinker

    for own in data.values():
        client = tinker.ServiceClient().create_lora_training_client(base_model=model)
        client.forward_backward(own, loss_fn="importance_sampling").result()
        client.optim_step(tinker.AdamParams(learning_rate=1e-5)).result()


if __name__ == "__main__":
    main(*sys.argv[1:])
