"""Defences of a team, as switches: what each keeps from it, how often it notices, what it costs.

    allow_list   forbidden acts (AV5, AV8) and spawns that a return asks for (AV6) are stopped, always
    taint        orders in tool results and notes (AV2, AV4, AV5, AV8) are withheld with chance `gate_hit`
    quarantine   orders and lies in returns (AV3, AV6) are noticed with that chance; the return is dropped, and its agent is not
                 called again
    quorum       an answer to a question counts where a second look, by another agent of the family, agrees
    verifier     every answer to a question is checked (`check_false_accept`, `check_false_reject`); what fails does not count

Always true: a gate never sees the truth, except the verifier through its error rates; draws are the call's own, so no other call
shifts them. Whatever a gate stops is a `safety_event` that names it, at most one for a call. Harmless imperative text is taken
for an order with chance `gate_false`, and the call that needed it then knows nothing. `gate_price` is paid for each text that a
reader looks at, the family's price for a second look, `check_price` for a check. Without gates nothing here is called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from counterpoint.lab.worlds.teamworld.attacks import MARKS, Attacked
from counterpoint.lab.worlds.teamworld.config import DEFENCES, Config
from counterpoint.lab.worlds.teamworld.kinds import KindState
from counterpoint.lab.worlds.teamworld.questions import VoteState
from counterpoint.lab.worlds.teamworld.running import Running, Table
from counterpoint.lab.worlds.teamworld.state import COSTS, NEVER
from counterpoint.lab.worlds.teamworld.work import Work
from counterpoint.trace.keyed import bits, purpose

_READ, _HEARD, _SECOND, _SECOND_MET, _SECOND_OBEY, _CHECK = (
    purpose(f"gate {n}") for n in ("read", "heard", "second", "second met", "second obey", "check")
)
_TOPOLOGY = COSTS.index("topology")
_MARK = {name: i for i, name in enumerate(MARKS)}
CODE = {name: i + 1 for i, name in enumerate(DEFENCES)}
"""What a safety event's row says of the gate that stopped something."""


def nothing(calls: int) -> Attacked:
    """No adversary, as arrays."""
    no = np.zeros(calls, np.bool_)
    return Attacked(np.zeros(calls, np.int8), no, no, no, np.zeros(calls, np.int64), no, no)


def stopped(
    config: Config, attack: Attacked, know: np.ndarray, draw: Callable[[int], np.ndarray]
) -> tuple[Attacked, np.ndarray, np.ndarray]:
    """What is left of an attack on calls behind the gates before them, the gate that stopped it by `CODE`, and what the calls
    know: nothing, where harmless text was withheld."""
    code = np.zeros(len(attack.mark), np.int64)
    if "taint" in config.defences:
        orders = np.isin(attack.mark, [_MARK[a] for a in ("AV2", "AV4", "AV5", "AV8")])
        withheld = (attack.mark == _MARK["benign_imperative"]) & (draw(_READ) < config.gate_false)
        caught = (orders & (draw(_READ) < config.gate_hit)) | withheld
        code, know = np.where(caught, CODE["taint"], code), np.where(withheld, 0.0, know)
        rest = {"wrong": attack.wrong & ~caught, "violation": attack.violation & ~caught}
        attack = replace(attack, blocked=attack.blocked | caught, **rest)
    if "allow_list" in config.defences:
        code = np.where(attack.violation, CODE["allow_list"], code)
        attack = replace(attack, blocked=attack.blocked | attack.violation, violation=np.zeros_like(attack.violation))
    return attack, code, know


def noted(
    kind: KindState, work: Work, attack: Attacked, code: np.ndarray, planted: np.ndarray, claim: np.ndarray
) -> dict[str, np.ndarray]:
    """What the table of calls keeps for the gates after the work."""
    asks = isinstance(kind, VoteState) and "quorum" in work.config.defences
    second = second_look(kind, work, planted) if asks else claim  # type: ignore[arg-type]
    return {"gate": code, "alarmed": attack.violation | attack.blocked, "second": second}


def second_look(kind: VoteState, work: Work, planted: np.ndarray) -> np.ndarray:
    """What another agent of the family says to the same question, who may meet the attack, too; `planted`: it sits there."""
    config, answer = work.config, kind.look(work, _SECOND)
    rate = config.attack_rate if config.attack in ("AV2", "AV3") else config.note_reads if config.attack == "AV4" else 1.0
    here = planted if config.attack in ("AV1", "AV4") else np.full(len(answer), config.attack in ("AV2", "AV3"))
    obeys = (work.draw(_SECOND_OBEY) < config.obey) | (config.attack == "AV3")
    fooled = here & (work.draw(_SECOND_MET) < rate) & obeys
    return np.where(fooled, 1 - kind.truth[work.ep, work.item], answer)


def price(config: Config, name: str, family: np.ndarray) -> np.ndarray:
    """Points that the gates cost at each of these calls."""
    out = np.full(len(family), config.gate_price * len({"allow_list", "taint", "quarantine"} & set(config.defences)))
    if name == "vote" and "quorum" in config.defences:
        out = out + np.array(config.price)[family]
    return out + (config.check_price if name == "vote" and "verifier" in config.defences else 0.0)


def further(config: Config, name: str) -> int:
    """Looks and checks that the gates make at each call."""
    return sum(gate in config.defences for gate in ("quorum", "verifier")) if name == "vote" else 0


def dropped(batch: Running, name: str, table: Table, delivered: np.ndarray) -> np.ndarray:
    """Which of these returns the gates keep from the draft; `table["gate"]` says by which, where nothing was said before."""
    c, s = batch.config, batch.state
    word = table["word"]
    draw: Callable[[int], np.ndarray] = lambda what: (bits(word, what) >> np.uint64(11)).astype(np.float64) * 2.0**-53  # noqa: E731
    out, code = np.zeros(len(delivered), np.bool_), np.zeros(len(delivered), np.int64)
    is_report = delivered & (table["agent"] != 0)
    if "quarantine" in c.defences:
        lies = (table["mark"] == _MARK["AV3"]) | ((table["mark"] == _MARK["AV6"]) & ~table["alarmed"])
        caught = is_report & lies & (draw(_HEARD) < c.gate_hit)
        out, code = out | caught, np.where(caught, CODE["quarantine"], code)
        _silenced(batch, table["ep"][caught], table["agent"][caught])
    if "allow_list" in c.defences:
        asks = delivered & table["asks"] & ~out  # the answer is heard, the spawn that it asks for is not
        code, table["asks"] = np.where(asks, CODE["allow_list"], code), table["asks"] & ~asks
    if name == "vote" and "verifier" in c.defences:
        u = draw(_CHECK)
        fails = delivered & np.where(table["right"], u < c.check_false_reject, u >= c.check_false_accept)
        code, out = np.where(fails & (code == 0), CODE["verifier"], code), out | fails
    if name == "vote" and "quorum" in c.defences:
        differ = delivered & (table["second"] != table["claim"])
        code, out = np.where(differ & (code == 0), CODE["quorum"], code), out | differ
    table["gate"] = np.where(table["alarmed"], 0, code)
    s.counts[:, 2] += np.bincount(table["ep"][table["gate"] > 0], minlength=s.episodes)
    return out


def _silenced(batch: Running, ep: np.ndarray, agent: np.ndarray) -> None:
    """These agents are not called again; the last one that can be called stays."""
    s = batch.state
    for e, a in zip(ep.tolist(), agent.tolist(), strict=True):
        callable_ = s.alive[e, 1:] & (s.busy[e, 1:] < NEVER)
        if callable_.sum() > 1:
            s.busy[e, a] = NEVER


def charge(batch: Running, name: str, ep: np.ndarray, family: np.ndarray) -> None:
    """Pay for the gates of these calls."""
    s = batch.state
    s.costs[:, _TOPOLOGY] += np.bincount(ep, price(batch.config, name, family), s.episodes)
    s.further += further(batch.config, name) * np.bincount(ep, minlength=s.episodes)
