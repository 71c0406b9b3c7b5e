"""Where an endpoint is and with which key it is asked: from the base URL and the environment.

Always true: a key comes from the environment, when a client opens, and stays nowhere else. `public_url` has no user, password or
query. Over plain http only a key is sent whose variable the caller named: the vendor's key in OPENAI_API_KEY, which is there for
other programs, does not go to whatever answers on a port. An endpoint on this machine is asked directly, without a proxy.
"""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from counterpoint.errors import InputError

KEY_ENV = "OPENAI_API_KEY"
_VENDOR = "https://api.openai.com/v1"
_NO_KEY = "no-key"
"""What the client sends where there is no key; it insists on one."""


@dataclass(frozen=True)
class Address:
    """A base URL, taken apart."""

    url: str = field(repr=False)
    """As it is asked, with user and password, without the query."""
    public_url: str
    """The URL for people to read."""
    query: tuple[tuple[str, str], ...] = field(repr=False)
    is_local: bool
    is_plain: bool
    """Plain http: everybody on the way can read it."""
    secrets: tuple[str, ...] = field(repr=False)

    @property
    def is_vendor(self) -> bool:
        """The one whose organisation and project headers the client knows."""
        return self.public_url.startswith("https://api.openai.com/")


def address_of(base_url: str | None) -> Address:
    """The endpoint that is meant: the one given, or OPENAI_BASE_URL, or OpenAI's.

    A trace keeps the public URL alone; where OPENAI_BASE_URL names the same endpoint, its user, password and query apply.
    """
    named = os.environ.get("OPENAI_BASE_URL")
    address = _parsed(base_url or named or _VENDOR)
    if base_url and named and address.url == address.public_url and not address.query:
        try:
            full = _parsed(named)
        except InputError:  # it is for other programs
            return address
        return full if full.public_url == address.public_url else address
    return address


def public_url(base_url: str) -> str:
    """A base URL to store and show: without user, password and query."""
    return _parsed(base_url).public_url


def _parsed(base_url: str) -> Address:
    base_url = base_url.strip()
    fix = "write it like http://127.0.0.1:8000/v1"
    try:
        parts = urlsplit(base_url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host or not host.isprintable() or " " in host:
        raise InputError("the base URL is not an http address", fix=fix)
    name = f"[{host}]" if ":" in host else host
    where = name if port is None else f"{name}:{port}"
    path = parts.path.rstrip("/").removesuffix("/chat/completions")
    user = parts.netloc.rpartition("@")[0]
    query = tuple(parse_qsl(parts.query, keep_blank_values=True))
    texts = [unquote(parts.password or ""), parts.password or "", *(value for _, value in query)]
    return Address(
        url=urlunsplit((parts.scheme, f"{user}@{where}" if user else where, path, "", "")),
        public_url=urlunsplit((parts.scheme, where, path, "", "")),
        query=query,
        is_local=_is_local(host),
        is_plain=parts.scheme == "http",
        secrets=tuple(text for text in texts if text),
    )


def key_of(address: Address, key_env: str | None) -> str:
    """The key to ask with; `key_env` names its variable, None stands for OPENAI_API_KEY, "" for no key at all."""
    name = KEY_ENV if key_env is None else key_env
    if name == "" or (key_env is None and address.is_plain):
        return _NO_KEY
    key = os.environ.get(name, "").strip()
    if not key and not address.is_local and not address.is_plain and "@" not in address.url:
        fix = f"export {name}=..., or give an empty key_env where none is needed"
        raise InputError(f"no key for {address.public_url}", why=f"{name} is not set", fix=fix)
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise InputError(f"the key in {name} has characters that a key cannot have", fix="copy it again")
    return key or _NO_KEY


def _is_local(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
