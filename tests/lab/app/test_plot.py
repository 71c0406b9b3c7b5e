"""`counterpoint compare plot`: arrays by hand, pictures whose bytes are decided by the runs, and every reason not to draw."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from counterpoint.errors import install
from counterpoint.lab.app.api.compare import groups_of
from counterpoint.lab.app.plots import panels
from counterpoint.lab.train.folder import RunFolder
from lab.app.runs_made import TASKS, made

pytest.importorskip("matplotlib")

EXTRA = {
    "stops": {"reference": [2 + t % 6 for t in range(TASKS)], "name": "optimum"},
    "width": [{"size": n, "agents": [n**0.5, n**0.5 + 1], "reference": n**0.5} for n in (16, 64, 256)],
}
MARKS = {"serial": 2.0, "best cap": 4.0, "reference": 9.8}


@pytest.fixture
def ends(ends_of: Any) -> Any:
    """Run the command in an empty folder: exit code, stdout, stderr."""
    return ends_of("compare plot")


def two_sides(folder: Path, **second: Any) -> None:
    for seed in range(3):
        made(folder / f"a{seed}", "grpo", seed, mean=5.0, extra=EXTRA, hand_made=MARKS)
        made(folder / f"b{seed}", "c3", seed, **{"mean": 6.0, "extra": EXTRA, "hand_made": MARKS, **second})


# -- what is drawn -------------------------------------------------------------------------------------------------------


def with_evals(folder: Path, seed: int, rows: list[tuple[int, list[float | None]]]) -> Path:
    about = {"preset": "p", "world": "s1", "world_version": "1", "world_config": {}, "seed": seed}
    with RunFolder.create(folder, {}, about) as run:
        for k, (calls, values) in enumerate(rows):
            totals = {"episodes": 1, "forks": 0, "calls": calls, "decisions": 1}
            run.append_eval({"update": k, **totals, "first_seed": 0, "values": values})
    return folder


def test_a_curve_is_the_mean_over_seeds_at_equal_calls(tmp_path: Path) -> None:
    with_evals(tmp_path / "0", 0, [(0, [0.0]), (100, [1.0]), (200, [2.0])])
    with_evals(tmp_path / "1", 1, [(100, [3.0, None]), (300, [7.0])])
    found = panels.curves(groups_of([os.fspath(tmp_path / "*")]))
    assert isinstance(found, panels.Curves)
    (line,) = found.lines
    # both know 100 to 200 calls; there the first has 1..2 and the second 3..5: means 2, 2.75, 3.5, and t(0.975, 1) = 12.706
    np.testing.assert_allclose(line.x, [100, 150, 200])
    np.testing.assert_allclose(line.y, [2, 2.75, 3.5])
    np.testing.assert_allclose(line.high - line.y, 12.7062047361747 * np.array([1, 1.25, 1.5]), rtol=1e-6)
    assert "2 seeds" in found.band
    assert found.marks == []


def test_one_seed_has_a_band_over_tasks_and_says_so(tmp_path: Path) -> None:
    with_evals(tmp_path / "0", 0, [(10, [0.0, 2.0]), (20, [None, None]), (30, [1.0])])
    found = panels.curves(groups_of([os.fspath(tmp_path / "0")]))
    assert isinstance(found, panels.Curves)
    assert found.lines[0].x.tolist() == [10, 30]  # an evaluation without a number is not a point
    assert found.lines[0].high[0] == pytest.approx(1 + 12.7062047361747)
    assert np.isnan(found.lines[0].high[1])
    assert found.band == "one seed: band 95 % over tasks"


def test_without_evaluations_the_training_reward_is_shown_as_such(tmp_path: Path) -> None:
    made(tmp_path / "a", updates=2000, evals=0, mean=8.0)
    found = panels.curves(groups_of([os.fspath(tmp_path / "a")]))
    assert isinstance(found, panels.Curves)
    assert "nothing held out" in found.what
    assert len(found.lines[0].x) == 100
    np.testing.assert_allclose(found.lines[0].y, 8 * (np.arange(1, 101) - 0.475) / 100, atol=0.15)


def test_stops_and_widths_come_from_the_last_evaluation(tmp_path: Path) -> None:
    two_sides(tmp_path)
    groups = groups_of([os.fspath(tmp_path / "a*")])
    found = panels.stops(groups)
    assert isinstance(found, list)
    last = np.concatenate([run.evals()[-1]["rounds"] for run in groups[0].runs])
    assert found[0].rounds.tolist() == last.tolist()
    assert found[0].reference is not None
    assert found[0].reference.tolist() == EXTRA["stops"]["reference"] * 3  # type: ignore[index]
    width = panels.widths(groups)
    assert isinstance(width, panels.Widths)
    np.testing.assert_allclose(width.lines[0].y, [4.5, 8.5, 16.5])
    assert width.reference is not None
    assert width.reference[1].tolist() == [4, 8, 16]


def test_team_sizes_of_a_mix_are_by_sort_of_task_and_joined_by_no_line(ends: Any, tmp_path: Path) -> None:
    rows = [{"task": t, "size": 24, "agents": [n, n + 2], "reference": n} for t, n in (("24 jobs, urgent", 11.0), ("24 pools, no hurry", 0.0))]
    for seed in range(2):
        made(tmp_path / f"a{seed}", "grpo", seed, extra={"width": rows})
    found = panels.widths(groups_of([os.fspath(tmp_path / "a*")]))
    assert isinstance(found, panels.Widths)
    assert found.tasks == ("24 jobs, urgent", "24 pools, no hurry")
    assert (found.lines[0].x.tolist(), found.lines[0].y.tolist()) == ([0, 1], [12, 1])
    assert found.reference is not None
    assert found.reference[1].tolist() == [11, 0]
    assert ends("a*", "--kind", "width", "-o", "w.svg")[0] == 0
    text = (tmp_path / "w.svg").read_text()
    for word in ("Team size by sort of task", "24 jobs", "24 pools", "no hurry", "reference"):
        assert f"<!-- {word}" in text or word in text, word


def test_runs_of_different_sorts_of_tasks_have_no_common_picture_of_team_sizes(tmp_path: Path) -> None:
    for name, task in (("a", "3 jobs"), ("b", "4 jobs")):
        made(tmp_path / name, name, 0, extra={"width": [{"task": task, "size": 3, "agents": [1.0], "reference": 1.0}]})
    found = panels.widths(groups_of([os.fspath(tmp_path / "a"), os.fspath(tmp_path / "b")]))
    assert found == panels.Absent("the runs are of different sorts of tasks")


# -- pictures ------------------------------------------------------------------------------------------------------------


def test_a_png_of_everything(ends: Any, tmp_path: Path) -> None:
    two_sides(tmp_path)
    code, out, err = ends("a*", "b*")
    assert code == 0, err
    assert "curves, stops, width, compare" in out
    data = (tmp_path / "plot.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n")
    size = [int.from_bytes(data[i : i + 4], "big") for i in (16, 20)]
    assert size == [2160, 1590]  # two columns of a page at 300 dpi
    code, _, err = ends("a*", "b*")
    assert code == 2
    assert "--overwrite" in err


def test_an_svg_names_every_line_and_uses_no_other_colour(ends: Any, tmp_path: Path) -> None:
    two_sides(tmp_path)
    for what, words in {
        "curves": ["grpo", "c3", "optimum 10", "serial 2", "best cap 4", "mean of 3 seeds, band 95 %"],
        "stops": ["grpo", "c3", "same round", "stop round of the optimum"],
        "width": ["grpo", "c3", "reference", "size of the task"],
        "compare": ["c3", "Difference to grpo"],
    }.items():
        code, _, err = ends("a*", "b*", "--kind", what, "-o", f"{what}.svg")
        assert code == 0, err
        text = (tmp_path / f"{what}.svg").read_text()
        for word in words:
            assert f"<!-- {word} -->" in text, word
        palette = {"#0b5fa5", "#d55e00", "#3d3d3d", "#6b6b6b", "#e4e4e4", "#ffffff", "#000000"}
        assert set(re.findall(r"#[0-9a-f]{6}", text)) <= palette
        assert "<dc:date>" not in text


def test_the_same_runs_give_the_same_bytes_whatever_the_user_has_set(ends: Any, tmp_path: Path) -> None:
    two_sides(tmp_path)
    assert ends("a*", "b*", "--kind", "curves", "-o", "one.svg")[0] == 0
    (tmp_path / "matplotlibrc").write_text("font.size: 20\nlines.linewidth: 9\naxes.facecolor: red\n")
    environment = {**os.environ, "MPLBACKEND": "TkAgg", "MATPLOTLIBRC": os.fspath(tmp_path / "matplotlibrc")}
    environment.pop("DISPLAY", None)
    code = "from counterpoint.app.cli import main; main(['compare', 'plot', 'a*', 'b*', '--kind', 'curves', '-o', 'two.svg'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    for name in ("one.png", "two.png"):
        assert ends("a0", "--kind", "curves", "-o", name)[0] == 0
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


def test_labels_never_lie_on_each_other(tmp_path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from counterpoint.lab.app.plots.draw import drawing, sheet

    x = np.array([0.0, 1.0])
    lines = [panels.Line(f"label {k} $x_{k}", x, x + 0.001 * k, x, x) for k in range(6)]
    marks = [("optimum", 1.001), ("a", 1.0), ("b", 1.0), ("c", 0.02), ("d", 0.01)]
    with sheet():
        drawn = drawing([panels.Curves(lines, marks, "return on held-out tasks", "b")], [one.label for one in lines])
        canvas = drawn.canvas
        assert isinstance(canvas, FigureCanvasAgg)
        canvas.draw()
        names = {one.label for one in lines} | {f"{name} {level:.3g}" for name, level in marks}
        boxes = [t.get_window_extent(canvas.get_renderer()) for t in drawn.axes[0].texts if t.get_text() in names]
    assert len(boxes) == 11
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert max(box.x1 for box in boxes) <= drawn.bbox.x1


def test_many_updates_and_holes_and_one_point(ends: Any, tmp_path: Path) -> None:
    holes = {"values": [None, *range(1, TASKS)], "rounds": [None, *range(1, TASKS)]}
    made(tmp_path / "long", "grpo", updates=2000, evals=2000, extra=holes)
    made(tmp_path / "short", "c3", updates=1, evals=1)
    code, _, err = ends("long", "short", "-o", "out.svg")
    assert code == 0, err
    assert "left out width: no evaluation carries team sizes" in err
    assert (tmp_path / "out.svg").stat().st_size < 400_000


def test_json_says_what_was_drawn_and_what_not(ends: Any, tmp_path: Path) -> None:
    made(tmp_path / "a")
    code, out, _ = ends("a", "-o", "x.png", "--dry-run", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["panels"] == ["curves", "stops"]
    assert set(found["left_out"]) == {"width", "compare"}
    assert found["runs"] == {"grpo": ["a"]}
    assert not (tmp_path / "x.png").exists()


def test_what_cannot_be_drawn(ends: Any, tmp_path: Path) -> None:
    two_sides(tmp_path, calls=2000)
    made(tmp_path / "empty", updates=0)
    made(tmp_path / "plain", "c3", 7)
    for arguments, code, words in [
        ([], 2, "no run is named"),
        (["nowhere"], 3, "no run here"),
        (["empty"], 3, "no update and no evaluation has a number yet"),
        (["empty", "--kind", "stops"], 3, "in which round"),
        (["plain", "--kind", "width"], 3, "team sizes"),
        (["plain", "--kind", "compare"], 3, "nothing to compare"),
        (["empty", "plain", "--kind", "compare"], 3, "no evaluation"),
        (["a*", "b*", "--kind", "compare"], 5, "more than 5% apart"),
        (["plain", "-o", "x.pdf"], 2, ".png or .svg"),
        (["plain", "-o", "x"], 2, ".png or .svg"),
        (["plain", "-o", "empty/about.json/x.png"], 1, ""),
    ]:
        got = ends(*arguments)
        assert got[0] == code, (arguments, got)
        assert words in got[2], (arguments, got)


def test_without_the_library_it_says_what_to_install(ends: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path / "a")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = ends("a")
    assert code == 2
    assert install("plot") in err
