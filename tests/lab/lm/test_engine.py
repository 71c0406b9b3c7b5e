"""The engine against transformers: the same tokens and log-probabilities, whoever else is being served."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if find_spec("transformers") is None:
    pytest.skip("needs the llm extra", allow_module_level=True)

from counterpoint.errors import InputError  # noqa: E402
from counterpoint.lab.lm.engine import Ask, Engine, TooLong  # noqa: E402
from counterpoint.lab.lm.network import Network, Packed, as_transformers, read  # noqa: E402
from counterpoint.lab.lm.sampling import END, FREE, SPACE, Start  # noqa: E402
from families_help import FAMILIES, SIZES, made  # noqa: E402

ENDS = (96,)


@pytest.fixture(scope="module", params=list(FAMILIES))
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    return made(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    return made("llama", tmp_path_factory.mktemp("one"))


def engine_of(folder: Path, **options: Any) -> Engine:
    shape, weights = read(folder)
    return Engine(Network(shape), weights, ends=ENDS, **options)


def prompt(seed: int, length: int) -> list[int]:
    return [int(x) for x in np.random.default_rng(seed).integers(0, 90, length)]


def expected_greedy(model: Any, ids: list[int], most: int) -> tuple[list[int], list[float]]:
    out, logps = list(ids), []
    for _ in range(most):
        with torch.no_grad():
            row = model(input_ids=torch.tensor([out])).logits[0, -1].float().log_softmax(-1)
        out.append(int(row.argmax()))
        logps.append(float(row[out[-1]]))
        if out[-1] in ENDS:
            break
    return out[len(ids) :], logps


def test_the_network_gives_the_logits_of_transformers(family: tuple[Any, Path]) -> None:
    model, folder = family
    shape, weights = read(folder)
    network, sequences = Network(shape), [prompt(i, n) for i, n in enumerate((5, 11, 1, 30))]
    packed = Packed([len(s) for s in sequences])
    got = network.logits(weights, network.hidden_states(weights, torch.tensor([i for s in sequences for i in s]), packed.positions, packed))
    with torch.no_grad():
        want = torch.cat([model(input_ids=torch.tensor([s])).logits[0] for s in sequences])
    assert torch.allclose(got, want, rtol=0, atol=1e-4 * float(want.abs().max()))


def test_weights_go_back_as_they_came(family: tuple[Any, Path]) -> None:
    model, folder = family
    back, own = as_transformers(*read(folder)), model.state_dict()
    assert set(own) - set(back) <= {"lm_head.weight"}
    assert all(torch.equal(back[name], own[name]) for name in back)


def test_greedy_tokens_and_log_probabilities_are_those_of_transformers(family: tuple[Any, Path]) -> None:
    model, folder = family
    asks = [Ask(prompt=prompt(i, 3 + 7 * i), most=9, temperature=0) for i in range(5)]
    for ask, answer in zip(asks, engine_of(folder, slots=3).run(asks), strict=True):
        tokens, logps = expected_greedy(model, list(ask.prompt), 9)
        assert list(answer.token_ids) == tokens
        assert answer.logps == pytest.approx(logps, abs=1e-4)


def test_what_a_slot_holds_is_gone_on_with_as_transformers_would(family: tuple[Any, Path]) -> None:
    model, folder = family
    engine, said = engine_of(folder, slots=2, reads=9), list[int]()
    for k, length in enumerate((35, 20, 3)):
        said += prompt(k, length)
        (answer,) = engine.run([Ask(prompt=said, most=4, temperature=0)])
        tokens, logps = expected_greedy(model, said, 4)
        assert list(answer.token_ids) == tokens
        assert answer.logps == pytest.approx(logps, abs=2e-4)
        assert (answer.reused > 0) == (k > 0)
        said += tokens


def test_who_else_is_served_changes_nothing(llama: tuple[Any, Path]) -> None:
    asks = [Ask(prompt=prompt(i, 4 + 5 * (i % 4)), most=4 + i, seed=i, temperature=0.7 + 0.1 * (i % 5)) for i in range(9)]
    narrow = engine_of(llama[1], slots=4, reads=7)
    together = narrow.run(asks)
    assert narrow.stats.read + narrow.stats.reused == sum(len(ask.prompt) for ask in asks)
    alone = [engine_of(llama[1], slots=1).run([ask])[0] for ask in asks]
    assert [a.token_ids for a in together] == [a.token_ids for a in alone]
    for a, b in zip(together, alone, strict=True):
        assert a.logps == pytest.approx(b.logps, abs=1e-4)


def test_draws_follow_the_distribution_and_log_probabilities_are_its(llama: tuple[Any, Path]) -> None:
    ids = prompt(3, 8)
    answers = engine_of(llama[1], slots=64).run([Ask(prompt=ids, most=1, seed=i, temperature=1.5) for i in range(1500)])
    with torch.no_grad():
        logp = (llama[0](input_ids=torch.tensor([ids])).logits[0, -1].float() / 1.5).log_softmax(-1)
    for answer in answers[:20]:
        assert answer.logps[0] == pytest.approx(float(logp[answer.token_ids[0]]), abs=1e-4)
    counts = np.bincount([a.token_ids[0] for a in answers], minlength=97)
    p = logp.exp().numpy()
    error = np.sqrt(p * (1 - p) / len(answers)) + 1e-9
    assert (np.abs(counts / len(answers) - p) < 5 * error + 1e-3).all()


def test_a_conversation_is_not_read_again_and_is_answered_the_same(llama: tuple[Any, Path]) -> None:
    engine = engine_of(llama[1], slots=2)
    first = Ask(prompt=prompt(1, 40), most=6, seed=5)
    (said,) = engine.run([first])
    more = Ask(prompt=[*first.prompt, *said.token_ids, *prompt(2, 9)], most=6, seed=6)
    (again,) = engine.run([more])
    assert again.reused == len(first.prompt) + len(said.token_ids) - 1
    (fresh,) = engine_of(llama[1], slots=2).run([more])
    assert fresh.reused == 0
    assert again.token_ids == fresh.token_ids
    assert again.logps == pytest.approx(fresh.logps, abs=1e-4)


def test_who_begins_alike_shares_the_beginning_and_spoils_nothing(llama: tuple[Any, Path]) -> None:
    engine = engine_of(llama[1], slots=4)
    common = prompt(1, 35)
    asks = [Ask(prompt=[*common, *prompt(10 + i, 6)], most=5, seed=i) for i in range(3)]
    first = engine.run(asks[:1])
    others = engine.run(asks[1:])
    assert [a.reused for a in others] == [35, 35]
    on = Ask(prompt=[*asks[0].prompt, *first[0].token_ids, 3, 4], most=3, seed=9)
    assert engine.run([on])[0].reused == len(asks[0].prompt) + len(first[0].token_ids) - 1, "the first one's end was kept"
    fresh = [engine_of(llama[1]).run([a])[0].token_ids for a in asks]
    assert [a.token_ids for a in [*first, *others]] == fresh
    at_once = engine_of(llama[1], slots=4)
    assert [a.token_ids for a in at_once.run(asks)] == fresh
    assert (at_once.stats.reused, at_once.stats.read) == (70, 41 + 6 + 6), "those that come together read what they share once"
    in_pieces = engine_of(llama[1], slots=4, reads=50)
    assert [a.token_ids for a in in_pieces.run([Ask(prompt=prompt(99, 45), most=4), *asks])[1:]] == fresh
    assert in_pieces.stats.reused == 70


def test_starts_are_kept_to_and_log_probabilities_are_under_the_mask(llama: tuple[Any, Path]) -> None:
    model, folder = llama
    ids, starts = prompt(7, 10), [Start((5, 6)), Start((5, 7, 8), END), Start((9,), SPACE)]
    spaces = np.zeros(97, bool)
    spaces[[20, 21]] = True
    engine = engine_of(folder, slots=16, after_space=spaces)
    seen = set()
    for answer in engine.run([Ask(prompt=ids, most=5, seed=i, starts=starts, temperature=3.0) for i in range(60)]):
        tokens = answer.token_ids
        begun = next(s for s in starts if tokens[: len(s.ids)] == s.ids)
        seen.add(begun)
        if begun.then == END:
            assert (tokens, answer.finish) == (begun.ids, "stop")
        if begun.then == SPACE:
            assert tokens[1] in (20, 21)
        assert math.exp(answer.logps[0]) == pytest.approx(_under(model, ids, [5, 9], tokens[0]), abs=1e-4)
        if begun.ids[0] == 5:
            assert math.exp(answer.logps[1]) == pytest.approx(_under(model, [*ids, 5], [6, 7], tokens[1]), abs=1e-4)
        if begun.ids == (5, 7, 8):
            assert answer.logps[2] == pytest.approx(0.0, abs=1e-6)
    assert seen == set(starts)


def _under(model: Any, ids: list[int], allowed: list[int], token: int) -> float:
    with torch.no_grad():
        row = model(input_ids=torch.tensor([ids])).logits[0, -1].float()[allowed] / 3.0
    return float(row.softmax(-1)[allowed.index(token)])


def test_a_start_that_begins_another_is_free_from_its_end(llama: tuple[Any, Path]) -> None:
    answers = engine_of(llama[1], slots=8).run(
        [Ask(prompt=[1, 2], most=3, seed=i, starts=[Start((5,), FREE), Start((5, 6, 7), END)]) for i in range(30)]
    )
    assert all(a.token_ids[0] == 5 for a in answers)
    assert len({a.token_ids[1] for a in answers}) > 3


def test_a_line_break_ends_an_answer_that_is_one_line_but_not_within_a_start(llama: tuple[Any, Path]) -> None:
    lines, starts = (3, 20, 40, 60, 80), [Start((20, 5))]
    asks = [Ask(prompt=[1, 2, i], most=12, seed=i, starts=starts if i % 2 else ()) for i in range(20)]
    whole = engine_of(llama[1]).run(asks)
    cut = engine_of(llama[1], lines=lines).run([replace(ask, is_one_line=True) for ask in asks])
    for ask, a, b in zip(asks, whole, cut, strict=True):
        begin = 2 if ask.starts else 0
        at = next((k for k, token in enumerate(a.token_ids) if k >= begin and token in lines), None)
        assert b.token_ids == (a.token_ids if at is None else a.token_ids[: at + 1])
        assert b.finish == ("stop" if at is not None else a.finish)
    assert len({len(b.token_ids) for b in cut}) > 3


def test_a_start_is_written_to_its_end_whatever_the_limit(llama: tuple[Any, Path]) -> None:
    (answer,) = engine_of(llama[1]).run([Ask(prompt=[1], most=2, starts=[Start((5, 6, 7, 8))])])
    assert (answer.token_ids, answer.finish) == ((5, 6, 7, 8), "length")
    with pytest.raises(TooLong, match="125 tokens and the model reads 128"):
        engine_of(llama[1]).add(Ask(prompt=prompt(0, 125), starts=[Start((5, 6, 7, 8))]))


def test_a_call_can_be_ended_while_it_waits_or_writes(llama: tuple[Any, Path]) -> None:
    engine = engine_of(llama[1], slots=1)
    asks = [Ask(prompt=prompt(i, 20), most=9, seed=i) for i in range(3)]
    first, second, third = (engine.add(ask) for ask in asks)
    assert engine.cancel(second) is None
    engine.step()
    engine.step()
    so_far = tuple(engine.tokens_so_far(first))
    gone = engine.cancel(first)
    assert gone is not None
    assert len(so_far) == 2
    assert (gone.token_ids, engine.tokens_so_far(first), engine.cancel(first)) == (so_far, (), None)
    done = dict[int, Any]()
    while engine.is_busy:
        done |= dict(engine.step())
    assert list(done) == [third]
    assert done[third].token_ids == engine_of(llama[1]).run([asks[2]])[0].token_ids


def test_the_context_ends_an_answer(llama: tuple[Any, Path]) -> None:
    engine = engine_of(llama[1], slots=2)
    (answer,) = engine.run([Ask(prompt=prompt(0, 125), most=50, seed=1)])
    assert len(answer.token_ids) <= 3
    assert answer.finish == "length" or answer.token_ids[-1] in ENDS
    with pytest.raises(InputError, match="128 tokens and the model reads 128"):
        engine.add(Ask(prompt=prompt(0, 128)))
    with pytest.raises(InputError, match="empty prompt"):
        engine.add(Ask(prompt=[]))


def test_new_weights_forget_what_was_held(llama: tuple[Any, Path]) -> None:
    shape, weights = read(llama[1])
    other = {name: value * 1.1 for name, value in weights.items()}
    engine = Engine(Network(shape), {n: w.clone() for n, w in weights.items()}, ends=ENDS)
    ask = Ask(prompt=prompt(5, 40), most=5, seed=3)
    before = engine.run([ask])[0]
    engine.load(other)
    after = engine.run([ask])[0]
    assert after.reused == 0
    assert after.token_ids == Engine(Network(shape), other, ends=ENDS).run([ask])[0].token_ids
    engine.load(weights)
    assert engine.run([ask])[0] == before


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"model_type": "gpt2"}, "the model family 'gpt2' is not supported"),
        ({"model_type": "gemma3"}, "the model family 'gemma3' is not supported"),
        ({"model_type": "llama", "mlp_bias": True}, "models with mlp_bias are not supported"),
        ({"model_type": "llama", "partial_rotary_factor": 0.5}, "models with partial_rotary_factor are not supported"),
        ({"model_type": "gemma3_text", "use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ({"model_type": "qwen3", "layer_types": ["full_attention", "chunked_attention"]}, "chunked_attention are not supported"),
        ({"model_type": "gemma2", "hidden_activation": "relu"}, "the activation 'relu' is not supported"),
        ({"model_type": "llama", "rope_scaling": {"rope_type": "yarn"}}, "the position scaling 'yarn' is not supported"),
        ({"model_type": "llama", "hidden_act": "gelu"}, "the activation 'gelu' is not supported"),
    ],
)
def test_what_it_cannot_compute_is_refused(config: dict[str, Any], what: str) -> None:
    from counterpoint.lab.lm.network import Shape

    with pytest.raises(InputError, match=what):
        Shape.of({**SIZES, **config})


def test_a_folder_that_is_not_whole_is_refused(llama: tuple[Any, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config\.json cannot be read"):
        read(tmp_path)
    (tmp_path / "config.json").write_text((llama[1] / "config.json").read_text())
    with pytest.raises(InputError, match=r"lack model\.embed_tokens"):
        read(tmp_path)


def test_a_nucleus_holds_the_fewest_tokens_of_its_share_and_log_probabilities_are_under_it(llama: tuple[Any, Path]) -> None:
    model, folder = llama
    engine, ids = engine_of(folder, slots=8), prompt(3, 9)
    with torch.no_grad():
        logp = (model(input_ids=torch.tensor([ids])).logits[0, -1].float() / 2.0).log_softmax(-1)
    order = logp.argsort(descending=True).tolist()
    size = next(n for n in range(1, 97) if float(logp[order[:n]].exp().sum()) >= 0.6)
    assert 2 < size < 90
    kept = logp[order[:size]].log_softmax(-1).tolist()
    told = engine.run([Ask(prompt=ids, most=1, temperature=2.0, top_p=0.6, seed=s, alternatives=97) for s in range(400)])
    assert {a.token_ids[0] for a in told} == set(order[:size])
    for answer in told:
        assert answer.logps[0] == pytest.approx(kept[order.index(answer.token_ids[0])], abs=1e-4)
        assert [i for i, _ in answer.alternatives[0]] == order[:size]
        assert [v for _, v in answer.alternatives[0]] == pytest.approx(kept, abs=1e-4)
    (least,) = engine.run([Ask(prompt=ids, most=5, temperature=2.0, top_p=1e-9, seed=3)])
    assert list(least.token_ids) == expected_greedy(model, ids, 5)[0]


def test_alternatives_are_those_that_were_allowed_and_nobody_else_is_slowed_or_changed(llama: tuple[Any, Path]) -> None:
    engine = engine_of(llama[1], slots=8)
    plain = Ask(prompt=prompt(1, 12), most=6, seed=5)
    starts = (Start((5, 6), FREE), Start((5, 7), END), Start((9,), FREE))
    asks = [plain, replace(plain, alternatives=3), Ask(prompt=prompt(2, 7), most=4, seed=1, starts=starts, alternatives=4)]
    alone, named, held = engine.run(asks)
    assert (named.token_ids, alone.alternatives) == (alone.token_ids, ())
    assert named.logps == pytest.approx(alone.logps, abs=1e-5)
    assert [len(row) for row in named.alternatives] == [3] * len(named.token_ids)
    for logp, token, row in zip(named.logps, named.token_ids, named.alternatives, strict=True):
        assert [v for _, v in row] == sorted((v for _, v in row), reverse=True)
        assert dict(row).get(token, logp) == pytest.approx(logp, abs=1e-5)
    assert {i for i, _ in held.alternatives[0]} == {5, 9}
    assert sum(math.exp(v) for _, v in held.alternatives[0]) == pytest.approx(1.0, abs=1e-4)


def test_what_is_under_way_can_be_read_between_two_steps(llama: tuple[Any, Path]) -> None:
    engine = engine_of(llama[1], slots=2)
    tickets = [engine.add(Ask(prompt=prompt(s, 5), most=4, seed=s, alternatives=1)) for s in range(3)]
    seen: dict[int, list[int]] = {ticket: [] for ticket in tickets}
    answers = {}
    while engine.is_busy:
        answers |= dict(engine.step())
        assert len(engine.under_way()) <= 2
        for ticket, written in engine.under_way().items():
            assert list(written.token_ids)[: len(seen[ticket])] == seen[ticket]
            assert len(written.token_ids) == len(written.logps) == len(written.alternatives)
            seen[ticket] = list(written.token_ids)
    for ticket in tickets:
        assert seen[ticket] == list(answers[ticket].token_ids[: len(seen[ticket])])
        assert len(seen[ticket]) == len(answers[ticket].token_ids) - 1
