"""The figure of docs/lab/research/fork-audit.md, from the rows of its claim.

    counterpoint reproduce fork-audit --seed 5000 --seeds 5 --json > rows.jsonl
    python tools/fork_audit_figure.py rows.jsonl docs/images/fork-audit.svg

Always true: the same rows give the same bytes; nothing is computed here but the place of a mark.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from counterpoint.lab.app.plots.draw import figure, look, picture, sheet
from counterpoint.lab.bench.claims.fork_audit import GRID, SCALES
from counterpoint.lab.bench.hack_teams import PAYS

Rows = dict[str, dict[str, Any]]


def draw(rows: Rows, kind: str) -> bytes:
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


def main(arguments: list[str]) -> int:
    """Draw."""
    if len(arguments) != 2 or Path(arguments[1]).suffix not in (".svg", ".png"):
        print("give ROWS.jsonl and FILE.svg or FILE.png", file=sys.stderr)
        return 2
    lines = [json.loads(line) for line in Path(arguments[0]).read_text().splitlines()]
    Path(arguments[1]).write_bytes(draw({line["name"]: line for line in lines}, Path(arguments[1]).suffix[1:]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
