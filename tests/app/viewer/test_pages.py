"""Pages of installed packages: another package's page hangs in as the laboratory's do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from counterpoint.app.viewer.collection import Collection
from counterpoint.app.viewer.pages import pages

_PACKAGE = '''
from msgspec import Struct

from counterpoint.app.viewer.pages import Page, Question, word


class Tally(Struct):
    """How often."""

    name: str
    count: int


def pages():
    """One page."""
    questions = {"tally": Question(lambda collection, words: Tally(word(words, "id", "/api/tally"), len(collection.folders)))}
    opens = lambda collection, path: "/tally" if (path / "tally.txt").is_file() else None
    return [Page("tally", "Tally", ("tally",), questions, (Tally,), opens, stores=lambda collection: {"mine": collection.folders[0] / "kept"})]
'''
_ASK = """
import sys
from pathlib import Path

sys.path[:0] = [sys.argv[2]]
from app.viewer.served import viewing
from counterpoint.app.cli.view import _opened
from counterpoint.app.viewer import typescript
from counterpoint.app.viewer.collection import Collection
from counterpoint.store import Store
from counterpoint.testing import synthetic_trace

folder = Path(sys.argv[1])
with Store(folder / "kept") as store:
    store.add(synthetic_trace(2, 6, trace_id="t1"))
with viewing(Collection(folders=[folder]), folder) as viewer:
    print(viewer.ask("/api/tally?id=x").json)
    print(viewer.ask("/api/tally").json["error"]["what"])
    print(viewer.ask("/tally").status, viewer.ask("/nothing").status, viewer.of("mine:t1").json["id"])
print(_opened(str(folder), None, folder / "runs").path)
print("export interface Tally {" in typescript.source(), '{"id": "tally", "name": "Tally"}' in typescript.source())
"""


def test_another_package_adds_a_page(tmp_path: Path) -> None:
    (tmp_path / "my_lab.py").write_text(_PACKAGE)
    told = tmp_path / "my_lab-1.0.dist-info"
    told.mkdir()
    (told / "entry_points.txt").write_text("[counterpoint.hooks]\npages = my_lab:pages\n")
    folder = tmp_path / "counts"
    folder.mkdir()
    (folder / "tally.txt").touch()
    ask = tmp_path / "ask.py"  # its folder is first on the path, and so are the package and its entry points
    ask.write_text(_ASK)
    tests = Path(__file__).parents[2]
    ended = subprocess.run(
        [sys.executable, str(ask), str(folder), str(tests)], capture_output=True, text=True, cwd=tmp_path, timeout=120
    )
    assert ended.stdout.splitlines() == [
        "{'name': 'x', 'count': 1}",
        "id is missing",
        "200 404 mine:t1",
        "/tally",
        "True True",
    ], ended.stderr


def test_an_address_and_a_question_have_one_page() -> None:
    for names in ([a for page in pages() for a in page.addresses], [q for page in pages() for q in page.questions]):
        assert len(names) == len(set(names))
    assert [page.id for page in pages()] == ["runs", "compare", "bench"]
    assert all(page.folders(Collection()) == {} for page in pages())
