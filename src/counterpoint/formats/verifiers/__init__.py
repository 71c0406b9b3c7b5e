"""Rollouts of the verifiers library and prime-rl: results.jsonl rows, v1 traces, episodes of several agents.

A row is one trace: its prompt is heard, its completion said; with `trajectory` each model call is a step with its
own tokens, and the sub-models it called are sub-agents. A v1 trace is a graph of messages (`message_graph.py`), with
sub-agents by semantic links; an episode is one trace of all its agents. Rewards, metrics and labels keep their names.

What is lost: token ids and masks, log-probabilities per token (their sum is kept), tool definitions, images, routed experts.

Always true: a row that cannot be read is counted and the others go on; a completion that repeats its prompt is not heard
twice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from counterpoint.formats.draft import Draft
from counterpoint.formats.importer import Importer, Session, run_of
from counterpoint.formats.importing.files import HEAD, File, first_keys
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, number, string
from counterpoint.formats.verifiers.message_graph import MAIN, GraphTalk, play_rollout
from counterpoint.trace import Trace

_METADATA = re.compile(r"(?:^|/)evals/[^/]+--[^/]+/[^/]+/metadata\.json$")
_BESIDE = frozenset(
    ("example_id", "id", "task", "answer", "info", "metrics", "timing", "generation_ms", "trajectory", "is_truncated",
     "is_completed", "stop_condition", "advantage", "env_id", "state", "token_usage"),
)  # fmt: skip
_WRAPPERS = ("outputs", "rollouts", "results")
_NO_METRIC = frozenset({"example_id", "id", "reward", "is_truncated", "is_completed", "prompt", "completion", "advantage"})
_LABELS = ("answer", "info", "task", "stop_condition", "is_truncated", "is_completed", "error", "env_id", "policy_version")


def _sniff(head: bytes) -> bool:
    if b'"prompt"' not in head and b'"nodes"' not in head and b'"verifiers"' not in head and b'"traces"' not in head:
        return False
    keys = first_keys(head)
    names = set(keys)
    is_cut = len(head) >= HEAD
    if {"prompt", "completion"} <= names:
        return ("reward" in names or is_cut) and bool(names & _BESIDE)
    if is_cut and "prompt" in names and "example_id" in names:
        return True
    if "nodes" in names or "verifiers" in names:
        return "task" in names and bool(names & {"agent", "verifiers", "calls", "is_completed"})
    if "traces" in names:
        return "task" in names and bool(names & {"env", "ok"}) and keys["traces"][:1] == b"["
    return "metadata" in names and any(name in names for name in _WRAPPERS) and b'"completion"' in head


def _group(files: Sequence[File]) -> Iterable[Session]:
    """Each file with the `metadata.json` of its folder."""
    beside = {f.name.rpartition("/")[0]: f for f in files if _METADATA.search(f.name)}
    rows = [f for f in files if not _METADATA.search(f.name)]
    return [Session(f.name, [f, *([m] if (m := beside.get(f.name.rpartition("/")[0])) else [])]) for f in rows]


def _read(session: Session) -> Iterator[Trace]:
    about: dict[str, Any] = {}
    for file in session.files:
        if _METADATA.search(file.name):
            about = as_dict(session.document(file))
    for file in session.files:
        if not _METADATA.search(file.name):
            story = _RolloutFile(session, file, about)
            for line, record in _records(session, file):
                try:
                    yield from story.traces(record)
                except RecursionError:
                    session.report.broke(file.name, line, "is nested too deeply")


def _records(session: Session, file: File) -> Iterator[tuple[int | None, dict[str, Any]]]:
    """The objects of a file: one per line, or a document or list of them that is spread over lines."""
    head = file.head().removeprefix(b"\xef\xbb\xbf").lstrip()
    first = head.split(b"\n", 1)[0].strip()
    if head[:1] == b"[" or (b"\n" in head and not first.endswith(b"}")):
        whole = session.document(file)
        for item in whole if isinstance(whole, list) else [whole]:
            if isinstance(item, dict):
                yield None, item
    else:
        yield from session.records(file)


class _RolloutFile:
    """The records of one file, each on its way to a trace."""

    def __init__(self, session: Session, file: File, about: dict[str, Any]) -> None:
        self.session, self.about = session, about
        self._times: Counter[str] = Counter()

    def traces(self, record: dict[str, Any]) -> Iterator[Trace]:
        """The traces of a record, by its shape."""
        if isinstance(record.get("traces"), list):
            yield from self._episode(record)
        elif isinstance(record.get("nodes"), list):
            yield from self._graph(record)
        elif any(isinstance(record.get(name), list) for name in _WRAPPERS):
            about = as_dict(record.get("metadata")) or self.about
            for row in next(record[name] for name in _WRAPPERS if isinstance(record.get(name), list)):
                if isinstance(row, dict):
                    yield from self._row(row, about)
        elif isinstance(record.get("reward"), list):
            for row in _across(record):
                yield from self._row(row, as_dict(record.get("metadata")) or self.about)
        elif "prompt" in record or "completion" in record or "trajectory" in record:
            yield from self._row(record, self.about)
        else:
            self.session.report.unknown["record without a rollout"] += 1

    # -- rows ------------------------------------------------------------------------------------------------------------

    def _row(self, row: dict[str, Any], about: dict[str, Any]) -> Iterator[Trace]:
        asked = as_dict(row.get("input"))
        row = {**asked, **{k: v for k, v in row.items() if v is not None or k not in asked}}
        example = row.get("example_id", row.get("id", row.get("problem_id", "row")))
        env = string(about.get("env_id")) or string(row.get("env_id")) or string(row.get("task")) or "rollouts"
        self._times[str(example)] += 1
        own = string(row.get("trajectory_id"))
        name, run = own or f"{env}/{example}/{self._times[str(example)]}", None if own else run_of(row)
        draft = self.session.draft(name, f"{env}/{example}", system="verifiers", run=run)
        labels = {k: row[k] for k in _LABELS if row.get(k) not in (None, "", {}, [])}
        draft.meta["rollout"] = {"example_id": example, **labels}
        if about:
            draft.meta["run"] = {k: about[k] for k in ("env_id", "model", "date", "rollouts_per_example") if k in about}
        play_rollout(draft, row, string(row.get("model")) or string(about.get("model")))
        if (reward := number(row.get("reward"))) is not None:
            draft.rewards["team"] = reward
        _metrics(draft, row)
        yield from draft.traces()

    # -- graphs ----------------------------------------------------------------------------------------------------------

    def _graph(self, record: dict[str, Any]) -> Iterator[Trace]:
        task = as_dict(record.get("task"))
        draft = self._begun(record, task)
        GraphTalk(draft, record, MAIN).play()
        self._judged(draft, record, "")
        total = _rewards(record)
        if total:
            draft.rewards.update(total)
            draft.rewards["team"] = sum(total.values())
        yield from draft.traces()

    def _episode(self, record: dict[str, Any]) -> Iterator[Trace]:
        draft = self._begun(record, as_dict(record.get("task")))
        traces = [t for t in as_list(record.get("traces")) if isinstance(t, dict)]
        names = Counter(string(as_dict(t.get("agent")).get("name")) or "agent" for t in traces)
        counts: Counter[str] = Counter()
        for trace in traces:
            role = string(as_dict(trace.get("agent")).get("name")) or "agent"
            counts[role] += 1
            label = role if names[role] == 1 else f"{role}#{counts[role]}"
            agent = string(trace.get("id")) or label
            talk = GraphTalk(draft, trace, agent, f"{agent}/")
            talk.play()
            self._judged(draft, trace, f"{label}/")
            rewards = _rewards(trace)
            if rewards:
                draft.rewards[label] = sum(rewards.values())
                if talk.last is not None:
                    draft.set(talk.last, reward=rewards)
        if len(draft.rewards) == 1 and len(traces) == 1:
            draft.rewards["team"] = next(iter(draft.rewards.values()))
        yield from draft.traces()

    def _begun(self, record: dict[str, Any], task: dict[str, Any]) -> Draft:
        data = as_dict(task.get("data"))
        named = next(
            (str(v) for v in (task.get("key"), data.get("id"), data.get("idx"), data.get("name")) if v is not None), "task"
        )
        kind = string(as_dict(record.get("env")).get("id")) or string(task.get("type")) or "verifiers"
        self._times[named] += 1
        own = string(record.get("id"))
        name, run = own or f"{kind}/{named}/{self._times[named]}", None if own else run_of(record)
        draft = self.session.draft(name, f"{kind}/{named}", system="verifiers", run=run)
        names = ("stop_condition", "is_completed", "ok", "errors", "info", "verifiers", "run", "group")
        draft.meta["rollout"] = {k: record[k] for k in names if record.get(k) not in (None, "", {}, [])}
        if data:
            draft.meta["rollout"]["task"] = data
        return draft

    def _judged(self, draft: Draft, record: dict[str, Any], prefix: str) -> None:
        for name, value in as_dict(record.get("metrics")).items():
            if (score := number(value)) is not None:
                draft.metrics[f"{prefix}{name}"] = score
        judges = [u for raw in as_list(record.get("extra_usage")) if (u := Usage.openai(raw)) is not None]
        if judges:
            draft.metrics[f"{prefix}judge_tokens"] = sum(u.input + u.output for u in judges)


def _metrics(draft: Draft, row: dict[str, Any]) -> None:
    """Everything that a row counts: its metrics, also where they lie flat beside the rest, and its times."""
    timing = {k: v for k, v in as_dict(row.get("timing")).items() if k.endswith("_ms")}
    metrics = {
        **{k: v for k, v in row.items() if k not in _NO_METRIC and not isinstance(v, str)},
        **timing,
        **as_dict(row.get("metrics")),
    }
    for name, value in metrics.items():
        if not isinstance(value, bool) and (amount := number(value)) is not None:
            draft.metrics[name] = amount
    if (advantage := number(row.get("advantage"))) is not None:
        draft.metrics["advantage"] = advantage


def _rewards(record: dict[str, Any]) -> dict[str, float]:
    out = {}
    for name, raw in as_dict(record.get("rewards")).items():
        score = number(as_dict(raw).get("score")) if isinstance(raw, dict) else number(raw)
        weight = number(as_dict(raw).get("weight", 1.0))
        if score is not None:
            out[name] = score * (1.0 if weight is None else weight)
    return out


def _across(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of a record that holds them as columns."""
    size = len(record["reward"])
    columns = {k: v for k, v in record.items() if isinstance(v, list) and len(v) == size}
    metrics = {k: v for k, v in as_dict(record.get("metrics")).items() if isinstance(v, list) and len(v) == size}
    for i in range(size):
        row = {k: v[i] for k, v in columns.items()}
        yield {
            **as_dict(row.get("state")),
            **row,
            "metrics": {k: v[i] for k, v in metrics.items()},
            "example_id": row.get("example_id", i),
        }


verifiers = Importer(
    suffixes=(".rollouts.jsonl",),
    sniff=_sniff,
    signs=("prompt", "completion", "reward", "example_id", "trajectory", "metrics"),
    sidecar=lambda name: _METADATA.search(name) is not None,
    group=_group,
    rank=-5,
    system="verifiers",
    read_session=_read,
    becomes={
        "assistant message, trajectory step, sampled node": ("orchestrator_decision", "message", "tool_call"),
        "tool message": ("tool_result",),
        "user message of the prompt": ("human_intervention",),
        "message of the environment, system message": ("message",),
        "step of another trajectory, subagent_call": ("spawn", "return"),
        "subagent_cancel": ("despawn",),
        "reward, metrics": ("rewards", "metrics"),
    },
    versions="rows, v1 traces",
    exact="tokens, rewards, linked sub-agents",
    lost="token ids, masks, log-probabilities, tool definitions, images, routed experts; plain rows: times",
)
