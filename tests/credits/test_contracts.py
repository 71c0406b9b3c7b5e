"""What every mechanism promises before any number: its unit, its options and their defaults, and laws that hold for all."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from typing import Any

import pytest
from msgspec.structs import replace

import counterpoint.credits
from counterpoint import registry
from counterpoint.credits.accounts import LedgerEntry
from counterpoint.credits.doubly_robust import Ridge
from counterpoint.credits.games import Game, VoteGame
from counterpoint.credits.groups import CONVENTIONS, Convention
from counterpoint.credits.mechanism import Mechanism, team_reward
from counterpoint.credits.mechanisms.message_amortised import Weights
from counterpoint.credits.team_games import TraceGame
from counterpoint.errors import InputError
from counterpoint.trace import Event, Trace
from counterpoint.trace.batch import TraceBatch
from credits.published_made import said, team

BOTH = ("message", "return")
FORKS = {"replay": None, "seed": 0, "coupled": True, "channel": "team"}
GROUP = {"key": "task_id", "channel": "team", "singleton": None}
WORTH = {"worth": None, "replay": None, "tie": 0.5}
GAMES = "worth or replay, unless the trace holds scored votes"
DRAFTS = "critic, unless drafts are scored"
# id: (unit, whether rows add up, what it needs, options with their defaults)
PROMISES: dict[str, tuple[str, bool, tuple[str, ...], dict[str, Any]]] = {
    "agent_lightning": ("turn", False, ("group",), {"convention": "verl", "unit": "turn", **GROUP}),
    "agent_wise": (
        "agent",
        False,
        ("group",),
        {"by": "agent", "convention": "grpo", "signals": None, "ddof": None, "eps": None, "count": None, "state": False, **GROUP},
    ),
    "agreement": ("message", False, ("claims",), {"first": False}),
    "c3": (
        "message",
        False,
        ("group", "contents"),
        {
            "mode": "reward_only",
            "by": "action",
            "q": None,
            "alpha": 1.0,
            "baseline": "leave_one_out",
            "normalise": False,
            "replay": True,
            "sample": None,
            **GROUP,
            "singleton": "zero",
        },
    ),
    "coma": ("orchestrator", False, ("critic", "options"), {"q": None, "pi": None}),
    "cone": ("message", False, (DRAFTS,), {"value": None, "q": None, "discount": 1.0, "over": "cone", "channel": "team"}),
    "critical_steps": ("orchestrator", False, ("group",), {"budget": None, "convention": "dr_grpo", **GROUP}),
    "difference": ("agent", False, ("replay",), {"replay": None, "counterfactual": None, "unit": "agent", "also": (), "channel": "team"}),
    "fold_grpo": (
        "message",
        False,
        ("group",),
        {
            "process": None,
            "context_limit": None,
            "out_of_scope": None,
            "scope": None,
            "int8": False,
            "rescale": None,
            "ddof": 0,
            "key": "task_id",
            "channel": "team",
        },
    ),
    "gae": (
        "message",
        False,
        ("critic",),
        {"value": None, "preset": "plain", "gamma": None, "lam": None, "chain": None, "normalise": None, "channel": "team", "signals": None, "by": "action"},
    ),
    "group_relative": (
        "team",
        False,
        ("group",),
        {"convention": "grpo", "unit": "team", "size": None, "ddof": None, "eps": None, "tau": 0.1, **GROUP},
    ),
    "hierarchical": (
        "agent",
        False,
        ("group",),
        {"convention": "m_grpo", "sub": "task", "d": None, "seed": 0, "signals": None, **GROUP},
    ),
    "ledger": (
        "message",
        True,
        (DRAFTS,),
        {"value": None, "q": None, "extensions": 0, "seed": 0, "unit": "message", "channel": "team"},
    ),
    "magrpo": ("turn", False, ("group",), {"mode": "aligned", "convention": "comlrl", "gamma": 0.9, **GROUP}),
    "malt": (
        "message",
        False,
        ("group", "contents"),
        {"threshold": 0.5, "key": "task_id", "channel": "team", "sample": None, "by": "action", "leaf": "reward"},
    ),
    "marft": ("message", False, ("critic",), {"value": None, "gamma": 0.99, "lam": 0.95, "normalise": True, "channel": "team"}),
    "mars2": (
        "message",
        False,
        ("contents", "event rewards"),
        {"shape": False, "gain": 0.5, "mix": 0.5, "convention": "marti", "sample": None, "by": "action", **GROUP},
    ),
    "marshal": ("turn", False, ("turns",), {"form": "plain", "gamma": 1.0, "key": "task_id", "channel": "team"}),
    "marsrl": ("message", False, ("group", "contents"), {"convention": "grpo", "signals": None, "sample": None, "inputs": "same", "others": None, **GROUP}),
    "matpo": ("agent", False, ("group",), {"convention": "verl", **GROUP}),
    "message_amortised": (
        "message",
        False,
        ("weights",),
        {
            "weights": None,
            "replay": None,
            "k": 0,
            "seed": 0,
            "rule": "majority",
            "verify": None,
            "start": None,
            "types": BOTH,
            "channel": "team",
        },
    ),
    "message_delete": ("message", False, ("replay",), {"k": 1, "types": BOTH, "ids": None, **FORKS}),
    "message_logged": (
        "message",
        False,
        ("group",),
        {
            "contrast": "sent",
            "value": "effect",
            "types": BOTH,
            "ids": None,
            "propensity_features": None,
            "propensity": "estimate",
            "folds": 5,
            "penalty": 1.0,
            "key": "task_id",
            "channel": "team",
        },
    ),
    "message_masked": (
        "message",
        False,
        (),
        {"rule": "majority", "verify": None, "start": None, "types": BOTH, "ids": None},
    ),
    "message_substitute": ("message", False, ("replay",), {"k": 1, "types": ("return",), "ids": None, **FORKS}),
    "peer_split": (
        "agent",
        False,
        ("group",),
        {"give": "advantage", "ratings": None, "lam": 0.2, "self_weight": 0.3, "threshold": 0.5, **GROUP},
    ),
    "puppeteer": (
        "orchestrator",
        False,
        (),
        {"lam": 0.1, "gamma": 0.99, "phi": 4.0, "by": "steps", "channel": "team", "form": "paper", "most": 4, "factors": None},
    ),
    "qmix": ("agent", False, ("critic",), {"q": None, "mixer": None, "by": "agent"}),
    "rema": ("turn", False, ("group", "turns"), {"convention": "verl", **GROUP}),
    "remerge": ("agent", True, ("merges",), {"merged": None, "orders": 64, "seed": 0}),
    "shapley": ("agent", True, (GAMES,), {"value": "auto", "orders": None, "stop_se": None, "seed": 0, **WORTH}),
    "shapley_q": ("agent", False, ("critic",), {"marginal": None, "orders": 16, "seed": 0}),
    "sharp": (
        "agent",
        False,
        (GAMES, "group for give='advantage'"),
        {"give": "reward", "lambda_s": 0.5, "lambda_p": 0.1, "ddof": 1, "eps": 1e-06, "event": "size", "scale": True, **WORTH},
    ),
    "spawn": (
        "orchestrator",
        False,
        ("logp", "replay"),
        {
            "estimator": "forks",
            "k": 2,
            "action": None,
            "value": "advantage",
            "leaf": None,
            "bandwidth": None,
            "folds": 5,
            "penalty": 1.0,
            **FORKS,
        },
    ),
    "spiral": (
        "role",
        False,
        (),
        {"decay": 0.95, "start": 0.0, "by": "role", "key": "task_id", "channel": "team", "signals": None},
    ),
    "step_pairs": (
        "message",
        False,
        ("critic, unless steps are scored",),
        {"critic": None, "signals": None},
    ),
    "stop": (
        "orchestrator",
        False,
        ("logp", "drafts", "replay"),
        {
            "estimator": "drafts",
            "value": None,
            "k": 2,
            "propensity_features": None,
            "propensity": "logged",
            "leaf": None,
            "bandwidth": None,
            "folds": 5,
            "penalty": 1.0,
            **FORKS,
        },
    ),
    "token_spread": ("token", True, ("credit", "tokens"), {"credit": None, "weights": "even"}),
    "tool_call": ("tool", False, ("replay",), {"estimator": "delete", "k": 1, "ids": None, **FORKS}),
    "provenance": ("message", True, ("contents",), {"result": None, "unit": "all"}),
    "uniform": ("agent", True, (), {"unit": "agent", "by": "equal", "channel": "team"}),
    "task_returns": ("message", False, ("critic",), {"value": None, "steps": None, "lam": 0.9, "left": False, "channel": "team"}),
    "vdn": ("agent", True, ("critic",), {"q": None, "channel": "team"}),
    "vtrace": (
        "orchestrator",
        False,
        ("logp",),
        {"target": None, "value": None, "gamma": 1.0, "rho_bar": 1.0, "c_bar": 1.0, "lam": 1.0, "channel": "team"},
    ),
    "wideseek": ("agent", False, ("group",), {"convention": "rlinf", **GROUP}),
    "winter": ("agent", True, (GAMES,), {"orders": None, "stop_se": None, "seed": 0, **WORTH}),
}


MECHANISMS = {name: registry.get("mechanism", name) for name in registry.ids("mechanism")}


def defaults_of(name: str) -> dict[str, Any]:
    """The options of a mechanism as it declares them, with their defaults."""
    return {n: p.default for n, p in inspect.signature(MECHANISMS[name].run).parameters.items() if n != "traces"}


def test_no_promise_is_dropped() -> None:
    assert set(PROMISES) <= set(MECHANISMS)


@pytest.mark.parametrize("name", MECHANISMS)
def test_options_have_names_and_defaults(name: str) -> None:
    """Whoever wrote it; what costs nothing asks for no replay, critic or forks."""
    mechanism = MECHANISMS[name]
    parameters = inspect.signature(mechanism.run).parameters
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for n, p in parameters.items() if n != "traces")
    assert mechanism.options == list(defaults_of(name))
    if mechanism.cost == "nothing":
        assert not {"replay", "critic", "weights"} & {*mechanism.needs, *mechanism.options}


@pytest.mark.parametrize("name", PROMISES)
def test_unit_needs_options_and_defaults(name: str) -> None:
    mechanism = MECHANISMS[name]
    unit, is_additive, needs, defaults = PROMISES[name]
    assert (mechanism.unit, mechanism.additive, mechanism.needs) == (unit, is_additive, needs)
    assert {n: d for n, d in defaults_of(name).items() if not inspect.isfunction(d)} == defaults


# functions of the package whose options may stand without their names
BY_PLACE = {
    "doubly_robust.outcome_models",
    "logged_effects.task_features",
    "games.table",
    "groups.group_advantages",
    "masked_replay.majority",
    "masked_replay.votes_of",
    "masked_replay.worth_of",
    "mechanism.team_reward",
    "forks.messages_of",
    "doubly_robust.ridge",
    "rows.paid_steps",
    "rows.values_of",
    "rows.tree_of",
    "team_games.exact_votes",
    "team_games.vote_game",
    "cone.cone_sums",
    "ledger.doob",
    "sharp.normalised",
}
MODULES = [importlib.import_module(m.name) for m in pkgutil.walk_packages(counterpoint.credits.__path__, "counterpoint.credits.")]


def test_options_are_given_by_name() -> None:
    """A mechanism that promised nothing here, a new one, says so itself: its run is looked at above."""
    found = set()
    for module in MODULES:
        if ".mechanisms." in module.__name__ and module.__name__.rpartition(".")[2] not in PROMISES:
            continue
        for name, function in vars(module).items():
            if not inspect.isfunction(function) or function.__module__ != module.__name__ or name.startswith("_"):
                continue
            options = [p for p in inspect.signature(function).parameters.values() if p.default is not p.empty]
            if any(p.kind is not p.KEYWORD_ONLY for p in options if not (name == "parts_of" and p.name == "k")):
                found.add(f"{module.__name__.rpartition('.')[2]}.{name}")
    assert found == BY_PLACE


@pytest.mark.parametrize("kind", [Convention, LedgerEntry, Game, Mechanism, TraceGame, Ridge, VoteGame, Weights])
def test_what_is_handed_on_cannot_be_changed(kind: type) -> None:
    some = object.__new__(kind)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(some, dataclasses.fields(kind)[0].name, 1)


# -- laws ---------------------------------------------------------------------------------------------------------------


def rollouts(*, on_events: bool = False) -> list[Trace]:
    """Six rollouts of two tasks and one of a third; the channels `team` and `other` disagree."""
    out = []
    for i, (task, a, b) in enumerate(
        [("p", 1.0, 3.0), ("p", 0.0, 5.0), ("p", 0.25, 4.0), ("q", 1.0, 9.0), ("q", 0.5, 2.0), ("q", 0.0, 2.5), ("r", 0.5, 7.0)]
    ):
        steps: list[dict[str, Any]] = [
            {"type": "orchestrator_decision", "agent": "lead", "role": "lead", "decision": "spawn", "options": ["spawn", "noop"]},
            {"type": "spawn", "agent": "lead", "role": "lead", "to": "w"},
            said("w", role="worker"),
            said("lead", role="lead"),
        ]
        paid = {0: (a / 8, b / 4), 2: (a, b), 3: (b - a, a)} if on_events else {}
        events = [
            Event(
                id=f"e{k}",
                t=k,
                turn=k // 3,
                content_ref=f"{task}{0 if k < 2 else i}{k}",
                tokens_out=3 + k,
                logp=-0.5 - 0.1 * k,
                reward={"team": paid[k][0], "other": paid[k][1]} if k in paid else None,
                **{n: v for n, v in step.items() if v is not None},
            )
            for k, step in enumerate(steps)
        ]
        out.append(Trace(trace_id=f"t{i}", task_id=task, events=events, rewards={"team": a, "other": b}, system=f"s{i % 2}"))
    return out


def exchanged(trace: Trace) -> Trace:
    """The same with the two channels' names exchanged."""
    swap = lambda r: {"team": r["other"], "other": r["team"]} if r else r  # noqa: E731
    return replace(trace, rewards=swap(trace.rewards), events=[replace(e, reward=swap(e.reward)) for e in trace.events])


def given(name: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    known = MECHANISMS[name].options
    if "value" in known and name not in ("shapley", "spawn", "stop"):
        options["value"] = lambda t: [0.3, 0.1, 0.2, 0.6] + ([0.0] if name in ("cone", "ledger") else [])
    if name == "vdn":
        options["q"] = lambda t: {"lead": 0.3, "w": 0.1}
    if name == "vtrace":
        options["target"] = lambda t: {"e0": -0.25}
    if name == "difference":
        options["counterfactual"] = lambda t, unit_id: 0.5
    if name == "fold_grpo":
        options["rescale"] = "group"
    if "singleton" in known and name != "c3":
        options["singleton"] = "zero"
    return options


HELPLESS = {"message_amortised", "message_delete", "message_logged", "message_substitute", "spawn", "stop", "tool_call"}
CHANNELS = [n for n, (_, _, _, defaults) in PROMISES.items() if "channel" in defaults and n not in HELPLESS]


@pytest.mark.parametrize("on_events", [False, True])
@pytest.mark.parametrize("name", CHANNELS)
def test_a_channel_is_only_a_name(name: str, on_events: bool) -> None:
    mechanism, traces = MECHANISMS[name], rollouts(on_events=on_events or name == "mars2")
    other = mechanism(traces, channel="other", **given(name))
    same = mechanism([exchanged(t) for t in traces], **given(name))
    assert (other.rows, other.unidentified) == (same.rows, same.unidentified)
    assert (other.mechanism, other.trace_ids) == (name, tuple(f"t{i}" for i in range(7)))
    if name != "vdn":
        assert other.rows != mechanism(traces, **given(name)).rows
    else:
        assert other.notes == same.notes != mechanism(traces, **given(name)).notes


KEYED = [n for n, (_, _, _, defaults) in PROMISES.items() if "key" in defaults and n not in HELPLESS]


@pytest.mark.parametrize("name", KEYED)
def test_groups_are_by_task_unless_another_key_is_given(name: str) -> None:
    mechanism, traces = MECHANISMS[name], rollouts(on_events=name in ("mars2", "spiral", "marshal"))
    by_system = mechanism(traces, key="system", **given(name))
    relabelled = mechanism([replace(t, task_id=str(t.system)) for t in traces], **given(name))
    by_function = mechanism(traces, key=lambda t: t.system, **given(name))
    assert by_system.rows == relabelled.rows == by_function.rows
    assert by_system.rows != mechanism(traces, **given(name)).rows


@pytest.mark.parametrize("name", [n for n, p in PROMISES.items() if "convention" in p[3]])
def test_a_convention_and_a_rule_for_singletons_can_be_chosen(name: str) -> None:
    mechanism, traces = MECHANISMS[name], rollouts(on_events=name in ("mars2", "marsrl"))
    if name == "marsrl":  # every stage reads the task's own beginning here: compare the whole task
        traces = [replace(t, events=[e for e in t.events if e.id == "e2"]) for t in traces]
    plain = mechanism(traces, convention="dr_grpo", singleton="zero")
    assert plain.notes["baseline"] == "mean"
    assert (plain.notes["scale"], plain.notes["singleton"]) == ("none", "zero")
    last = [r.value for r in plain.rows if r.trace == 6]
    if name != "mars2":  # a tree of several nodes is no group of one
        assert last
        assert not any(last)
    scaled = mechanism(traces, convention=Convention(eps=0.5), singleton="zero")
    assert (scaled.notes["scale"], scaled.notes["eps"]) == ("std", 0.5)
    assert scaled.rows != plain.rows
    default = mechanism(traces, singleton="zero").notes
    assert default["eps"] == CONVENTIONS[PROMISES[name][3]["convention"]].eps
    if name != "mars2":
        refused = mechanism(traces, convention="dr_grpo", singleton="refuse")
        assert {i for i, _ in refused.unidentified} == {6}
        twice = {(6, "lead")} if name == "agent_wise" else set()  # called twice, it is compared with itself
        assert {(r.trace, r.unit_id) for r in refused.rows if r.trace == 6} == twice


def test_one_trace_a_list_and_a_batch_are_the_same_question() -> None:
    uniform, traces = MECHANISMS["uniform"], rollouts()
    assert uniform(traces[0]).rows == uniform([traces[0]]).rows == uniform(tuple(traces[:1])).rows
    assert uniform(TraceBatch.of(traces)).rows == uniform(traces).rows
    assert len({r.trace for r in uniform(traces).rows}) == 7


def test_a_reward_that_is_missing_or_no_number_names_trace_and_channel() -> None:
    trace = team("nine", 1.0, [said("a")])
    assert team_reward(trace) == 1.0
    with pytest.raises(InputError, match=r"no reward 'tean'.*did you mean 'team'") as error:
        team_reward(trace, "tean")
    assert error.value.where == "nine"
    with pytest.raises(InputError, match="counterpoint notes score"):
        team_reward(team("ten", None, [said("a")]))
    bad = replace(trace, trace_id="bad", rewards={"team": 1.0, "R1": float("inf")})
    with pytest.raises(InputError, match="reward 'R1' is inf") as error:
        MECHANISMS["uniform"]([trace, bad])
    assert error.value.where == "bad"
