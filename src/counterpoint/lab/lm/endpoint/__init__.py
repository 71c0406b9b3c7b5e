"""`EndpointModel`: any endpoint that speaks OpenAI's chat completions, asked patiently and within limits.

Always true: a call ends with a completion or one `ModelFailed`; no key is in a name, a version, a completion or an error, nor in
an exception behind it. Every request takes its turn in the rate limits, retries too. What an endpoint does not take (log-probs, a
seed, a stop) is left out once a request without it was answered, and the completion says so. Nothing is guessed: usage that was
not given is None. No wait is longer than `_LONGEST_WAIT_S`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from counterpoint.errors import InputError
from counterpoint.formats.importing.usage import PRICES, Price, Prices, Usage
from counterpoint.lab.lm.budget import tokens_of
from counterpoint.lab.lm.endpoint.address import KEY_ENV, address_of, key_of
from counterpoint.lab.lm.endpoint.answer import (
    MOST_BYTES,
    TOKEN_IDS,
    EndpointAnswer,
    Fault,
    Trouble,
    broken,
    json_of,
    malformed,
    said_error,
    status_fault,
    stream_data,
)
from counterpoint.lab.lm.endpoint.connection import client_library, open_client
from counterpoint.lab.lm.model import Call, Completion, Failure, ModelFailed

if TYPE_CHECKING:
    from openai import AsyncOpenAI

Now = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]


class Bucket:
    """Lets `per_minute` through, evenly, with a burst of a tenth of it (at least 1) after a rest.

    In any time of w seconds it lets through at most max(burst, largest single amount) + rate * w.
    """

    def __init__(self, per_minute: float, *, burst: float | None = None, now: Now = time.monotonic) -> None:
        self.rate = per_minute / 60.0
        self.burst = max(1.0, per_minute / 10.0) if burst is None else burst
        self._now = now
        self._level, self._at = self.burst, now()

    def wait(self, amount: float = 1.0) -> float:
        """Take a place in the line; gives the seconds until it may go."""
        now = self._now()
        self._level = min(self.burst, self._level + (now - self._at) * self.rate) - amount
        self._at = now
        return max(0.0, -self._level / self.rate)


class Rates:
    """All that holds a request back, for all tasks together: requests, tokens, and the pause after a 429.

    First come, first served; a caller that gives up while it waits loses only its own place.
    """

    def __init__(
        self, rpm: float | None = None, tpm: float | None = None, *, now: Now = time.monotonic, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._now, self._sleep = now, sleep
        self._requests = None if rpm is None else Bucket(rpm, now=now)
        self._tokens = None if tpm is None else Bucket(tpm, now=now)
        self._pause_until = now()

    def pause(self, seconds: float) -> None:
        """The endpoint asked for a pause: every task waits."""
        self._pause_until = max(self._pause_until, self._now() + seconds)

    async def turn(self, tokens: int) -> None:
        """Wait until a request of this many tokens may go."""
        wait = max(
            0.0 if self._requests is None else self._requests.wait(),
            0.0 if self._tokens is None else self._tokens.wait(tokens),
        )
        if wait > 0:
            await self._sleep(wait)
        while (pause := self._pause_until - self._now()) > 0:
            await self._sleep(pause)


_FIRST_WAIT_S, _MOST_WAIT_S = 0.5, 30.0
_LONGEST_WAIT_S = 300.0
"""If an endpoint asks for a longer pause, the call fails instead."""
_DRAIN_S = 1.0
_CHARS_PER_TOKEN = 256
"""More than any vocabulary has in a token: an endpoint that sends more does not stop at `max_tokens`."""
_TOTAL = 10
"""One whole answer may take this many times the limit on silence, however steadily it arrives."""


class EndpointFailed(ModelFailed):
    """A call that an endpoint did not answer; `lost` attempts may have been charged."""

    def __init__(self, kind: Failure, what: str, *, lost: int = 0, **rest: str | None) -> None:
        self.lost = lost
        super().__init__(kind, what, **rest)


@dataclass
class _Asking:
    """One call on its way to an answer."""

    call: Call
    left_out: set[str]
    """Optional parts that are not sent."""
    faults: list[Fault] = field(default_factory=list)
    """Attempts that count as retries."""
    asked: int = 0

    @property
    def charged(self) -> int:
        """How many attempts may have been charged."""
        return sum(fault.is_lost for fault in self.faults)


class EndpointModel:
    """A model behind an endpoint; follows `Model`."""

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        key_env: str | None = None,
        version: str | None = None,
        concurrency: int = 64,
        rpm: float | None = None,
        tpm: float | None = None,
        timeout_s: float = 120.0,
        retries: int = 5,
        prices: Prices = PRICES,
        logprobs: bool = True,
        stream: bool = True,
        token_ids: bool = False,
        body: Mapping[str, Any] | None = None,
        now: Now = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`body` is added to every request, for what one server has and others have not. `token_ids` asks for those of the
        prompt and of the answer, which vLLM and SGLang tell; answers then come whole, as SGLang streams none."""
        limits = {"concurrency": concurrency, "rpm": rpm, "tpm": tpm, "timeout_s": timeout_s}
        for option, value in limits.items():
            if value is not None and not 0 < value < math.inf:
                raise InputError(f"{option} = {value}", fix="give a number above 0")
        if retries < 0:
            raise InputError(f"retries = {retries}", fix="give 0 or more")
        if not name.strip():
            raise InputError("no model is named", fix="write openai:NAME")
        self._openai = client_library()
        self._address, self._key_env = address_of(base_url), key_env
        key_of(self._address, key_env)  # to say what is missing before work begins
        self._model, self._prices, self._body = name, prices, dict(body or {})
        self._version = version or self._own_version()
        self._timeout_s, self._retries, self._concurrency = timeout_s, retries, concurrency
        self._is_logged, self._is_streamed, self._is_told = logprobs, stream and not token_ids, token_ids
        self._rates, self._sleep = Rates(rpm, tpm, now=now, sleep=sleep), sleep
        self._left_out: set[str] = set()
        self._open: tuple[asyncio.AbstractEventLoop, AsyncOpenAI, asyncio.Semaphore] | None = None

    @property
    def name(self) -> str:
        """`openai:` and the model's name at the endpoint."""
        return f"openai:{self._model}"

    @property
    def version(self) -> str:
        """The one given; else where the endpoint is, since the same name elsewhere is another model."""
        return self._version

    @property
    def endpoint(self) -> str:
        """The base URL without user, password and query, for the trace."""
        return self._address.public_url

    @property
    def price(self) -> Price | None:
        """Dollars per million tokens, where known."""
        return self._prices.of(self._model)

    async def complete(self, call: Call) -> Completion:
        """Answer, after as many retries as are allowed."""
        asking = _Asking(call, set(self._left_out))
        while True:
            asking.asked += 1
            outcome = await self._attempt(asking)
            if isinstance(outcome, EndpointAnswer):
                self._left_out |= asking.left_out - ({"stop"} if any(f.kind == "empty" for f in asking.faults) else set())
                return self._completion(asking, outcome)
            new = set(outcome.refused) - asking.left_out
            if new:
                asking.left_out |= new
                continue
            asking.faults.append(outcome)
            wait = self._wait(asking, outcome)
            if wait is None:
                raise self._failed(asking, outcome)
            if outcome.kind == "rate" and outcome.after_s is not None:
                self._rates.pause(outcome.after_s)
            if outcome.kind == "empty":
                asking.left_out.add("stop")  # some begin with an empty line; we cut at the stop ourselves
            await self._sleep(wait)

    async def close(self) -> None:
        """Close the connections."""
        if self._open is not None:
            loop, client, _ = self._open
            self._open = None
            if loop is asyncio.get_running_loop():
                await client.close()

    # ---- one attempt

    async def _attempt(self, asking: _Asking) -> EndpointAnswer | Fault:
        client, slots = self._client()
        request = self._request(asking)
        secrets = (*self._address.secrets, client.api_key)
        async with slots:
            await self._rates.turn(tokens_of(asking.call))
            try:
                async with asyncio.timeout(self._timeout_s * _TOTAL) as limit:
                    return self._checked(asking, await self._answer(client, request, secrets))
            except Trouble as trouble:
                return trouble.fault
            except self._openai.APIStatusError as error:
                body = error.body if error.body is not None else error.response.text[:4000]
                return status_fault(error.status_code, body, error.response.headers, request, secrets)
            except TimeoutError as error:
                if limit.expired():
                    what = f"no complete answer within {self._timeout_s * _TOTAL:g} s"
                    return Fault("slow", what, fix="allow more time", is_lost=True)
                return broken(error, has_begun=False, timeout_s=self._timeout_s, secrets=secrets)
            except Exception as error:  # the client's own, and whatever its HTTP library raises
                return broken(error, has_begun=False, timeout_s=self._timeout_s, secrets=secrets)

    async def _answer(self, client: AsyncOpenAI, request: dict[str, Any], secrets: tuple[str, ...]) -> EndpointAnswer:
        answer = EndpointAnswer()
        create: Any = client.chat.completions.with_streaming_response.create
        body = self._body | {name: request[name] for name in TOKEN_IDS if name in request}  # the client knows them not
        known = {name: value for name, value in request.items() if name not in TOKEN_IDS}
        async with create(**known, extra_body=body or None) as response:
            chunks = self._bytes(response, secrets)
            if "event-stream" in response.headers.get("content-type", ""):
                await self._read_stream(answer, chunks, request, secrets)
                return answer
            data = json_of(b"".join([chunk async for chunk in chunks]))
            if data.get("error"):
                raise Trouble(said_error(data, request, secrets))
            answer.add(data)
            if not data["choices"]:
                raise malformed("it has no choices")
            answer.finish = answer.finish or "unknown"
        return answer

    async def _read_stream(
        self, answer: EndpointAnswer, chunks: AsyncIterator[bytes], request: dict[str, Any], secrets: tuple[str, ...]
    ) -> None:
        events = stream_data(chunks)
        longest = _CHARS_PER_TOKEN * (request.get("max_tokens") or request["max_completion_tokens"]) + 4096
        async for event in events:
            if event == b"[DONE]":
                answer.finish = answer.finish or "unknown"
                await _drain(events)
                return
            data = json_of(event)
            if data.get("error"):
                raise Trouble(said_error(data, request, secrets))
            answer.add(data)
            if len(answer.text) > longest:
                raise malformed(f"it is longer than {longest:,} characters")
        if answer.finish is None:
            raise Trouble(Fault("cut", "the answer was interrupted", "the stream ended early", "see its log", is_lost=True))

    async def _bytes(self, response: Any, secrets: tuple[str, ...]) -> AsyncIterator[bytes]:
        size = 0
        try:
            async for chunk in response.iter_bytes():
                size += len(chunk)
                if size > MOST_BYTES:
                    break
                yield chunk
        except Exception as error:
            fault = broken(error, has_begun=True, timeout_s=self._timeout_s, secrets=secrets)
            raise Trouble(fault) from None
        if size > MOST_BYTES:
            raise malformed(f"it is longer than {MOST_BYTES >> 20} MiB")

    def _checked(self, asking: _Asking, answer: EndpointAnswer) -> EndpointAnswer:
        """The answer, if it says anything."""
        if "stop" in asking.left_out:
            answer.cut_at(asking.call.stop)
        if answer.text.strip() or answer.tool_calls:
            return answer
        if answer.finish == "filter":
            fix = "change the prompt, or use another model"
            raise Trouble(
                Fault("refused", "the endpoint's content filter withheld the answer", fix=fix, is_final=True, is_lost=True)
            )
        if answer.reasoning:
            why, fix = f"it only reasoned, {len(answer.reasoning):,} characters", "allow more tokens, or switch reasoning off"
        else:
            why, fix = f"finish reason: {answer.finish}", "check the model's chat template"
        raise Trouble(Fault("empty", "the answer is empty", why, fix, is_lost=True))

    # ---- what is sent and what is given

    def _request(self, asking: _Asking) -> dict[str, Any]:
        call, left_out = asking.call, asking.left_out
        messages = [m.wire for m in call.messages]
        length = "max_completion_tokens" if "max_tokens" in left_out else "max_tokens"
        empties = sum(fault.kind == "empty" for fault in asking.faults)
        request: dict[str, Any] = {
            "model": self._model,
            "messages": _in_turns(_without_system(messages) if "system" in left_out else messages),
            length: call.max_tokens,
            "temperature": call.temperature,
            # Servers hold a seed in 31 to 64 bits; the same seed would give the same empty answer again.
            "seed": (call.seed + empties) & 0x7FFF_FFFF,
        }
        if call.stop:
            request["stop"] = list(call.stop)
        if self._is_logged:
            request["logprobs"] = True
        if call.tools:
            request["tools"] = [_function(tool) for tool in call.tools]
        if self._is_told:
            request |= dict.fromkeys(TOKEN_IDS, True)
        if self._is_streamed:
            request |= {"stream": True, "stream_options": {"include_usage": True}}
        return {name: value for name, value in request.items() if name not in left_out}

    def _completion(self, asking: _Asking, answer: EndpointAnswer) -> Completion:
        cost = None
        if answer.tokens_in is not None and answer.tokens_out is not None:
            usage = Usage.whole(answer.tokens_in, answer.tokens_out, cached=answer.cached)
            cost = None if usage is None else self._prices.cost(self._model, usage)
        extra: dict[str, Any] = {"endpoint": self.endpoint}
        extra |= {f"served_{name}": value for name, value in answer.served.items() if value != self._model}
        extra |= {"left_out": sorted(asking.left_out)} if asking.left_out else {}
        extra |= {"retried": [fault.kind for fault in asking.faults]} if asking.faults else {}
        extra |= {"lost": asking.charged} if asking.charged else {}
        extra |= {"reasoning_chars": len(answer.reasoning)} if answer.reasoning else {}
        ids, logps = answer.token_ids, answer.logps
        if ids is not None and logps is not None and len(ids) != len(logps):
            extra["unmatched"] = f"{len(logps)} log-probabilities of {len(ids)} tokens"
            logps = None
        return Completion(
            text=answer.text,
            tokens_in=answer.tokens_in,
            tokens_out=answer.tokens_out,
            token_ids=ids,
            prompt_ids=answer.prompt_ids,
            logps=logps,
            tool_calls=answer.tool_calls,
            cost_usd=cost,
            finish=answer.finish or "unknown",
            attempts=asking.asked,
            extra=extra,
        )

    def _wait(self, asking: _Asking, fault: Fault) -> float | None:
        """How long to wait before the next attempt; None when there is none.

        wait_n = min(30, 0.5 * 2^(n-1)) * u_n, with u_n in [0.5, 1) from the call and n: calls that failed together
        come back apart, and the same call waits the same each time. What the endpoint asks for counts if it is longer.
        """
        count = len(asking.faults)
        asked = fault.after_s or 0.0
        if fault.is_final or count > self._retries or asked > _LONGEST_WAIT_S:
            return None
        key = f"{asking.call.seed} {count} {asking.call.messages[-1].text if asking.call.messages else ''}"
        digest = hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=8).digest()
        share = 0.5 + int.from_bytes(digest, "big") / 2**65
        return max(asked, min(_MOST_WAIT_S, _FIRST_WAIT_S * 2.0 ** (count - 1)) * share)

    def _failed(self, asking: _Asking, fault: Fault) -> EndpointFailed:
        what, why, fix = fault.what, fault.why, fault.fix
        if len(asking.faults) > 1:
            is_same = len({f.kind for f in asking.faults}) == 1
            what += f", {len(asking.faults)} times" if is_same else f" in attempt {len(asking.faults)}"
        if fault.after_s is not None and fault.after_s > _LONGEST_WAIT_S:
            why = f"{why or ''}, retry after {fault.after_s:,.0f} s".lstrip(", ")
        fix = fix.format(key_env=self._key_env or KEY_ENV) if fix else None
        if self._key_env is None and self._address.is_plain and why == "HTTP 401":
            fix = f"name the variable that holds the key (key_env={KEY_ENV!r}): over plain http only a named one is sent"
        return EndpointFailed(fault.kind, what, where=f"{self.name} at {self.endpoint}", why=why, fix=fix, lost=asking.charged)

    # ---- the client

    def _client(self) -> tuple[AsyncOpenAI, asyncio.Semaphore]:
        """The client of this event loop; connections belong to the loop that opened them."""
        loop = asyncio.get_running_loop()
        if self._open is None or self._open[0] is not loop:
            client = open_client(self._address, self._key_env, self._timeout_s)
            self._open = (loop, client, asyncio.Semaphore(self._concurrency))
        return self._open[1], self._open[2]

    def _own_version(self) -> str:
        if not self._body:
            return self._address.public_url
        text = json.dumps(self._body, sort_keys=True, default=str)
        return f"{self._address.public_url} with {hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool as the protocol writes it, from that or from the bare function."""
    return dict(tool) if tool.get("type") == "function" else {"type": "function", "function": dict(tool)}


def _without_system(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The system's words before the first of the user's, for templates that know no system role."""
    system = "\n\n".join(m["content"] for m in messages if m["role"] == "system")
    rest = [m for m in messages if m["role"] != "system"] or [{"role": "user", "content": ""}]
    return [{**rest[0], "content": f"{system}\n\n{rest[0]['content']}".strip()}, *rest[1:]]


def _in_turns(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What one role says in a row as one message: many templates want user and assistant in turn, and refuse all else. Calls and
    their answers stay as they are."""
    out: list[dict[str, Any]] = []
    for message in messages:
        if out and out[-1].keys() == message.keys() == {"role", "content"} and out[-1]["role"] == message["role"]:
            out[-1] = {**out[-1], "content": f"{out[-1]['content']}\n\n{message['content']}"}
        else:
            out.append(message)
    return out


async def _drain(events: AsyncIterator[bytes]) -> None:
    """Read to the end, so that the connection can serve again; the answer is whole whatever comes."""
    try:
        async with asyncio.timeout(_DRAIN_S):
            async for _ in events:
                pass
    except (Trouble, TimeoutError):
        return
