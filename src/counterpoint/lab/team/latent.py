"""A team that thinks in hidden states: agents hand their latent thoughts on by the model's memory, and only the last one
writes.

    e_t = W h_t,   W = (O'O + r I)^-1 O'E,      scaled to the mean length of a word's embedding        m steps per agent

where h is the last hidden state, O the output table and E the input table. An agent reads its prompt on top of the memory
(keys and values of every layer) of those before it, thinks m steps without a word, and leaves the memory to the next.

Always true: one model plays every agent; nothing is sampled (the likeliest word is written). The trace has one message per
agent: its `content_ref` is `tensor:DIGEST`, the thoughts [m, width] in DIGEST.safetensors of the folder, and it counts no
written token. The same team in text (`play_text`) has the same roles and prompts, and each agent reads what those before it
wrote.

LatentMAS arXiv 2511.20639 (sequential form; nothing is trained). The scaling and the ridge r are ours.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterpoint.errors import InputError
from counterpoint.trace import Edge, Event, Trace, content_ref

if TYPE_CHECKING:
    from torch import Tensor

ROLES = (
    ("planner", "Plan how to answer the question."),
    ("critic", "Find what is wrong in the plan."),
    ("refiner", "Mend the plan."),
    ("solver", "Answer the question."),
)
_RIDGE = 1e-4


@dataclass(frozen=True, kw_only=True)
class LatentOptions:
    """How such a team thinks."""

    steps: int = 8
    """Latent thoughts of each agent but the last."""
    max_tokens: int = 64
    """Words of an answer, and in text of every agent's."""
    roles: tuple[tuple[str, str], ...] = ROLES
    """Names and instructions, in the order in which they act."""

    def __post_init__(self) -> None:
        if self.steps < 1 or self.max_tokens < 1 or not self.roles:
            raise InputError("a latent team has at least one role, one step and one word", fix="steps=8, max_tokens=64")


class LatentModel:
    """A transformers folder, read once."""

    def __init__(self, folder: Path | str) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(1)
        self.torch, self.name = torch, Path(folder).name
        self.words = AutoTokenizer.from_pretrained(str(folder))
        self.model = AutoModelForCausalLM.from_pretrained(str(folder), torch_dtype=torch.float32).eval()
        into, out = self.model.get_input_embeddings().weight.detach(), self.model.get_output_embeddings().weight.detach()
        square = out.T @ out
        ridge = _RIDGE * square.diagonal().mean() * torch.eye(square.shape[0])
        self.align = torch.linalg.solve(square + ridge, out.T @ into)
        self.length = into.norm(dim=1).mean()

    def ids(self, text: str) -> Tensor:
        """A text as tokens, [1, n]."""
        return self.torch.tensor([self.words.encode(text, add_special_tokens=False)])

    def read(self, ids: Tensor, memory: Any) -> tuple[Tensor, Tensor, Any]:
        """(last hidden state, logits after the last token, memory) after some tokens."""
        return self._step({"input_ids": ids}, memory)

    def _step(self, given: dict[str, Any], memory: Any) -> tuple[Tensor, Tensor, Any]:
        with self.torch.no_grad():
            out = self.model(**given, past_key_values=memory, use_cache=True, output_hidden_states=True)
        return out.hidden_states[-1][0, -1], out.logits[0, -1], out.past_key_values

    def think(self, hidden: Tensor, memory: Any, steps: int) -> tuple[Tensor, Any]:
        """(thoughts [steps, width], memory): every thought is read back in place of a word."""
        thoughts = []
        for _ in range(steps):
            thought = hidden @ self.align
            thought = thought * (self.length / thought.norm().clamp_min(1e-9))
            thoughts.append(thought)
            hidden, _, memory = self._step({"inputs_embeds": thought[None, None]}, memory)
        return self.torch.stack(thoughts), memory

    def write(self, logits: Tensor, memory: Any, most: int) -> tuple[str, int]:
        """(text, tokens) by the likeliest words."""
        written: list[int] = []
        ends = {self.words.eos_token_id, self.model.config.eos_token_id}
        while len(written) < most and (word := int(logits.argmax())) not in ends:
            written.append(word)
            _, logits, memory = self.read(self.torch.tensor([[word]]), memory)
        return str(self.words.decode(written)), len(written)


def _prompt(role: str, about: str, question: str, said: Sequence[tuple[str, str]] = ()) -> str:
    heard = "".join(f"{name}: {text}\n" for name, text in said)
    return f"{role}: {about}\nQuestion: {question}\n{heard}{role}:"


def _kept(folder: Path, thoughts: Tensor) -> str:
    """The thoughts in a file named by their digest."""
    from safetensors.torch import save_file

    digest = hashlib.sha256(thoughts.contiguous().numpy().tobytes()).hexdigest()[:32]
    folder.mkdir(parents=True, exist_ok=True)
    save_file({"thoughts": thoughts.contiguous()}, folder / f"{digest}.safetensors")
    return digest


class _Log:
    """The trace of one team, event by event."""

    def __init__(self, question: str) -> None:
        first = Event(id="e0", t=0, type="message", agent="user", role="user", content_ref=content_ref(question), source="user")
        self.events, self.edges, self.contents = [first], [], {content_ref(question): question}  # type: list[Event], list[Edge], dict[str, str]

    def add(self, role: str, kind: str, **fields: Any) -> None:
        number = len(self.events)
        event = Event(id=f"e{number}", t=number, type=kind, agent=role, role=role, turn=0, **fields)  # type: ignore[arg-type]
        self.edges.append(Edge(self.events[-1].id, event.id, "message"))
        self.events.append(event)

    def trace(self, name: str, question: str, **meta: Any) -> Trace:
        tokens = sum((e.tokens_in or 0) + (e.tokens_out or 0) for e in self.events)
        return Trace(
            trace_id=name, task_id=f"question-{content_ref(question)[-12:]}", events=self.events, edges=self.edges,
            contents=self.contents, costs={"tokens": tokens}, system="latent team", meta=meta,
        )  # fmt: skip


def play_latent(model: LatentModel, question: str, folder: Path, options: LatentOptions | None = None) -> Trace:
    """One team whose agents hand on their memory; tensors go to `folder`."""
    o, log, memory = options or LatentOptions(), _Log(question), None
    for k, (role, about) in enumerate(o.roles):
        ids = model.ids(_prompt(role, about, question))
        hidden, logits, memory = model.read(ids, memory)
        if k < len(o.roles) - 1:
            thoughts, memory = model.think(hidden, memory, o.steps)
            where = {"latent_steps": o.steps, "shape": list(thoughts.shape)}
            ref = f"tensor:{_kept(folder, thoughts)}"
            log.add(role, "message", to=o.roles[k + 1][0], content_ref=ref, tokens_in=ids.shape[1], tokens_out=0, extra=where)
    return _answered(model, log, logits, memory, ids.shape[1], o, question, "latent")


def play_text(model: LatentModel, question: str, options: LatentOptions | None = None) -> Trace:
    """The same team in text: everybody writes, and reads what was written before."""
    o, log, said = options or LatentOptions(), _Log(question), []  # type: LatentOptions, _Log, list[tuple[str, str]]
    for k, (role, about) in enumerate(o.roles):
        ids = model.ids(_prompt(role, about, question, said))
        _, logits, memory = model.read(ids, None)
        if k < len(o.roles) - 1:
            text, written = model.write(logits, memory, o.max_tokens)
            said.append((role, text))
            log.contents[content_ref(text)] = text
            to = o.roles[k + 1][0]
            log.add(role, "message", to=to, content_ref=content_ref(text), tokens_in=ids.shape[1], tokens_out=written)
    return _answered(model, log, logits, memory, ids.shape[1], o, question, "text")


def _answered(
    model: LatentModel, log: _Log, logits: Tensor, memory: Any, read: int, o: LatentOptions, question: str, kind: str
) -> Trace:
    text, written = model.write(logits, memory, o.max_tokens)
    log.contents[content_ref(text)] = text
    log.add(o.roles[-1][0], "message", to="user", content_ref=content_ref(text), tokens_in=read, tokens_out=written)
    name = f"{kind}-{hashlib.sha256(question.encode()).hexdigest()[:8]}"
    return log.trace(name, question, model=model.name, handover=kind, steps=o.steps if kind == "latent" else 0)
