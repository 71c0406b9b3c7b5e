"""Let a model judge traces by a rubric; compare it with people.

Always true: what it may cost is said before the first call, and a model that costs something is asked only within a budget or
when somebody says yes; every verdict is stored as it comes, so that the same command goes on after an interruption.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note, table
from counterpoint.app.terminal.progress import progress
from counterpoint.app.terminal.store import open_store, store_option
from counterpoint.app.words import plain_text
from counterpoint.display import counted, money, number
from counterpoint.errors import InputError

if TYPE_CHECKING:
    from counterpoint.audits.agreement import Agreement
    from counterpoint.lab.app.api.judge import Judged, Plan

_EXAMPLE = """name = "verdict"
labels = ["right", "wrong"]        # or: scale = [1, 5]
unit = "trace"                     # or: "event", with types = ["return"]
text = \"\"\"
Is the final answer supported by what the team read and did?
right: every claim of it is; wrong: any claim is not, or it does not answer.
\"\"\"
"""


@click.command(
    epilog="\b\nExamples:\n  counterpoint judge in:golden --rubric verdict.toml --model local:smollm2-135m\n"
    "  counterpoint judge 'task:T1 finished' --rubric verdict.toml --model openai:NAME --base-url URL --budget-tokens 200000\n"
    "  counterpoint judge --rubric-example > verdict.toml\n\n"
    "Exit codes: 0 judged, 1 the model failed, 2 no model, no rubric or a wrong one, 3 no such trace, 5 no budget was given,\n"
    "130 interrupted (the same command goes on)."
)
@click.argument("words", nargs=-1, metavar="[TRACE...|QUERY]")
@click.option("--rubric", "rubric_file", metavar="FILE", help="What to judge: TOML, or a text, which is on a scale of 1 to 5.")
@click.option("--rubric-example", "is_example", is_flag=True, help="Print a rubric to begin from.")
@click.option("--model", metavar="MODEL", help="openai:NAME, local:NAME, scripted:FILE; or fake:SKILL, a test double.")
@click.option("--base-url", metavar="URL", help="The endpoint, for --model openai:NAME.")
@click.option("--key-env", metavar="NAME", help="The variable that holds the endpoint's key (default OPENAI_API_KEY).")
@click.option("--price", metavar="IN,OUT", help="Dollars per million tokens read and written, for the estimate.")
@click.option("--budget-tokens", type=click.IntRange(min=0), metavar="N", help="Spend at most N tokens on model calls.")
@click.option(
    "--context",
    type=click.IntRange(min=200),
    default=4_000,
    show_default=True,
    help="About how many tokens of a trace the model sees.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Another seed asks everything once more.")
@click.option("--concurrency", "at_once", type=click.IntRange(min=1), default=8, show_default=True, help="Calls at once.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Say what would be asked and its cost; with --json the prompts too.")
@click.option("--yes", is_flag=True, help="Do not ask before a model that costs something is asked.")
@store_option
@json_option
def judge(
    words: tuple[str, ...], rubric_file: str | None, is_example: bool, store: Path | None, as_json: bool, **how: Any
) -> None:
    """Judge traces or events by a rubric with a model, keep the verdicts, and compare them with people's.

    Verdicts are annotations: `counterpoint annotate` lists them, with the rubric's hash and the model's version. What people said
    under the rubric's name (`counterpoint annotate TRACE --label verdict=right`) is what the judge is held against.
    """
    from counterpoint.lab.app.api.judge import judge_model, plan_of
    from counterpoint.lab.app.api.rubric import read_rubric

    if is_example:
        return emit({"rubric": _EXAMPLE}) if as_json else click.echo(_EXAMPLE, nl=False)
    if rubric_file is None:
        raise InputError("there is no rubric", where="--rubric", fix="counterpoint judge --rubric-example > rubric.toml")
    rubric, price = read_rubric(rubric_file), _price(how["price"])
    if how["model"] is None:
        fix = "openai:NAME with --base-url URL, local:NAME (counterpoint models) or scripted:FILE; fake:SKILL is a test double"
        raise InputError("no model is named, and there is no judge by default", where="--model", fix=fix)
    with open_store(store) as opened:
        model = judge_model(how["model"], rubric, opened, base_url=how["base_url"], key_env=how["key_env"])
        traces = _traces(words)
        plan = plan_of(opened, traces, rubric, model, context=how["context"], seed=how["seed"])
        _say(plan, price, as_json=as_json, is_dry=how["is_dry"])
        if how["is_dry"]:
            return None
        budget = _allowed(plan, how["budget_tokens"], yes=how["yes"])
        found = _asked(opened, plan, traces, budget, how["at_once"], as_json=as_json)
    return _show(found, as_json=as_json)


def _traces(words: tuple[str, ...]) -> Any:
    """One query, or names one by one; nothing stands for all finished traces."""
    if not words:
        return "finished"
    return " ".join(words) if any(sign in "".join(words) for sign in ":<>=") else list(words)


def _price(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        first, second = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(
            f"{text!r} is not a price", where="--price", fix="dollars per million tokens in and out: 0.5,2"
        ) from None
    return first, second


def _say(plan: Plan, price: tuple[float, float] | None, *, as_json: bool, is_dry: bool) -> None:
    dollars = None if plan.is_free and price is None else plan.dollars(price)
    if as_json:
        about: dict[str, Any] = {"questions": len(plan.questions), "known": plan.known, "tokens": plan.tokens, "dollars": dollars}
        about |= {"model": plan.model.name, "rubric": plan.rubric.name, "rubric_hash": plan.rubric.hash}
        if is_dry:
            shown = [{"trace_id": q.trace_id, "event": q.event, "prompt": q.call.messages[-1].text} for q in plan.questions]
            emit({"schema": SCHEMA_VERSION, "event": "plan", **about, "prompts": shown})
        return
    cost = "" if dollars is None else f", {money(dollars)} at most"
    before = f"; {plan.known:,} were answered before" if plan.known else ""
    asks = f"{plan.model.name} is asked {counted(len(plan.questions), 'question')}, up to {plan.tokens:,} tokens{cost}"
    note(plain_text(asks + before))


def _allowed(plan: Plan, budget: int | None, *, yes: bool) -> int | None:
    """The budget; where none was given, a person at a terminal may say yes to the estimate."""
    from counterpoint.lab.app.api.judge import check_budget

    if budget is None and plan.questions and not plan.is_free and (yes or (sys.stdin.isatty() and sys.stderr.isatty())):
        if not yes:
            click.confirm("Ask?", abort=True, err=True)
        return plan.tokens
    check_budget(plan, budget)
    return budget


def _asked(opened: Any, plan: Plan, traces: Any, budget: int | None, at_once: int, *, as_json: bool) -> Judged:
    from counterpoint.lab.app.api.judge import run

    try:
        with progress("judging", len(plan.questions), quiet=as_json) as bar:
            return asyncio.run(run(opened, plan, traces, budget_tokens=budget, at_once=at_once, tell=bar.at))
    except (KeyboardInterrupt, asyncio.CancelledError):
        note("interrupted; what was judged is kept, and the same command goes on")
        raise KeyboardInterrupt from None


def _show(found: Judged, *, as_json: bool) -> None:
    if as_json:
        for one in found.rows:
            emit({"schema": SCHEMA_VERSION, "event": "verdict", **msgspec.to_builtins(one)})
        told = {name: getattr(found, name) for name in ("asked", "tokens", "left", "unread")}
        agree = {name: msgspec.to_builtins(getattr(found, name)) for name in ("agreement", "people")}
        about = {"model": found.model, "rubric": found.rubric.name, "rubric_hash": found.rubric.hash}
        counts = {"verdicts": len(found.rows), **told, "failures": dict(found.failures)}
        emit({"schema": SCHEMA_VERSION, "event": "judged", **about, **counts, **agree})
        return
    click.echo(_counts(found))
    if found.agreement is None and found.people is not None:
        note("people are split on all that was judged here, so that there is nothing to hold the judge against")
    elif found.agreement is None:
        note(f"no person judged these under {found.rubric.name!r}: counterpoint annotate TRACE --label {found.rubric.name}=...")
    else:
        click.echo("\n" + _agreement(f"{found.model} and people", found.agreement))
    if found.people is not None:
        click.echo("\n" + _agreement("people and people", found.people))
    if found.unread:
        note(f"{counted(found.unread, 'answer')} had no verdict and nothing is kept of them; another --seed asks again")
    if found.failures:
        note("failed calls: " + ", ".join(f"{n:,} {plain_text(kind)}" for kind, n in found.failures.items()))
    if found.left:
        note(f"{found.left:,} are left: the same command goes on")


def _counts(found: Judged) -> str:
    scale = found.rubric.scale
    said = Counter(one.label if scale is None else number(one.score) for one in found.rows)
    rows = [(name, said[name], f"{said[name] / len(found.rows):.0%}" if found.rows else "-") for name in found.rubric.verdicts]
    double = ", a test double: drawn at random where no person spoke" if found.model.partition(":")[0] == "fake" else ""
    head = plain_text(f"{found.rubric.name} by {found.model}{double}")
    return head + "\n" + table(("verdict", "count", "share"), rows, right=(1, 2))


def _agreement(title: str, found: Agreement) -> str:
    rows = [(f.name, number(f.value, 3), number(f.low, 3), number(f.high, 3)) for f in found.figures]
    head = f"{plain_text(title)}: {counted(found.things, 'thing')} judged by both"
    lines = [head, table(("agreement", "value", "95 % low", "high"), rows, right=(1, 2, 3))]
    if found.confusion:
        others = sorted({name for row in found.confusion.values() for name in row})
        cells = [(name, *(row.get(other, 0) for other in others)) for name, row in found.confusion.items()]
        lines.append(table(("first says \\ second says", *others), cells, right=range(1, len(others) + 1)))
    return "\n".join(lines)
