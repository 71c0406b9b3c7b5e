"""The example scripts of trainers run as a user would run them, each where its package is installed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[3] / "examples" / "trainers"
SCRIPTS = {
    "verl": ("rows.pkl", "34 rows of 1 tasks; advantages differ by 0 at most"),
    "tinker": ("rows.jsonl", "34 datums, 70032 tokens; none sent"),
    "verifiers": ("rows.jsonl", "2 episodes, 34 branches, 34 with advantages"),
}


def run(folder: Path, *command: str) -> str:
    plain = {name: value for name, value in os.environ.items() if name != "TINKER_API_KEY"}
    done = subprocess.run([sys.executable, *command], cwd=folder, env=plain, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", SCRIPTS)
def test_exported_rows_are_read_by_the_trainer(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"the package {name} is not installed: pip install '.[{name}]'")
    file, says = SCRIPTS[name]
    run(tmp_path, str(HERE / "record_runs.py"))
    run(tmp_path, "-m", "counterpoint", "export", "weak", "strong", "--to", name, "-o", file, "--store", "learn")
    assert says in run(tmp_path, str(HERE / f"with_{name}.py"), file)


TEAMS = {
    "tinker": ("worker [[0.7099999785423279, 0.7099999785423279], [-0.7099999785423279]]", "none sent"),
    "verifiers": ("run 2 {'solver': [[1.0, 1.0]], 'critic': [[0.5, 0.5]], 'judge': [None]}",),
}


@pytest.mark.parametrize("name", TEAMS)
def test_a_team_in_memory_is_credited_in_the_trainers_own_types(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"the package {name} is not installed: pip install '.[{name}]'")
    out = run(tmp_path, str(HERE / f"with_{name}_team.py"))
    assert all(says in out for says in TEAMS[name])


def test_the_tiny_llama_learns_with_trl(tmp_path: Path) -> None:
    if importlib.util.find_spec("trl") is None:
        pytest.skip("the package trl is not installed: pip install '.[trl]'")
    words = run(tmp_path, str(HERE / "with_trl.py")).rpartition("solved before ")[2].split()
    assert float(words[2]) > float(words[0].rstrip(",")) + 0.15


def test_a_team_of_ones_own_learns_in_trls_trainer(tmp_path: Path) -> None:
    """The whole configuration that the page of TRL names."""
    if importlib.util.find_spec("trl") is None:
        pytest.skip("the package trl is not installed: pip install '.[trl]'")
    words = run(tmp_path, str(HERE / "with_trl_team.py")).rpartition("paid at first ")[2].split()
    assert float(words[0].rstrip(",")) < 0.7
    assert float(words[-1]) > 0.9
