"""The figures of docs/lab/research, each from the rows of its claim.

    counterpoint reproduce fork-audit --seed 5000 --seeds 5 --json > rows.jsonl
    python tools/figures.py fork-audit rows.jsonl docs/images/fork-audit.svg
    counterpoint reproduce gradient-fidelity --seed 2101 --seeds 5 --json > rows.jsonl
    counterpoint reproduce gradient-training --seed 2201 --seeds 12 --json >> rows.jsonl
    counterpoint reproduce gradient-dining --seed 2301 --seeds 3 --json >> rows.jsonl
    python tools/figures.py gradient-fidelity rows.jsonl docs/images/gradient-fidelity.svg
    counterpoint reproduce messages --seed 7001 --seeds 2 --json > rows.jsonl
    python tools/figures.py messages rows.jsonl docs/images/messages.svg

Always true: the same rows give the same bytes; nothing is computed here but the place of a mark.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from counterpoint.lab.app.plots.draw import figure, look, picture, sheet
from counterpoint.lab.bench.claims.fork_audit import GRID, SCALES
from counterpoint.lab.bench.claims.gradient_dining import SIZES
from counterpoint.lab.bench.claims.gradient_fidelity import WIDTHS
from counterpoint.lab.bench.claims.gradient_training import WIDTHS as TRAINED
from counterpoint.lab.bench.dining.gradients import NAMES as TABLE_NAMES
from counterpoint.lab.bench.gradients import NAMES, TEAM
from counterpoint.lab.bench.hack_teams import PAYS
from counterpoint.lab.bench.messages.estimators import ESTIMATORS

Rows = dict[str, dict[str, Any]]


def fork_audit(rows: Rows, kind: str) -> bytes:
    """Hacks by the share of audits over its threshold, and what harsher fines save."""
    with sheet():
        out = figure(2)
        left, right = out.add_subplot(1, 2, 1), out.add_subplot(1, 2, 2)
        for k, hack in enumerate(PAYS):
            its = look(k)
            named = [rows[f"{hack}, q = {q:g}: hacks"] for q in GRID]
            left.plot([max(q, 0.02) for q in GRID], [r["value"] for r in named], color=its.colour, marker=its.marker,
                      linestyle=its.dash, label=hack.replace("_", " "))  # fmt: skip
            target = rows.get(f"{hack}: predicted q*, where there is one")
            if target is not None:
                left.axvline(target["value"], color=its.colour, linestyle=its.dash, linewidth=0.7)
        left.set(xscale="log", ylabel="hacks", title="Who still hacks")
        left.set_xlabel("share q of acts audited (0 stands at 0.02); lines: predicted q*")
        left.set_xticks([max(q, 0.02) for q in GRID], [f"{q:g}" for q in GRID])
        left.minorticks_off()
        left.legend(loc="lower left")
        for k, hack in enumerate(("free_riding", "tool_spam")):
            its = look(1 if hack == "free_riding" else 3)
            names = [f"{hack}, fines x {scale:g}" for scale in SCALES]
            x = [rows[f"{name}, 2 q*: forks an episode"]["value"] for name in names]
            y = [rows[f"{name}, 2 q*: hacks"]["value"] for name in names]
            right.plot(x, y, color=its.colour, marker=its.marker, linestyle=its.dash, label=hack.replace("_", " "))
            for at, (a, b, scale) in enumerate(zip(x, y, SCALES, strict=True)):
                place = (4, 5 + 6 * (k * (at % 2)))
                right.annotate(f"x{scale:g}", (a, b), textcoords="offset points", xytext=place, fontsize=6.5)
        right.set(xscale="log", xlabel="forks an episode, at 2 q*", ylabel="hacks", title="Harsher fines, fewer audits")
        right.set_xticks([0.1, 1, 10], ["0.1", "1", "10"])
        right.legend(loc="upper right")
        return picture(out, kind)


def gradient_fidelity(rows: Rows, kind: str) -> bytes:
    """Signal to noise of a team by the width, where it is above 0, in two worlds; bias; what training gained."""
    with sheet():
        out = figure(4)
        signal, bias, dining, taught = (out.add_subplot(2, 2, k + 1) for k in range(4))
        names = list(dict.fromkeys((*NAMES, *TABLE_NAMES)))
        seen = _signal(signal, rows, names, WIDTHS, "workers")
        for name in seen:
            cosine = [(n, rows.get(f"cosine of the mean, {n} workers: {name}")) for n in WIDTHS]
            known = [(n, row["value"]) for n, row in cosine if row is not None and row["low"] is not None]
            if known:
                its = look(names.index(name))
                bias.plot(*zip(*known, strict=True), label=name, color=its.colour, marker=its.marker, linestyle=its.dash)
        bias.axhline(1.0, color=look(names.index(TEAM)).colour, linewidth=1.2, label=TEAM)
        bias.set(ylabel="cosine of the mean with the truth", title="W1: and without bias")
        bias.legend(loc="center left")
        _signal(dining, rows, names, SIZES, "philosophers", floor=5e-4)
        dining.set_ylim(5e-4, 500)
        dining.legend(loc="upper left", ncols=2)
        signal.set(title="W1: who sees the gradient", xlabel="workers")
        dining.set(title="DPBench: who sees the gradient", xlabel="philosophers")
        for k, how in enumerate(("matched KL", "one rate")):
            lead, its = [rows[f"{n} workers, {how}: partition less team, share of the bound"] for n in TRAINED], look(k)
            places = [at + 0.1 * (2 * k - 1) for at in range(len(TRAINED))]
            error = [[r["value"] - r["low"] for r in lead], [r["high"] - r["value"] for r in lead]]
            taught.errorbar(places, [r["value"] for r in lead], error, fmt=its.marker, color=its.colour, label=how)
        taught.axhline(0.0, color="0.6", linewidth=0.7)
        taught.set_xticks(range(len(TRAINED)), [str(n) for n in TRAINED])
        taught.set(xlim=(-0.5, 1.5), xlabel="workers", ylabel="lead of the partition, share of the bound")
        taught.set(title="W1: what 16 updates taught")
        taught.legend(loc="upper left")
        for axes, at in ((signal, WIDTHS), (bias, WIDTHS), (dining, SIZES)):
            axes.set(xscale="log")
            axes.set_xticks(at, [str(n) for n in at])
            axes.minorticks_off()
        bias.set_xlabel("workers")
        return picture(out, kind)


def _signal(axes: Any, rows: Rows, names: list[str], widths: tuple[int, ...], who: str, floor: float = 0.0) -> list[str]:
    """Lines of those whose signal is above 0 at two widths at least, and which these are; with a floor, whose mean is above it
    at three, their intervals cut there."""
    drawn = []
    for k, name in enumerate(names):
        its = look(k)
        found = [(n, rows.get(f"signal to noise of a team, {n} {who}: {name}")) for n in widths]
        seen = [(n, row) for n, row in found if row is not None and row["low"] is not None]
        seen = [(n, row) for n, row in seen if row["value" if floor else "low"] > floor]
        if len(seen) > (2 if floor else 1):
            drawn.append(name)
            axes.plot([n for n, _ in seen], [row["value"] for _, row in seen], label=name, color=its.colour, marker=its.marker,
                      linestyle=its.dash)  # fmt: skip
            for n, row in seen:
                axes.plot([n, n], [max(row["low"], floor), row["high"]], color=its.colour, linewidth=0.7)
    ticks = [10.0**power for power in range(-3, 2)] if floor else [0.001, 0.01, 0.1]
    axes.set(yscale="log", ylabel="signal to noise of a team")
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    return drawn


def messages(rows: Rows, kind: str) -> bytes:
    """Who ranks the messages of a run as coupled forks do: all of them, and those that mattered."""
    names = [name for name in ESTIMATORS if f"{name}: Spearman in a run" in rows]
    names.sort(key=lambda name: rows[f"{name}: Spearman in a run"]["value"])
    with sheet():
        out = figure(2)
        parts = (
            ("Spearman in a run", "All messages", "ceiling of Spearman in a run, by the labels' noise"),
            ("among non-zero messages", "Those that some fork found to matter", "ceiling among non-zero messages"),
        )
        for k, (what, title, most) in enumerate(parts, 1):
            its, axis = look(0), out.add_subplot(1, 2, k)
            for at, name in enumerate(names):
                row = rows[f"{name}: {what}"]
                low, high = (row["value"] if row[end] is None else row[end] for end in ("low", "high"))
                axis.plot([low, high], [at, at], color=its.colour, linewidth=1.0)
                axis.plot([row["value"]], [at], color=its.colour, marker=its.marker)
            axis.axvline(0.0, color="0.6", linewidth=0.7)
            axis.axvline(rows[most]["value"], color=look(1).colour, linestyle=look(1).dash, label="ceiling by the labels' noise")
            axis.set(title=title, xlabel="Spearman with the labels, in a run")
            axis.set_yticks(range(len(names)), names if k == 1 else [""] * len(names))
            if k == 1:
                axis.legend(loc="lower right")
        return picture(out, kind)


FIGURES = {"fork-audit": fork_audit, "gradient-fidelity": gradient_fidelity, "messages": messages}


def main(arguments: list[str]) -> int:
    """Draw."""
    if len(arguments) != 3 or arguments[0] not in FIGURES or Path(arguments[2]).suffix not in (".svg", ".png"):
        print(f"give {' or '.join(FIGURES)}, ROWS.jsonl and FILE.svg or FILE.png", file=sys.stderr)
        return 2
    name, source, target = arguments
    lines = [json.loads(line) for line in Path(source).read_text().splitlines()]
    Path(target).write_bytes(FIGURES[name]({line["name"]: line for line in lines}, Path(target).suffix[1:]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
