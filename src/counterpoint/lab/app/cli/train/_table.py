"""What a training run prints: a line per evaluation, a live table on a terminal, or JSON lines; alerts marked with `!`.

Always true: rows and alerts are results and go to stdout, progress goes to stderr. A line holds means over the updates
since the line before it. A closed pipe ends the run as Ctrl-C does, with a checkpoint.
"""

from __future__ import annotations

import math
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import click

from counterpoint.app.terminal.output import emit, table
from counterpoint.app.terminal.progress import progress
from counterpoint.app.terminal.screen import Screen
from counterpoint.app.words import plain_text
from counterpoint.display import duration, number

# Column, width; each row is a dictionary by these names.
_COLUMNS = (
    ("step", 6), ("reward", 15), ("R1", 8), ("agents", 8), ("rounds", 8), ("calls/ep", 9), ("KL", 8), ("held-out", 15),
    ("decisions/s", 12), ("traces", 7),
)  # fmt: skip
# Which column an alert marks.
_MARKS = {
    "serial_collapse": "agents", "dominant_agent": "calls/ep", "over_communication": "calls/ep", "zero_variance": "reward",
    "held_out_flat": "held-out", "mask_mismatch": "KL",
}  # fmt: skip
# Left out first where the terminal is narrow.
_DROPPED = ("decisions/s", "KL", "R1", "rounds")
_LIVE_ROWS = 16
Row = Mapping[str, Any]


def printer(*, as_json: bool, watch: bool) -> Json | Lines:
    """Who tells of the run: JSON lines, a live table where there is a terminal to show it, else lines."""
    if as_json:
        return Json()
    return Live() if watch and sys.stdout.isatty() else Lines()


def _columns() -> list[tuple[str, int]]:
    """The columns that fit the terminal; all of them elsewhere."""
    room = shutil.get_terminal_size((110, 24)).columns if sys.stdout.isatty() else 200
    gone: set[str] = set()
    for name in _DROPPED:
        if sum(width for n, width in _COLUMNS if n not in gone) > room:
            gone.add(name)
    return [pair for pair in _COLUMNS if pair[0] not in gone]


def _mean(rows: Sequence[Row], name: str) -> float | None:
    found = [r[name] for r in rows if isinstance(r.get(name), (int, float))]
    return math.fsum(found) / len(found) if found else None


def _with_se(mean: float | None, se: float | None) -> str:
    return "-" if mean is None else f"{mean:.2f}" + ("" if se is None else f" ±{se:.2f}")


def _short(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


class Json:
    """One object per line."""

    def __call__(self, kind: str, row: Row) -> None:
        """Told by the run."""
        more = {"run_kind": row["kind"]} if "kind" in row else {}
        _out(lambda: emit({**row, **more, "kind": kind}))

    def close(self) -> None:
        """Nothing is left open."""


class Lines:
    """A line per evaluation, and progress on stderr."""

    draws_itself = False

    def __init__(self) -> None:
        self._since: list[Row] = []
        self._held: Row | None = None
        """An evaluation whose line waits for the alerts of its update, which mark it."""
        self._alerts: list[Row] = []
        self._decided = self._stored = 0
        self._run = ""
        self._open = ExitStack()
        self._bar = self._open.enter_context(progress("training", 1, quiet=self.draws_itself))

    def __call__(self, kind: str, row: Row) -> None:
        """Told by the run."""
        if kind != "alert":
            self._flush()
        match kind:
            case "start":
                self._run, self._decided = str(row["run"]), row["spent"]["decisions"]
                self._bar.begin_at(row.get("progress", 0.0))
                self._head(row)
            case "update":
                self._since.append(row)
                self._show_progress(row)
            case "eval":
                self._held, self._stored = row, row["stored"]
                if self._bar.done < 1:
                    self._bar.at(self._bar.done, about=f"playing update {row['update'] + 1:,}")
            case "note":
                click.echo(plain_text(str(row["what"])), err=True)
            case "alert":
                self._alerts.append(row)
                if self._held is None:
                    self._show_alert(row)

    def close(self) -> None:
        """Print what waits, and leave the terminal as it was."""
        self._flush()
        self._open.close()

    def _flush(self) -> None:
        held, self._held = self._held, None
        if held is None:
            return
        self._show(self._cells(held))
        for alert in self._alerts:
            if alert["update"] == held["update"]:
                self._show_alert(alert)
        self._since, self._alerts, self._decided = [], [], held["decisions"]

    # -- lines

    def _head(self, row: Row) -> None:
        again = f", resumed after update {row['update']:,}" if row["update"] else ""
        head = f"run {self._run}  preset {row['preset']}  world {row['world']}  seed {row['seed']}{again}"
        self._print(plain_text(head))
        self._print("".join(name.rjust(width) for name, width in _columns()))

    def _cells(self, held: Row) -> dict[str, str]:
        """The line of an evaluation: means over the updates since the last one."""
        rows = self._since
        seconds, made = math.fsum(r["seconds"] for r in rows), held["decisions"] - self._decided
        errors = [r["reward_se"] for r in rows if "reward_se" in r]  # imitation plays nothing
        se = math.sqrt(math.fsum(e**2 for e in errors)) / len(errors) if errors else None
        kl = _mean(rows, "kl")
        cells = {
            "step": f"{held['update']:,}", "reward": _with_se(_mean(rows, "reward"), se), "R1": _short(_mean(rows, "R1"), 2),
            "agents": _short(_mean(rows, "agents")), "rounds": _short(_mean(rows, "rounds")),
            "calls/ep": _short(_mean(rows, "calls_per_episode")), "KL": "-" if kl is None else f"{kl:.4f}",
            "held-out": _with_se(held["mean"], held["se"]), "traces": f"{self._stored:,}",
            "decisions/s": _short(made / seconds if seconds and made else None, 0),
        }  # fmt: skip
        for alert in self._alerts:
            column = _MARKS.get(alert["code"], "step")
            cells[column] += "" if cells[column].endswith("!") else " !"
        return cells

    def _show(self, cells: Mapping[str, str]) -> None:
        self._print("".join(cells[name].rjust(width) for name, width in _columns()))

    def _show_alert(self, row: Row) -> None:
        self._print(self._alert_text(row))

    def _alert_text(self, row: Row) -> str:
        look = ""
        if row["traces"]:
            count = "1 trace" if len(row["traces"]) == 1 else f"{len(row['traces'])} traces"
            look = f": look at {count} -> counterpoint show {row['traces'][0]} --store {self._run}/store"
        return plain_text(f"! step {row['update']}  {row['code']}  {row['what']}{look}")

    def _print(self, text: str) -> None:
        _out(lambda: click.echo(text))

    # -- progress

    def _show_progress(self, row: Row) -> None:
        level = f"reward {row['reward']:.2f}" if "reward" in row else f"loss {row['loss']:.3f}"
        self._bar.at(row["progress"], about=f"update {row['update']:,}  {level}")


class Live(Lines):
    """The same rows in a table that is redrawn at every update."""

    draws_itself = True

    def __init__(self) -> None:
        super().__init__()
        self._drawn = time.monotonic()
        self._rows: list[Mapping[str, str]] = []
        self._texts: list[str] = []
        self._title = ""
        self._screen = Screen(sys.stdout)

    def _head(self, row: Row) -> None:
        self._title = plain_text(f"{self._run}  {row['preset']}  {row['world']}  seed {row['seed']}")
        self._draw(None, "evaluating on held-out tasks, then the first update")

    def _show(self, cells: Mapping[str, str]) -> None:
        self._rows.append(dict(cells))
        self._draw(None)

    def _show_alert(self, row: Row) -> None:
        self._texts.append(self._alert_text(row))
        self._draw(None)

    def _show_progress(self, row: Row) -> None:
        now = time.monotonic()
        super()._show_progress(row)
        if now - self._drawn < 0.2:
            return
        self._drawn = now
        left = "" if self._bar.left_s is None else f"  {duration(round(self._bar.left_s))} left"
        self._draw(self._cells({**row, "mean": None, "se": None}), f"{row['progress']:.0%}{left}")

    def _draw(self, running: Mapping[str, str] | None, caption: str = "") -> None:
        columns = [name for name, _ in _columns()]
        rows = [[cells[name] for name in columns] for cells in [*self._rows[-_LIVE_ROWS:], *([running] if running else [])]]
        lines = [self._title, *table(columns, rows, right=range(len(columns))).split("\n"), *([caption] if caption else [])]
        _out(lambda: self._screen.draw([*lines, *self._texts[-4:]]))


def _out(write: Any) -> None:
    """Write to stdout; when its reader has closed it, ask the run to stop as Ctrl-C would."""
    try:
        write()
    except BrokenPipeError:
        sys.stdout = open("/dev/null", "w")  # noqa: SIM115  else Python complains once more at its end
        signal.raise_signal(signal.SIGINT)


def ending(run: Any) -> list[str]:
    """What came of a run, and what to do next."""
    about, evals, alerts = run.about, run.evals(), run.alerts()
    spent, path = run.spending(), run.path
    forks = f" ({spent['forks']:,} episodes with a forced fork)" if spent["forks"] else ""
    lines = [f"{about['status']:<9} {path}: {about['updates']:,} updates, {spent['calls']:,} calls{forks}"]
    if about.get("collapsed"):
        lines.append("collapsed the team stopped calling anybody: under one call per held-out episode in its last tenth")
    if evals:
        last, best = evals[-1], (about.get("optimum") or {}).get("value")
        share = (
            f", {last['mean'] / best:.1%} of the {about['optimum']['kind']} optimum {number(best)}" if best and best > 0 else ""
        )
        share = share.replace("upper bound optimum", "upper bound")
        level = f"{_with_se(last['mean'], last['se'])} on {len(last['values'])} seeds"
        lines.append(f"held-out  {level}{share}; began at {evals[0]['mean']:.2f}")
        by_hand = sorted((about.get("hand_made") or {}).items(), key=lambda pair: -pair[1])
        lines += ["by hand   " + "  ".join(f"{name} {value:.2f}" for name, value in by_hand)] if by_hand else []
    if alerts:
        shown = ", ".join(f"{a['code']} (step {a['update']})" for a in alerts[:5]) + (" ..." if len(alerts) > 5 else "")
        lines.append(f"alerts    {len(alerts)}: {shown}")
    traces = [t for e in reversed(evals) for t in e.get("traces", ())]
    lines.append(f"next      counterpoint compare plot {path}")
    lines += [f"          counterpoint show {traces[0]} --store {path}/store"] if traces else []
    if about.get("kind") == "language model" and about["status"] == "finished":
        task = about["world_config"]["tasks"][0]
        play = f"play --task {task['name']} --model local:{path}"  # as it was named: a task of one's own has no short name
        lines.append(f"          counterpoint {f'models serve {path}' if task.get('cases') else play}")
    return [plain_text(line) for line in [*lines, f"          counterpoint compare runs {path} OTHER_RUN"]]
