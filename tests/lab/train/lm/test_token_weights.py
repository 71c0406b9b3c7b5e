"""What a token weighs, by hand and by its law; and which presets weigh how."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

from counterpoint import registry
from counterpoint.errors import InputError, Refused
from counterpoint.lab.train.lm.methods import language_preset, with_preset
from counterpoint.lab.train.lm.token_weights import WEIGHTS, CallPlace, token_weights
from counterpoint.lab.train.preset import Preset
from counterpoint.trace import Event, Trace

# rollout a: its lead says 10 and 20 tokens, a worker 5; rollout b: its lead says 5
CALLS = [CallPlace("a", "lead", 10), CallPlace("a", "lead", 20), CallPlace("a", "w", 5), CallPlace("b", "lead", 5)]


@pytest.mark.parametrize(
    ("weigh", "wanted"),
    [
        ("token", [1 / 40] * 4),
        ("rollout", [1 / 70, 1 / 70, 1 / 70, 1 / 10]),
        ("agent", [1 / 120, 1 / 120, 1 / 20, 1 / 10]),
        ("turn", [1 / 60, 1 / 120, 1 / 30, 1 / 10]),
    ],
)
def test_weights_by_hand(weigh: str, wanted: list[float]) -> None:
    assert token_weights(weigh, CALLS) == pytest.approx(wanted)
    assert token_weights(weigh, [*reversed(CALLS)]) == pytest.approx(wanted[::-1])
    with pytest.raises(InputError, match="no weights by 'word'"):
        token_weights("word", CALLS)


@given(st.sampled_from(WEIGHTS), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 40)), min_size=1, max_size=12))
def test_all_tokens_of_an_update_weigh_one_together(weigh: str, calls: list[tuple[int, int, int]]) -> None:
    places = [CallPlace(*c) for c in calls]
    weights = token_weights(weigh, places)
    assert sum(w * c.tokens for w, c in zip(weights, places, strict=True)) == pytest.approx(1)
    share: dict[Any, float] = {}
    for w, c in zip(weights, places, strict=True):
        share[c.rollout] = share.get(c.rollout, 0.0) + w * c.tokens
    if weigh != "token":
        assert list(share.values()) == pytest.approx([1 / len(share)] * len(share))


def test_weights_of_agents_are_those_of_the_mechanism() -> None:
    def spoken(name: str, *words: tuple[str, int], reward: float) -> Trace:
        events = [Event(id=f"e{i}", t=i, type="message", agent=a, role="worker", turn=i, tokens_out=n) for i, (a, n) in enumerate(words)]
        return Trace(trace_id=name, task_id="q", events=events, rewards={"team": reward})

    traces = [spoken("a", ("lead", 10), ("lead", 20), ("w", 5), reward=1.0), spoken("b", ("lead", 5), reward=0.0)]
    notes = registry.get("mechanism", "wideseek")(traces).notes["token_weights"]
    for call, weight in zip(CALLS, token_weights("agent", CALLS), strict=True):
        assert weight == pytest.approx(notes[call.rollout][call.agent] / 2)  # of two rollouts


def test_presets_weigh_as_their_sources_do() -> None:
    learn = {name: with_preset({}, name)["learn"] for name in ("grpo", "matpo", "agent_lightning", "wideseek_r1", "rema", "kimi_parl")}
    assert {name: x["weigh"] for name, x in learn.items()} == {
        "grpo": "token", "matpo": "token", "agent_lightning": "rollout", "wideseek_r1": "agent", "rema": "turn", "kimi_parl": "token",
    }  # fmt: skip
    assert learn["rema"]["log_max"] == 3.0


def test_a_loss_option_that_language_models_do_not_have_is_refused_and_not_dropped() -> None:
    about: dict[str, Any] = {"source": "a test", "grade": "M", "departures": "none", "credit": {"group_relative": {}}, "learns": ("lm",)}
    with pytest.raises(Refused, match="no loss option veto"):
        language_preset(Preset(loss={"clip": {"veto": 1e-4}}, **about), "mine")
