"""A tiny random model learns: by imitation, and by reward, through engine, rows, credit and update."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from counterpoint import registry  # noqa: E402
from counterpoint.credits.call_rows import call_rows  # noqa: E402
from counterpoint.errors import InputError, Refused  # noqa: E402
from counterpoint.lab.lm.adapter import Adapter  # noqa: E402
from counterpoint.lab.lm.engine import Ask, Engine  # noqa: E402
from counterpoint.lab.lm.network import Network, Packed, Rope, Shape, Weights  # noqa: E402
from counterpoint.lab.train.learner import NotFinite  # noqa: E402
from counterpoint.lab.train.lm.learner import CallTokens, LanguageLearner, Options, less_kl, sequences_of, with_old  # noqa: E402
from counterpoint.lab.train.lm.objective import Objective  # noqa: E402
from counterpoint.lab.train.lm.pairs import pairs_of  # noqa: E402
from counterpoint.trace import Event, Trace  # noqa: E402

SHAPE = Shape(layers=2, heads=2, kv_heads=1, head_width=8, width=16, inner=32, vocabulary=24, context=64, eps=1e-5, rope=Rope())
END, GOOD = 0, 7


def weights_of(seed: int = 0) -> Weights:
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    out = {"words": torch.randn(24, 16) * 0.4, "norm": torch.ones(16)}
    for i in range(SHAPE.layers):
        out |= {f"{i}.norm1": torch.ones(16), f"{i}.norm2": torch.ones(16), f"{i}.qkv": torch.randn(32, 16) * 0.2}
        out |= {
            f"{i}.o": torch.randn(16, 16) * 0.2,
            f"{i}.gate_up": torch.randn(64, 16) * 0.2,
            f"{i}.down": torch.randn(16, 32) * 0.2,
        }
    return out


def said(name: str, prompt: list[int], answer: list[int], **more: Any) -> CallTokens:
    return CallTokens(name, np.array(prompt), np.array(answer), **more)


def test_log_probabilities_are_the_networks() -> None:
    network, weights = Network(SHAPE), weights_of()
    learner = LanguageLearner(network, weights, Options(tokens=16))
    given = [said("a", [1, 2, 3], [4, 5]), said("b", [6], [7, 8, 9, 0]), said("c", [1] * 12, [2])]
    for one, got in zip(given, learner.logps(given), strict=True):
        ids = torch.as_tensor(np.concatenate([one.prompt, one.said]))
        packed = Packed([len(ids)])
        with torch.no_grad():
            rows = network.logits(weights, network.hidden_states(weights, ids, packed.positions, packed)).log_softmax(-1)
        n = len(one.prompt)
        assert got == pytest.approx([float(rows[n - 1 + j, t]) for j, t in enumerate(one.said)], abs=1e-5)


@pytest.mark.parametrize("is_adapter", [False, True])
def test_imitation_learns_what_is_shown(is_adapter: bool) -> None:
    weights = weights_of()
    before = {name: w.clone() for name, w in weights.items()}
    adapter = Adapter.new(SHAPE, weights, rank=4, seed=1) if is_adapter else None
    learner = LanguageLearner(Network(SHAPE), weights, Options(lr=0.02), adapter)
    shown = [said(f"s{i}", [3, i], [i + 5, END]) for i in range(1, 6)]
    first = learner.imitate(shown)["loss"]
    for _ in range(80):
        last = learner.imitate(shown)["loss"]
    assert last < 0.2 * first
    assert all(torch.equal(before[n], weights[n]) for n in weights) == is_adapter
    greedy = Engine(Network(SHAPE), {n: w.detach() for n, w in learner.now().items()}, ends=(END,))
    answers = greedy.run([Ask(prompt=[3, i], most=3, temperature=0) for i in range(1, 6)])
    assert [a.token_ids for a in answers] == [(i + 5, END) for i in range(1, 6)]


def played(engine: Engine, update: int, count: int) -> list[Trace]:
    """Tasks with one call each: the model is asked, and paid for saying the one good word."""
    asks = [Ask(prompt=[3, 4, k % 4 + 10], most=1, seed=1000 * update + k) for k in range(count)]
    out = []
    for k, (ask, answer) in enumerate(zip(asks, engine.run(asks), strict=True)):
        call = {"prompt_ids": list(ask.prompt), "token_ids": list(answer.token_ids), "logps": list(answer.logps)}
        event = Event(id="e1", t=0, type="message", agent="a", role="worker", tokens_out=1, extra={"call": call})
        reward = float(answer.token_ids[0] == GOOD)
        out.append(Trace(trace_id=f"u{update}-{k}", task_id=f"t{k % 4}", events=[event], edges=[], rewards={"team": reward}))
    return out


def trained(
    updates: int, *, adapter: bool = False, state: dict[str, Any] | None = None, first: int = 0
) -> tuple[list[float], dict[str, Any]]:
    weights = weights_of()
    own = Adapter.new(SHAPE, weights, rank=4) if adapter else None
    learner = LanguageLearner(Network(SHAPE), weights, Options(lr=0.02, steps=2), own)
    if state is not None:
        with torch.no_grad():
            for weight, kept in zip(learner.learned, state["weights"], strict=True):
                weight.copy_(kept)
        learner.optimizer.load_state_dict(state["optimizer"])
    engine = Engine(Network(SHAPE), {n: w.detach().clone() for n, w in learner.now().items()}, ends=(END,), slots=16)
    means = []
    for update in range(first, updates):
        engine.load({n: w.detach() for n, w in learner.now().items()})
        traces = played(engine, update, 64)
        means.append(float(np.mean([t.rewards["team"] for t in traces])))
        credit = registry.get("mechanism", "group_relative")(traces)
        sequences = with_old(learner, sequences_of(call_rows(traces, credit)))
        if sequences:
            learner.improve(sequences, Objective())
    return means, {"weights": [w.detach().clone() for w in learner.learned], "optimizer": learner.optimizer.state_dict()}


@pytest.mark.parametrize("adapter", [False, True])
def test_a_reward_teaches_a_choice_from_engine_to_update(adapter: bool) -> None:
    means, _ = trained(25, adapter=adapter)
    assert np.mean(means[:3]) < 0.3
    assert np.mean(means[-3:]) > 0.7


def test_a_run_that_goes_on_gives_the_same_numbers() -> None:
    whole, _ = trained(8)
    first, state = trained(4)
    rest, _ = trained(8, state=state, first=4)
    assert [*first, *rest] == whole


@pytest.mark.parametrize("heat", [0.5, 1.0, 1.7])
def test_ratios_begin_at_one_at_every_temperature_without_a_correction(heat: float) -> None:
    weights = weights_of()
    engine = Engine(Network(SHAPE), {n: w.clone() for n, w in weights.items()}, ends=(END,), slots=16)
    asks = [Ask(prompt=[3, 4, k + 5], most=4, seed=k, temperature=heat) for k in range(8)]
    sampled = [
        said(f"s{k}", list(ask.prompt), list(a.token_ids), sampler=np.array(a.logps), advantages=np.full(len(a.token_ids), k - 3.5))
        for k, (ask, a) in enumerate(zip(asks, engine.run(asks), strict=True))
    ]  # fmt: skip
    learner = LanguageLearner(Network(SHAPE), weights, Options(temperature=heat))
    for one, now in zip(sampled, learner.logps(sampled), strict=True):
        assert now == pytest.approx(one.sampler, abs=1e-5)
    report = learner.improve(sampled, Objective(cap=None))
    assert report["kl_old"] == pytest.approx(0, abs=1e-8)
    assert report["clipped"] == 0


def test_a_kl_in_the_reward_by_hand() -> None:
    one = said("a", [1], [2, 3, 4], advantages=np.array([1.0, 1.0, 0.5]), sampler=np.array([-1.0, -2.0, -3.0]))
    reference = np.array([-1.5, -1.5, -2.0])  # k1: 0.5, -0.5, -1; of a token and what follows: -1, -1.5, -1
    assert less_kl([one], [reference], 0.1)[0].advantages == pytest.approx([1.1, 1.15, 0.6])
    before = replace(one, old=np.array([-1.5, -1.5, -2.0]))
    assert less_kl([before], [reference], 0.1)[0].advantages == pytest.approx([1.0, 1.0, 0.5])


def test_a_rate_holds_from_the_next_step_on() -> None:
    """A first step of Adam moves what it moves most by its rate, whatever the gradient's size."""
    learner = LanguageLearner(Network(SHAPE), weights_of(), Options(lr=0.5))
    learner.set_rate(1e-3)
    before = {name: w.detach().clone() for name, w in learner.weights.items()}
    learner.imitate([said("s", [3, 4], [5, END])])
    moved = max(float((w.detach() - before[name]).abs().max()) for name, w in learner.weights.items())
    assert moved == pytest.approx(1e-3, rel=0.02)


def test_the_running_mean_forgets_the_beginning() -> None:
    learner = LanguageLearner(Network(SHAPE), weights_of(), Options())
    for value in (1.0, 2.0, 4.0):
        with torch.no_grad():
            learner.weights["norm"].fill_(value)
        learner.average(0.5)
    learner.swap()
    assert learner.weights["norm"].tolist() == pytest.approx([(0.25 * 1 + 0.5 * 2 + 4) / 1.75] * 16)
    again = LanguageLearner(Network(SHAPE), weights_of(1), Options())
    again.restore(learner.state())
    for one in (learner, again):
        one.swap()
        assert one.weights["norm"].tolist() == [4.0] * 16


@pytest.mark.parametrize("limit", [0.0, 1e9, 1.0, 1e-3, 1e-12])
def test_an_update_that_moves_too_far_is_shortened_to_the_limit_or_taken_back(limit: float) -> None:
    weights = weights_of()
    learner = LanguageLearner(Network(SHAPE), weights, Options(lr=0.05, kl_limit=limit))
    before = {name: w.detach().clone() for name, w in weights.items()}
    calls = [said(f"c{i}", [1, 2, i], [3 + i % 5, 0]) for i in range(6)]
    amounts = np.array([1.0, -1.0])
    was = learner.logps(calls)
    sampled = [replace(c, sampler=p - 0.3, advantages=amounts) for c, p in zip(calls, was, strict=True)]  # an engine that rounds
    told = learner.improve(sampled, Objective())
    gap = np.concatenate(learner.logps(sampled)) - np.concatenate(was)
    moved = float((np.expm1(gap) - gap).mean())
    if not limit:
        assert moved > 1
        assert "step_kept" not in told
        return
    assert told["kl_after"] == pytest.approx(moved)
    assert moved <= limit
    assert (told["step_kept"] == 1.0) == (limit == 1e9)
    assert all(torch.equal(before[n], weights[n]) for n in weights) == (told["step_kept"] == 0.0) == (limit == 1e-12)
    if limit in (1.0, 1e-3):
        assert moved > 0.8 * limit  # no shorter than it must be: updates of one limit have one length


def test_a_loss_that_is_no_number_changes_nothing_and_names_the_sequences() -> None:
    weights = weights_of()
    learner = LanguageLearner(Network(SHAPE), weights, Options())
    before = {name: w.detach().clone() for name, w in weights.items()}
    bad = said("t1 e7", [1, 2], [3], advantages=np.array([np.nan]), sampler=np.array([-1.0]))
    with pytest.raises(NotFinite, match="t1 e7"):
        learner.improve([bad], Objective())
    assert all(torch.equal(before[n], weights[n]) for n in weights)


def test_rows_that_teach_nothing_are_left_out_and_wrong_ones_are_named() -> None:
    call = {"prompt_ids": [1, 2], "token_ids": [3, 4], "logps": [-1.0, -1.0]}

    def traced(note: dict[str, Any], **fields: Any) -> Trace:
        event = Event(id="e1", t=0, type="message", agent="a", extra={"call": note}, **fields)
        return Trace(trace_id="t1", task_id="t", events=[event], edges=[], rewards={"team": 1.0})

    def rows(trace: Trace, value: float) -> Any:
        from counterpoint.trace.rows import Credit, CreditRow

        return call_rows([trace], Credit("ours", "?", False, ("t1",), (CreditRow(0, "team", "", value),)))

    assert len(sequences_of(rows(traced(call), 0.5))) == 1
    assert sequences_of(rows(traced(call), 0.0)) == []
    assert sequences_of(rows(traced(call, policy="forced"), 0.5)) == []
    assert sequences_of(rows(traced({"completion": "x"}), 0.5)) == []
    with pytest.raises(InputError, match="1 log-probabilities for 2 tokens"):
        sequences_of(rows(traced({**call, "logps": [-1.0]}), 0.5))


def test_an_adapter_goes_to_a_file_and_back_and_fits_its_own_model_only() -> None:
    weights = weights_of()
    adapter = Adapter.new(SHAPE, weights, rank=2, seed=3)
    with torch.no_grad():
        for b in adapter.b.values():
            b += 0.1
    back = Adapter.of_tensors(adapter.as_tensors(), scale=adapter.scale)
    assert back.rank == 2
    for name, value in adapter.over(weights).items():
        assert torch.equal(value, back.over(weights)[name])
    with pytest.raises(InputError, match="another model"):
        adapter.over({**weights, "0.qkv": torch.zeros(3, 16)})
    with pytest.raises(InputError, match="another model: there is no"):
        adapter.over({n: w for n, w in weights.items() if n != "1.o"})
    with pytest.raises(InputError, match="not an adapter"):
        Adapter.of_tensors({"x": torch.zeros(2)}, scale=1.0)
    with pytest.raises(InputError, match="rank 0"):
        Adapter.new(SHAPE, weights, rank=0)


def test_preferences_have_the_value_and_the_gradient_of_their_formula() -> None:
    pairs = [(said("a", [1, 2], [4, 5, END]), said("b", [1, 2], [6, END])), (said("c", [3] * 9, [7]), said("d", [3] * 9, [8]))]
    flat = [one for pair in pairs for one in pair]
    reference, weights = weights_of(1), weights_of()
    learner = LanguageLearner(Network(SHAPE), weights, Options(tokens=8, clip_norm=1e9))  # micro-batches divide a pair
    now, ref = (np.array([x.sum() for x in learner.logps(flat, w)]).reshape(2, 2) for w in (weights, reference))
    told = learner.prefer(pairs, reference, 0.3)
    assert told["loss"] == pytest.approx(float(np.log1p(np.exp(-0.3 * ((now - ref)[:, 0] - (now - ref)[:, 1]))).mean()), abs=1e-5)
    assert told["pairs"] == 2
    again = {n: w.requires_grad_() for n, w in weights_of().items()}
    whole = LanguageLearner(Network(SHAPE), again, Options(tokens=10_000))
    sums = torch.stack([part.sum() for batch in whole._batches(flat) for part in _in_order(whole, again, batch, flat)]).reshape(
        2, 2
    )
    before = torch.as_tensor(ref, dtype=torch.float32)
    margin = 0.3 * ((sums - before)[:, 0] - (sums - before)[:, 1])
    torch.nn.functional.softplus(-margin).mean().backward()
    for name, weight in weights.items():
        assert torch.allclose(weight.grad, again[name].grad, atol=1e-5), name


def _in_order(learner: LanguageLearner, weights: Weights, batch: Any, flat: list[CallTokens]) -> list[Any]:
    calls = [i for row in batch for i in row.calls]
    parts = torch.split(learner._token_logps(weights, learner._row(batch)), [len(flat[i].said) for i in calls])
    return [part for _, part in sorted(zip(calls, parts, strict=True), key=lambda pair: pair[0])]


def test_pairs_are_the_best_and_the_worst_of_one_prompt() -> None:
    def call(name: str, prompt: list[int], answer: list[int], amount: float) -> CallTokens:
        return said(name, prompt, answer, advantages=np.full(len(answer), amount))

    given = [call("a", [1], [4], 0.5), call("b", [1], [5], -1.0), call("c", [1], [6], 0.1), call("d", [2], [4], 1.0)]
    assert [(w.name, v.name) for w, v in pairs_of(given)] == [("a", "b")]  # alone with its prompt, d is compared with nothing
    assert pairs_of([call("a", [1], [4], 1.0), call("b", [1], [4], 0.0)]) == []  # the same was said
    assert pairs_of([call("a", [1], [4], 1.0), call("b", [1], [5], 1.0)]) == []  # and was worth the same


def test_one_imitates_ones_best() -> None:
    weights = weights_of()
    learner = LanguageLearner(Network(SHAPE), weights, Options(lr=0.02, steps=2))
    good = [said(f"s{i}", [3, i], [GOOD, END]) for i in range(1, 5)]
    before = sum(x.sum() for x in learner.logps(good))
    for _ in range(5):
        told = learner.imitate_some(good)
    assert told["imitated"] == 4
    assert sum(x.sum() for x in learner.logps(good)) > before
    assert learner.imitate_some([]) == {"imitated": 0.0}


def test_where_memory_is_short_a_step_begins_again_with_smaller_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step is the one of smaller micro-batches from the start, what is said of it too; the size stays."""
    rng = np.random.default_rng(4)
    given = [
        said(f"s{i}", [i + 1, 3], [i + 5, END], advantages=rng.normal(size=2), sampler=np.full(2, -2.0)) for i in range(8)
    ]
    small = LanguageLearner(Network(SHAPE), weights_of(), Options(lr=0.02, tokens=8))
    expected = small.improve(given, Objective())
    short = LanguageLearner(Network(SHAPE), weights_of(), Options(lr=0.02, tokens=32))
    whole, met = Network.hidden_states, list[int]()

    def hidden_states(self: Network, weights: Weights, ids: Any, *more: Any) -> Any:
        met.append(len(ids))
        if len(ids) > 8:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return whole(self, weights, ids, *more)

    monkeypatch.setattr(Network, "hidden_states", hidden_states)
    assert short.improve(given, Objective()) == expected
    assert met == [32, 16, 8, 8, 8, 8]
    assert expected["micro_batch"] == 8.0
    assert all(torch.equal(a, b) for a, b in zip(small.learned, short.learned, strict=True))
    met.clear()
    reads = LanguageLearner(Network(SHAPE), weights_of(), Options(lr=0.02, tokens=32))
    reads.logps(given)  # log-probabilities that are only read, too
    assert met == [32, 16, 8, 8, 8, 8]


def test_where_one_call_is_too_long_for_the_memory_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = LanguageLearner(Network(SHAPE), weights_of(), Options(tokens=32))

    def hidden_states(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Network, "hidden_states", hidden_states)
    with pytest.raises(Refused, match="one call of 14 tokens"):
        learner.imitate([said("a", [1] * 12, [2, END]), said("b", [1], [2, END])])
