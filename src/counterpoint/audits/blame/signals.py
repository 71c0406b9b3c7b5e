"""What speaks for or against a step: the signals of every candidate as one table, each with a name and its words.

Always true: every signal is a number between -1 and 1 that does not grow with the run's length; a signal that a trace cannot give
(no texts, no tool results, no other runs) is 0 for all steps. The time is linear in the words of the trace.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b

import numpy as np

from counterpoint.audits.blame.steps import Floats, Mask, Steps

ROLES = {
    "is_checker": re.compile(r"verif|valid|check|critic|review|judge|test"),
    "is_lead": re.compile(r"orchestr|manager|planner|\blead\b|supervis|coordinat|resolver"),
    "is_coder": re.compile(r"cod|program|python|execut|engineer|debug|data"),
    "is_reader": re.compile(r"surf|web|search|brows|file|retriev|research"),
}
"""What an agent's role or name says it does."""
_WORDS = {
    "assumes": (
        r"assum\w*|hypothetic\w*|placeholder\w*|simulat\w*|mock\w*|suppose\w*|for example"
        r"|dummy|sample data|illustrat\w*|let'?s say|presum\w*|manually"
    ),
    "recalls": (
        r"i recall|general knowledge|known (?:data|information|facts?)|historical(?:ly)?"
        r"|typically|usually|commonly|based on (?:my|our|the known)"
    ),
    "hedges": r"likely|probably|perhaps|might|may be|approximat\w*|around|roughly|estimat\w*|unclear|should be",
    "gives_up": (
        r"unable|cannot|can't|could ?n[o']t|fail(?:ed|s|ure)?|sorry|not (?:found|available|possible|accessible)"
        r"|no results?|unfortunately|error"
    ),
    "confirms": (
        r"verif(?:y|ied|ies)|confirm\w*|correct(?:ly)?|accura\w*|agree[ds]?"
        r"|consistent|validated|matches|looks good|approved?|accept"
    ),
    "objects": (
        r"incorrect\w*|wrong\w*|mistake\w*|actually|inconsisten\w*|mismatch\w*|does ?n[o']t match"
        r"|reject\w*|re-?check\w*|discrepanc\w*|contradict\w*"
    ),
    "plans": r"plan\w*|step \d|steps?|first(?:ly)?|then|next|finally|proceed\w*|approach|strategy",
    "changes_plan": (
        r"instead|alternative\w*|another (?:way|approach|method)|let'?s try|different (?:way|approach|method)"
        r"|revis\w*|retry|try again|new plan|switch\w*"
    ),
    "concludes": (
        r"therefore|thus|hence|final(?:ly)? answer|the answer|result is"
        r"|conclu\w*|in summary|total(?:s|ing)? (?:is|of)|stop"
    ),
    "ends": r"terminate|task (?:is )?(?:complete|solved|done)|stop|done|finished|satisfied",
    "asks": r"could you|please|can (?:you|someone)|would you|need(?:s|ed)? to|should",
    "calculates": r"calculat\w*|comput\w*|sum|count\w*|multipl\w*|divid\w*|average|total",
}
_PATTERNS = {name: re.compile(rf"\b(?:{words})\b") for name, words in _WORDS.items()}
_BRIEF = re.compile(r"\b(?:from|by) (?:your|our|the) manager\b|^#+ *(?:general )?task\b", re.I | re.M)
_PAGE = re.compile(r"^\s*(?:address|url): |^title: |viewport|^\s*search results? ?\d", re.I | re.M)
_CODE = re.compile(r"```|^\s*(?:import|def|from|SELECT|exec)\b", re.M)
BINS = 96
"""Bins of the hashed words."""
_SOME = 6


def signals(steps: Steps) -> dict[str, Floats]:
    """Every signal by name, one number per candidate."""
    n = len(steps)
    if n == 0:
        return {}
    out: dict[str, Floats] = {}
    for part in (_place, _agents, _tools, _graph, _manner, _claims, _overlaps):
        out |= part(steps)
    out |= _replies(steps, out)
    out |= _turns(steps, out)
    return {name: np.clip(np.asarray(column, np.float64), -1.0, 1.0) for name, column in out.items()}


def _place(steps: Steps) -> dict[str, Floats]:
    """Where in the run, counted in candidates; the first places by themselves."""
    n = len(steps)
    k = np.arange(n)
    out = {f"place_{p}": (k == p).astype(np.float64) for p in range(5)}
    out |= {f"place_last_{p}": (n - 1 - k == p).astype(np.float64) for p in range(3)}
    out["late"] = k / max(n - 1, 1)
    out["early"] = 1.0 / (1.0 + k)
    out["middle"] = 1.0 - np.abs(2.0 * out["late"] - 1.0)
    return out


def _agents(steps: Steps) -> dict[str, Floats]:
    """Who: its role by its name, whether it is its first step, how much it says."""
    agents = steps.agents
    n, count = len(agents), Counter(agents)
    order = {a: place for place, a in enumerate(dict.fromkeys(agents))}
    turns: Counter[int] = Counter()
    first, nth = np.zeros(n), np.zeros(n)
    for k, agent in enumerate(agents):
        first[k], nth[k] = turns[agent] == 0, turns[agent] / max(count[agent] - 1, 1)
        turns[agent] += 1
    cache: dict[int, str] = {}
    roles = [cache.setdefault(agent, steps.role(k)) for k, agent in enumerate(agents)]
    known = {role: {name: float(bool(p.search(role))) for name, p in ROLES.items()} for role in set(cache.values())}
    out = {name: np.array([known[role][name] for role in roles]) for name in ROLES}
    out["first_of_agent"], out["turn_of_agent"] = first, nth
    out["share_of_agent"] = np.array([count[a] / n for a in agents])
    out["is_first_agent"] = np.array([float(order[a] == 0) for a in agents])
    out["is_second_agent"] = np.array([float(order[a] == 1) for a in agents])
    out["takes_over"] = np.array([0.0, *(float(a != b) for a, b in zip(agents[1:], agents, strict=False))])
    out["hands_over"] = np.array([*(float(a != b) for a, b in zip(agents[1:], agents, strict=False)), 0.0])
    return out


def _tools(steps: Steps) -> dict[str, Floats]:
    """What tools answered: the first error and what led to it, retries, results that say nothing."""
    n, results, heard = len(steps), steps.results, steps.last_results
    judged = {i: (steps.failed(i), steps.empty(i)) for i in {*results, *heard} if i >= 0}
    fails = np.array([r >= 0 and judged[r][0] for r in results])
    empty = np.array([r >= 0 and judged[r][1] and not judged[r][0] for r in results])
    has = np.array([r >= 0 for r in results])
    works = has & ~fails & ~empty
    own = np.array([steps.trace.events[i].ok is False or steps.trace.events[i].error is not None for i in steps.places])
    after = np.array([h >= 0 and judged[h][0] for h in heard])
    after_empty = np.array([h >= 0 and judged[h][1] and not judged[h][0] for h in heard])
    bad = fails | own
    first, last = (int(np.argmax(bad)), n - 1 - int(np.argmax(bad[::-1]))) if bad.any() else (-1, -1)
    first_works = int(np.argmax(works)) if works.any() else -1
    last_works = n - 1 - int(np.argmax(works[::-1])) if works.any() else -1
    k = np.arange(n)
    return {
        "calls_tool": has * 1.0,
        "tool_failed": fails * 1.0,
        "tool_empty": empty * 1.0,
        "tool_worked": works * 1.0,
        "went_wrong": own * 1.0,
        "after_failure": after * 1.0,
        "after_empty": after_empty * 1.0,
        "first_error": (k == first) * 1.0,
        "last_error": (k == last) * 1.0,
        "before_first_error": (k < first) * 1.0 if first >= 0 else np.zeros(n),
        "after_first_error": (k > first) * 1.0 if first >= 0 else np.zeros(n),
        "no_error_at_all": np.full(n, float(first < 0)),
        "first_worked": (k == first_works) * 1.0,
        "last_worked": (k == last_works) * 1.0,
        "before_first_call": (np.cumsum(has) == 0) * 1.0,
        "after_last_call": (np.cumsum(has[::-1])[::-1] == 0) * 1.0,
        "errors_so_far": np.cumsum(bad) / max(int(bad.sum()), 1),
    }


def _graph(steps: Steps) -> dict[str, Floats]:
    """What was read by whom: on the way to the result, in the cone of the first error, read by nobody, what came from outside."""
    facts, places = steps.facts, np.array(steps.places)
    events = steps.trace.events
    failures = sorted(steps.trace.failures, key=lambda i: int(facts.team.place_E[i]))
    cone = facts.info.reach(failures[:1]) if failures else np.zeros(facts.n, np.bool_)
    heard = np.zeros(facts.n)
    np.add.at(heard, facts.info.dst, [float(events[s].trusted is False) for s in facts.info.src.tolist()])
    fan = np.bincount(facts.info.src, minlength=facts.n)[places]
    return {
        "on_the_way": facts.relevant_E[places] * 1.0,
        "read_by_others": facts.read_E[places] * 1.0,
        "read_by_nobody": ~facts.used_E[places] * 1.0,
        "in_cone_of_error": cone[places] * 1.0,
        "reads_outside": (heard[places] > 0) * 1.0,
        "widely_read": np.log1p(fan) / max(np.log1p(fan.max()), 1.0),
        "is_decision": np.array([float(events[i].type == "orchestrator_decision") for i in steps.places]),
        "is_return": np.array([float(events[i].type == "return") for i in steps.places]),
        "is_call": np.array([float(events[i].type == "tool_call") for i in steps.places]),
        "stops": np.array([float(events[i].decision == "stop") for i in steps.places]),
        "delegates": np.array([float(events[i].decision == "delegate") for i in steps.places]),
        "is_merge": np.array([float(events[i].type == "aggregate" or events[i].decision == "aggregate") for i in steps.places]),
    }


def _manner(steps: Steps) -> dict[str, Floats]:
    """How it is said: length, code, and words of guessing, giving up, confirming, planning."""
    texts = [steps.texts[i] for i in steps.places]
    lower = [text.lower() for text in texts]
    size = np.log1p(np.array([len(t) for t in texts], np.float64))
    out = {name: np.array([_often(len(p.findall(t))) for t in lower]) for name, p in _PATTERNS.items()}
    out["length"] = np.argsort(np.argsort(size, kind="stable"), kind="stable") / max(len(size) - 1, 1)
    out["longest"] = (size == size.max()) * 1.0
    out["short"] = np.array([float(len(t) < 40) for t in texts])
    out["code"] = np.array([float(bool(_CODE.search(t))) for t in texts])
    is_code = out["code"] > 0
    out["first_code"] = (np.cumsum(is_code) == 1) * is_code * 1.0
    out["lists"] = np.array([_often(len(re.findall(r"^\s*(?:[-*]|\d+[.)])\s", t, re.M)), 8) for t in texts])
    out["questions"] = np.array([_often(t.count("?")) for t in texts])
    return out


def matches(signal: str, text: str) -> int | None:
    """Where in a text the words of a signal stand; None where they do not, or where no words make the signal."""
    pattern = _PATTERNS.get(signal)
    match = (
        pattern.search(text.lower()) if pattern is not None else _CODE.search(text) if signal in ("code", "first_code") else None
    )
    return None if match is None else match.start()


def _often(count: int, many: int = 3) -> float:
    return min(count / many, 1.0)


def _claims(steps: Steps) -> dict[str, Floats]:
    """What it states first: numbers and names that nobody, and no tool, had said before, and what became of them."""
    n, claims = len(steps), steps.claims
    first: dict[str, int] = {}
    uses: Counter[str] = Counter()
    for i in steps.order:
        for claim in claims[i]:
            first.setdefault(claim, i)
            uses[claim] += 1
    end = frozenset().union(*(claims[steps.places[k]] for k in steps.ending)) if steps.ending else frozenset()
    numbers = {c for c in end if c[:1].isdigit()}
    new, new_numbers, carried, in_end, end_number, support = (np.zeros(n) for _ in range(6))
    for k, i in enumerate(steps.places):
        mine = [c for c in claims[i] if first[c] == i]
        digits = [c for c in mine if c[:1].isdigit()]
        new[k], new_numbers[k] = len(mine) / max(len(claims[i]), 1), _often(len(digits), 5)
        carried[k] = sum(uses[c] > 1 for c in mine) / max(len(mine), 1)
        in_end[k] = sum(c in end for c in mine) / max(len(end), 1)
        end_number[k] = float(any(c in numbers for c in digits))
        before = steps.last_results[k]
        if before >= 0 and claims[before]:
            support[k] = len(claims[before] & claims[i]) / len(claims[before])
    origin = np.zeros(n)
    if end_number.any():
        origin[int(np.argmax(end_number))] = 1.0
    return {
        "unsupported": new,
        "new_numbers": new_numbers,
        "claims_carried_on": carried,
        "source_of_result": in_end,
        "number_of_result": end_number,
        "first_number_of_result": origin,
        "uses_result": support,
        "ignores_result": np.array(
            [float(h >= 0 and bool(claims[h]) and s == 0) for h, s in zip(steps.last_results, support, strict=True)]
        ),
    }


def _overlaps(steps: Steps) -> dict[str, Floats]:
    """Words shared with the question, with what came before, with the end, and with the agent's own last step."""
    n, words = len(steps), [steps.words[i] for i in steps.places]
    question = set(steps.question)
    ending = set().union(*(words[k] for k in steps.ending)) if steps.ending else set()
    own: dict[int, int] = {}
    recent: list[set[str]] = []
    asked, repeats, repeats_own, echoes, alike = (np.zeros(n) for _ in range(5))
    for k in range(n):
        mine = set(words[k])
        asked[k] = len(mine & question) / max(len(question), 1)
        alike[k] = _jaccard(mine, ending) if k not in steps.ending else 0.0
        echoes[k] = _jaccard(mine, recent[-1]) if recent else 0.0
        repeats[k] = max((_jaccard(mine, other) for other in recent[-_SOME:]), default=0.0)
        before = own.get(steps.agents[k])
        repeats_own[k] = _jaccard(mine, set(words[before])) if before is not None else 0.0
        own[steps.agents[k]] = k
        recent.append(mine)
    if n > 1:  # the first step can repeat nobody: it is as the others are
        echoes[0], repeats[0] = echoes[1:].mean(), repeats[1:].mean()
    is_first = _firsts(steps.agents)
    repeats_own[is_first] = repeats_own[~is_first].mean() if (~is_first).any() else 0.0
    return {"keeps_question": asked, "like_the_end": alike, "echoes": echoes, "repeats": repeats, "repeats_own": repeats_own}


def _firsts(agents: Sequence[int]) -> Mask:
    """Which steps are the first of their agent."""
    known: set[int] = set()
    return np.array([not (a in known or known.add(a)) for a in agents])  # type: ignore[func-returns-value]


def _jaccard(a: set[str], b: set[str]) -> float:
    return len(a & b) / len(a | b) if a and b else 0.0


def _replies(steps: Steps, own: Mapping[str, Floats]) -> dict[str, Floats]:
    """What others made of it: the next step of another agent objects, confirms, changes course, or builds on its claims."""
    n, agents, claims = len(steps), steps.agents, steps.claims
    reply = np.full(n, -1)
    following: dict[int, int] = {}
    last = -1
    for k in range(n - 1, -1, -1):  # the next candidate of anybody else
        if last >= 0 and agents[last] != agents[k]:
            following[k] = last
        elif last >= 0 and last in following:
            following[k] = following[last]
        reply[k], last = following.get(k, -1), k

    def of_reply(name: str) -> Floats:
        return np.where(reply >= 0, own[name][reply], 0.0)

    built = np.zeros(n)
    for k, r in enumerate(reply.tolist()):
        mine = claims[steps.places[k]]
        built[k] = len(mine & claims[steps.places[r]]) / max(len(mine), 1) if r >= 0 else 0.0
    return {
        "is_objected_to": of_reply("objects"),
        "is_confirmed": of_reply("confirms"),
        "followed_by_change": of_reply("changes_plan"),
        "followed_by_giving_up": of_reply("gives_up"),
        "built_upon": built,
        "has_no_reply": (reply < 0).astype(np.float64),
    }


def _turns(steps: Steps, own: Mapping[str, Floats]) -> dict[str, Floats]:
    """Where the run turns: the first work after the brief, errors that are never mended, the call that brought the result in."""
    n, texts = len(steps), [steps.texts[i] for i in steps.places]
    k = np.arange(n)
    is_brief = (k == 0) & ((own["keeps_question"] >= 0.6) | bool(_BRIEF.search(texts[0][:2000])))
    if n and steps.results[0] >= 0 and own["code"][0] > 0:
        is_brief[0] = False  # it hands out the task and begins with it
    is_page = np.array([bool(_PAGE.search(text[:400])) for text in texts])
    says = np.array([len(steps.words[i]) >= 8 for i in steps.places])
    work = np.flatnonzero(~is_brief & says & ~is_page)
    first, second = np.zeros(n), np.zeros(n)
    first[work[:1]], second[work[1:2]] = 1.0, 1.0
    is_open = float(not any(own["ends"][j] > 0 or own["concludes"][j] > 0 for j in range(max(n - 2, 0), n)))
    later_works = np.cumsum(own["tool_worked"][::-1])[::-1] - own["tool_worked"] > 0
    guesses = (own["assumes"] + own["recalls"]) > 0
    guesses[is_brief | is_page] = False
    is_first, through = _brought_in(steps, is_brief)
    return {
        "is_brief": is_brief * 1.0,
        "shows_page": is_page * 1.0,
        "first_work": first,
        "second_work": second,
        "first_work_unfinished": first * is_open,
        "first_error_unfinished": own["first_error"] * is_open,
        "error_mended": own["tool_failed"] * later_works,
        "first_error_never_mended": own["first_error"] * ~later_works,
        "first_guess": ((np.cumsum(guesses) == 1) & guesses) * 1.0,
        "tool_poor": np.array([float(r >= 0 and steps.says_it_failed(r)) for r in steps.results]),
        "says_result_first": is_first,
        "tool_gives_result": through,
        "rule_of_errors": own["first_error"] if own["first_error"].any() else first,
    }


def _brought_in(steps: Steps, is_brief: Mask) -> tuple[Floats, Floats]:
    """The first step, after the task was handed out, that says the result, or whose tool says it before anybody does."""
    n = len(steps)
    first, through = np.zeros(n), np.zeros(n)
    for k, i in enumerate(steps.places):
        if is_brief[k]:
            continue
        if steps.states(i):
            first[k] = 1.0
            break
        if steps.results[k] >= 0 and steps.states(steps.results[k]):
            through[k] = 1.0
            break
    return first, through


# -- text by hashed words, and what other runs of the task said ------------------------------------------------------------


def hashed(steps: Steps) -> Floats:
    """Words of every candidate in `BINS` signed bins, each row of length 1 (0 where it says nothing)."""
    out = np.zeros((len(steps), BINS))
    known: dict[str, int] = {}
    rows, bins, counts = [], [], []
    for k, i in enumerate(steps.places):
        for word, count in steps.words[i].items():
            if word[0] > "9":  # a word, not a number
                number = known.get(word)
                if number is None:
                    number = known[word] = int.from_bytes(blake2b(word.encode(), digest_size=4).digest(), "big")
                rows.append(k)
                bins.append(number)
                counts.append(count)
    code = np.array(bins, np.int64)
    sign = np.where(code >> 31, 1.0, -1.0)
    np.add.at(out, (np.array(rows, np.int64), code % BINS), sign * np.log1p(np.array(counts, np.float64)))
    norm = np.linalg.norm(out, axis=1, keepdims=True)
    return out / np.where(norm > 0, norm, 1.0)


def unlike_others(steps: Steps, others: Sequence[frozenset[str]]) -> Floats:
    """For each candidate the share of its claims that no other run of the task states; 0 without other runs."""
    if not others:
        return np.zeros(len(steps))
    known = frozenset().union(*others)
    mine = [steps.claims[i] for i in steps.places]
    return np.array([len(c - known) / len(c) if c else 0.0 for c in mine])


Surprise = Callable[[Sequence[str]], Sequence[float]]
"""A local model's mean negative log-probability of each text."""


def surprising(steps: Steps, surprise: Surprise | None) -> Floats:
    """How much more each step surprises a local model than the run's other steps do, between -1 and 1; 0 without a model."""
    if surprise is None or not len(steps):
        return np.zeros(len(steps))
    surprises = np.asarray(surprise([steps.texts[i] for i in steps.places]), np.float64)
    spread = float(surprises.std())
    return np.tanh((surprises - surprises.mean()) / spread) if spread > 0 else np.zeros(len(steps))
