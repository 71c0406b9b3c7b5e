"""A folder of weights as a model that is ready: tokeniser, prompt rendering, where texts end, how long they may be.

Always true: nothing is fetched: every call to `transformers` is local, and a folder's own Python code is never run. A model is
used only after our attention and the model's own have given the same logits, so an architecture that the engine cannot serve is
refused with one error and never answers wrongly. Text of a message cannot spell a token that steers the model.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from counterpoint.errors import CounterpointError, InputError, did_you_mean
from counterpoint.team.local.weights import damaged
from counterpoint.team.model import Message, ModelFailed

_USUAL_CONTEXT = 2048
"""Where a model does not say how much it can read."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a local model is run."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """The numbers it computes with. bfloat16 is quicker where the processor has it in hardware and a hundred times slower where
    it has not; its log-probabilities are good to two digits."""
    device: str = "cpu"
    threads: int = 1
    """Threads of one operation. More than one gains little and suffers much from other load."""
    batch: int = 32
    """The most calls that are served at once; others wait."""
    chunk: int = 256
    """The most tokens of a prompt that are read between two tokens of the others."""
    reuse_mib: int = 1024
    """Memory for the keys and values of earlier prompts; 0 reads every prompt from its beginning."""
    context: int | None = None
    """The most tokens of prompt and completion together; None: what the model says."""

    @classmethod
    def of(cls, given: dict[str, Any]) -> Options:
        """Options from keywords; unknown and impossible ones raise."""
        known = {f.name for f in fields(cls)}
        for name in given:
            if name not in known:
                raise InputError(f"a local model has no option {name!r}", fix=did_you_mean(name, known))
        options = cls(**given)
        if options.dtype not in ("float32", "bfloat16"):
            raise InputError(f"dtype is float32 or bfloat16, not {options.dtype!r}")
        least = {"threads": 1, "batch": 1, "chunk": 1, "reuse_mib": 0, "context": 1}
        for name, low in least.items():
            value = getattr(options, name)
            if not (value is None and name == "context") and (type(value) is not int or value < low):
                raise InputError(f"{name} is a whole number of at least {low}, not {value!r}")
        return options


@dataclass(frozen=True)
class Loaded:
    """A model in memory."""

    model: Any
    tokenizer: Any
    ends: tuple[int, ...]
    """Tokens that end a completion."""
    context: int
    vocabulary_size: int

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of a prompt: by the tokeniser's chat template, or as `role: text` where it has none."""
        special = [token for token in self.tokenizer.all_special_tokens if len(token) > 1]
        plain = [{"role": m.role, "content": _unsteered(m.text, special)} for m in messages]
        if self.tokenizer.chat_template is None:
            text = "".join(f"{m['role']}: {m['content']}\n" for m in plain) + "assistant:"
            return list(self.tokenizer(text)["input_ids"])
        return list(self.tokenizer(self._templated(plain), add_special_tokens=False)["input_ids"])

    def _templated(self, messages: list[dict[str, str]]) -> str:
        import jinja2

        def render(chat: list[dict[str, str]]) -> str:
            return str(self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))

        try:
            return render(messages)
        except jinja2.TemplateError as error:
            # Some templates want roles to take turns, and some know no system message: it then opens the user's first.
            turns = _in_turns(messages)
            for chat in (turns, _in_turns([{**turns[0], "role": "user"}, *turns[1:]])):
                try:
                    return render(chat)
                except jinja2.TemplateError:
                    continue
            what = f"the model's chat template refuses this prompt: {error}"
            raise ModelFailed("refused", what, fix="use another model") from error


def _in_turns(messages: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """The same with messages of one role that follow each other made one."""
    out: list[dict[str, str]] = []
    for message in messages:
        if out and out[-1]["role"] == message["role"]:
            out[-1] = {**message, "content": out[-1]["content"] + "\n\n" + message["content"]}
        else:
            out.append(dict(message))
    return out


def _unsteered(text: str, special: Sequence[str]) -> str:
    """A text in which no token that steers the model is spelled: an agent's words must not end its turn."""
    for token in special:
        text = text.replace(token, token[0] + " " + token[1:])
    return text


def require_extra(*, gguf: bool = False) -> None:
    """Raise where the libraries for local models are missing."""
    from importlib.util import find_spec

    needed = ("torch", "transformers", "safetensors", *(("gguf", "accelerate") if gguf else ()))
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise InputError(f"local models need {' and '.join(missing)}", fix="pip install 'counterpoint[llm]'")


def quiet_import() -> Any:
    """`transformers`, cut off from every hub and without bars on the terminal."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import transformers
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return transformers


def load(folder: Path, options: Options) -> Loaded:
    """Load a folder; anything that is wrong with it is one `InputError`."""
    require_extra()
    if wrong := damaged(folder):
        fix = "`counterpoint models install NAME` makes the folder again; remove one that was made from a file"
        raise InputError(f"is damaged: {', '.join(wrong)}", where=folder.name, why="the digest is another one", fix=fix)
    transformers = quiet_import()
    import torch

    torch.set_num_threads(options.threads)
    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **local)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, options.dtype), **local)
        model = model.eval().to(options.device)
    except (MemoryError, CounterpointError):
        raise
    except Exception as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        fix = "a folder as `save_pretrained` writes it: config.json, *.safetensors, tokenizer.json"
        raise InputError("these weights cannot be loaded", where=folder.name, why=first, fix=fix) from error
    config = model.config.get_text_config()
    longest = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None) or _USUAL_CONTEXT
    _fit(model, folder.name)
    size = int(model.get_output_embeddings().weight.shape[0])
    return Loaded(model, tokenizer, _ends(model, tokenizer), min(options.context or longest, longest), size)


def _ends(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Every token that the configuration, the generation settings or the tokeniser call an end."""
    found: set[int] = set()
    for holder in (model.config, getattr(model, "generation_config", None), tokenizer):
        ends = getattr(holder, "eos_token_id", None)
        found |= set(ends) if isinstance(ends, (list, tuple)) else {ends} if ends is not None else set()
    return tuple(sorted(found))


def _fit(model: Any, name: str) -> None:
    """Switch to our attention, and refuse the model where its answers change."""
    import torch

    from counterpoint.team.local.attention import NAME, Cache, Segment, forward, register

    size = int(model.get_output_embeddings().weight.shape[0])
    ids = [(7 * i + 3) % size for i in range(9)]
    device = next(model.parameters()).device
    refused = InputError(
        f"the engine cannot serve a {model.config.model_type} model",
        where=name,
        why="its attention is not the usual kind",
        fix="serve it with another program and use it as openai:NAME",
    )
    with torch.inference_mode():
        expected = model(input_ids=torch.tensor([ids], device=device)).logits[0].float().cpu()
    register()
    try:
        model.set_attn_implementation(NAME)
        cache = Cache(len(ids))
        first = forward(model, [Segment(cache, ids[:6], range(6), want=(3, 5))])[0]
        rest = [forward(model, [Segment(cache, [ids[i]], [i], want=(0,))])[0] for i in range(6, len(ids))]
    except Exception as error:
        raise refused from error
    got = torch.cat([first, *rest])
    scale = float(expected.abs().max()) or 1.0
    allowed = (1e-3 if model.dtype == torch.float32 else 0.05) * scale
    if not torch.allclose(got, expected[[3, 5, 6, 7, 8]], rtol=0, atol=allowed):
        raise refused
