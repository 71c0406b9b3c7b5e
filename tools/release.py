"""Build the wheel and the sdist, and try them as a user would: `make dist`.

Always true: what is tried is what was built, in an environment that has nothing else; no other torch than that of the constraints
is ever asked for, and extras are resolved without being installed. It ends with an error at the first thing that is wrong.

    python tools/release.py                # 3.11, 3.12 and 3.13, as far as they are on this machine
    python tools/release.py --python 3.12  # one of them
    python tools/release.py --tests all    # every test of the rooms that need no torch, not only a part of them
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import urllib.request
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
PYTHONS = ("3.11", "3.12", "3.13")
INSIDE = (
    "py.typed",
    "app/viewer/page/viewer.html",
    "lab/lm/trained/smollm2-135m-ledger/adapter.safetensors",
    "audits/blame/weights.json",
    "formats/importing/prices.json",
    "lab/papers/papers.jsonl",
    "lab/bench/race/released/screening.jsonl",
)
"""What a user needs beside the code."""
BESIDE = (
    "tests/test_docs.py", "docs/index.md", "web/package.json", "tools/release.py", "mkdocs.yml", "CITATION.cff", "CHANGELOG.md",
)  # fmt: skip
TESTS = {
    "some": (
        "tests/trace", "tests/lab/papers", "tests/audits", "tests/formats/test_sample_listings.py",
        "tests/formats/test_importing_core.py", "tests/store/test_store.py", "tests/store/test_round_trip.py",
        "tests/app/test_show_ls_demo.py",
    ),
    "all": ("tests/trace", "tests/lab/papers", "tests/audits", "tests/formats", "tests/store", "tests/app/test_show_ls_demo.py"),
    "none": (),
}  # fmt: skip
"""What is run on every Python, from the sdist and against the wheel. Rooms that need torch, other packages or a browser are left
to `make test`: `some` of the others take about a minute and a half of one core."""
OTHERS = ("trl", "verl", "tinker", "verifiers", "agentdojo")
TESTED = ("pytest>=8", "hypothesis>=6.100", "jsonschema>=4.23", "networkx>=3.4", "opentelemetry-proto>=1.30")


def say(words: str) -> None:
    """One line of what is being done."""
    print(f"dist: {words}", flush=True)


def run(*words: str | Path, code: int = 0, cwd: Path | None = None) -> str:
    """Run a command that must end with this exit code; what it printed."""
    done = subprocess.run([str(w) for w in words], cwd=cwd, capture_output=True, text=True)
    if done.returncode != code:
        sys.exit(f"dist: {' '.join(map(str, words))}\nexit {done.returncode}, not {code}\n{done.stdout}{done.stderr}")
    return done.stdout


def pip(python: Path | str, *words: str | Path) -> str:
    """pip in an environment, quietly and with the constraints."""
    return run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt", *words)


def environment(folder: Path, python: str) -> Path:
    """A new environment; its interpreter."""
    run(python, "-m", "venv", folder)
    return folder / "bin" / "python"


def interpreter(version: str) -> str | None:
    """The Python of a version on this machine: of the path, or of pyenv."""
    found = [shutil.which(f"python{version}"), *sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))]
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    for candidate in filter(None, found):
        told = subprocess.run([str(candidate), "-c", ask], capture_output=True, text=True)
        if told.returncode == 0 and told.stdout.strip() == version:
            return str(candidate)
    return None


# -- build ---------------------------------------------------------------------------------------------------------------


def build(work: Path) -> tuple[Path, Path]:
    """The wheel and the sdist, in dist/, with everything in them, and the price list of the day."""
    shutil.rmtree(DIST, ignore_errors=True)
    python = environment(work / "build", sys.executable)
    pip(python, "build", "genai-prices", "msgspec")
    say(run(python, ROOT / "tools" / "prices.py").strip())
    run(python, "-m", "build", "--outdir", DIST, ROOT)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    names = set(zipfile.ZipFile(wheel).namelist())
    missing = [name for name in INSIDE if f"counterpoint/{name}" not in names]
    with tarfile.open(sdist) as packed:
        there = {member.name.partition("/")[2] for member in packed.getmembers()}
    missing += [f"{name} (sdist)" for name in (*BESIDE, *(f"src/counterpoint/{n}" for n in INSIDE)) if name not in there]
    if missing:
        sys.exit(f"dist: not in what was built: {', '.join(missing)}")
    run(python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", work / "again", sdist)
    (again,) = (work / "again").glob("*.whl")
    if set(zipfile.ZipFile(again).namelist()) != names:
        sys.exit("dist: a wheel built from the sdist has other files than the wheel")
    say(f"{wheel.name} {wheel.stat().st_size:,} bytes, {len(names)} files; {sdist.name} {sdist.stat().st_size:,} bytes")
    return wheel, sdist


# -- try -----------------------------------------------------------------------------------------------------------------


def try_core(inside: Path, folder: Path) -> None:
    """With the core dependencies alone: the package is imported, every command helps, and those of the core work."""
    command = inside.parent / "counterpoint"
    run(inside, "-c", "import counterpoint; [getattr(counterpoint, name) for name in dir(counterpoint)]")
    for name in run(inside, "-c", "from counterpoint import registry; print(*registry.ids('command'))").split():
        run(command, name, "--help")
    run(command, "demo", "--quick", cwd=folder)
    for words in ("ls", "show research-team", "credit research-team", "report"):
        run(command, *words.split(), "--store", "counterpoint_demo", cwd=folder)
    run(command, "audit", "busy-team", "--store", "counterpoint_demo", cwd=folder, code=4)
    run(command, "audit", "mailroom", "--taint", "--store", "counterpoint_demo", cwd=folder, code=4)


def try_wheel(wheel: Path, work: Path, python: str, version: str) -> Path:
    """Install the wheel alone, and do what the README begins with, then with the viewer; the environment's interpreter."""
    inside = environment(work / f"user-{version}", python)
    pip(inside, wheel)
    command, folder = inside.parent / "counterpoint", work / f"empty-{version}"
    folder.mkdir()
    told = run(command, "--version").strip()
    if told.split()[-1] != project()["version"]:
        sys.exit(f"dist: --version says {told}")
    try_core(inside, folder)
    say(f"Python {version}: with the core dependencies alone, every command helps, and those of the core work")
    pip(inside, f"{wheel}[view]")
    if "smollm2-135m-ledger" not in run(command, "models", cwd=folder):
        sys.exit("dist: the adapter that comes with the package is not found")
    _try_view(command, folder)
    say(f"Python {version}: the models that come with the package, and the viewer, work")
    return inside


def _try_view(command: Path, folder: Path) -> None:
    words = [str(command), "view", "counterpoint_demo", "--no-open", "--json"]
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True) as viewer:
        assert viewer.stdout is not None
        url = json.loads(viewer.stdout.readline())["url"].split("#")[0]
        with urllib.request.urlopen(url) as page:
            is_page = b"<html" in page.read()
        viewer.send_signal(signal.SIGINT)
        if viewer.wait(60) or not is_page:
            sys.exit("dist: the viewer of the wheel does not show its page")


def try_tests(sdist: Path, work: Path, inside: Path, version: str, tests: tuple[str, ...]) -> None:
    """Tests as they are in the sdist, against the installed wheel; what was left out is printed with its reason."""
    pip(inside, *TESTED)
    home = work / f"source-{version}"
    with tarfile.open(sdist) as packed:
        packed.extractall(home, filter="data")
    (source,) = home.iterdir()
    shutil.rmtree(source / "src")
    # `pythonpath` of the configuration stays; the package is the installed one.
    told = run(inside, "-m", "pytest", "-x", *tests, cwd=source).strip().splitlines()
    say(f"Python {version}: {told[-1].strip('= ')}, of {', '.join(tests)}")
    for line in told:
        if line.startswith("SKIPPED"):
            say(f"Python {version}: {line}")


def project() -> dict[str, object]:
    """What pyproject.toml says."""
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])


def resolve_extras(wheel: Path, work: Path) -> None:
    """Every extra has versions that go together. Nothing is installed; torch is what is here, or that of the constraints.

    Ours are held to the constraints; some packages of other people want other versions of what they need: for them only torch is.
    """
    extras = project()["optional-dependencies"]
    assert isinstance(extras, dict)
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    torch_alone = work / "torch.txt"
    torch_alone.write_text("\n".join(line for line in lines if line.startswith("torch==")))
    for extra in extras:
        held = torch_alone if extra in OTHERS else ROOT / "constraints.txt"
        words = ("-m", "pip", "install", "--dry-run", "--quiet", "--disable-pip-version-check", "-c", held)
        run(sys.executable, *words, f"{wheel}[{extra}]")
        say(f"extra {extra} resolves")


def main() -> None:
    """Build, look inside, try on every Python, resolve the extras."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", choices=PYTHONS, help="one version instead of all that are here")
    parser.add_argument("--tests", choices=TESTS, default="some", help="what is run on every version (default: some)")
    parser.add_argument("--no-extras", action="store_true", help="do not resolve the extras")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dist-") as folder:
        work = Path(folder)
        work.chmod(0o755)  # some tests become another user, who must be able to read the package
        wheel, sdist = build(work)
        for version in [asked.python] if asked.python else PYTHONS:
            python = interpreter(version)
            if python is None:
                say(f"Python {version} is not on this machine: not tried")
                continue
            inside = try_wheel(wheel, work, python, version)
            if TESTS[asked.tests]:
                try_tests(sdist, work, inside, version, TESTS[asked.tests])
        if not asked.no_extras:
            resolve_extras(wheel, work)
    say(f"done: {DIST.name}/{wheel.name}, {DIST.name}/{sdist.name}")


if __name__ == "__main__":
    main()
