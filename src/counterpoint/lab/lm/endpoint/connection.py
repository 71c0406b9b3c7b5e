"""Connections to an endpoint, by the client library of OpenAI.

Always true: nothing is sent before the first request; where there is no TLS nobody may send us elsewhere; a proxy is used for no
endpoint of this machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from counterpoint.errors import InputError, install
from counterpoint.lab.lm.endpoint.address import Address, key_of

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_CONNECT_S = 10.0


def client_library() -> Any:
    """The package `openai`."""
    try:
        import openai
    except ImportError:
        fix = install("live")
    else:
        return openai
    raise InputError("the openai client is not installed", fix=fix)


def open_client(address: Address, key_env: str | None, timeout_s: float) -> AsyncOpenAI:
    """A client that tries a request once; it belongs to the event loop in which it is used."""
    openai = client_library()
    timeout = openai.Timeout(timeout_s, connect=min(_CONNECT_S, timeout_s), pool=None)
    absent: Any = openai.Omit()
    is_safe = not address.is_plain  # otherwise there is nothing to verify, and nobody may send us elsewhere
    transport = openai.DefaultAsyncHttpxClient(
        timeout=timeout, trust_env=not address.is_local, verify=is_safe, follow_redirects=is_safe
    )
    client: AsyncOpenAI = openai.AsyncOpenAI(
        api_key=key_of(address, key_env),
        base_url=address.url,
        max_retries=0,
        timeout=timeout,
        default_query=dict(address.query) or None,
        default_headers=None if address.is_vendor else {"OpenAI-Organization": absent, "OpenAI-Project": absent},
        http_client=transport,
    )
    return client
