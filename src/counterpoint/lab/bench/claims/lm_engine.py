"""The engine against transformers on the calls of real teams, and shares of what the GPU can do.

Teams of `fake:1` play the ledger hunt; the prompts of their agents, call after call, are the load: every agent's first call at
once, then every agent's second, and so on, as a team makes them. Each is answered with 32 tokens, whatever they say. Ours answers
all rounds in one engine, which keeps what it has read; `generate` gets each round as one batch padded on the left, and
`generate_batch` as a list. All in bfloat16 with the same weights, warm, medians of three, on an otherwise idle GPU.

Shares are of the H200's data sheet: 4.8 TB/s of memory, 989 TFLOP/s in bfloat16. A decode step must read all weights once and the
keys and values of every row; a training step multiplies each weight outside the embedding with each token six times, and queries
with the keys they see. What the data sheet allows is an engine that reads what ours reads of the prompts at the peak, and then
writes at the memory's speed, with nothing in between: no engine that keeps keys and values call by call is faster.

`counterpoint reproduce counterpoint.lab.bench.claims.lm_engine:many_agents` is one part by itself (also `few_agents`, `learning`,
`continuous`, `vllm`). vLLM is compared with where it is installed: a server with prefix caching that is asked over HTTP, as a run
with `engine = "vllm:..."` does, its work for each request included, which weighs less for a larger model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

import numpy as np

from counterpoint.lab.bench.claim import ClaimRow, at_least, reported
from counterpoint.lab.bench.claims._language import T1, device, model, scaled

_NEW, _ROUNDS, _TIMES = 32, 3, 3
_GOALS = {256: 20.0, 1024: 15.0}
"""How many times as fast as `generate`, by the number of agents."""
_BYTES_PER_S, _FLOPS = 4.8e12, 989e12
Rounds = list[list[list[int]]]


def lm_engine(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """The engine against transformers' generate and generate_batch on team rollouts; shares of the GPU's limits; needs CUDA."""
    load = _Load(device(), seed)
    for agents in _GOALS:
        yield from load.against_generate(agents)
    yield from load.learning()
    yield from load.against_generate_batch()
    yield from load.against_vllm(256)


def vllm(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """The part against vLLM; no rows where it is not installed."""
    yield from _Load(device(), seed).against_vllm(256)


def few_agents(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """The part with 256 agents."""
    yield from _Load(device(), seed).against_generate(256)


def many_agents(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """The part with 1,024 agents."""
    yield from _Load(device(), seed).against_generate(1024)


def learning(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """The part about training steps."""
    yield from _Load(device(), seed).learning()


def continuous(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """The part against generate_batch."""
    yield from _Load(device(), seed).against_generate_batch()


def _seconds(wait: Callable[[], None], work: Callable[..., Any], *given: Any) -> list[float]:
    """Times of some repetitions, after one that is not counted."""
    out = []
    for _ in range(1 + _TIMES):
        wait()
        begin = time.perf_counter()
        work(*given)
        wait()
        out.append(time.perf_counter() - begin)
    return out[1:]


class _Load:
    """Prompts, our engine and learner, and transformers' model."""

    def __init__(self, where: str, seed: int) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        from counterpoint.lab.train.lm.driver import Driver
        from counterpoint.lab.train.lm.policies import Policies, check_device, read_model
        from counterpoint.lab.train.lm.settings import language_settings
        from counterpoint.lab.train.lm.training import LanguageTraining

        self.torch, self.is_gpu = torch, where == "cuda"
        shown = {"demos": "fake:1", "options": {"explore": 0.0}, "teams": scaled(640), "batch": scaled(192), "steps": 1}
        tokens = 49_152 if self.is_gpu else 4096
        settings = language_settings(
            {"model": model(), "device": where, "task": [T1], "imitate": shown, "slots": 64, "tokens": tokens, "seed": seed}
        )
        files = read_model(settings.model, check_device(where))
        self.shape, self.folder = files.shape, files.folder
        self.policies = Policies(settings, files, ())
        self.engine = self._engine(files.shape)
        with Driver(files.folder) as driver:
            training = LanguageTraining(settings, self.policies, driver)
            seeds = [2_000_000 + 1000 * seed + k for k in range(settings.imitate.teams)]
            training.show(training.play(seeds, temperature=1.0, name="shown", model="fake:1").traces)
        self.shown = [said for _, said in training.shown]
        kind = torch.bfloat16 if self.is_gpu else torch.float32
        theirs: Any = AutoModelForCausalLM.from_pretrained(files.folder, dtype=kind)
        self.theirs = theirs.to(where).eval()
        self.where = where

    def _engine(self, shape: Any) -> Any:
        """An engine of our own, in which no token ends an answer."""
        from counterpoint.lab.lm.engine import Engine
        from counterpoint.lab.lm.network import Network

        kind = self.policies.network.dtype
        network = Network(shape, device=self.policies.device, dtype=kind)
        weights = {n: w.detach().to(kind, copy=True) for n, w in self.policies.learners["shared"].weights.items()}
        if not self.is_gpu:
            return Engine(network, weights, ends=(), slots=32)
        from counterpoint.lab.lm.cuda import CudaEngine

        return CudaEngine(network, weights, ends=(), slots=1024, room=1024, most=4 * _NEW)

    def wait(self) -> None:
        """Until the device is done."""
        if self.is_gpu:
            self.torch.cuda.synchronize()

    def rounds(self, agents: int) -> Rounds:
        """Prompts of the first calls of some agents, then of their second ones, ..."""
        long = [said for said in self.shown if len(said) >= _ROUNDS]
        mine = [long[i % len(long)] for i in range(agents)]
        return [[[int(x) for x in said[r].prompt] for said in mine] for r in range(_ROUNDS)]

    # -- against transformers

    def against_generate(self, agents: int) -> Iterator[ClaimRow]:
        """Some agents' calls, in ours and in theirs."""
        rounds = self.rounds(scaled(agents))
        count = sum(map(len, rounds)) * _NEW
        ours = _seconds(self.wait, self.answer, rounds)
        theirs = _seconds(self.wait, self.generate, rounds)
        yield reported(f"{agents} agents: new tokens per second, ours", [count / t for t in ours])
        yield reported(f"{agents} agents: new tokens per second, generate", [count / t for t in theirs])
        yield at_least(f"{agents} agents: ours over generate, end to end", median(theirs) / median(ours), _GOALS[agents])
        yield reported(f"{agents} agents: what the data sheet allows over generate", median(theirs) / self.least_seconds(rounds))
        if agents == 256:
            yield reported("256 agents: first tokens as transformers', greedy", self.agreement(rounds))
        yield from self.decoding(f"{agents} agents", rounds[-1])

    def against_generate_batch(self) -> Iterator[ClaimRow]:
        """The first calls of agents, in ours and by continuous batching; on a CPU, in a trial, it would take minutes."""
        if self.is_gpu:
            first = self.rounds(256)[:1]
            batch, alone = (_seconds(self.wait, work, first) for work in (self.generate_batch, self.answer))
            yield reported("256 agents, first calls alone: ours over generate_batch", median(batch) / median(alone))

    def against_vllm(self, agents: int) -> Iterator[ClaimRow]:
        """Some agents' calls, in ours and in a vLLM of the same weights, prefixes forgotten before each repetition."""
        from counterpoint.lab.lm.engine import Ask
        from counterpoint.lab.lm.served.engine import ModelPlace, ServedEngine, server_of
        from counterpoint.lab.lm.served.launch import vllm_executable, vllm_server

        if (executable := vllm_executable()) is None:
            return
        rounds, folder = self.rounds(scaled(agents)), self.folder
        how = ["--max-num-seqs", "1024", "--max-num-batched-tokens", "65536", "--max-model-len", str(self.policies.context)]
        how += ["--gpu-memory-utilization", "0.4"] if self.is_gpu else ["--enforce-eager", "--dtype", "float32"]
        with vllm_server(executable, folder, how, VLLM_CPU_KVCACHE_SPACE="4") as url:
            found = server_of(f"vllm:{url}")
            assert found is not None
            place = ModelPlace(self.shape, folder, folder / "engine")
            theirs = ServedEngine(*found, place, ends=(), context=self.policies.context, slots=1024)

            def ask_theirs(rounds: Rounds) -> None:
                theirs.link.call("/reset_prefix_cache", {})
                for prompts in rounds:
                    theirs.run([Ask(prompt=p, most=_NEW, temperature=0.0) for p in prompts])

            try:
                ours, vllm_s = _seconds(self.wait, self.answer, rounds), _seconds(self.wait, ask_theirs, rounds)
            finally:
                theirs.close()
        count = sum(map(len, rounds)) * _NEW
        yield reported(f"{agents} agents: new tokens per second, vLLM", [count / t for t in vllm_s])
        yield reported(f"{agents} agents: ours over vLLM, end to end", median(vllm_s) / median(ours))

    # -- three ways to answer

    def answer(self, rounds: Rounds, new: int = _NEW) -> list[list[int]]:
        """Ours; what was read before is forgotten first."""
        from counterpoint.lab.lm.engine import Ask

        self._forget()
        out: list[list[int]] = []
        for prompts in rounds:
            out += [list(a.token_ids) for a in self.engine.run([Ask(prompt=p, most=new, temperature=0.0) for p in prompts])]
        return out

    def _forget(self) -> None:
        self.engine.load({n: w.detach() for n, w in self.policies.learners["shared"].weights.items()})

    def generate(self, rounds: Rounds) -> list[list[int]]:
        """Theirs, a padded batch for each round."""
        torch, out = self.torch, []
        for prompts in rounds:
            longest = max(map(len, prompts))
            ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts], device=self.where)
            mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=self.where)
            with torch.inference_mode():
                said = self.theirs.generate(
                    input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=_NEW, min_new_tokens=_NEW, pad_token_id=0
                )
            out += [line[longest:].tolist() for line in said]
        return out

    def generate_batch(self, rounds: Rounds) -> int:
        """Theirs, by continuous batching; how many tokens it wrote."""
        from transformers import GenerationConfig

        told = GenerationConfig(max_new_tokens=_NEW, min_new_tokens=_NEW, do_sample=False, eos_token_id=-1, pad_token_id=0)
        written = 0
        for prompts in rounds:
            done = self.theirs.generate_batch(inputs=prompts, generation_config=told)
            written += sum(len(one.generated_tokens) for one in done.values())
        return written

    def agreement(self, rounds: Rounds) -> float:
        """The share of answers that begin with the same token."""
        ours, theirs = self.answer(rounds, 1), self.generate(rounds)
        return float(np.mean([a[0] == b[0] for a, b in zip(ours, theirs, strict=True)]))

    # -- shares of what is possible

    def decoding(self, name: str, prompts: Sequence[list[int]]) -> Iterator[ClaimRow]:
        """Seconds of a decode step, and what share of the memory's speed its reading is."""
        short, long = (median(_seconds(self.wait, self.answer, [list(prompts)], new)) for new in (_NEW, 3 * _NEW))
        step = (long - short) / (2 * _NEW)
        read = self._step_bytes(prompts, 2 * _NEW)
        yield reported(f"{name}: milliseconds of a decode step", step * 1e3)
        yield reported(f"{name}: share of the memory's speed in decode", read / step / _BYTES_PER_S)

    def least_seconds(self, rounds: Rounds) -> float:
        """What reading and writing all of it takes at the data sheet's speeds."""
        before = self.engine.stats.read
        self.answer(rounds)
        plain = sum(w.numel() for n, w in self.engine.weights.items() if n != "words")
        reading = 2 * plain * (self.engine.stats.read - before) / _FLOPS
        writing = sum(self._step_bytes(prompts, done) for prompts in rounds for done in range(1, _NEW)) / _BYTES_PER_S
        return reading + writing

    def _step_bytes(self, prompts: Sequence[list[int]], done: int) -> int:
        """What a decode step must read once so many tokens of each answer are written, in bfloat16."""
        s, weights = self.shape, sum(w.numel() for w in self.engine.weights.values())
        kept = sum(map(len, prompts)) + len(prompts) * done
        return 2 * (weights + kept * s.layers * s.kv_heads * s.head_width * 2)

    def learning(self) -> Iterator[ClaimRow]:
        """Tokens per second of a training step, its share of the peak, and how far engine and learner are apart."""
        from counterpoint.lab.train.lm.packing import forest_rows

        learner = self.policies.learners["shared"]
        learner.set_rate(0.0)
        calls = [said for thread in self.shown for said in thread][: scaled(768)]
        steps = _seconds(self.wait, learner.imitate, calls)
        pairs = [(c.prompt, c.said) for c in calls]
        laid = forest_rows(pairs, learner.options.tokens)
        tokens, s = sum(map(len, laid)), self.shape
        plain = sum(w.numel() for n, w in learner.weights.items() if n != "words")
        said = sum(len(c.said) for c in calls)
        seen = sum(int((p.positions + 1).sum()) for p in laid)
        work = 6 * (plain * tokens + s.vocabulary * s.width * said) + 12 * s.layers * s.heads * s.head_width * seen
        yield reported("training: tokens per second", [tokens / t for t in steps])
        yield reported("training: tokens of the calls one by one, per second", [sum(map(len, calls)) / t for t in steps])
        yield reported("training: share of the peak", [work / t / _FLOPS for t in steps])
        yield from self._mismatch()

    def _mismatch(self) -> Iterator[ClaimRow]:
        from counterpoint.lab.lm.engine import Ask
        from counterpoint.lab.train.lm.learner import CallTokens

        prompts = self.rounds(scaled(256))[-1]
        self._forget()
        drawn = self.engine.run([Ask(prompt=p, most=_NEW, temperature=1.0, seed=i) for i, p in enumerate(prompts)])
        pairs = zip(prompts, drawn, strict=True)
        said = [CallTokens(str(i), np.array(p), np.array(a.token_ids)) for i, (p, a) in enumerate(pairs)]
        again = self.policies.learners["shared"].logps(said)
        apart = np.abs(np.concatenate(again) - np.concatenate([a.logps for a in drawn]))
        yield reported("engine and learner: mean |log-prob difference|", apart.mean())
        yield reported("engine and learner: 99th percentile", np.quantile(apart, 0.99))
