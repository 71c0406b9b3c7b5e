"""Adapters that come with the package, and adapters made smaller."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from counterpoint.app.cli import cli, main  # noqa: E402
from counterpoint.errors import InputError, NotFound  # noqa: E402
from counterpoint.lab.lm.adapter import Adapter  # noqa: E402
from counterpoint.lab.lm.weights import INSTALLABLE, SHIPPED, find, listed  # noqa: E402

NAME = "smollm2-135m-ledger"


def test_a_shrunk_adapter_is_the_nearest_of_its_rank() -> None:
    drawn = torch.Generator().manual_seed(0)
    low = torch.randn(2, 7, generator=drawn), torch.randn(9, 2, generator=drawn)
    a = torch.cat([low[0], 0.1 * torch.randn(3, 7, generator=drawn)])
    b = torch.cat([low[1], 0.1 * torch.randn(9, 3, generator=drawn)], dim=1)
    whole = Adapter(5, 2.0, {"0.o": a}, {"0.o": b})
    small = whole.shrunk(2)
    assert (small.a["0.o"].shape, small.b["0.o"].shape) == ((2, 7), (9, 2))
    left = torch.linalg.svdvals(b @ a)[2:].square().sum().sqrt()  # Eckart and Young
    assert torch.linalg.norm(b @ a - small.b["0.o"] @ small.a["0.o"]) == pytest.approx(float(left), rel=1e-3)
    assert torch.allclose(whole.shrunk(5).b["0.o"] @ whole.shrunk(5).a["0.o"], b @ a, atol=1e-5)
    for rank in (0, 6):
        with pytest.raises(InputError, match="rank"):
            whole.shrunk(rank)


def test_what_ships_is_small_and_says_where_it_is_from() -> None:
    folder = SHIPPED / NAME
    said = json.loads((folder / "model.json").read_text())
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 5_000_000
    assert said["base"] in INSTALLABLE
    assert {"task", "licence", "trained", "held_out"} <= said["about"].keys()
    adapter = Adapter.load(folder / said["adapters"]["shared"])
    assert adapter.rank == said["rank"]
    assert (folder / "run.toml").is_file()


def test_without_the_weights_it_is_listed_and_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COUNTERPOINT_MODELS", str(tmp_path))
    assert {f.name: f.state for f in listed()}[NAME] == "not installed"
    with pytest.raises(NotFound, match="not installed"):
        find(NAME)
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--lm", "-o", str(tmp_path / "demo")])
    assert ended.value.code == 3
    assert "counterpoint models install smollm2-135m" in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()
    shown = CliRunner().invoke(cli, ["models"])
    assert NAME in shown.output
    assert f"install {NAME}" not in shown.output
