"""The credit layer under verl: your own agent loop plays a run, the runs of a prompt are credited together.

    class Team(CreditLoop):                                       # was: AgentLoopBase
        layer = CreditLayer("difference", counterfactual=without)

        async def play(self, sampling_params, **kwargs):          # was: run
            return [lead_output, worker_output, ...]              # verl's AgentLoopOutput, one for each sample

with `algorithm.adv_estimator=counterpoint`, on verl's V1 trainer (one process plays all samples of a prompt, and one run may give
several outputs). `extra_fields` of an output say who wrote it, as `Sample` has it: agent, role, name, parent, after, reads,
policy, frozen, status, calls. The last output's `reward_score` is the team's, as verl has it; with `paid = "sample"` each
output's is its agent's.

Always true: tokens and log-probabilities are those that `play` gave; an output of which no token teaches (frozen, of another
policy, kept out) is not handed to the trainer, and tokens that do not teach are masked. A prompt that is held out (a column
`held_out`, or `extra_info["held_out"]`) is given back as it was played. What is lost on the way is an error that names the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput

from counterpoint.errors import InputError
from counterpoint.lab.trainers.layer import CreditLayer
from counterpoint.lab.trainers.rollout import Rollout, Sample
from counterpoint.lab.trainers.trainer import warn_version
from counterpoint.lab.trainers.verl import TESTED
from counterpoint.lab.trainers.verl.agent_loop import CreditedOutput, check_fits

_SAID = ("agent", "role", "name", "parent", "after", "reads", "policy", "frozen", "status", "calls")


class _Prompt:
    """The runs of one prompt that are under way, and then what each is taught."""

    def __init__(self) -> None:
        self.playing = 0
        self.played: dict[int, Sequence[AgentLoopOutput]] = {}
        self.taught: dict[int, list[AgentLoopOutput]] = {}
        self.error: BaseException | None = None
        self.are_all_in = asyncio.Event()


class CreditLoop(AgentLoopBase):
    """An agent loop whose outputs have an advantage for each token."""

    layer: ClassVar[CreditLayer] = CreditLayer("group_relative")
    paid: ClassVar[Literal["team", "sample"]] = "team"
    policy: ClassVar[str | None] = None
    """Which policy verl trains here; outputs of others are left out. None: all that is not frozen."""
    _under_way: ClassVar[dict[str, _Prompt]] = {}

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        warn_version("verl", TESTED)
        needs = self.layer.needs_others or not (self.layer.compares or self.layer.against == "nothing")
        if needs and self.rollout_config.n < 2:
            raise InputError("one sample of a prompt has nothing to be compared with", fix="actor_rollout_ref.rollout.n=8")

    async def play(self, sampling_params: dict[str, Any], **kwargs: Any) -> Sequence[AgentLoopOutput]:
        """Yours: one run of the team."""
        raise NotImplementedError

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[AgentLoopOutput]:
        """Play a run, wait for the others of its prompt, and give what verl's trainer learns from."""
        if _is_held_out(kwargs):
            return list(await self.play(sampling_params, **kwargs))
        if "uid" not in kwargs:
            raise InputError("a prompt without a uid", where="verl", fix="verl's V1 trainer: trainer.use_v1=True")
        uid, session = str(kwargs["uid"]), int(kwargs.get("session_id", 0))
        prompt = self._under_way.setdefault(uid, _Prompt())
        prompt.playing += 1
        try:
            await asyncio.sleep(0)  # the others of the prompt begin before the first can end
            prompt.played[session] = await self.play(sampling_params, **kwargs)
        finally:
            prompt.playing -= 1
            if not prompt.playing:
                self._under_way.pop(uid, None)
                self._credit(uid, prompt)
        await prompt.are_all_in.wait()
        if prompt.error is not None:
            raise prompt.error
        return prompt.taught[session]

    def _credit(self, uid: str, prompt: _Prompt) -> None:
        """What each run of a prompt is taught, once the last has been played."""
        try:
            places = sorted(prompt.played)
            batch = self.layer([self._rollout(uid, place, prompt.played[place]) for place in places])
            outputs = [(place, out) for place in places for out in prompt.played[place]]
            prompt.taught = {place: [] for place in places}
            found: list[Any] = []
            for (place, out), (rollout, sample), array, mask in zip(
                outputs, batch.samples, batch.arrays(), batch.masks(), strict=True
            ):
                found.append(None)
                if mask.any() and self.policy in (None, sample.policy):
                    made = _credited(out, array.tolist(), mask.astype(int).tolist())
                    check_fits(self.rollout_config, rollout.name, prompt=made.prompt_ids, response=made.response_ids)
                    prompt.taught[place].append(made)
                    found[-1] = made.token_rewards
            batch.check(found)
            for place, rollout in zip(places, batch.rollouts, strict=True):
                _tell(prompt.taught[place], prompt.played[place], rollout)
        except Exception as error:
            prompt.error = error
        prompt.are_all_in.set()

    def _rollout(self, uid: str, place: int, outputs: Sequence[AgentLoopOutput]) -> Rollout:
        name = f"{uid}-{place}"
        samples = []
        for out in outputs:
            about = {key: out.extra_fields[key] for key in _SAID if out.extra_fields.get(key) is not None}
            if self.paid == "sample" and out.reward_score is not None:
                about["reward"] = float(out.reward_score)
            version = out.extra_fields.get("min_global_steps")
            samples.append(
                Sample(ids=out.response_ids, mask=out.response_mask, logps=out.response_logprobs, prompt_ids=out.prompt_ids,
                       version=None if version is None else int(version), **about)
            )  # fmt: skip
        team = outputs[-1].reward_score if outputs and self.paid == "team" else None
        is_aborted = not outputs or any(sample.status == "aborted" for sample in samples)
        if team is None and not is_aborted and all(sample.reward is None for sample in samples):
            fix = "reward_score of the last output: verl's own reward function is asked later, when the run has been credited"
            raise InputError("no reward", where=name, fix=fix)
        return Rollout(name, uid, samples, reward=team, status="aborted" if is_aborted else "complete", about=outputs)


def _is_held_out(kwargs: Mapping[str, Any]) -> bool:
    about = kwargs.get("extra_info")
    return bool(kwargs.get("held_out") or (isinstance(about, Mapping) and about.get("held_out")))


def _credited(out: AgentLoopOutput, rewards: list[float], mask: list[int]) -> CreditedOutput:
    """The output with its advantages as the tokens' rewards, which verl's estimator `counterpoint` passes on."""
    fields = {name: getattr(out, name) for name in type(out).model_fields if name in out.model_fields_set}
    ours = {"extra_fields": dict(out.extra_fields), "response_mask": mask, "token_rewards": rewards, "reward_score": None}
    return CreditedOutput(**{**fields, **ours})


def _tell(taught: Sequence[AgentLoopOutput], played: Sequence[AgentLoopOutput], rollout: Rollout) -> None:
    """What verl logs of the run stands in the last output that it is given."""
    if not taught:
        return
    reward = rollout.team_reward()
    told = dict(played[-1].extra_fields.get("reward_extra_info") or {})
    taught[-1].reward_score = reward
    taught[-1].extra_fields["reward_extra_info"] = {**told, "team_reward": reward}
