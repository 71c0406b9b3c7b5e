"""Drawing the panels: every series labelled where it ends, every interval visible, every picture readable in one column.

Always true: a function draws what it is given into one pair of axes and decides nothing about the data.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from counterpoint.errors import InputError, install
from counterpoint.lab.app.plots.panels import Curves, Forest, Line, Panel, Stops, Widths

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# -- The paper that pictures are drawn on: colours, marks, type, and files whose bytes depend on nothing but the picture --
# Always true: no display and no user setting is used; the colours are those of the viewer's light theme, never alone (each has
# its own marker and dash), and no picture tells red from green; the same picture gives the same bytes.

INK, GREY = "#3D3D3D", "#6B6B6B"
_COLOURS = ("#0B5FA5", "#D55E00", "#AA3377", "#3D3D3D", "#2E8B57")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (6, 1, 1, 1, 1, 1)))
# One column of a two-column page, and both.
_COLUMN_IN, _PAGE_IN, _HIGH_IN = 3.5, 7.2, 2.65

_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.labelsize": 7.5,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.5,
    "text.color": INK,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "savefig.dpi": 300,
    "svg.hashsalt": "counterpoint",
    "svg.fonttype": "path",
    "text.usetex": False,
    "text.parse_math": False,  # a label may hold a dollar sign
}


class Look(NamedTuple):
    """How one series is told from the others: three ways at once."""

    colour: str
    marker: str
    dash: Any


def look(k: int) -> Look:
    """The look of the k-th series; 35 of them before one comes again."""
    return Look(_COLOURS[k % len(_COLOURS)], _MARKERS[k % len(_MARKERS)], _DASHES[(k + k // len(_COLOURS)) % len(_DASHES)])


@contextmanager
def sheet() -> Iterator[None]:
    """Our settings instead of the user's, for as long as we draw."""
    try:
        import matplotlib
    except ImportError as error:
        raise InputError("pictures need matplotlib", fix=install("plot")) from error
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        yield


def figure(panels: int) -> Figure:
    """An empty figure: one column wide for one panel, two columns for more."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = (panels + 1) // 2
    size = (_COLUMN_IN, _HIGH_IN) if panels == 1 else (_PAGE_IN, _HIGH_IN * rows)
    out = Figure(figsize=size, layout="constrained", facecolor="white")
    FigureCanvasAgg(out)
    return out


def picture(drawn: Figure, kind: str) -> bytes:
    """The figure as PNG or SVG, without date or program."""
    metadata: dict[str, Any] = {"Date": None, "Creator": "Counterpoint"} if kind == "svg" else {"Software": "Counterpoint"}
    out = io.BytesIO()
    drawn.savefig(out, format=kind, metadata=metadata)
    return out.getvalue()


# The least distance of two labels, and the highest one, as shares of the axes' height.
_APART, _TOP = 0.062, 0.975
_LONGEST = 18
# Up to so many differences have room for their interval in words.
_ROOMY = 4


def drawing(panels: Sequence[Panel], labels: Sequence[str]) -> Figure:
    """A figure of these panels; a label has the same look in each."""
    out = figure(len(panels))
    looks = {label: look(k) for k, label in enumerate(labels)}
    for k, panel in enumerate(panels):
        axes = out.add_subplot((len(panels) + 1) // 2, 1 if len(panels) == 1 else 2, k + 1)
        _DRAWN[type(panel)](axes, panel, looks)
    return out


def _short(label: str) -> str:
    plain = "".join(c if c.isprintable() else " " for c in label)
    return plain if len(plain) <= _LONGEST else plain[: _LONGEST - 1] + "…"


def _head(axes: Axes, title: str, below: str) -> None:
    axes.set_title(title, pad=14)
    axes.text(0, 1.02, below, transform=axes.transAxes, fontsize=6.5, color=GREY, va="bottom")


def _line(axes: Axes, line: Line, its: Look, k: int, *, marks: int = 6) -> None:
    step = max(1, len(line.x) // marks)
    banded = np.isfinite(line.low) & np.isfinite(line.high)
    if banded.any():
        axes.fill_between(line.x, line.low, line.high, where=banded.tolist(), color=its.colour, alpha=0.16, linewidth=0)
    # markers of different series stand at different places, so that lines which coincide can still be told apart
    every = (k * step // 3 % step, step) if len(line.x) > marks else (0, 1)
    axes.plot(line.x, line.y, color=its.colour, linestyle=its.dash, marker=its.marker, markevery=every, markeredgecolor="white",
              markeredgewidth=0.5, clip_on=False)  # fmt: skip


class _End(NamedTuple):
    """Where a line ends and what it is called."""

    label: str
    x: float | None
    """None: at the right edge."""
    y: float
    colour: str
    is_strong: bool = True


def _name_ends(axes: Axes, ends: Sequence[_End]) -> None:
    """Labels right of the axes at the heights where lines end, pushed apart where they would overlap, with a thin leader."""
    edges, low_high = axes.get_xlim(), axes.get_ylim()
    data = [(edges[1] if end.x is None else end.x, end.y) for end in ends]
    at = axes.transAxes.inverted().transform(axes.transData.transform(data))
    order = np.argsort(at[:, 1], kind="stable")
    places = at[order, 1].copy()
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + _APART)
    if len(places) and places[-1] > _TOP:  # a stack that grew out of the top is pushed down again, from above
        places[-1] = max(_TOP, _APART * (len(places) - 1))
        for i in range(len(places) - 2, -1, -1):
            places[i] = min(places[i], places[i + 1] - _APART)
    for place, i in zip(places, order, strict=True):
        end = ends[i]
        axes.plot([at[i, 0], 1.0, 1.035], [at[i, 1], at[i, 1], place], transform=axes.transAxes, clip_on=False, color=end.colour,
                  lw=0.5, alpha=0.7, zorder=1)  # fmt: skip
        axes.text(1.045, place, _short(end.label), transform=axes.transAxes, color=end.colour, va="center", fontsize=7,
                  fontweight="bold" if end.is_strong else "normal")  # fmt: skip
    axes.set_xlim(edges)
    axes.set_ylim(low_high)


def _end(line: Line, colour: str) -> _End:
    known = np.flatnonzero(np.isfinite(line.y))
    return _End(line.label, float(line.x[known[-1]]), float(line.y[known[-1]]), colour)


def _draw_curves(axes: Axes, panel: Curves, looks: dict[str, Look]) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    ends = []
    for k, line in enumerate(panel.lines):
        _line(axes, line, looks[line.label], k)
        ends.append(_end(line, looks[line.label].colour))
    for name, level in panel.marks:
        is_bound = (name, level) == panel.marks[0] and name in ("optimum", "upper bound")
        axes.axhline(
            level, color=INK if is_bound else GREY, lw=1.0 if is_bound else 0.7, ls="-" if is_bound else (0, (1, 2)), zorder=1
        )
        ends.append(_End(f"{name} {level:.3g}", None, level, INK if is_bound else GREY, False))
    axes.margins(x=0.0)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlabel("calls spent, forks included")
    axes.set_ylabel("return per episode" if "held-out" in panel.what else "reward per episode")
    _head(axes, panel.what[0].upper() + panel.what[1:], panel.band)
    _name_ends(axes, ends)


def _draw_stops(axes: Axes, panel: list[Stops], looks: dict[str, Look]) -> None:
    if panel[0].reference is None:
        return _draw_rounds(axes, panel, looks)
    name = panel[0].reference_name
    known = [one for one in panel if one.reference is not None]
    both = np.concatenate([np.concatenate([one.rounds, one.reference]) for one in known if one.reference is not None])
    low, high = both.min() - 0.7, both.max() + 0.7
    axes.plot([low, high], [low, high], color=INK, lw=0.8, zorder=1)
    ends = [_End("same round", None, high, INK, False)]
    for k, one in enumerate(known):
        assert one.reference is not None
        its, off = looks[one.label], (k - (len(known) - 1) / 2) * 0.16
        if len(known) == 1:
            cells, counts = np.unique(np.stack([one.reference, one.rounds]), axis=1, return_counts=True)
            axes.scatter(cells[0], cells[1], s=140 * counts / counts.max(), color=its.colour, alpha=0.25, linewidth=0, zorder=2)
        at = np.unique(one.reference)
        y = np.array([one.rounds[one.reference == r].mean() for r in at])
        ends_of = [np.quantile(one.rounds[one.reference == r], (0.25, 0.75)) for r in at]
        axes.vlines(at + off, *zip(*ends_of, strict=True), color=its.colour, lw=1.0, alpha=0.6, zorder=3)
        axes.plot(
            at + off, y, color=its.colour, ls=its.dash, marker=its.marker, markeredgecolor="white", markeredgewidth=0.5, zorder=4
        )
        ends.append(_End(one.label, float(at[-1] + off), float(y[-1]), its.colour))
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    _whole_rounds(axes, both)
    axes.set_xlabel(f"stop round of the {name}")
    axes.set_ylabel("stop round, learned")
    dots = "; dots: episodes" if len(known) == 1 else ""
    _head(axes, f"Stop times against the {name}", f"mean and middle half of episodes{dots}")
    _name_ends(axes, ends)
    return None


def _whole_rounds(axes: Axes, rounds: np.ndarray) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    if len(rounds):
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))


def _draw_rounds(axes: Axes, panel: list[Stops], looks: dict[str, Look]) -> None:
    """Without a reference: how often each round was the last."""
    for one in panel:
        its = looks[one.label]
        at, counts = np.unique(one.rounds, return_counts=True)
        axes.plot(
            at,
            counts / counts.sum(),
            color=its.colour,
            ls=its.dash,
            marker=its.marker,
            markeredgecolor="white",
            label=_short(one.label),
        )
    axes.set_ylim(bottom=0)
    _whole_rounds(axes, np.array([]))
    axes.set_xlabel("stop round")
    axes.set_ylabel("share of episodes")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0)
    _head(axes, "Stop times", "no reference in these runs")


def _draw_sorts(axes: Axes, panel: Widths, looks: dict[str, Look]) -> None:
    """Team sizes by sort of task: sorts have no order, so no line joins them."""
    places = np.arange(len(panel.tasks))
    for k, line in enumerate(panel.lines):
        its, off = looks[line.label], (k - (len(panel.lines) - 1) / 2) * 0.16
        axes.vlines(line.x + off, line.low, line.high, color=its.colour, lw=1.6, alpha=0.5)
        axes.plot(line.x + off, line.y, color=its.colour, ls="", marker=its.marker, markeredgecolor="white", markeredgewidth=0.5,
                  markersize=6, label=_short(line.label))  # fmt: skip
    if panel.reference is not None:
        x, y = panel.reference
        axes.plot(x, y, color=INK, ls="", marker="_", markersize=16, zorder=1, label="reference")
    axes.set_xticks(places, [name.replace(", ", "\n") for name in panel.tasks])
    axes.set_xlim(-0.6, len(places) - 0.4)
    axes.set_ylim(bottom=0)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("sort of task")
    axes.set_ylabel("agents per episode")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0)
    _head(axes, "Team size by sort of task", "mean on the held-out tasks, bar 95 %")


def _draw_widths(axes: Axes, panel: Widths, looks: dict[str, Look]) -> None:
    if panel.tasks:
        return _draw_sorts(axes, panel, looks)
    ends = []
    for k, line in enumerate(panel.lines):
        _line(axes, line, looks[line.label], k, marks=len(line.x))
        ends.append(_end(line, looks[line.label].colour))
    if panel.reference is not None:
        x, y = panel.reference
        axes.plot(x, y, color=INK, lw=1.0, ls=(0, (1, 2)), marker="_", zorder=1)
        ends.append(_End("reference", float(x[-1]), float(y[-1]), INK, False))
    sizes = np.unique(np.concatenate([line.x for line in panel.lines]))
    if len(sizes) > 1 and sizes[0] > 0 and sizes[-1] / sizes[0] >= 8:
        axes.set_xscale("log", base=2)
        if min(float(line.y.min()) for line in panel.lines) > 0:
            axes.set_yscale("log", base=2)
            axes.yaxis.set_major_formatter(lambda v, _: f"{v:g}")
    axes.xaxis.set_major_formatter(lambda v, _: f"{v:,.0f}")
    if len(sizes) <= 8:
        axes.set_xticks(sizes)
    axes.minorticks_off()
    axes.set_xlabel("size of the task")
    axes.set_ylabel("agents per episode")
    _head(axes, "Team size by task size", "mean, band 95 %")
    _name_ends(axes, ends)
    return None


def _draw_forest(axes: Axes, panel: Forest, looks: dict[str, Look]) -> None:
    axes.axvline(0, color=INK, lw=0.8)
    right = axes.get_yaxis_transform()
    for k, row in enumerate(panel.rows):
        its, e = looks[row.label], row.estimate
        is_clear = row.p_holm is not None and row.p_holm < 0.05
        if e.low is not None and e.high is not None:
            axes.plot([e.low, e.high], [k, k], color=its.colour, lw=1.6, solid_capstyle="butt")
        axes.plot(
            [e.mean], [k], marker=its.marker, color=its.colour, markersize=6, markerfacecolor=its.colour if is_clear else "white"
        )
        p = "" if row.p_holm is None else "p < 0.0001" if row.p_holm < 1e-4 else f"p = {row.p_holm:.2g}"
        interval = "no interval" if e.low is None else f"{e.low:+.3g} to {e.high:+.3g}\n{p}"
        is_crowded = len(panel.rows) > _ROOMY
        axes.text(1.03, k, f"{e.mean:+.3g}" + f"  {p}" * is_crowded, transform=right, color=its.colour, fontweight="bold",
                  va="center" if is_crowded else "bottom", fontsize=7)  # fmt: skip
        axes.text(1.03, k, "" if is_crowded else interval, transform=right, va="top", fontsize=6.5, linespacing=1.1)
    axes.set_ylim(len(panel.rows) - 0.45, -0.7)
    axes.margins(x=0.12)
    axes.set_yticks(range(len(panel.rows)), [_short(row.label) for row in panel.rows])
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"return per episode, minus {_short(panel.against)}")
    over = "" if all(row.estimate.over_seeds for row in panel.rows) else ", over tasks only"
    _head(
        axes,
        f"Difference to {_short(panel.against)}",
        f"95 % interval{over}; p by Holm; hollow: may be zero",
    )


_DRAWN: dict[type, Callable[[Any, Any, dict[str, Look]], None]] = {
    Curves: _draw_curves,
    list: _draw_stops,
    Widths: _draw_widths,
    Forest: _draw_forest,
}
