"""The `Ledger`: the team reward as accounts in a tree, by double entry, so that nothing is paid twice or lost.

Always true: what an account holds is what its children hold, at every account, and all leaves together hold the team reward,
each within 1e-9 (times the largest amount, when above 1). An account is refined once. What a refinement does not give to a child
stands on `residual`, in sight. Sums are `math.fsum`: rounded once, whatever the number of leaves.

The tree: team -> orchestrator | role -> agent -> turn -> message | tool -> token, and the fixed leaves prior (what was expected
before anything happened), environment (luck), unidentified and residual. An account is a tuple of names from below the team, each
"unit:id" or a fixed leaf; () is the team.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from counterpoint.errors import InputError, NotFound, did_you_mean
from counterpoint.trace.vocabulary import UNITS

Account = tuple[str, ...]
FIXED = ("prior", "environment", "unidentified", "residual")
"""Leaves that stand beside the units."""
_DEPTH = {"team": 0, "orchestrator": 1, "role": 1, "agent": 2, "turn": 3, "message": 4, "tool": 4, "token": 5}
_TOLERANCE = 1e-9

assert set(_DEPTH) == set(UNITS)


@dataclass(frozen=True)
class LedgerEntry:
    """One booking: an amount leaves an account for another."""

    debit: Account
    credit: Account
    amount: float


def projected(amounts: Mapping[str, float], variances: Mapping[str, float], total: float) -> dict[str, float]:
    """c' = c + S 1 (x - 1'c) / (1'S1): amounts that sum to the total, changed least where they are known best."""
    if set(amounts) != set(variances) or any(not v >= 0 for v in variances.values()):
        raise InputError("every amount needs a variance of at least 0", fix="give variances for the same names")
    scale = math.fsum(variances.values())
    if scale <= 0:
        raise InputError("all variances are 0", fix="leave them out: the difference then stands on residual")
    gap = total - math.fsum(amounts.values())
    return {name: amount + variances[name] * gap / scale for name, amount in amounts.items()}


@dataclass
class Ledger:
    """Accounts of one trace's team reward."""

    total: float
    """The team reward."""
    amounts: dict[Account, float] = field(default_factory=dict)
    """What each account was given."""
    children: dict[Account, list[Account]] = field(default_factory=dict)
    """Accounts that were refined."""
    entries: list[LedgerEntry] = field(default_factory=list)
    """Every booking, in order."""

    def __post_init__(self) -> None:
        if not math.isfinite(self.total):
            raise InputError(f"the reward is {self.total}, not a finite number", fix="leave out what was not scored")
        self.amounts.setdefault((), float(self.total))

    @staticmethod
    def of(total: float, leaves: Mapping[Account, float]) -> Ledger:
        """The ledger with these leaves; every account above them is their sum, and what they miss of the total is on residual."""
        under: dict[Account, list[float]] = defaultdict(list)
        below: dict[Account, dict[Account, None]] = defaultdict(dict)
        rest = math.fsum([total, *(-amount for amount in leaves.values())])
        for leaf, amount in {**leaves, ("residual",): leaves.get(("residual",), 0.0) + rest}.items():
            if not leaf:
                raise InputError("the team's account cannot be refined", fix="name an account below it")
            for depth in range(len(leaf), 0, -1):
                under[leaf[:depth]].append(amount)
                below[leaf[: depth - 1]][leaf[:depth]] = None
        ledger = Ledger(total)
        for account in sorted(below, key=len):
            if account in leaves:
                raise InputError(f"{_name(account)} is a leaf and has children", fix="book on one level")
            ledger._book(account, {child: math.fsum(under[child]) for child in below[account]})
        return ledger

    def refine(
        self,
        account: Account,
        amounts: Mapping[str, float],
        *,
        variances: Mapping[str, float] | None = None,
        unidentified: float = 0.0,
    ) -> None:
        """Split an account, once. What the amounts miss goes to its `residual`; with variances they are changed least to fit."""
        if account not in self.amounts:
            raise NotFound(f"no account {_name(account)}", fix=did_you_mean(_name(account), map(_name, self.amounts)))
        if account in self.children:
            raise InputError(f"{_name(account)} was refined before", fix="an account is refined once; refine its children")
        if account and account[-1] in ("prior", "unidentified", "residual"):
            raise InputError(f"{_name(account)} is a fixed leaf", fix="refine an account that an agent earned")
        if not amounts or not all(map(math.isfinite, [*amounts.values(), unidentified])) or {*FIXED[2:]} & set(amounts):
            raise InputError("a refinement names finite amounts and leaves residual to the ledger", where=_name(account))
        held = self.amounts[account]
        if variances is not None:
            amounts = projected(amounts, variances, held - unidentified)
        booked = {(*account, name): float(amount) for name, amount in amounts.items()}
        if unidentified:
            booked[(*account, "unidentified")] = unidentified
        rest = math.fsum([held, *(-a for a in booked.values())])
        if rest:
            booked[(*account, "residual")] = rest
        self._book(account, booked)

    def _book(self, account: Account, booked: Mapping[Account, float]) -> None:
        self.children[account] = list(booked)
        self.amounts.update(booked)
        self.entries += [LedgerEntry(account, child, amount) for child, amount in booked.items()]

    # -- reading -------------------------------------------------------------------------------------------------

    def leaves(self) -> dict[Account, float]:
        """The accounts that were not refined; they hold everything."""
        return {account: amount for account, amount in self.amounts.items() if account not in self.children}

    def cut(self, unit: str) -> dict[Account, float]:
        """The accounts of a level: those of the unit (or its twin: role and orchestrator, message and tool), and leaves above."""
        if unit not in _DEPTH:
            raise InputError(f"no unit {unit!r}", fix=did_you_mean(unit, _DEPTH))
        out: dict[Account, float] = {}
        todo: list[Account] = [()]
        while todo:
            account = todo.pop()
            if account not in self.children or _depth(account) >= _DEPTH[unit]:
                out[account] = self.amounts[account]
            else:
                todo.extend(reversed(self.children[account]))
        return out

    def fixed(self) -> dict[str, float]:
        """What stands on each kind of fixed leaf, anywhere in the tree."""
        return {kind: math.fsum(a for account, a in self.leaves().items() if kind in account) for kind in FIXED}

    def error(self) -> float:
        """The largest difference between an account and its children, or between all leaves and the total."""
        gaps = [abs(math.fsum([self.amounts[a], *(-self.amounts.get(c, 0.0) for c in cs)])) for a, cs in self.children.items()]
        return max([*gaps, abs(math.fsum([self.total, *(-amount for amount in self.leaves().values())]))])

    def check(self) -> float:
        """The error, or one clear error when an account is missing or does not hold what its children hold."""
        lost = [c for cs in self.children.values() for c in cs if c not in self.amounts]
        if lost:
            raise InputError(f"account {_name(lost[0])} is missing", why=f"{len(lost)} were booked and are not there")
        error, size = self.error(), max(1.0, *map(abs, self.amounts.values()))
        if not error <= _TOLERANCE * size:
            raise InputError(f"the accounts miss the team reward by {error:.3g}", fix="a bug in Counterpoint: please report it")
        return error


def _depth(account: Account) -> int:
    return _DEPTH.get(account[-1].partition(":")[0], 0) if account else 0


def _name(account: Account) -> str:
    return "/".join(("team", *account))
