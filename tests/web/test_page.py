"""The page that the package carries is the one that its source builds, it is small, and its own tests pass."""

from __future__ import annotations

import gzip
import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from counterpoint.app.viewer import typescript

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"
NODE = WEB / "node_modules" / ".bin"
PAGE = ROOT / "src" / "counterpoint" / "app" / "viewer" / "page" / "viewer.html"

needs_node = pytest.mark.skipif(
    shutil.which("node") is None or not (WEB / "node_modules" / "vite").is_dir(),
    reason="Node, or the page's packages, are not on this machine: run `make test` where npm is",
)


def test_types_are_made_from_the_shapes() -> None:
    assert (WEB / "src" / "shapes.gen.ts").read_text() == typescript.source()


def test_the_page_is_small_and_asks_nobody() -> None:
    page = PAGE.read_bytes()
    assert len(gzip.compress(page)) <= 250_000
    text = page.decode()
    fetched = re.findall(r'(?:src|href)="(?!data:|#)([^"]*)"', text.split("<body", 1)[0])
    assert fetched == []
    assert "eval(" not in text


@needs_node
def test_a_clean_build_gives_the_page_in_the_package(tmp_path: Path) -> None:
    done = subprocess.run(
        [NODE / "vite", "build", "--outDir", str(tmp_path), "--emptyOutDir"], cwd=WEB, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    built = hashlib.sha256((tmp_path / "viewer.html").read_bytes()).hexdigest()
    assert built == hashlib.sha256(PAGE.read_bytes()).hexdigest(), "run `make page` and commit the page"


@needs_node
def test_its_types_hold() -> None:
    done = subprocess.run([NODE / "tsc", "-p", ".", "--noEmit", "--incremental", "--tsBuildInfoFile", "node_modules/.cache/types"], cwd=WEB, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout


@needs_node
def test_its_own_tests_pass() -> None:
    done = subprocess.run([NODE / "vitest", "run", "--pool=threads", "--no-isolate", "--maxWorkers=1"], cwd=WEB, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-4000:]
