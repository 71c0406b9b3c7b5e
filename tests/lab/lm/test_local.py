"""`local:` models: one engine for all agents, held to the grammar, repeatable, against the plain forward pass of the same weights."""

from __future__ import annotations

import asyncio
import json
import math
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if not (find_spec("torch") and find_spec("transformers")):  # looked for, not loaded: that takes seconds wherever tests are collected
    pytest.skip("needs the llm extra", allow_module_level=True)

from counterpoint import Store
from counterpoint.audits.diff import fingerprint
from counterpoint.errors import InputError, NotFound
from counterpoint.lab.app.cli.models import models
from counterpoint.lab.lm.chat import Chat
from counterpoint.lab.lm.conversion import export
from counterpoint.lab.lm.engine import Ask, Engine
from counterpoint.lab.lm.model import Call, Completion, Message, Model, ModelFailed
from counterpoint.lab.lm.models.local import LocalModel, local
from counterpoint.lab.lm.network import Network, read
from counterpoint.lab.lm.sampling import Trie
from counterpoint.lab.lm.tensor_files import read_folder
from counterpoint.lab.lm.weights import MANIFEST, Source, find, sha256, trained
from counterpoint.lab.tasks.task import View
from counterpoint.lab.team.live_replay import LiveReplay
from counterpoint.lab.team.session import Spec, record_team
from counterpoint.lab.team.state import Limits
from tiny_help import make_tiny

STARTS = ("SPAWN worker\n", "TOOL search: ", "TOOL open:", "STOP: ", "STOP", "NOOP\n")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("weights") / "tiny")


@pytest.fixture(scope="module")
def plain(tiny: Path) -> Any:
    """The same weights as `transformers` runs them."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny).eval()


@pytest.fixture(scope="module")
def model(tiny: Path) -> Iterator[LocalModel]:
    made = local(str(tiny))
    yield made
    asyncio.run(made.close())


def ask(text: str = "who?", **fields: Any) -> Call:
    return Call(messages=(Message("system", "You act."), Message("user", text)), **{"max_tokens": 12, **fields})


def answers(model: LocalModel, *calls: Call) -> list[Completion]:
    async def run() -> list[Completion]:
        return await asyncio.gather(*(model.complete(call) for call in calls))

    return asyncio.run(run())


def answer_of(folder: Path, call: Call, **options: Any) -> Completion:
    """The answer of a model that is made for one call."""
    made = local(str(folder), **options)
    try:
        return answers(made, call)[0]
    finally:
        asyncio.run(made.close())


def logits_of(plain: Any, ids: tuple[int, ...]) -> Any:
    import torch

    with torch.inference_mode():
        return plain(input_ids=torch.tensor([ids])).logits[0].double()


# -- what it is ----------------------------------------------------------------------------------------------------------


def test_it_is_a_model_whose_name_and_version_are_the_weights(tiny: Path, tmp_path: Path) -> None:
    made, again, elsewhere = local(str(tiny)), local(str(tiny)), shutil.copytree(tiny, tmp_path / "moved")
    assert isinstance(made, Model)
    assert made.name == "local:tiny"
    assert made.version == again.version == local(str(elsewhere)).version == local(str(tiny), dtype="float32").version
    assert str(tiny.parent) not in made.version
    assert local(str(tiny), dtype="bfloat16").version != made.version
    weights = bytearray((elsewhere / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (elsewhere / "model.safetensors").write_bytes(weights)
    assert local(str(elsewhere)).version != made.version


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"bach": 4}, "did you mean 'batch'"), ({"batch": 0}, "at least 1"), ({"dtype": "int4"}, "float32 or bfloat16"),
        ({"device": "tpu"}, "cpu or cuda"), ({"chunk": 256}, "no option 'chunk' any more"), ({"reuse_mib": 0}, "see batch"),
    ],
)  # fmt: skip
def test_wrong_options_are_one_clear_error(tiny: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        local(str(tiny), **options)


# -- what it says --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.6, 0.0])
def test_log_probabilities_are_those_of_a_plain_forward_pass(model: LocalModel, plain: Any, temperature: float) -> None:
    got, other = answers(model, *(ask(seed=i, temperature=temperature, max_tokens=9, stop=()) for i in (5, 6)))
    assert got.token_ids is not None
    assert got.prompt_ids is not None
    assert got.tokens_in == len(got.prompt_ids)
    assert got.tokens_out == len(got.token_ids) > 2
    logp = (logits_of(plain, got.prompt_ids + got.token_ids) / (temperature or 1.0)).log_softmax(-1)[len(got.prompt_ids) - 1 : -1]
    assert got.logps == pytest.approx([float(row[token]) for row, token in zip(logp, got.token_ids, strict=True)], abs=1e-4)
    assert (got.text == other.text) == (temperature == 0)
    if temperature == 0:
        assert list(got.token_ids) == logp.argmax(-1).tolist()


def test_without_a_template_the_prompt_is_role_and_text_and_that_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = make_tiny(tmp_path / "bare", chat=False)
    got = answer_of(folder, ask(max_tokens=1))
    assert Chat.read(folder).decode(got.prompt_ids or ()).endswith("system: You act.\nuser: who?\nassistant:")
    assert caplog.messages == ["bare has no chat template: prompts are lines of `role: text`"]


def test_it_needs_no_transformers(tiny: Path, model: LocalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = answers(model, ask(seed=2))[0]
    for name in [n for n in sys.modules if n.partition(".")[0] in ("transformers", "huggingface_hub")]:
        monkeypatch.setitem(sys.modules, name, None)  # importing it fails
    assert answer_of(tiny, ask(seed=2)).text == expected.text


def test_among_many_it_says_what_it_says_alone(model: LocalModel, tiny: Path) -> None:
    calls = [
        ask("x" * (i % 7) + f" agent {i}", seed=i, starts=STARTS if i % 2 else (), temperature=1.0 if i % 3 else 0.7, stop=("\n",) * (i % 2))
        for i in range(24)
    ]
    alone = local(str(tiny), batch=1)
    single = [answers(alone, call)[0] for call in calls]
    asyncio.run(alone.close())
    together = answers(model, *calls)
    assert model.stats.widest > 4
    for a, b in zip(single, together, strict=True):
        assert (a.text, a.token_ids, a.finish) == (b.text, b.token_ids, b.finish)
        assert a.logps == pytest.approx(b.logps, abs=1e-4)
    assert len({c.text for c in together}) > 8


def test_a_prompt_that_grew_is_not_read_again_and_says_the_same(tiny: Path, model: LocalModel) -> None:
    kept = local(str(tiny))
    for prompt in ["the answer " * n for n in (5, 10, 20)]:
        call = ask(prompt, seed=3, starts=STARTS)
        a, b = answer_of(tiny, call), answers(kept, call)[0]
        assert (a.text, a.token_ids) == (b.text, b.token_ids)
        assert a.logps == pytest.approx(b.logps, abs=1e-4)
    assert kept.stats.reused > kept.stats.read / 3
    asyncio.run(kept.close())


# -- starts --------------------------------------------------------------------------------------------------------------


def test_log_probabilities_are_those_under_the_mask(model: LocalModel, plain: Any, tiny: Path) -> None:
    starts = Chat.read(tiny).starts(STARTS)
    trie, after_space = Trie.of(starts).nodes, Chat.read(tiny).after_space
    for got in answers(model, *(ask(starts=STARTS, seed=i, temperature=2.5, max_tokens=5) for i in range(12))):
        assert got.prompt_ids is not None
        assert got.token_ids is not None
        logits = logits_of(plain, got.prompt_ids + got.token_ids)[len(got.prompt_ids) - 1 : -1] / 2.5
        node = 0
        for row, token, logp in zip(logits, got.token_ids, got.logps or (), strict=True):
            if node >= 0:
                allowed = list(trie[node])
                expected, node = row[allowed].log_softmax(-1)[allowed.index(token)], trie[node][token]
            elif node == -2:
                expected, node = row[: len(after_space)][after_space].log_softmax(-1)[int(after_space[:token].sum())], -1
            else:
                expected = row.log_softmax(-1)[token]
            assert logp == pytest.approx(float(expected), abs=1e-4)


def test_whole_lines_are_drawn_as_often_as_they_are_likely(model: LocalModel) -> None:
    starts = ("SPAWN worker\n", "SPAWN w\n", "NOOP\n")
    many = answers(model, *(ask(starts=starts, seed=i, temperature=3.0) for i in range(300)))
    assert {c.text for c in many} == set(starts)
    assert {c.finish for c in many} == {"stop"}
    shares = {c.token_ids: math.exp(sum(c.logps or ())) for c in many}
    assert sum(shares.values()) == pytest.approx(1, abs=0.02), "every way to write a line that is not rare was met"
    for ids, share in shares.items():
        count = sum(c.token_ids == ids for c in many)
        assert abs(count - 300 * share) < 4 * math.sqrt(300 * share * (1 - share) + 1)


def test_how_likely_each_start_was_is_said_where_it_is_asked(tiny: Path, model: LocalModel, plain: Any) -> None:
    starts = ("SPAWN worker\n", "SPAWN w\n", "TOOL search: ", "STOP: ", "NOOP\n")
    call = ask(starts=starts, temperature=2.0, seed=3)
    got, usual = answer_of(tiny, call, propensities=True), answers(model, call)[0]
    assert usual.start_logps is None
    assert (got.text, got.token_ids) == (usual.text, usual.token_ids)
    assert got.logps == pytest.approx(usual.logps, abs=1e-4)
    assert got.start_logps is not None
    assert sum(map(math.exp, got.start_logps)) == pytest.approx(1)
    chat, chances = Chat.read(tiny), dict.fromkeys(starts, 0.0)
    spelled = chat.starts(starts)
    trie = Trie.of(spelled).nodes
    for start in spelled:
        node, logp = 0, 0.0
        lines = logits_of(plain, (got.prompt_ids or ()) + start.ids)[len(got.prompt_ids or ()) - 1 :] / 2.0
        for row, token in zip(lines, start.ids, strict=False):
            logp += float(row[list(trie[node])].log_softmax(-1)[list(trie[node]).index(token)])
            node = trie[node][token]
        chances[chat.begun(starts, start.ids)[0]] += math.exp(logp)
    assert [math.exp(x) for x in got.start_logps] == pytest.approx(list(chances.values()), abs=1e-4)


letters = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=9)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(starts=st.lists(letters, min_size=1, max_size=6, unique=True), seed=st.integers(0, 2**64 - 1), cold=st.booleans())
def test_what_it_writes_begins_with_a_start(model: LocalModel, starts: list[str], seed: int, cold: bool) -> None:
    call = ask(starts=tuple(starts), seed=seed, temperature=0 if cold else 1.5, max_tokens=4)
    got = answers(model, call)[0]
    assert any(got.text.startswith(start) for start in starts)
    if not any(got.text.startswith(start) for start in starts if start[-1] != "\n"):
        assert got.finish == "stop"
    assert all(x <= 1e-6 for x in got.logps or ())


@pytest.mark.parametrize("starts", [("A: ", "A: x\n"), ("A: ", "A:b"), ("A:", "A: "), ("A\n", "A\nB\n"), ("A: x\n", "A: ")])
def test_starts_that_begin_alike_are_all_kept_to(model: LocalModel, starts: tuple[str, ...]) -> None:
    for order in (starts, starts[::-1]):
        for got in answers(model, *(ask(starts=order, seed=i, temperature=2.0, stop=(), max_tokens=5) for i in range(20))):
            assert got.text.startswith(order)


def test_a_start_that_cannot_be_spelled_is_refused(model: LocalModel) -> None:
    for start in ("", "<|im_end|>"):
        with pytest.raises(ModelFailed, match="cannot spell") as raised:
            answers(model, ask(starts=(start, "NOOP\n")))
        assert raised.value.kind == "refused"


# -- where it ends -------------------------------------------------------------------------------------------------------


def test_a_stop_string_ends_the_text_and_is_not_in_it(model: LocalModel) -> None:
    free = answers(model, ask(seed=9, stop=(), max_tokens=10))[0]
    stop = free.text[4:6]
    cut = answers(model, ask(seed=9, stop=("never to be seen", stop), max_tokens=10))[0]
    assert cut.text == free.text[: free.text.find(stop)]
    assert (cut.finish, free.finish, free.tokens_out) == ("stop", "length", 10)
    assert cut.token_ids == (free.token_ids or ())[: len(cut.token_ids or ())]
    assert (cut.tokens_out or 0) < 10


def test_a_line_break_ends_the_text_as_the_engine_or_the_text_sees_it(model: LocalModel, tiny: Path) -> None:
    chat, seen = Chat.read(tiny), 0
    said = answers(model, *(ask(seed=i, stop=stop, max_tokens=40, temperature=3.0) for i in range(24) for stop in ((), ("\n",))))
    for free, line in zip(said[::2], said[1::2], strict=True):
        assert line.text == free.text.partition("\n")[0]
        ids = line.token_ids or ()
        assert ids == (free.token_ids or ())[: len(ids)]
        assert not set(ids[:-1]) & chat.lines
        seen += "\n" in free.text
    assert seen


def test_a_prompt_over_the_context_is_too_long_and_hurts_nobody(model: LocalModel) -> None:
    async def run() -> list[Any]:
        calls = [ask("x " * 600), ask("fine")]
        return await asyncio.gather(*(model.complete(c) for c in calls), return_exceptions=True)

    long, fine = asyncio.run(run())
    assert isinstance(long, ModelFailed)
    assert long.kind == "too long"
    assert isinstance(fine, Completion)


def test_writing_ends_where_the_context_ends(tiny: Path) -> None:
    got = answer_of(tiny, ask(stop=(), max_tokens=500, seed=1), context=60)
    assert got.finish == "length"
    assert (got.tokens_in or 0) + (got.tokens_out or 0) == 60


# -- many callers --------------------------------------------------------------------------------------------------------


def test_a_call_that_is_cancelled_leaves_and_the_others_go_on(tiny: Path) -> None:
    narrow = local(str(tiny), batch=1)

    async def run() -> tuple[Any, Completion, Completion]:
        tasks = [asyncio.create_task(narrow.complete(ask(f"{i}", seed=i, stop=(), max_tokens=60))) for i in range(3)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[1].cancel()
        gone = await asyncio.gather(tasks[0], tasks[1], return_exceptions=True)
        return gone, await tasks[2], await narrow.complete(ask("2", seed=2, stop=(), max_tokens=60))

    gone, last, again = asyncio.run(run())
    assert all(isinstance(g, asyncio.CancelledError) for g in gone)
    assert last.text == again.text
    asyncio.run(narrow.close())


def test_closing_tells_who_waits_and_leaves_no_thread(tiny: Path) -> None:
    before = set(threading.enumerate())
    made = local(str(tiny), batch=1)

    async def run() -> list[Any]:
        tasks = [asyncio.create_task(made.complete(ask(stop=(), max_tokens=60, seed=i))) for i in range(20)]
        await tasks[0]
        await made.close()
        await made.close()
        return await asyncio.gather(*tasks[1:], return_exceptions=True)

    left = [g for g in asyncio.run(run()) if isinstance(g, ModelFailed)]
    assert left
    assert {g.kind for g in left} == {"down"}
    assert not [t for t in set(threading.enumerate()) - before if t.name == "local-model"]
    with pytest.raises(ModelFailed, match="has been closed"):
        answers(made, ask())


def test_a_pass_that_fails_fails_its_calls_and_the_next_are_served(model: LocalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(model, ask("before"))
    assert model.thread.engines is not None
    engine = model.thread.engines.engines[""]
    with monkeypatch.context() as broken:
        broken.setattr(engine, "_pass", lambda *_: (_ for _ in ()).throw(RuntimeError("can't allocate memory: 9 bytes")))
        with pytest.raises(ModelFailed, match="too little memory for 32 calls at once") as raised:
            answers(model, ask("now"))
    assert (raised.value.kind, raised.value.fix) == ("server", "batch=16, a smaller context, or a smaller model")
    assert answers(model, ask("after", seed=1))[0].token_ids


# -- what cannot be used -------------------------------------------------------------------------------------------------


def _refused(folder: Path, **options: Any) -> list[ModelFailed]:
    """What each of four calls is told, two by two."""
    made = local(str(folder), **options)

    async def run() -> list[Any]:
        return await asyncio.gather(made.complete(ask()), made.complete(ask()), return_exceptions=True)

    told = [*asyncio.run(run()), *asyncio.run(run())]
    asyncio.run(made.close())
    assert all(isinstance(failed, ModelFailed) and failed.kind == "down" for failed in told)
    return told


def test_damaged_weights_fail_every_call_with_the_reason_and_those_cut_off_are_refused_at_once(tiny: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(tiny, tmp_path / "broken")
    (broken / MANIFEST).write_text(json.dumps({"sha256": {"config.json": "0", "tokenizer.json": sha256(broken / "tokenizer.json")}}))
    assert {failed.what for failed in _refused(broken)} == {"is damaged: config.json"}
    (broken / MANIFEST).unlink()
    (broken / "model.safetensors").write_bytes((tiny / "model.safetensors").read_bytes()[:-100])
    with pytest.raises(InputError, match="these weights cannot be loaded") as raised:
        local(str(broken))
    assert raised.value.where == "broken/model.safetensors"
    with pytest.raises(InputError, match="these weights cannot be loaded"):
        export(find(str(broken)), tmp_path / "out")
    (broken / "model.safetensors").unlink()
    (broken / "pytorch_model.bin").write_bytes(b"PK")
    with pytest.raises(InputError, match=r"pickled \.bin files are not read"):
        local(str(broken))


def test_a_model_of_another_kind_is_refused_before_it_is_asked(tiny: Path, tmp_path: Path) -> None:
    other = shutil.copytree(tiny, tmp_path / "other")
    said = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(said | {"model_type": "bloom"}))
    with pytest.raises(InputError, match=r"the model family 'bloom' is not supported \(the engine knows llama, mistral, qwen2,"):
        local(str(other))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_key_value_heads": 3}, "4 heads cannot share 3 keys and values"), ({"num_attention_heads": 0}, "config.json cannot be read"),
        ({"vocab_size": 100}, "words is"), ({"intermediate_size": 48}, "gate_up is"), ({"num_hidden_layers": 1}, "the weights have 2 layers"),
        ({"num_hidden_layers": 3}, "the weights lack model.layers.2"),
    ],
)  # fmt: skip
def test_weights_that_are_not_those_of_the_config_are_refused(
    changes: dict[str, int], words: str, tiny: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(tiny, tmp_path / "other")
    said = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(said | changes))
    with pytest.raises(InputError, match=words):
        read_folder(other, "other")
    (other / "config.json").write_text("[1]")
    with pytest.raises(InputError, match=r"config\.json cannot be read"):
        local(str(other))


def test_an_end_that_the_tokenizer_does_not_have_is_passed_over(tiny: Path, tmp_path: Path) -> None:
    other = shutil.copytree(tiny, tmp_path / "other")
    said = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(said | {"eos_token_id": [2, 99_999]}))
    assert set(Chat.read(other).ends) == set(Chat.read(tiny).ends)


def test_a_full_disk_is_the_systems_own_error(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import safetensors.torch
    from safetensors import SafetensorError

    def full(*_: Any) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(OSError, match="No space left") as raised:
        export(find(str(tiny)), tmp_path / "out")
    assert raised.value.errno == 28
    assert not (tmp_path / "out").exists()


def test_a_tokenizer_of_another_model_is_refused(tiny: Path, tmp_path: Path) -> None:
    other = shutil.copytree(tiny, tmp_path / "other")
    Chat.bytes().save(other)
    said = json.loads((tiny / "tokenizer.json").read_text())
    said["model"]["vocab"]["odd"] = len(said["model"]["vocab"])
    (other / "tokenizer.json").write_text(json.dumps(said))
    assert _refused(other)[0].what.startswith("the tokenizer has")


def test_no_gpu_and_too_little_memory_are_said(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from counterpoint.lab.lm.models import local as module

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="there is no GPU that torch can use") as raised:
        local(str(tiny), device="cuda")
    assert raised.value.fix == "device=cpu"
    monkeypatch.setattr(module, "_free_bytes", lambda options: 1000)
    assert _refused(tiny)[0].what.startswith("too little memory: the weights take about 0.0 GB")


@pytest.mark.skipif(not all(map(find_spec, ("gguf", "accelerate"))), reason="needs the llm extra")
def test_a_gguf_of_an_unknown_kind_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np
    from gguf import GGUFWriter

    writer = GGUFWriter(tmp_path / "odd.gguf", "counterpoint-odd")
    writer.add_tensor("t", np.zeros((2, 2), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    monkeypatch.setenv("COUNTERPOINT_MODELS", str(tmp_path / "kept"))
    made = local(str(tmp_path / "odd.gguf"))
    assert made.name == "local:odd"
    with pytest.raises(ModelFailed, match="the architecture 'counterpoint-odd' is not supported") as raised:
        answers(made, ask())
    asyncio.run(made.close())
    assert raised.value.where == "odd.gguf"
    assert not list((tmp_path / "kept").iterdir())


# -- what a run has trained ----------------------------------------------------------------------------------------------


def _trained(run: Path, over: Path, policies: tuple[str, ...] = ("shared",), **change: Any) -> Path:
    """A run's folder with adapters that change something."""
    import torch

    from counterpoint.lab.lm.adapter import Adapter

    run.mkdir()
    for i, name in enumerate(policies):
        made = Adapter.new(*read(over), rank=2, scale=0.5, seed=i)
        torch.manual_seed(i)
        made.b = {n: torch.randn_like(b) for n, b in made.b.items()}
        made.save(run / f"{name}.safetensors", base=Source(over).digest())
    said = {"base": str(over), "base_weights": find(str(over)).weights_digest(), "adapters": {name: f"{name}.safetensors" for name in policies}}
    (run / "model.json").write_text(json.dumps(said | change))
    return run


def _said(folder: Path, **fields: Any) -> Completion:
    return answer_of(folder, ask(seed=4, stop=(), **fields))


def test_a_run_is_used_by_its_folder_whether_it_trained_weights_or_an_adapter(tiny: Path, tmp_path: Path) -> None:
    import torch

    from counterpoint.lab.lm.adapter import adapted

    over = _trained(tmp_path / "over", tiny)
    said = CliRunner().invoke(models, ["export", str(over), str(tmp_path / "all" / "model")])
    assert said.output.splitlines()[-1] == f"use it as --model local:{tmp_path / 'all' / 'model'}"
    (_, before), (_, after) = read(tiny), read(tmp_path / "all" / "model")
    expected = adapted(before, [over / "shared.safetensors"], "over")
    assert all(torch.equal(after[name], weight.bfloat16().float()) for name, weight in expected.items())
    assert not torch.allclose(after["0.qkv"], before["0.qkv"], atol=0.1)
    (want,) = Engine(Network(read(tiny)[0]), expected, ends=(2,)).run([Ask(prompt=_said(over).prompt_ids or (), most=12, seed=4)])
    assert _said(over).token_ids == want.token_ids
    assert _said(over).token_ids != _said(tiny).token_ids
    assert _said(tmp_path / "all").token_ids
    assert [local(str(p)).name for p in (over, tmp_path / "all")] == ["local:over", "local:all"]
    assert len({local(str(p)).version for p in (over, tmp_path / "all", tiny)}) == 3
    listed = [json.loads(line) for line in CliRunner().invoke(models, ["ls", str(tmp_path), "--json"]).output.splitlines()]
    assert [(r["model"], r["source"]) for r in listed[:2]] == [("all", "trained weights"), ("over", "adapter over tiny")]
    shown = json.loads(CliRunner().invoke(models, ["show", str(over), "--json"]).output)
    assert (shown["version"], shown["path"]) == (find(str(over)).digest(), str(over))
    with pytest.raises(NotFound, match="no folder"):
        trained(tmp_path / "none")
    with pytest.raises(InputError, match="exists already"):
        export(find(str(over)), tmp_path / "all")


def test_each_role_speaks_with_its_own_adapter_over_those_of_the_run_before(tiny: Path, tmp_path: Path) -> None:
    first = _trained(tmp_path / "first", tiny)
    roles = _trained(tmp_path / "roles", tiny, ("lead", "worker"), base="../first", base_weights=find(str(first)).weights_digest())
    source = find(str(roles))
    assert source.policies == ("lead", "worker")
    assert [file.parent.name for file in source.adapters("worker")] == ["first", "roles"]
    said = {role: _said(roles, view=View("a", role, "work", (), ())) for role in ("lead", "worker", "critic")}
    assert said["critic"] == said["lead"] != said["worker"]
    files = {"adapters": {"shared": "../roles/worker.safetensors"}, "base": str(first), "base_weights": None}
    alone = _trained(tmp_path / "alone", tiny, (), **files)
    assert _said(alone).token_ids == said["worker"].token_ids
    export(source, tmp_path / "worker", "worker")
    export(find(str(alone)), tmp_path / "same")
    assert (tmp_path / "worker" / "model.safetensors").read_bytes() == (tmp_path / "same" / "model.safetensors").read_bytes()
    with pytest.raises(InputError, match="several policies: lead, worker"):
        export(source, tmp_path / "none")
    with pytest.raises(NotFound, match="no policy 'led'; did you mean 'lead'"):
        export(source, tmp_path / "none", "led")


def test_an_adapter_for_another_model_is_refused(tiny: Path, tmp_path: Path) -> None:
    other = make_tiny(tmp_path / "other", seed=1)
    with pytest.raises(InputError, match=r"this adapter is for another model.*was trained over weights with digest"):
        find(str(_trained(tmp_path / "digest", tiny, base=str(other))))
    wide = make_tiny(tmp_path / "wide", width=64)
    run = _trained(tmp_path / "shape", tiny, base=str(wide), base_weights=None)
    told = _refused(run)[0]
    assert (told.where, told.what[:33]) == ("shape", "this adapter is for another model")
    (run / "shared.safetensors").write_bytes(b"no")
    assert _refused(run)[0].what == "the adapter cannot be read"
    (run / "shared.safetensors").unlink()
    with pytest.raises(InputError, match=r"shared\.safetensors is missing"):
        find(str(run))
    (run / "model.json").write_text("{}")
    with pytest.raises(InputError, match=r"shape/model\.json.*KeyError: 'base'"):
        find(str(run))


# -- a team --------------------------------------------------------------------------------------------------------------


def test_a_recorded_team_is_answered_from_its_recording(tiny: Path, tmp_path: Path) -> None:
    limits = Limits(width=1, turns=3, steps=2, rounds=1, repairs=1, max_tokens=6)
    config = {"documents": 4, "rows": 1, "parts": 1}
    name = f"local:{make_tiny(tmp_path / 'long', context=8192)}"
    options = {"propensities": True}
    spec = Spec(task="ledger_hunt", config=config, seed=1, topology="centralized", model=name, options=options, limits=limits)
    with Store(tmp_path / "store") as store:
        trace = asyncio.run(record_team(spec, store))
    said = [e for e in trace.events if "logps" in ((e.extra or {}).get("call") or {})]
    assert said
    assert trace.meta["model"]["name"] == "local:long"
    for event in said:
        assert event.logp == pytest.approx(sum((event.extra or {})["call"]["logps"]))

    passed = [e for e in trace.events if e.decision == "noop" and (e.extra or {}).get("sub_decision")]
    assert passed
    assert all(e.logp is not None and e.logp <= 0 for e in passed), "what was passed over has its propensity"

    class Never:
        name, version = trace.meta["model"]["name"], trace.meta["model"]["version"]

        async def complete(self, call: Call) -> Completion:
            raise AssertionError("a recorded call was asked again")

        async def close(self) -> None:
            pass

    first = next(e for e in trace.events if e.decision)
    again = LiveReplay(model=Never()).fork(trace, first.id, None)
    assert [fingerprint(e) for e in again.events] == [fingerprint(e) for e in trace.events]


# -- the real one --------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.environ.get("COUNTERPOINT_REAL_MODEL") != "1", reason="COUNTERPOINT_REAL_MODEL=1 runs the real 135M model")
def test_the_real_model_knows_a_capital_and_keeps_to_the_grammar() -> None:
    real = local("smollm2-135m")
    question = (Message("user", "What is the capital of France?"),)
    free, acted = answers(
        real,
        Call(messages=question, temperature=0, max_tokens=16),
        Call(messages=question, temperature=0, max_tokens=16, starts=("STOP: ", "NOOP\n")),
    )
    asyncio.run(real.close())
    assert "Paris" in free.text
    assert acted.text.startswith(("STOP: ", "NOOP\n"))
