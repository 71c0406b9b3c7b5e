"""Laws of the credit layer: nothing is lost, however rollouts are split over ranks, padded, packed, dropped, retried or forked."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from counterpoint.errors import Refused
from counterpoint.lab.trainers.layer import CreditLayer
from counterpoint.lab.trainers.limits import Limits
from counterpoint.lab.trainers.rollout import STATUSES, Rollout, Sample


@st.composite
def sample(draw: Any, place: int) -> Sample:
    n = draw(st.integers(0, 6))
    mask = draw(st.none() | st.lists(st.integers(0, 1), min_size=n, max_size=n))
    made = Sample(
        ids=list(range(n)), mask=mask, agent=draw(st.sampled_from("abc")), name=f"s{place}", frozen=draw(st.integers(0, 4)) == 0,
        parent=draw(st.none() | st.sampled_from([f"s{i}" for i in range(place)])) if place else None, after=draw(st.integers(0, 2)),
        status=draw(st.sampled_from(("complete",) * 6 + STATUSES)), version=draw(st.integers(1, 5)), policy=draw(st.sampled_from("pq")),
    )  # fmt: skip
    if draw(st.booleans()):
        return made
    return Sample(**{f: getattr(made, f) for f in made.__slots__} | {"calls": [draw(st.integers(0, 3)) for _ in made.calls_at()]})


@st.composite
def batches(draw: Any) -> list[Rollout]:
    out = []
    for i in range(draw(st.integers(1, 6))):
        samples = [draw(sample(k)) for k in range(draw(st.integers(1, 4)))]
        status = draw(st.sampled_from(("complete",) * 6 + STATUSES))
        task = draw(st.sampled_from(("t", "t", "u")))
        for attempt in range(draw(st.sampled_from((1, 1, 1, 2)))):
            out.append(Rollout(f"r{i}", task, samples, reward=float(draw(st.integers(-2, 3))), attempt=attempt, status=status))
    return out


MADE: list[dict[str, Any]] = [
    {"credit": "group_relative"}, {"credit": "agent_wise"}, {"credit": "uniform"}, {"credit": "uniform", "against": "task"},
    {"credit": "uniform", "against": "nothing"},
    {"credit": "difference", "counterfactual": lambda rollout, agent: rollout.reward / 2 if agent == "a" else 0.0},
]  # fmt: skip
CALM = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@CALM
@given(batches(), st.sampled_from(MADE), st.booleans())
def test_the_accounts_hold_and_shapes_fit(rollouts: list[Rollout], made: dict[str, Any], keeps_cut: bool) -> None:
    layer = CreditLayer(**made, limits=Limits(most_stale=2, truncated=keeps_cut))
    batch = layer(rollouts, version=5)
    arrays, masks = batch.arrays(), batch.masks()
    batch.check(arrays)
    for (rollout, one), array, mask in zip(batch.samples, arrays, masks, strict=True):
        assert len(array) == len(mask) == one.size
        assert np.isfinite(array).all()
        assert not array[~mask].any()
        reasons = (one.frozen, one.status in ("aborted", "dropped"), 5 - (one.version or 0) > 2, rollout.status in ("aborted", "dropped"))
        if any(reasons) or rollout.name in batch.unknown or (one.status == "truncated" and not keeps_cut):
            assert not mask.any() or rollout.attempt
        if one.mask is not None:
            assert not mask[np.asarray(one.mask) == 0].any()
    width = max((len(a) for a in arrays), default=0) + 3
    padded = batch.padded(width, before=2)
    assert np.array_equal(np.concatenate([row[2 : 2 + len(a)] for row, a in zip(padded, arrays, strict=True)] or [[]]), batch.packed())
    assert padded.sum() == pytest.approx(batch.packed().sum(), abs=1e-4)
    taught = sorted(i for policy in ("p", "q") for i in batch.of_policy(policy))
    assert taught == [i for i, (_, one) in enumerate(batch.samples) if not one.frozen]


@CALM
@given(batches(), st.sampled_from(MADE), st.lists(st.integers(0, 2), min_size=12, max_size=12))
def test_any_split_over_ranks_gives_what_one_rank_gives(rollouts: list[Rollout], made: dict[str, Any], places: list[int]) -> None:
    first = {r.name: place for r, place in zip(rollouts, places, strict=False)}  # attempts stay together
    ranks = [[r for r in rollouts if first.get(r.name, 0) == rank] for rank in range(3)]
    sent: list[Any] = []
    for part in ranks:
        CreditLayer(**made, gather=lambda items: sent.extend(items) or items)(part)
    whole = CreditLayer(**made)(rollouts)
    expected = {(r.name, r.attempt, s.name): a for (r, s), a in zip(whole.samples, whole.arrays(), strict=True)}
    for part in ranks:
        batch = CreditLayer(**made, gather=lambda items: sent)(part)
        for (r, s), array in zip(batch.samples, batch.arrays(), strict=True):
            assert array == pytest.approx(expected[r.name, r.attempt, s.name], abs=1e-6)


@CALM
@given(batches())
def test_a_call_that_forks_repeat_weighs_one_in_all(rollouts: list[Rollout]) -> None:
    batch = CreditLayer("group_relative")(rollouts)
    weights: Counter[Any] = Counter()
    for (rollout, one), calls in zip(batch.samples, batch.calls, strict=True):
        for k, call in enumerate(calls):
            if one.calls is not None and call.why is None:
                weights[rollout.task, one.calls[k]] += call.weight
    assert all(weight == pytest.approx(1) for weight in weights.values())


def test_a_critic_needs_nobody_to_compare_with_and_is_asked_where_the_rollout_is() -> None:
    here, there = (Rollout(n, n, [Sample(ids=[1, 2], agent="a"), Sample(ids=[3], agent="b")], reward=r) for n, r in (("x", 1.0), ("y", 3.0)))
    value = lambda rollout: [rollout.reward / 4, rollout.reward / 2]  # noqa: E731
    alone = CreditLayer("gae", value=value, gamma=1.0, lam=1.0)([here])
    assert not alone.unknown
    assert [a.tolist() for a in alone.arrays()] == [[0.75, 0.75], [0.5]]  # 1 - 1/4 and 1 - 1/2
    asked: list[str] = []
    sent: list[Any] = []

    def of(rollout: Rollout) -> list[float]:
        asked.append(rollout.name)
        return value(rollout)

    CreditLayer("gae", value=of, gather=lambda items: sent.extend(items) or items)([there])
    assert set(asked) == {"y"}
    both = [Rollout("x", "t", here.samples, reward=1.0), Rollout("y", "t", there.samples, reward=3.0)]
    sent.clear()
    CreditLayer("gae", value=of, gather=lambda items: sent.extend(items) or items)(both[1:])
    asked.clear()
    split = CreditLayer("gae", value=of, gather=lambda items: [*items, *sent])(both[:1])
    assert set(asked) == {"x"}
    assert [a.tolist() for a in split.arrays()] == [a.tolist() for a in CreditLayer("gae", value=of)(both).arrays()[:2]]


def test_a_question_about_a_rollout_of_another_rank_is_refused_by_its_name() -> None:
    worth = lambda rollout, agents: float(len(agents)) * rollout.reward  # noqa: E731
    both = [Rollout(n, "t", [Sample(ids=[1], agent="a"), Sample(ids=[3], agent="b")], reward=r) for n, r in (("x", 1.0), ("y", 3.0))]
    sent: list[Any] = []
    made = {"credit": "sharp", "give": "advantage", "worth": worth}
    CreditLayer(**made)(both)
    alone = CreditLayer(**made, gather=lambda items: sent.extend(items) or items)(both[1:])
    assert alone.unknown == {"y": "nobody to compare with"}
    split = CreditLayer(**made, gather=lambda items: [*items, *sent])
    with pytest.raises(Refused, match=r"y: 'worth' is asked of it"):
        split(both[:1])


def test_samples_are_the_trainers_own_objects() -> None:
    ids, mask = np.arange(5), np.ones(5, bool)
    batch = CreditLayer("uniform", against="nothing")([Rollout("r", "t", [Sample(ids=ids, mask=mask)], reward=1.0)])
    assert batch.samples[0][1].ids is ids
    assert batch.samples[0][1].mask is mask


RANK = """
import json, sys
import torch.distributed as dist
from counterpoint.errors import InputError, Refused
from counterpoint.lab.trainers.layer import CreditLayer, all_ranks
from counterpoint.lab.trainers.rollout import Rollout, Sample
rank, file = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method="file://" + file, rank=rank, world_size=2)
own = [Rollout(f"r{i}", f"t{i // 4}", [Sample(ids=[1] * (i + 1), agent="lead", name="l"), Sample(ids=[2], agent=f"w{i % 2}", parent="l")],
               reward=float(i * i)) for i in range(rank, 8, 2)]
out = {}
for name, more in (("agent_wise", {}), ("group_relative", {}), ("gae", {"value": lambda r: [0.0, r.reward / 2, 0.0, 0.0]}),
                   ("difference", {"counterfactual": lambda r, a: r.reward / 3})):
    batch = CreditLayer(name, gather=all_ranks, **more)(own)
    batch.check(batch.arrays())
    out[name] = [[r.name, s.agent, a.tolist()] for (r, s), a in zip(batch.samples, batch.arrays(), strict=True)]
try:
    CreditLayer("group_relative")(own)
except Refused as error:
    out["refused"] = str(error)
bad = [Rollout("bad", "t0", [Sample(ids=[1], mask=[7])], reward=1.0)] if rank == 0 else own
try:
    CreditLayer("group_relative", gather=all_ranks)(bad)
except InputError as error:
    out["bad"] = str(error)
dist.destroy_process_group()
print(json.dumps(out))
"""


def test_two_gloo_processes_give_what_one_gives(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, "-c", RANK]
    file = str(tmp_path / "meet")
    started = [subprocess.Popen([*command, str(rank), file], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in (0, 1)]
    told = [process.communicate(timeout=240) for process in started]
    assert all(process.returncode == 0 for process in started), told
    found = [json.loads(out.splitlines()[-1]) for out, _ in told]
    assert all("2 ranks, and nothing gathers the groups" in one["refused"] for one in found)
    said = "bad sample 0: a mask that is not a row of 0 and 1"  # no rank waits for one that refused its rollouts
    assert found[0]["bad"].startswith(said)
    assert f"another rank refused its rollouts ({said}" in found[1]["bad"]
    rollouts = [Rollout(f"r{i}", f"t{i // 4}", [Sample(ids=[1] * (i + 1), agent="lead", name="l"),
                Sample(ids=[2], agent=f"w{i % 2}", parent="l")], reward=float(i * i)) for i in range(8)]  # fmt: skip
    more: dict[str, dict[str, Any]] = {"agent_wise": {}, "group_relative": {}, "gae": {"value": lambda r: [0.0, r.reward / 2, 0.0, 0.0]},
                                       "difference": {"counterfactual": lambda r, a: r.reward / 3}}  # fmt: skip
    for name, options in more.items():
        batch = CreditLayer(name, **options)(rollouts)
        whole = {(r.name, s.agent): a for (r, s), a in zip(batch.samples, batch.arrays(), strict=True)}
        split = {(r, agent): array for one in found for r, agent, array in one[name]}
        assert split.keys() == whole.keys()
        for key, array in whole.items():
            assert split[key] == pytest.approx(array, abs=1e-6)
