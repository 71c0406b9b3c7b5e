"""Names of models as logs write them, and the names that a price list has for them.

A name is looked up exactly. Before, it is written in one way: in lower case, without `[1m]`, with a dash for the dot between
two digits (claude-sonnet-4.5). Where the list does not have it so, it is tried without the day of its version (-20250929,
-2025-09-29, @20250929, -latest) and without Bedrock's -v1:0, then as a preview (-preview). No name is ever taken for another
that it begins with.

What stands before a name says whose price it is: `groq/`, `bedrock/`, `vertex_ai/` and other ids of providers, Bedrock's
regions and vendors (us.anthropic.), `models/`. A name of the form `vendor/model`, in lower case, is OpenRouter's. A name alone
is its maker's, and where no maker is in the list, OpenRouter's, if one vendor there has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

MAKERS = (
    "anthropic", "openai", "google", "x-ai", "deepseek", "mistral", "cohere", "moonshotai", "zai", "zhipuai", "minimax", "meta",
    "perplexity", "voyageai", "elevenlabs",
)  # fmt: skip
"""Providers whose prices are those of a name alone, in this order."""
OPENROUTER, BEDROCK = "openrouter", "aws"
ALIASES = {
    "bedrock": "aws", "bedrock_converse": "aws", "amazon-bedrock": "aws", "vertex_ai": "google", "vertex": "google",
    "gemini": "google", "google-vertex": "google", "google_genai": "google", "google-gla": "google",
    "google-vertex-anthropic": "google", "models": "google", "xai": "x-ai", "azure_ai": "azure", "azure-openai": "azure",
    "azure_openai": "azure", "together_ai": "together", "togetherai": "together", "fireworks_ai": "fireworks",
    "mistralai": "mistral", "moonshot": "moonshotai", "z-ai": "zai", "zhipu": "zhipuai", "copilot": "github-copilot",
    "github_copilot": "github-copilot", "cohere_chat": "cohere", "openai-chat": "openai", "openai-responses": "openai",
    "chatgpt": "openai", "codex": "openai",
}  # fmt: skip
"""Other names of providers."""
PROVIDERS = frozenset(
    {*MAKERS, *ALIASES, *ALIASES.values(), OPENROUTER, BEDROCK, "azure", "groq", "together", "fireworks", "cerebras", "novita"}
)
"""What may stand before the name of a model in a price file of one's own."""
_DOT = re.compile(r"(?<=\d)\.(?=\d)")
_LONG = re.compile(r"\[[^\[\]]{0,12}\]\Z")
_DAY = re.compile(
    r"(?:[-@]20\d{6}|[-@]20\d\d-\d\d-\d\d|[-@:]latest|@default)(?:-v\d{1,2})?(?=\Z|:)|-v\d{1,2}:\d{1,2}\Z|(?<=\d):\d{1,2}\Z"
)
_REGION = re.compile(r"(?:us-gov|us|eu|apac|global|jp|au|ca|sa|af|me)\.(?=[a-z0-9-]+\.)")
_VENDOR = re.compile(
    r"(?P<vendor>anthropic|openai|meta|mistral|cohere|deepseek|qwen|amazon|ai21|moonshotai?|minimax|google|nvidia|zai|writer|st"
    r"ability)\."
)
_PREVIEW = "-preview"


def canonical_name(name: str) -> str:
    """A name in the one way that names are compared in."""
    return _DOT.sub("-", _LONG.sub("", name.strip().lower()).strip())


def undated(name: str) -> str:
    """A canonical name without the day of its version."""
    before = None
    while before != name:
        before, name = name, _DAY.sub("", name)
    return name


def spellings(name: str) -> Iterator[str]:
    """A canonical name, then the names that it may have in a list."""
    yield name
    bare = undated(name)
    if bare != name:
        yield bare
    if not bare.endswith(_PREVIEW):
        yield bare + _PREVIEW


def places(model: str, providers: frozenset[str]) -> Iterator[tuple[str | None, str]]:
    """The providers in whose lists a model may stand, in order, each with its name there; None stands for its maker."""
    name = _LONG.sub("", model.strip()).strip()
    head, slash, rest = name.partition("/")
    named = ALIASES.get(head.lower(), head.lower())
    if name.lower().startswith("accounts/fireworks/models/"):
        yield "fireworks", name.rpartition("/")[2]
    elif slash and named in providers:
        yield named, rest
        yield from (
            places(rest, providers)
            if named not in (OPENROUTER, *MAKERS)
            else ((None, rest.rpartition("/")[2]),)
            if named in MAKERS
            else ()
        )
    elif slash:
        if name == name.lower():
            yield OPENROUTER, name
    elif _VENDOR.match(_REGION.sub("", name.lower())):
        plain = _REGION.sub("", name.lower())
        yield BEDROCK, name
        yield BEDROCK, plain
        yield None, _VENDOR.sub("", plain, count=1)
    else:
        yield None, name
