"""Teams that learn while a server answers them: runs through real HTTP, with our own engine behind vLLM's and SGLang's shapes."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")
pytest.importorskip("httpx")

from tests.lm_help import TEXTS  # noqa: E402
from tests.served_help import ContractServer, Unwilling, config  # noqa: E402
from tests.tiny_help import make_tiny  # noqa: E402

import counterpoint.lab.lm.served.link as link  # noqa: E402
from counterpoint.errors import CounterpointError, InputError, NotFound, Refused  # noqa: E402
from counterpoint.lab.lm.engine import Answer, Ask, Engine, TooLong  # noqa: E402
from counterpoint.lab.lm.network import Network, read  # noqa: E402
from counterpoint.lab.lm.sampling import Start  # noqa: E402
from counterpoint.lab.lm.served.engine import ModelPlace, ServedEngine, server_of  # noqa: E402
from counterpoint.lab.train.lm.run import train_language  # noqa: E402

KINDS = ("vllm", "sglang")
ENDS = [2, *range(40, 60)]
LEARNED = ("reward", "solved", "score", "loss", "gradient", "sequences", "flat_groups", "kl_old", "clipped", "tokens", "calls")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return make_tiny(tmp_path_factory.mktemp("tiny"), texts=TEXTS, words=512, spread=0.15, context=2048)


@pytest.fixture
def server(model: Path) -> Iterator[ContractServer]:
    with ContractServer(model) as running:
        yield running


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "_WAITS_S", (0.01, 0.01))


@pytest.fixture(scope="module", params=["", "shared"])
def own(request: pytest.FixtureRequest, model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    """A run on the engine of this process, with all weights and with an adapter."""
    run = train_language(tmp_path_factory.mktemp("own") / "run", config(model, adapters=request.param))
    assert any(row["sequences"] and row["gradient"] > 0 for row in run.metrics())  # or nothing would be compared
    return request.param, run


def learned(run: Any) -> list[dict[str, float]]:
    return [{k: row[k] for k in LEARNED if row.get(k) is not None} for row in run.metrics()]


# -- whole runs


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_on_a_server_learns_the_same_numbers(
    own: tuple[str, Any], kind: str, server: ContractServer, model: Path, tmp_path: Path
) -> None:
    adapters, mine = own
    before = {name: w.clone() for name, w in server.weights.items()}
    run = train_language(tmp_path / "run", config(model, adapters=adapters, engine=f"{kind}:{server.url}"))
    assert len(learned(run)) == 2
    for ours, theirs in zip(learned(mine), learned(run), strict=True):
        assert ours.keys() == theirs.keys()
        assert theirs == pytest.approx(ours, rel=1e-3, abs=1e-4)
    assert [e["values"] for e in run.evals()] == [pytest.approx(e["values"]) for e in mine.evals()]
    assert not (tmp_path / "run" / "engine").exists()  # what was handed over does not stay
    if adapters:
        assert server.adapters == set()  # nor do adapters
        assert all(torch.equal(before[name], w) for name, w in server.weights.items())
    else:
        _, made = read(tmp_path / "run" / "model")
        assert all(torch.allclose(made[name], w) for name, w in server.weights.items())  # the last evaluation's
        assert any(not torch.equal(before[name], w) for name, w in server.weights.items())


def test_a_run_that_a_server_leaves_goes_on_where_it_was(model: Path, tmp_path: Path) -> None:
    with ContractServer(model) as server:
        told = config(model, engine=f"vllm:{server.url}")
        whole = train_language(tmp_path / "whole", told)
        loads = 0

        def die(path: str, body: Any) -> None:
            nonlocal loads
            loads += path == "/collective_rpc"
            if loads > 3:  # a far one, the run's own, the first update's; this is the second's
                raise Unwilling(500, "the engine is dead")

        server.before = die
        with pytest.raises(CounterpointError, match="answers 500: the engine is dead") as failed:
            train_language(tmp_path / "cut", told)
        assert failed.value.where == server.url
        server.before = lambda path, body: None
        resumed = train_language(tmp_path / "cut", {}, resume=True, allow=["tests.lm_help:colours"])
    assert learned(resumed) == [pytest.approx(row, rel=1e-3, abs=1e-4) for row in learned(whole)]


@pytest.mark.parametrize("kind", KINDS)
def test_playing_ahead_of_a_server(kind: str, server: ContractServer, model: Path, tmp_path: Path) -> None:
    run = train_language(tmp_path / "run", config(model, engine=f"{kind}:{server.url}", learn={"ahead": True, "updates": 3}))
    assert run.about["status"] == "finished"
    assert len(learned(run)) == 3


# -- a server that will not do


def refusal(model: Path, tmp_path: Path, engine: str, **more: Any) -> CounterpointError:
    """What a run says that cannot begin; it leaves no folder."""
    with pytest.raises(CounterpointError) as failed:
        train_language(tmp_path / "run", config(model, engine=engine, **more))
    assert not (tmp_path / "run").exists()
    return failed.value


def test_an_engine_that_nobody_knows(model: Path, tmp_path: Path) -> None:
    for engine in ("vlm:http://127.0.0.1:1", "vllm", "vllm:127.0.0.1:1", "sglang:"):
        error = refusal(model, tmp_path, engine)
        assert isinstance(error, InputError)
        assert "vllm:http://HOST:PORT" in str(error)


def test_nobody_at_the_address(model: Path, tmp_path: Path) -> None:
    with ContractServer(model) as server:
        gone = server.url
    error = refusal(model, tmp_path, f"vllm:{gone}")
    assert isinstance(error, NotFound)
    assert gone in str(error)
    assert "start vLLM first" in str(error)


def test_the_wrong_kind_of_server(server: ContractServer, model: Path, tmp_path: Path) -> None:
    server.before = lambda path, body: None if path == "/v1/models" else _refuse(404, "Not Found")
    error = refusal(model, tmp_path, f"sglang:{server.url}")
    assert "/update_weights_from_disk answers 404" in str(error)
    error = refusal(model, tmp_path, f"vllm:{server.url}")
    assert "VLLM_SERVER_DEV_MODE=1" in str(error)
    error = refusal(model, tmp_path, f"vllm:{server.url}", adapters="shared")
    assert "--enable-lora" in str(error)


def _refuse(status: int, message: str) -> None:
    raise Unwilling(status, message)


@pytest.mark.parametrize(("adapters", "path"), [("", "/collective_rpc"), ("shared", "/v1/load_lora_adapter")])
def test_a_server_that_keeps_its_weights_is_refused(
    adapters: str, path: str, server: ContractServer, model: Path, tmp_path: Path
) -> None:
    usual = server.answer

    def deaf(asked: str, body: Any) -> Any:
        if asked == path:
            return {"results": [None]}
        return usual(asked, {**body, "model": server.name} if asked == "/v1/completions" else body)

    server.answer = deaf  # type: ignore[method-assign]
    error = refusal(model, tmp_path, f"vllm:{server.url}", adapters=adapters)
    assert isinstance(error, Refused)
    assert "given new weights" in str(error)


def test_log_probabilities_of_another_distribution_are_refused(server: ContractServer, model: Path, tmp_path: Path) -> None:
    """vLLM's usual ones are those before the temperature."""

    def raw(ask: Ask, answer: Answer) -> Answer:
        engine = Engine(Network(server.shape), server.weights, ends=(), slots=1)
        out: list[float] = []
        for i, token in enumerate(answer.token_ids):
            prompt = [*ask.prompt, *answer.token_ids[:i]]
            (one,) = engine.run([Ask(prompt=prompt, most=1, alternatives=server.shape.vocabulary)])
            out.append(dict(one.alternatives[0])[token])
        return replace(answer, logps=tuple(out))

    server.after = raw
    error = refusal(model, tmp_path, f"vllm:{server.url}", learn={"temperature": 3.0})
    assert isinstance(error, Refused)
    assert "--logprobs-mode processed_logprobs" in str(error)


def test_answers_without_ids_or_log_probabilities(server: ContractServer, model: Path, tmp_path: Path) -> None:
    usual = server.answer
    broken: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
        (lambda reply: reply["choices"][0].pop("token_ids"), "no token ids"),
        (lambda reply: reply["choices"][0].pop("logprobs"), "no log-probabilities"),
        (lambda reply: reply["choices"][0]["logprobs"]["token_logprobs"].pop(), "log-probabilities for"),
        (lambda reply: reply["choices"][0].update(finish_reason="abort"), "abort"),
        (lambda reply: reply.clear(), "not how vLLM answers"),
    ]
    for breaking, message in broken:

        def answer(path: str, body: Any, breaking: Callable[[dict[str, Any]], Any] = breaking) -> Any:
            reply = usual(path, body)
            if path == "/v1/completions":
                breaking(reply)
            return reply

        server.answer = answer  # type: ignore[method-assign]
        with pytest.raises(CounterpointError, match=message) as failed:
            train_language(tmp_path / message, config(model, engine=f"vllm:{server.url}"))
        assert failed.value.where == server.url


# -- the engine alone


@pytest.fixture(params=KINDS)
def engine(request: pytest.FixtureRequest, server: ContractServer, model: Path, tmp_path: Path) -> Iterator[ServedEngine]:
    found = server_of(f"{request.param}:{server.url}/v1")
    assert found is not None
    place = ModelPlace(server.shape, model, tmp_path / "engine", "float32")
    served = ServedEngine(*found, place, ends=ENDS, context=512)
    yield served
    served.close()


def asks(count: int) -> list[Ask]:
    random = np.random.default_rng(0)
    return [Ask(prompt=random.integers(3, 300, 20 + k).tolist(), most=12, temperature=0.8, seed=k) for k in range(count)]


def test_many_at_once_are_answered_as_our_engine_answers_them(engine: ServedEngine, server: ContractServer, model: Path) -> None:
    _, weights = read(model)
    mine = Engine(Network(server.shape), weights, ends=ENDS).run(asks(40))
    theirs = engine.run(asks(40))
    for one, other in zip(mine, theirs, strict=True):
        assert (one.token_ids, one.finish) == (other.token_ids, other.finish)
        assert one.logps == pytest.approx(other.logps, abs=1e-4)
    assert {answer.finish for answer in theirs} == {"stop", "length"}
    assert all((answer.token_ids[-1] in ENDS) == (answer.finish == "stop") for answer in theirs)  # what ended it is told
    stats = engine.stats
    assert (stats.asked, stats.widest) == (40, 40)
    assert stats.written == sum(len(a.token_ids) for a in theirs)
    assert stats.read + stats.reused == sum(len(a.prompt) for a in asks(40))


def test_nobody_waits_while_nothing_is_ready(engine: ServedEngine, server: ContractServer) -> None:
    gate = threading.Event()
    server.before = lambda path, body: None if path == "/v1/models" else _ignore(gate.wait(60))
    first = engine.add(asks(1)[0])
    assert engine.step() == []
    assert engine.is_busy
    assert select.select([engine], [], [], 0)[0] == []
    gate.set()
    assert select.select([engine], [], [], 60)[0] == [engine]
    assert [ticket for ticket, _ in engine.step()] == [first]
    assert not engine.is_busy


def _ignore(_: object) -> None:
    return None


def test_a_busy_server_is_asked_again(engine: ServedEngine, server: ContractServer) -> None:
    turns = iter([429, 503])

    def busy(path: str, body: Any) -> None:
        if (status := next(turns, None)) is not None:
            raise Unwilling(status, "busy")

    server.before = busy
    assert len(engine.run(asks(1))) == 1
    server.before = lambda path, body: _refuse(400, "this prompt is odd")
    with pytest.raises(CounterpointError, match="answers 400: this prompt is odd"):
        engine.run(asks(2))
    assert not engine.is_busy  # nothing is left to wait for


def test_what_a_server_is_not_asked(engine: ServedEngine) -> None:
    with pytest.raises(TooLong, match="512"):
        engine.add(Ask(prompt=[5] * 512))
    with pytest.raises(InputError, match="beginnings"):
        engine.add(Ask(prompt=[5], starts=[Start((7,))]))
    assert not engine.is_busy


def test_a_key_is_sent_where_one_is_named(server: ContractServer, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = server_of(f"vllm:{server.url}")
    assert found is not None
    place = ModelPlace(server.shape, model, tmp_path / "engine")
    monkeypatch.setenv("OPENAI_API_KEY", "not-for-you")
    monkeypatch.setenv(link.KEY_ENV, "sesame")
    served = ServedEngine(*found, place, ends=[2], context=512)
    assert served.link._client.headers["authorization"] == "Bearer sesame"
    served.close()
    monkeypatch.delenv(link.KEY_ENV)
    served = ServedEngine(*found, place, ends=[2], context=512)
    assert "authorization" not in served.link._client.headers
    served.close()
