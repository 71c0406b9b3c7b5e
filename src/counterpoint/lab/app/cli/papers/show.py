"""Show papers, claims, open problems and errata, or write BibTeX.

Always true: every number of a claim is the length of a list that it also prints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from counterpoint.app.terminal.options import output_option
from counterpoint.app.terminal.output import json_option, note, table
from counterpoint.display import counted
from counterpoint.errors import InputError, NotFound, did_you_mean
from counterpoint.files import put
from counterpoint.lab.app.cli.papers._presets import presets_of
from counterpoint.lab.app.cli.papers._text import as_dict, emit_object, examples, reward_text, with_option, wrapped
from counterpoint.lab.papers import load, query
from counterpoint.lab.papers.problems import PROBLEMS
from counterpoint.lab.papers.records import Erratum, Excluded, Paper, family

Printer = Callable[[], None]
_LISTS = ("claims", "problems", "errata")


@click.command(
    epilog=examples("show puppeteer P12 ER04", "show claims", "show puppeteer c3 --to bib", "show -o papers.bib")
    + "\n\nExit codes: 0 shown, 2 a wrong option or file, 3 nothing has this name."
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--to", "form", type=click.Choice(["text", "bib"]), help="Print BibTeX of these papers (of all without a NAME).")
@output_option("Write BibTeX here.", metavar="FILE.bib")
@with_option
@json_option
def show(names: tuple[str, ...], form: str | None, output: Path | None, extra: tuple[Path, ...], as_json: bool) -> None:
    """Show what a NAME stands for: a paper, an exclusion, a claim, an open problem or an erratum.

    NAME is a paper's key or arXiv id, the id of an exclusion (E003), of a claim (message-credit), of an open problem (P12) or of
    an erratum (ER04); `claims`, `problems` and `errata` show all of these. A paper comes with its corrections, judgements,
    presets and their results.
    """
    pool = load.pool(extra)
    if form == "bib" or output is not None:
        return _bib(_papers(names, pool), output, as_json=as_json)
    if not names:
        raise InputError("no name to show", fix="counterpoint papers ls lists papers; counterpoint papers show claims")
    for k, print_ in enumerate([_printer(name, pool, as_json=as_json) for name in names]):
        if k and not as_json:
            click.echo()
        print_()
    return None


def _printer(name: str, pool: load.Pool, *, as_json: bool) -> Printer:
    """What prints the thing of this name; everything is looked up before the first one is printed."""
    claims, problems = {s.id: s for s in load.claim_specs()}, {p.id: p for p in PROBLEMS}
    errata = {e.id: e for e in load.errata()}
    if name in claims or name == "claims":
        return partial(_claims, [claims[name]] if name in claims else list(claims.values()), pool, as_json=as_json)
    if name.upper() in problems or name == "problems":
        return partial(_problems, [problems[name.upper()]] if name != "problems" else PROBLEMS, as_json=as_json)
    if name.upper() in errata or name == "errata":
        return partial(_errata, [errata[name.upper()]] if name != "errata" else list(errata.values()), as_json=as_json)
    try:
        record = query.find(pool.papers, name, pool.excluded)
    except NotFound:
        papers = [p.key for p in pool.papers] + [x.record_id for x in pool.excluded]
        known = [*papers, *claims, *problems, *errata, *_LISTS]
        raise NotFound(f"nothing is called {name!r}", fix=did_you_mean(name, known)) from None
    if isinstance(record, Excluded):
        return partial(_excluded, record, as_json=as_json)
    return partial(_paper, record, as_json=as_json)


def _excluded(record: Excluded, *, as_json: bool) -> None:
    if as_json:
        return emit_object(excluded=as_dict(record))
    return click.echo("\n".join(wrapped(name, str(value)) for name, value in as_dict(record).items()))


def _paper(record: Paper, *, as_json: bool) -> None:
    errata = [e for e in load.errata() if record.key in e.keys]
    marks = [m for m in load.marks() if m.key == record.key]
    methods = presets_of(record)
    if as_json:
        fields = as_dict(record) | {"family": family(record.reward_type)}
        return emit_object(paper=fields, errata=[as_dict(e) for e in errata], marks=[as_dict(m) for m in marks], presets=methods)
    fields = as_dict(record) | {"reward_type": reward_text(record)}
    click.echo("\n".join(wrapped(name, "-" if value in (None, "") else str(value)) for name, value in fields.items()))
    for erratum in errata:
        click.echo(wrapped(erratum.id, f"{erratum.found} ({erratum.label})"))
    for mark in marks:
        click.echo(wrapped("judged", f"{mark.mark} = {mark.value}: {mark.reason} ({mark.label})"))
    for method in methods:
        click.echo(wrapped("preset", f"{method['preset']}: counterpoint train net --preset {method['preset']} --world W1"))
        for result in method["results"]:
            click.echo(wrapped("result", f"{result['text']}; {result['command']}"))
    return None


def _claims(specs: Sequence[Any], pool: load.Pool, *, as_json: bool) -> None:
    claims = query.claims(specs, pool.papers, load.marks())
    if as_json:
        return emit_object(as_of=query.AS_OF, since_checked=query.SINCE, claims=[as_dict(c) for c in claims])
    if len(claims) == 1:
        return click.echo(_claim_text(claims[0]))
    click.echo(table(["claim", "status", "in this pool"], [(c.id, c.status, c.statement) for c in claims]))
    return note(f"as of {query.AS_OF} in this curated pool; `papers show CLAIM` prints its boundary, rows and what came since")


def _claim_text(claim: Any) -> str:
    lines = [wrapped("claim", claim.id), wrapped("statement", claim.statement), wrapped("status", claim.status)]
    lines.append(wrapped("boundary", f"{claim.boundary} As of {claim.as_of} in this curated pool."))
    for name, keys in claim.rows.items():
        # the survey's own reading is shown where it is another one
        if keys and keys != claim.rows.get(name.removeprefix("stated_") if name.startswith("stated_") else ""):
            lines.append(wrapped(f"{name} ({len(keys)})", ", ".join(keys)))
    lines += [wrapped(f"  {key}", reason) for key, reason in claim.reasons.items()]
    if claim.errata:
        lines.append(wrapped("errata", ", ".join(claim.errata)))
    if claim.since:
        refs = f" [{', '.join(claim.since_refs)}]" if claim.since_refs else ""
        lines.append(wrapped("since", claim.since + refs))
    return "\n".join(lines)


def _problems(problems: Sequence[Any], *, as_json: bool) -> None:
    for one in problems:
        if as_json:
            emit_object(**asdict(one))
            continue
        click.echo(f"{one.id}  {one.name}")
        for label in ("measured", "command", "number", "answer", "open"):
            click.echo(wrapped(f"  {label}", getattr(one, label)))


def _errata(errata: Sequence[Erratum], *, as_json: bool) -> None:
    if as_json:
        return emit_object(count=len(errata), errata=[as_dict(e) for e in errata])
    blocks = [
        "\n".join([
            f"{e.id}  {', '.join(e.keys)}  ({e.field}; {e.kind})",
            wrapped("  survey", e.survey),
            wrapped("  found", e.found),
            wrapped("  evidence", f"{e.evidence} {e.label}; formula sheet {e.sheet}."),
        ])
        for e in errata
    ]  # fmt: skip
    return click.echo("\n\n".join(blocks))


# -- BibTeX --------------------------------------------------------------------------------------------------------------


def _papers(names: Sequence[str], pool: load.Pool) -> list[Paper]:
    """The papers of these names, each once; all without a name."""
    some = [p for name in names if isinstance(p := query.find(pool.papers, name), Paper)]
    return list(dict.fromkeys(some)) if names else list(pool.papers)


def _bib(papers: Sequence[Paper], output: Path | None, *, as_json: bool) -> None:
    from counterpoint.lab.papers import bib

    sole = {m.key for m in load.marks() if (m.mark, m.value) == ("authors", "sole")}
    if output is not None:
        put([(output, (bib.render(papers, sole) + "\n").encode())], overwrite=True)
        return note(f"wrote {output}: {counted(len(papers), 'paper')}")
    if as_json:
        entries = [{"key": p.key, "type": bib.kind(p), "fields": bib.fields(p, sole)} for p in papers]
        return emit_object(count=len(papers), entries=entries)
    return click.echo(bib.render(papers, sole))
