"""Prices go by the exact name of a model, and are those of genai-prices: its tiers, its days, its batches; unknown is unpriced."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pytest

from counterpoint.formats.importing.model_names import canonical_name, spellings, undated
from counterpoint.formats.importing.price_list import TABLE, price_list, price_table
from counterpoint.formats.importing.usage import PRICES, Price, Prices, Usage
from counterpoint.guard.prices import price_of

TRUE = """
claude-opus-4-6[1m] 5 25 | claude-opus-4-6 5 25 | o3-pro 20 80 | gpt-5-pro 15 120 | gpt-5.4-pro 30 180 | gpt-5.1 1.25 10 | gpt-5.1-codex-max 1.25 10
gpt-5.1-codex-mini 0.25 2 | gemini-3-pro 2 12 | gemini-3-pro-preview 2 12 | deepseek-chat 0.27 1.1 | glm-4.6 0.6 2.2 | qwen3-max 1.2 6 | grok-4 3 15
claude-sonnet-4.5 3 15 | anthropic/claude-sonnet-4.5 3 15 | claude-sonnet-4-5-20250929 3 15 | claude-opus-4-1@20250805 15 75 | vertex_ai/claude-opus-4-1@20250805 15 75
bedrock/anthropic.claude-3-5-sonnet-20240620-v1:0 3 15 | models/gemini-2.5-pro 1.25 10 | azure/gpt-5 1.25 10 | gpt-4o-2024-05-13 5 15 | gpt-4o 2.5 10
qwen/qwen3-max 1.2 6 | GPT-5-mini-2025-08-07 0.25 2 | openai/gpt-5 1.25 10 | groq/llama-3.3-70b-versatile 0.59 0.79 | gpt-5:batch 0.625 5
"""
"""Models that a price by prefix got wrong or missed, and the ways to write a name: input and output, dollars per million tokens."""

UNKNOWN = ["gpt-50", "gpt-5.9", "gpt-5-ultra", "claude-opus-4-6-experimental", "o3-pro-max", "claude-opus-9", "claude", "gemini-3", "Qwen/Qwen3-8B",
           "my-lab/claude-opus-4-6-tuned", "llama", "gpt-5-", "claude-opus-4-6x", "", "unknown/model"]  # fmt: skip


@pytest.mark.parametrize("row", [row.strip() for row in TRUE.strip().replace("\n", "|").split("|")])
def test_a_model_has_its_own_price(row: str) -> None:
    name, fresh, out = row.split()
    found = PRICES.of(name)
    assert found is not None
    assert (found.input, found.output) == (float(fresh), float(out))


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_name_that_the_list_does_not_have_has_no_price(name: str) -> None:
    assert PRICES.of(name) is None
    assert PRICES.cost(name, Usage(1000, output=10)) is None


def test_a_longer_name_is_never_priced_as_a_shorter_one() -> None:
    """Any listed name with more behind it, which the list does not have, is unknown."""
    rng = random.Random(5)
    names = [name for said in price_list()["providers"].values() for row in said["models"] for name in row["names"]]
    for name in rng.sample(names, 400):
        assert PRICES.of(f"{name}-zzz{rng.randrange(10)}") is None, name


def test_the_long_and_the_dear_ones_have_prices_of_their_own() -> None:
    """By the makers' lists: dollars for a million tokens in and out, and above 200 k tokens of one call."""
    dollars = {name: (found.input, found.output) for name in DEAR if (found := PRICES.of(name)) is not None}
    assert dollars == DEAR
    assert PRICES.of("claude-opus-4-6[1m]") == PRICES.of("claude-opus-4-6")
    long, tier = PRICES.of("claude-sonnet-4-5[1m]"), Usage(300_000, output=1000)
    assert long is not None
    assert long.cost(tier) == pytest.approx((300_000 * 6 + 1000 * 22.5) / 1e6)
    assert PRICES.of("o3-pro-max") is PRICES.of("gpt-5-prod") is PRICES.of("claude-opus-4-66") is None


DEAR = {"o3": (2.0, 8.0), "o3-pro": (20.0, 80.0), "gpt-5": (1.25, 10.0), "gpt-5-pro": (15.0, 120.0), "claude-opus-4-6": (5.0, 25.0)}


def test_one_way_to_write_a_name() -> None:
    assert canonical_name(" Claude-Sonnet-4.5[1m] ") == "claude-sonnet-4-5"
    assert canonical_name("llama-3.3.1") == "llama-3-3-1"
    assert undated("claude-sonnet-4-5-20250929") == undated("claude-sonnet-4-5@20250929") == "claude-sonnet-4-5"
    assert undated("gpt-5-2025-08-07") == "gpt-5"
    assert undated("claude-3-5-sonnet-20240620-v1:0") == "claude-3-5-sonnet"
    assert undated("claude-3-5-sonnet-latest") == "claude-3-5-sonnet"
    assert undated("claude-opus-4-20250514-v1") == "claude-opus-4"
    assert undated("claude-v1") == "claude-v1"
    assert undated("gpt-4-0613") == "gpt-4-0613"
    assert list(spellings("gemini-3-pro")) == ["gemini-3-pro", "gemini-3-pro-preview"]


def test_a_file_of_ones_own_wins_by_the_exact_name() -> None:
    own = Prices.with_file({"as_of": "2027-01-01", "GPT-5.5": {"input": 1, "output": 2}, "qwen/qwen3-8b": {"input": 0, "output": 0}}, where="p.toml")
    assert [own.is_own(n) for n in ("gpt-5.5", "openai/gpt-5.5-2026-04-01", "gpt-5-5", "Qwen/Qwen3-8B")] == [True] * 4
    assert [own.is_own(n) for n in ("gpt-5", "gpt-5.5-pro", "nobody", None)] == [False] * 4
    assert own.cost("gpt-5.5", Usage(1_000_000, output=1_000_000)) == 3
    assert own.cost("Qwen/Qwen3-8B", Usage(1_000_000)) == 0
    assert own.of("gpt-5") == PRICES.of("gpt-5")
    assert PRICES.is_own("gpt-5.5") is False


def test_a_long_call_costs_more_for_all_of_its_tokens() -> None:
    short, long = Usage(200_000, output=1000), Usage(1, 200_000, output=1000)
    assert PRICES.cost("gemini-2.5-pro", short) == pytest.approx((200_000 * 1.25 + 1000 * 10) / 1e6)
    assert PRICES.cost("gemini-2.5-pro", long) == pytest.approx((1 * 2.5 + 200_000 * 0.25 + 1000 * 15) / 1e6)


def test_more_tokens_than_a_call_can_have_are_those_of_several_calls() -> None:
    price = Price(1, 2, 1, 1, tiers=((100, Price(10, 20, 10, 10)),), context=1000)
    assert [price.cost(Usage(n)) for n in (100, 101, 1000, 1001)] == [100 / 1e6, 1010 / 1e6, 10_000 / 1e6, 1001 / 1e6]


def test_a_call_has_the_price_of_its_day() -> None:
    """Long calls of claude-opus-4-6 were dearer until 13 March 2026."""
    usage = Usage(300_000)
    before, after = (datetime(2026, 3, day, 12, tzinfo=UTC).timestamp() for day in (12, 13))
    assert PRICES.cost("claude-opus-4-6[1m]", usage, at=before) == pytest.approx(3.0)
    assert PRICES.cost("claude-opus-4-6[1m]", usage, at=after) == pytest.approx(1.5)
    assert PRICES.cost("claude-opus-4-6[1m]", usage) == pytest.approx(1.5)
    assert PRICES.cost("claude-opus-4-6[1m]", usage, at=0.0) == pytest.approx(3.0)


def test_reasoning_and_calls_may_have_prices_of_their_own() -> None:
    price = Price(1, 2, 1, 1, reasoning=5, call=0.25)
    assert price.cost(Usage(0, output=10, reasoning=4)) == pytest.approx((6 * 2 + 4 * 5) / 1e6 + 0.25)
    assert Price(1, 2, 1, 1).cost(Usage(0, output=10, reasoning=4)) == pytest.approx(20 / 1e6)


def test_the_shipped_list_says_where_it_is_from() -> None:
    assert PRICES.as_of.startswith("genai-prices ")
    assert b'"version"' in TABLE.read_bytes()[:20]


def test_a_guard_counts_by_the_same_list() -> None:
    assert price_of("claude-opus-4-6[1m]") == [5, 0.5, 6.25, 10, 25]
    assert price_of("gemini-2.5-pro") == [1.25, 0.125, 1.25, 1.25, 10]
    assert price_of("gpt-5-ultra") is None


def _usages(rng: random.Random, context: int | None, since: list[str]) -> list[tuple[Usage, float]]:
    most = context or 900_000
    out = []
    for _ in range(4):
        parts = [rng.randrange(rng.choice([1, 1000, most // 3])) for _ in range(3)]
        hour = rng.randrange(parts[2] + 1)
        day = rng.choice([*since, "2026-11-01"])
        at = datetime.fromisoformat(day).replace(hour=12, tzinfo=UTC).timestamp()
        out.append((Usage(parts[0], parts[1], parts[2], rng.randrange(20_000), cache_write_1h=hour), at))
    return out


def _checked(cost: Any, table: dict[str, Any]) -> int:
    """Every model of a table on random usages: its cost by `cost(provider, row, usage, at)` and by ours; how many calls."""
    rng, calls = random.Random(11), 0
    for provider, said in table["providers"].items():
        first: dict[str, int] = {}
        for k, row in enumerate(said["models"]):
            first.setdefault(canonical_name(row["names"][0]), k)
        for k, row in enumerate(said["models"]):
            name = row["names"][0]
            if first[canonical_name(name)] != k:
                continue  # two of its rows have one name: the first is meant
            since = [price["since"] for price in row["prices"] if "since" in price]
            for usage, at in _usages(rng, row.get("context"), since):
                theirs = cost(provider, row, usage, at)
                if theirs is not None:
                    assert PRICES.cost(f"{provider}/{name}", usage, at=at) == pytest.approx(theirs, rel=1e-9, abs=1e-12), (provider, name, usage)
                    calls += 1
    return calls


def test_every_model_costs_what_its_row_says() -> None:
    def cost(provider: str, row: dict[str, Any], usage: Usage, at: float) -> float:
        day = datetime.fromtimestamp(at, UTC).date().isoformat()
        price = [one for k, one in enumerate(row["prices"]) if k == 0 or one["since"] <= day][-1]

        def of(name: str, default: float) -> float:
            value = price.get(name)
            if not isinstance(value, list):
                return default if value is None else value
            return [value[0], *(tier[1] for tier in value[1:] if usage.input > tier[0])][-1]

        fresh = of("input", 0.0)
        wrote = of("cache_write", fresh)
        tokens = usage.fresh * fresh + usage.cache_read * of("cache_read", fresh) + (usage.cache_write - usage.cache_write_1h) * wrote
        return (tokens + usage.cache_write_1h * of("cache_write_1h", wrote) + usage.output * of("output", 0.0)) / 1e6 + of("per_1000_calls", 0.0) / 1000

    assert _checked(cost, price_list()) > 6000


def test_every_model_costs_what_genai_prices_says() -> None:
    package = pytest.importorskip("genai_prices", reason="the extra `prices` is not installed")
    from genai_prices.data import providers

    models = {(p.id, m.id.lower()): (p, m) for p in reversed(providers) for m in reversed(p.models)}

    def cost(provider: str, row: dict[str, Any], usage: Usage, at: float) -> float | None:
        found = models.get((provider, row["names"][0]))
        if found is None or usage.cache_write_1h > usage.cache_write:
            return None
        counts = {"input_tokens": usage.input, "output_tokens": usage.output, "cache_read_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write,
                  "cache_write_1h_tokens": usage.cache_write_1h}  # fmt: skip
        said = found[1].calc_price(package.Usage(**counts), found[0], genai_request_timestamp=datetime.fromtimestamp(at, UTC))
        return float(said.total_price)

    assert _checked(cost, price_table()) > 6000
