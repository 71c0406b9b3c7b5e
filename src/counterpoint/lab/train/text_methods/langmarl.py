"""LangMARL: a critic writes what each role did well or badly, the advice is merged, and the roles' prompts are rewritten.

    pi_k <- LLM_opt(pi_k, LLM_agg({gradient of k}))        one evaluation per trace, one gradient per trace and role

Always true: a role that the critic's reply leaves out gets the whole reply. No gradient is an empty text and no call; one is
taken as it is; several are merged by one call, or put together where that call fails. At most 1,500 tokens of the critic, 400
of a gradient, 600 of a merge, 1,024 of a prompt, as in the released code.

LangMARL arXiv 2604.00722; official code. Departures: a role, not a single agent, has a prompt; prompts of this package's
harness.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from counterpoint.lab.train.text_method import (
    Asker,
    Teams,
    TextLog,
    TextSettings,
    json_in,
    prompts_of,
    reviewer_of,
    row_of,
    score_of,
    trace_lines,
)

CRITIC, GRADIENT, MERGE, POLICY = 1500, 400, 600, 1024
_CRITIC = "You read the record of a team and judge each of its members. Answer with one JSON object: name to evaluation."
_GRADIENT = "You turn an evaluation into advice: what this member should do otherwise. A few sentences."
_MERGE = "You merge pieces of advice to one member: keep what is repeated, resolve what contradicts."
_REWRITE = "You rewrite the instructions of a team member so that they follow the advice. Answer with the instructions alone."


def parsed_credit(reply: str | None, names: Sequence[str]) -> dict[str, str]:
    """Name to its evaluation; who is left out gets the whole reply, and nobody gets anything from no reply."""
    if reply is None:
        return {}
    found = json_in(reply) or {}
    return {n: str(found[n]).strip() if str(found.get(n, "")).strip() else reply for n in names}


async def evaluate_roles(asker: Asker, record: str, names: Sequence[str], *, split: bool = True) -> dict[str, str]:
    """The critic's evaluation of each name; with `split` False one for all (central_global)."""
    reply = await asker.ask(_CRITIC, f"Names: {', '.join(names)}\nRecord:\n{record}", most=CRITIC)
    if not split:
        return {} if reply is None else dict.fromkeys(names, reply)
    return parsed_credit(reply, names)


async def merge_advice(asker: Asker, gradients: Sequence[str]) -> str:
    """One piece of advice of several: 0 and 1 gradients need no call."""
    if len(gradients) < 2:
        return gradients[0] if gradients else ""
    joined = "\n".join(f"- {g}" for g in gradients)
    return await asker.ask(_MERGE, joined, most=MERGE) or joined


async def rewritten(asker: Asker, role: str, prompt: str, advice: str) -> str:
    """The prompt after the advice; the same where there is none, or the call fails."""
    if not advice:
        return prompt
    text = f"Role: {role}\nAdvice:\n{advice}\nText to rewrite:\n{prompt}"
    return (await asker.ask(_REWRITE, text, most=POLICY)) or prompt


async def learn_once(asker: Asker, prompts: Mapping[str, str], records: Sequence[tuple[str, Sequence[str]]]) -> dict[str, str]:
    """The prompts after one iteration: `records` are texts of traces, each with the roles that took part."""
    gradients: dict[str, list[str]] = {}
    for record, roles in records:
        for role, said in (await evaluate_roles(asker, record, roles)).items():
            advice = await asker.ask(_GRADIENT, f"Role: {role}\nEvaluation:\n{said}", most=GRADIENT)
            if advice is not None:
                gradients.setdefault(role, []).append(advice)
    out = dict(prompts)
    for role in prompts:
        out[role] = await rewritten(asker, role, prompts[role], await merge_advice(asker, gradients.get(role, [])))
    return out


async def run(settings: TextSettings) -> TextLog:
    """Play, judge, rewrite, as often as the settings say; the last row of the log is a last look without learning."""
    teams, asker = Teams(settings), Asker(reviewer_of(settings), settings.seed)
    log = TextLog(prompts=prompts_of())
    try:
        for iteration in range(settings.iterations + 1):
            seeds = range(settings.seed + iteration * settings.batch, settings.seed + (iteration + 1) * settings.batch)
            traces = [await teams.play(settings.spec(seed), log.prompts) for seed in seeds]
            changed: dict[str, Any] = {}
            if iteration < settings.iterations:
                roles = [list(dict.fromkeys(e.role for e in t.events if e.role in log.prompts)) for t in traces]
                records = [(trace_lines(t, tokens=CRITIC), own) for t, own in zip(traces, roles, strict=True)]
                after = await learn_once(asker, log.prompts, records)
                changed["rewritten"] = [role for role in after if after[role] != log.prompts[role]]
                log.prompts = after
            log.rows.append(row_of(iteration, [score_of(t) for t in traces], asker, teams, **changed))
    finally:
        await teams.close()
        await asker.model.close()
    return log
