"""The model that plays and learns: its files, its weights, one policy or one for each role, and the engine that speaks for them.

Always true: the engine speaks with the weights of the last `refresh`. Policies of roles share the model and nothing that learns.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from counterpoint.errors import InputError, Refused
from counterpoint.lab.lm.adapter import Adapter, PolicyWeights, adapted
from counterpoint.lab.lm.chat import Chat
from counterpoint.lab.lm.conversion import ready_folder, write_folder
from counterpoint.lab.lm.engine import Engine, Engines, Stats
from counterpoint.lab.lm.model import Message
from counterpoint.lab.lm.network import Network, Shape, Weights
from counterpoint.lab.lm.served.engine import OWN, ModelPlace, ServedEngine, server_of
from counterpoint.lab.lm.tensor_files import read_folder
from counterpoint.lab.lm.weights import find, lasting_name
from counterpoint.lab.train.lm.driver import Answers
from counterpoint.lab.train.lm.learner import LanguageLearner, Options
from counterpoint.lab.train.lm.memory import count_weights
from counterpoint.lab.train.lm.server_check import check_server
from counterpoint.lab.train.lm.settings import LanguageSettings

if TYPE_CHECKING:
    from counterpoint.lab.train.lm.ranks import Ranks

SHARED = "shared"
"""The name of the one policy where roles have none of their own."""
_CONTEXT = 4096
_TRIED = "Tell me a story."
"""What a server is asked before it plays."""
_BYTES_PER_WEIGHT = {"": 22, "shared": 8, "role": 8}
"""float32 weights, gradients and two moments, and the engine's copy; without gradients of what does not learn."""


@dataclass(frozen=True)
class ModelFiles:
    """A model's folder, read."""

    name: str
    folder: Path
    digest: str
    shape: Shape
    weights: Weights
    """float32, on the device."""
    chat: Chat


def check_device(device: str) -> torch.device:
    """The device; one that is not there is one clear error."""
    kind = device.partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise InputError(f"no device {device!r}", fix="cpu or cuda")
    if kind == "cuda" and not torch.cuda.is_available():
        fix = "--set device=cpu for a tiny model, or a machine with an NVIDIA GPU"
        raise Refused("no GPU: the device is 'cuda'", fix=fix)
    return torch.device(device)


def check_memory(shape: Shape, adapters: str, device: torch.device, cards: int = 1) -> None:
    """Refuse a model that cannot fit while it learns on so many cards, and say what would."""
    if device.type != "cuda":
        return
    free, _ = torch.cuda.mem_get_info(device)
    # of several cards the engine's copy is on one, and an adapter's base is as narrow as the engine's
    each = _BYTES_PER_WEIGHT[adapters] if cards == 1 else 2 + (2 if adapters else 20) / cards
    need = count_weights(shape) * each
    if need > 0.8 * free:
        fits = 0.8 * free / each
        fix = f"a model of up to {fits / 1e9:.2g} billion weights" + ("" if adapters else ", or --set adapters=shared")
        raise Refused(f"{need / 2**30:.0f} GiB are needed and {free / 2**30:.0f} are free", where=str(device), fix=fix)


class TeamEngine(Answers, Protocol):
    """What speaks for the policies of a run: engines of this process, or a server."""

    @property
    def stats(self) -> Stats:
        """What it has done so far."""

    def load(self, policies: Mapping[str, PolicyWeights]) -> None:
        """Speak with these weights from now on."""

    def close(self) -> None:
        """Let go of it."""


class Policies:
    """What learns, and what speaks."""

    def __init__(
        self, settings: LanguageSettings, files: ModelFiles, roles: Sequence[str], ranks: Ranks | None = None,
        run: Path | None = None,
    ) -> None:  # fmt: skip
        """`ranks`: processes that learn together, of which this is the first; the weights are then on the CPU, and given away.
        `run`: the folder of the run, in which weights are handed over to a server."""
        self.settings, self.files, self.is_sharded = settings, files, ranks is not None
        self.device = next(iter(files.weights.values())).device if ranks is None else check_device(settings.device)
        self.is_gpu = self.device.type == "cuda"
        self.names = tuple(roles) if settings.adapters == "role" else (SHARED,)
        self.network = learning_network(settings, files.shape, self.device)
        self.context = min(files.shape.context, settings.context or _CONTEXT)
        if ranks is not None:
            if server_of(settings.engine) is not None:
                what = "learners on several cards hand no weights over to a server yet"
                raise Refused(what, where="engine", fix=f"--set engine={OWN}, or one process")
            ranks.begin(settings, files.shape, self.names)
        self.learners = {name: learner_of(settings, self.network, files.weights, name, ranks) for name in self.names}
        self.engines: TeamEngine = self._engines(run)
        if ranks is not None:
            files.weights.clear()
        self._agrees = False
        """Whether a server was seen to speak with the learners' weights."""
        self.at_rest: Callable[[Callable[[Any], None]], None] = lambda work: work(self.engines)
        """Has the engines worked on when no call is under way; where a thread answers calls, in that thread."""

    def _engines(self, run: Path | None) -> TeamEngine:
        settings, files, server = self.settings, self.files, server_of(self.settings.engine)
        if server is None:
            share, device = len(self.names), self.device
            return Engines({name: engine_of(settings, files, share=share, device=device) for name in self.names})
        if run is None:
            raise InputError(f"the engine {settings.engine} needs the folder of a run", fix="the engine of this process")
        kind = str(self.network.dtype).removeprefix("torch.")
        place = ModelPlace(files.shape, files.folder, run / "engine", kind)
        return ServedEngine(*server, place, ends=_ends(files), context=self.context, slots=settings.slots)

    def close(self) -> None:
        """Let go of the engine."""
        self.engines.close()

    def policy_of(self, role: str | None) -> str:
        """Whose rows a role's calls are."""
        return role if role in self.names else self.names[0]

    def speaks_for(self) -> dict[str, str]:
        """Role to policy, for rollouts."""
        return {name: name for name in self.names} if self.settings.adapters == "role" else {}

    def refresh(self) -> None:
        """The engines speak with the learners' weights from now on."""
        if isinstance(self.engines, ServedEngine) and not self._agrees:
            prompt = self.files.chat.prompt([Message("user", _TRIED)])
            check_server(self.engines, self.learners, prompt, self.settings.learn.temperature)
            self._agrees = True
            return
        policies = {name: learner.voice() for name, learner in self.learners.items()}
        self.at_rest(lambda engines: engines.load(policies))

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """With the running means in place of the newest weights, where means are kept."""
        for learner in self.learners.values():
            learner.swap()
        try:
            yield
        finally:
            for learner in self.learners.values():
                learner.swap()

    def snapshot(self) -> dict[str, Weights]:
        """The weights as they are now, to be kept."""
        return {name: learner.snapshot() for name, learner in self.learners.items()}

    # -- files -------------------------------------------------------------------------------------------------------

    def export(self, run: Path) -> None:
        """What `local:RUN` reads: a transformers folder, or adapters and the name of their model; written whole or not at all."""
        if not self.settings.adapters:
            (learner,) = self.learners.values()
            weights, kind = {n: w.detach() for n, w in learner.now().items()}, str(self.network.dtype).removeprefix("torch.")
            write_folder(self.files.folder, self.files.shape, weights, run / "model", kind=kind)
            return
        names: dict[str, str] = {}
        for name, learner in self.learners.items():
            file = "adapter.safetensors" if len(self.names) == 1 else f"adapter-{name}.safetensors"
            learner.whole_adapter().save(run / file, base=self.files.digest)
            names[name] = file
        base = lasting_name(self.settings.model)
        about = {"base": base, "base_weights": find(base).weights_digest(), "rank": self.settings.rank}
        draft = run / ".model.json.tmp"
        draft.write_text(json.dumps(about | {"adapters": names}, indent=1) + "\n")
        os.replace(draft, run / "model.json")


def _dtype(device: torch.device) -> torch.dtype:
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def learning_network(settings: LanguageSettings, shape: Shape, device: torch.device) -> Network:
    """What learners compute with."""
    kind, is_gpu = _dtype(device), device.type == "cuda"
    return Network(shape, device=device, dtype=kind, is_compiled=is_gpu, is_recomputed=settings.learn.recompute)


def learner_of(
    settings: LanguageSettings, network: Network, weights: Weights, name: str, ranks: Ranks | None = None
) -> LanguageLearner:
    """The learner of a policy, on one device or on those of `ranks`."""
    options = Options(tokens=settings.tokens or (65_536 if network.device.type == "cuda" else 8192))
    adapter = None
    if settings.adapters:
        seed = zlib.crc32(f"{settings.seed} {name}".encode())
        adapter = Adapter.new(network.shape, weights, rank=settings.rank, seed=seed)
    if ranks is None:
        return LanguageLearner(network, weights, options, adapter)
    from counterpoint.lab.train.lm.sharded import ShardedLearner

    return ShardedLearner(network, weights, options, adapter, ranks=ranks, name=name)


def _ends(files: ModelFiles) -> list[int]:
    """Tokens that end an answer: an answer is one line."""
    return sorted(i for i in {*files.chat.ends, *files.chat.lines} if i < files.shape.vocabulary)


def engine_of(settings: LanguageSettings, files: ModelFiles, *, share: int = 1, device: torch.device | None = None) -> Engine:
    """An engine that speaks with a copy of the model's weights; `share` engines divide the device, which is theirs or another."""
    chat, shape = files.chat, files.shape
    device = device or next(iter(files.weights.values())).device
    spaces = np.zeros(shape.vocabulary, bool)
    spaces[: min(chat.size, shape.vocabulary)] = chat.after_space[: shape.vocabulary]
    ends = _ends(files)
    fits = replace(shape, context=min(shape.context, settings.context or _CONTEXT))
    network = Network(fits, device=device, dtype=_dtype(device))
    weights = {n: w.detach().to(device, network.dtype, copy=True) for n, w in files.weights.items()}
    if device.type != "cuda":
        return Engine(network, weights, ends=ends, after_space=spaces, slots=settings.slots or 64)
    from counterpoint.lab.lm.cuda import CudaEngine

    most = max(mix.most for mix in settings.task)
    slots = settings.slots or max(64, 768 // share)
    return CudaEngine(network, weights, ends=ends, after_space=spaces, slots=slots, most=most, room=1024)


def read_model(spec: str, device: torch.device) -> ModelFiles:
    """A model by name, folder or file."""
    source = find(spec)
    if len(source.policies) > 1:
        what = f"this run trained {len(source.policies)} policies: {', '.join(source.policies)}"
        raise InputError(what, where=source.name, fix="begin with one: counterpoint models export RUN FOLDER --policy NAME")
    folder = ready_folder(source)
    chat, shape, weights = read_folder(folder, source.name, device=str(device))
    weights = adapted(weights, source.adapters(source.policies[0]), source.name)
    return ModelFiles(source.name, folder, source.digest(), shape, weights, chat)
