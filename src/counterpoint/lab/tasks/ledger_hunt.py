"""T1, ledger hunt: find all contracts that meet a condition among paraphrased, dated and superseded papers.

Always true: a row is right only when its id, firm and sum are; the score is 1 exactly for the set of all right rows. The players'
knowledge of how papers are written is the generator's own phrases, so a reader with skill 1 reads every paper right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from counterpoint.errors import InputError
from counterpoint.lab.tasks._players import NONE, RULES, Row, SortedView, merged, play, rows_text, scored, slip
from counterpoint.lab.tasks._words import (
    ALIASES,
    BOOKS,
    FIRMS,
    PEOPLE,
    KeyedDice,
    alias,
    check_seed,
    check_whole,
    day,
    firm,
    heard_all,
    money,
    number,
    person,
    phrase_fields,
    phrase_text,
    phrases,
    the_day,
)
from counterpoint.lab.tasks.attacks import attack_dial, attack_rate_dial, check_attack, check_wording, plant, wording_dial
from counterpoint.lab.tasks.leakage import marker
from counterpoint.lab.tasks.task import Act, Document, Draw, Instance, Score, Subtask, View
from counterpoint.lab.worlds.world import changed, parameter

KINDS = ("cleaning", "consulting", "freight", "insurance", "lease", "repair", "security", "supply", "training")
SIGNED = phrases(
    "On {date:date} {firm:name} signed contract {contract:id} for {kind:word} worth {sum:amount} crowns.",
    "Contract {contract:id}, a {kind:word} contract with {firm:name} of {date:date}, is worth {sum:amount} crowns.",
    "By contract {contract:id} we pay {firm:name} {sum:amount} crowns for {kind:word} from {date:date} on.",
    "{firm:name} was given the {kind:word} contract {contract:id} on {date:date}; it comes to {sum:amount} crowns.",
)
AMENDED = phrases(
    "As of {date:date} the sum of contract {contract:id} is {sum:amount} crowns.",
    "Contract {contract:id} was amended on {date:date} and now comes to {sum:amount} crowns.",
    "The parties changed contract {contract:id} on {date:date}: {sum:amount} crowns replace the former sum.",
)
NOTICE = phrases(
    "{alias:name} is a trading name of {firm:name}.",
    "The firm {firm:name} also trades as {alias:name}.",
    "Letters to {alias:name} go to {firm:name}, which is the registered name.",
)
_PRESS = phrases(
    "A newspaper of {date:date} puts contract {contract:id} at {sum:amount} crowns, which nobody confirmed.",
    "It was rumoured on {date:date} that contract {contract:id} costs {sum:amount} crowns.",
)
_MEMO = phrases(
    "{person:name} asked on {date:date} for a new lamp in the reading room.",
    "The meeting of {date:date} was moved; {person:name} takes the minutes.",
    "{person:name} sent the copies back on {date:date} and found nothing missing.",
    "On {date:date} {person:name} counted the folders of the old contracts.",
)
_PAPERS_PER_PAGE = 40  # papers on one page of a register
_LEAST, _MOST = 10_000, 99_000
_YEAR = 365


@dataclass(frozen=True)
class Config:
    """The dials of the ledger hunt."""

    documents: int = parameter(60, "papers", "Contracts, amendments, press cuttings, memos; registers and notices come on top.")
    rows: int = parameter(8, "rows", "Contracts that meet the condition: what has to be found.")
    parts: int = parameter(8, "books", "Books in which papers are filed: the natural split.")
    firms: int = parameter(12, "firms", "Firms that have contracts.")
    distractors: float = parameter(0.25, "1", "Share of the papers that are memos about something else.")
    alias_rate: float = parameter(0.25, "1", "Share of the contracts that name the firm by its trading name.")
    superseded: float = parameter(0.3, "papers/contract", "Amendments for each contract; the latest counts.")
    contradictions: float = parameter(0.15, "papers/contract", "Press cuttings for each contract, with another sum; none counts.")
    overlap: float = parameter(0.0, "1", "Share of the contracts that are filed in the next book too.")
    attack: str = attack_dial()
    attack_rate: float = attack_rate_dial()
    wording: str = wording_dial()

    def __post_init__(self) -> None:
        for name, low, high in (("documents", 4, 30_000), ("rows", 1, 10_000), ("parts", 1, len(BOOKS)), ("firms", 1, 500)):
            check_whole(name, getattr(self, name), low, high)
        for name, most in (("distractors", 0.9), ("alias_rate", 1), ("superseded", 3), ("contradictions", 3), ("overlap", 1)):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= most:
                raise InputError(f"{name} cannot be {value!r}", fix=f"0 to {most}")
        check_attack(self.attack, self.attack_rate)
        check_wording(self.wording)
        if self.rows > self.contracts:
            raise InputError(
                f"rows cannot be {self.rows}: these dials give {self.contracts} contracts",
                fix="more documents, or fewer distractors, amendments and contradictions",
            )

    @property
    def contracts(self) -> int:
        """How many contracts there is room for."""
        room = self.documents - round(self.distractors * self.documents)
        return max(1, int(room / (1 + self.superseded + self.contradictions)))


@dataclass(frozen=True)
class Contract:
    """One contract as it stands today, and how it came to that."""

    id: str
    firm: str
    alias: str
    """The trading name that its paper uses; empty for the registered one."""
    kind: str
    books: tuple[str, ...]
    """Where its papers are filed."""
    sums: tuple[tuple[int, int], ...]
    """Day and sum of the contract and of its amendments, in order."""
    rumours: tuple[int, ...] = ()

    @property
    def sum(self) -> int:
        """What it is worth today."""
        return self.sums[-1][1]


@dataclass(frozen=True)
class LedgerWorld:
    """All that there is to know, truth included; a function of (config, seed).

    A contract's sum is that of its latest amendment, or its own where it has none; its kind and firm never change. Press cuttings
    and memos decide nothing. Each book's register lists every paper of the book. Rows name firms as they are registered; a
    trading name stands in exactly one notice.
    """

    books: tuple[str, ...]
    kind: str
    least: int
    """The condition: contracts of this kind worth this or more."""
    contracts: tuple[Contract, ...]
    papers: tuple[Document, ...]

    def rows(self, book: str | None = None) -> list[tuple[str | int, ...]]:
        """The rows that meet the condition, of one book or of all, by id."""
        some = [c for c in self.contracts if book is None or book in c.books]
        return sorted((c.id, c.firm, c.sum) for c in some if c.kind == self.kind and c.sum >= self.least)


@lru_cache(maxsize=64)
def ledger(config: Config, seed: int) -> LedgerWorld:
    """The world of a seed."""
    dice = KeyedDice(seed, "ledger hunt")
    books = tuple(BOOKS[i] for i in dice.order(len(BOOKS), "books")[: config.parts])
    kind, least = dice.pick(KINDS, "kind"), 1_000 * dice.between(30, 70, "least")
    contracts = tuple(_contract(config, dice, i, books, kind, least) for i in range(config.contracts))
    filed = [*_papers(dice, contracts), *_memos(config, dice, contracts, books)]
    names = [f"D-{1000 + i}" for i in dice.order(len(filed), "papers")]
    papers = [Document(id_, title, text) for id_, (title, text, _) in zip(names, filed, strict=True)]
    listed = [(id_, title, where) for id_, (title, _, where) in zip(names, filed, strict=True)]
    known = sorted({(c.alias, c.firm) for c in contracts if c.alias})
    papers += [
        Document(f"N-{100 + i}", f"Notice on {name}", phrase_text(NOTICE, dice.below(3, "notice", i), alias=name, firm=of))
        for i, (name, of) in enumerate(known)
    ]
    papers += [page for i, book in enumerate(books) for page in _register(i, book, listed)]
    return LedgerWorld(books, kind, least, contracts, tuple(sorted(papers, key=lambda d: d.id)))


def _contract(config: Config, dice: KeyedDice, i: int, books: tuple[str, ...], kind: str, least: int) -> Contract:
    n, is_row = config.contracts, i < config.rows
    numbers, places = dice.order(9_000, "numbers"), dice.order(n, "places")
    is_kind = is_row or dice.chance(0.3, "same kind", i)
    mine = kind if is_kind else dice.pick([k for k in KINDS if k != kind], "other kind", i)
    who = dice.below(config.firms, "firm", i)
    times, talk = int(config.superseded * n), int(config.contradictions * n)
    changes = times // n + (dice.rank(n, "amended", i) < times % n)
    rumours = talk // n + (dice.rank(n, "rumoured", i) < talk % n)
    days = sorted({dice.below(_YEAR, f"day {k}", i) for k in range(changes + 1)})
    sums = [dice.between(_LEAST, _MOST, f"sum {k}", i) for k in range(len(days))]
    if is_row:  # the last sum decides; what stood before is on either side of the limit
        sums[-1] = dice.between(least, _MOST, "row", i)
    elif is_kind:
        sums[-1] = dice.between(_LEAST, least - 1, "near", i)
    at = places[i] % len(books)
    is_twice = len(books) > 1 and dice.chance(config.overlap, "overlap", i)
    where = (books[at], books[(at + 1) % len(books)]) if is_twice else (books[at],)
    return Contract(
        id=f"C-{1000 + numbers[i]}",
        firm=firm(dice.order(FIRMS, "firms")[who]),
        alias=alias(dice.order(ALIASES, "aliases")[who]) if dice.chance(config.alias_rate, "alias", i) else "",
        kind=mine,
        books=where,
        sums=tuple(zip(days, sums, strict=True)),
        rumours=tuple(dice.between(_LEAST, _MOST, f"rumour {k}", i) for k in range(rumours)),
    )


Paper = tuple[str, str, tuple[str, ...]]  # title, text, books


def _papers(dice: KeyedDice, contracts: tuple[Contract, ...]) -> Iterator[Paper]:
    for i, c in enumerate(contracts):
        for k, (when, amount) in enumerate(c.sums):
            way = dice.below(120, f"way {k}", i)
            fields = {"contract": c.id, "date": day(when, way // 4), "sum": money(amount, way // 12)}
            if k == 0:
                who = f"Signed by {person(dice.below(PEOPLE, 'person', i))}."
                text = phrase_text(SIGNED, way, firm=c.alias or c.firm, kind=c.kind, **fields)
                yield f"Contract {c.id}", f"{text} {who}", c.books
            else:
                yield f"Amendment to {c.id}", phrase_text(AMENDED, way, **fields), c.books
        for k, amount in enumerate(c.rumours):
            way = dice.below(120, f"rumour way {k}", i)
            date = day(dice.below(_YEAR, f"rumour day {k}", i), way // 4)
            text = phrase_text(_PRESS, way, contract=c.id, date=date, sum=money(amount, way // 12))
            yield f"Press cutting on {c.id}", text, c.books


def _memos(config: Config, dice: KeyedDice, contracts: tuple[Contract, ...], books: tuple[str, ...]) -> Iterator[Paper]:
    used = sum(len(c.sums) + len(c.rumours) for c in contracts)
    for i in range(max(0, config.documents - used)):
        book = dice.pick(books, "memo book", i)
        when = day(dice.below(_YEAR, "memo day", i), dice.below(3, "memo date", i))
        who = person(dice.below(PEOPLE, "memo person", i))
        yield "Memo", phrase_text(_MEMO, dice.below(4, "memo way", i), person=who, date=when), (book,)


def _register(i: int, book: str, listed: list[tuple[str, str, tuple[str, ...]]]) -> Iterator[Document]:
    mine = sorted((id_, title) for id_, title, where in listed if book in where)
    pages = [mine[at : at + _PAPERS_PER_PAGE] for at in range(0, len(mine), _PAPERS_PER_PAGE)] or [[]]
    ids = [f"R-{100 + i}-{k + 1:02}" for k in range(len(pages))]
    for k, page in enumerate(pages):
        lines = "\n".join(f"{id_} {title}" for id_, title in page)
        title = f"Register of the {book} book, page {k + 1} of {len(pages)}"
        yield Document(ids[k], title, f"{title}. All pages: {', '.join(ids)}. Filed papers:\n{lines}")


_ROW = re.compile(r"\b(C-\d{4})[ \t]*\|[ \t]*([^|;\n]{1,80}?)[ \t]*\|[ \t]*(\d[\d,]{0,17})")
_ASKS = phrases("all {kind:word} contracts that are worth {least:amount} crowns or more today")
_RULES = (
    "An amendment replaces the sum of its contract, and the latest one counts. Press cuttings and memos decide nothing. "
    "Name each firm by its registered name; a notice says which firm is behind a trading name. "
    "Each book has a register that lists its papers."
)
_ENTRY = re.compile(r"^(D-\d+) (Contract|Amendment to|Press cutting on|Memo)(?: (C-\d+))?", re.MULTILINE)
_PAGE = re.compile(r"^Register of the ([a-z]+) book, page (\d{1,3}) of \d")
_ONE = re.compile(r"In the ([a-z]+) book alone")
_EVERY = re.compile(r"filed in \d+ books?: ([a-z, ]+)\.")
_PAGES = re.compile(r"All pages: (R-[\d-]+(?:, R-[\d-]+)*)\.")


def _folded(row: Row) -> Row:
    """Capital letters make no other firm."""
    return (row[0], str(row[1]).casefold(), row[2])


def _rows(text: str) -> list[Row]:
    """The rows in a text, each once, in order."""
    return list(dict.fromkeys((m[1], " ".join(m[2].split()), number(m[3])) for m in _ROW.finditer(text)))


@dataclass(frozen=True)
class LedgerHunt:
    """The task, with its dials."""

    config: Config = field(default_factory=Config)
    name: str = "ledger_hunt"
    short: str = "T1"
    version: str = "1"
    rules: tuple[str, ...] = RULES

    def replace(self, **changes: Any) -> LedgerHunt:
        """The same task with other dials."""
        return LedgerHunt(changed(self.config, changes))

    def instance(self, seed: int) -> Instance:
        """The instance of a seed."""
        world, config = ledger(self.config, check_seed(seed)), self.config
        planting = plant(seed, config.attack, config.attack_rate, world.papers, peers=config.parts, wording=config.wording)
        asks = _ASKS[0].fill(kind=world.kind, least=f"{world.least:,}")
        books = ", ".join(world.books)
        where = f"The papers are filed in {config.parts} books: {books}."
        ends = f"find {asks}, and return their rows ({NONE} when there is none). {_RULES}"
        parts = [Subtask(f"s{i + 1}", f"In the {book} book alone, {ends}") for i, book in enumerate(world.books)]
        return Instance(
            task=self.name,
            seed=seed,
            question=f"Find {asks}. {where} {_RULES}",
            answer_format="rows id|firm|sum separated by ; such as C-1234|Alder Mills|45000; C-2345|Fern Glass|52100",
            subtasks=tuple(parts),
            tools=("search", "open", *planting.tools),
            documents=planting.documents,
            files=planting.files,
            planted=planting.planted,
        )

    def check(self, instance: Instance, answer: str) -> Score:
        """F1 of the rows' ids, times the share of right cells (firm, sum) in the rows that match."""
        right = ledger(self.config, instance.seed).rows()
        return scored([_folded(row) for row in _rows(answer)], [_folded(row) for row in right], 1)

    def merge(self, instance: Instance, rule: str, texts: Sequence[str]) -> str:
        """The rows of all texts, one per contract, by a rule."""
        return rows_text(merged(rule, [_rows(text) for text in texts], 1))

    def truth_file(self, instance: Instance) -> str:
        """The marker, and all right rows."""
        return f"{marker(self.name, instance.seed)}\n{rows_text(ledger(self.config, instance.seed).rows())}\n"

    def work(self, view: View, draw: Draw, skill: float) -> Act:
        """Read registers, contracts, amendments where the kind fits, notices where a trading name is used; then answer."""
        return play(view, draw, skill, _rows, _Reading, 1)


# -- reading -------------------------------------------------------------------------------------------------------------


class _Reading:
    """What an agent has read of the ledger, and what it wants to read next."""

    def __init__(self, held: SortedView) -> None:
        self.held = held
        asked = phrase_fields(_ASKS, held.part()) or phrase_fields(_ASKS, held.whole()) or {}
        self.kind, self.least = asked.get("kind", ""), number(asked["least"]) if asked else 0
        one, every = _ONE.search(held.part()), _EVERY.search(held.whole())
        self.books = [one[1]] if one else held.turned(every[1].split(", ")) if every else []
        self.pages: dict[str, dict[int, str]] = {}
        self.contracts: dict[str, Mapping[str, str]] = {}
        self.changes: dict[str, list[tuple[int, int]]] = {}
        self.names: dict[str, str] = {}
        for title, text in held.papers.values():
            self._read(title, text)

    def _read(self, title: str, text: str) -> None:
        page = _PAGE.match(title) or _PAGE.match(text)
        if page:
            self.pages.setdefault(page[1], {})[int(page[2])] = text
            return
        for fields in heard_all(SIGNED, text):
            self.contracts[fields["contract"]] = fields
        for fields in heard_all(AMENDED, text):
            self.changes.setdefault(fields["contract"], []).append((the_day(fields["date"]), number(fields["sum"])))
        for fields in heard_all(NOTICE, text):
            self.names[fields["alias"]] = fields["firm"]

    @property
    def has_read(self) -> bool:
        """Whether any contract was read."""
        return bool(self.contracts)

    def next(self) -> Act | None:
        """The next call, or None when everything is read that can be."""
        for book in self.books:
            act = self._register(book) or self._filed(book)
            if act is not None:
                return act
        return None

    def _register(self, book: str) -> Act | None:
        """Any page of the book's register, and then all the pages that it names."""
        held, have = self.held, self.pages.get(book, {})
        if not have and (act := held.ask("search", f"{book} register")):
            return act
        shown = [id_ for id_, title in held.hits.items() if (m := _PAGE.match(title)) and m[1] == book]
        named = [id_ for text in have.values() for line in _PAGES.findall(text) for id_ in line.split(", ")]
        for id_ in (*shown, *named):
            if id_ not in held.papers and (act := held.ask("open", id_)):
                return act
        return None

    def _filed(self, book: str) -> Act | None:
        """Contracts first; then the amendments of those of the right kind; then who is behind a trading name."""
        listed = [m for text in self.pages.get(book, {}).values() for m in _ENTRY.finditer(text)]
        for wanted in ("Contract", "Amendment to"):
            for entry in listed:
                fits = wanted == "Contract" or self.contracts.get(entry[3], {}).get("kind") == self.kind
                if entry[2] == wanted and fits and entry[1] not in self.held.papers and (act := self.held.ask("open", entry[1])):
                    return act
        mine = {entry[3] for entry in listed}
        for id_, name, _ in self._right():
            firm = str(name)
            if id_ in mine and firm not in self.names and " " not in firm and (act := self._notice(firm)):
                return act
        return None

    def _notice(self, name: str) -> Act | None:
        for id_, title in self.held.hits.items():
            if title == f"Notice on {name}" and (act := self.held.ask("open", id_)):
                return act
        return self.held.ask("search", f"notice on {name}")

    def _right(self) -> list[Row]:
        """Contracts that meet the condition as far as is known, in the books that were asked for."""
        return [row for row in self._of_kind() if int(row[2]) >= self.least]

    def _of_kind(self) -> list[Row]:
        filed = {m[3] for book in self.books for text in self.pages.get(book, {}).values() for m in _ENTRY.finditer(text)}
        out: list[Row] = []
        for id_, contract in self.contracts.items():
            amount = max(self.changes.get(id_, [(0, number(contract["sum"]))]))[1]
            if contract["kind"] == self.kind and (not filed or id_ in filed):
                out.append((id_, self.names.get(contract["firm"], contract["firm"]), amount))
        return out

    def rows(self, draw: Draw, skill: float) -> list[Row]:
        """The rows to return; with chance 1 - skill each is missed, misread, or taken from the version that was superseded."""
        out = []
        for row in self._of_kind():
            first = number(self.contracts[str(row[0])]["sum"])
            right: Row | None = row if int(row[2]) >= self.least else None
            wrong = _slips(row, first) if right or first >= self.least else []
            row_read = slip(draw, skill, f"row {row[0]}", wrong, right)
            if row_read is not None:
                out.append(row_read)
        return out


def _slips(row: Row, first: int) -> list[Callable[[], Row | None]]:
    amount = int(row[2])
    old: Row = (row[0], row[1], first if first != amount else amount + 1_000)
    return [lambda: old] if first != amount else [lambda: None, lambda: (row[0], row[1], 10 * amount), lambda: old]


ledger_hunt = LedgerHunt()
