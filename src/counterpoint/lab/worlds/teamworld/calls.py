"""The calls of a round: what each worker knows, what it answers, what reaches the orchestrator.

Always true: a worker's draws come first (they belong to the tool result), the way back comes second (it belongs to the return),
so a fork at either knows which noise is old.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.worlds.teamworld import acts, defences
from counterpoint.lab.worlds.teamworld.action import VERIFY, Calls
from counterpoint.lab.worlds.teamworld.attacks import MARKS, Attacked, attacked
from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.lab.worlds.teamworld.edits import Edit, find, is_neutral
from counterpoint.lab.worlds.teamworld.kinds import KindState
from counterpoint.lab.worlds.teamworld.questions import VoteState
from counterpoint.lab.worlds.teamworld.running import RESULT, Running, Table, ranks
from counterpoint.lab.worlds.teamworld.state import BatchState
from counterpoint.lab.worlds.teamworld.tables import tables_of
from counterpoint.lab.worlds.teamworld.work import Returns, Work
from counterpoint.trace.keyed import bits, mixed, purpose, share
from counterpoint.trace.replay import Delete, Substitute

_LEVEL, _CRITIC, _REDRAW = (purpose(f"call {n}") for n in ("level", "critic", "redraw"))

_JUDGE = [purpose(f"judge {j}") for j in range(9)]
_LIAR = MARKS.index("AV3")


def knowledge(config: Config, s: BatchState, c: Calls) -> np.ndarray:
    """g of each call: brief, match, load and drift; the orchestrator's own calls need no brief and match everything."""
    own = c.agent == 0
    fixed = tables_of(config)
    brief = np.where(own, 1.0, fixed.brief_factor[c.brief])
    match = np.where(own | (s.type[c.ep, c.agent] == s.item_type[c.ep, c.item]), 1.0, config.mismatch)
    over = np.maximum(0, s.taken[c.ep, c.agent] - config.context_capacity)
    load = np.maximum(0.0, 1 - config.context_decay * over)
    know = brief * match * load
    if fixed.drift is not None:
        rate = fixed.drift[s.family[c.ep, c.agent]]
        know = know * np.maximum(0.0, 1 - rate * s.round[c.ep])
    return know


def attempts(kind: KindState, c: Calls, item: np.ndarray, calls_so_far: np.ndarray) -> np.ndarray:
    """How often this agent was called on this item before; writes the call down."""
    before = (kind.callers[c.ep, item] == c.agent[:, None]).sum(axis=1)
    flat, number = c.ep * kind.callers.shape[1] + item, np.arange(len(c))
    last = np.empty(kind.callers.shape[0] * kind.callers.shape[1], np.int64)
    last[flat] = number
    place: np.ndarray | int = 0
    if (last[flat] != number).any():  # some item is called more than once
        order = np.argsort(flat, kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = ranks(flat[order])
    kind.callers[c.ep, item, calls_so_far + place] = c.agent
    return before


def answered(
    batch: Running, name: str, kind: KindState, c: Calls, place: np.ndarray, edits: list[Edit]
) -> tuple[Table, Attacked | None]:
    """The calls on one kind, answered: what each will return, before the way back."""
    config, s = batch.config, batch.state
    item = c.item - kind.first_item
    attempt = attempts(kind, c, item, s.calls[c.ep, c.item])
    key, family = s.key[c.ep, c.agent], s.family[c.ep, c.agent].astype(np.int64)
    seeds = batch.seeds(c.ep, RESULT + place)
    word = _redrawn(c, bits(seeds, key, c.item, attempt), edits, "tool_result")
    anew = _redrawn(c, word, edits, "return")
    draw = _draws(word)
    attack = attacked(config, s, c.ep, c.item, c.agent, c.brief, draw)
    know = _edited_knowledge(c, knowledge(config, s, c), edits)
    attack = None if attack is None else _spared(c, attack, edits)
    code = None
    if config.gates:
        attack, code, know = defences.stopped(config, attack or defences.nothing(len(c)), know, draw)
    has_acts = name == "vote" and config.acts != "report"
    if attack is not None and has_acts:  # who does not look is out of reach, but a liar lies anyway
        attack = _taken_back(attack, ~acts.looks(config, c.acts) & (attack.mark != _LIAR))
    second = acts.again(config, c.acts, attempt) if has_acts else None
    work = Work(config, c.ep, item, c.agent, family, know, c.brief, c.purpose, draw, second)
    again = work if anew is word else replace(work, draw=_draws(anew))
    back, honest = _replied(name, kind, work, again, attack)
    table = {
        "ep": c.ep, "item": item, "agent": c.agent, "family": family, "brief": c.brief, "purpose": c.purpose, "attempt": attempt,
        "claim": back.claim.astype(np.int64), "right": back.right, "word": word,
        "row": np.full(len(c), -1), "asked": np.full(len(c), -1),
    }  # fmt: skip
    # a liar, or an agent that is asked again, had the same answer from the tool
    own_words = attack.wrong & (attack.mark == _LIAR) if attack is not None else np.zeros(len(c), np.bool_)
    if anew is not word:
        own_words = own_words | (anew != word)
    table["tool"] = table["claim"] if honest is None else np.where(own_words, honest.claim, table["claim"])
    if has_acts:
        _talked(s, kind, again, c.acts, table, back, honest, own_words)
    if name == "vote":
        table["confidence"] = kind.reported(again, back.right)  # type: ignore[union-attr]
    if back.finds is not None:
        table["finds"] = back.finds
    _mark(table, attack, honest, back)
    if code is not None and attack is not None:
        table |= defences.noted(kind, work, attack, code, s.planted[c.ep, c.item], table["claim"])
    _edited_claims(c, table, edits, name)
    return table, attack


def _mark(table: Table, attack: Attacked | None, honest: Returns | None, back: Returns) -> None:
    """What the adversary planted in each call, and what it changed."""
    none = np.zeros(len(table["ep"]), np.bool_)
    table["asks"] = attack.asks if attack is not None else none
    table["mark"] = attack.mark if attack is not None else none.astype(np.int8)
    table["corrupt"] = _changed(attack, honest, back) if attack is not None else none


def _talked(
    s: BatchState,
    kind: KindState,
    w: Work,
    act: np.ndarray,
    table: Table,
    back: Returns,
    honest: Returns | None,
    lies: np.ndarray,
) -> None:
    """What workers make of what they found, by their acts; a liar says what it says whatever it does."""
    assert isinstance(kind, VoteState)
    talk, truth = acts.talked(w.config, s, kind, w, act, back.claim), kind.truth[w.ep, w.item]
    back.claim = np.where(lies, back.claim, talk.say(back.claim))
    back.right = back.claim == truth
    if honest is not None:
        honest.claim = talk.say(honest.claim)
        honest.right = honest.claim == truth
    table["claim"], table["right"] = back.claim.astype(np.int64), back.right
    table |= {"act": act, "shared": talk.shared, "messages": talk.messages, "more": talk.more, "more_price": talk.price}
    table["reads"] = talk.reads


def _replied(name: str, kind: KindState, work: Work, again: Work, attack: Attacked | None) -> tuple[Returns, Returns | None]:
    """What comes back, and where a fork or an attack changes it, what would have come back."""
    honest = None
    if again is not work or (attack is not None and (attack.wrong.any() or attack.colludes.any())):
        honest = _twin(kind).work(work)
    if attack is not None and name != "vote":
        again = replace(again, know=np.where(attack.wrong, 0.0, again.know))
    back = kind.work(again)
    if attack is not None and name == "vote":
        truth = kind.truth[work.ep, work.item]  # type: ignore[union-attr]
        back.claim = np.where(attack.wrong, 1 - truth, back.claim)
        back.right = back.claim == truth
    if attack is not None and name == "chain":
        fooled = attack.colludes & (work.purpose == VERIFY)
        back.right = np.where(fooled, kind.right[work.ep, work.item], back.right)  # type: ignore[union-attr]
        back.claim = np.where(fooled, 1, back.claim)
    return back, honest


def _draws(word: np.ndarray) -> Callable[[int], np.ndarray]:
    """One uniform number per call for a purpose."""
    start = bits(word)
    return lambda what: share(mixed(start, what))


def _redrawn(c: Calls, word: np.ndarray, edits: list[Edit], stage: str) -> np.ndarray:
    """The words of the calls, other ones where a fork draws a result or a return anew; the same array where none does."""
    if not edits:
        return word
    again = np.zeros(len(c), np.int64)
    for edit in find(edits, stage):
        if isinstance(edit.do, Substitute) and edit.do.value is None:
            again[(c.ep == edit.ep) & (c.agent == edit.slot) & (c.item == edit.item)] = edit.do.draw
    return np.where(again > 0, bits(word, _REDRAW, again), word) if again.any() else word


def _twin(kind: KindState) -> KindState:
    """The kind's state, detached, to see what would have been."""
    out = copy.copy(kind)
    for name, value in vars(kind).items():
        setattr(out, name, value.copy() if isinstance(value, np.ndarray) else value)
    return out


def _changed(attack: Attacked, honest: Returns | None, back: Returns) -> np.ndarray:
    """Where the attack made the answer another one than it would have been."""
    touched = attack.wrong | attack.colludes
    return touched if honest is None else touched & ((honest.claim != back.claim) | (honest.right != back.right))


def replace_answers(
    name: str, kind: KindState, c: Calls, table: Table, answers: Callable[[Calls, np.ndarray], np.ndarray]
) -> None:
    """The workers say what `answers` says; only votes and verdicts on chains can be put into their mouths."""
    claim = np.asarray(answers(c, table["claim"].copy()), np.int64)
    if claim.shape != (len(c),):
        raise InputError(f"answers have shape {claim.shape} for {len(c)} calls", fix="one answer per call")
    other = claim != table["claim"]
    free = np.full(len(c), name == "vote") | ((name == "chain") & (c.purpose == VERIFY))
    if (other & ~free).any() or ((claim[free] != 0) & (claim[free] != 1)).any():
        raise InputError(f"an answer to a {name} that no worker can give", fix="0 or 1 for votes and verdicts, else what is")
    table["claim"], table["right"] = claim, table["right"] ^ other


def _edited_knowledge(c: Calls, know: np.ndarray, edits: list[Edit]) -> np.ndarray:
    for edit in find(edits, "tool_call", "tool_result"):
        if isinstance(edit.do, Delete):
            know = np.where((c.ep == edit.ep) & (c.agent == edit.slot) & (c.item == edit.item), 0.0, know)
    return know


def _spared(c: Calls, attack: Attacked, edits: list[Edit]) -> Attacked:
    """The attack, but not on calls whose safety event a fork deleted, or which it made neutral."""
    for edit in [*find(edits, "safety"), *(e for e in edits if is_neutral(e.do))]:
        attack = _taken_back(attack, (c.ep == edit.ep) & (c.agent == edit.slot) & (c.item == edit.item))
    return attack


def _taken_back(attack: Attacked, mine: np.ndarray) -> Attacked:
    """The attack, but not on these calls."""
    parts = (getattr(attack, n) for n in Attacked.__annotations__)
    return Attacked(*(np.where(mine, 0, part).astype(part.dtype) for part in parts))


def _edited_claims(c: Calls, table: Table, edits: list[Edit], name: str) -> None:
    for edit in find(edits, "return", "tool_result"):
        if isinstance(edit.do, Substitute) and edit.do.value is not None and not is_neutral(edit.do):
            mine = (c.ep == edit.ep) & (c.agent == edit.slot) & (c.item == edit.item)
            flipped = mine & (table["claim"] != int(edit.do.value))
            table["claim"] = np.where(mine, int(edit.do.value), table["claim"])
            table["corrupt"] = table["corrupt"] & ~mine
            if edit.stage == "tool_result":
                table["tool"] = np.where(mine, int(edit.do.value), table["tool"])
            if name in ("vote", "chain"):
                table["right"] = table["right"] ^ flipped


def passed(batch: Running, name: str, table: Table, edits: list[Edit]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(sent, delivered, rejected): what is left of these returns after the way back."""
    config, s = batch.config, batch.state
    ep, n = table["ep"], len(table["ep"])
    sent, rejected = np.ones(n, np.bool_), np.zeros(n, np.bool_)
    for edit in find(edits, "return"):
        if isinstance(edit.do, Delete):
            first = getattr(s.kinds, name).first_item
            sent &= ~((ep == edit.ep) & (table["agent"] == edit.slot) & (table["item"] + first == edit.item))
    delivered = sent.copy()

    def draw(what: int) -> np.ndarray:
        """Worked out only where a topology asks."""
        return batch.way_back(name, table)(what)

    match config.topology:
        case "planner_executor_critic" if name == "vote":
            u = draw(_CRITIC)
            rejected = np.where(table["right"], u < config.critic_false_reject, u >= config.critic_false_accept)
        case "hierarchical":
            levels = np.maximum(0, s.depth[ep, table["agent"]].astype(np.int64) - 1)
            delivered &= draw(_LEVEL) >= 1 - (1 - config.level_loss) ** levels
    if config.gates:
        delivered = delivered & ~defences.dropped(batch, name, table, delivered)
    return sent, delivered, rejected & delivered


def judged(batch: Running, table: Table, sent: np.ndarray) -> np.ndarray:
    """(calls, judges) who accepts which of these answers; their share becomes the confidence that counts."""
    c, draw = batch.config, batch.way_back("vote", table)
    chances = [draw(_JUDGE[j]) for j in range(c.judges)]
    says = [np.where(table["right"], u >= c.judge_false_reject, u < c.judge_false_accept) & sent for u in chances]
    accepts = np.stack(says, axis=1)
    table["confidence"] = accepts.mean(axis=1)
    return accepts


def kind_of(config: Config) -> np.ndarray:
    """(N,) the kind of each item."""
    return tables_of(config).kind
