"""`cpt.credit` and `cpt.reward`: who earned it, and what is paid, by the name of a mechanism or a reward.

Always true: the mechanisms and rewards are those of the registry, run as they are; a trace is forked only where a mechanism needs
it or `replay` asks for it, and no endpoint is asked that is not named here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import counterpoint.registry as registry
from counterpoint.app.api.inputs import many_traces
from counterpoint.app.forks import free_replay, last_merge, named_model, own_replays, replay_for, replay_of
from counterpoint.errors import InputError, Refused
from counterpoint.trace.keys import REPLAY

if TYPE_CHECKING:
    from counterpoint.app.api.inputs import Source, StorePlace
    from counterpoint.credits.call_rows import CallRows
    from counterpoint.credits.fork_price import ForkPrice
    from counterpoint.credits.mechanism import Mechanism
    from counterpoint.trace import Trace
    from counterpoint.trace.rows import Credit, Signals


def credit(
    traces: Source,
    method: str | None = None,
    *,
    store: StorePlace = None,
    model: Any = None,
    base_url: str | None = None,
    key_env: str | None = None,
    allow: Sequence[str] = (),
    budget_tokens: int | None = None,
    team: Any = None,
    **options: Any,
) -> Credit:
    """Who earned the reward: credit per unit by any mechanism of `counterpoint credit --list`.

    Without a method the best one that is identified for these traces is chosen; `notes["chosen"]` says why. Where none is, the
    answer has no rows and says why; its table is what each agent cost and what became of its work.

    `options` are the mechanism's own. Mechanisms that compare with what might have been fork the trace by the world or the live
    team that made it: `replay=True` asks for it where a mechanism can do without, and an object with `fork` is used as it is.
    `model` (a name such as `openai:NAME`, or a model) answers changed calls of a live team; `team` is the function that ran a
    recorded team of your own, or its `FILE:FUNCTION`; `allow` names what may run in forks; forks that ask a model for more than
    `budget_tokens` are refused.

    >>> import counterpoint as cpt
    >>> trace = cpt.world("W1", vote_items=12).run("reference", [0], log=True).trace(0)
    >>> found = cpt.credit(trace, "ledger")
    >>> found.to_arrow().column_names
    ['trace_id', 'unit', 'unit_id', 'value', 'se']
    >>> abs(sum(row.value for row in found.rows) - trace.rewards["team"]) < 1e-9
    True
    """
    given = options.get("replay")
    many = many_traces(traces, store)
    if method is None:
        return chosen_credit(many, options)
    if given is not None and not isinstance(given, bool):
        return credit_of(method, many, options, replay=lambda trace: given)
    replay = forked_by(model=model, base_url=base_url, key_env=key_env, allow=allow, team=team)
    options = with_team(method, options, many, team)
    return credit_of(method, many, options, replay=replay, budget_tokens=budget_tokens)


def chosen_credit(traces: list[Trace], options: Mapping[str, Any] | None = None, unit: str | None = None) -> Credit:
    """The credit of the best mechanism that is identified for these traces, and has rows of `unit`; its notes say why.

    Where none is identified, and no unit below the agent was asked for, it is an `Uncredited`: cost and work, and no credit.
    """
    from counterpoint.app.contributions import Uncredited
    from counterpoint.credits.choice import NoMechanism, choose

    if options:
        raise InputError(f"option {next(iter(options))!r} belongs to a mechanism", fix="name the mechanism too")
    try:
        return choose(traces, replay=own_replays(traces, free_replay), merged=last_merge, unit=unit).credit
    except NoMechanism as error:
        if unit not in (None, "agent"):
            raise
        return Uncredited.of_traces(traces, error)


def forked_by(
    *, model: Any, base_url: str | None, key_env: str | None, allow: Sequence[str], team: Any = None
) -> Callable[[Trace], Any]:
    """How a trace is forked: with the model, the team and the consent that were named, else by what the trace itself allows."""
    if model is None and not allow and team is None:
        return replay_of

    def replay(trace: Trace) -> Any:
        answers = model
        if isinstance(model, str):
            about = {"model_name": model, "base_url": base_url, "key_env": key_env, "allow": allow, "team": team}
            answers = named_model(trace, about)
        return replay_for(trace, model=answers, allow=allow, team=team)

    return replay


def rows(
    traces: Source,
    credit: Credit | str = "group_relative",
    *,
    store: StorePlace = None,
    given: Mapping[str, Any] | None = None,
    **options: Any,
) -> CallRows:
    """Training rows: one per model call, with the advantage that a credit of any unit gives it.

    `credit` is the name of a mechanism, with its `options`, or a credit that was computed of these very traces; options by names
    that are taken here go into `given`, as in `rows(traces, "token_spread", given={"credit": "ledger"})`. Credit of an
    effect goes to the call that caused it; what no call carries is in `placement.unplaced` with its amount.

    >>> import counterpoint as cpt
    >>> trace = cpt.world("W1", vote_items=12).run("reference", [0], log=True).trace(0)
    >>> found = cpt.rows(trace, "uniform")
    >>> len(found), sum(u.value for u in found.placement.unplaced) == trace.rewards["team"]  # a simulator calls no model
    (0, True)
    """
    from counterpoint.credits.call_rows import call_rows

    many = many_traces(traces, store)
    told = {**options, **(given or {})}
    found = credit_of(credit, many, told, replay=replay_of) if isinstance(credit, str) else credit
    return call_rows(many, found)


def reward(traces: Source, kind: str = "team_outcome", *, store: StorePlace = None, **options: Any) -> Signals:
    """What is paid, by any reward of `counterpoint.reward`: R1 `team_outcome` to R8 `hybrid`, or "package.module:object".

    `options` are the reward's own, such as a judge or a price. What a reward cannot judge has no row.

    >>> import counterpoint as cpt
    >>> trace = cpt.world("W1", vote_items=12).run("reference", [0], log=True).trace(0)
    >>> paid = cpt.reward(trace, "tool_use")
    >>> set(paid.channels), len(paid) > 0
    ({'R5'}, True)
    """
    from counterpoint.rewards.reward import Reward

    found = registry.get("reward", kind if ":" in kind else kind.replace("-", "_"))
    if not isinstance(found, Reward):
        raise InputError(f"is a {type(found).__name__}, not a reward", where=kind, fix="name one of counterpoint.rewards.terms")
    return found.many(many_traces(traces, store), **options)


# -- Credit of traces by the name of a mechanism, with the replay that the trace's world gives ------------------------
# For the command and the page alike.
#
# Always true: the mechanisms are those of the registry, run as they are; nothing is forked that was not asked for by name. What a
# mechanism that is not shipped gives is checked for its shape, and what fails in it is said to be its own.


def mechanism(name: str) -> Mechanism:
    """The mechanism of that name; dashes will do for underscores."""
    from counterpoint.credits.mechanism import Mechanism

    found = registry.get("mechanism", name if ":" in name else name.replace("-", "_"))
    if not isinstance(found, Mechanism):
        raise InputError(f"is a {type(found).__name__}, not a mechanism", where=name, fix="see counterpoint credit --list")
    return found


def credit_of(
    name: str,
    traces: list[Trace],
    options: Mapping[str, Any] | None = None,
    *,
    replay: Callable[[Trace], Any] = replay_of,
    budget_tokens: int | None = None,
) -> Credit:
    """The credit of these traces; each is forked by the world or team that made it, where the mechanism can use that."""
    chosen, given = mechanism(name), dict(options or {})
    if is_forking(chosen, given):
        is_limited = budget_tokens is not None and any(map(asks_model, traces))
        if is_limited and budget_tokens is not None:
            _check_price(name, traces, given, budget_tokens)
        given["replay"] = own_replays(traces, replay)
        if given["replay"] is None and all(REPLAY in trace.meta for trace in traces):
            replay_for(traces[0])  # says what these lack
        if is_limited and given["replay"] is not None:
            from counterpoint.credits.fork_price import BudgetedReplay

            given["replay"] = BudgetedReplay(given["replay"], budget_tokens or 0, asks_model)
    else:
        given.pop("replay", None)
    if "credit" in chosen.options and isinstance(given.get("credit"), str):  # what is spread, by its name
        given["credit"] = credit_of(given["credit"], traces, replay=replay, budget_tokens=budget_tokens)
    if "merged" in chosen.options:
        given.setdefault("merged", last_merge)
    if ":" in name:
        from counterpoint.credits.foreign import foreign_credit

        return foreign_credit(name, chosen, traces, given)
    return chosen(traces, **given)


def is_forking(chosen: Mechanism, options: Mapping[str, Any]) -> bool:
    """Whether a mechanism forks: where it must, or where it can and the option replay=true asks for it, for forks cost time."""
    return bool("replay" in chosen.needs or options.get("replay", False)) and "replay" in chosen.options


def with_team(name: str | None, options: Mapping[str, Any], traces: Sequence[Trace], team: Any) -> dict[str, Any]:
    """The options of a mechanism where the function that runs the team was named: one that can fork does, unless told not to."""
    can_fork = team is not None and name is not None and "replay" in mechanism(name).options
    return {**({"replay": True} if can_fork and all(REPLAY in trace.meta for trace in traces) else {}), **options}


def asks_model(trace: Trace) -> bool:
    """Whether a fork of this trace may ask a model that costs something: it is the recording of a team, and not of our fakes."""
    team = trace.meta.get("team")
    return REPLAY in trace.meta or (isinstance(team, dict) and str(team.get("model", "")).partition(":")[0] != "fake")


def fork_price(name: str, traces: list[Trace], options: Mapping[str, Any] | None = None) -> ForkPrice | None:
    """What the forks of a mechanism would cost, without making any; None for one that makes none."""
    from counterpoint.credits.fork_price import price_of

    chosen, given = mechanism(name), dict(options or {})
    if not is_forking(chosen, given):
        return None
    return price_of(chosen, traces, given, asks_model=asks_model)


def _check_price(name: str, traces: list[Trace], options: dict[str, Any], budget: int) -> None:
    """Refuse what may cost more than the budget, before anything is asked."""
    price = fork_price(name, traces, {**options, "replay": True})
    if price is not None and price.tokens > budget:
        what = f"{name} would make {price.forks:,} forks and ask a model for up to {price.tokens:,} tokens"
        fix = f"--cap tokens={price.tokens}, or a mechanism that needs no fork"
        raise Refused(what, where=traces[0].trace_id, why=f"the budget is {budget:,}", fix=fix)
