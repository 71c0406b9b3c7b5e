"""What the documentation site takes from the code: commands, the Python API, rules, problems, changes, notebooks, and `llms.txt`.

Always true: nothing here is written twice: `mkdocs.yml` is the one list of pages, and what is made here comes from the package,
the repository's own files and the docstrings. MkDocs calls the functions `on_...`; run by itself it writes `llms.txt`,
`docs/lab/methods.md` and the table of sources in `docs/import.md`.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
_ABOUT = (
    "> A team of LLM agents as one orchestration trace: record it, question it, say who earned the result and who broke it, and\n"
    "> train on it. Command `counterpoint` (short `cpt`), Python package `counterpoint`.\n\n"
    "Every command takes `--json`; `counterpoint commands --json` lists commands, arguments and options; exit codes are in\n"
    "docs/cli.md.\n"
)
_ENOUGH = 60
"""Characters that say what a page is about."""
_RULES = "src/counterpoint/lab/worlds/teamworld/__init__.py"
"""Where the rules of TeamWorld stand."""


# -- llms.txt ------------------------------------------------------------------------------------------------------------


def nav_of(text: str) -> list[Any]:
    """The pages of `mkdocs.yml`, in order."""
    import yaml

    return list(yaml.safe_load(text)["nav"])


def pages(nav: list[Any]) -> Iterator[tuple[str, str]]:
    """Every page of a nav as its title and path."""
    for entry in nav:
        if isinstance(entry, str):
            yield "", entry
            continue
        for title, under in entry.items():
            yield from [(title, under)] if isinstance(under, str) else pages(under)


def first_words(path: Path) -> str:
    """The first sentences below a page's title, as plain words: as many as it takes to say something."""
    text = re.sub(r"```.*?```|<(?:/?picture|source|img)[^>]*>", "", path.read_text(), flags=re.S)
    for block in text.split("\n\n"):
        words = " ".join(block.split())
        if words and not words.startswith(("#", "|", "!", "- ", "$", ">")):
            plain = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", words).replace("**", "")
            said = ""
            for sentence in re.split(r"(?<=[.:;?])\s", plain):
                said = f"{said} {sentence}".strip()
                if len(said) >= _ENOUGH:
                    break
            return said.rstrip(".:;")
    return ""


def llms(nav: list[Any], *, link: str = "docs/{}.md") -> str:
    """`llms.txt`: the nav, with each page's first sentences, for programs that read documentation."""
    out = ["# Counterpoint", "", _ABOUT]
    for section in nav:
        for title, under in section.items():
            out.append(f"## {title}")
            for name, path in pages([section] if isinstance(under, str) else under):
                source = DOCS / path
                if source.exists() and source.suffix == ".md":
                    words, at = first_words(source), link.format(path.removesuffix(".md"))
                    out.append(f"- [{name or 'Overview'}]({at})" + (f": {words}" if words else ""))
            out.append("")
    return "\n".join(out).rstrip() + "\n"


# -- pages made from code ------------------------------------------------------------------------------------------------


def commands_page() -> str:
    """The help of every command, as it is printed."""
    import click

    from counterpoint.app.cli import cli

    shared = "Conventions and exit codes that all commands share: [command line](../cli.md)."
    out = ["# Every command", "", f"What `--help` prints. {shared}", ""]

    def tell(command: click.Command, name: str, depth: int, parent: click.Context) -> None:
        context = click.Context(command, info_name=name.split()[-1], parent=parent, max_content_width=100, terminal_width=100)
        text = command.get_help(context)
        out.extend([f"{'#' * depth} {name}", "", "```text", text, "```", ""])
        if isinstance(command, click.Group):
            for under in command.list_commands(context):
                found = command.get_command(context, under)
                if found is not None and not found.hidden:
                    tell(found, f"{name} {under}", min(depth + 1, 4), context)

    with click.Context(cli, info_name="counterpoint") as root:
        for name in cli.list_commands(root):
            found = cli.get_command(root, name)
            if found is not None and not found.hidden:
                tell(found, f"counterpoint {name}", 2, root)
    return "\n".join(out)


def api_page() -> str:
    """Every public name, with its docstring, from where it is defined."""
    tree = ast.parse((ROOT / "src" / "counterpoint" / "__init__.py").read_text())
    table = next(n.value for n in tree.body if isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == "_HOME")
    home: dict[str, str] = ast.literal_eval(table)
    sections = {
        "What the commands compute": [n for n, m in home.items() if m.startswith("app.api")],
        "Read, write, record": [n for n in home if n in ("load", "save", "read_logs", "record", "Store", "world")],
        "The trace": [n for n, m in home.items() if m.startswith("trace")],
        "Errors": [n for n, m in home.items() if m == "errors"],
    }
    listed = {name for names in sections.values() for name in names}
    sections["More"] = [name for name in home if name not in listed]
    about = "The public names of `counterpoint`, by what they are for. What they take and give: [in Python](../python.md)."
    out = ["# Python API", "", about, ""]
    for title, names in sections.items():
        out += [f"## {title}", ""]
        for name in names:
            out += [f"::: {_defined(name, home[name])}", ""]
    names = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["counterpoint.names"]
    out += ["## The laboratory", ""]
    for target in names.values():
        out += [f"::: {target.replace(':', '.')}", ""]
    out += ["## For authors of plug-ins", ""]
    for module in ("counterpoint.testing", "counterpoint.lab.testing"):
        out += [f"::: {module}", "    options:", "      show_root_heading: false", ""]
    return "\n".join(out)


def _defined(name: str, module: str) -> str:
    """The full name of an object where it is defined, not where a face shows it."""
    import importlib

    found = getattr(importlib.import_module(f"counterpoint.{module}"), name)
    return f"{getattr(found, '__module__', f'counterpoint.{module}')}.{getattr(found, '__qualname__', name)}"


def decisions_page() -> str:
    """The decision notes, one after another."""
    notes = [note.read_text() for note in sorted((DOCS / "decisions").glob("*.md"))]
    text = "\n\n".join(re.sub(r"^(#+ )", r"#\1", note, flags=re.M) for note in notes)
    return "# Decisions\n\n" + re.sub(r"\]\(\d{4}-[\w-]+\.md\)", "](decisions.md)", text)


def rules_page() -> str:
    """The rules of TeamWorld, which are the docstring of its package."""
    from counterpoint.lab.worlds import teamworld

    return f"# The rules of TeamWorld\n\n{teamworld.__doc__}"


def problems_page() -> str:
    """The fifteen open problems, as `counterpoint papers show problems` has them."""
    from counterpoint.lab.papers.problems import PROBLEMS

    about = (
        "`counterpoint papers show problems` prints this. None is solved. *Measured*: the number bears on the problem itself, "
        "under its conditions ([results](../lab/results.md), [bench](../lab/bench.md)). *In part*: it bears on a piece of it, "
        "or on a simulated stand-in. *Not*: nothing that bears on it came out."
    )
    head = ("problem", "measured", "command", "number", "answered", "open")
    rows = [(f"{p.id} {p.name}", p.measured, f"`{p.command}`", p.number, p.answer, p.open) for p in PROBLEMS]
    lines = [f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows)]
    return "\n".join(["# Fifteen open problems", "", about, "", *lines, ""])


def _moved(text: str) -> str:
    """A file of the repository's root as a page of `reference/`: links to docs lead there from the new place."""
    text = re.sub(r"\]\(docs/", "](../", text)
    return re.sub(r"\]\((?:README\.md|CITATION\.cff|docs/decisions)\)", "](../index.md)", text)


# -- notebooks -----------------------------------------------------------------------------------------------------------


def cells(path: Path) -> list[tuple[str, str]]:
    """The cells of a notebook: `markdown` or `code`, and the text."""
    found = json.loads(path.read_text())["cells"]
    return [(cell["cell_type"], "".join(cell["source"])) for cell in found]


def run_cell(text: str, names: dict[str, Any]) -> tuple[str, Any]:
    """Run a cell as a notebook would: what it printed, and the value of its last line."""
    tree = ast.parse(text)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(tree, "<cell>", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names) if last is not None else None
    return said.getvalue(), value


def notebook_page(path: Path) -> str:
    """A notebook as a page, run while the site is built: texts, code, what it printed and showed."""
    out, names = list[str](), {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for kind, text in cells(path):
            if kind == "markdown":
                out += [text, ""]
                continue
            out += ["```python", text, "```", ""]
            printed, value = run_cell(text, names)
            shown = getattr(value, "_repr_html_", lambda: None)() if value is not None else None
            if value is not None and shown is None:
                printed += f"{value!r}\n"
            out += ["```text", printed.rstrip(), "```", ""] if printed else []
            out += [f'<div class="notebook-output">{_one_line(shown)}</div>', ""] if shown else []
    return "\n".join(out)


def _one_line(html: str) -> str:
    """HTML that Markdown leaves alone: in a frame of its own, which also keeps its styles to itself."""
    page = escape(f"<!doctype html><meta charset=utf-8><body style='margin:0;font-family:sans-serif'>{html}", quote=True)
    style = "width:100%;height:15rem;border:0;resize:vertical"
    return f'<iframe sandbox srcdoc="{page}" style="{style}" title="what the cell shows"></iframe>'.replace("\n", "&#10;")


# -- what MkDocs calls ---------------------------------------------------------------------------------------------------


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that come from code, and take out what a generated page shows whole."""
    from mkdocs.structure.files import File

    made = {
        "reference/commands.md": commands_page(),
        "reference/api.md": api_page(),
        "reference/decisions.md": decisions_page(),
        "reference/teamworld.md": rules_page(),
        "reference/problems.md": problems_page(),
        "reference/changes.md": _moved((ROOT / "CHANGELOG.md").read_text()),
        "reference/contributing.md": _moved((ROOT / "CONTRIBUTING.md").read_text()),
        "llms.txt": llms(config["nav"], link="{}.html").replace("README.html", "index.html").replace("docs/cli.md", "cli.html"),
    }
    for file in list(files):
        if file.src_uri.startswith("decisions/"):
            files.remove(file)
        if file.src_uri.endswith(".ipynb"):
            files.remove(file)
            made[file.src_uri.removesuffix(".ipynb") + ".md"] = notebook_page(DOCS / file.src_uri)
    for uri, text in made.items():
        files.append(File.generated(config, uri, content=text))
    return files


def on_config(config: Any) -> Any:
    """Notebooks become pages of their own name."""
    config["nav"] = _renamed(config["nav"])
    return config


def _renamed(nav: Any) -> Any:
    if isinstance(nav, str):
        return nav.removesuffix(".ipynb") + ".md" if nav.endswith(".ipynb") else nav
    if isinstance(nav, dict):
        return {title: _renamed(under) for title, under in nav.items()}
    return [_renamed(entry) for entry in nav]


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to notebooks lead to their pages; files of the repository that are no pages become their names."""
    markdown = re.sub(r"\]\(([\w/.-]+)\.ipynb\)", r"](\1.md)", markdown)
    up = "../" * page.file.src_uri.count("/")
    markdown = markdown.replace(f"]({up}../{_RULES})", f"]({up}reference/teamworld.md)")
    outside = re.compile(r"\[([^\]]+)\]\(" + re.escape(f"{up}../") + r"((?:examples|src|benchmarks|tools|tests)/[^)]+)\)")
    markdown = outside.sub(r"\1 (`\2`)", markdown)
    return re.sub(r"\]\((\.\./)*decisions(/[^)]*)?\)", f"]({up}reference/decisions.md)", markdown)


_SOURCES = re.compile(r"(<!-- sources: [^\n]*-->\n).*?(<!-- end -->)", re.S)


def with_sources(page: str) -> str:
    """A page with the table of sources where it stands."""
    return _SOURCES.sub(lambda found: found[1] + sources_table() + found[2], page)


def sources_table() -> str:
    """What is read: each source with its page, the versions seen, what is exact and what is lost."""
    from counterpoint.app.discover import importers

    rows = []
    for name, one in importers().items():
        path = DOCS / "sources" / f"{name}.md"
        title = path.read_text().partition("\n")[0].removeprefix("# ") if path.exists() else name
        link = f"[{title}](sources/{name}.md)" if path.exists() else title
        rows.append((title.lower(), f"|{link}|{one.versions}|{one.exact}|{one.lost}|\n"))
    return "|source|versions seen|exact|lost|\n|---|---|---|---|\n" + "".join(row for _, row in sorted(rows))


def methods_page() -> str:
    """The races whose rows come with the package."""
    from counterpoint.lab.app.race_page import digest
    from counterpoint.lab.bench.race.result import result_of
    from counterpoint.lab.bench.race.rows import RELEASED

    return digest([result_of(RELEASED[plan]) for plan in RELEASED])


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "src"))
    (DOCS / "lab" / "methods.md").write_text(methods_page())
    (DOCS / "import.md").write_text(with_sources((DOCS / "import.md").read_text()))
    (ROOT / "llms.txt").write_text(llms(nav_of((ROOT / "mkdocs.yml").read_text())))
