"""A team that hands hidden states on: its events point at tensors, and it reads and writes fewer tokens than the same team in text."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterpoint.errors import InputError
from counterpoint.trace.check import problems
from tiny_help import make_tiny

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from counterpoint.lab.team.latent import LatentModel, LatentOptions, play_latent, play_text  # noqa: E402


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LatentModel:
    return LatentModel(make_tiny(tmp_path_factory.mktemp("tiny")))


def test_events_point_at_the_thoughts_and_tokens_fall(model: LatentModel, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    options = LatentOptions(steps=3, max_tokens=12)
    latent, text = play_latent(model, "the answer is", tmp_path, options), play_text(model, "the answer is", options)
    thinkers = [e for e in latent.events if e.content_ref and e.content_ref.startswith("tensor:")]
    assert [e.agent for e in thinkers] == ["planner", "critic", "refiner"]
    for event in thinkers:
        kept = load_file(tmp_path / f"{event.content_ref.removeprefix('tensor:')}.safetensors")["thoughts"]  # type: ignore[union-attr]
        assert list(kept.shape) == event.extra["shape"] == [3, 32]  # type: ignore[index]
        assert kept.norm(dim=1) == pytest.approx([float(model.length)] * 3, rel=1e-4)
    assert latent.costs["tokens"] < text.costs["tokens"]
    assert [len(t.events) for t in (latent, text)] == [5, 5]
    for trace in (latent, text):
        assert not [p for p in problems(trace) if p.severity == "error"]
    assert play_latent(model, "the answer is", tmp_path, options) == latent


def test_thoughts_are_what_the_next_agent_reads(model: LatentModel) -> None:
    ids = model.ids("the answer is 42")
    hidden, _, memory = model.read(ids, None)
    thoughts, memory = model.think(hidden, memory, 2)
    _, after, _ = model.read(model.ids(" worker"), memory)
    _, _, plain = model.read(ids, None)
    _, without, _ = model.read(model.ids(" worker"), plain)
    assert not torch.allclose(after, without)
    words = model.model.get_input_embeddings().weight
    given = torch.cat([words[ids[0]], thoughts, words[model.ids(" worker")[0]]])[None]
    with torch.no_grad():  # the same in one pass over embeddings, without a memory
        whole = model.model(inputs_embeds=given).logits[0, -1]
    assert torch.allclose(after, whole, atol=1e-4)


def test_tables_that_are_one_align_to_themselves(model: LatentModel) -> None:
    assert torch.allclose(model.align, torch.eye(32), atol=1e-2)
    with pytest.raises(InputError, match="at least one role"):
        LatentOptions(steps=0)
