"""The screens of the demo: rewards beside hand-made policies, E1-E4 before and after, and the five decisions as small text plots.

Always true: a number that was not measured is a dash; bars are drawn to one scale within a plot and carry their number.
"""

from __future__ import annotations

from typing import Any

from counterpoint.app.cli._output import number, table

_WIDTH = 24


def bar(value: float, top: float, *, width: int = _WIDTH) -> str:
    """A bar of blocks; eighths at its end."""
    if not top > 0:
        return ""
    eighths = max(0, min(8 * width, round(8 * width * value / top)))
    whole, rest = divmod(eighths, 8)
    return "█" * whole + ("" if rest == 0 else " ▏▎▍▌▋▊▉"[rest])


def policies_screen(found: dict[str, Any]) -> str:
    """Reward of the learned policy beside hand-made ones and the bound."""
    bound = found["optimum"]["value"]
    rows = []
    for row in found["policies"]:
        low, high = row["interval"]
        interval = f"[{low:.1f}, {high:.1f}]"
        rows.append([row["name"], f"{row['mean']:.1f}", interval, f"{100 * row['mean'] / bound:.1f} %", bar(row["mean"], bound)])
    kind = "optimum" if found["optimum"]["kind"] == "exact" else "certified bound"
    rows.append([kind, f"{bound:.1f}", "", "100.0 %", bar(bound, bound)])
    head = ["policy", "reward", "95 % interval", "of bound", ""]
    gain = found["gain"]
    low, high = gain["interval"]
    said = f"learned - {gain['over']}: {gain['mean']:+.1f} [{low:+.1f}, {high:+.1f}], paired"
    return f"Reward on {found['tasks']} tasks it has not seen\n" + table(head, rows, right=(1, 3)) + f"\n{said}\n"


def measures_screen(found: dict[str, Any]) -> str:
    """E1-E4 of the first policy and of the learned one."""
    rows = [[m["family"], m["name"], number(m["before"], 3), number(m["after"], 3)] for m in found["measures"]]
    said = table(["", "measure", "before", "after"], rows, right=(2, 3))
    return f"E1-E4, mean over four traces, before and after training\n{said}\n"


def _bars(title: str, rows: list[tuple[str, float, str]]) -> list[str]:
    top = max((v for _, v, _ in rows), default=0.0)
    width = max((len(name) for name, _, _ in rows), default=0)
    return [title, *(f"  {name.ljust(width)} {bar(v, top).ljust(_WIDTH)} {tail}" for name, v, tail in rows)]


def decisions_screen(found: dict[str, Any]) -> str:
    """What was learned of each of the five decisions."""
    b = found["behaviour"]
    lines = _bars(
        "O1 spawn: agents, by items of the task (reference in brackets)",
        [(f"{r['items']} items", r["learned"], f"{r['learned']:.1f} ({r['other']:.1f})") for r in b["spawn"]],
    )
    lines += _bars(
        "O2 delegate: share of calls that go to family B, by kind of item",
        [(kind, share.get("B", 0.0), f"{100 * share.get('B', 0.0):.0f} %") for kind, share in b["delegate"].items()],
    )
    lines += _bars("O3 communicate: size of the brief", [(k, v, f"{100 * v:.0f} %") for k, v in b["communicate"].items()])
    lines += _bars("O4 aggregate: the rule", [(k, v, f"{100 * v:.0f} %") for k, v in b["aggregate"].items() if v > 0.005])
    lines += _bars(
        "O5 stop: calls on an item before it is left (reference in brackets)",
        [(kind, s["learned"], f"{s['learned']:.1f} ({s['other']:.1f})") for kind, s in b["stop"].items()],
    )
    return "\n".join(lines) + "\n"
