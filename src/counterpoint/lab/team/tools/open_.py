"""`open`: one document by its id, whole.

Always true: the answer is `ID | title` and below it the text as it stands; an id that is none is refused with the nearest ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from counterpoint.lab.tasks.task import Instance
from counterpoint.lab.team.tool import Effect, Place, ToolResult, fingerprint


class open_:
    """The tool `open` over an instance's documents."""

    name = "open"
    effect: Effect = "pure"
    about = "shows one document; argument: its ID"
    main = "id"
    example: Mapping[str, Any] = {"id": "D-1"}

    def __init__(self, instance: Instance) -> None:
        self._documents = {document.id: document for document in instance.documents}
        self._traps = {planted.file for planted in instance.planted if planted.file}
        self.version = f"1-{fingerprint(instance.documents)}"
        self.arguments: Mapping[str, Any] = {
            "type": "object",
            "properties": {"id": {"type": "string", "minLength": 1}},
            "required": ["id"],
            "additionalProperties": False,
        }

    async def call(self, args: Mapping[str, Any], place: Place) -> ToolResult:
        """The document of that id; case and the space around it do not matter where one id fits."""
        wanted = args["id"].strip()
        document = self._documents.get(wanted)
        if document is None:
            alike = [found for id_, found in self._documents.items() if id_.casefold() == wanted.casefold()]
            document = alike[0] if len(alike) == 1 else None
        if document is None:
            near = get_close_matches(wanted, sorted(self._documents), n=3, cutoff=0.4)
            text = f"no document {wanted[:80]!r}" + (f"; nearest: {', '.join(near)}" if near else "")
            extra = {"touched": [wanted]} if wanted in self._traps else {}
            return ToolResult(text, ok=False, error="not found", extra=extra)
        title = " ".join(document.title.split())
        return ToolResult(f"{document.id} | {title}\n{document.text}", extra={"documents": [document.id]})

    async def close(self) -> None:
        """Nothing is held."""
