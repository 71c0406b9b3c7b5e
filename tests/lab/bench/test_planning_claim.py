"""The claim about planning on grids: finished runs are joined without a GPU, and a trained model is used on larger grids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from tests.lm_help import TEXTS  # noqa: E402
from tests.tiny_help import make_tiny  # noqa: E402

from counterpoint.errors import Refused  # noqa: E402
from counterpoint.lab.bench.claims import _language, _starts  # noqa: E402
from counterpoint.lab.bench.claims import planning as claim  # noqa: E402
from counterpoint.lab.bench.claims._language import last_eval, usual  # noqa: E402
from counterpoint.lab.tasks.task import task  # noqa: E402
from counterpoint.lab.train.folder import RunFolder  # noqa: E402
from counterpoint.lab.train.lm.settings import language_settings  # noqa: E402

ARMS = {
    "one policy, team groups": "one-team",
    "one policy, agent and turn groups": "one-turn",
    "an adapter per role, team groups": "role-team",
    "an adapter per role, agent and turn groups": "role-turn",
}


def finished(folder: Path, solved: Sequence[float], **more: Any) -> None:
    """A run as one is brought back from a machine with a GPU, without its weights."""
    about = {"preset": "lm", "world": "T7+T8", "world_version": "1+1", "world_config": {}, "seed": 0}
    with RunFolder.create(folder, {}, about) as run:
        for update in (1, 2, 3):
            base = {"update": update, "episodes": update, "forks": 0, "calls": update, "decisions": update}
            run.append_metrics(base | {"phase": "learn", "score": 0.25 * update})
        lists = {"values": list(solved), "successes": list(solved), "greedy_successes": list(solved)}
        seconds = {"imitate": 0.0, "learn": 40.0}
        run.append_eval({"update": 3, "first_seed": 0, **lists, "calls_made": [4] * len(solved), "seconds": seconds, **more})
        run.set_status("finished")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_is_refused_before_anything_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_RUNS", str(tmp_path / "runs"))
    monkeypatch.delenv("COUNTERPOINT_LM_SCALE", raising=False)
    with pytest.raises(Refused, match="needs a GPU"):
        next(claim.planning(seed=0, seeds=1))
    assert not (tmp_path / "runs").exists()


def test_finished_runs_are_joined_task_by_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even seeds are paths, odd ones Sokoban; the demonstrator is played here and now, on few grids."""
    monkeypatch.setenv("COUNTERPOINT_RUNS", str(tmp_path))
    monkeypatch.setenv("COUNTERPOINT_LM_SCALE", "0.01")
    monkeypatch.setenv("COUNTERPOINT_LM", str(make_tiny(tmp_path / "smollm2-135m", texts=TEXTS)))
    home = tmp_path / "claims" / "planning-smollm2-135m"
    for s in (0, 1):
        finished(home / f"start-4-{s}", [0.0, 0.0, 1.0, 0.0])
        finished(home / f"start-4-{s}-larger", [0.0, 1.0])
        for tag in ARMS.values():
            finished(home / f"{tag}-4-{s}-0", [1.0, 1.0, 1.0, float(tag.endswith("turn"))] if s else [1.0, 0.0, 0.0, 1.0])
            finished(home / f"{tag}-4-{s}-0-larger", [1.0, 0.0])
    rows = {row.name: row for row in claim.planning(seed=4, seeds=2)}
    value = {name: row.value for name, row in rows.items()}
    assert (value["T7: imitation, solved, sampled"], value["T8: imitation, solved, sampled"]) == (0.5, 0.0)
    assert value["T7: one policy, team groups, solved, greedy"] == 0.75
    assert value["T8: one policy, team groups, solved, sampled"] == 0.5
    assert value["T8: an adapter per role, agent and turn groups, solved, sampled"] == 0.75
    assert value["one policy: agent and turn groups over team groups, solved, sampled"] == pytest.approx(1 / 8)
    assert value["team groups: an adapter per role over one policy, solved, sampled"] == 0
    assert value["one policy, team groups: score while learning"] == pytest.approx((0.5 + 0.75) / 2)
    assert (value["T7: larger grids: imitation, solved, sampled"], value["T8: larger grids: imitation, solved, sampled"]) == (
        0,
        1,
    )
    assert 0 < value["T7: demonstrator fake:0.7, solved"] <= 1
    targets = {name for name, row in rows.items() if row.has_target}
    assert targets == {f"{name}: {arm}, solved, sampled" for name in ("T7", "T8") for arm, tag in ARMS.items() if "turn" in tag}
    assert not any(rows[name].ok for name in targets)


def test_the_four_ways_differ_in_nothing_but_what_they_are_called_by() -> None:
    arms = claim._arms()
    assert {arm: claim._tag(arm) for arm in arms} == ARMS
    settings = [language_settings(usual(0, 5, task=claim.TASKS, imitate={"steps": 0}, **how)) for how in arms.values()]
    assert [s.adapters for s in settings] == ["", "", "role", "role"]
    assert [s.learn.tree for s in settings] == [(), (4, 4), (), (4, 4)]
    assert len({(s.learn.updates, s.learn.groups, s.learn.samples, s.learn.steps, s.learn.clip) for s in settings}) == 1
    assert {s.learn.samples for s in settings} == {16}


def test_a_trained_model_plays_larger_grids_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_LM_SCALE", "0.01")
    for mix in claim.LARGER:
        small = next(own for own in claim.TASKS if own["name"] == mix["name"])
        assert task(mix["name"], **mix["set"]).config.size > small["set"]["size"]
    model = make_tiny(tmp_path / "tiny", texts=TEXTS, context=2048)
    shorter = [{**mix, "limits": {**mix["limits"], "max_tokens": 4, "turns": 2, "repairs": 0}} for mix in claim.LARGER]
    monkeypatch.setattr(claim, "LARGER", shorter)
    claim._larger(tmp_path / "larger", model, 6)
    row = last_eval(tmp_path / "larger")
    assert (row["first_seed"], len(row["successes"]), row["solved"]) == (6, 3, 0.0)  # random weights speak no grammar
    assert RunFolder.open(tmp_path / "larger").about["status"] == "finished"


def test_the_claim_whole_with_a_tiny_model_goes_on_where_it_was_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first command ends in the second of the four ways; the same command again makes the rest, and nothing twice."""
    make_tiny(tmp_path / "tiny", texts=TEXTS, context=2048)
    for name, value in (("RUNS", tmp_path / "runs"), ("LM", tmp_path / "tiny"), ("LM_SCALE", 0.001)):
        monkeypatch.setenv(f"COUNTERPOINT_{name}", str(value))
    for mix in (*claim.TASKS, *claim.LARGER):
        monkeypatch.setitem(mix, "limits", {**mix["limits"], "max_tokens": 4, "turns": 2, "steps": 1, "repairs": 0})
    made: list[str] = []

    def in_turn(part: Callable[..., Any], given: Sequence[tuple[Any, ...]], *, at_once: int = 1) -> None:
        for args in given:
            if not _language.is_made(args[0]):
                made.append(args[0].name)
                if made.count("one-turn-3-0-0") == 1 and made[-1] == "one-turn-3-0-0":
                    raise KeyboardInterrupt
                part(*args)

    for module in (_starts, claim):
        monkeypatch.setattr(module, "side_by_side", in_turn)
    with pytest.raises(KeyboardInterrupt):
        list(claim.planning(seed=3, seeds=1))
    rows = {row.name: row.value for row in claim.planning(seed=3, seeds=1)}
    larger = [f"{name}-larger" for name in ("start-3-0", *(f"{tag}-3-0-0" for tag in ARMS.values()))]
    first = ["start-3-0", "one-team-3-0-0", "one-turn-3-0-0"]
    assert made == [*first, "one-turn-3-0-0", "role-team-3-0-0", "role-turn-3-0-0", *larger]
    for arm in ARMS:
        assert rows[f"{arm}: calls of a team in the end"] >= 1
        assert all(0 <= rows[f"{name}: {arm}, solved, greedy"] <= 1 for name in ("T7", "T8"))
