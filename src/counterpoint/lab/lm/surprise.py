"""How surprising texts are to a local model: the mean negative log-probability of their tokens.

Always true: the same weights and texts give the same numbers whatever stands beside a text; a text is judged by its first tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from counterpoint.lab.lm.chat import Chat
from counterpoint.lab.lm.conversion import ready_folder
from counterpoint.lab.lm.network import Network, Packed, read
from counterpoint.lab.lm.weights import find, require_extra

_TOKENS = 192
"""Tokens of a text that are read."""
_AT_ONCE = 8


def surprise_of(spec: str) -> Callable[[Sequence[str]], list[float]]:
    """The surprise of texts to the model of a name that `counterpoint models` lists, or of a folder; loaded at once."""
    source = find(spec)
    require_extra(gguf=source.is_gguf)
    import torch

    folder = ready_folder(source)
    chat = Chat.read(folder)
    shape, weights = read(folder, dtype=torch.float32)
    network = Network(shape)

    def batch(rows: list[list[int]]) -> list[float]:
        lengths = [len(row) for row in rows]
        attend = Packed(lengths)
        ids = torch.tensor([token for row in rows for token in row])
        with torch.inference_mode():
            logits = network.logits(weights, network.hidden_states(weights, ids, attend.positions, attend))
            logps = torch.log_softmax(logits[:-1], dim=-1).gather(1, ids[1:, None])[:, 0]
        out, start = [], 0
        for n in lengths:  # the first token of a text has nothing before it
            out.append(-float(logps[start : start + n - 1].mean()) if n > 1 else 0.0)
            start += n
        return out

    def surprise(texts: Sequence[str]) -> list[float]:
        rows = [chat.encode(text[: 8 * _TOKENS])[:_TOKENS] for text in texts]
        values = [0.0] * len(rows)
        able = [i for i, row in enumerate(rows) if len(row) > 1]
        for k in range(0, len(able), _AT_ONCE):
            some = able[k : k + _AT_ONCE]
            for i, value in zip(some, batch([rows[i] for i in some]), strict=True):
                values[i] = value
        return values

    return surprise
