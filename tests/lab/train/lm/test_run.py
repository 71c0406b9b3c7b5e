"""A tiny model learns through the whole path: team runtime, driver, engine, rows, credit, update, run folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, cast

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from tests.lm_help import TEXTS  # noqa: E402
from tests.tiny_help import make_tiny  # noqa: E402

from counterpoint.errors import InputError, Refused  # noqa: E402
from counterpoint.lab.lm.network import read  # noqa: E402
from counterpoint.lab.lm.weights import find  # noqa: E402
from counterpoint.lab.train.folder import RunFolder  # noqa: E402
from counterpoint.lab.train.learner import NotFinite  # noqa: E402
from counterpoint.lab.train.lm.learner import LanguageLearner  # noqa: E402
from counterpoint.lab.train.lm.run import train_language  # noqa: E402
from counterpoint.lab.train.lm.settings import language_settings  # noqa: E402
from counterpoint.lab.train.lm.training import LanguageTraining  # noqa: E402
from counterpoint.store import Store  # noqa: E402

TIMES = ("seconds", "play_s", "learn_s", "profile")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return make_tiny(tmp_path_factory.mktemp("tiny"), texts=TEXTS, words=512, spread=0.15, context=2048)


def config(model: Path, **more: Any) -> dict[str, Any]:
    limits = {"width": 1, "max_tokens": 8, "turns": 6, "steps": 3, "repairs": 0}
    task = {"name": "tests.lm_help:colours", "topology": "harness", "limits": limits}
    imitate = {"teams": 24, "steps": 30, "batch": 12, "lr": 1e-2, "warmup": 4, **more.pop("imitate", {})}
    learn = {"updates": 8, "groups": 3, "samples": 8, "lr": 4e-3, "steps": 2, "resample": 0, **more.pop("learn", {})}
    usual = {"eval_episodes": 24, "workers": 1, "eval_every": 100, "checkpoint_every": 100}
    return {"model": str(model), "task": [task], "imitate": imitate, "learn": learn, **usual, **more}


SHORT: dict[str, Any] = {"imitate": {"teams": 4, "steps": 2, "batch": 4}, "learn": {"updates": 2, "groups": 2, "samples": 2},
                         "eval_episodes": 2, "checkpoint_every": 1}  # fmt: skip


@pytest.fixture(scope="module")
def short(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run; tests work on copies."""
    return train_language(tmp_path_factory.mktemp("short") / "run", config(model, **SHORT)).path


@pytest.fixture(scope="module")
def shown(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model after it has imitated."""
    told = config(model, learn={"updates": 0}, eval_episodes=2)
    return train_language(tmp_path_factory.mktemp("shown") / "run", told).path / "model"


def timeless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k not in TIMES} for row in rows]


def test_a_model_learns_a_choice_that_only_its_reward_teaches(model: Path, tmp_path: Path) -> None:
    run = train_language(tmp_path / "run", config(model))
    evals = run.evals()
    first, shown, last = evals[0], evals[1], evals[-1]
    assert first["solved"] == 0.0  # random weights speak no grammar
    assert first["malformed"] > 0.9
    assert 0.2 < shown["solved"] < 0.8  # the demonstrator says either word
    assert last["mean"] > shown["mean"] + 0.15
    assert run.about["status"] == "finished"
    assert run.about["demonstrators"]["teams"] == 24
    rows = [row for row in run.metrics() if row["phase"] == "imitate" or row["sequences"]]
    assert {row["phase"] for row in rows} == {"imitate", "learn"}
    assert {row["micro_batch"] for row in rows} == {rows[0]["micro_batch"]}  # a machine with room halves nothing
    assert all(0.5 < row["reused"] < 1 for row in rows if row["phase"] == "learn")  # samples of one task begin alike
    _, weights = read(tmp_path / "run" / "model")
    _, before = read(model)
    assert any(not torch.equal(weights[n], before[n]) for n in weights)
    with Store(run.store_path, read_only=True) as store:
        trace = store.get(last["traces"][0])
    assert trace.meta["run"] == "run"
    assert {e.role for e in trace.events if "call" in (e.extra or {})} == {"agent"}


def test_the_mean_of_the_weights_is_what_a_run_leaves(shown: Path, tmp_path: Path) -> None:
    plain, mean = (
        train_language(tmp_path / name, config(shown, imitate={"steps": 0}, learn={"updates": 2, "average": kept}, eval_episodes=2))
        for name, kept in (("plain", 0.0), ("mean", 0.9))
    )
    assert timeless(plain.metrics()) == timeless(mean.metrics())  # the newest weights play and learn
    newest, kept = (read(tmp_path / name / "model")[1] for name in ("plain", "mean"))
    assert any(not torch.equal(newest[n], kept[n]) for n in kept)


def test_updates_beyond_the_limit_are_taken_back_and_the_metrics_say_so(shown: Path, tmp_path: Path) -> None:
    told = config(shown, imitate={"steps": 0}, learn={"updates": 2, "kl_limit": 1e-12}, eval_episodes=2)
    run = train_language(tmp_path / "run", told)
    rows = [row for row in run.metrics() if row["phase"] == "learn" and row["sequences"]]
    assert rows
    assert {(row["step_kept"], row["kl_after"]) for row in rows} == {(0.0, 0.0)}


def test_a_run_that_is_cut_off_goes_on_with_the_same_numbers(model: Path, tmp_path: Path) -> None:
    told = config(model, **SHORT)
    told["learn"] |= {"average": 0.5}
    whole = train_language(tmp_path / "whole", told)
    for cut in (1, 3):

        def stop(kind: str, row: Any, cut: int = cut) -> None:
            if kind == "update" and row["update"] == cut:
                raise KeyboardInterrupt

        folder = tmp_path / f"cut{cut}"
        with pytest.raises(KeyboardInterrupt):
            train_language(folder, told, progress=stop)
        assert RunFolder.open(folder).about["status"] == "interrupted"
        again = train_language(folder, {}, resume=True, allow=["tests.lm_help:colours"])
        assert timeless(again.metrics()) == timeless(whole.metrics())
        assert [e["values"] for e in again.evals()] == [e["values"] for e in whole.evals()]
        made, there = (read(run / "model")[1] for run in (folder, tmp_path / "whole"))
        assert all(torch.equal(made[n], there[n]) for n in there)
    with pytest.raises(Refused, match="lm_help"):
        train_language(tmp_path / "whole", {}, resume=True)


@pytest.mark.parametrize("adapters", ["shared", "role"])
def test_adapters_learn_and_the_model_stays(model: Path, tmp_path: Path, adapters: str) -> None:
    told = config(model, adapters=adapters, rank=4, **SHORT)
    told["task"][0] |= {"topology": "centralized"}
    train_language(tmp_path / "run", told)
    files = sorted(p.name for p in (tmp_path / "run").glob("adapter*"))
    roles = ["adapter-orchestrator.safetensors", "adapter-worker.safetensors"]
    assert files == (["adapter.safetensors"] if adapters == "shared" else roles)
    assert not (tmp_path / "run" / "model").exists()
    assert find(str(tmp_path / "run")).policies == (("shared",) if adapters == "shared" else ("orchestrator", "worker"))


def test_the_rate_falls_evenly(model: Path) -> None:
    for limit in ({"updates": 3}, {"seconds": 4.0}):
        given = config(model) | {"learn": limit | {"lr": 0.5, "last_rate": 0.2}}
        training = LanguageTraining(language_settings(given), cast("Any", None), cast("Any", None))
        rates = []
        for training.learned, training.seconds["learn"] in ((0, 0.0), (1, 2.0), (2, 5.0)):
            rates.append(training.rate())
        assert rates == pytest.approx([0.5, 0.3, 0.1])


def test_stored_traces_are_shown_and_tokenised_again(model: Path, tmp_path: Path) -> None:
    import asyncio

    from counterpoint.lab.team.session import Spec, record_team

    with Store(tmp_path / "store", create=True) as store:
        for seed in range(2):
            asyncio.run(record_team(Spec(task="tests.lm_help:colours", topology="harness", seed=seed), store))
    notes: list[Any] = []
    told = config(model, **SHORT)
    told["imitate"] |= {"demos": str(tmp_path / "store")}
    told["learn"] |= {"updates": 0}
    run = train_language(tmp_path / "run", told, progress=lambda kind, row: notes.append((kind, row)))
    assert any(kind == "note" and "tokenised again" in row["what"] for kind, row in notes)
    assert run.about["demonstrators"]["teams"] == 2
    assert run.metrics()[-1]["loss"] > 0


def test_calls_that_do_not_fit_are_left_out_and_that_is_said(model: Path, tmp_path: Path) -> None:
    told = config(model, **SHORT)
    told["task"][0] |= {"topology": "centralized"}
    told["learn"] |= {"updates": 0}
    notes: list[str] = []
    short = told | {"context": 190}  # the first calls of the lead fit, later ones do not
    train_language(tmp_path / "run", short, progress=lambda kind, row: notes.append(row["what"]) if kind == "note" else None)
    assert len(notes) == 1
    assert "left out" in notes[0]
    with pytest.raises(InputError, match="can be learned"):
        train_language(tmp_path / "none", told | {"context": 20})
    assert not (tmp_path / "none").exists()  # going on with it would end in the same way


def test_tables_and_pairs_from_python_are_kept() -> None:
    from counterpoint.lab.app.api.language import language_config

    learn = {"updates": 3, "groups": 2}
    told = language_config(None, model="x", tasks=("T1",), learn=learn, pairs=["learn.lr=0.5", "documents=9", "limits.width=3"])
    assert told["learn"] == {"updates": 3, "groups": 2, "lr": 0.5}
    assert told["task"] == [{"name": "T1", "set": {"documents": 9}, "limits": {"width": 3}}]
    assert language_config(None, model="x", tasks=("T1",), demos="fake:0.7")["imitate"] == {"demos": "fake:0.7", "steps": 300}
    none = language_config(None, model="x", tasks=("T1",), demos="fake:0.7", pairs=["imitate.steps=0"])
    assert none["imitate"]["steps"] == 0  # said, and not left out
    with pytest.raises(InputError, match="imitate is 3"):
        language_config(None, model="x", tasks=("T1",), pairs=["imitate=3"])


def test_a_preset_that_is_typed_wins_over_what_a_file_says(model: Path, tmp_path: Path) -> None:
    from counterpoint.lab.app.api.language import language_config, language_planned

    source = tmp_path / "run.toml"
    folder = train_language(tmp_path / "run", config(model, **SHORT) | {"preset": "grpo"}).path
    source.write_bytes((folder / "run.toml").read_bytes())
    allow = ["tests.lm_help:colours"]
    again = language_planned(language_config(source, allow=allow), out=None, seeds=None, source=source)[0][1]
    assert again == RunFolder.open(folder).config()  # a run's own file says that run
    other = language_planned(language_config(source, allow=allow, preset="dr_mas"), out=None, seeds=None, source=source)[0][1]
    plain = language_settings({"model": "x", "task": [{"name": "T1"}], "preset": "dr_mas", "learn": {"updates": 2}}).as_dict()
    assert {key: other["learn"][key] for key in ("credit", "level", "clip", "reward")} == {
        key: plain["learn"][key] for key in ("credit", "level", "clip", "reward")
    }
    assert (other["adapters"], other["learn"]["groups"]) == (plain["adapters"], 2)  # what no preset says stays


def test_a_folder_that_is_there_is_not_touched(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = config(model, **SHORT)
    real = RunFolder.create

    def slow(path: Any, *given: Any) -> RunFolder:
        real(path, *given).close()  # another process was quicker
        return real(path, *given)

    monkeypatch.setattr(RunFolder, "create", slow)
    with pytest.raises(InputError, match="exists already"):
        train_language(tmp_path / "run", told)
    assert (tmp_path / "run" / "run.toml").is_file()
    monkeypatch.undo()
    (tmp_path / "own").mkdir()
    with pytest.raises(InputError, match="can be learned"):
        train_language(tmp_path / "own", told | {"context": 20})
    assert list((tmp_path / "own").iterdir()) == []  # a folder that somebody made is left to them


def test_weights_that_compute_no_numbers_are_not_kept(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = LanguageLearner.imitate

    def broken(self: LanguageLearner, sequences: Any) -> dict[str, float]:
        told = real(self, sequences)
        if len(broken_at) == 1:
            with torch.no_grad():
                self.learned[0].fill_(float("inf"))
        broken_at.append(1)
        return told

    broken_at: list[int] = []
    monkeypatch.setattr(LanguageLearner, "imitate", broken)
    told = config(model, **SHORT)
    told["learn"] |= {"updates": 0}
    with pytest.raises(NotFinite, match=r"last good checkpoint is 000001\.pt|NaN or infinite"):
        train_language(tmp_path / "run", told)
    assert RunFolder.open(tmp_path / "run").about["status"] == "failed"
    assert not (tmp_path / "run" / "model").exists()


def test_a_model_that_computes_no_numbers_is_one_clear_error(model: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    poisoned = shutil.copytree(model, tmp_path / "poisoned")
    weights = load_file(poisoned / "model.safetensors")
    weights["model.norm.weight"].fill_(float("nan"))
    save_file(weights, poisoned / "model.safetensors", {"format": "pt"})
    with pytest.raises(NotFinite, match="NaN or infinite"):
        train_language(tmp_path / "run", config(poisoned, **SHORT))


def test_the_context_of_a_run_holds_in_play_too(model: Path, tmp_path: Path) -> None:
    run = train_language(tmp_path / "run", config(model, **SHORT) | {"context": 190, "imitate": {"steps": 0}})
    assert all(row["too_long"] > 0 for row in run.metrics())


def test_a_scheduler_that_ends_a_run_leaves_a_checkpoint(model: Path, tmp_path: Path) -> None:
    import os
    import signal

    def tell(kind: str, row: Any) -> None:
        if kind == "update" and row["update"] == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        train_language(tmp_path / "run", config(model, **SHORT) | {"checkpoint_every": 100}, progress=tell)
    run = RunFolder.open(tmp_path / "run")
    assert run.about["status"] == "interrupted"
    assert run.latest_checkpoint() is not None
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_rows_that_were_lost_are_said(short: Path, tmp_path: Path) -> None:
    run = RunFolder.open(shutil.copytree(short, tmp_path / "run"))
    with RunFolder.open(run.path, write=True) as opened:  # as one that was killed
        opened.change(status="running", rows={})
    lines = (run.path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (run.path / "metrics.jsonl").write_bytes(lines[0] + lines[1][:30])
    assert any("metrics.jsonl lacks" in note for note in RunFolder.open(run.path).notes())


@pytest.mark.parametrize("place", ["preset", "task", "topology", "credit", "reward"])
def test_code_that_a_file_names_is_not_imported_without_consent(place: str, short: Path, tmp_path: Path) -> None:
    import sys

    from counterpoint.lab.app.api.language import language_config

    evil = {
        "preset": 'preset = "evil_code:x"\n', "task": '[[task]]\nname = "evil_code:x"\n',
        "topology": '[[task]]\nname = "T1"\ntopology = "evil_code:x"\n', "credit": '[learn]\ncredit = ["evil_code:x"]\n',
        "reward": '[learn]\nreward = {"evil_code:x" = {}}\n',
    }[place]  # fmt: skip
    task = "" if "[[task]]" in evil else '\n[[task]]\nname = "T1"\n'
    text = f'model = "x"\n{evil}{task}'
    (tmp_path / "evil_code.py").write_text(f"open({str(tmp_path / 'was_here')!r}, 'w')\n")
    source = tmp_path / "e.toml"
    source.write_text(text)
    sys.path.insert(0, str(tmp_path))
    try:
        with pytest.raises(Refused, match="third-party code: evil_code:x"):
            language_config(source, pairs=["documents=8"])
        run = shutil.copytree(short, tmp_path / "run")
        (run / "run.toml").write_text(text)
        with pytest.raises(Refused, match="third-party code: evil_code:x"):
            train_language(run, {}, resume=True)
    finally:
        sys.path.remove(str(tmp_path))
    assert not (tmp_path / "was_here").exists()


def test_weights_are_kept_in_the_numbers_in_which_they_were_judged(model: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    from counterpoint.lab.lm.conversion import export

    told = config(model, **SHORT)
    told["learn"] |= {"lr": 1e-6, "updates": 1}
    run = train_language(tmp_path / "run", told)
    export(find(str(run.path)), tmp_path / "out")
    for folder in (run.path / "model", tmp_path / "out"):
        assert {w.dtype for w in load_file(folder / "model.safetensors").values()} == {torch.float32}


def test_traces_of_others_are_left_out_in_one_clear_error(model: Path, tmp_path: Path) -> None:
    from counterpoint.trace import Event, Trace

    with Store(tmp_path / "store", create=True) as store:
        said = Event(id="e0", t=0, type="message", agent="main", content_ref="r")
        store.add(Trace(trace_id="t", task_id="x", events=[said], contents={"r": "hello"}))
    told = config(model, **SHORT)
    told["imitate"] |= {"demos": str(tmp_path / "store")}
    with pytest.raises(InputError, match="can be learned"):
        train_language(tmp_path / "run", told)
    assert not (tmp_path / "run").exists()


def test_a_loss_that_is_no_number_keeps_the_last_checkpoint(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = LanguageLearner.imitate, []

    def broken(self: LanguageLearner, sequences: Any) -> dict[str, float]:
        calls.append(1)
        if len(calls) == 2:
            with torch.no_grad():
                self.learned[0].fill_(float("nan"))
        return real(self, sequences)

    monkeypatch.setattr(LanguageLearner, "imitate", broken)
    with pytest.raises(NotFinite, match=r"batch of demonstrations: shown-\d+.*000001\.pt"):
        train_language(tmp_path / "run", config(model, **SHORT))
    assert RunFolder.open(tmp_path / "run").about["status"] == "failed"


def test_a_model_that_does_not_fit_is_refused_with_what_would(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from counterpoint.lab.train.lm.policies import check_memory

    shape, _ = read(model)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100_000, 200_000))
    with pytest.raises(Refused, match="are needed") as refused:
        check_memory(shape, "", torch.device("cuda"))
    assert "--set adapters=shared" in str(refused.value)
    check_memory(shape, "", torch.device("cpu"))


def test_a_model_needs_22_bytes_for_each_of_its_numbers(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """8 where an adapter learns; four fifths of what is free may be taken."""
    from counterpoint.lab.train.lm.policies import check_memory

    shape, weights = read(model)
    count = sum(w.numel() for w in weights.values())
    for adapters, each in (("", 22), ("shared", 8), ("role", 8)):
        for free, fits in ((each * count / 0.8 + 1, True), (each * count / 0.8 - 1, False)):
            monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free, 2 * free))
            if fits:
                check_memory(shape, adapters, torch.device("cuda"))
                continue
            with pytest.raises(Refused, match=f"a model of up to {count / 1e9:.2g} billion weights"):
                check_memory(shape, adapters, torch.device("cuda"))
    # on 8 cards the first has the engine's copy, and an eighth of the rest
    for adapters, each in (("", 2 + 20 / 8), ("shared", 2 + 2 / 8)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, each=each: (each * count / 0.8 + 1, 0))
        check_memory(shape, adapters, torch.device("cuda"), 8)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, each=each: (each * count / 0.8 - 1, 0))
        with pytest.raises(Refused):
            check_memory(shape, adapters, torch.device("cuda"), 8)


def test_bad_input_is_one_clear_error_and_nothing_is_written(model: Path, tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"device": "cuda"}, "no GPU"), ({"device": "tpu"}, "no device"), ({"learn": {"samples": 1}}, "groups of one"),
        ({"learn": {"credit": ["message_delete"]}}, "needs forks"),
        ({"learn": {"updates": 0}, "imitate": {"steps": 0}}, "nothing to learn"), ({"prices": {"agent": -1}}, "prices.agent is -1"),
        ({"learn": {"kl_limit": -0.1}}, "learn.kl_limit is -0.1"), ({"learn": {"kl_limit": 0.1, "loss": "sft"}}, "kl_limit is 0.1"),
        ({"learn": {"lr": -1.0}}, "learn.lr is -1.0"), ({"prices": {"agent": float("nan")}}, "prices.agent is nan"), ({"learn": {"credit": []}}, "no credit mechanism is named"),
        ({"learn": {"temperature": -1.0}}, "temperature is -1"), ({"imitate": {"demos": "fake:7"}}, "fake"), ({"learn": {"lr": 1e37}}, "from above 0 to 1"),
        ({"imitate": {"warmup": -1}}, "imitate.warmup is -1"), ({"imitate": {"lr": 0.0}}, "imitate.lr is 0"),
        ({"learn": {"level": "word"}}, "learn.level"), ({"adapters": "each"}, "adapters"),
        ({"learn": {"options": {"group_relative": {"convetion": "rloo"}}}}, "convention"),
    ]  # fmt: skip
    for changes, words in wrong:
        if "device" in changes and changes["device"] == "cuda" and torch.cuda.is_available():
            continue
        with pytest.raises((InputError, Refused), match=words):
            train_language(tmp_path / "run", config(model, **changes))
        assert not (tmp_path / "run").exists(), words
