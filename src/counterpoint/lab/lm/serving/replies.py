"""Answers in OpenAI's form: whole, and in pieces of a stream.

Always true: token ids and the prompt's are there only where they were asked for, in the fields in which vLLM has them;
log-probabilities are of the distribution that each token was drawn from.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from counterpoint.lab.lm.chat import Chat
from counterpoint.lab.lm.serving.choices import Choice, Delta, Tokens
from counterpoint.lab.lm.serving.requests import ChatRequest, Request
from counterpoint.lab.lm.serving.tool_calls import ToolCall

_LEAST = -9999.0
"""What stands for a chance of nothing, which JSON cannot write."""


@dataclass(frozen=True)
class ReplyForm:
    """How one request is answered."""

    id: str
    request: Request
    chat: Chat
    prompts: Sequence[Sequence[int]]
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def is_chat(self) -> bool:
        """Whether it was `/v1/chat/completions`."""
        return isinstance(self.request, ChatRequest)

    def whole(self, choices: Sequence[Choice], reused: int) -> dict[str, Any]:
        """All answers at once."""
        kind = "chat.completion" if self.is_chat else "text_completion"
        rows = [self._choice(k, choice) for k, choice in enumerate(choices)]
        return self._frame(kind) | {"choices": rows, "usage": self.usage(choices, reused)} | self._prompt_ids()

    def usage(self, choices: Sequence[Choice], reused: int) -> dict[str, Any]:
        """Tokens read and written; a prompt counts once, however many answers it has."""
        read, written = sum(map(len, self.prompts)), sum(len(choice.tokens.ids) for choice in choices)
        about = {"prompt_tokens_details": {"cached_tokens": reused}}
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written, **about}

    def _frame(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.request.model}

    def _prompt_ids(self) -> dict[str, Any]:
        return {"prompt_token_ids": list(self.prompts[0])} if self.is_chat and self.request.return_token_ids else {}

    def _choice(self, index: int, choice: Choice) -> dict[str, Any]:
        out: dict[str, Any] = {"index": index, "finish_reason": choice.finish, "logprobs": self._logprobs(choice.tokens)}
        if self.is_chat:
            calls = [_call(k, call, index=False, of=self.id, choice=index) for k, call in enumerate(choice.calls)]
            text = choice.text if choice.text or not calls else None
            out["message"] = {"role": "assistant", "content": text, "refusal": None} | ({"tool_calls": calls} if calls else {})
        else:
            out["text"] = self.echo(index) + choice.text
        if self.request.return_token_ids:
            out["token_ids"] = choice.tokens.ids
            out |= {} if self.is_chat else {"prompt_token_ids": list(self.prompt_of(index))}
        return out

    def prompt_of(self, index: int) -> Sequence[int]:
        """The prompt that an answer belongs to."""
        return self.prompts[index // self.request.count]

    def echo(self, index: int) -> str:
        """The prompt, where an answer is to begin with it."""
        wanted = getattr(self.request, "echo", False)
        return self.chat.decode(self.prompt_of(index)) if wanted else ""

    # -- streams ---------------------------------------------------------------------------------------------------------

    def opening(self, index: int) -> dict[str, Any]:
        """The first piece of an answer."""
        ids: dict[str, Any] = {}
        if self.is_chat:
            ids = self._prompt_ids() if index == 0 else {}
            choice: dict[str, Any] = {"index": index, "delta": {"role": "assistant", "content": ""}}
        else:
            choice = {"index": index, "text": self.echo(index)}
            if self.request.return_token_ids:
                choice |= {"prompt_token_ids": list(self.prompt_of(index)), "token_ids": []}
        return self._chunk() | {"choices": [choice | {"logprobs": None, "finish_reason": None}]} | ids

    def piece(self, index: int, delta: Delta, finish: str | None, first_call: int) -> dict[str, Any]:
        """What is new of an answer; `first_call` is how many calls were told before."""
        out: dict[str, Any] = {"index": index, "finish_reason": finish, "logprobs": self._logprobs(delta.tokens, delta.begin)}
        if self.is_chat:
            said: dict[str, Any] = {"content": delta.text} if delta.text else {}
            calls = [_call(first_call + k, c, index=True, of=self.id, choice=index) for k, c in enumerate(delta.calls)]
            out["delta"] = said | ({"tool_calls": calls} if calls else {})
        else:
            out["text"] = delta.text
        if self.request.return_token_ids:
            out["token_ids"] = delta.tokens.ids
        return self._chunk() | {"choices": [out]}

    def closing(self, choices: Sequence[Choice], reused: int) -> dict[str, Any]:
        """The last piece: what it took."""
        return self._chunk() | {"choices": [], "usage": self.usage(choices, reused)}

    def _chunk(self) -> dict[str, Any]:
        return self._frame("chat.completion.chunk" if self.is_chat else "text_completion")

    # -- log-probabilities -----------------------------------------------------------------------------------------------

    def _logprobs(self, tokens: Tokens, begin: int = 0) -> dict[str, Any] | None:
        count = self.request.alternatives
        if count is None:
            return None
        named = tokens.alternatives or [()] * len(tokens.ids)
        if not self.is_chat:
            texts = [self.chat.token_text(i) for i in tokens.ids]
            top = [{self.chat.token_text(i): _finite(v) for i, v in row[:count]} for row in named] if count else None
            offsets = list(accumulate(map(len, texts), initial=begin))[: len(texts)]
            logps = [_finite(v) for v in tokens.logps]
            return {"tokens": texts, "token_logprobs": logps, "top_logprobs": top, "text_offset": offsets}
        rows = zip(tokens.ids, tokens.logps, named, strict=True)
        content = [self._token(i, v) | {"top_logprobs": [self._token(*one) for one in row[:count]]} for i, v, row in rows]
        return {"content": content, "refusal": None}

    def _token(self, token: int, logp: float) -> dict[str, Any]:
        return {"token": self.chat.token_text(token), "logprob": _finite(logp), "bytes": self.chat.token_bytes(token)}


def _call(k: int, call: ToolCall, *, index: bool, of: str, choice: int) -> dict[str, Any]:
    about = {"id": f"call_{of.rpartition('-')[2]}{choice:x}x{k:x}", "type": "function"}
    place = {"index": k} if index else {}
    return place | about | {"function": {"name": call.name, "arguments": call.arguments}}


def _finite(value: float) -> float:
    return max(value, _LEAST)
