"""The figures of docs/lab/research, each from the rows of its claim.

    counterpoint reproduce fork-audit --seed 5000 --seeds 5 --json > rows.jsonl
    python tools/figures.py fork-audit rows.jsonl docs/images/fork-audit.svg
    counterpoint reproduce gradient-fidelity --seed 2101 --seeds 5 --json > rows.jsonl
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
from counterpoint.lab.bench.claims.gradient_fidelity import WIDTHS
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
    """Signal to noise of a team by the width, where it is above 0, and the cosine of the mean with the truth."""
    with sheet():
        out = figure(2)
        left, right = out.add_subplot(1, 2, 1), out.add_subplot(1, 2, 2)
        for k, name in enumerate(NAMES):
            its = look(k)
            its_style = {"color": its.colour, "marker": its.marker, "linestyle": its.dash}
            signal = [(n, rows[f"signal to noise of a team, {n} workers: {name}"]) for n in WIDTHS]
            seen = [(n, row) for n, row in signal if row["low"] is not None and row["low"] > 0]
            if len(seen) > 1:
                left.plot([n for n, _ in seen], [row["value"] for _, row in seen], label=name, **its_style)
                for n, row in seen:
                    left.plot([n, n], [row["low"], row["high"]], color=its.colour, linewidth=0.7)
            cosine = [(n, rows.get(f"cosine of the mean, {n} workers: {name}")) for n in WIDTHS]
            known = [(n, row["value"]) for n, row in cosine if row is not None and row["low"] is not None]
            if len(seen) > 1 and known:
                right.plot([n for n, _ in known], [value for _, value in known], label=name, **its_style)
        for axes in (left, right):
            axes.set(xscale="log", xlabel="workers")
            axes.set_xticks(WIDTHS, [str(n) for n in WIDTHS])
            axes.minorticks_off()
        left.set(yscale="log", ylabel="signal to noise of a team", title="Who sees the gradient")
        left.set_yticks([0.001, 0.01, 0.1], ["0.001", "0.01", "0.1"])
        right.set(ylabel="cosine of the mean with the truth", title="And without bias")
        right.axhline(1.0, color=look(NAMES.index(TEAM)).colour, linewidth=1.2, label=TEAM)
        right.legend(loc="center left")
        return picture(out, kind)


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
