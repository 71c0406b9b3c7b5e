"""What is known: the survey's papers, counts, claims and errata.

Always true: filters are checked before anything is searched; an empty answer to a valid question is an answer (exit 0);
only `add` writes, and only to the file it names.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

import click
import msgspec

from counterpoint.app.terminal.groups import Group
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note, table
from counterpoint.errors import InputError, NotFound, did_you_mean
from counterpoint.files import read_plain
from counterpoint.lab.app.cli._methods import presets_of
from counterpoint.lab.papers import load, query
from counterpoint.lab.papers.records import Excluded, Paper, family

HEADING = "Learn"

with_option = click.option(
    "--with", "extra", multiple=True, metavar="FILE", type=click.Path(path_type=Path), help="Also read this user file."
)


def _emit(**fields: Any) -> None:
    emit({"schema": SCHEMA_VERSION, **fields})


def _dict(record: msgspec.Struct) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(record)
    return plain


def _wrapped(label: str, text: str) -> str:
    lead = f"{label:<19}" if len(label) < 19 else f"{label} "
    return textwrap.fill(text, 100, initial_indent=lead, subsequent_indent=" " * 19, break_on_hyphens=False)


def _example(*lines: str) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  counterpoint corpus {line}" for line in lines)


@click.group(cls=Group, epilog=_example("ls --reward R7 --credit orchestrator", "claims message-credit"))
def corpus() -> None:
    """The papers behind the survey: 84 kept, 32 left out, counted and corrected."""


@corpus.command(epilog=_example("ls --reward R7 --credit orchestrator", 'ls --text "self-play" --year 2025-2026 --json'))
@click.option("--reward", "reward_type", multiple=True, metavar="R1-R8|WORD", help="Reward family or tag.")
@click.option("--credit", "credit_granularity", multiple=True, metavar="UNIT", help="Credit unit: orchestrator, role, ...")
@click.option("--category", multiple=True, metavar="WORD", help="rl_method, benchmark, classical_marl, industry, ...")
@click.option("--form", "orchestration_form", multiple=True, metavar="WORD", help="centralized, swarm, debate, ...")
@click.option("--scenario", multiple=True, metavar="WORD", help="general, coding, math, research, tool_use, web.")
@click.option("--core", "is_core", is_flag=False, flag_value="core", metavar="[WORD]", help="core (alone), supporting, case.")
@click.option("--rl", "is_rl", is_flag=False, flag_value="yes", metavar="[WORD]", help="yes (alone), partial or no.")
@click.option("--year", metavar="YYYY[-YYYY]", help="A year or a range of years.")
@click.option("--text", default="", metavar="WORDS", help="All these words in key, title, author or one-liner.")
@click.option("--excluded", "left_out", is_flag=True, help="List the exclusions and their reasons instead.")
@with_option
@json_option
def ls(
    year: str | None,
    text: str,
    left_out: bool,
    extra: tuple[Path, ...],
    as_json: bool,
    **asked: tuple[str, ...] | str | None,
) -> None:
    """List papers by tag, year or words.

    Filters but --core and --rl may be repeated: values of one are alternatives, different filters all apply.
    """
    # what is left in `asked` are the tags, each option named after its field
    chosen = {f: (v,) if isinstance(v, str) else v or () for f, v in asked.items()}
    filters = {field: query.words(field, values) for field, values in chosen.items()}
    between = query.years(year) if year is not None else None
    if left_out:
        if any(filters.values()) or between or extra:
            raise InputError("exclusions carry no tags to filter by", fix="use --excluded with --text only")
        _list_excluded(text, as_json=as_json)
        return
    found = query.select(load.pool(extra).papers, filters, between=between, text=text)
    if as_json:
        _emit(count=len(found), papers=[_dict(p) | {"family": family(p.reward_type)} for p in found])
    elif found:
        rows = [(p.key, str(p.year), _reward(p), p.credit_granularity, p.orchestration_form, p.title) for p in found]
        click.echo(table(["key", "year", "reward", "credit", "form", "title"], rows))
        note(f"{len(found)} papers" if len(found) != 1 else "1 paper")
    else:
        click.echo("no paper fits")


def _reward(paper: Paper) -> str:
    return f"{family(paper.reward_type)} {paper.reward_type}" if paper.reward_type != "NA" else "NA"


def _list_excluded(text: str, *, as_json: bool) -> None:
    found = [x for x in load.excluded() if query.matches_text(text, x.record_id, x.screening_label, x.exclusion_reason)]
    if as_json:
        _emit(count=len(found), excluded=[_dict(x) for x in found])
    elif found:
        rows = [(x.record_id, x.stage, x.screening_label, x.exclusion_reason) for x in found]
        click.echo(table(["id", "stage", "title", "reason"], rows))
    else:
        click.echo("no exclusion fits")


@corpus.command(epilog=_example("show puppeteer", "show E003 --json"))
@click.argument("key")
@with_option
@json_option
def show(key: str, extra: tuple[Path, ...], as_json: bool) -> None:
    """One record with its corrections, judgements, presets and their results.

    KEY is a paper's key, an arXiv id, or the id of an exclusion.
    """
    pool = load.pool(extra)
    record = query.find(pool.papers, key, pool.excluded)
    if isinstance(record, Excluded):
        if as_json:
            _emit(excluded=_dict(record))
        else:
            click.echo("\n".join(_wrapped(name, str(value)) for name, value in _dict(record).items()))
        return
    errata = [e for e in load.errata() if record.key in e.keys]
    marks = [m for m in load.marks() if m.key == record.key]
    methods = presets_of(record)
    if as_json:
        fields = _dict(record) | {"family": family(record.reward_type)}
        _emit(paper=fields, errata=[_dict(e) for e in errata], marks=[_dict(m) for m in marks], presets=methods)
        return
    fields = _dict(record) | {"reward_type": _reward(record)}
    click.echo("\n".join(_wrapped(name, "-" if value in (None, "") else str(value)) for name, value in fields.items()))
    for erratum in errata:
        click.echo(_wrapped(erratum.id, f"{erratum.found} ({erratum.label})"))
    for mark in marks:
        click.echo(_wrapped("judged", f"{mark.mark} = {mark.value}: {mark.reason} ({mark.label})"))
    for method in methods:
        click.echo(_wrapped("preset", f"{method['preset']}: counterpoint train --preset {method['preset']} --world W1"))
        for result in method["results"]:
            click.echo(_wrapped("result", f"{result['text']}; {result['command']}"))


@corpus.command(epilog=_example("stats", "stats --with corpus.jsonl --json"))
@with_option
@json_option
def stats(extra: tuple[Path, ...], as_json: bool) -> None:
    """Counts and cross-tables, from the rows."""
    from counterpoint.lab.papers.query import statistics

    pool = load.pool(extra)
    numbers = statistics(pool.papers, pool.excluded)
    if as_json:
        _emit(**numbers)
        return
    sections = []
    for name, section in numbers.items():
        title = name.replace("_x_", " x ")
        if " x " in title:
            heads = list(next(iter(section.values()), {}))
            rows = [[row, *cells.values()] for row, cells in section.items()]
            body = table([title.split(" x ")[0], *heads], rows, right=range(1, len(heads) + 1))
        else:
            body = table([title, "entries"], list(section.items()), right=[1])
        sections.append(f"{title}\n\n{body}" if " x " in title else body)
    click.echo("\n\n".join(sections))


@corpus.command(epilog=_example("claims", "claims stop-training --json"))
@click.argument("ids", nargs=-1, metavar="[ID]...")
@with_option
@json_option
def claims(ids: tuple[str, ...], extra: tuple[Path, ...], as_json: bool) -> None:
    """The survey's sparsity claims, counted again.

    With an ID also the boundary, the rows behind each number, and what came since.
    """
    from counterpoint.lab.papers import query as counting

    specs = load.claim_specs()
    for asked in ids:
        if asked not in {s.id for s in specs}:
            raise NotFound(f"no claim {asked!r}", fix=did_you_mean(asked, [s.id for s in specs]))
    chosen = [s for s in specs if not ids or s.id in ids]
    found = counting.claims(chosen, load.pool(extra).papers, load.marks())
    if as_json:
        _emit(as_of=counting.AS_OF, since_checked=counting.SINCE, claims=[_dict(c) for c in found])
    elif ids:
        click.echo("\n\n".join(_claim_text(c) for c in found))
    else:
        click.echo(table(["claim", "status", "in this pool"], [(c.id, c.status, c.statement) for c in found]))
        note(f"as of {counting.AS_OF} in this curated pool; `claims ID` gives boundary, rows and what came since")


def _claim_text(claim: Any) -> str:
    lines = [_wrapped("claim", claim.id), _wrapped("statement", claim.statement), _wrapped("status", claim.status)]
    lines.append(_wrapped("boundary", f"{claim.boundary} As of {claim.as_of} in this curated pool."))
    for name, keys in claim.rows.items():
        # the survey's own reading is shown where it is another one
        if keys and keys != claim.rows.get(name.removeprefix("stated_") if name.startswith("stated_") else ""):
            lines.append(_wrapped(f"{name} ({len(keys)})", ", ".join(keys)))
    lines += [_wrapped(f"  {key}", reason) for key, reason in claim.reasons.items()]
    if claim.errata:
        lines.append(_wrapped("errata", ", ".join(claim.errata)))
    if claim.since:
        refs = f" [{', '.join(claim.since_refs)}]" if claim.since_refs else ""
        lines.append(_wrapped("since", claim.since + refs))
    return "\n".join(lines)


@corpus.command(epilog=_example("errata", "errata puppeteer --json"))
@click.argument("names", nargs=-1, metavar="[ID|KEY]...")
@json_option
def errata(names: tuple[str, ...], as_json: bool) -> None:
    """What the survey says and the papers do not support.

    Name an erratum or a paper to see only those; each comes with its evidence.
    """
    ids = {e.id for e in load.errata()}
    known = ids | {p.key for p in load.papers()}
    for name in names:
        if name not in known:
            raise NotFound(f"no erratum or paper {name!r}", fix=did_you_mean(name, known))
    found = [e for e in load.errata() if not names or {e.id, *e.keys} & set(names)]
    if as_json:
        _emit(count=len(found), errata=[_dict(e) for e in found])
        return
    blocks = []
    for e in found:
        blocks.append(
            "\n".join(
                [
                    f"{e.id}  {', '.join(e.keys)}  ({e.field}; {e.kind})",
                    _wrapped("  survey", e.survey),
                    _wrapped("  found", e.found),
                    _wrapped("  evidence", f"{e.evidence} {e.label}; formula sheet {e.sheet}."),
                ]
            )
        )
    click.echo("\n\n".join(blocks) if blocks else "no erratum touches these")


@corpus.command(epilog=_example("bib puppeteer c3", "bib > corpus.bib"))
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@with_option
@json_option
def bib(keys: tuple[str, ...], extra: tuple[Path, ...], as_json: bool) -> None:
    """Papers as BibTeX, all of them or those named."""
    from counterpoint.lab.papers import bib as writing

    pool = load.pool(extra)
    chosen: list[Paper] = [p for k in dict.fromkeys(keys) if isinstance(p := query.find(pool.papers, k), Paper)]
    chosen = list(dict.fromkeys(chosen)) if keys else list(pool.papers)
    sole = {m.key for m in load.marks() if (m.mark, m.value) == ("authors", "sole")}
    if as_json:
        entries = [{"key": p.key, "type": writing.kind(p), "fields": writing.fields(p, sole)} for p in chosen]
        _emit(count=len(chosen), entries=entries)
    else:
        click.echo(writing.render(chosen, sole))


def _why(error: InputError) -> str:
    return f" ({error.why})" if error.why else ""


@corpus.command(epilog=_example("check", "check corpus.jsonl --json"))
@click.argument("paths", nargs=-1, metavar="[FILE]...", type=click.Path(path_type=Path))
@json_option
@click.pass_context
def check(ctx: click.Context, paths: tuple[Path, ...], as_json: bool) -> None:
    """Check the pool and user files against the vocabulary.

    A problem ends with exit code 4.
    """
    from counterpoint.lab.papers.validate import problems

    rows = list(load.papers())
    found = [_dict(p) for p in problems(rows, load.excluded())]
    for path in paths:
        good, bad = load.examine(path, rows)
        rows += good
        found += [{"code": "line", "where": e.where, "what": e.what + _why(e), "hint": e.fix or ""} for e in bad]
    if as_json:
        _emit(ok=not found, papers=len(rows), excluded=len(load.excluded()), problems=found)
    elif found:
        click.echo(table(["where", "problem"], [(p["where"], p["what"]) for p in found]))
    else:
        click.echo(f"{len(rows)} papers and {len(load.excluded())} exclusions: no problem")
    if found:
        ctx.exit(4)


@corpus.command(epilog=_example("add --file paper.json --to corpus.jsonl", "add --file paper.json --set year=2026 --dry-run"))
@click.option("--file", "source", type=click.Path(path_type=Path), help="A JSON object with the fields; - for stdin.")
@click.option("--set", "pairs", multiple=True, metavar="FIELD=VALUE", help="One field; overrides the file.")
@click.option(
    "--to", "target", type=click.Path(path_type=Path), default=Path("corpus.jsonl"), show_default=True, help="Your own file."
)
@click.option("--dry-run", is_flag=True, help="Check and print the line; write nothing.")
@json_option
def add(source: Path | None, pairs: tuple[str, ...], target: Path, dry_run: bool, as_json: bool) -> None:
    """Add a paper to your own file, checked.

    The record is checked against the vocabulary and against what is already there; `--with FILE` then reads it.
    """
    from counterpoint.lab.papers import load

    if source is None and not pairs:
        raise InputError("nothing to add", fix="give --file RECORD.json or --set FIELD=VALUE")
    where = str(source) if source is not None else "--set"
    raw = _record(source) | _pairs(pairs)
    paper = load.as_paper(raw, where=where)
    count = load.add(paper, target, dry_run=dry_run)
    for left_out in load.excluded():
        if paper.arxiv_id is not None and left_out.identifier == f"arXiv:{paper.arxiv_id}":
            note(f"the survey left this paper out as {left_out.record_id}: {left_out.exclusion_reason}")
    if as_json:
        _emit(added=not dry_run, file=str(target), count=count, paper=_dict(paper))
    elif dry_run:
        click.echo(load.line(paper))
        note(f"would add {paper.key} to {target}; nothing was written")
    else:
        click.echo(f"added {paper.key} to {target} (papers in it: {count})")


def _record(source: Path | None) -> dict[str, Any]:
    if source is None:
        return {}
    data = sys.stdin.buffer.read() if str(source) == "-" else read_plain(source)
    return load.decode_object(data, where=str(source))


def _pairs(pairs: tuple[str, ...]) -> dict[str, Any]:
    raw: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InputError(f"not FIELD=VALUE: {pair!r}", where="--set", fix="as in --set year=2026")
        if name in raw:
            raise InputError(f"field {name!r} is set twice", where="--set", fix="set it once")
        raw[name] = int(value) if name == "year" and value.isascii() and value.isdigit() else value
    return raw


@corpus.command(epilog=_example("problems", "problems P12 --json"))
@click.argument("ids", nargs=-1, metavar="[P1 ...]")
@json_option
def problems(ids: tuple[str, ...], as_json: bool) -> None:
    """The survey's fifteen open problems: what is measured about each, by which command, and what stays open."""
    from dataclasses import asdict

    from counterpoint.lab.papers.problems import PROBLEMS

    known = {p.id: p for p in PROBLEMS}
    for id_ in ids:
        if id_.upper() not in known:
            raise NotFound(f"no problem {id_!r}", fix=did_you_mean(id_.upper(), known))
    for one in [known[i.upper()] for i in ids] or PROBLEMS:
        if as_json:
            _emit(**asdict(one))
            continue
        click.echo(f"{one.id}  {one.name}")
        for label in ("measured", "command", "number", "open"):
            click.echo(_wrapped(f"  {label}", getattr(one, label) or "run the command"))
