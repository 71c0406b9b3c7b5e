"""Calls a second through the endpoint beside the engine's own: 256 callers, each with one call after the other, the same calls.

Always true: engine, endpoint and callers are one tree of processes; engine and endpoint take turns, each for some seconds
after some that are not counted; a line of JSON is printed as soon as something is known. On a GPU the engine is ours, with
random weights of SmolLM2-135M's shape; with `--stand-in`, and where there is no GPU, one of that speed without a network.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))

from _callers import NEW, Callers, conversations, corpus

from counterpoint.app.http_server import listening_socket
from counterpoint.lab.app import model_fronts
from counterpoint.lab.lm.chat import CHATML, Chat
from counterpoint.lab.lm.engine import Answer, Ask
from counterpoint.lab.lm.engine_thread import EngineThread
from counterpoint.lab.lm.model import Message, ModelFailed
from counterpoint.lab.lm.serving.backend import EngineBackend

GOAL, _CALLERS, _TURNS, _LATEST_S = 0.8, 256, 3, 65.0
_WORDS = 49_152
_SHAPE = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_attention_heads": 9, "num_key_value_heads": 3,
    "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "vocab_size": _WORDS, "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5, "rope_theta": 100000.0, "tie_word_embeddings": True, "hidden_act": "silu", "eos_token_id": 2,
}  # fmt: skip


def _tell(**about: Any) -> None:
    print(json.dumps(about), flush=True)


# -- the model ----------------------------------------------------------------------------------------------------------------


def _chat() -> Chat:
    """A tokeniser with as many tokens as SmolLM2's, of which those that our own pages teach are used."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=8192, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    raw.train_from_iterator([corpus()[:400_000]], trainer)
    table = json.loads(raw.to_str())
    known = table["model"]["vocab"]
    known.update({f"w{k}": k for k in range(len(known), _WORDS)})
    names = {"eos_token": "<|im_end|>", "bos_token": "<|im_start|>"}
    return Chat(Tokenizer.from_str(json.dumps(table)), template=CHATML, ends=(2,), names=names)


def _folder(folder: Path, chat: Chat) -> Path:
    """Random weights of SmolLM2-135M's shape."""
    from safetensors.torch import save_file

    from counterpoint.lab.lm.network import Shape, as_transformers

    chat.save(folder)
    (folder / "config.json").write_text(json.dumps(_SHAPE))
    shape, draw = Shape.of(_SHAPE), torch.Generator().manual_seed(0)

    def drawn(*size: int) -> torch.Tensor:
        return (torch.randn(*size, generator=draw) * 0.05).to(torch.bfloat16)

    ones = torch.ones(shape.width, dtype=torch.bfloat16)
    weights = {"words": drawn(_WORDS, shape.width), "norm": ones}
    heads = shape.heads + 2 * shape.kv_heads
    for i in range(shape.layers):
        weights |= {f"{i}.norm1": ones.clone(), f"{i}.norm2": ones.clone()}
        weights |= {f"{i}.qkv": drawn(heads * shape.head_width, shape.width)}
        weights |= {f"{i}.o": drawn(shape.width, shape.heads * shape.head_width)}
        weights |= {f"{i}.gate_up": drawn(2 * shape.inner, shape.width), f"{i}.down": drawn(shape.width, shape.inner)}
    save_file(as_transformers(shape, weights), folder / "model.safetensors", {"format": "pt"})
    return folder


@contextmanager
def _thread(*, is_stand_in: bool) -> Iterator[EngineThread]:
    chat = _chat()
    if is_stand_in:
        from _stand_in import StandIn

        thread = EngineThread(lambda: (chat, StandIn(chat.size, _CALLERS)), slots=_CALLERS)  # type: ignore[arg-type,return-value]
        yield thread
        thread.close()
        return
    from counterpoint.lab.lm.models.local import local

    with tempfile.TemporaryDirectory() as base:
        model = local(str(_folder(Path(base) / "m", chat)), device="cuda", batch=_CALLERS)
        yield model.thread
        asyncio.run(model.close())


# -- the engine alone ---------------------------------------------------------------------------------------------------------


class _Direct:
    """A caller in the engine's process, who asks again as soon as it is answered; an `EngineCall`."""

    is_watched = False

    def __init__(self, load: _DirectLoad, asks: list[Ask]) -> None:
        self.is_cancelled = False
        self._load, self._asks, self._next = load, asks, 0

    def ask(self, chat: Chat) -> Ask:
        self._next += 1
        return self._asks[(self._next - 1) % len(self._asks)]

    def watch(self, chat: Chat, written: Any) -> bool:
        return False

    def settle(self, chat: Chat, result: Answer | ModelFailed) -> None:
        if isinstance(result, ModelFailed):
            self._load.failure = result
            return
        self._load.calls += 1
        self._load.tokens += len(result.token_ids)
        if not self._load.is_over:
            self._load.thread.submit(self)


class _DirectLoad:
    """All callers at the engine itself."""

    def __init__(self, thread: EngineThread, asks: list[list[Ask]]) -> None:
        self.thread, self._asks = thread, asks
        self.calls = self.tokens = 0
        self.is_over, self.failure = False, None

    def __enter__(self) -> _DirectLoad:
        for mine in self._asks:
            self.thread.submit(_Direct(self, mine))
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over = True
        self.thread.ready().result()

    def done(self) -> tuple[int, int]:
        """Calls and tokens so far."""
        if self.failure is not None:
            raise self.failure
        return self.calls, self.tokens


def _asks(chat: Chat, count: int) -> list[list[Ask]]:
    """The first calls of each caller, as the engine is asked."""
    text, out = corpus(), []
    for caller in range(_CALLERS):
        bodies = conversations(text, caller)
        asks = []
        for _ in range(count):
            body = next(bodies)
            prompt = chat.prompt([Message(m["role"], m["content"]) for m in body["messages"]])
            asks.append(Ask(prompt=prompt, most=body["max_tokens"], seed=body["seed"]))
        out.append(asks)
    return out


# -- measuring ----------------------------------------------------------------------------------------------------------------


def _cpu_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rate(done: Callable[[], tuple[int, int]], seconds: float, pids: dict[str, list[int]]) -> dict[str, float]:
    """Calls and tokens a second, and processor time per call of groups of processes, once every caller was answered twice."""
    while done()[0] < 2 * _CALLERS:
        time.sleep(0.05)
    time.sleep(seconds / 5)
    spent = {name: sum(map(_cpu_s, group)) for name, group in pids.items()}
    (calls, tokens), begin = done(), time.perf_counter()
    time.sleep(seconds)
    now_calls, now_tokens = done()
    took, count = time.perf_counter() - begin, max(1, now_calls - calls)
    cpu = {name: round(1e3 * (sum(map(_cpu_s, group)) - spent[name]) / count, 3) for name, group in pids.items()}
    rates = {"calls per s": round(count / took, 1), "tokens per s": round((now_tokens - tokens) / took)}
    return rates | {f"{name}: CPU ms per call": value for name, value in cpu.items()}


@contextmanager
def _served(thread: EngineThread, front_ends: int) -> Iterator[int]:
    """The endpoint in front of the engine: its port."""
    backend, is_ready = EngineBackend(thread, "m"), threading.Event()
    sock = listening_socket("127.0.0.1", 0)
    server = model_fronts.server(backend, front_ends=front_ends, on_ready=is_ready.set)
    serving = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    serving.start()
    is_ready.wait()
    try:
        yield sock.getsockname()[1]
    finally:
        server.should_exit = True
        serving.join()


def _turn(thread: EngineThread, asks: list[list[Ask]], port: int, seconds: float, turn: int) -> float:
    """The endpoint's share of the engine's calls a second."""
    with _DirectLoad(thread, asks) as direct:
        alone = _rate(direct.done, seconds, {"engine": [os.getpid()]})
    _tell(what="engine alone", turn=turn, **alone)
    fronts = [int(p.pid or 0) for p in multiprocessing.active_children() if "front-end" in p.name]
    with Callers(port, _CALLERS, max(1, min(4, len(os.sched_getaffinity(0)) // 4))) as callers:
        pids = {"engine": [os.getpid()], "front ends": fronts, "callers": callers.pids}
        through = _rate(callers.done, seconds, pids)
    share = through["calls per s"] / alone["calls per s"]
    _tell(what="through the endpoint", turn=turn, front_ends=len(fronts), share=round(share, 3), **through)
    return share


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stand-in", action="store_true", help="an engine of the H200's speed without a network")
    parser.add_argument("--json", action="store_true", help="lines of JSON: there is no other form")
    parser.add_argument("--quick", action="store_true", help="one turn, of a second")
    parser.add_argument("--front-ends", type=int, default=model_fronts.usual_front_ends("cuda"), metavar="N")
    options = parser.parse_args()
    seconds, began = 1.0 if options.quick else 5.0, time.perf_counter()
    is_stand_in = options.stand_in or not torch.cuda.is_available()
    with _thread(is_stand_in=is_stand_in) as thread:
        thread.ready().result()
        assert thread.chat is not None
        asks = _asks(thread.chat, 9)
        mean = statistics.mean(len(ask.prompt) for mine in asks for ask in mine)
        engine = "stand-in" if is_stand_in else torch.cuda.get_device_name()
        _tell(engine=engine, callers=_CALLERS, cores=len(os.sched_getaffinity(0)), prompt_tokens=round(mean), new=NEW)
        with _served(thread, options.front_ends) as port:
            shares = list[float]()
            for turn in range(1 if options.quick else 1 + _TURNS):  # the first is not counted: kernels are made in it
                if turn < 2 or time.perf_counter() - began < _LATEST_S:
                    share = _turn(thread, asks, port, seconds if turn else min(seconds, 2.0), turn)
                    shares += [share] if turn or options.quick else []
        share = statistics.median(shares)
        took = round(time.perf_counter() - began, 1)
        _tell(what="median share", share=round(share, 3), goal=GOAL, is_met=share >= GOAL, turns=len(shares), took_s=took)


if __name__ == "__main__":
    main()
