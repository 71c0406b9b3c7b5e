"""An agent loop for verl that plays our teams with the model that verl serves, and hands on an advantage for each token.

Always true: the samples of a prompt are credited together, once all of them have been played; each model call becomes one output
with exactly the tokens that the server read and wrote. A prompt that is held out (for validation) gets its reward instead.

In the file that `actor_rollout_ref.rollout.agent.agent_loop_config_path` names, for verl's V1 trainer
(one run of it plays all samples of a prompt in one process, and takes several outputs of one run):

    - name: counterpoint
      _target_: counterpoint.lab.trainers.verl.agent_loop.TeamAgentLoop
      credit: [group_relative]
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar
from uuid import uuid4

import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

import counterpoint.registry as registry
from counterpoint.errors import InputError
from counterpoint.lab.lm.chat import Chat
from counterpoint.lab.lm.model import Call, Completion, ModelFailed
from counterpoint.lab.team.edits import Edits, keyed_seed
from counterpoint.lab.team.session import DRAWS, Spec, assemble, play_to_trace
from counterpoint.lab.train.lm.advantages import advantages, less_prices
from counterpoint.lab.train.lm.settings import Learn, Prices
from counterpoint.lab.trainers.row import TrainingRow, as_float32, logps_of, training_rows
from counterpoint.lab.trainers.trainer import warn_version
from counterpoint.lab.trainers.verl import TESTED
from counterpoint.recorder.recorder import MemorySink, Recorder, WallClock
from counterpoint.trace import Trace


class CreditedOutput(AgentLoopOutput):
    """An output whose reward is per token: verl's own puts one number at the last."""

    token_rewards: list[float]

    def as_dict(self) -> dict[str, Any]:
        """What goes to verl's trainer."""
        out: dict[str, Any] = super().as_dict()
        out.pop("token_rewards", None)
        out["rm_scores"] = torch.tensor(self.token_rewards, dtype=torch.float32)
        return out


def check_fits(config: Any, where: str, **ids: Any) -> None:
    """Refuse a prompt or a response that verl would cut."""
    for name, own in ids.items():
        limit = config[f"{name}_length"]
        if len(own) > limit:
            what = f"a {name} of {len(own):,} tokens where {limit:,} fit"
            raise InputError(what, where=where, why="verl would cut it", fix=f"data.max_{name}_length={len(own)}")


class _Served:
    """The model that verl serves, as a team sees it."""

    is_instant = False

    def __init__(self, server: Any, chat: Chat, sampling: Mapping[str, Any], version: str) -> None:
        self.name, self.version = "verl", version
        self._server, self._chat = server, chat
        ends = sorted({*chat.ends, *chat.lines})
        self._sampling = {**sampling, "stop_token_ids": ends}
        self.served = {"min_global_steps": int(version), "max_global_steps": int(version)}
        """The first and the last weights that answered, where the server tells them."""
        self._request = uuid4().hex  # one for the team: its calls begin alike, and go to the server that has read that

    async def complete(self, call: Call) -> Completion:
        """Ask the server."""
        prompt = self._chat.prompt(call.messages)
        sampling = {**self._sampling, "max_tokens": call.max_tokens}
        done = await self._server.generate(request_id=self._request, prompt_ids=prompt, sampling_params=sampling)
        tokens = tuple(int(i) for i in done.token_ids)
        for name, choose in (("min_global_steps", min), ("max_global_steps", max)):
            if done.extra_fields.get(name) is not None:
                self.served[name] = choose(self.served[name], int(done.extra_fields[name]))
        if not tokens:
            raise ModelFailed("down", "verl's server answered with no token", fix="look at the server's log")
        if not done.log_probs or len(done.log_probs) != len(tokens):
            what = f"{len(done.log_probs or ())} log-probabilities for {len(tokens)} tokens"
            raise InputError(what, where="verl's server", fix="actor_rollout_ref.rollout.calculate_log_probs=True")
        text = self._chat.decode(tokens)
        for stop in call.stop:
            text = text.partition(stop)[0]
        return Completion(
            text=text, tokens_in=len(prompt), tokens_out=len(tokens), token_ids=tokens, prompt_ids=tuple(prompt),
            logps=tuple(float(x) for x in done.log_probs), finish="length" if len(tokens) >= call.max_tokens else "stop",
        )  # fmt: skip

    async def close(self) -> None:
        """The server is verl's."""


class _Samples:
    """The samples of one prompt that are being played, and then their rows."""

    def __init__(self) -> None:
        self.playing = 0
        self.traces: dict[int, Trace] = {}
        self.rows: dict[int, list[TrainingRow]] = {}
        self.error: BaseException | None = None
        self.are_all_in = asyncio.Event()


@lru_cache(maxsize=4)
def _chat(folder: str) -> Chat:
    return Chat.read(folder)


class TeamAgentLoop(AgentLoopBase):
    """One run plays one team; the dataset's `team` says which (`counterpoint.lab.trainers.verl.tasks`)."""

    _under_way: ClassVar[dict[str, _Samples]] = {}

    def __init__(
        self,
        *args: Any,
        credit: Sequence[str] = ("group_relative",),
        options: Mapping[str, Any] | None = None,
        normalise: Any = "group",
        prices: Mapping[str, float] | None = None,
        allow: Sequence[str] = (),
        **more: Any,
    ) -> None:
        """`allow` names code from outside Counterpoint that the dataset may name."""
        super().__init__(*args, **more)
        warn_version("verl", TESTED)
        self.learn = Learn(credit=tuple(credit), options=dict(options or {}), normalise=normalise)
        self.prices, self.allow = Prices(**dict(prices or {})), tuple(allow)
        self.chat = _chat(str(self.config.actor_rollout_ref.model.path))
        if not self.rollout_config.calculate_log_probs:
            fix = "actor_rollout_ref.rollout.calculate_log_probs=True"
            raise InputError("rows need the log-probabilities that they were sampled with", where="verl", fix=fix)
        is_compared = any("group" in registry.get("mechanism", name).needs for name in self.learn.credit)
        if self.rollout_config.n < 2 and (is_compared or normalise != "none"):
            raise InputError("one sample of a prompt has nothing to be compared with", fix="actor_rollout_ref.rollout.n=8")

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[AgentLoopOutput]:
        """Play a team, wait for the other samples of its prompt, and give an output for each of its model calls."""
        team = json.loads(kwargs["team"])
        spec, session = Spec.of(team["spec"]), int(kwargs.get("session_id", 0))
        registry.check_consent(spec.outside(), self.allow, where="the dataset's team")
        if team.get("held_out"):
            trace = await self._play(spec, sampling_params, session, kwargs)
            return self._rewarded(trace)
        if "uid" not in kwargs:
            raise InputError("a prompt without a uid", where="verl", fix="verl's V1 trainer: trainer.use_v1=True")
        samples = self._under_way.setdefault(str(kwargs["uid"]), _Samples())
        samples.playing += 1
        try:
            samples.traces[session] = await self._play(spec, sampling_params, session, kwargs)
        finally:
            samples.playing -= 1
            if not samples.playing:
                self._under_way.pop(str(kwargs["uid"]), None)
                self._credit(samples)
        await samples.are_all_in.wait()
        if samples.error is not None:
            raise samples.error
        return self._credited(samples.traces[session], samples.rows[session])

    async def _play(self, spec: Spec, sampling: Mapping[str, Any], session: int, kwargs: Mapping[str, Any]) -> Trace:
        spec = replace(spec, model="engine", limits=replace(spec.limits, temperature=float(sampling["temperature"])))
        task, sink = spec.make_task(), MemorySink()
        step = str(int(kwargs.get("global_steps", 0)))
        model = _Served(self.server_manager, self.chat, sampling, step)
        draws = keyed_seed(spec.seed, f"verl {step} {session}")
        instance = await asyncio.to_thread(task.instance, spec.seed)
        team = assemble(spec, task, instance, model, Recorder(sink, WallClock()), edits=Edits(draws))
        name = f"{kwargs.get('uid', 'held')}-{session}"
        return less_prices(
            await play_to_trace(team, spec, sink, trace_id=name, meta={DRAWS: draws, "served": model.served}), self.prices
        )

    def _credit(self, samples: _Samples) -> None:
        """Advantages of all samples of a prompt, once the last has been played."""
        places = sorted(samples.traces)
        try:
            learnable = training_rows(advantages([samples.traces[p] for p in places], self.learn)) if places else None
            by_trace = {samples.traces[p].trace_id: p for p in places}
            samples.rows = {p: [] for p in places}
            for row in learnable.rows if learnable else ():
                samples.rows[by_trace[row.trace_id]].append(row)
        except Exception as error:
            samples.error = error
        samples.are_all_in.set()

    def _credited(self, trace: Trace, rows: Sequence[TrainingRow]) -> list[AgentLoopOutput]:
        if not rows:
            why = "the credit reaches none of them"
            raise InputError("a team without a model call to learn from", where=trace.trace_id, why=why, fix="another credit")
        outs = [self._output(trace, row, as_float32(row.advantages, "advantages", row.name).tolist()) for row in rows]
        return self._scored(trace, outs)

    def _rewarded(self, trace: Trace) -> list[AgentLoopOutput]:
        """What a held-out team earned, at the last token of its last call."""
        from counterpoint.credits.call_rows import call_rows
        from counterpoint.trace.rows import Credit, CreditRow

        credit = Credit("reward", "the reward", False, (trace.trace_id,), (CreditRow(0, "team", "", trace.rewards["team"]),))
        rows = training_rows(call_rows([trace], credit)).rows
        if not rows:
            raise InputError("a team without a model call", where=trace.trace_id, fix="another task")
        last = len(rows[-1].completion_ids) - 1
        outs = [self._output(trace, row, [0.0] * len(row.completion_ids)) for row in rows]
        outs[-1].token_rewards[last] = trace.rewards["team"]
        return self._scored(trace, outs)

    def _output(self, trace: Trace, row: TrainingRow, rewards: list[float]) -> CreditedOutput:
        check_fits(self.rollout_config, row.name, prompt=row.prompt_ids, response=row.completion_ids)
        about = {**row.about(), **trace.meta["served"]}
        return CreditedOutput(
            prompt_ids=row.prompt_ids.tolist(), response_ids=row.completion_ids.tolist(), response_mask=row.mask.tolist(),
            response_logprobs=as_float32(logps_of(row, "verl"), "log-probabilities", row.name).tolist(), num_turns=2,
            metrics=AgentLoopMetrics(), extra_fields=about, token_rewards=rewards,
        )  # fmt: skip

    def _scored(self, trace: Trace, outs: list[CreditedOutput]) -> list[AgentLoopOutput]:
        """What verl logs of the run: its reward, and whether the task was solved."""
        outs[-1].reward_score = trace.rewards["team"]
        solved = (trace.metrics or {}).get("task_success", 0.0)
        outs[-1].extra_fields["reward_extra_info"] = {"team_reward": trace.rewards["team"], "solved": solved}
        return list(outs)
