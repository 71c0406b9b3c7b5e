"""The engine of a server as one of ours: asks go in, answers come out, and weights are handed over by files.

Always true: nothing here waits for an answer; `fileno` is readable when `step` has something to give. A server speaks with the
weights of the last `load`: a folder that was written whole is renamed to its name, the server reads it and forgets what it had
read with other weights. An adapter has a new name each time, so that no prefix read with an older one is taken for its own.
"""

from __future__ import annotations

import secrets
import select
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterpoint.errors import CounterpointError, InputError, NotFound, did_you_mean
from counterpoint.lab.lm.engine import Answer, Ask, Stats, TooLong
from counterpoint.lab.lm.served.contracts import CONTRACTS, Contract
from counterpoint.lab.lm.served.link import ServerFailed, ServerLink

if TYPE_CHECKING:
    from counterpoint.lab.lm.adapter import PolicyWeights
    from counterpoint.lab.lm.network import Shape

OWN = "own"
"""What the setting says for the engine of this process."""
_AT_ONCE = 512


@dataclass(frozen=True)
class ModelPlace:
    """The model that a server is to speak with, and where its weights are handed over."""

    shape: Shape
    like: Path
    """The folder whose configuration and tokeniser go with the weights."""
    folder: Path
    """Where both sides see files."""
    kind: str = "bfloat16"
    """The numbers of the files; the server computes in its own."""


def server_of(engine: str) -> tuple[Contract, str] | None:
    """What a setting names: how the server is spoken to, and its address; None for the engine of this process."""
    kind, _, url = engine.partition(":")
    if engine == OWN:
        return None
    if kind not in CONTRACTS or not url.startswith(("http://", "https://")):
        fix = "own, vllm:http://HOST:PORT or sglang:http://HOST:PORT"
        fix = fix if kind in CONTRACTS else did_you_mean(kind, [OWN, *CONTRACTS]) + f" ({fix})"
        raise InputError(f"no engine {engine!r}", where="engine", fix=fix)
    return CONTRACTS[kind](), url


class ServedEngine:
    """The engine behind an address; a policy is the model there, or an adapter over it."""

    def __init__(
        self, contract: Contract, url: str, place: ModelPlace, *, ends: Sequence[int], context: int, slots: int = 0
    ) -> None:
        """`ends`: tokens that end an answer; `context`: tokens of prompt and answer; `slots`: requests under way at once."""
        self.contract, self.place, self.ends = contract, place, sorted(ends)
        self.link = ServerLink(url, at_once=slots or _AT_ONCE, needs=contract.needs)
        self._stats = Stats()
        self._asks: dict[int, Ask] = {}
        self._adapters: dict[str, str] = {}
        """Policy to the name of its adapter there."""
        self._run, self._loads = secrets.token_hex(3), 0
        try:
            self.model, longest = self._about()
        except BaseException:
            self.link.close()
            raise
        self.context = min(context, longest or context)

    def _about(self) -> tuple[str, int]:
        """The name of the model there, and the most tokens it reads."""
        try:
            listed = self.link.call("/v1/models")
        except ServerFailed as failed:
            fix = f"start {self.contract.name} first, or --set engine={OWN}"
            raise NotFound(f"no {self.contract.name} here: {failed.what}", where=self.link.url, why=failed.why, fix=fix) from None
        cards = listed.get("data") if isinstance(listed, dict) else None
        base = next((card for card in cards or [] if isinstance(card, dict) and not card.get("parent")), None)
        if base is None or not isinstance(base.get("id"), str):
            fix = f"the address of a {self.contract.name} server"
            raise InputError("the server lists no model at /v1/models", where=self.link.url, fix=fix)
        return base["id"], int(base.get("max_model_len") or 0)

    # -- answers

    @property
    def is_busy(self) -> bool:
        """Whether somebody waits for an answer."""
        return bool(self._asks)

    @property
    def stats(self) -> Stats:
        """What was asked and answered so far; what the server has read before, as far as it says."""
        return replace(self._stats)

    def fileno(self) -> int:
        """Readable when an answer is here."""
        return self.link.fileno()

    def add(self, ask: Ask) -> int:
        """Ask; the ticket comes back with the answer."""
        if ask.starts or ask.alternatives:
            fix = f"the engine of this process: --set engine={OWN}"
            raise InputError("a server holds no answer to beginnings, and names no alternatives", where=self.link.url, fix=fix)
        if len(ask.prompt) + 1 > self.context:
            raise TooLong(f"the prompt has {len(ask.prompt):,} tokens and the model reads {self.context:,}", fix="shorten it")
        most = min(ask.most, self.context - len(ask.prompt))
        adapter = self._adapters.get(ask.policy) or next(iter(self._adapters.values()), "")
        path, body = self.contract.request(ask, model=self.model, adapter=adapter, most=most, ends=self.ends)
        ticket, self._stats.asked = self._stats.asked, self._stats.asked + 1
        self._asks[ticket] = ask
        self._stats.widest = max(self._stats.widest, len(self._asks))
        self.link.send(ticket, path, body)
        return ticket

    def step(self) -> list[tuple[int, Answer]]:
        """The answers that are here, without waiting for any."""
        out, stats = list[tuple[int, Answer]](), self._stats
        for ticket, reply in self.link.arrivals():
            ask = self._asks.pop(ticket, None)
            if ask is None:
                continue
            try:
                if isinstance(reply, ServerFailed):
                    raise reply
                answer = self.contract.answer(reply)
            except CounterpointError as error:
                self.reset()
                error.where = error.where or self.link.url
                raise type(error)(error.what, where=error.where, why=error.why, fix=error.fix) from None
            stats.reused += answer.reused
            stats.read += len(ask.prompt) - answer.reused
            stats.written += len(answer.token_ids)
            out.append((ticket, answer))
        stats.passes += bool(out)
        return out

    def run(self, asks: Sequence[Ask]) -> list[Answer]:
        """The answers of many, in their order, waited for."""
        tickets = {self.add(ask): i for i, ask in enumerate(asks)}
        out: dict[int, Answer] = {}
        while self.is_busy:
            select.select([self], [], [])
            out |= {tickets[ticket]: answer for ticket, answer in self.step()}
        return [out[i] for i in range(len(asks))]

    def reset(self) -> None:
        """Forget every call."""
        self._asks.clear()
        self.link.drop()

    # -- weights

    def load(self, policies: Mapping[str, PolicyWeights]) -> None:
        """The server speaks with these from now on."""
        if self.is_busy:
            raise InputError("calls are under way", fix="step until the engine is not busy")
        self._loads += 1
        self.place.folder.mkdir(parents=True, exist_ok=True)
        if any(policy.adapter is not None for policy in policies.values()):
            self._load_adapters(policies)
            return
        from counterpoint.lab.lm.conversion import write_folder

        (policy,) = policies.values()
        folder = self.place.folder / "weights"
        write_folder(self.place.like, self.place.shape, policy.base, folder, kind=self.place.kind)
        for path, body in self.contract.weights(str(folder.absolute())):
            self._tell(path, body)

    def _load_adapters(self, policies: Mapping[str, PolicyWeights]) -> None:
        from counterpoint.lab.lm.peft_files import write_adapter

        for name in self._adapters.values():
            self._tell(*self.contract.forget(name))
        self._adapters = {}
        for policy, learned in policies.items():
            assert learned.adapter is not None
            name, folder = f"{policy}-{self._run}-{self._loads}", self.place.folder / policy
            write_adapter(learned.adapter, self.place.shape, folder)
            self._tell(*self.contract.adapter(name, str(folder.absolute())))
            self._adapters[policy] = name

    def _tell(self, path: str, body: dict[str, Any]) -> None:
        reply = self.link.call(path, body)
        if isinstance(reply, dict) and reply.get("success") is False:
            fix = "the same folder must be there for the server, and the weights must be of its model"
            raise ServerFailed(f"{path} fails: {reply.get('message')}", where=self.link.url, fix=fix)

    def close(self) -> None:
        """Let go of the server; the files that were handed over are removed, and its adapters forgotten."""
        try:
            for name in self._adapters.values():
                self._tell(*self.contract.forget(name))
        except ServerFailed:  # it is gone
            pass
        self._adapters = {}
        self.link.close()
        if self._loads:
            shutil.rmtree(self.place.folder, ignore_errors=True)
