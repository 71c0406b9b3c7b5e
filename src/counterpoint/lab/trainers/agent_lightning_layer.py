"""Agent Lightning: its CompletedRollouts in memory to credit, and back into the batch that verl's loss reads.

    # a module `team_credit` of yours, on the path of the run
    def setup():
        register_in_worker()                     # agentlightning.verl.per_rollout_loss: what its entrypoint does by itself
        install(CreditLayer("agent_wise"))

with `ray_kwargs.ray_init.runtime_env.worker_process_setup_hook=team_credit.setup` and `algorithm.adv_estimator=counterpoint`
(`counterpoint.lab.trainers.verl.estimator`). Agent Lightning gives each row of a run the reward of the run; here a row gets what
its calls earned, in `token_level_scores`, and the estimator passes that on. A call's agent is `user` of its request
(`client.chat.completions.create(user="planner", ...)`); `about` reads more from a request.

Always true: a token of a row has the advantage of the call that wrote it, or the batch is refused; calls that do not teach have a
`response_mask` of zeros, and rows of such calls alone are marked for the drop that the trainer makes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.trainers.credit_batch import CreditBatch
from counterpoint.lab.trainers.layer import CreditLayer
from counterpoint.lab.trainers.rollout import Rollout, Sample, Status
from counterpoint.lab.trainers.rollout_metadata import KEY, of_sample, team_words

TESTED = ("1.0.2",)
About = Callable[[Mapping[str, Any]], Mapping[str, Any]]
Row = list[tuple[int, int]]
"""The calls in a row of the batch: which one, and where its answer begins in the row's."""


def user_of(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """The agent by the field `user` of a request in the API of OpenAI."""
    return {"agent": request["user"]} if request.get("user") else {}


def rollouts_of(completed: Sequence[Any], about: About = user_of) -> list[Rollout]:
    """The runs, in the order in which Agent Lightning makes its rows of them; a call is a sample."""
    return [_rollout(one, about) for one in sorted(completed, key=lambda one: (one.step, one.sample_idx_in_step)) if one.triplets]


def credited(layer: CreditLayer, about: About = user_of) -> type[Any]:
    """Agent Lightning's RolloutAdapter, with the layer's advantages as the scores of tokens."""
    from agentlightning.verl.rollout_adapter import RolloutAdapter

    class CreditRolloutAdapter(RolloutAdapter):
        """The adapter whose rows have what their calls earned."""

        batch = CreditBatch([], [], [], {})

        def get_train_data_batch(self, completed_rollouts: list[Any], *, global_steps: int = 0) -> tuple[Any, dict[str, Any]]:
            """Agent Lightning's batch, with our scores and masks."""
            out, metrics = super().get_train_data_batch(completed_rollouts, global_steps=global_steps)
            rollouts = rollouts_of(completed_rollouts, about)
            self.batch = layer(rollouts, version=global_steps)
            type(self).batch = self.batch
            _fill(out, rollouts, self.batch, whole=self.trace_aggregator_level == "trajectory")
            metrics |= {"credit/rollouts": len(self.batch.accounts), "credit/unknown": len(self.batch.unknown)}
            return out, metrics

    return CreditRolloutAdapter


def install(layer: CreditLayer, about: About = user_of) -> None:
    """Let Agent Lightning's trainer, in this process, make its batches with the layer."""
    import agentlightning.verl.trainer as trainer

    trainer.RolloutAdapter = credited(layer, about)


def _rollout(one: Any, about: About) -> Rollout:
    if one.final_reward is not None and not math.isfinite(one.final_reward):
        raise InputError(f"the reward is {one.final_reward}", where=one.rollout_id, fix="a reward event with a number")
    requests = _requests(one)
    samples = [_sample(triplet, request, about, f"{one.rollout_id} call {i}")
               for i, (triplet, request) in enumerate(zip(one.triplets, requests, strict=True))]  # fmt: skip
    status: Status = "aborted" if one.final_reward is None else "complete"
    return Rollout(one.rollout_id, str(one.data_id), samples, reward=one.final_reward, status=status, about=one)


def _sample(triplet: Any, request: Mapping[str, Any], about: About, where: str) -> Sample:
    server = triplet.metadata.get("server") or {}
    told = {"policy": server.get("model"), "version": server.get("version")} | dict(about(request))
    words = of_sample(team_words({KEY: told}, where))
    answer = triplet.response
    logps = answer.get("log_probs")
    logps = logps if logps is not None and len(logps) == len(answer["token_ids"]) else None
    return Sample(ids=answer["token_ids"], logps=logps, prompt_ids=triplet.prompt["token_ids"], **words)


def _requests(one: Any) -> list[Mapping[str, Any]]:
    """The request of each call: events in their order, of which Agent Lightning left some out."""
    events = iter([event["data"] for event in one.events if event["event_type"] == "model_request"])
    out: list[Mapping[str, Any]] = []
    for triplet in one.triplets:
        for data in events:
            if _ids(data) == (triplet.prompt["token_ids"], triplet.response["token_ids"]):
                out.append(data.get("request") or {})
                break
        else:
            fix = "the events of the run, whole and in order"
            raise InputError(f"no request for call {len(out)}", where=one.rollout_id, fix=fix)
    return out


def _ids(data: Mapping[str, Any]) -> tuple[Any, Any]:
    """The token ids that were read and written, by the answer of a server in the API of OpenAI."""
    answer = data.get("response")
    if not isinstance(answer, Mapping):
        return data.get("prompt_token_ids"), data.get("response_token_ids")
    choice = (answer.get("choices") or [{}])[0]
    return answer.get("prompt_token_ids") or choice.get("prompt_token_ids"), choice.get("token_ids")


def _rows(rollout: Rollout, whole: bool) -> list[Row]:
    """The rows that Agent Lightning makes of a run: one for each call, or one for calls whose prompts go on from each other."""
    rows: list[Row] = []
    begin, context = 0, list[int]()
    for i, sample in enumerate(rollout.samples):
        prompt = list(sample.prompt_ids)
        if whole and rows and prompt[: len(context)] == context:
            rows[-1].append((i, len(prompt) - begin))
        else:
            begin = len(prompt)
            rows.append([(i, 0)])
        context = prompt + list(sample.ids)
    return rows


def _fill(out: Any, rollouts: Sequence[Rollout], batch: CreditBatch, *, whole: bool) -> None:
    """Scores, masks and drops of the batch, in place; refused where a row is not what a call wrote."""
    import torch

    answers = out.batch["responses"].cpu().numpy()
    lengths = out.batch["attention_mask"][:, -answers.shape[1] :].sum(1).tolist()
    names = out.non_tensor_batch["rollout_id_list"].tolist()
    scores, teaches = np.zeros(answers.shape, np.float32), np.zeros(answers.shape, np.int64)
    arrays, masks = batch.arrays(), batch.masks()
    place, first = 0, 0
    for rollout in rollouts:
        for row in _rows(rollout, whole):
            if place == len(names) or names[place] != rollout.name or not _is_row(answers[place, : lengths[place]], row, rollout):
                continue  # Agent Lightning makes no row of an answer without tokens, or without room for one
            for call, begin in row:
                end = min(begin + rollout.samples[call].size, lengths[place])
                if end > begin:
                    scores[place, begin:end] = arrays[first + call][: end - begin]
                    teaches[place, begin:end] = masks[first + call][: end - begin]
            place += 1
        first += len(rollout.samples)
    if place < len(names):
        why = f"rows are those of Agent Lightning {TESTED[0]}, in its order"
        raise InputError("a row that no call wrote", where=str(names[place]), why=why, fix=f"agentlightning=={TESTED[0]}")
    device = out.batch["responses"].device
    out.batch["token_level_scores"] = torch.as_tensor(scores, device=device)
    out.batch["response_mask"] = torch.as_tensor(teaches, device=device)
    out.batch["is_drop_mask"] = out.batch["is_drop_mask"] | torch.as_tensor(~teaches.any(1), device=device)


def _is_row(answer: Any, row: Row, rollout: Rollout) -> bool:
    """Whether an answer begins with what the row's first call wrote; the other calls follow from their prompts."""
    wrote = rollout.samples[row[0][0]].ids
    size = min(len(answer), len(wrote))
    return size > 0 and answer[:size].tolist() == list(wrote[:size])
