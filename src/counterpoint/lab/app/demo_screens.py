"""What the demo that trains prints: policies, tasks, decisions and measures, as tables and bars.

Always true: a screen is a function of the numbers alone, and computes none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from counterpoint.app.terminal.output import table
from counterpoint.display import counted, number

_WIDTH = 24


def bar(value: float, top: float, *, width: int = _WIDTH) -> str:
    """A bar of blocks; eighths at its end."""
    if not top > 0:
        return ""
    eighths = max(0, min(8 * width, round(8 * width * value / top)))
    whole, rest = divmod(eighths, 8)
    return "█" * whole + ("" if rest == 0 else " ▏▎▍▌▋▊▉"[rest])


def policies_screen(found: dict[str, Any]) -> str:
    """Reward of the learned policies beside hand-made ones and the bound."""
    bound = found["optimum"]["value"]
    rows = []
    for row in found["policies"]:
        runs = str(row["runs"]) if row["name"] in found["spent"] else ""
        share = f"{100 * row['mean'] / bound:.1f} %" if bound > 0 else "-"
        rows.append([row["name"], runs, f"{row['mean']:.1f}", _interval(row), share, bar(row["mean"], bound)])
    kind = "optimum" if found["optimum"]["kind"] == "exact" else "bound of the mean"
    rows.append([kind, "", f"{bound:.1f}", "", "100.0 %", bar(bound, bound)])
    head = ["policy", "runs", "reward", "95 % interval", "of bound", ""]
    said = [f"{d['label']} - {d['against']}: {d['mean']:+.1f} {_interval(d, '+')}, paired" for d in found["differences"]]
    said += [f"warning: not comparable: {why}" for why in found["not_comparable"]]
    title = f"Reward on {found['tasks']} tasks that no run has seen, the mean over training seeds\n"
    return title + table(head, rows, right=(1, 2, 4)) + "\n" + "\n".join(said) + "\n"


def _interval(row: dict[str, Any], sign: str = "") -> str:
    return "" if row["interval"] is None else "[" + ", ".join(f"{x:{sign}.1f}" for x in row["interval"]) + "]"


def tasks_screen(found: dict[str, Any]) -> str:
    """Reward and team size of the learned policies and of the best hand-made one, for each sort of task."""
    names = [*found["spent"], found["best"]]
    rows = [
        [r["task"], *(f"{r['reward'][n]:.1f}" for n in names), f"{r['bound_here']:.1f} ± {r['bound_half']:.1f}"]
        + [f"{r['agents'][n]:.1f}" for n in names]
        for r in found["by_task"]
    ]
    head = ["task", *names, "bound here", *(f"agents of {n}" for n in names)]
    luck = ", ".join(f"{r['luck']:+.1f}" for r in found["by_task"])
    said = (
        "The bound is of the mean over all tasks. The reference gets more on these than on 25 times as many others, by\n"
        f"{luck} points: so lucky are they, and so much is added to the bound here (± the 95 % interval of it)."
    )
    return "Reward and team size by task\n" + table(head, rows, right=range(1, len(head))) + f"\n{said}\n"


def measures_screen(found: dict[str, Any]) -> str:
    """E2 to E4 of the first policy and of the learned one."""
    rows = [[m["family"], m["name"], number(m["before"], 3), number(m["after"], 3)] for m in found["measures"]["rows"]]
    said = table(["", "measure", "before", "after"], rows, right=(2, 3))
    return f"E2 to E4, the mean over four traces of {found['measures']['task']}, before and after training\n{said}\n"


def _bars(title: str, rows: list[tuple[str, float, str]]) -> list[str]:
    top = max((v for _, v, _ in rows), default=0.0)
    width = max((len(name) for name, _, _ in rows), default=0)
    return [title, *(f"  {name.ljust(width)} {bar(v, top).ljust(_WIDTH)} {tail}" for name, v, tail in rows)]


def _sizes(row: dict[str, Any], names: Sequence[str]) -> str:
    return ", ".join(f"{row['agents'][name]:.1f}" for name in names)


def decisions_screen(found: dict[str, Any]) -> str:
    """What was learned of each of the five decisions."""
    b, (ours, *others) = found["behaviour"], found["spent"]
    beside = [*others, found["best"]]
    sizes = [(r["task"], r["agents"][ours], f"{r['agents'][ours]:.1f} ({_sizes(r, beside)})") for r in found["by_task"]]
    lines = _bars(f"What {ours} decides\nO1 spawn: agents, by task ({', '.join(beside)} in brackets)", sizes)
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


def title(found: dict[str, Any]) -> str:
    """What was trained, in how long, and what it was charged."""
    spent = ", ".join(f"{label} {found['spent'][label]['charged']:,.0f}" for label in found["spent"])
    about = f"Tasks: {found['about']}\n" if "about" in found else ""
    seeds = counted(found["seeds"], "training seed")
    return (
        f"Trained {' and '.join(found['spent'])} on {found['world']}, {seeds} each, {found['seconds']:.0f} s in all\n"
        f"Calls and rounds a run: {spent}\n{about}"
    )
