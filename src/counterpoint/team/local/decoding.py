"""From logits to a completion: a start chosen among those allowed, then one token at a time until something ends it.

A call with `starts` is choose-then-continue, and exact. With the canonical tokens t_1 .. t_k of start s,

    score(s) = sum_j log p(t_j | prompt, t_1 .. t_(j-1)),     P(s) = exp(score(s)) / sum_s' exp(score(s'))

where p is the model's distribution at the call's temperature. One start is drawn from P, then text follows freely. A start that
ends with a single space before free text is scored without it, and the first free token is one of those that begin with a
space: tokenisers write ` Paris`, not ` ` and `Paris`.

Always true: a completion begins with one of its starts, letter by letter; the log-probabilities of the starts' exponentials sum
to 1; those of a start's own tokens sum to that start's; noise is keyed by the call's seed and by position or by the start's
text, never by who else is being served. At temperature 0 the most likely is taken, and log-probabilities are those at
temperature 1.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from counterpoint.team.model import Call, Completion, ModelFailed

_NODES = 256
"""Tokens of starts that are scored in one pass: their logits are what costs memory."""


class Vocabulary:
    """What a tokeniser can spell."""

    def __init__(self, tokenizer: Any, ends: Sequence[int], size: int) -> None:
        self._tokenizer = tokenizer
        self.ends = frozenset(ends)
        self.size = size
        self._spelled: dict[str, tuple[int, ...]] = {}
        self._after_space: np.ndarray | None = None

    def text(self, ids: Sequence[int]) -> str:
        """The text of tokens; those that only steer the model have none."""
        text = self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert isinstance(text, str)
        return text

    def spell(self, text: str) -> tuple[int, ...]:
        """The canonical tokens of a start."""
        if text not in self._spelled:
            ids = tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])
            if not ids or self.text(ids) != text:
                raise ModelFailed("refused", f"the model's tokeniser cannot spell the start {text!r}", fix="use another model")
            self._spelled[text] = ids
        return self._spelled[text]

    def after_space(self) -> np.ndarray:
        """Which tokens begin with a space, bool [vocabulary]; found once."""
        if self._after_space is None:
            anchor = list(self._tokenizer("a", add_special_tokens=False)["input_ids"])
            head, known = self.text(anchor), len(self._tokenizer)
            allowed = np.zeros(self.size, dtype=bool)
            for i in range(min(self.size, known)):
                allowed[i] = self.text([*anchor, i]).startswith(head + " ")
            self._after_space = allowed
        return self._after_space


@dataclass
class StartTree:
    """Some of the starts as a tree of tokens, without the last token of each: what must be read to score them all."""

    starts: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    """Of each node; -1 for one right after the prompt."""
    paths: dict[int, list[int]] = field(default_factory=dict)
    """Of each start, the nodes of its tokens but the last."""

    def depth(self, node: int) -> int:
        """How many nodes stand above a node."""
        return 0 if self.parents[node] < 0 else 1 + self.depth(self.parents[node])

    def local(self, before: int) -> Any:
        """Who sees whom among `before` tokens of the prompt and the nodes: the prompt, and the nodes above."""
        import torch

        seen = torch.ones(before + len(self.ids), before + len(self.ids), dtype=torch.bool).tril()
        seen[before:, before:] = False
        for node, parent in enumerate(self.parents):
            row = before + node
            if parent >= 0:
                seen[row, before:] = seen[before + parent, before:]
            seen[row, row] = True
        return seen


def trees(spelled: Sequence[tuple[int, ...]], limit: int = _NODES) -> list[StartTree]:
    """The starts as trees of at most `limit` nodes each (one more start may pass it, never two)."""
    made = [StartTree()]
    known: dict[tuple[int, ...], int] = {}
    for index, ids in enumerate(spelled):
        if len(made[-1].ids) >= limit and len(ids) > 1:
            made.append(StartTree())
            known = {}
        # A start of one token needs the prompt's logits alone, which come with the first tree.
        tree = made[-1] if len(ids) > 1 else made[0]
        path: list[int] = []
        for end in range(1, len(ids)):
            prefix = ids[:end]
            if prefix not in known:
                known[prefix] = len(tree.ids)
                tree.ids.append(ids[end - 1])
                tree.parents.append(path[-1] if path else -1)
            path.append(known[prefix])
        tree.starts.append(index)
        tree.paths[index] = path
    return made


class Writing:
    """One completion in the making."""

    def __init__(self, call: Call, prompt: Sequence[int], vocabulary: Vocabulary, limit: int) -> None:
        self.call, self.prompt, self.vocabulary = call, tuple(prompt), vocabulary
        self.limit = limit
        """The most tokens it may have, where its start does not need more."""
        self.tokens: list[int] = []
        self.logps: list[float] = []
        self.start = ""
        self.start_logps: tuple[float, ...] | None = None
        self.finish: str | None = None
        """How it ended; None while it goes on."""
        self._text = ""
        self._begun, self._is_cut = 0, False
        self._rng = np.random.Generator(np.random.PCG64(call.seed & (2**128 - 1)))
        others = set(call.starts)
        self._cut = [len(s) > 1 and s[-1] == " " and not s[-2].isspace() and s[:-1] not in others for s in call.starts]
        self.spelled = [vocabulary.spell(s[:-1] if cut else s) for s, cut in zip(call.starts, self._cut, strict=True)]
        self._scores: list[float] = [0.0] * len(call.starts)
        self._roots: np.ndarray | None = None

    # -- the start -------------------------------------------------------------------------------------------------------

    def score(self, tree: StartTree, logits: Any, *, with_root: bool) -> None:
        """Take the logits of a tree's nodes, after those of the prompt's last token where they come with it."""
        logp = _log_softmax(logits, self.call.temperature)
        if with_root:
            self._roots, logp = logp[0], logp[1:]
        assert self._roots is not None
        for index in tree.starts:
            rows = [self._roots, *(logp[node] for node in tree.paths[index])]
            self._scores[index] = float(sum(float(row[i]) for row, i in zip(rows, self.spelled[index], strict=True)))

    def choose(self) -> tuple[int, ...]:
        """Draw the start when all are scored; gives its tokens."""
        scores = np.array(self._scores)
        if not np.isfinite(scores).all():
            raise _no_numbers()
        logps = scores - _logsumexp(scores)
        noise = [_noise(self.call.seed, text) for text in self.call.starts] if self.call.temperature > 0 else 0.0
        chosen = int(np.argmax(logps + noise))
        self.start, self.start_logps = self.call.starts[chosen], tuple(float(x) for x in logps)
        ids = self.spelled[chosen]
        mass = [0.0, *(self._mass(logps, ids[:end]) for end in range(1, len(ids))), float(logps[chosen])]
        self.tokens, self.logps = list(ids), [after - before for before, after in pairwise(mass)]
        self._begun, self._is_cut = len(ids), self._cut[chosen]
        self._text = self.start
        if self.start.endswith("\n"):
            self.finish = "stop"
        elif len(ids) >= self.limit:
            self.finish = "length"
        return ids

    def _mass(self, logps: np.ndarray, prefix: tuple[int, ...]) -> float:
        return _logsumexp(logps[[ids[: len(prefix)] == prefix for ids in self.spelled]])

    # -- free text -------------------------------------------------------------------------------------------------------

    def take(self, logits: Any) -> int:
        """Draw the next token from its logits [vocabulary]; gives it."""
        row = logits
        if self._is_cut and len(self.tokens) == self._begun:
            row = np.where(self.vocabulary.after_space(), row, np.float32(-np.inf))
        logp = _log_softmax(row[None, :], self.call.temperature)[0]
        token = draw(logp, self._rng) if self.call.temperature > 0 else int(np.argmax(logp))
        if not math.isfinite(logp[token]):
            raise _no_numbers()
        self.tokens.append(token)
        self.logps.append(float(logp[token]))
        self._end(token)
        return token

    def _end(self, token: int) -> None:
        """See whether the newest token ends it."""
        tail = self._tail()
        found = [at for stop in self.call.stop if stop and (at := tail.find(stop)) >= 0]
        if found:
            self._text, self.finish = self.start + tail[: min(found)], "stop"
            return
        self._text = self.start + tail
        if token in self.vocabulary.ends:
            self.finish = "stop"
        elif len(self.tokens) >= self.limit:
            self.finish = "length"

    def _tail(self) -> str:
        whole = self.vocabulary.text(self.tokens)
        if whole.startswith(self.start):
            return whole[len(self.start) :]
        return self.vocabulary.text(self.tokens[self._begun :])

    def completion(self, extra: dict[str, Any]) -> Completion:
        """What was written."""
        return Completion(
            text=self._text,
            tokens_in=len(self.prompt),
            tokens_out=len(self.tokens),
            token_ids=tuple(self.tokens),
            prompt_ids=self.prompt,
            logps=tuple(self.logps),
            start_logps=self.start_logps,
            finish="length" if self.finish == "length" else "stop",
            extra=extra,
        )


def draw(logp: np.ndarray, rng: np.random.Generator) -> int:
    """A draw from exp(logp): the first of exponential clocks that ring at these rates. Small changes of them seldom change it.

    The clocks are in double precision: in single, one of fifty thousand rings at time 0 in every few hundred draws.
    """
    return int(np.argmax(logp - np.log(rng.standard_exponential(len(logp)))))


def _no_numbers() -> ModelFailed:
    return ModelFailed("malformed", "the model gives no numbers", fix="the weights may be damaged: counterpoint models show NAME")


def _log_softmax(logits: Any, temperature: float) -> np.ndarray:
    """log p of each row at a temperature; 0 stands for the most likely and is reported at 1."""
    import torch

    rows = torch.as_tensor(logits, dtype=torch.float32)
    return np.asarray(torch.log_softmax(rows / temperature if temperature > 0 else rows, dim=-1).numpy())


def _logsumexp(values: np.ndarray) -> float:
    top = float(values.max())
    return top + math.log(float(np.exp(values - top).sum()))


def _noise(seed: int, text: str) -> float:
    """Gumbel noise of a start: a function of the call's seed and the start's text alone."""
    digest = hashlib.blake2b(f"{seed}\0{text}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    uniform = (int.from_bytes(digest, "big") + 0.5) / 2**64
    return -math.log(-math.log(uniform))
