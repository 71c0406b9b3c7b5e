"""Settings of a run in which a language model learns: what is done unless asked otherwise, and where a number stops being one."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from counterpoint.errors import CounterpointError, InputError, Refused
from counterpoint.lab.train.lm.methods import language_preset
from counterpoint.lab.train.lm.objective import Objective
from counterpoint.lab.train.lm.settings import Learn, is_fake, language_settings, named_in
from counterpoint.lab.train.preset import Preset


def made(**told: Any) -> Any:
    return language_settings({"model": "x", "task": [{"name": "T1"}], "learn": {"updates": 1}, **told})


def test_what_is_done_unless_asked_otherwise() -> None:
    assert made().as_dict() == {
        "model": "x", "seed": 0, "device": "cpu", "engine": "own", "adapters": "", "rank": 8, "preset": "",
        "task": [{"name": "T1", "set": {}, "topology": "centralized", "limits": {}, "share": 1, "cases": "", "reward": ""}],
        "prices": {"agent": 0.0, "call": 0.0, "token": 0.0, "second": 0.0},
        "imitate": {"demos": "fake:1", "options": {}, "where": "", "ids": [], "teams": 512, "keep": "all", "steps": 0, "seconds": 0.0,
                    "batch": 96, "lr": 3e-4, "warmup": 20},
        "learn": {"credit": ["group_relative"], "options": {}, "reward": {}, "balance": "sum", "normalise": "group", "updates": 1,
                  "seconds": 0.0, "groups": 16, "samples": 8, "tree": [], "resample": 1, "ahead": False, "temperature": 1.0, "steps": 4,
                      "recompute": False, "lr": 3e-5,
                  "last_rate": 1.0, "average": 0.0, "roles": [], "alternate": 0, "loss": "clip", "level": "token",
                  "log_max": 20.0, "weigh": "token",
                  "clip": [0.2, 0.28], "mask": [], "pull": 0.0, "cap": 2.0, "kl": "k3", "beta": 0.0,
                  "kl_limit": 0.0},
        "eval_every": 10, "eval_episodes": 32, "eval_first": 0, "is_eval_first": True, "is_greedy_too": False,
        "checkpoint_every": 10, "keep_traces": 2, "keep_episodes": 0, "runner": "processes", "workers": 0, "slots": 0,
        "tokens": 0, "context": 0,
    }  # fmt: skip
    assert Learn().objective() == Objective(
        level="token", clip_low=0.2, clip_high=0.28, dual=None, cap=2.0, mask=None, pull=0.0, beta=0.0, kl="k3"
    )
    odd = Learn(level="product", clip=(0.1, 0.4, 3.0), cap=0.0, mask=(-1.0, 2.0), pull=0.5, beta=0.25, kl="k2")
    assert odd.objective() == Objective(
        level="product", clip_low=0.1, clip_high=0.4, dual=3.0, cap=None, mask=(-1.0, 2.0), pull=0.5, beta=0.25, kl="k2"
    )
    paid = Learn(beta=0.25, kl="k1")
    assert paid.objective() == Objective(kl="k1")  # the reward has it


def test_held_out_tasks_end_where_those_begin_that_are_learned_on() -> None:
    assert made(eval_first=999_968).eval_first == 999_968
    with pytest.raises(InputError, match="eval_first: held-out tasks end at 1,000,001"):
        made(eval_first=999_969)


LEAST = {
    "seed": 0, "rank": 1, "eval_every": 1, "eval_episodes": 1, "eval_first": 0, "checkpoint_every": 1, "keep_traces": 0, "keep_episodes": 0, "workers": 0,
    "slots": 0, "tokens": 0, "context": 0,
}  # fmt: skip


@pytest.mark.parametrize("name", LEAST)
def test_a_number_begins_at_its_least(name: str) -> None:
    assert getattr(made(**{name: LEAST[name]}), name) == LEAST[name]
    with pytest.raises(InputError, match=f"{name} is {LEAST[name] - 1}.*{LEAST[name]} (or more|to)"):
        made(**{name: LEAST[name] - 1})


@pytest.mark.parametrize(
    ("table", "name", "fine", "wrong"),
    [
        ("imitate", "teams", [1], [0]), ("imitate", "batch", [1], [0]), ("imitate", "lr", [1e-9, 1.0], [0.0, 1.01]),
        ("imitate", "warmup", [0], [-1]), ("imitate", "steps", [0], [-1]), ("imitate", "seconds", [0.0], [-1.0]),
        ("learn", "groups", [1], [0]), ("learn", "samples", [2], [1, 0]), ("learn", "steps", [1], [0]),
        ("learn", "alternate", [0], [-1]), ("learn", "clip", [[0.0, 0.0], [1.0, 5.0], [0.2, 0.2, 1.5]], [[0.2], [-0.1, 0.2], [1.1, 0.2], [0.2, -0.1], [0.2, 0.2, 1.0]]), ("learn", "last_rate", [0.01, 1.0], [0.0, 1.01]),
        ("learn", "kl_limit", [0.0, 0.5], [-0.1]), ("learn", "average", [0.0, 0.99], [-0.1, 1.0]), ("learn", "lr", [1.0], [0.0, 1.01]),
        ("learn", "temperature", [0.01, 9.0], [0.0, float("inf")]), ("learn", "seconds", [0.0, 9.0], [-1.0]),
        ("learn", "mask", [[], [-1.0, 1.0]], [[-1.0], [0.5, 1.0], [-1.0, 0.0, 1.0]]),
        ("prices", "agent", [0.0, 2.0], [-0.1, float("inf")]), ("prices", "token", [0.0], [-0.1]),
    ],
)  # fmt: skip
def test_edges_of_the_tables(table: str, name: str, fine: list[Any], wrong: list[Any]) -> None:
    usual = {"learn": {"updates": 1}}.get(table, {})
    for value in fine:
        found = getattr(getattr(made(**{table: {**usual, name: value}}), table), name)
        assert (list(found) if isinstance(found, tuple) else found) == value
    for value in wrong:
        with pytest.raises(CounterpointError):
            made(**{table: {**usual, name: value}})


@pytest.mark.parametrize(
    ("told", "error"),
    [
        ({"learn": {"updates": 0}}, "nothing to learn"),
        ({"learn": {"updates": 0, "samples": 1}, "imitate": {"steps": 1}}, None),
        ({"learn": {"updates": 0, "seconds": 1.0}}, None),
        ({"learn": {"updates": 0}, "imitate": {"seconds": 1.0}}, None),
        ({"task": []}, "no task to play"),
        ({"learn": {"updates": 1, "samples": 1}}, "nothing to be compared with"),
        ({"learn": {"seconds": 1.0, "samples": 1}}, "nothing to be compared with"),
        ({"learn": {"updates": 1, "credit": []}}, "no credit mechanism is named"),
        ({"learn": {"credit": []}, "imitate": {"steps": 1}}, None),
        ({"learn": {"updates": 1, "kl_limit": 0.1, "loss": "sft"}}, "kl_limit is 0.1"),
        ({"task": [{"name": "T1", "share": 0}]}, "task.share is 0"),
        ({"learn": {"updates": 1, "credit": ["message_delete"]}}, "message_delete needs forks"),
        ({"learn": {"updates": 1, "credit": ["difference"]}}, None),
        ({"learn": {"updates": 1, "options": {"gae": {}}}}, "options for 'gae', which this run does not use"),
        ({"learn": {"updates": 1, "options": {"group_relative": {"convetion": "rloo"}}}}, "has no option 'convetion'.*did you mean 'convention'"),
        ({"modle": "y"}, "no setting modle.*did you mean 'model'"),
        ({"learn": {"update": 1}}, r"no setting learn\.update"),
        ({"task": [{"nam": "T1"}]}, r"no setting task\.nam"),
        ({"rank": "eight"}, "rank: expected `int`"),
        ({"learn": {"updates": 1, "kl": "k4"}}, r"learn\.kl: invalid enum value 'k4'"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_one_clear_error(told: dict[str, Any], error: str | None) -> None:
    if error is None:
        made(**told)
        return
    with pytest.raises(InputError, match=error):
        made(**told)
    with pytest.raises(InputError, match="model is missing"):
        language_settings({"task": [{"name": "T1"}]})


def test_a_team_has_its_tasks_dials_and_limits() -> None:
    mix = made(task=[{"name": "T1", "set": {"documents": 24}, "limits": {"width": 3}}]).task[0]
    spec = mix.spec(7, "engine", {"explore": 0.5})
    assert (spec.task, spec.seed, spec.model, spec.config, spec.options) == ("ledger_hunt", 7, "engine", {"documents": 24}, {"explore": 0.5})
    assert (spec.limits.width, spec.limits.max_tokens) == (3, 96)
    assert mix.spec(0, "fake:1").options == {}


def test_what_may_be_code_from_outside_is_named() -> None:
    told = {"preset": "p", "task": [{"name": "n", "topology": "t", "share": 2}, "odd"],
            "learn": {"credit": ["c1", "c2"], "reward": {"r": {}}}}  # fmt: skip
    assert named_in(told) == ["p", "n", "t", "c1", "c2", "r"]
    assert named_in({"learn": {"credit": "c"}}) == ["c"]
    assert named_in({"task": 3, "learn": 4}) == []
    assert [is_fake(x) for x in ("fake:0.7", "fake", "faked:1", "stores/fake")] == [True, True, False, False]


def minimised(loss: dict[str, Any], **more: Any) -> dict[str, Any]:
    told = {"source": "a test", "grade": "M", "departures": "none", "credit": {"group_relative": {}}, "learns": ("lm",), "regime": "B", **more}
    return dict(language_preset(Preset(loss=loss, **told), "mine"))


CLIP = {"clip": [0.2, 0.2], "level": "token", "beta": 0.0, "kl": "k3", "pull": 0.0, "weigh": "token"}


@pytest.mark.parametrize(
    ("loss", "wanted"),
    [
        ({"clip": {}}, CLIP),
        ({"clip": {"clip": 0.1}}, CLIP | {"clip": [0.1, 0.1]}),
        ({"clip": {"clip_high": 0.3}}, CLIP | {"clip": [0.2, 0.3]}),
        ({"clip": {"dual": 3, "level": "turn", "kl_weight": 0.5, "kl": "k1", "kl_in": "reward", "pull": 0.25}},
         CLIP | {"clip": [0.2, 0.2, 3.0], "level": "geometric", "beta": 0.5, "kl": "k1", "pull": 0.25, "weigh": "turn"}),
        ({"clip": {"level": "sequence"}}, CLIP | {"level": "geometric"}),
        ({"clip": {"mask_low": -0.5}}, CLIP | {"mask": [-0.5, 10.0]}),
        ({"clip": {"mask_high": 0.5}}, CLIP | {"mask": [-10.0, 0.5]}),
        ({"clip": {"weigh": "rollout", "log_max": 3, "scale": False}}, CLIP | {"weigh": "rollout", "log_max": 3.0}),
        ({"reinforce": {}}, {"steps": 1, "cap": 0.0, "level": "none"}),
        ({"reinforce": {"steps": 8, "scale": False}}, {"steps": 8, "cap": 0.0, "level": "none"}),
        ({"sft": {}}, {"loss": "sft"}),
        ({"dpo": {"beta": 0.3}}, {"loss": "dpo", "beta": 0.3}),
    ],
)  # fmt: skip
def test_presets_say_what_an_update_minimises(loss: dict[str, Any], wanted: dict[str, Any]) -> None:
    usual = {"credit": ["group_relative"], "options": {}, "alternate": 0}
    found = minimised(loss, group=1)
    assert found == {"adapters": "", "learn": usual | wanted}


def test_a_fixed_team_is_a_topology_in_which_nobody_spawns() -> None:
    run: dict[str, Any] = {"model": "x", "learn": {"updates": 1}, "preset": "dec_pomdp"}
    assert language_settings({**run, "task": [{"name": "T1"}]}).task[0].topology == "debate"
    assert language_settings({**run, "task": [{"name": "T1"}], "preset": "grpo"}).task[0].topology == "centralized"
    with pytest.raises(Refused, match=r"for a team that nobody spawns.*topology = debate"):
        language_settings({**run, "task": [{"name": "T1", "topology": "centralized"}]})


def test_presets_say_who_learns_and_from_what() -> None:
    assert minimised({"clip": {}}, group=6)["learn"]["samples"] == 6
    assert "samples" not in minimised({"clip": {}}, group=1)["learn"]
    frozen = minimised({"clip": {}}, regime="A")
    assert (frozen["adapters"], frozen["learn"]["roles"]) == ("role", ["orchestrator"])
    apart = minimised({"clip": {}}, regime="C")
    assert (apart["adapters"], "roles" in apart["learn"]) == ("role", False)
    paid = minimised({"clip": {}}, reward={"team_outcome": {"weight": 0.5}}, balance="gdpo")["learn"]
    assert (paid["reward"], paid["balance"]) == ({"team_outcome": {"weight": 0.5}}, "gdpo")
    assert "reward" not in minimised({"clip": {}})["learn"]
    with pytest.raises(Refused, match="balances rewards by gradient"):
        minimised({"clip": {}}, balance="gradient")
    with pytest.raises(Refused, match="for networks only"):
        minimised({"soft": {}})
    with pytest.raises(Refused, match="for networks only"):
        minimised({"clip": {}}, learns=("network",))
