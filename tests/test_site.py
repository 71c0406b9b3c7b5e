"""The documentation site, as far as it can be told without building it: its nav, `llms.txt`, its notebooks.

`make docs` builds it strictly; MkDocs is not needed here.
"""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_site", ROOT / "tools" / "docs_site.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_every_page_stands_once_in_the_nav_and_llms_txt_is_made_from_it() -> None:
    pytest.importorskip("yaml", reason="PyYAML, which MkDocs brings, is not installed")
    nav = site().nav_of((ROOT / "mkdocs.yml").read_text())
    listed = [path for _, path in site().pages(nav) if not path.startswith("reference/")]
    docs = ROOT / "docs"
    there = {p.relative_to(docs).as_posix() for ending in ("*.md", "*.ipynb") for p in docs.rglob(ending)}
    assert sorted(listed) == sorted(p for p in there if not p.startswith("decisions/"))
    links = re.compile(r"\]\(([^)]+)\)")
    assert links.findall((ROOT / "llms.txt").read_text()) == links.findall(site().llms(nav)), "run `python tools/docs_site.py`"


def test_the_table_of_sources_is_that_of_the_importers() -> None:
    """Every importer has a line, and every page of a source is in it."""
    page = (ROOT / "docs" / "import.md").read_text()
    assert page == site().with_sources(page), "run `python tools/docs_site.py`"
    linked = re.findall(r"^\|\[[^]]+\]\(sources/(\w+)\.md\)", page, re.M)
    assert sorted(linked) == sorted(path.stem for path in (ROOT / "docs" / "sources").glob("*.md"))
    assert "|[pi](sources/pi.md)|sessions of version 3, what pi 0.73 prints|tokens, costs, calls|images, settings, labels|\n" in page


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_runs_and_is_kept_without_outputs(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made, names = site(), {"__name__": "__main__"}
    shown = [made.run_cell(text, names) for kind, text in made.cells(notebook) if kind == "code"]
    assert all(printed or value is not None for printed, value in shown)
    assert all(cell.get("outputs", []) == [] for cell in json.loads(notebook.read_text())["cells"])


def test_one_version_everywhere() -> None:
    import tomllib

    import counterpoint

    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert counterpoint.__version__ == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text()
