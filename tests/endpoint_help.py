"""`FaultServer`: a real HTTP server that speaks chat completions and can be told to fail, request by request.

    with FaultServer(answer, faults=["429", "cut"]) as server:
        ... server.url is the base URL; the first request gets a 429, the second is cut, all others are answered ...

`answer` makes the text from the messages (a dict of tool calls for `tools`). As a program: `python tests/endpoint_help.py --port
8000 --answer "STOP: 42" --faults 429,cut`. See `FAULTS` for what it can do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import socket
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

FAULTS = {
    "ok": "answers",
    "429": "too many requests", "429 after N": "with Retry-After in seconds", "429 ms N": "in milliseconds",
    "429 date": "as a date, 3 s later", "429 quota": "no credit left",
    "N": "any other status with an OpenAI-like error", "N TEXT": "with this text",
    "slow S": "answers after S seconds", "silent": "takes the request and says nothing", "stall": "falls silent in mid-stream",
    "drip": "sends nothing but signs of life", "hang up": "closes without a response",
    "cut": "breaks the connection in mid-stream", "cut clean": "ends the stream early without a word",
    "cut body": "sends less than it announced", "no done": "leaves out [DONE]", "after done": "stays open and silent after [DONE]",
    "wrong json": "sends what is not JSON", "html": "sends a page", "list": "sends JSON that is no object",
    "empty": "an answer of no text", "blank": "an answer that begins with empty lines", "only reasoning": "reasons until the end",
    "filter": "a filter kept the answer back", "no choices": "a response without choices", "empty choices": "with none in the list",
    "no usage": "says no usage", "wrong usage": "says nonsense", "error inside": "200 with an error in it",
    "error inside TEXT": "with this text", "too long NAME": "as a server of TOO_LONG says it", "whole": "does not stream though asked",
    "odd": "one chunk per byte, comments, \\r\\n, characters that end lines elsewhere", "tools": "calls tools",
    "tools odd": "calls tools as Ollama does, arguments as objects", "no logprobs": "leaves them out", "part logprobs": "gives some",
    "vllm": "tells token ids where they are asked for", "sglang": "as SGLang does", "old sglang": "as it did", "sglext": "beside the choices",
    "short ids": "one id too few", "wrong ids": "ids that are none",
    "refuse NAMES": "400 when the request holds one of these, comma-separated", "flood": "never stops talking",
}  # fmt: skip

TOO_LONG: Mapping[str, tuple[int, Any]] = {
    "openai": (400, {"error": {"message": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.", "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}}),
    "vllm": (400, {"object": "error", "message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4872 in the messages, 128 in the completion). Please reduce the length of the messages or completion.", "type": "BadRequestError", "param": None, "code": 400}),
    "vllm new": (400, {"error": {"message": "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum context length is 4096 tokens and your request has 120 input tokens", "type": "BadRequestError", "param": None, "code": 400}}),
    "vllm prompt": (400, {"error": {"message": "The decoder prompt (length 5000) is longer than the maximum model length of 4096.", "code": 400}}),
    "sglang": (400, {"object": "error", "message": "The input (9000 tokens) is longer than the model's context length (8192 tokens).", "code": 400}),
    "sglang total": (400, {"object": "error", "message": "Requested token count exceeds the model's maximum context length of 8192 tokens.", "code": 400}),
    "llama.cpp": (400, {"error": {"code": 400, "message": "the request exceeds the available context size. try increasing the context size or enable context shift", "type": "exceed_context_size_error", "n_prompt_tokens": 9000, "n_ctx": 8192}}),
    "llama.cpp old": (500, {"error": {"code": 500, "message": "the request exceeds the available context size. try increasing the context size", "type": "server_error"}}),
    "ollama": (400, {"error": {"message": "input length exceeds the context length", "type": "api_error"}}),
    "tgi": (422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 128 `max_new_tokens`", "error_type": "validation"}),
    "mistral": (400, {"object": "error", "message": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length", "type": "invalid_request_prompt", "code": "3051"}),
    "anthropic": (400, {"error": {"code": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum", "type": "invalid_request_error"}}),
    "gemini": (400, [{"error": {"code": 400, "message": "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).", "status": "INVALID_ARGUMENT"}}]),
    "nginx": (413, "<html><head><title>413 Request Entity Too Large</title></head></html>"),
}  # fmt: skip

Answerer = Callable[[list[dict[str, Any]]], str]


class FaultServer:
    """Serves in a thread of its own from `with` to its end."""

    def __init__(
        self,
        answer: Answerer | str = "STOP: 42",
        *,
        faults: Iterable[str] = (),
        always: str = "ok",
        key: str | None = None,
        delay_s: float = 0.0,
        port: int = 0,
    ) -> None:
        """`faults` are for the first requests, one each; `always` for all others. With `key`, others are refused."""
        self._answer: Answerer = (lambda _: answer) if isinstance(answer, str) else answer
        self._faults, self.always, self._key, self._delay_s = list(faults), always, key, delay_s
        self.requests: list[dict[str, Any]] = []
        """The bodies, in the order in which they came."""
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.connections = 0
        self.at_once, self.most_at_once = 0, 0
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._ready, self._thread = threading.Event(), threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self._port}/v1"

    def __enter__(self) -> FaultServer:
        self._thread.start()
        assert self._ready.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._main())
        self._loop.close()

    async def _main(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._connection, "127.0.0.1", self._port, backlog=2048)
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- HTTP

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        path = head[0].split(" ")[1]
        if path.partition("?")[0] == "/v1/models":
            await _whole(writer, 200, {"object": "list", "data": [{"id": "fake", "object": "model"}]})
            return True
        if path.partition("?")[0] != "/v1/chat/completions":
            await _whole(writer, 404, {"error": {"message": f"no {path}"}})
            return True
        asked = json.loads(body)
        fault = self._faults.pop(0) if self._faults else self.always
        self.requests.append(asked)
        self.headers.append(headers)
        self.paths.append(path)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self._key is not None and headers.get("authorization") != f"Bearer {self._key}":
                said = f"Incorrect API key provided: {headers.get('authorization', '')[7:]}."
                await _whole(writer, 401, {"error": {"message": said, "code": "invalid_api_key"}})
                return True
            await asyncio.sleep(self._delay_s)
            return await self._respond(fault, asked, writer)
        finally:
            self.at_once -= 1

    async def _respond(self, fault: str, asked: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        word, _, rest = fault.partition(" ")
        if word == "refuse":
            names = [n for n in rest.split(",") if n in asked or (n == "system" and _has_system(asked))]
            if not names:
                return await self._respond("ok", asked, writer)
            said = "System role not supported" if names[0] == "system" else f"Unsupported parameter: '{names[0]}' is not supported with this model."
            await _whole(writer, 400, {"error": {"message": said, "type": "invalid_request_error", "param": None if names[0] == "system" else names[0]}})
            return True
        if fault.startswith("too long"):
            status, body = TOO_LONG[fault.removeprefix("too long").strip() or "openai"]
            await _whole(writer, status, body)
            return True
        if word.isdigit():
            await _status(writer, int(word), rest)
            return True
        if fault == "hang up":
            return False
        if fault == "silent":
            await asyncio.sleep(60)
            return False
        if word == "slow":
            await asyncio.sleep(float(rest))
        if asked.get("stream") and fault not in ("whole", "html", "list", "wrong body", "cut body"):
            return await self._stream(fault, asked, writer)
        await _odd_whole(writer, fault, self._completion(fault, asked))
        return fault != "cut body"

    # ---- what it says

    def _said(self, fault: str, asked: dict[str, Any]) -> tuple[list[str], str]:
        """The tokens of the answer, and why it ends."""
        text = "" if fault in ("empty", "only reasoning", "filter") or fault.startswith("tools") else self._answer(asked["messages"])
        if fault == "blank":
            text = "\n\n" + text + "\nand more"
        if fault == "odd":
            text = "  \x85" + text
        finish = "length" if fault == "only reasoning" else "content_filter" if fault == "filter" else "stop"
        stops = asked.get("stop") or []
        ends = [at for stop in ([stops] if isinstance(stops, str) else stops) if (at := text.find(stop)) >= 0]
        text = text[: min(ends, default=len(text))]
        tokens = re.findall(r"\s*\S+|\s+$", text)
        most = asked.get("max_tokens") or asked.get("max_completion_tokens") or 128
        if len(tokens) > most:
            tokens, finish = tokens[:most], "length"
        return tokens, "tool_calls" if fault.startswith("tools") else finish

    def _usage(self, fault: str, asked: dict[str, Any], tokens: list[str]) -> dict[str, Any] | None:
        if fault == "no usage":
            return None
        if fault == "wrong usage":
            return {"prompt_tokens": -5, "completion_tokens": "many", "total_tokens": None, "prompt_tokens_details": 7}
        said = sum(len(str(m.get("content") or "").split()) + 4 for m in asked["messages"])
        return {"prompt_tokens": said, "completion_tokens": len(tokens) or 1, "total_tokens": said + (len(tokens) or 1)}

    def _completion(self, fault: str, asked: dict[str, Any]) -> dict[str, Any]:
        tokens, finish = self._said(fault, asked)
        message: dict[str, Any] = {"role": "assistant", "content": "".join(tokens)}
        if fault == "only reasoning":
            message["reasoning_content"] = "hmm " * 10
        if fault.startswith("tools"):
            message |= {"content": None, "tool_calls": _tool_calls(fault)}
        choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": _logprobs(fault, asked, tokens)}
        usage = self._usage(fault, asked, tokens)
        whole = {"id": "c1", "object": "chat.completion", "model": asked["model"], "choices": [choice]} | ({"usage": usage} if usage else {})
        return _with_ids(fault, asked, whole, tokens)

    async def _stream(self, fault: str, asked: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        tokens, finish = self._said(fault, asked)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n")
        if fault == "drip":
            return await _drip(writer)
        if fault == "flood":
            tokens = ["x" * 60_000] * 1500
        if fault == "only reasoning":
            _send(writer, asked, {"reasoning_content": "hmm " * 10})
        for k, token in enumerate(tokens):
            extra = {"logprobs": _logprobs(fault if k else "ok", asked, [token])}
            _send(writer, asked, {"content": token}, extra, is_odd=fault == "odd")
            if fault == "flood":
                await writer.drain()
            if fault in ("cut", "cut clean", "stall", "wrong json") or fault.startswith("error inside"):
                return await _break(writer, fault)
        if not tokens and (fault == "wrong json" or fault.startswith("error inside")):
            return await _break(writer, fault)
        if fault.startswith("tools"):
            for part in _tool_chunks(fault):
                _send(writer, asked, {"tool_calls": part})
        if fault in ("no choices", "empty choices"):
            return await _no_choices(writer, fault)
        _send(writer, asked, {}, {"finish_reason": finish})
        if (asked.get("stream_options") or {}).get("include_usage"):
            usage = self._usage(fault, asked, tokens)
            _event(writer, {"model": asked["model"], "choices": [], **({"usage": usage} if usage else {})})
        if fault != "no done":
            _chunk(writer, b"data: [DONE]\n\n")
        await writer.drain()
        if fault == "after done":
            await asyncio.sleep(60)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


def closed_port() -> str:
    """The base URL of an endpoint that is down: a port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"


def _has_system(asked: dict[str, Any]) -> bool:
    return any(m["role"] == "system" for m in asked["messages"])


def _logprobs(fault: str, asked: dict[str, Any], tokens: list[str]) -> dict[str, Any] | None:
    if not asked.get("logprobs") or fault in ("no logprobs", "part logprobs"):
        return None
    return {"content": [{"token": t, "logprob": -0.125 * len(t), "bytes": list(t.encode()), "top_logprobs": []} for t in tokens]}


def ids_of(texts: Iterable[str]) -> list[int]:
    """The token ids of this server's tokenizer."""
    return [zlib.crc32(text.encode()) % 50_000 for text in texts]


def prompt_ids_of(asked: dict[str, Any]) -> list[int]:
    """The token ids of a prompt."""
    return ids_of(word for m in asked["messages"] for word in (f"<{m['role']}>", *str(m["content"]).split()))


def _with_ids(fault: str, asked: dict[str, Any], whole: dict[str, Any], tokens: list[str]) -> dict[str, Any]:
    """Token ids as the servers give them where they are asked for: vLLM, SGLang, an older SGLang, SGLang's extension."""
    choice, read, said = whole["choices"][0], prompt_ids_of(asked), ids_of(tokens)
    if fault in ("vllm", "short ids") and asked.get("return_token_ids"):
        choice["token_ids"] = said[:-1] if fault == "short ids" else said
        return whole | {"prompt_token_ids": read}
    if fault == "sglang" and asked.get("return_token_ids"):
        choice |= {"token_ids": said, "prompt_token_ids": read}
    if fault == "old sglang" and asked.get("return_meta_info") and asked.get("return_prompt_token_ids"):
        logps = [row["logprob"] for row in choice["logprobs"]["content"]]
        choice["meta_info"] = {"output_token_logprobs": [list(row) for row in zip(logps, said, tokens, strict=True)]}
        choice["prompt_token_ids"] = read
    if fault == "sglext":
        whole["sglext"] = {"input_ids": read, "output_ids": [said]}
    if fault == "wrong ids":
        choice["token_ids"] = ["a", -1]
        whole["prompt_token_ids"] = {"not": "a list"}
    return whole


def _tool_calls(fault: str) -> list[dict[str, Any]]:
    given: list[Any] = [{"q": "a b"}, {}]
    arguments = given if fault == "tools odd" else [json.dumps(g) for g in given]
    names = ("search", "notes")
    return [{"id": f"t{k}", "type": "function", "function": {"name": names[k], "arguments": arguments[k]}} for k in range(2)]


def _tool_chunks(fault: str) -> list[list[dict[str, Any]]]:
    if fault == "tools odd":
        return [[call] for call in _tool_calls(fault)]
    parts: list[list[dict[str, Any]]] = []
    for k, call in enumerate(_tool_calls(fault)):
        text = call["function"]["arguments"]
        parts.append([{"index": k, "id": call["id"], "type": "function", "function": {"name": call["function"]["name"], "arguments": ""}}])
        parts += [[{"index": k, "function": {"arguments": text[:2]}}], [{"index": k, "function": {"arguments": text[2:]}}]]
    return parts


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


def _event(writer: asyncio.StreamWriter, data: Any, *, is_odd: bool = False) -> None:
    text = json.dumps(data, ensure_ascii=False).encode()
    if not is_odd:
        _chunk(writer, b"data: " + text + b"\n\n")
        return
    for byte in b": alive\r\n\r\nevent: x\r\ndata:" + text + b"\r\n\r\n":
        _chunk(writer, bytes([byte]))


def _send(writer: asyncio.StreamWriter, asked: dict[str, Any], delta: dict[str, Any], extra: dict[str, Any] | None = None, *, is_odd: bool = False) -> None:
    choice = {"index": 0, "delta": delta, "finish_reason": None, **(extra or {})}
    _event(writer, {"id": "c1", "object": "chat.completion.chunk", "model": asked["model"], "choices": [choice]}, is_odd=is_odd)


async def _break(writer: asyncio.StreamWriter, fault: str) -> bool:
    """What goes wrong after the first token."""
    await writer.drain()
    if fault == "stall":
        await asyncio.sleep(60)
    elif fault == "wrong json":
        _chunk(writer, b'data: {"choices": [{"delta": \n\ndata: [DONE]\n\n')
        writer.write(b"0\r\n\r\n")
    elif fault == "cut clean":
        writer.write(b"0\r\n\r\n")
    elif fault.startswith("error inside"):
        said = fault.removeprefix("error inside").strip() or "the engine died"
        _event(writer, {"error": {"message": said, "type": "InternalServerError", "code": 400 if "context" in said else 500}})
        writer.write(b"0\r\n\r\n")
    await writer.drain()
    return fault not in ("cut", "stall")


async def _drip(writer: asyncio.StreamWriter) -> bool:
    for _ in range(6000):
        _chunk(writer, b": alive\n\n")
        await writer.drain()
        await asyncio.sleep(0.01)
    return False


async def _no_choices(writer: asyncio.StreamWriter, fault: str) -> bool:
    _event(writer, {"id": "c1"} if fault == "no choices" else {"id": "c1", "choices": []})
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True


async def _status(writer: asyncio.StreamWriter, status: int, rest: str) -> None:
    headers = {"Date": "Wed, 21 Oct 2026 07:28:00 GMT"}
    word, _, number = rest.partition(" ")
    if rest == "quota":
        body: Any = {"error": {"message": "You exceeded your current quota", "type": "insufficient_quota", "code": "insufficient_quota"}}
        await _whole(writer, status, body)
        return
    if word == "after":
        headers["Retry-After"] = number
    elif word == "ms":
        headers["Retry-After-Ms"] = number
    elif rest == "date":
        headers["Retry-After"] = "Wed, 21 Oct 2026 07:28:03 GMT"
    said = rest if rest and word not in ("after", "ms", "date") else f"error {status}"
    await _whole(writer, status, {"error": {"message": said, "type": "error", "code": None}}, headers)


async def _odd_whole(writer: asyncio.StreamWriter, fault: str, body: dict[str, Any]) -> None:
    if fault == "no choices":
        del body["choices"]
    elif fault == "empty choices":
        body["choices"] = []
    elif fault.startswith("error inside"):
        body = {"error": fault.removeprefix("error inside").strip() or "the engine died"}
    given: Any = body
    if fault == "wrong json":
        given = '{"choices": [{"mess'
    elif fault == "html":
        given = "<!DOCTYPE html><html><body>Log in to the hotel network</body></html>"
    elif fault == "list":
        given = [1, 2]
    await _whole(writer, 200, given, cut=fault in ("cut", "cut body"))


async def _whole(writer: asyncio.StreamWriter, status: int, body: Any, headers: Mapping[str, str] | None = None, *, cut: bool = False) -> None:
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    kind = "text/html" if isinstance(body, str) and body.startswith("<") else "application/json"
    lines = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", f"Content-Length: {len(data)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    writer.write("\r\n".join([*lines, "", ""]).encode() + (data[: len(data) // 2] if cut else data))
    await writer.drain()


def main() -> None:
    """Serve until interrupted; prints the base URL."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--answer", default="STOP: 42", help="the text, or module:function from the messages to the text")
    parser.add_argument("--faults", default="", help="comma-separated, for the first requests: " + "; ".join(FAULTS))
    parser.add_argument("--always", default="ok")
    given = parser.parse_args()
    answer: Any = given.answer
    if re.fullmatch(r"[\w.]+:\w+", given.answer):
        import importlib

        module, _, name = given.answer.partition(":")
        answer = getattr(importlib.import_module(module), name)
    faults = [f.strip() for f in given.faults.split(",") if f.strip()]
    with FaultServer(answer, faults=faults, always=given.always, port=given.port) as server:
        print(server.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
