"""A trace on view from Python: a frame in a notebook, a local server elsewhere, a file to hand on.

Always true: what is framed or saved is the one-file page, masked unless told otherwise; the frame is a sandbox of its own, so
nothing in a trace reaches the notebook around it. The server gives out this trace alone, to this machine alone, until closed.
"""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from counterpoint.app.contributions import contributions
from counterpoint.app.forks import free_replay, last_merge
from counterpoint.app.viewer.one_file import OneFile, one_file
from counterpoint.credits.choice import agent_shares
from counterpoint.display import counted, duration
from counterpoint.errors import CounterpointError, Refused, install
from counterpoint.files import put
from counterpoint.formats.masking import masked as without_secrets
from counterpoint.trace import Trace
from counterpoint.trace.critical_path import critical_path
from counterpoint.trace.lanes import EMPTY, FAMILIES, KINDS, WAIT, Cells, Lane, cells, folded
from counterpoint.trace.rows import Shares
from counterpoint.trace.team import TraceTeam, team_of

_FRAMED = 8_000_000
"""A notebook keeps what it shows, so a frame is smaller than a file may be."""


class Frame:
    """The viewer as a notebook shows it."""

    def __init__(self, page: bytes, height: int) -> None:
        self._page, self._height = page.decode(), height

    def _repr_html_(self) -> str:
        style = f"width:100%;height:{int(self._height)}px;border:1px solid #8884;border-radius:6px"
        rights = "allow-scripts allow-downloads allow-popups"
        return f'<iframe title="Counterpoint" sandbox="{rights}" style="{style}" srcdoc="{escape(self._page)}"></iframe>'

    def __repr__(self) -> str:
        return f"<Frame of the viewer, {len(self._page):,} characters>"


class Viewing:
    """The viewer on a local server, until `close`."""

    def __init__(self, trace: Trace) -> None:
        # Starlette and uvicorn are an extra, and only a server needs them.
        try:
            from counterpoint.app import http_server
            from counterpoint.app.viewer import server
            from counterpoint.app.viewer.collection import Collection
        except ImportError as error:
            fix = f"{install('view')}, or trace.save_html('trace.html')"
            raise CounterpointError(f"the viewer's server needs {error.name}", fix=fix) from error
        sock = http_server.listening_socket("127.0.0.1", 0)
        site = server.Site(Collection(traces=[trace]), server.door_at(sock, "127.0.0.1"))
        self._server = server.server(site)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [sock]}, daemon=True, name="viewer")
        self._thread.start()
        self.url = f"http://127.0.0.1:{sock.getsockname()[1]}/t/{quote(trace.trace_id, safe='')}"

    def close(self) -> None:
        """Stop the server."""
        self._server.should_exit = True
        self._thread.join(timeout=5)

    def __repr__(self) -> str:
        return f"<Viewing {self.url}, until close()>"


def card(trace: Trace) -> str:
    """The picture that a notebook shows of a trace: a card, lanes, the credit bar where it is identified, and what was done."""
    return picture(trace, agent_shares(trace, replay=free_replay(trace), merged=last_merge))


def save_html(trace: Trace, path: str | os.PathLike[str], *, masked: bool = True, overwrite: bool = True) -> Path:
    """Write the one-file page."""
    target = Path(path)
    put([(target, _page(trace, masked=masked).data)], overwrite=overwrite)
    return target


def view(trace: Trace, *, height: int = 640, masked: bool = True, is_opened: bool = True) -> Frame | Viewing:
    """A frame where a notebook shows it, else a server with a browser before it."""
    if _in_notebook():
        made = _page(trace, masked=masked)
        if len(made.data) > _FRAMED:
            made = _page(trace, masked=masked, is_summary=True)
        if len(made.data) > _FRAMED:
            size = f"the page has {len(made.data) / 1e6:,.0f} MB"
            raise Refused(size, why="a notebook keeps what it shows", fix="trace.save_html('trace.html'), or counterpoint view")
        return Frame(made.data, height)
    viewing = Viewing(trace)
    if is_opened:
        webbrowser.open(viewing.url)
    return viewing


def _page(trace: Trace, *, masked: bool, is_summary: bool = False) -> OneFile:
    secrets: Counter[str] | None = None
    if masked:
        trace, secrets = without_secrets(trace)
    return one_file([trace], masked=secrets, is_summary=is_summary)


def _in_notebook() -> bool:
    """Whether a front end shows what a cell gives: IPython with a kernel, which is loaded then already."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


# -- A trace as a picture for a notebook: a card, lanes by agent, and the credit bar, as static HTML and SVG ----------
# Always true: it stays under `LIMIT` bytes whatever the trace; it has no script and fetches nothing; everything a trace says is
# text and escaped; it is readable on light and on dark, because the card brings its own ground. Colour repeats what shape or
# sign says: thinking is a full bar, tools a dashed one, messages a thin one, and everything else has its glyph.

LIMIT = 60_000
"""A notebook keeps every output it shows."""

_WIDE, _LABEL, _CELL, _HIGH = 900, 190, 4, 22
_MARKS = next(k for k, kind in enumerate(KINDS) if kind.name == "delegate")
_BARS = ((8, ""), (8, "3 1"), (3, ""), (3, ""), (3, ""))  # thickness and dashes of each family
_INK, _SOFT, _LINE, _GROUND = ("#1B1B1B", "#F2F2F2"), ("#595959", "#B5B5B5"), ("#C9C9C9", "#4A4A4A"), ("#FFFFFF", "#16181C")
_PLUS, _MINUS = ("#0B5FA5", "#88CCEE"), ("#B34700", "#E69F00")


def picture(trace: Trace, shares: Shares | None = None) -> str:
    """The picture; `shares` makes the credit bar."""
    for most in (24, 16, 8, 3):
        html = _card(trace, shares, most)
        if len(html.encode("utf-8", "replace")) < LIMIT:
            return html
    return _framed(_title(trace, None))


def _card(trace: Trace, shares: Shares | None, most: int) -> str:
    try:
        team = team_of(trace)
    except CounterpointError as error:  # not a graph: there is no order to draw, but there is still a trace
        return _framed(_title(trace, None) + f"<div>{_text(error.one_line(), 300)}</div>")
    lanes = folded(team)
    parts = [_title(trace, team), _lanes(team, lanes, most)]
    if shares is not None:
        parts.append(_credit(shares, lanes, team.names))
    parts.append(f"<div>{_text(contributions(trace, words=False).headline, 300)}</div>")
    return _framed("".join(parts))


def _text(text: str, most: int = 40) -> str:
    """What a trace says, as text: no control or direction signs, not too long, escaped."""
    plain = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[: most + 1])
    return escape(plain if len(plain) <= most else plain[: most - 1] + "…")


def _framed(inside: str) -> str:
    ground = f"background:{_GROUND[0]};color:{_INK[0]};border:1px solid {_LINE[0]}"
    shape = "border-radius:6px;padding:10px 12px;margin:4px 0;font:13px/1.45 system-ui,sans-serif;max-width:960px"
    return f'<div class="cpt-card" style="{ground};{shape}">{_style()}{inside}</div>'


def _style() -> str:
    """Dark where the notebook or the system is: media query for browsers, and the marks of JupyterLab, VS Code and Colab."""
    hosts = ('[data-jp-theme-light="false"]', ".vscode-dark", 'html[theme="dark"]')

    def dark(lead: str) -> str:
        of = f"{lead} .cpt-card".strip()
        rules = [f"{of}{{background:{_GROUND[1]}!important;color:{_INK[1]}!important;border-color:{_LINE[1]}!important}}"]
        rules += [f"{of} .f{k}{{stroke:{family.dark}}}{of} .g{k}{{fill:{family.dark}}}" for k, family in enumerate(FAMILIES)]
        rules.append(f"{of} .t{{fill:{_INK[1]}}}{of} .s{{color:{_SOFT[1]}!important;fill:{_SOFT[1]}}}")
        rules.append(f"{of} .w{{stroke:{_SOFT[1]}}}{of} .p{{stroke:{_INK[1]}}}")
        rules.append(f"{of} .up{{fill:{_PLUS[1]}}}{of} .dn{{fill:{_MINUS[1]}}}")
        return "".join(rules)

    return f"<style>@media (prefers-color-scheme:dark){{{dark('')}}}{''.join(map(dark, hosts))}</style>"


def _title(trace: Trace, team: TraceTeam | None) -> str:
    words = [counted(len(trace.events), "event")]
    if team is not None:
        words.insert(0, counted(len(trace.members), "agent"))
    if "team" in trace.rewards:
        words.insert(0, f"R {trace.rewards['team']:.4g}")
    for name, form in (("tokens", "{:,.0f} tokens"), ("cost_usd", "${:,.2f}"), ("wall_clock_s", "{:,.1f} s")):
        if name in trace.known_costs:
            words.append(form.format(trace.known_costs[name]))
    words.append(trace.topology or "unknown topology")
    soft = f'<span class="s" style="color:{_SOFT[0]}">of {_text(trace.task_id, 60)}</span>'
    return f"<div><b>{_text(trace.trace_id, 60)}</b> {soft}<br>{_text(' · '.join(words), 160)}</div>"


def _lanes(team: TraceTeam, lanes: list[Lane], most: int) -> str:
    shown = lanes[:most]
    width = (_WIDE - _LABEL) // _CELL
    path = critical_path(team)
    drawn = cells(team, shown, width, path.events if path is not None else [])
    high = _HIGH * len(shown) + 20
    parts = [_ruler(drawn, high), *(_row(drawn, row, lane) for row, lane in enumerate(shown))]
    about = f"Lanes of {len(team):,} agents over time"
    frame = f'viewBox="0 0 {_WIDE} {high}" width="100%" role="img" aria-label="{about}" style="display:block;margin:6px 0"'
    left = sum(len(lane.agents) for lane in lanes[most:])
    more = _soft(f"and {left:,} more agents in {len(lanes) - most:,} lanes") if left else ""
    return f"<svg {frame}>{''.join(parts)}</svg>{more}{_legend(drawn)}"


def _row(drawn: Cells, row: int, lane: Lane) -> str:
    y = _HIGH * row + 34
    indent = min(lane.depth, 6) * 10
    label = _text(lane.label(), 24 - indent // 8)
    out = [f'<text x="{indent}" y="{y + 4}" font-size="12" fill="{_INK[0]}" class="t">{label}</text>']
    most, kinds = drawn.most[row], drawn.kind[row]
    out.append(_line(most == WAIT, y, 1, "", "w", _SOFT[0]))
    family = np.array([k.family for k in KINDS])[np.maximum(most, 0)]
    for f, (thick, dashes) in enumerate(_BARS):
        out.append(_line((most >= 0) & (family == f), y, thick, dashes, f"f{f}", FAMILIES[f].light))
    out.append(_line(drawn.on_path[row] & (most != EMPTY), y + 6, 1.5, "", "p", _INK[0]))
    for k, columns in _glyphs(kinds).items():
        places = " ".join(str(_LABEL + _CELL * column - 2) for column in columns)
        style = f'class="g{KINDS[k].family}" fill="{FAMILIES[KINDS[k].family].light}" font-size="9"'
        out.append(f'<text {style} y="{y - 6}" x="{places}">{KINDS[k].glyph * len(columns)}</text>')
    return "".join(out)


def _glyphs(kinds: np.ndarray) -> dict[int, list[int]]:
    """Where the marks of a lane have their glyphs: the later kind goes first, and none lies on another."""
    free = np.ones(len(kinds), np.bool_)
    out: dict[int, list[int]] = {}
    for k in range(len(KINDS) - 1, _MARKS - 1, -1):
        for column in np.flatnonzero(kinds == k).tolist():
            if free[column]:
                out.setdefault(k, []).append(column)
                free[max(column - 2, 0) : column + 3] = False
    return out


def _line(where: np.ndarray, y: float, thick: float, dashes: str, name: str, colour: str) -> str:
    """Every run of cells as one stroke."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], where.astype(np.int8), [0]))))
    if not len(edges):
        return ""
    d = "".join(f"M{_LABEL + _CELL * a} {y}h{_CELL * (b - a)}" for a, b in edges.reshape(-1, 2).tolist())
    dash = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<path class="{name}" stroke="{colour}" stroke-width="{thick}" fill="none"{dash} d="{d}"/>'


def _ruler(drawn: Cells, high: int) -> str:
    clock = drawn.clock
    label = f'class="s" fill="{_SOFT[0]}" font-size="11"'
    out = [f'<text {label} x="{_LABEL}" y="12">0 s</text>']
    out.append(f'<text {label} x="{_WIDE}" y="12" text-anchor="end">{duration(clock.end - clock.start)}</text>')
    for a, b in clock.gaps[:8]:
        x = _LABEL + float(clock.place(np.array([(a + b) / 2]))[0]) * (_WIDE - _LABEL)
        out.append(f'<path class="w" stroke="{_SOFT[0]}" stroke-dasharray="2 3" d="M{x:.0f} 16V{high}"/>')
        out.append(f'<text {label} x="{x:.0f}" y="12" text-anchor="middle">{duration(b - a)} idle</text>')
    return "".join(out)


def _legend(drawn: Cells) -> str:
    there = set(np.unique(drawn.kind).tolist()) | set(np.unique(drawn.most).tolist())
    signs = [f"{kind.glyph} {kind.name}" for k, kind in enumerate(KINDS) if k in there]
    signs += ["thin line: waits", "underlined: critical path"]
    return _soft(" &nbsp; ".join(signs))


def _soft(words: str) -> str:
    return f'<div class="s" style="color:{_SOFT[0]};font-size:11px">{words}</div>'


def _credit(shares: Shares, lanes: Sequence[Lane], names: list[str]) -> str:
    """One bar: what was earned to the right of the line, what was lost to the left of it; in words below."""
    amounts = [(lane.label(), sum(shares.agents.get(names[a], 0.0) for a in lane.agents)) for lane in lanes]
    ranked = sorted((row for row in amounts if row[1]), key=lambda row: -abs(row[1]))
    rows, rest = ranked[:10], ranked[10:]
    rows += [(f"{len(rest)} more", sum(value for _, value in rest))] if rest else []
    rows += [("unassigned", shares.unassigned)] if abs(shares.unassigned) > 1e-9 else []
    if not rows:
        return f"<div>R {shares.reward:.4g}: nothing to share out</div>"
    gain, loss = sum(v for _, v in rows if v > 0), -sum(v for _, v in rows if v < 0)
    scale = (_WIDE - 4) / ((gain + loss) or 1.0)
    right = left = 2 + loss * scale
    bars = []
    for k, (_, value) in enumerate(rows):
        width = abs(value) * scale
        left -= width if value < 0 else 0.0
        x, colour, name = (left, _MINUS[0], "dn") if value < 0 else (right, _PLUS[0], "up")
        right += width if value > 0 else 0.0
        shape = f'x="{x:.1f}" y="2" width="{max(width - 1, 0.5):.1f}" height="14"'
        bars.append(f'<rect class="{name}" fill="{colour}" fill-opacity="{1 if k % 2 == 0 else 0.7}" {shape}/>')
    judge = _text(shares.method)
    whole = f"R {shares.reward:.4g}"
    words = " · ".join(f"{_text(label, 30)} <b>{value:+.3g}</b>" for label, value in rows)
    frame = f'viewBox="0 0 {_WIDE} 18" role="img" aria-label="Credit by agent" style="display:block;margin:8px 0 2px"'
    zero = f'<path class="p" stroke="{_INK[0]}" d="M{2 + loss * scale:.1f} 0v18"/>'
    return f"<svg {frame}>{''.join(bars)}{zero}</svg><div>{whole} by {judge}: {words}</div>"
