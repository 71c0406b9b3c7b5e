"""The command that an error names for an extra that is missing leads back to where this installation came from."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
INSTALL = "from counterpoint.errors import install; print(install('train')); print(install())"


def said(package_in: Path, cwd: Path) -> list[str]:
    """What a fresh interpreter says that finds the package in a folder."""
    command = [sys.executable, "-S", "-c", INSTALL]
    done = subprocess.run(command, cwd=cwd, env={"PYTHONPATH": str(package_in)}, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_in_a_clone_it_installs_the_clone(tmp_path: Path) -> None:
    assert said(ROOT / "src", ROOT) == ["pip install -e '.[train]'", "pip install -e '.'"]
    assert said(ROOT / "src", tmp_path) == [f"pip install -e '{ROOT}[train]'", f"pip install -e '{ROOT}'"]


@pytest.mark.parametrize(
    ("origin", "wanted"),
    [
        (None, "pip install 'counterpoint[train]'"),
        ({"url": "https://git.example/x", "vcs_info": {"vcs": "git", "commit_id": "a"}}, "pip install 'counterpoint[train] @ git+https://git.example/x'"),
        (
            {"url": "https://git.example/x", "vcs_info": {"vcs": "git", "commit_id": "a", "requested_revision": "v2"}},
            "pip install 'counterpoint[train] @ git+https://git.example/x@v2'",
        ),
        ({"url": "file:///tmp/c-0.1.0-py3-none-any.whl", "archive_info": {}}, "pip install 'counterpoint[train] @ file:///tmp/c-0.1.0-py3-none-any.whl'"),
    ],
    ids=["index", "git", "git at a tag", "a wheel"],
)
def test_elsewhere_it_installs_what_was_installed(tmp_path: Path, origin: dict[str, Any] | None, wanted: str) -> None:
    """As pip leaves it in site-packages: the package, and beside it what was installed from where."""
    place = tmp_path / "deep" / "er" / "site-packages"
    (place / "counterpoint").mkdir(parents=True)
    (place / "counterpoint" / "__init__.py").touch()
    shutil.copy(ROOT / "src" / "counterpoint" / "errors.py", place / "counterpoint")
    told = place / "counterpoint-0.1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: counterpoint\nVersion: 0.1.0\n")
    if origin is not None:
        (told / "direct_url.json").write_text(json.dumps(origin))
    assert said(place, tmp_path)[0] == wanted
