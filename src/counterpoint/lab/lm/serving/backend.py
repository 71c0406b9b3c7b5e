"""Requests answered by our engine: all callers' calls go through one thread, so that they are read and written together.

Always true: whoever asks, the same request with the same seed gets the same answer; who is gone is computed for no longer.
Weights change between two calls, never within one.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import msgspec

from counterpoint.lab.lm.chat import Chat
from counterpoint.lab.lm.engine import Ask, Engines
from counterpoint.lab.lm.engine_thread import EngineThread
from counterpoint.lab.lm.model import Message, ModelFailed
from counterpoint.lab.lm.network import Weights
from counterpoint.lab.lm.serving.choices import Choice, Offer
from counterpoint.lab.lm.serving.jobs import AskedCall, Job, News, Outbox, ToldCall, api_error
from counterpoint.lab.lm.serving.replies import ReplyForm
from counterpoint.lab.lm.serving.requests import (
    ApiError,
    ChatRequest,
    Request,
    as_dicts,
    read_chat,
    read_completion,
    schema_of,
)
from counterpoint.lab.lm.serving.tool_calls import ToolCall, forced_starts, in_words

_SEED_BITS = 63


@dataclass(frozen=True, kw_only=True)
class SpokenAnswer:
    """One answer as it was given: what is recorded of it."""

    id: str
    """The response that it was part of."""
    model: str
    messages: Sequence[Mapping[str, Any]]
    """What was read, as role and content; a plain prompt is the user's."""
    text: str
    calls: Sequence[ToolCall] = ()
    prompt_ids: Sequence[int] | None = None
    token_ids: Sequence[int] | None = None
    logps: Sequence[float] | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    temperature: float | None = None
    version: str = ""
    """Which weights spoke."""


@dataclass(frozen=True)
class Served:
    """What a request is answered with: a body, or the pieces of a stream, each with the answers that are whole with it."""

    body: bytes = b""
    spoken: Sequence[SpokenAnswer] = ()
    pieces: AsyncIterator[tuple[bytes, Sequence[SpokenAnswer]]] | None = None


class RequestDesk:
    """Requests as calls of an engine, wherever it is, and their answers as OpenAI's protocol has them."""

    def __init__(self) -> None:
        self.chat: Chat | None = None
        self._context = 0
        self._policies: dict[str, str] = {}

    @property
    def models(self) -> list[str]:
        """What `/v1/models` lists."""
        return [name for name in self._policies if not name.startswith("local:")]

    async def answer(self, kind: str, body: bytes, *, is_recorded: bool = False) -> Served:
        """The answer to a request of `/v1/chat/completions` (`chat`) or of `/v1/completions`; raises `ApiError`."""
        job = self._begin(read_chat(body) if kind == "chat" else read_completion(body))
        if job.form.request.stream:
            return Served(pieces=self._stream(job))
        try:
            while not job.is_over:
                await job.wait()
        finally:
            job.cancel()
        reply = job.form.whole(job.choices, job.cached)
        spoken = [self._spoken(job, k) for k in range(len(job.choices))] if is_recorded else []
        return Served(msgspec.json.encode(reply), spoken)

    def submit(self, call: AskedCall) -> None:
        """Ask the engine; raises `ModelFailed` where there is none any more."""
        raise NotImplementedError

    def let_go(self, call: AskedCall) -> None:
        """Nobody waits for a call any more, or it is whole."""

    # -- one request -----------------------------------------------------------------------------------------------------

    def _begin(self, request: Request) -> Job:
        chat = self.chat
        assert chat is not None
        policy = self._policies.get(request.model)
        if policy is None:
            known = ", ".join(self.models)
            what = f"The model `{request.model}` does not exist; here is {known}"
            raise ApiError(what, status=404, param="model", code="model_not_found")
        prompts = self._prompts(request)
        offer, starts = self._offer(request)
        form = ReplyForm(_fresh_id(request), request, chat, prompts)
        job = Job(form, [Choice(chat, request.stops, offer) for _ in range(len(prompts) * request.count)])
        is_watched = bool(request.stream or request.stops or (offer.is_single and offer.names))
        seed = secrets.randbits(_SEED_BITS) if request.seed is None else request.seed
        alternatives = request.alternatives or 0
        for k in range(len(job.choices)):
            prompt = form.prompt_of(k)
            ask = Ask(
                prompt=prompt, most=self._most(request, prompt), temperature=request.heat, seed=_seed(seed, k), policy=policy,
                top_p=1.0 if request.top_p is None else request.top_p, alternatives=alternatives,
                starts=chat.starts(starts) if starts else (),
            )  # fmt: skip
            job.calls.append(AskedCall(job, k, ask, self.let_go, is_watched=is_watched))
        try:
            for call in job.calls:
                self.submit(call)
        except ModelFailed as error:
            raise api_error(error) from error
        return job

    def _most(self, request: Request, prompt: Sequence[int]) -> int:
        room = self._context - len(prompt)
        if room < 1:
            what = f"This model's maximum context length is {self._context} tokens; the prompt has {len(prompt)}"
            where = "messages" if isinstance(request, ChatRequest) else "prompt"
            raise ApiError(f"{what}: shorten it", param=where, code="context_length_exceeded")
        return min(room, request.most or room)

    def _prompts(self, request: Request) -> list[list[int]]:
        assert self.chat is not None
        if not isinstance(request, ChatRequest):
            return [self._plain_prompt(prompt) for prompt in request.prompts]
        messages, functions = as_dicts(request.messages), request.offered
        try:
            if self.chat.writes_tools and (functions or any(m["role"] == "tool" or "tool_calls" in m for m in messages)):
                return [self.chat.conversation(messages, [schema_of(function) for function in functions])]
            words = in_words(messages, functions)
            return [self.chat.prompt([Message(m["role"], m["content"]) for m in words])]  # type: ignore[arg-type]  # checked
        except ModelFailed as error:
            raise ApiError(error.one_line(), param="messages") from error

    def _plain_prompt(self, prompt: str | list[int]) -> list[int]:
        assert self.chat is not None
        ids = self.chat.encode(prompt) if isinstance(prompt, str) else prompt
        if not ids:
            raise ApiError("a prompt of no tokens", param="prompt")
        if max(ids) >= self.chat.size:
            raise ApiError(f"token {max(ids)}: the vocabulary has {self.chat.size} tokens", param="prompt")
        return list(ids)

    def _offer(self, request: Request) -> tuple[Offer, list[str]]:
        """The tools of a request, and how an answer begins that has to call one, or to follow a schema."""
        if not isinstance(request, ChatRequest):
            return Offer(), []
        forced, answers = request.forced, request.answers
        if not request.offered:
            return Offer(), [json.dumps(value, ensure_ascii=False) + "\n" for value in answers]
        names = tuple(function.name for function in forced or request.offered)
        is_single = bool(forced) or request.parallel_tool_calls is False
        return Offer(names, bool(forced), is_single), forced_starts(forced)

    async def _stream(self, job: Job) -> AsyncIterator[tuple[bytes, Sequence[SpokenAnswer]]]:
        form, ended, calls = job.form, set[int](), [0] * len(job.choices)
        try:
            for k in range(len(job.choices)):
                yield _event(form.opening(k)), ()
            while len(ended) < len(job.choices):
                for k in await job.wait():
                    choice = job.choices[k]
                    delta = choice.delta()
                    if k in ended or not (delta.text or delta.calls or delta.tokens.ids or choice.is_over):
                        continue
                    piece = form.piece(k, delta, choice.finish, calls[k])
                    calls[k] += len(delta.calls)
                    if choice.is_over:
                        ended.add(k)
                    yield _event(piece), [self._spoken(job, k)] if choice.is_over else ()
            if form.request.tells_usage:
                yield _event(form.closing(job.choices, job.cached)), ()
            yield b"data: [DONE]\n\n", ()
        except ApiError as error:  # the stream has begun: the error is its last piece
            yield _event(error.body), ()
        finally:
            job.cancel()

    def _spoken(self, job: Job, index: int) -> SpokenAnswer:
        request, choice = job.form.request, job.choices[index]
        prompt = job.form.prompt_of(index)
        if isinstance(request, ChatRequest):
            messages = as_dicts(request.messages)
        else:
            messages = [{"role": "user", "content": job.form.chat.decode(prompt)}]
        return SpokenAnswer(
            id=job.form.id, model=request.model, messages=messages, text=choice.text, calls=choice.calls, prompt_ids=prompt,
            token_ids=choice.tokens.ids, logps=choice.tokens.logps, tokens_in=len(prompt), tokens_out=len(choice.tokens.ids),
            temperature=request.heat, version=job.versions.get(index, ""),
        )  # fmt: skip


class _LocalCall(ToldCall):
    """A call of this process."""

    def __init__(self, call: AskedCall, outbox: Outbox, version: Callable[[], str]) -> None:
        super().__init__(call.ask, version, is_watched=call.is_watched)
        self._call, self._outbox = call, outbox

    @property
    def is_cancelled(self) -> bool:  # type: ignore[override]
        """Whether nobody waits for it any more."""
        return self._call.is_cancelled

    def tell(self, item: News | ModelFailed) -> None:
        """To the event loop."""
        self._outbox.put(self._call, item)


@dataclass(frozen=True)
class ModelFacts:
    """What a front end has to know of the model behind it."""

    chat: Chat
    context: int
    policies: Mapping[str, str]
    """What requests call it, to the engine's policy."""


class EngineBackend(RequestDesk):
    """Answers requests with our engine."""

    def __init__(self, thread: EngineThread, name: str, *, version: str = "") -> None:
        """`name` is what requests call the model; a policy of a run that has several is `name:policy`."""
        super().__init__()
        self.thread, self.name, self.version = thread, name, version
        self._outbox: Outbox | None = None

    async def open(self) -> None:
        """Load the model; raises where that cannot be done."""
        await asyncio.wrap_future(self.thread.ready())
        engines, self.chat = self.thread.engines, self.thread.chat
        assert engines is not None
        self._context = min(engine.network.shape.context for engine in engines.engines.values())
        names = list(engines.engines)
        self._policies = {self.name: names[0], f"local:{self.name}": names[0]}
        self._policies |= {f"{self.name}:{name}": name for name in names if name and len(names) > 1}
        self._outbox = Outbox(asyncio.get_running_loop())

    @property
    def facts(self) -> ModelFacts:
        """What front ends have to know, once it is open."""
        assert self.chat is not None
        return ModelFacts(self.chat, self._context, self._policies)

    def load(self, weights: Mapping[str, Weights], version: str) -> Future[None]:
        """New weights of policies, once the calls under way are answered; calls that come meanwhile wait for them."""

        def swap(engines: Engines) -> None:
            for policy, new in weights.items():
                engines.engines[policy].load(new)
            self.version = version

        return self.thread.between(swap)

    def submit(self, call: AskedCall) -> None:
        """Ask the engine of this process."""
        assert self._outbox is not None
        self.thread.submit(_LocalCall(call, self._outbox, lambda: self.version))


def _fresh_id(request: Request) -> str:
    return f"{'chatcmpl' if isinstance(request, ChatRequest) else 'cmpl'}-{secrets.token_hex(12)}"


def _seed(seed: int, index: int) -> int:
    """The seed of each answer: the request's own for the first, others drawn from it."""
    if index == 0:
        return seed & (2**64 - 1)
    return int.from_bytes(hashlib.blake2b(f"{seed} {index}".encode(), digest_size=8).digest())


def _event(piece: Mapping[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(piece) + b"\n\n"
