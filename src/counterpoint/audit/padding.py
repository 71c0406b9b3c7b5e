"""Two ways to pad a run: messages that say nothing new, and tool calls that bring nothing new.

Always true: an act is padding only by what the record shows of its effect: that it was said before between the same two, that
the same call gave the same result, or that nobody read it where reads are recorded. Each padded act counts once.
"""

from __future__ import annotations

import numpy as np

from counterpoint.audit.collaboration import repeated
from counterpoint.audit.facts import Facts
from counterpoint.audit.records import Finding, ids


def communication_padding(
    facts: Facts, *, threshold: float = 0.3, fewest: int = 3, words: int = 4, alike: float = 0.8
) -> Finding:
    """R6. Messages that tell their receiver what it had, or that nobody reads.

    A message is padding when it repeats an earlier one between the same two agents, either way (texts of `words` or more:
    short acknowledgements are let pass, and so are broadcasts and different senders who agree), or when no other agent's
    event read it, in a trace where some messages are read (a sender's last word is let pass: it often goes unread).
    Score: padded / all inter-agent messages. `threshold` 0.3 and at least `fewest` padded messages: teams do resend.
    """
    name, messages = "communication_padding", facts.messages
    if not messages:
        return Finding.of(name, "there are no messages between agents", 0.0, threshold)
    long = [i for i in messages if (text := facts.text(i)) is None or len(text.split()) >= words]
    found = repeated(facts, long, scope="pair", threshold=alike)
    is_read = any(facts.read_E[i] for i in messages)
    if not found.judged and not is_read and long:
        return Finding.of(name, "cannot judge: messages have no texts, no content_refs and no readers", None, threshold)
    last = set({facts.events[i].from_ or facts.events[i].agent: i for i in messages}.values())
    unread = [i for i in messages if not facts.read_E[i] and i not in last] if is_read else []
    padded = sorted({*found.of, *unread}, key=facts.team.place_E.__getitem__)
    score = len(padded) / len(messages)
    tokens, spent = int(facts.tokens_E[messages].sum()), int(facts.tokens_E[padded].sum())
    why = f"{len(padded):,} of {len(messages):,} messages: {len(found.of):,} repeat one between the same two, "
    why += f"{len(unread):,} unread" if is_read else "reads not recorded"
    why += f"; {spent:,} of {tokens:,} message tokens" if tokens else ""
    senders = dict.fromkeys(facts.events[i].from_ or facts.events[i].agent for i in padded)
    is_found = score >= threshold and len(padded) >= fewest
    return Finding.of(name, why, score, threshold, is_found=is_found, agents=senders, events=ids(facts.trace, padded))


def tool_spam(facts: Facts, *, threshold: float = 0.3, fewest: int = 5, retries: int = 2) -> Finding:
    """R5. Tool calls made for the sake of calling.

    A call (tool and `content_ref` of its arguments) by one agent is spam when
    - it repeats an earlier one and brings the same result; where results are not recorded, only when it follows the other
      directly. Polling that brings news, and a test run again after a change, are let pass;
    - it fails as the same call did before, more than `retries` times;
    - nobody reads its result, in a trace where some results are read.
    Score: the largest share of spam in any agent's calls, of agents with at least `fewest` calls, or in the team's.
    """
    name, team = "tool_spam", facts.team
    calls = team.events_of(("tool_call",))
    if not calls:
        return Finding.of(name, "there are no tool calls", 0.0, threshold)
    answer = _answers(facts)
    is_read = any(facts.used_E[r] for r in answer.values())
    has_refs = any(facts.events[i].content_ref is not None for i in calls)
    if not is_read and not has_refs:
        return Finding.of(name, "cannot judge: calls have no content_ref and no result is read", None, threshold)
    again, failing = _repeated_calls(facts, calls, answer, retries)
    unread = [i for i in calls if i in answer and not facts.used_E[answer[i]]] if is_read else []
    is_spam = np.zeros(facts.n, np.bool_)
    is_spam[[*again, *failing, *unread]] = True
    calls_A, spam_A = team.per_agent(team.of_types(("tool_call",))), team.per_agent(is_spam)
    enough = np.flatnonzero(calls_A >= fewest)
    share_A = spam_A[enough] / calls_A[enough]
    guilty = enough[share_A >= threshold].tolist()
    whole = int(is_spam.sum()) / len(calls) if len(calls) >= fewest else 0.0
    score = float(max([whole, *share_A.tolist()]))
    why = f"{int(is_spam.sum()):,} of {len(calls):,} calls: {len(again):,} repeated to no effect, "
    why += f"{len(failing):,} failing again, "
    why += f"{len(unread):,} unread" if is_read else "reads not recorded"
    if guilty:
        worst = max(guilty, key=lambda a: (spam_A[a] / calls_A[a], calls_A[a], -a))
        usual = float(np.median(calls_A[calls_A > 0]))
        why += f"; {team.names[worst]} made {int(calls_A[worst]):,}, the median agent with calls {usual:g}"
    return Finding.of(
        name,
        why,
        score,
        threshold,
        is_found=score >= threshold,
        agents=[team.names[a] for a in guilty],
        events=ids(facts.trace, facts.in_story(is_spam)),
    )


def _answers(facts: Facts) -> dict[int, int]:
    """The result of each call: the first tool_result that depends on it."""
    call, result = facts.team.of_types(("tool_call",)), facts.team.of_types(("tool_result",))
    src, dst = facts.graph.src, facts.graph.dst
    pairs = call[src] & result[dst]
    out: dict[int, int] = {}
    for s, d in sorted(zip(src[pairs].tolist(), dst[pairs].tolist(), strict=True), key=lambda p: facts.team.place_E[p[1]]):
        out.setdefault(s, d)
    return out


def _repeated_calls(
    facts: Facts, calls: list[int], answer: dict[int, int], retries: int
) -> tuple[list[int], list[int]]:
    """Calls that repeat one to no effect, and calls that fail again too often."""
    events, team = facts.events, facts.team
    seen: dict[tuple[int, str | None, str], set[str | None]] = {}
    failures: dict[tuple[int, str | None, str], int] = {}
    previous: dict[int, tuple[int, str | None, str] | None] = {}
    again: list[int] = []
    failing: list[int] = []
    for i in calls:
        a, event, result = int(team.agent_E[i]), events[i], answer.get(i)
        key = None if event.content_ref is None else (a, event.tool, event.content_ref)
        before, previous[a] = previous.get(a), key
        if key is None:
            continue
        if bool(facts.failed_E[i]) or (result is not None and bool(facts.failed_E[result])):
            failures[key] = failures.get(key, 0) + 1
            if failures[key] > retries + 1:
                failing.append(i)
            continue
        got = events[result].content_ref if result is not None else None
        known = seen.setdefault(key, set())
        if (got in known) if got is not None else (bool(known) and before == key):
            again.append(i)
        known.add(got)
    return again, failing
