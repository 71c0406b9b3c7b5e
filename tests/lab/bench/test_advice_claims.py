"""The claims `dr_credit` and `advise`, small: the truth by hand, and that a bad habit is found and gains elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from counterpoint.lab.bench.claims import advise, dr_credit
from counterpoint.lab.worlds.world import world


def test_the_worth_of_a_third_request_by_hand() -> None:
    # it decides where two votes are split, 2 q (1 - q), and is then right with q where a coin is with 1/2; it costs 0.03
    made = world("W1", **dr_credit._QUESTIONS)
    q = np.array(dr_credit._SKILL)
    by_hand = float(np.array(made.config.difficulty_shares) @ (2 * q * (1 - q) * (q - 0.5))) - 0.03
    assert dr_credit._message_truth(made, 4000) == pytest.approx(by_hand, abs=0.03)


def test_the_first_advice_gains_on_held_out_episodes() -> None:
    found = {row.name: row for row in advise.rows(0, 1, [("W1", {"vote_items": 4}, "spawn_all")], [])}
    gain = found["TeamWorld: gain of the first advice on held-out runs, each team a sample"]
    assert gain.ok
    assert gain.value > 0.1
    assert found["TeamWorld: first advice that said `helps` and gained on held-out runs"].value == 1.0
