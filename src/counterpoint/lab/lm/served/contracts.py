"""What vLLM and SGLang are asked, and what they answer: one object for each, of plain values.

Always true: a request says everything that the distribution of an answer depends on, so no default of a server or of a model's
`generation_config.json` changes it; an answer without token ids, or without a log-probability for each, is an error that says
which server gives them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from counterpoint.errors import CounterpointError, InputError
from counterpoint.lab.lm.engine import Answer, Ask

Message = tuple[str, dict[str, Any]]
"""A path and the body that is posted to it."""


class Contract(Protocol):
    """How one kind of server is spoken to."""

    name: str
    needs: Mapping[str, str]
    """Paths that a server has only where it is started with more: what to start it with."""

    def request(self, ask: Ask, *, model: str, adapter: str, most: int, ends: Sequence[int]) -> Message:
        """What is posted for an ask; `adapter` is "" where the model itself answers."""

    def answer(self, reply: Any) -> Answer:
        """What was written."""

    def weights(self, folder: str) -> list[Message]:
        """What makes the server speak with the weights of a folder, and forget what it read with others."""

    def adapter(self, name: str, folder: str) -> Message:
        """What makes it know the adapter of a folder by a name."""

    def forget(self, name: str) -> Message:
        """What makes it forget an adapter."""


class Vllm:
    """vLLM: OpenAI's completions with ids both ways; weights by a call of its workers, which asks for the developers' mode."""

    name = "vLLM"
    needs: Mapping[str, str] = {
        "/collective_rpc": "start vLLM with VLLM_SERVER_DEV_MODE=1",
        "/reset_prefix_cache": "start vLLM with VLLM_SERVER_DEV_MODE=1",
        "/v1/load_lora_adapter": "start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True",
    }

    def request(self, ask: Ask, *, model: str, adapter: str, most: int, ends: Sequence[int]) -> Message:
        """A completion of ids."""
        return "/v1/completions", {
            "model": adapter or model,
            "prompt": list(map(int, ask.prompt)),
            "max_tokens": most,
            "temperature": ask.temperature,
            "top_p": ask.top_p,
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "seed": ask.seed & 0x7FFF_FFFF,
            "logprobs": 0,
            "return_token_ids": True,
            "ignore_eos": True,
            "stop_token_ids": list(ends),
        }

    def answer(self, reply: Any) -> Answer:
        """The first choice."""
        try:
            choice = reply["choices"][0]
            ids, logps = choice.get("token_ids"), (choice.get("logprobs") or {}).get("token_logprobs")
            usage = reply.get("usage") or {}
            reused = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
            ended = choice.get("finish_reason")
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise _odd(self.name, reply) from error
        if ids is None:
            raise InputError("the server gives no token ids", fix="vLLM 0.10.2 or newer, which has `return_token_ids`")
        return _answer(self.name, ids, logps, ended, reused)

    def weights(self, folder: str) -> list[Message]:
        """Reload, then forget prefixes."""
        reload = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
        return [("/collective_rpc", reload), ("/reset_prefix_cache", {})]

    def adapter(self, name: str, folder: str) -> Message:
        """By name and path."""
        return "/v1/load_lora_adapter", {"lora_name": name, "lora_path": folder}

    def forget(self, name: str) -> Message:
        """By name."""
        return "/v1/unload_lora_adapter", {"lora_name": name}


class Sglang:
    """SGLang: its own `/generate`, whose log-probabilities name the ids; weights from disk."""

    name = "SGLang"
    needs: Mapping[str, str] = {
        "/load_lora_adapter": "start SGLang with --enable-lora, --max-lora-rank and --lora-target-modules all",
    }

    def request(self, ask: Ask, *, model: str, adapter: str, most: int, ends: Sequence[int]) -> Message:
        """Generation from ids; `ignore_eos` would switch off the ends that are named too."""
        drawn = {
            "max_new_tokens": most,
            "temperature": ask.temperature,
            "top_p": ask.top_p,
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "sampling_seed": ask.seed & 0x7FFF_FFFF,
            "stop_token_ids": list(ends),
        }
        body: dict[str, Any] = {"input_ids": list(map(int, ask.prompt)), "sampling_params": drawn, "return_logprob": True}
        return "/generate", body | ({"lora_path": adapter} if adapter else {})

    def answer(self, reply: Any) -> Answer:
        """Ids and log-probabilities out of `meta_info`: the token that ended an answer is among them."""
        try:
            about = reply["meta_info"]
            drawn = about.get("output_token_logprobs")
            ended, reused = about["finish_reason"]["type"], about.get("cached_tokens") or 0
            ids = None if drawn is None else [one[1] for one in drawn]
            logps = None if drawn is None else [one[0] for one in drawn]
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise _odd(self.name, reply) from error
        if ids is None:
            raise InputError("the server gives no log-probabilities", fix="SGLang's own server, at its /generate")
        return _answer(self.name, ids, logps, ended, reused)

    def weights(self, folder: str) -> list[Message]:
        """From disk, prefixes forgotten with it."""
        return [("/update_weights_from_disk", {"model_path": folder}), ("/flush_cache", {})]

    def adapter(self, name: str, folder: str) -> Message:
        """By name and path."""
        return "/load_lora_adapter", {"lora_name": name, "lora_path": folder}

    def forget(self, name: str) -> Message:
        """By name."""
        return "/unload_lora_adapter", {"lora_name": name}


CONTRACTS: Mapping[str, type[Contract]] = {"vllm": Vllm, "sglang": Sglang}
"""By the word before the address."""


def _answer(name: str, ids: Any, logps: Any, ended: Any, reused: int) -> Answer:
    """Checked: what the learner takes for the policy's words must be whole."""
    if not isinstance(logps, list) or len(logps) != len(ids) or not ids or None in logps:
        many = len(logps) if isinstance(logps, list) else "no"
        fix = f"a {name} that gives the log-probability of every token it has drawn"
        raise InputError(f"the server gives {many} log-probabilities for {len(ids)} tokens", fix=fix)
    if ended not in ("stop", "length"):
        raise CounterpointError(f"the server ended an answer early: {ended}", fix="see its log")
    finish: Literal["stop", "length"] = "stop" if ended == "stop" else "length"
    return Answer(tuple(map(int, ids)), tuple(map(float, logps)), finish, int(reused))


def _odd(name: str, reply: Any) -> InputError:
    return InputError(f"this is not how {name} answers: {str(reply)[:200]}", fix=f"the address of a {name} server")
