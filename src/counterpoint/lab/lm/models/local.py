"""Local weights: a folder of a known family, a GGUF file or what a run has trained, for all agents at once.

Always true: making the model is cheap (nothing is loaded before the first call); its name and version are those of the weights
and never a path; a call gets exactly one answer, a completion or an error, and its answer is the same alone or among many except
for the last bits of the logits. What a recorded call answered is promised by the recording, not by the engine.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.lm.chat import Chat
from counterpoint.lab.lm.conversion import ready_folder
from counterpoint.lab.lm.engine import Answer, AnswerDraft, Ask, Engine, Engines, Stats
from counterpoint.lab.lm.engine_thread import EngineThread
from counterpoint.lab.lm.model import Call, Completion, ModelFailed
from counterpoint.lab.lm.network import Network, Shape, Weights, shape_of
from counterpoint.lab.lm.tensor_files import check_headers, read_folder
from counterpoint.lab.lm.weights import Source, damaged, described, find, require_extra

_ENGINE = 2
"""Changes whenever the same weights and call would be answered otherwise."""
_READS = 256
"""Tokens of prompts in one pass on a CPU: those that write wait no longer for them, and a call is let go of as soon."""
_GONE = {
    "chunk": "prompts that wait are read together",
    "reuse_mib": "as many prompts are kept as calls are served at once: see batch",
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a local model is run."""

    device: str = "cpu"
    """`cpu`, or `cuda` with a number where there are several."""
    dtype: Literal["float32", "bfloat16"] | None = None
    """The numbers it computes with; None: float32 on a CPU, bfloat16 on a GPU. On a CPU bfloat16 is quicker where the processor
    has it in hardware and a hundred times slower where it has not; its log-probabilities are good to two digits."""
    threads: int = 1
    """Threads of one operation on a CPU. More than one gains little and suffers much from other load."""
    batch: int = 32
    """The most calls that are served at once, others wait; and the most prompts that are kept for calls that begin like them."""
    propensities: bool = False
    """Whether completions say how likely each of a call's starts was: one more pass for every place where starts part."""
    context: int | None = None
    """The most tokens of prompt and completion together; None: what the model says."""

    @classmethod
    def of(cls, values: dict[str, Any]) -> Options:
        """Options from keywords; unknown and impossible ones raise."""
        known = {f.name for f in fields(cls)}
        for name in values:
            if name in _GONE:
                raise InputError(f"a local model has no option {name!r} any more", why=_GONE[name], fix=f"leave out {name}")
            if name not in known:
                raise InputError(f"a local model has no option {name!r}", fix=did_you_mean(name, known))
        options = cls(**values)
        if options.dtype not in (None, "float32", "bfloat16"):
            raise InputError(f"dtype is float32 or bfloat16, not {options.dtype!r}")
        if options.device.partition(":")[0] not in ("cpu", "cuda"):
            raise InputError(f"device is cpu or cuda, not {options.device!r}")
        for name in ("threads", "batch", "context"):
            value = getattr(options, name)
            if not (value is None and name == "context") and (type(value) is not int or value < 1):
                raise InputError(f"{name} is a whole number of at least 1, not {value!r}")
        return options

    @property
    def is_gpu(self) -> bool:
        """Whether it runs on a GPU."""
        return self.device.startswith("cuda")

    @property
    def numbers(self) -> str:
        """The name of the numbers it computes with."""
        return self.dtype or ("bfloat16" if self.is_gpu else "float32")


# -- loading -------------------------------------------------------------------------------------------------------------


def _check_device(options: Options) -> None:
    """Raise where there is no GPU and one is asked for."""
    if not options.is_gpu:
        return
    import torch

    if not torch.cuda.is_available():
        raise InputError("there is no GPU that torch can use", where=f"device={options.device}", fix="device=cpu")


def load(source: Source, options: Options) -> tuple[Chat, Engines]:
    """A model in memory; anything that is wrong with its folder is one `InputError`."""
    import torch

    _check_device(options)
    if ":" in options.device:
        torch.cuda.set_device(options.device)  # kernels and graphs run on the thread's own device
    torch.set_num_threads(options.threads)
    folder = ready_folder(source)
    if wrong := damaged(folder):
        fix = "`counterpoint models install NAME` rebuilds the folder, and `models add` one that came from a file or a folder"
        raise InputError(f"is damaged: {', '.join(wrong)}", where=folder.name, why="the checksum differs", fix=fix)
    _enough_memory(folder, options)
    chat, shape, weights = read_folder(folder, source.name, device=options.device, dtype=getattr(torch, options.numbers))
    if not source.layers:
        return chat, Engines({"": _engine(chat, shape, weights, options)})
    from counterpoint.lab.lm.adapter import adapted

    speak = {policy: adapted(weights, source.adapters(policy), source.name) for policy in source.policies}
    return chat, Engines({policy: _engine(chat, shape, own, options) for policy, own in speak.items()})


def _engine(chat: Chat, shape: Shape, weights: Weights, options: Options) -> Engine:
    import numpy as np
    import torch

    shape = replace(shape, context=min(options.context or shape.context, shape.context))
    network = Network(shape, device=options.device, dtype=getattr(torch, options.numbers))
    after_space = np.zeros(shape.vocabulary, bool)
    after_space[: chat.size] = chat.after_space
    about: dict[str, Any] = {"ends": chat.ends, "lines": sorted(chat.lines), "after_space": after_space, "slots": options.batch}
    if not options.is_gpu:
        return Engine(network, weights, reads=_READS, **about)
    from counterpoint.lab.lm.cuda import CudaEngine

    return CudaEngine(network, weights, **about)


def _enough_memory(folder: Path, options: Options) -> None:
    """Refuse weights that cannot fit; the files' headers say it before anything is read."""
    free = _free_bytes(options)
    need = (described(Source(folder)).parameters or 0) * (4 if options.numbers == "float32" else 2)
    if free is not None and need > free:
        where = "the GPU" if options.is_gpu else "this machine"
        fix = "dtype=bfloat16, or a smaller model" if options.numbers == "float32" else "a smaller model"
        what = f"too little memory: the weights take about {need / 1e9:.1f} GB and {where} has {free / 1e9:.1f} GB free"
        raise InputError(what, where=folder.name, fix=fix)


def _free_bytes(options: Options) -> int | None:
    if options.is_gpu:
        import torch

        return int(torch.cuda.mem_get_info(options.device)[0])
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return None


# -- one call ------------------------------------------------------------------------------------------------------------


@dataclass
class _Asked:
    """A call, and where its answer goes; an `EngineCall`."""

    call: Call
    answer: Callable[[Completion | Exception], None]
    options: Options
    is_cancelled: bool = False
    prompt: tuple[int, ...] = ()

    @property
    def is_watched(self) -> bool:
        """Whether a stop string may end it."""
        return bool(self.stops)

    def ask(self, chat: Chat) -> Ask:
        """Its messages as the model reads them."""
        call, self.prompt = self.call, tuple(chat.prompt(self.call.messages))
        return Ask(
            prompt=self.prompt, most=call.max_tokens, temperature=call.temperature, seed=call.seed,
            starts=chat.starts(call.starts) if call.starts else (), is_one_line="\n" in call.stop,
            policy=call.view.role if call.view is not None else "", is_scored=self.options.propensities,
        )  # fmt: skip

    def watch(self, chat: Chat, written: AnswerDraft) -> bool:
        """Whether a stop string was written."""
        return self.text(chat, tuple(written.token_ids))[1]

    def settle(self, chat: Chat, result: Answer | ModelFailed) -> None:
        """Its answer, or why there is none."""
        self.answer(result if isinstance(result, ModelFailed) else self.completion(chat, result))

    @property
    def stops(self) -> list[str]:
        """The stop strings that the engine does not see: a line break it does."""
        return [stop for stop in self.call.stop if stop and stop != "\n"]

    def text(self, chat: Chat, ids: tuple[int, ...]) -> tuple[str, bool]:
        """What tokens say, up to a stop string; and whether there was one."""
        start, used, is_whole = chat.begun(self.call.starts, ids) if self.call.starts else ("", 0, False)
        if is_whole or (start and used == len(ids)):
            return start, is_whole
        whole = chat.decode(ids)
        tail = whole[len(start) :] if whole.startswith(start) else chat.decode(ids[used:])
        stops = [at for stop in self.call.stop if stop and (at := tail.find(stop)) >= 0]
        return start + tail[: min(stops, default=len(tail))], bool(stops)

    def cut(self, chat: Chat, ids: tuple[int, ...]) -> int:
        """How many tokens it takes to the end of the first stop string; all where there is none."""
        if not self.stops or not self.text(chat, ids)[1]:
            return len(ids)
        return next(n for n in range(1, len(ids) + 1) if self.text(chat, ids[:n])[1])

    def completion(self, chat: Chat, answer: Answer) -> Completion:
        """What was answered."""
        n = self.cut(chat, answer.token_ids)
        ids, logps = answer.token_ids[:n], answer.logps[:n]
        if not all(map(math.isfinite, logps)):
            fix = "the weights may be damaged: counterpoint models show NAME"
            raise ModelFailed("malformed", "the model's output is not a number", fix=fix)
        text, is_stopped = self.text(chat, ids)
        finish: Literal["stop", "length"] = "stop" if is_stopped or n < len(answer.token_ids) else answer.finish
        return Completion(
            text=text,
            tokens_in=len(self.prompt),
            tokens_out=n,
            token_ids=ids,
            prompt_ids=self.prompt,
            logps=logps,
            start_logps=None if answer.start_logps is None else chat.start_logps(self.call.starts, answer.start_logps),
            finish=finish,
        )


class LocalModel:
    """A model that runs in this process."""

    def __init__(self, source: Source, options: Options) -> None:
        self._source, self._options = source, options
        self.thread = EngineThread(partial(load, source, options), slots=options.batch)
        self._version = f"{source.digest()}-{options.numbers}-{_ENGINE}"

    @property
    def name(self) -> str:
        """`local:` and the name of the run, the folder or the file."""
        return f"local:{self._source.name}"

    @property
    def version(self) -> str:
        """A digest of the weights, the number format and the engine."""
        return self._version

    @property
    def stats(self) -> Stats:
        """What the engine has done so far."""
        return self.thread.stats

    async def complete(self, call: Call) -> Completion:
        """Answer, together with whatever other calls wait at the same time."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Completion] = loop.create_future()

        def settle(result: Completion | Exception) -> None:
            if future.done():
                return
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

        def answer(result: Completion | Exception) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, result)

        asked = _Asked(call, answer, self._options)
        self.thread.submit(asked)
        try:
            return await future
        finally:
            asked.is_cancelled = True

    async def close(self) -> None:
        """End the thread and let the memory go; calls that still wait fail."""
        await asyncio.to_thread(self.thread.close)


def local(spec: str, **options: Any) -> LocalModel:
    """The model of a name that `counterpoint models` lists, of a folder, of a .gguf file, or of a run that trained one; options
    are those of `Options`."""
    chosen = Options.of(options)
    source = find(spec)
    require_extra(gguf=source.is_gguf)
    if not source.is_gguf:
        shape_of(source.path)
        check_headers(source.path)
    _check_device(chosen)
    return LocalModel(source, chosen)
