"""Let a model judge traces by a rubric; compare it with people.

Always true: an estimate of the cost comes before the first call, and a model that costs something is asked only within a budget
or after a confirmation; every verdict is stored as it comes, so the same command continues after an interruption.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from counterpoint.app.terminal.options import (
    cap_option,
    caps_of,
    dry_run_option,
    model_options,
    model_settings,
    seed_option,
    yes_option,
)
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note, table
from counterpoint.app.terminal.progress import progress
from counterpoint.app.terminal.store import open_store, store_option
from counterpoint.app.words import plain_text
from counterpoint.display import counted, money, number
from counterpoint.errors import InputError
from counterpoint.lab.app.cli._options import price_of

if TYPE_CHECKING:
    from counterpoint.audits.agreement import Agreement
    from counterpoint.lab.app.api.judge import Judged, Plan

_CAPS = {"tokens": int, "context": int}


@click.command(
    epilog="\b\nExamples:\n  counterpoint notes judge in:golden --rubric verdict.toml --model local:smollm2-135m\n"
    "  counterpoint notes judge 'task:T1 finished' --rubric verdict.toml --model openai:NAME --base-url URL --cap tokens=200000\n"
    "  counterpoint notes rubric > verdict.toml\n\n"
    "Exit codes: 0 judged, 1 the model failed, 2 no model, no rubric or a wrong one, 3 no such trace, 5 no budget was set,\n"
    "130 interrupted (the same command continues)."
)
@click.argument("words", nargs=-1, metavar="[TRACE...|QUERY]")
@click.option("--rubric", "rubric_file", metavar="FILE", help="What to judge: TOML, or a text, which is on a scale of 1 to 5.")
@model_options("openai:NAME, local:NAME, scripted:FILE; or fake:SKILL, a test double.")
@cap_option(*_CAPS)
@seed_option("Another seed asks every question once more.")
@dry_run_option
@yes_option
@store_option
@json_option
def judge(words: tuple[str, ...], rubric_file: str | None, store: Path | None, as_json: bool, **how: Any) -> None:
    """Judge traces or events by a rubric with a model, keep the verdicts, and compare them with people's.

    Verdicts are notes: `counterpoint notes ls` lists them, with the rubric's hash and the model's version. The judge is compared
    with people's labels of the rubric's name (`counterpoint notes add TRACE --label verdict=right`). --cap takes tokens (to spend
    on model calls) and context (about how many tokens of a trace the model sees; 4,000). --model-set also takes concurrency
    (calls at once; 8) and price=IN,OUT (dollars per million tokens). --dry-run prints the estimate, with --json the prompts.
    """
    from counterpoint.lab.app.api.judge import judge_model, plan_of
    from counterpoint.lab.app.api.rubric import read_rubric

    if rubric_file is None:
        raise InputError("there is no rubric", where="--rubric", fix="counterpoint notes rubric > rubric.toml")
    rubric, caps = read_rubric(rubric_file), caps_of(how["caps"], _CAPS)
    if how["model_name"] is None:
        fix = "openai:NAME with --base-url URL, local:NAME (counterpoint models) or scripted:FILE; fake:SKILL is a test double"
        raise InputError("no model is named, and there is no default judge", where="--model", fix=fix)
    settings = model_settings(how["base_url"], how["model_pairs"])
    at_once, price = _at_once(settings.pop("concurrency", 8)), settings.pop("price", None)
    with open_store(store) as opened:
        model = judge_model(how["model_name"], rubric, opened, **settings)
        traces = _traces(words)
        plan = plan_of(opened, traces, rubric, model, context=_context(caps), seed=how["seed"])
        _print_plan(plan, None if price is None else price_of(price), as_json=as_json, is_dry=how["is_dry"])
        if how["is_dry"]:
            return None
        budget = _budget(plan, caps.get("tokens"), yes=how["yes"])
        result = _ask(opened, plan, traces, budget, at_once, as_json=as_json)
    return _print(result, as_json=as_json)


def _at_once(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise InputError(f"concurrency is {value!r}", where="--model-set", fix="a whole number above 0")
    return value


def _context(caps: Mapping[str, int]) -> int:
    context = caps.get("context", 4_000)
    if context < 200:
        raise InputError(f"context is {context}", where="--cap", fix="200 or more")
    return context


def _traces(words: tuple[str, ...]) -> Any:
    """One query, or names one by one; no words select all finished traces."""
    if not words:
        return "finished"
    return " ".join(words) if any(sign in "".join(words) for sign in ":<>=") else list(words)


def _print_plan(plan: Plan, price: tuple[float, float] | None, *, as_json: bool, is_dry: bool) -> None:
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


def _budget(plan: Plan, budget: int | None, *, yes: bool) -> int | None:
    """The budget; without one, a person at a terminal may confirm the estimate."""
    from counterpoint.lab.app.api.judge import check_budget

    if budget is None and plan.questions and not plan.is_free and (yes or (sys.stdin.isatty() and sys.stderr.isatty())):
        if not yes:
            click.confirm("Ask?", abort=True, err=True)
        return plan.tokens
    check_budget(plan, budget)
    return budget


def _ask(opened: Any, plan: Plan, traces: Any, budget: int | None, at_once: int, *, as_json: bool) -> Judged:
    from counterpoint.lab.app.api.judge import run

    try:
        with progress("judging", len(plan.questions), quiet=as_json) as bar:
            return asyncio.run(run(opened, plan, traces, budget_tokens=budget, at_once=at_once, tell=bar.at))
    except (KeyboardInterrupt, asyncio.CancelledError):
        note("interrupted; verdicts are kept, and the same command continues")
        raise KeyboardInterrupt from None


def _print(found: Judged, *, as_json: bool) -> None:
    if as_json:
        for one in found.rows:
            emit({"schema": SCHEMA_VERSION, "event": "verdict", **msgspec.to_builtins(one)})
        numbers = {name: getattr(found, name) for name in ("asked", "tokens", "left", "unread")}
        agree = {name: msgspec.to_builtins(getattr(found, name)) for name in ("agreement", "people")}
        about = {"model": found.model, "rubric": found.rubric.name, "rubric_hash": found.rubric.hash}
        counts = {"verdicts": len(found.rows), **numbers, "failures": dict(found.failures)}
        emit({"schema": SCHEMA_VERSION, "event": "judged", **about, **counts, **agree})
        return
    click.echo(_counts(found))
    if found.agreement is None and found.people is not None:
        note("people disagree on everything that was judged here, so the judge cannot be compared with them")
    elif found.agreement is None:
        note(f"no person judged these under {found.rubric.name!r}: counterpoint notes add TRACE --label {found.rubric.name}=...")
    else:
        click.echo("\n" + _agreement(f"{found.model} and people", found.agreement))
    if found.people is not None:
        click.echo("\n" + _agreement("people and people", found.people))
    if found.unread:
        note(f"{counted(found.unread, 'answer')} had no verdict and are not kept; another --seed asks again")
    if found.failures:
        note("failed calls: " + ", ".join(f"{n:,} {plain_text(kind)}" for kind, n in found.failures.items()))
    if found.left:
        note(f"{found.left:,} are left: the same command continues")


def _counts(found: Judged) -> str:
    scale = found.rubric.scale
    verdicts = Counter(one.label if scale is None else number(one.score) for one in found.rows)
    count = len(found.rows)
    rows = [(name, verdicts[name], f"{verdicts[name] / count:.0%}" if count else "-") for name in found.rubric.verdicts]
    double = ", a test double: drawn at random where no person judged" if found.model.partition(":")[0] == "fake" else ""
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
