"""What hostile or broken rollouts do to the credit layer: one error that names the rollout, or credit of which nothing is lost."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from counterpoint.errors import InputError
from counterpoint.lab.trainers.layer import CreditLayer
from counterpoint.lab.trainers.limits import Limits
from counterpoint.lab.trainers.rollout import Rollout, Sample


def sample(**more: Any) -> Sample:
    return Sample(**{"ids": [1, 2], "agent": "a", **more})


def rollout(name: str = "one", samples: Any = None, **more: Any) -> Rollout:
    return Rollout(name, more.pop("task", "t"), [sample()] if samples is None else samples, **{"reward": 1.0, **more})


TWO = rollout("two", reward=0.0)
SAMPLES = [
    ({"mask": [[1], [0, 1]]}, "a mask that is not a row"), ({"mask": ["1", "0"]}, "a mask that is not a row"),
    ({"mask": [1, None]}, "a mask that is not a row"), ({"mask": 1}, "no row of mask for 2 tokens"), ({"mask": "10"}, "no row of mask"),
    ({"logps": -1.0}, "no row of logps for 2 tokens"), ({"ids": "hi"}, "ids of type str"), ({"ids": np.zeros((1, 5))}, "ids of type ndarray"),
    ({"ids": np.int64(3)}, "ids of type int64"), ({"after": "1"}, "after '1'"), ({"after": 1.5}, r"after 1\.5"), ({"after": None}, "after None"),
    ({"agent": ""}, "agent ''"), ({"name": 3}, "name 3"), ({"role": 3}, "role 3"), ({"policy": None}, "policy None"), ({"version": "3"}, "version '3'"),
    ({"frozen": "no"}, "frozen 'no'"), ({"frozen": None}, "frozen None"), ({"reads": "ab"}, "no sample 'a'"), ({"spans": [1, 2]}, r"spans \[1, 2\]"),
    ({"spans": ["ab"]}, r"spans \['ab'\]"), ({"mask": [0, 1], "spans": [(0, 1)]}, r"the call \(0, 1\) has no token"),
    ({"calls": [["x"]]}, r"calls \[\['x'\]\]"), ({"calls": "x"}, "1 names for 1 calls"), ({"reward": "x"}, "the reward is x"),
    ({"reward": math.inf}, "the reward is inf"), ({"reward": 1e300}, r"the reward is 1e\+300"), ({"status": ["x"]}, r"no status \['x'\]"),
]  # fmt: skip


@pytest.mark.parametrize(("more", "says"), SAMPLES, ids=[says for _, says in SAMPLES])
def test_a_broken_sample_is_one_error_that_names_its_rollout(more: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says) as error:
        CreditLayer("group_relative")([TWO, rollout(samples=[sample(name="fine"), sample(**more)])])
    assert str(error.value).startswith("one")


ROLLOUTS = [
    ({"reward": "1"}, "the reward is 1"), ({"reward": 1j}, "the reward is 1j"), ({"reward": [1.0, 2.0]}, r"the reward is \[1\.0, 2\.0\]"),
    ({"reward": 1e39}, r"the reward is 1e\+39"), ({"attempt": "1"}, "attempt '1'"), ({"attempt": None}, "attempt None"),
    ({"status": ["x"]}, r"no status \['x'\]"), ({"samples": {"a": sample()}}, "no list of Sample"), ({"samples": "ab"}, "no list of Sample"),
    ({"samples": [{"ids": [1]}]}, "no list of Sample"), ({"samples": iter([sample()])}, "no list of Sample"),
    ({"reward": None, "samples": [sample(reward=3e38), sample(reward=3e38)]}, r"the reward is 6e\+38"),
]  # fmt: skip


@pytest.mark.parametrize(("more", "says"), ROLLOUTS, ids=[says for _, says in ROLLOUTS])
def test_a_broken_rollout_is_one_error_that_names_it(more: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says) as error:
        CreditLayer("group_relative")([TWO, rollout(**more)])
    assert str(error.value).startswith("one")


def test_rollouts_that_are_no_list_are_refused_and_not_passed_over() -> None:
    """A generator is empty the second time it is read: nothing would be learnt, and nobody would know."""
    for wrong in (None, rollout(), (r for r in (rollout(), TWO))):
        with pytest.raises(InputError, match="where a list of rollouts is expected"):
            CreditLayer("group_relative")(wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="one: attempts of the tasks 't' and 'u'"):
        CreditLayer("group_relative")([rollout(), rollout(attempt=1, task="u"), TWO])


ANSWERS = [
    ("difference", {"counterfactual": lambda r, a: math.nan}, "'counterfactual' answered nan"),
    ("difference", {"counterfactual": lambda r, a: None}, "'counterfactual' answered None"),
    ("difference", {"counterfactual": lambda r, a: 1 / 0}, r"'counterfactual' failed \(ZeroDivisionError: division by zero\)"),
    ("difference", {"counterfactual": lambda r: 0.0}, r"'counterfactual' failed \(TypeError: .*takes 1 positional argument"),
    ("shapley", {"worth": lambda r, agents: math.inf}, "'worth' answered inf"),
    ("ledger", {"value": lambda r: 1 / 0}, r"'value' failed \(ZeroDivisionError"), ("ledger", {"value": lambda r: [0.0]}, "value has shape"),
]  # fmt: skip


@pytest.mark.parametrize(("credit", "more", "says"), ANSWERS, ids=[says for *_, says in ANSWERS])
def test_a_function_that_fails_or_answers_nonsense_is_an_error_that_names_the_rollout(credit: str, more: Any, says: str) -> None:
    with pytest.raises(InputError, match=says) as error:
        CreditLayer(credit, **more)([rollout(), TWO])
    assert str(error.value).startswith("one")


def test_limits_shapes_and_gathering_that_make_no_sense() -> None:
    for more, says in (({"most_stale": "1"}, "most_stale='1'"), ({"group_size": -1}, "group_size=-1"), ({"most_stale": True}, "most_stale=True")):
        with pytest.raises(InputError, match=says):
            Limits(**more)  # type: ignore[arg-type]
    batch = CreditLayer("group_relative")([rollout(), TWO])
    for before in (-1, [0]):
        with pytest.raises(InputError, match="first places for 2 samples"):
            batch.padded(5, before=before)
    for gather, says in (
        (lambda items: None, "gather gave a NoneType"), (lambda items: [1], "gather gave a list"),
        (lambda items: items[1:], "one: gather lost it"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=says):
            CreditLayer("group_relative", gather=gather)([rollout(), TWO])


def test_tensors_of_any_precision_say_what_was_written() -> None:
    torch = pytest.importorskip("torch")
    for mask in (torch.tensor([1, 0, 1]), torch.tensor([1.0, 0.0, 1.0], requires_grad=True), torch.tensor([True, False, True]),
                 torch.tensor([1, 0, 1], dtype=torch.bfloat16)):  # fmt: skip
        ids = torch.tensor([5, 6, 7])
        batch = CreditLayer("group_relative", convention="prime_rl")([rollout(samples=[sample(ids=ids, mask=mask)], reward=torch.tensor(1.0)), TWO])
        assert batch.arrays()[0].tolist() == [0.5, 0.0, 0.5]


def test_a_day_of_everything_at_once_loses_nothing() -> None:
    """A fan-out of 40, a frozen judge, two policies, a cut-off call, one that was dropped, a retry, a run that died: by hand."""
    fan = [sample(name="lead"), *(sample(agent=f"w{k}", parent="lead", policy="q" if k % 2 else "policy") for k in range(40))]
    mixed = [
        sample(name="lead"), sample(agent="judge", frozen=True, parent="lead"), sample(agent="w0", status="truncated", parent="lead"),
        sample(agent="w1", status="dropped", parent="lead"),
    ]  # fmt: skip
    batch = CreditLayer("group_relative", convention="prime_rl", limits=Limits(truncated=False))([
        rollout("fan", fan, reward=3.0), rollout("mixed", mixed, reward=1.0), rollout("again", reward=-50.0), rollout("again", attempt=1, reward=2.0),
        rollout("died", reward=None, status="aborted"),
    ])  # fmt: skip
    arrays = batch.arrays()
    assert [a.tolist() for a in arrays[:41]] == [[1.0, 1.0]] * 41  # 3 less the mean of 3, 1 and 2
    assert [a.tolist() for a in arrays[41:]] == [[-1.0, -1.0], *[[0.0, 0.0]] * 3, [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    assert [m.any() for m in batch.masks()[41:]] == [True, False, False, False, False, True, False]
    assert batch.unknown == {"again": "retried", "died": "aborted"}
    assert len(batch.of_policy("q")) == 20
    account = {a.rollout: a for a in batch.accounts}["mixed"]
    assert set(account.kept_out) == {"frozen", "truncated", "dropped"}
    assert math.fsum((account.taught, *account.kept_out.values())) == pytest.approx(account.given, abs=1e-9) == -1.0
