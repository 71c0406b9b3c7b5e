"""The paper that pictures are drawn on: colours, marks, type, and files whose bytes depend on nothing but the picture.

Always true: no display and no user setting is used; the colours are those of the viewer's light theme, never alone (each has
its own marker and dash), and no picture tells red from green; the same picture gives the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from counterpoint.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
        raise InputError("pictures need matplotlib", fix="pip install 'counterpoint[plot]'") from error
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
