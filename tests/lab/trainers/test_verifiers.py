"""verifiers' own types take the episodes: branches have our tokens, and advantages keep the digits that its records lose."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

vf = pytest.importorskip("verifiers.v1", reason="the package verifiers is not installed: pip install '.[verifiers]'")

from counterpoint.lab.trainers.row import check_same  # noqa: E402
from counterpoint.lab.trainers.verifiers import rows_of, verifiers  # noqa: E402
from trainers_help import rows  # noqa: E402


def loaded() -> list[object]:
    data = verifiers.to_bytes(rows(), ".jsonl")
    return [vf.WireEpisode.model_validate(msgspec.json.decode(line)) for line in data.splitlines()]


def test_a_branch_is_a_call() -> None:
    branches = {}
    for episode in loaded():
        for trace in episode.traces:  # type: ignore[attr-defined]
            assert trace.agent.trainable
            for branch, told in zip(trace.branches, trace.info["calls"], strict=True):
                branches[told["event_id"]] = branch
                assert episode.group.id == told["group"]  # type: ignore[attr-defined]
    for row in rows():
        branch = branches[row.event_id]
        assert branch.token_ids == [*row.prompt_ids, *row.completion_ids]
        before = len(row.prompt_ids)
        assert branch.sampled_mask == [False] * before + [bool(m) for m in row.mask]
        np.testing.assert_allclose(branch.advantages, [0.0] * before + row.advantages.tolist(), rtol=0, atol=1e-6)
        np.testing.assert_allclose(branch.logprobs[before:], row.logps, rtol=0, atol=1e-6)


def test_versions_are_the_span_of_a_run() -> None:
    by_trace: dict[str, list[int]] = {}
    for row in rows():
        by_trace.setdefault(row.trace_id, []).append(int(row.version or 0))
    for episode in loaded():
        span = episode.run.work.policy  # type: ignore[attr-defined]
        assert (span.start, span.end) == (min(by_trace[episode.id]), max(by_trace[episode.id]))  # type: ignore[attr-defined]


def test_rows_come_back_from_what_verifiers_keeps_with_every_digit() -> None:
    wire = [episode.model_dump(mode="python") for episode in loaded()]  # type: ignore[attr-defined]
    check_same(rows(), rows_of(wire), "verifiers")
    record = [episode.to_record() for episode in loaded()]  # type: ignore[attr-defined]
    with pytest.raises(Exception, match="verifiers changed"):  # four decimals: what their JSON would have done to the credit
        check_same(rows(), rows_of(record), "verifiers")
