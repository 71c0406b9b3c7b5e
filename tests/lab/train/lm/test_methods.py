"""Published methods with a language model: every preset that says so learns from teams that a tiny model played."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from tests.lm_help import TEXTS  # noqa: E402
from tests.tiny_help import make_tiny  # noqa: E402

from counterpoint import registry  # noqa: E402
from counterpoint.errors import InputError, NotFound, Refused  # noqa: E402
from counterpoint.lab.train.lm.driver import Driver  # noqa: E402
from counterpoint.lab.train.lm.policies import Policies, read_model  # noqa: E402
from counterpoint.lab.train.lm.settings import LanguageSettings, language_settings  # noqa: E402
from counterpoint.lab.train.lm.training import LanguageTraining, first_task  # noqa: E402

PRESETS = [name for name in registry.ids("preset") if "lm" in registry.get("preset", name).learns]
ROLES = ("orchestrator", "worker")


def settings(model: Path, **more: Any) -> LanguageSettings:
    limits = {"width": 2, "max_tokens": 12, "turns": 6, "steps": 4, "repairs": 1}
    task = {"name": "tests.lm_help:colours", "topology": more.pop("topology", "centralized"), "limits": limits}
    learn = {"updates": 4, "groups": 2, "samples": 4, "lr": 1e-3, "steps": 1, "resample": 0, **more.pop("learn", {})}
    imitate = {"teams": 24, "steps": 40, "batch": 16, "lr": 1e-2, "warmup": 4}
    return language_settings({"model": str(model), "task": [task], "imitate": imitate, "learn": learn, "workers": 1, **more})


class Replayed:
    """A driver that gives the teams which a real one played: those of the same tasks and samples, or all of them."""

    def __init__(self, traces: list[Any]) -> None:
        self.traces = traces

    def play(self, rollouts: Any, engines: Any) -> list[Any]:
        place = lambda name: name.split("-")[-2:]  # noqa: E731
        asked = [place(r.trace_id) for r in rollouts]
        same = [t for a in asked for t in self.traces if place(t.trace_id) == a]
        return same if len(same) == len(asked) else self.traces


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any], list[Any]]:
    """A tiny model that has imitated, two groups of four teams that it played, and two trees of two by two."""
    torch.set_num_threads(1)
    model = make_tiny(tmp_path_factory.mktemp("tiny"), texts=TEXTS, words=512, spread=0.15, context=2048)
    told = settings(model)
    files = read_model(told.model, torch.device("cpu"))
    with Driver(files.folder, workers=1) as driver:
        training = LanguageTraining(told, Policies(told, files, ROLES), driver)
        training.show(training.play(range(24), temperature=1.0, name="show", model="fake:1").traces)
        while training.is_imitating:
            training.imitate()
        training.policies.refresh()
        traces = training.play(range(1_000_000, 1_000_002), samples=4, temperature=1.0, name="u0").traces
        tree = training.play_tree(range(1_000_000, 1_000_002), (2, 2), temperature=1.0, name="tree").traces
    training.policies.export(tmp_path_factory.mktemp("run"))
    assert len({t.rewards["team"] for t in traces}) > 1
    return model, traces, tree


@pytest.fixture(scope="module")
def played(session: tuple[Path, list[Any], list[Any]]) -> tuple[Path, list[Any]]:
    return session[:2]


def test_branches_of_a_tree_begin_alike_and_part_at_one_call(session: tuple[Path, list[Any], list[Any]]) -> None:
    tree = session[2]
    assert [t.trace_id for t in tree] == [f"tree-{1_000_000 + task}-{k}" for task in range(2) for k in range(4)]
    assert len({t.task_id for t in tree}) == 2
    said = lambda trace: [(e.key, e.content_ref) for e in trace.events]  # noqa: E731
    for stem, branch in zip(tree[::2], tree[1::2], strict=True):
        (note,) = branch.meta["edits"]
        assert not stem.meta.get("edits")
        assert said(branch)[: note["count"]] == said(stem)[: note["count"]]
        assert branch.events[note["count"]].key == stem.events[note["count"]].key == note["key"]
        drawn = [t.events[note["count"]].extra["call"] for t in (stem, branch)]
        assert drawn[0]["prompt_ids"] == drawn[1]["prompt_ids"]
    assert any(said(a) != said(b) for a, b in zip(tree[::2], tree[1::2], strict=True))
    assert any(said(a) != said(b) for a, b in zip(tree[::4], tree[2::4], strict=True))


def test_c3_with_replay_compares_messages_after_the_same_words_and_pays_the_kl(session: tuple[Path, list[Any], list[Any]]) -> None:
    model, _, tree = session
    told = settings(model, preset="c3_replay", learn={"tree": [2, 2], "samples": 4})
    assert (told.learn.tree, told.learn.kl, told.learn.beta) == ((2, 2), "k1", 0.01)
    assert told.learn.objective().beta == 0
    credit = registry.get("mechanism", "c3")(tree, **told.learn.options["c3"])
    assert credit.notes["sibling sets"] >= 2  # in each task the two beginnings; and where branches part, if they say two things
    with pytest.raises(InputError, match=r"has 8 ends, and learn\.samples is 4"):
        settings(model, preset="c3_replay")


def test_runs_of_other_seeds_learn_on_other_tasks(played: tuple[Path, list[Any]]) -> None:
    model, traces = played
    asked: dict[int, set[int]] = {}

    class Listening(Replayed):
        def play(self, rollouts: Any, engines: Any) -> list[Any]:
            asked.setdefault(rollouts[0].spec.seed // 10_000, set()).update(r.spec.seed for r in rollouts)
            return self.traces

    for seed in (0, 1):
        told = settings(model, seed=seed, rank=2)
        files = read_model(told.model, torch.device("cpu"))
        LanguageTraining(told, Policies(told, files, ROLES), cast("Any", Listening(traces))).learn()
    assert asked == {100: {1_000_000, 1_000_001}, 101: {1_010_000, 1_010_001}}
    assert first_task(99, is_shown=False) + 10_000 == first_task(0, is_shown=True)


@pytest.mark.parametrize("name", [n for n in PRESETS if n != "clone"])
def test_a_preset_learns_from_teams_of_a_language_model(session: tuple[Path, list[Any], list[Any]], name: str) -> None:
    model, *batches = session
    preset = registry.get("preset", name)
    shape = {"topology": "debate"} if preset.fixed_team else {}
    told, traces = settings(model, preset=name, rank=2, learn={"tree": [2, 2]} if preset.tree else {}, **shape), batches[bool(preset.tree)]
    files = read_model(told.model, torch.device("cpu"))
    training = LanguageTraining(told, Policies(told, files, ROLES), cast("Any", Replayed(traces)))
    before = {n: [p.detach().clone() for p in learner.learned] for n, learner in training.policies.learners.items()}
    for _ in range(told.learn.alternate + 1 if told.learn.alternate <= 2 else 1):
        row, _ = training.learn()
    assert row["sequences"] > 0
    changed = {
        n for n, learner in training.policies.learners.items()
        if any(not torch.equal(a, b) for a, b in zip(before[n], learner.learned, strict=True))
    }  # fmt: skip
    assert changed
    if told.learn.roles == ("orchestrator",) and told.adapters == "role":
        assert changed == {"orchestrator"}


def test_what_is_set_wins_over_the_preset(played: tuple[Path, list[Any]]) -> None:
    model, _ = played
    told = settings(model, preset="m_grpo", adapters="", learn={"clip": [0.2, 0.5]})
    assert (told.adapters, told.learn.clip) == ("", (0.2, 0.5))
    assert told.learn.credit == ("hierarchical",)
    assert told.learn.reward["individual"] == {"weight": 0.5}
    assert language_settings(told.as_dict()) == told  # a run that goes on has the same settings
    cloned = settings(model, preset="clone")
    assert cloned.learn.updates == 0


def test_roles_learn_in_turn(played: tuple[Path, list[Any]]) -> None:
    model, traces = played
    told = settings(model, preset="grpo", learn={"alternate": 1})
    files = read_model(told.model, torch.device("cpu"))
    training = LanguageTraining(told, Policies(told, files, ROLES), cast("Any", Replayed(traces)))
    counts = [training.learn()[0]["sequences"] for _ in range(3)]
    assert counts[0] == counts[2] != counts[1]
    both = settings(model, preset="grpo")
    everybody = LanguageTraining(both, Policies(both, files, ROLES), cast("Any", Replayed(traces)))
    assert everybody.learn()[0]["sequences"] == counts[0] + counts[1]


def test_what_cannot_be_learnt_is_refused_before_anything_is_played(played: tuple[Path, list[Any]]) -> None:
    model, traces = played
    with pytest.raises(Refused, match="networks only"):
        settings(model, preset="qmix")
    with pytest.raises(NotFound, match="no preset"):
        settings(model, preset="grop")
    with pytest.raises(InputError, match="no option 'wieght'"):
        settings(model, learn={"reward": {"team_outcome": {"wieght": 1.0}}})
    told = settings(model, learn={"roles": ["critic"]})
    files = read_model(told.model, torch.device("cpu"))
    training = LanguageTraining(told, Policies(told, files, ROLES), cast("Any", Replayed(traces)))
    with pytest.raises(InputError, match="no agent of this team is critic"):
        training.learn()
