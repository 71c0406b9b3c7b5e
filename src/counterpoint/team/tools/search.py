"""`search`: the documents that a few words are about, best first, by BM25.

Always true: one line `ID | title | snippet` per hit and nothing else, ties by id; the same words give the same lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from counterpoint.envs.task import Instance
from counterpoint.team._fingerprint import fingerprint
from counterpoint.team.bm25 import index_of
from counterpoint.team.tool import Effect, Place, ToolResult


class search:
    """The tool `search` over an instance's documents."""

    name = "search"
    effect: Effect = "pure"
    about = "finds documents by words; argument: the words. Answers lines: ID | title | snippet"
    main = "query"

    def __init__(self, instance: Instance, *, hits: int = 5, snippet: int = 120) -> None:
        """`hits`: how many lines unless the call says; `snippet`: how many characters of text a line shows."""
        self._documents, self._hits, self._snippet = instance.documents, hits, snippet
        self.version = f"1-{fingerprint(instance.documents, hits, snippet)}"
        self.arguments: Mapping[str, Any] = {
            "type": "object",
            "properties": {"query": {"type": "string", "minLength": 1}, "k": {"type": "integer", "minimum": 1, "maximum": 50}},
            "required": ["query"],
            "additionalProperties": False,
        }

    async def call(self, args: Mapping[str, Any], place: Place) -> ToolResult:
        """Search; a query that matches nothing is answered, not refused."""
        index, query = index_of(self._documents), args["query"]
        hits = index.search(query, args.get("k", self._hits))
        if not hits:
            return ToolResult("no document matches", extra={"documents": []})
        lines = [
            " | ".join((hit.document.id, " ".join(hit.document.title.split()), index.snippet(query, hit.document, self._snippet)))
            for hit in hits
        ]
        return ToolResult("\n".join(lines), extra={"documents": [hit.document.id for hit in hits]})

    async def close(self) -> None:
        """Nothing is held."""
