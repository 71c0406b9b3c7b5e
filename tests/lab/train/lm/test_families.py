"""Every family of models as it learns: log-probabilities and gradients of a forest of calls are those of transformers."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if find_spec("transformers") is None:
    pytest.skip("needs the llm extra", allow_module_level=True)

from counterpoint.lab.lm.network import Network, as_transformers, read  # noqa: E402
from counterpoint.lab.train.lm.learner import CallTokens, LanguageLearner, Options  # noqa: E402
from counterpoint.lab.train.lm.packing import Squares, forest_rows, long_row  # noqa: E402
from families_help import FAMILIES, WIDE, made  # noqa: E402


@pytest.fixture(scope="module", params=list(FAMILIES))
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    return made(request.param, tmp_path_factory.mktemp(request.param))


def calls_of() -> list[CallTokens]:
    """Two agents whose prompts grow, and one who asks once."""
    rng, out = np.random.default_rng(4), []
    for name, count in (("a", 3), ("b", 1), ("c", 2)):
        seen = np.array([7, *rng.integers(3, 90, 69)])
        for k in range(count):
            said = rng.integers(3, 90, 1 + k)
            out.append(CallTokens(f"{name} e{k}", np.concatenate([seen, rng.integers(3, 90, 3)]), said))
            seen = np.concatenate([seen, said, rng.integers(3, 90, 5)])
    return out


def logps_of(model: Any, call: CallTokens) -> Any:
    """Of each token that was said, as transformers tells it."""
    ids = torch.tensor([[*call.prompt, *call.said]])
    rows = model(input_ids=ids).logits[0, len(call.prompt) - 1 : -1].float().log_softmax(-1)
    return rows.gather(1, ids[0, len(call.prompt) :, None])[:, 0]


def test_the_learner_has_the_log_probabilities_and_gradients_of_transformers(family: tuple[Any, Path]) -> None:
    model, folder = family
    calls = calls_of()
    shape, weights = read(folder)
    learner = LanguageLearner(Network(shape), weights, Options(tokens=4096))
    wanted = [logps_of(model, call) for call in calls]
    for got, one in zip(learner.logps(calls), wanted, strict=True):
        assert got == pytest.approx(one.tolist(), abs=2e-4)
    batches = list(learner._batches(calls))
    assert any(len(row.calls) > 1 for batch in batches for row in batch), "beginnings are shared"
    loss = sum(learner._token_logps(weights, learner._row(batch)).sum() for batch in batches)
    grads = as_transformers(shape, dict(zip(weights, torch.autograd.grad(loss, list(weights.values())), strict=True)))
    model.zero_grad()
    sum(one.sum() for one in wanted).backward()
    for name, weight in model.named_parameters():
        assert torch.allclose(grads[name], weight.grad, rtol=1e-3, atol=1e-3 * float(weight.grad.abs().max())), name


@pytest.mark.parametrize("name", WIDE)
def test_a_long_row_is_as_squares(name: str, tmp_path: Path) -> None:
    """What learns on a GPU, by its forward pass: FlexAttention has no gradients on a CPU."""
    shape, weights = read(made(name, tmp_path)[1])
    (row,) = forest_rows([(call.prompt, call.said) for call in calls_of()], 256)
    long, squares, network = long_row(row, 256, "cpu"), Squares([row]), Network(shape)
    ids = torch.as_tensor(np.concatenate([row.ids, np.zeros(256 - len(row), np.int64)]))
    with torch.no_grad():
        got = network.hidden_states(weights, ids, long.positions, long)[: len(row)]
        wanted = network.hidden_states(weights, ids[: len(row)], squares.positions, squares)
    assert torch.allclose(got, wanted, rtol=0, atol=1e-4 * float(wanted.abs().max()))
