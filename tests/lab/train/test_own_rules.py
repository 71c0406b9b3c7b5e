"""Networks learn in worlds with rules of their own: rows, credit, log-probabilities, whole runs, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.lab.train.ferry_world import broken, ferry  # noqa: E402
from tests.lab.train.quick import numbers, same  # noqa: E402

from counterpoint.errors import InputError, Refused  # noqa: E402
from counterpoint.lab.train import options  # noqa: E402
from counterpoint.lab.train.evaluate import policy_of  # noqa: E402
from counterpoint.lab.train.jobs import play  # noqa: E402
from counterpoint.lab.train.learner import _placed, log_probs, rows_of  # noqa: E402
from counterpoint.lab.train.policies.network import Network  # noqa: E402
from counterpoint.lab.train.preset import Preset, named_preset  # noqa: E402
from counterpoint.lab.train.rollouts import TracedRollout, merge_rollouts  # noqa: E402
from counterpoint.lab.train.row_credit import _Book, _is_idle, assigned  # noqa: E402
from counterpoint.lab.train.run import train_run  # noqa: E402
from counterpoint.lab.train.surrogates import Steps  # noqa: E402
from counterpoint.lab.worlds.rules.decision import KINDS, Arrays, Decision, Sizes  # noqa: E402
from counterpoint.lab.worlds.world import Optimum  # noqa: E402

FERRY = "tests.lab.train.ferry_world:ferry"
CONFIG: dict[str, Any] = {
    "preset": "grpo", "world": FERRY, "set": {"rounds": 1}, "updates": 4, "eval_every": 2, "eval_episodes": 8, "checkpoint_every": 1,
    "keep_traces": 1,
}  # fmt: skip


def _net() -> Network:
    torch.manual_seed(0)
    return Network(extra=options.heads(options.sizes_of(ferry)))


def _played(seeds: list[int], *, log: bool = False, net: Network | None = None) -> TracedRollout:
    net = _net() if net is None else net
    weights = {name: value.numpy() for name, value in net.state_dict().items()}
    payload = {
        "world": FERRY, "set": {}, "seeds": np.array(seeds), "salts": np.arange(1, 1 + len(seeds)), "apart": False, "log": log,
        "goes_on": False, "name": "test",
    }  # fmt: skip
    return play(payload, weights)


def test_a_row_by_hand() -> None:
    """Kind, state and option of every option, as sign(x) log(1 + |x|); what there is not is masked."""
    names, kind = ("a", "b"), KINDS.index("stop")
    wide = Decision(kind="stop", state=[0.0, -1.0], options=[[1.0], [3.0]], names=names)
    thin = Decision(kind="spawn", state=[2.0, 0.0], options=[[7.0]], names=names[:1])
    arrays = [Arrays(d, np.array(d.state, np.float32), np.array(d.options, np.float32)) for d in (wide, thin)]
    x, mask = options._rows(arrays)
    assert x.shape == (2, 2, len(KINDS) + 3)
    assert mask.tolist() == [[True, True], [True, False]]
    assert x[0, 1, kind] == np.float32(np.log(2))
    assert x[0, :, len(KINDS) + 1].tolist() == [-np.float32(np.log(2))] * 2
    assert x[0, :, -1].tolist() == [np.float32(np.log(2)), np.float32(np.log(4))]
    assert x[1, :, -1].tolist() == [np.float32(np.log(8)), 0.0]


def test_rows_add_up_and_are_what_the_network_says() -> None:
    """Every decision is a row, the log-probability that was drawn with is the trainer's, and parts merge to the whole."""
    seeds = [3, 3, 8, 21]
    net = _net()
    whole, first, last = (_played(s, net=net).rollout for s in (seeds, seeds[:1], [8]))
    t = whole.tables["option"]
    assert whole.gap() == 0
    assert whole.decisions == len(t["ep"]) == whole.columns["rounds"].sum() + whole.columns["calls"].sum() == whole.charged
    assert np.allclose(whole.to_go("option")[t["round"] == 0], whole.values)
    with torch.no_grad():
        logp, entropy = log_probs(net, whole.tables)
    assert np.abs(logp["option"].numpy() - t["logp"]).max() < 1e-5
    assert (entropy["option"] >= -1e-6).all()
    assert (t["mask"][np.arange(len(t["choice"])), t["choice"]]).all()
    merged = merge_rollouts([first, last]).tables["option"]
    rows = {ep: t["x"][t["ep"] == ep] for ep in (0,)}
    width = first.tables["option"]["x"].shape[1]
    assert np.array_equal(merged["x"][merged["ep"] == 0][:, :width], rows[0][:, :width])
    assert set(merged["ep"]) == {0, 1}


def test_the_same_job_gives_the_same_rows_and_traces() -> None:
    one, two = (_played([5, 5], log=True) for _ in range(2))
    assert all(np.array_equal(one.rollout.tables["option"][k], two.rollout.tables["option"][k]) for k in one.rollout.tables["option"])
    assert [t.trace_id for t in one.traces] == [t.trace_id for t in two.traces]
    assert len({t.trace_id for t in one.traces}) == 2
    assert one.traces[0] != one.traces[1], "two salts draw differently"


def test_credit_lands_on_the_rows_of_its_unit() -> None:
    """Credit of the team is that of all rows; of agents, each agent's own; the orchestrator's never goes to a ferry."""
    net = _net()
    played = _played([3, 3, 3, 3], log=True, net=net)
    t, values = played.rollout.tables["option"], played.rollout.values
    by_team = assigned(named_preset("grpo"), played.rollout, played.traces, net, progress=0.0)
    found = by_team.advantages["option"]
    assert by_team.uncovered == {}
    expected = (values - values.mean())[t["ep"]]
    assert np.corrcoef(found, expected)[0, 1] == pytest.approx(1)
    by_agent = Preset(source="t", grade="M", departures="none", credit={"uniform": {}}, loss={"clip": {}})
    got = assigned(by_agent, played.rollout, played.traces, net, progress=0.0).advantages["option"]
    agents = played.rollout.columns["agents"] + 1
    assert np.allclose(got, (values / agents)[t["ep"]])


def test_the_most_specific_credit_counts() -> None:
    """Event, turn, agent, role, orchestrator (the lead's alone), team; what is refused gets nothing from coarser units."""
    (trace,) = _played([3], log=True).traces
    made = {e.turn: e for e in trace.events if e.options}
    lead, ferry_ = made[0], made[1]
    assert (lead.agent, ferry_.agent, ferry_.role) == ("orchestrator", "ferry-0", "ferry")
    book = _Book(trace)
    assert np.isnan(book.option(0))
    for of_lead, of_ferry, unit, id_ in (
        (1, 1, "team", ""), (2, 1, "orchestrator", "orchestrator"), (2, 3, "role", "ferry"), (2, 4, "agent", "ferry-0"),
        (2, 5, "turn", "ferry-0#1"), (6, 5, "turn", "orchestrator#0"), (6, 7, "message", ferry_.id), (8, 7, "message", lead.id),
    ):  # fmt: skip
        book.put(unit, id_, max(of_lead, of_ferry) if unit != "team" else 1)
        assert (book.option(0), book.option(1)) == (of_lead, of_ferry), unit
    refused = _Book(trace)
    refused.refuse(ferry_.id)
    refused.put("team", "", 1.0)
    assert refused.option(0) == 1
    assert np.isnan(refused.option(1))


def test_rows_know_their_agent_and_an_ended_episode_keeps_its_value() -> None:
    out = _played([3, 8, 21]).rollout
    t = out.tables["option"]
    assert (out.value_TE[-1] == out.values).all()
    for ep in range(3):
        mine, last = t["agent"][t["ep"] == ep], int(out.columns["agents"][ep])
        assert mine[0] == 0
        assert {*mine.tolist()} == {*range(1 + last)}
    rows = rows_of(out.tables, {"option": np.ones(len(t["ep"]))})
    placed = _placed(out.tables, rows, Steps(weigh="agent"), None)["option"]
    assert placed.who is not None
    assert np.array_equal(placed.who, t["agent"][placed.at])
    assert not _is_idle(dataclasses.replace(out, columns=out.columns | {"calls": np.zeros(3)}), []), "no credit is an error here"


def test_a_critic_learns_the_returns_to_go() -> None:
    """V of the prefix is what was paid so far and what it expects: after fits nearer to the returns than the mean is."""
    net = _net()
    out = _played([*range(40)], net=net).rollout
    optimizer = torch.optim.Adam(net.critic_parameters(), lr=3e-3)
    rng = np.random.default_rng(0)
    t, before = out.tables["option"], [p.clone() for p in net.policy_parameters()]
    for _ in range(20):
        options.fit_values(net, optimizer, out, rng)
    known = options.prefix_values(net, out)[t["round"], t["ep"]]
    final = out.values[t["ep"]]
    assert ((final - known) ** 2).mean() < 0.8 * final.var()
    assert all(torch.equal(a, b) for a, b in zip(before, net.policy_parameters(), strict=True)), "the critic's fit moves no policy"


@pytest.mark.parametrize("preset", ["grpo", "ppo", "dr_mas"])
def test_a_network_learns_in_a_world_that_is_no_template(preset: str, tmp_path: Path) -> None:
    """Above the untrained one by more than the interval, on the same held-out seeds."""
    config = CONFIG | {"preset": preset, "updates": 15, "eval_every": 15, "eval_episodes": 40}
    run = train_run(tmp_path / "run", config)
    first, last = (np.array(row["values"]) for row in (run.evals()[0], run.evals()[-1]))
    gain = last - first
    assert gain.mean() - 1.96 * gain.std(ddof=1) / len(gain) ** 0.5 > 500.0
    assert last.mean() > 1.5 * ferry.replace(rounds=1).run("random", range(40)).values.mean()
    best = ferry.replace(rounds=1).optimum().value
    assert last.mean() < 1.1 * best
    assert run.about["optimum"]["value"] == pytest.approx(best)
    policy = policy_of(run, allow=[FERRY])
    assert np.array_equal(ferry.replace(rounds=1).run(policy, range(40)).values, last), "the policy of the run plays as it was evaluated"


def test_a_run_that_was_interrupted_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    train_run(whole, CONFIG)

    def interrupt(kind: str, row: Any) -> None:
        if kind == "checkpoint" and row["update"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(tmp_path / "part", CONFIG, progress=interrupt)
    assert len(numbers(tmp_path / "part")[0]) == 2
    train_run(tmp_path / "part", {}, resume=True, allow=[FERRY])
    same(whole, tmp_path / "part")


def test_every_preset_either_learns_or_is_refused_with_those_that_do(tmp_path: Path) -> None:
    """Nothing is written for one that is refused; those that the error names run."""
    assert {"grpo", "ppo", "magrpo"} <= set(options.presets())
    for name in ("counterpoint", "qmix", "coma", "difference_rewards", "malt", "sirius", "kimi_parl", "spiral", "at_grpo"):
        with pytest.raises(Refused, match=f"preset {name} cannot learn in ferry, a world with rules of its own.*grpo") as told:
            train_run(tmp_path / "no", CONFIG | {"preset": name})
        assert told.value.why
    with pytest.raises(Refused, match="forks is for a TeamWorld") as told:
        train_run(tmp_path / "no", CONFIG | {"change": {"forks": 0.5}})
    assert not (tmp_path / "no").exists()
    for name in options.presets():
        row = train_run(tmp_path / name, CONFIG | {"preset": name, "updates": 1, "eval_episodes": 2}).metrics()[-1]
        assert row["decisions"] > 0, name


def test_recorded_traces_are_refused(tmp_path: Path) -> None:
    run = train_run(tmp_path / "run", CONFIG | {"updates": 1})
    with pytest.raises(Refused, match="recorded traces of such worlds cannot be learned from yet"):
        train_run(tmp_path / "log", CONFIG | {"store": str(run.path / "store")})


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"reward": float("nan")}, "the reward is nan"), ({"options": []}, "the decision has no option"),
        ({"state": [1.0]}, "the state has 1 numbers and an option 2; before it was 3 and 2"), ({"raises": OSError("wet")}, "OSError: wet"),
    ],
)  # fmt: skip
def test_a_world_that_breaks_ends_the_run_with_one_error(
    wrong: dict[str, Any], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tests.lab.train.ferry_world as module

    monkeypatch.setattr(module, "leak", broken(**wrong), raising=False)
    with pytest.raises(InputError, match=f"(?s)world broken, seed [0-9]+, decision [0-9]+: .*{says}"):
        train_run(tmp_path / "run", CONFIG | {"world": "tests.lab.train.ferry_world:leak"})


def test_variants_of_one_world_are_played_in_turn(tmp_path: Path) -> None:
    run = train_run(tmp_path / "run", CONFIG | {"mix": [{"rounds": 1}, {"rounds": 2}]})
    agents = run.evals()[-1]["rounds"]
    assert max(agents[0::2]) <= 2 < max(agents[1::2])
    assert run.about["hand_made"]["largest"] > run.about["hand_made"]["random"]


def test_a_world_must_have_a_config_and_ask_decisions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tests.lab.train.ferry_world as module

    monkeypatch.setattr(module, "bare", dataclasses.replace(ferry, config=None), raising=False)
    with pytest.raises(InputError, match=r"the config of .*:bare is a NoneType, not a dataclass"):
        train_run(tmp_path / "run", CONFIG | {"world": "tests.lab.train.ferry_world:bare", "set": {}})
    with pytest.raises(InputError, match=r"coin_world cannot be trained in.*has no decision\(\)"):
        train_run(tmp_path / "run", CONFIG | {"world": "tests.lab.worlds.coin_world:coin_world", "set": {}})
    assert options.net_sizes(_net()) == Sizes(3, 2)
    assert isinstance(ferry.optimum(), Optimum)


class Alone:
    """Three decisions with one option each, all by the lead."""

    def __init__(self, config: Any, seed: int) -> None:
        self.made = 0

    def decision(self) -> Decision | None:
        return None if self.made == 3 else Decision(kind="stop", state=[1.0], options=[[0.0]], names=["go on"])

    def act(self, option: int) -> float:
        self.made += 1
        return 1.0


@pytest.mark.parametrize("preset", ["grpo", "ppo"])
def test_who_has_nothing_to_choose_learns_nothing_and_nobody_to_call_is_no_collapse(
    preset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tests.lab.train.ferry_world as module

    monkeypatch.setattr(module, "alone", dataclasses.replace(ferry, name="alone", begin=Alone), raising=False)
    config = {"world": "tests.lab.train.ferry_world:alone", "set": {}, "preset": preset, "updates": 2}
    run = train_run(tmp_path / "run", CONFIG | config)
    assert (run.about["status"], run.about["collapsed"]) == ("finished", False)
    assert [row["mean"] for row in run.evals()] == [3.0, 3.0]
    assert all(row["entropy"] == {} and row["loss"] == 0 for row in run.metrics())
