"""What a model is to a team: a `Call` in, a `Completion` out, or a `ModelFailed` that says how it failed.

Always true: a completion is a function of (model, version, prompt, parameters, seed) as far as the model can keep that promise;
the call's `key` is the hash of exactly these, so a recording can answer for the model. Nothing here imports a model library.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any, Literal, Protocol, runtime_checkable

from counterpoint.errors import CounterpointError
from counterpoint.lab.tasks.task import View
from counterpoint.trace import content_ref

_ENCODE = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode
_HERE = "the messages"
_LINE = attrgetter("line")
Failure = Literal["down", "slow", "rate", "server", "cut", "malformed", "empty", "too long", "refused", "budget"]


class ModelFailed(CounterpointError):
    """A call that gave no completion, after all retries; `kind` says how."""

    def __init__(
        self, kind: Failure, what: str, *, where: str | None = None, why: str | None = None, fix: str | None = None
    ) -> None:
        self.kind: Failure = kind
        self.seconds: float | None = None
        """How long the recorded call took."""
        self.note: dict[str, Any] = {}
        """What its event keeps of the call."""
        super().__init__(what, where=where, why=why, fix=fix)

    def again(self) -> ModelFailed:
        """The same failure, for another call."""
        return ModelFailed(self.kind, self.what, where=self.where, why=self.why, fix=self.fix)


class BudgetExhausted(ModelFailed):
    """The team may not call again: tokens, money or time are spent."""

    def __init__(self, what: str, *, fix: str | None = None) -> None:
        super().__init__("budget", what, fix=fix)


@dataclass(frozen=True)
class Message:
    """One message of a prompt."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str
    calls: tuple[Mapping[str, Any], ...] = ()
    """An assistant's tool calls as OpenAI's protocol has them: `id`, `type` and `function`."""
    answers: str | None = None
    """On a tool's message: the id of the call that it answers."""

    @cached_property
    def ref(self) -> str:
        """The reference of its text, made once: prompts grow, and what they share is not hashed again."""
        return content_ref(self.text)

    @cached_property
    def line(self) -> str:
        """Role and reference, as the address of a call has them."""
        more = [*self.calls, *([self.answers] if self.answers is not None else [])]
        return f"{self.role} {self.ref} {content_ref(_ENCODE(more))}" if more else f"{self.role} {self.ref}"

    @property
    def wire(self) -> dict[str, Any]:
        """As OpenAI's protocol has it."""
        told: dict[str, Any] = {"role": self.role, "content": self.text.encode("utf-8", "replace").decode()}
        told |= {"tool_calls": [dict(call) for call in self.calls]} if self.calls else {}
        return told | ({"tool_call_id": self.answers} if self.answers is not None else {})

    @cached_property
    def words(self) -> int:
        """Words of its text."""
        return len(self.text.split())


@dataclass(frozen=True, kw_only=True)
class Call:
    """What a model is asked."""

    messages: tuple[Message, ...]
    """The rendered prompt."""
    view: View | None = None
    """What the prompt renders, for fake models; the same information."""
    starts: tuple[str, ...] = ()
    """With constrained decoding, the completion begins with exactly one of these (those that end with a newline are whole
    completions; after the others free text follows). Models that cannot constrain ignore it. Empty: free text."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """JSON schemas of functions, where the harness speaks in tool calls."""
    max_tokens: int = 128
    temperature: float = 1.0
    stop: tuple[str, ...] = ("\n",)
    seed: int = 0
    """The keyed seed of this call: hash of the run's seed and the event's stable key."""

    def key(self, model: str, version: str) -> str:
        """The content address of this call at a model: what a recording is looked up by."""
        asked: dict[str, Any] = {
            "model": model,
            "version": version,
            "messages": _HERE,
            "starts": self.starts,
            "tools": self.tools,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "stop": self.stop,
            "seed": self.seed,
        }
        # Roles and references have nothing to escape: the encoder need not look at each of their characters again.
        text = _ENCODE(asked).replace(f'"{_HERE}"', '"' + "\\n".join(map(_LINE, self.messages)) + '"', 1)
        return "call:" + hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Completion:
    """What a model answered."""

    text: str
    tokens_in: int | None = None
    tokens_out: int | None = None
    token_ids: tuple[int, ...] | None = None
    """Ids of the sampled tokens, where the model tells them."""
    prompt_ids: tuple[int, ...] | None = None
    logps: tuple[float, ...] | None = None
    """Log-probability of each sampled token under the distribution that it was drawn from; the tokens of a start are among
    them, and theirs sum to the start's."""
    start_logps: tuple[float, ...] | None = None
    """With `Call.starts`: the log-probability of each of them, in order; their exponentials sum to 1."""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    """Function calls, each with `name` and `arguments` (a JSON text), where the harness speaks in tool calls."""
    policy: str | None = None
    """Which policy spoke, where the model has several: an adapter's name."""
    cost_usd: float | None = None
    finish: Literal["stop", "length", "tool", "filter", "unknown"] = "stop"
    attempts: int = 1
    """How often it was asked before it answered."""
    extra: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Model(Protocol):
    """Something that completes prompts."""

    @property
    def name(self) -> str:
        """What the trace calls it, such as `openai:gpt-x` or `local:SmolLM2-135M-Instruct`; never a key, never a path."""

    @property
    def version(self) -> str:
        """Changes whenever the same call could be answered otherwise: a digest of weights, a date, a number."""

    async def complete(self, call: Call) -> Completion:
        """Answer; raises `ModelFailed`. May be called by a thousand tasks at once."""

    async def close(self) -> None:
        """Let go of connections, threads and memory."""
