"""The log of changes that a chat session of VS Code is kept as: a first state, then values set, pushed and deleted.

| kind | change |
|---|---|
| 0 | the state is `v` |
| 1 | what lies at the path `k` is `v` |
| 2 | the list at `k` is cut to length `i`, where one is given, and `v` is added to it |
| 3 | what lies at `k` is gone |

Always true: a change of something that is not there changes nothing.
"""

from __future__ import annotations

from typing import Any

from counterpoint.formats.importing.values import as_dict, as_list, count

_INITIAL, _SET, _PUSH, _DELETE = 0, 1, 2, 3


class Changes:
    """The state after some changes, and the token counts that a request had on the way."""

    def __init__(self) -> None:
        self.state: Any = {}
        self.tokens: dict[int, list[tuple[int, int]]] = {}
        """Request number to prompt and completion tokens of each model call that the log shows; the latter sum up."""

    def apply(self, record: dict[str, Any]) -> bool:
        """Apply a change; False where there is nothing to change."""
        kind, path, value = record.get("kind"), as_list(record.get("k")), record.get("v")
        if kind == _INITIAL:
            self.state = value
            for k, request in enumerate(as_list(as_dict(value).get("requests"))):
                self._note(k, as_dict(request), "completionTokens")
            return isinstance(value, dict)
        *before, last = path or [None]
        place = self._at(before)
        if kind == _PUSH:
            return self._push(path, record)
        if isinstance(place, dict) and isinstance(last, str):
            if kind == _SET:
                place[last] = value
            elif kind == _DELETE:
                place.pop(last, None)
        elif isinstance(place, list) and isinstance(last, int) and 0 <= last < len(place):
            if kind == _SET:
                place[last] = value
            elif kind == _DELETE:
                del place[last]
        else:
            return False
        if len(path) == 3 and path[0] == "requests" and isinstance(path[1], int) and kind == _SET:
            self._note(path[1], as_dict(place), str(last))
        return kind in (_SET, _DELETE)

    def _push(self, path: list[Any], record: dict[str, Any]) -> bool:
        rows = self._at(path)
        if rows is None and path and isinstance(path[-1], str) and isinstance(owner := self._at(path[:-1]), dict):
            rows = owner[path[-1]] = []
        if not isinstance(rows, list):
            return False
        cut = count(record.get("i"))
        if cut is not None:
            del rows[cut:]
        first = len(rows)
        rows += as_list(record.get("v"))
        if path == ["requests"]:
            for k, request in enumerate(rows[first:], first):
                self.tokens.pop(k, None)
                self._note(k, as_dict(request), "completionTokens")
        return True

    def _at(self, path: list[Any]) -> Any:
        value = self.state
        for key in path:
            if isinstance(value, dict) and isinstance(key, str):
                value = value.get(key)
            elif isinstance(value, list) and isinstance(key, int) and 0 <= key < len(value):
                value = value[key]
            else:
                return None
        return value

    def _note(self, k: int, request: dict[str, Any], changed: str) -> None:
        """The counts of a request after one of them changed: a larger completion is another call, which has its own prompt."""
        prompt, out = count(request.get("promptTokens")), count(request.get("completionTokens"))
        seen = self.tokens.setdefault(k, [])
        if changed == "completionTokens" and out is not None and (not seen or out != seen[-1][1]):
            seen.append((prompt or 0, out))
        elif changed == "promptTokens" and seen and prompt is not None:
            seen[-1] = prompt, seen[-1][1]
