"""Two traces side by side: hand-made ones, and the law that every event is counted once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from counterpoint.audits.diff import aligned, diff, fingerprint
from counterpoint.trace import Event, Trace


def story(*said: tuple[str, str], reward: float = 1.0, name: str = "a") -> Trace:
    events = [
        Event(id=f"e{i}", t=i, type="message", agent="x", key=key, content_ref=text) for i, (key, text) in enumerate(said, 1)
    ]
    return Trace(trace_id=name, task_id="t", events=events, rewards={"team": reward}, costs={"tokens": len(said)})


def test_a_changed_a_gone_and_a_new_event() -> None:
    a = story(("k1", "one"), ("k2", "two"), ("k3", "three"), ("k4", "four"))
    b = story(("k1", "one"), ("k2", "TWO"), ("k4", "four"), ("k5", "five"), reward=3.5, name="b")
    found = diff(a, b)
    assert found.same == 2
    assert [(p.key, p.a, p.b) for p in found.changed] == [("k2", "e2", "e2")]
    assert [(p.key, p.a, p.b) for p in found.gone] == [("k3", "e3", None)]
    assert [(p.key, p.a, p.b) for p in found.new] == [("k5", None, "e4")]
    assert found.first is not None
    assert (found.first.how, found.first.event.key) == ("changed", "k2")
    assert found.effect == 2.5
    assert found.costs["tokens"] == (4, 4)


def test_the_first_divergence_is_the_earlier_one() -> None:
    a = story(("k1", "one"), ("k2", "two"))
    gone = diff(a, story(("k1", "one")))
    assert gone.first is not None
    assert (gone.first.how, gone.first.event.a) == ("gone", "e2")
    new = diff(a, story(("k0", "zero"), ("k1", "one"), ("k2", "TWO")))
    assert new.first is not None
    assert (new.first.how, new.first.event.b) == ("new", "e1")
    assert diff(a, a).first is None
    assert diff(a, a).is_same


def test_time_price_and_truth_are_no_content_but_receiver_and_outcome_are() -> None:
    event = Event(id="e", t=0, type="spawn", agent="x", to="y", extra={"family": "A", "slot": 1, "planted": "AV6"})
    same = Event(id="f", t=9, type="spawn", agent="x", to="y", cost_usd=3, extra={"family": "A", "slot": 2})
    assert fingerprint(event) == fingerprint(same)
    assert fingerprint(event) != fingerprint(Event(id="e", t=0, type="spawn", agent="x", to="y", extra={"family": "B"}))
    assert fingerprint(event) != fingerprint(Event(id="e", t=0, type="spawn", agent="x", to="z", extra={"family": "A"}))


def test_events_without_keys_are_aligned_in_order_and_names_are_unique() -> None:
    events = [Event(id=f"e{i}", t=i, type="message", agent="x", to=to) for i, to in enumerate("yyz")]
    names = aligned(events)
    assert len(set(names)) == 3
    assert names[1] == names[0] + "#2"


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("12")), max_size=12), st.data())
def test_every_event_of_both_is_counted_once(said: list[tuple[str, str]], data: st.DataObject) -> None:
    others = data.draw(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("12")), max_size=12))
    a, b = story(*said), story(*others)
    found = diff(a, b)
    assert found.same + len(found.changed) + len(found.gone) == len(said)
    assert found.same + len(found.changed) + len(found.new) == len(others)
    assert (found.first is None) == found.is_same
    back = diff(b, a)
    assert (len(back.new), len(back.gone), len(back.changed)) == (len(found.gone), len(found.new), len(found.changed))
