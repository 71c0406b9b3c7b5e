"""A scripted endpoint for tests: one function makes the answer from the request, in OpenAI's chat completions or Anthropic's
Messages API, by the path that is asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Calls = list[tuple[str, str]]
Script = Callable[[dict[str, Any]], tuple[str, Calls]]
"""From a request's body to the words of the answer and its calls, as (tool, arguments)."""


class ChatEndpoint:
    """Serves in a thread of its own from `with` to its end; `requests` and `headers` are what came."""

    def __init__(self, script: Script, *, refusal: tuple[int, dict[str, Any]] | None = None) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.requests.append(asked)
                endpoint.paths.append(self.path)
                endpoint.headers.append({name.lower(): value for name, value in self.headers.items()})
                status, body = refusal or (200, _answer(self.path, asked, *script(asked), len(endpoint.requests)))
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> ChatEndpoint:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


def _answer(path: str, asked: dict[str, Any], text: str, calls: Calls, number: int) -> dict[str, Any]:
    if path.endswith("/messages"):
        blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        blocks += [
            {"type": "tool_use", "id": f"toolu_{number}_{k}", "name": tool, "input": json.loads(arguments)}
            for k, (tool, arguments) in enumerate(calls)
        ]
        reason = "tool_use" if calls else "end_turn"
        usage = {"input_tokens": 100, "output_tokens": 10, "cache_read_input_tokens": 5}
        return {
            "type": "message",
            "role": "assistant",
            "model": asked["model"],
            "content": blocks,
            "stop_reason": reason,
            "usage": usage,
        }
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [
            {"id": f"call_{number}_{k}", "type": "function", "function": {"name": tool, "arguments": arguments}}
            for k, (tool, arguments) in enumerate(calls)
        ]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    return {"id": "c1", "object": "chat.completion", "model": asked["model"], "choices": [choice], "usage": usage}
