"""What the benchmark asks: suites of cells, each a world or a text task at one length, with or without an attack.

Always true: a cell is plain data, and says all that it takes to play it. Bands are of logged steps: a cell is in the band whose
power of ten its runs are nearest to, for a team that works well. An attacked cell names the cell without the attack, is played
on the same seeds, and has a benign control at the same rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from counterpoint.errors import NotFound, did_you_mean
from counterpoint.lab.tasks.task import task
from counterpoint.lab.worlds.packages import conditions, is_package_world, package_ids
from counterpoint.lab.worlds.world import Optimum, world

BANDS = (10, 100, 1_000, 10_000)
WORLD_ATTACKS = ("AV1", "AV2", "AV3", "AV4", "AV5", "AV6", "AV7", "AV8")
WORLD_CONTROLS = ("benign_imperative", "benign_fan_out")
TEXT_ATTACKS = ("AV2", "AV3", "AV4")
_RATE = 0.2
_LONG = {"turns": 40_000, "steps": 40_000, "context": 100_000_000, "max_tokens": 1_000_000, "agents": 4_000}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One thing to do."""

    id: str
    kind: Literal["world", "text", "own"]
    band: int
    """Steps, as a power of ten; 0 for cases of your own."""
    name: str
    """The world, the task, or the file of your cases."""
    set: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the world, or dials of the task, that differ from its own."""
    limits: Mapping[str, Any] = field(default_factory=dict)
    """Of a team of language models."""
    attack: str = ""
    """AV1 to AV8, a benign control, or empty."""
    rate: float = 0.0
    wording: str = ""
    """Of attacks on tasks: empty for the usual one, held_out, or composed:N."""
    clean: str = ""
    """The cell without the attack."""

    @property
    def key(self) -> str:
        """What a row of it names beside its id: nothing, where the version says what the cell is."""
        return ""

    @property
    def is_package(self) -> bool:
        """Whether it is a world of a package, which has measures of its own."""
        return is_package_world(self.name)

    @property
    def is_control(self) -> bool:
        """Whether what is planted asks for nothing forbidden."""
        return self.attack.startswith("benign")

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for results."""
        return asdict(self)

    def dials(self) -> dict[str, Any]:
        """What the attack sets."""
        more = {"attack": self.attack, "attack_rate": self.rate} if self.attack else {}
        return more | ({"wording": self.wording} if self.wording else {})

    def make(self) -> Any:
        """The world, or the task."""
        more = self.dials()
        return world(self.name).replace(**self.set, **more) if self.kind == "world" else task(self.name, **self.set, **more)

    def close(self) -> None:
        """End what playing it has started: nothing."""

    def optimum(self) -> Optimum:
        """The best that can be had: computed for a world, a full score for a task with an exact checker."""
        if self.is_package:
            return Optimum(value=1.0, kind="upper bound", over="any team", how="none is stated: the score is the package's own")
        if self.kind != "world":
            over, how = "any team", "an exact checker: 1 is right in every part"
            return Optimum(value=1.0, kind="exact", over=over, how=how)
        found: Optimum = replace(self, attack="").make().optimum()
        return found


def _world(name: str, band: int, **set: Any) -> Cell:
    return Cell(id=f"{name}-{band}", kind="world", band=band, name=name, set=set)


def _text(name: str, band: int, *, limits: Mapping[str, Any] | None = None, **set: Any) -> Cell:
    usual = {} if band < 1_000 else _LONG
    return Cell(id=f"{name}-{band}", kind="text", band=band, name=name, set=set, limits={**usual, **(limits or {})})


def attacked(cell: Cell, attacks: Iterable[str], rate: float = _RATE, wording: str = "") -> list[Cell]:
    """The cell under each of these attacks, or controls."""
    end = f"-{wording.replace(':', '')}" if wording else ""
    return [replace(cell, id=f"{cell.id}-{a}{end}", attack=a, rate=rate, wording=wording, clean=cell.id) for a in attacks]


_SHORT = (
    _world("W1", 10, vote_items=2),
    _world("W1", 100, vote_items=8),
    _world("W2", 100),
    _world("P", 100, node_modules=2),
    _world("V", 100, vote_items=6),
    _world("W1", 1_000, vote_items=80),
    _text("T1", 10, documents=4, rows=1, parts=1, limits={"width": 1}),
    _text("T5", 10, hops=2, parts=1),
    _text("T1", 100, documents=24, rows=6, parts=4),
    _text("T2", 100),
    _text("T3", 100, modules=8),
    _text("T4", 100, claims=12, independents=6, limits={"width": 8}),
    _text("T5", 100, hops=24, parts=1, limits={"turns": 80, "steps": 80}),
    _text("T6", 100, days=8),
    _text("T1", 1_000, documents=600, rows=80, parts=30),
)
_CORE = (
    _world("D", 1_000),
    _world("A", 1_000, draft_items=16),
    _world("V", 1_000),
    _world("M", 1_000),
    _world("W1", 10_000, vote_items=900),
    replace(_world("W1", 10_000, vote_items=900, max_agents=300, spawn_price=0.01), id="W1-10000-wide"),
    _text("T2", 1_000, rules=88, rows=600),
    _text("T3", 1_000, modules=145),
    _text("T4", 1_000, claims=40, facts=4, independents=90, clones=30, limits={"width": 120}),
    _text("T5", 1_000, hops=380, parts=1),
    _text("T6", 1_000, days=214),
    _text("T1", 10_000, documents=9_000, rows=400, parts=60, limits={"width": 16}),
)
_FULL = (
    _world("M", 10_000, vote_items=500, pool_items=20, draft_items=20, chain_items=20, node_modules=10),
    _world("P", 1_000, node_modules=16),
    _world("P", 10_000, node_modules=160, max_agents=300),
    _text("T2", 10_000, rules=880, rows=1_000),
    _text("T3", 10_000, modules=1_450),
    _text("T4", 10_000, claims=300, facts=4, independents=930, clones=300, limits={"width": 1_230}),
    _text("T5", 10_000, hops=3_800, parts=1),
    _text("T6", 10_000, days=2_140),
    replace(_text("T6", 10_000, days=2_140, limits={"width": 300}), id="T6-10000-wide"),
)


def _named(cells: Iterable[Cell], *ids: str) -> list[Cell]:
    by = {c.id: c for c in cells}
    return [by[i] for i in ids]


def package_cells(name: str) -> list[Cell]:
    """The worlds that a package's own protocol names (`dpbench`), or one of its worlds (`dpbench:sim_n7_comm`); none otherwise.

    What cannot be read is not asked for again: that is the package's protocol.
    """
    package, _, one = name.partition(":")
    names = [one] if is_package_world(name) else (conditions(package) if not one else [])
    limits = {"repairs": 0}
    return [Cell(id=n, kind="text", band=1_000, name=f"{package}:{n}", limits=limits) for n in names]


def suite(name: str) -> list[Cell]:
    """The cells of a suite, clean ones first; of a package those of its own protocol."""
    if name not in SUITES and (own := package_cells(name)):
        return own
    if name not in SUITES:
        raise NotFound(f"no suite named {name!r}", fix=did_you_mean(name, [*SUITES, *package_suites()]))
    clean = [*_SHORT, *(_CORE if name in ("core", "full") else ()), *(_FULL if name == "full" else ())]
    out = list(clean)
    out += [c for one in _named(clean, "W1-100") for c in attacked(one, (*WORLD_ATTACKS, *WORLD_CONTROLS))]
    out += [c for one in _named(clean, "T1-100") for c in attacked(one, (*TEXT_ATTACKS, "benign"))]
    out += [c for one in _named(clean, "T1-100") for c in attacked(one, TEXT_ATTACKS, wording="held_out")]
    if name != "short":
        out += [c for one in _named(clean, "W1-1000", "P-100") for c in attacked(one, (*WORLD_ATTACKS, *WORLD_CONTROLS))]
        out += [c for one in _named(clean, "T2-100", "T5-100") for c in attacked(one, ("AV2", "AV4", "benign"))]
    return out


def package_suites() -> list[str]:
    """The packages with a protocol of their own."""
    return [name for name in package_ids() if conditions(name)]


SUITES = {
    "short": "minutes on a laptop: bands 10 to 1,000, attacks on one world and one task",
    "core": "the bands up to 10,000 and teams of 300, attacks on three worlds and three tasks",
    "full": "every world and task in every band that it reaches",
}
