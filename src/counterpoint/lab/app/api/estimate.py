"""What a run of a language model would take, before anything of it is there but the model's config.json.

Always true: nothing is loaded, played or written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterpoint.errors import CounterpointError

if TYPE_CHECKING:
    from counterpoint.lab.train.lm.memory import Plan

_ROLES = 2
"""Policies of `adapters = role` where the run does not name the roles that learn: they are known when a team has played."""


def estimate(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Bytes on a card, and seconds of learning an update, for 1, 8 and 64 cards and as many as torchrun started here.

    None where the model is not here, not even its config.json.
    """
    from counterpoint.lab.train.lm.memory import CARDS, count_weights, memory, seconds
    from counterpoint.lab.train.lm.torchrun import world_size

    plan = _plan(config)
    if plan is None:
        return None
    cards = sorted({*CARDS, world_size()})
    each = [{"cards": n, "bytes": memory(plan, n), "seconds": seconds(plan, n)} for n in cards]
    other = memory(replace(plan, is_recomputed=not plan.is_recomputed), 1)["activations"]
    about = {"weights": count_weights(plan.shape), "teams": plan.teams, "recompute": plan.is_recomputed}
    return about | {"activations_otherwise": other, "cards": each}


def _plan(config: Mapping[str, Any]) -> Plan | None:
    from counterpoint.lab.lm.network import shape_of
    from counterpoint.lab.lm.weights import find
    from counterpoint.lab.train.lm.memory import Plan

    folder, learn = Path(config["model"]), config["learn"]
    try:
        shape = shape_of(folder if (folder / "config.json").is_file() else find(config["model"]).path)
    except CounterpointError:
        return None
    is_gpu = config["device"].startswith("cuda")
    adapters = {"": 0, "shared": 1, "role": len(learn["roles"]) or _ROLES}[config["adapters"]]
    return Plan(
        shape=shape, adapters=adapters, rank=config["rank"], tokens=config["tokens"] or (65_536 if is_gpu else 8192),
        teams=learn["groups"] * learn["samples"], context=min(shape.context, config["context"] or 4096), is_gpu=is_gpu,
        slots=config["slots"] or (max(64, 768 // max(1, adapters)) if is_gpu else 64), is_recomputed=learn["recompute"],
    )  # fmt: skip


def estimate_lines(found: Mapping[str, Any]) -> tuple[Sequence[str], list[Sequence[str]], str]:
    """The same as a table's head and rows, and what it supposes."""
    from counterpoint.lab.train.lm.memory import MEASURED

    head = ("GiB on the first card", *(f"{one['cards']} card{'s' * (one['cards'] > 1)}" for one in found["cards"]))
    rows: list[Sequence[str]] = [
        (part, *(f"{one['bytes'][part] / 2**30:,.2f}" for one in found["cards"])) for part in found["cards"][0]["bytes"]
    ]
    otherwise = f"activations, {'without' if found['recompute'] else 'with'} learn.recompute"
    rows.append((otherwise, *(f"{found['activations_otherwise'] / 2**30:,.2f}" for _ in found["cards"])))
    took = [one["seconds"] for one in found["cards"]]
    rows.append(("seconds of learning an update", *(f"{x:,.{1 if x > 1 else 3}f}" for x in took)))
    measured = f"{MEASURED['teams']:.0f} teams, {MEASURED['tokens']:,.0f} tokens, {MEASURED['weights']:,.0f} weights"
    told = (
        f"{found['weights']:,} weights. Activations are of one micro-batch, to within a quarter, if no compiler fuses. "
        f"Seconds are those of one measured update on one H200 ({measured}: {MEASURED['seconds']} s), as if every model and "
        "number of cards computed at that rate, and teams wrote as much: waiting of cards for each other is not in them."
    )
    return head, rows, told
