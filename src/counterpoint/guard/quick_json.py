"""JSON by the C code of the standard library's `json`, without the Python around it, which loads `re` and `enum`.

Importing `json` costs a quarter of a call of the hook; reading and writing are the same code either way. Where this Python's
`_json` is not there or not as expected, it is `json` itself.

Always true: `loads` and `dumps` give what those of `json` give; what is not JSON is a ValueError.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_BLANK = " \t\n\r"


class _Rules:
    """What the scanner of `json` asks its decoder for."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int = float, int
    parse_constant = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}.__getitem__

    def __init__(self) -> None:
        self.memo: dict[str, str] = {}


def _refused(value: Any) -> Any:
    raise TypeError(f"a {type(value).__name__} is not JSON")


def _codec() -> tuple[Callable[[str | bytes], Any], Callable[..., str]]:
    import _json

    scan: Any = _json.make_scanner(_Rules())  # type: ignore[arg-type]
    encoders = {
        is_sorted: _json.make_encoder(None, _refused, _json.encode_basestring_ascii, None, ":", ",", is_sorted, False, True)
        for is_sorted in (False, True)
    }

    def loads(text: str | bytes) -> Any:
        text = text.decode() if isinstance(text, bytes) else text
        begin = len(text) - len(text.lstrip(_BLANK))
        try:
            value, end = scan(text, begin)
        except StopIteration:
            raise ValueError("no JSON begins here") from None
        except SystemError:  # what is wrong is told by an exception of `json`, which the C code does not import itself
            import json

            return json.loads(text)
        if text[end:].strip(_BLANK):
            raise ValueError(f"something stands behind the JSON, at character {end}")
        return value

    def dumps(value: Any, *, sort_keys: bool = False) -> str:
        return "".join(encoders[sort_keys](value, 0))

    tried = '{"b":[1,2.5,true,null,"\\u00e9\\n"],"a":{}}'
    if dumps(loads(tried)) != tried or dumps(loads(tried.encode()), sort_keys=True)[:8] != '{"a":{},':
        raise ImportError("not as expected")
    return loads, dumps


def _whole() -> tuple[Callable[[str | bytes], Any], Callable[..., str]]:
    import json

    def dumps(value: Any, *, sort_keys: bool = False) -> str:
        return json.dumps(value, sort_keys=sort_keys, separators=(",", ":"))

    return json.loads, dumps


try:
    loads, dumps = _codec()
except Exception:  # another Python: slower, and the same
    loads, dumps = _whole()
