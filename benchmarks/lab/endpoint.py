"""Throughput through the endpoint beside the engine's own, on the same load: 256 callers, each with one call after the other.

Always true: both answer the same prompts with the same seeds, so they write the same tokens; the callers are another process,
which speaks plain HTTP and reads whole answers. What counts is CPU time of the server's process, engine included, so that other
load changes nothing: the price is HTTP, JSON, the chat template, the texts of tokens. On a GPU nothing was measured.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from _timing import arguments, report, row

from counterpoint.app.http_server import listening_socket
from counterpoint.lab.app import model_server
from counterpoint.lab.lm.engine import Ask
from counterpoint.lab.lm.model import Message
from counterpoint.lab.lm.models.local import local
from counterpoint.lab.lm.serving.backend import EngineBackend
from tiny_help import make_tiny

TARGET = 0.8
_CALLERS = 256
_SIZES = {"tiny, 32 wide, 2 layers": (32, 2), "384 wide, 12 layers": (384, 12), "768 wide, 30 layers": (768, 30)}
"""The last one has the layers of SmolLM2-135M and a little more work in each, and words of its own in place of its vocabulary."""


def _calls(callers: int, rounds: int, most: int) -> list[list[dict[str, Any]]]:
    """Each caller's requests."""
    head = "You are a worker in a team. " * 4

    def body(caller: int, turn: int) -> dict[str, Any]:
        words = f"Part {caller} of {callers}, turn {turn}: say what you find."
        messages = [{"role": "system", "content": head}, {"role": "user", "content": words}]
        return {"model": "tiny", "messages": messages, "max_tokens": most, "seed": caller * rounds + turn}

    return [[body(caller, turn) for turn in range(rounds)] for caller in range(callers)]


def _prompt(chat: Any, body: dict[str, Any]) -> list[int]:
    return list(chat.prompt([Message(m["role"], m["content"]) for m in body["messages"]]))


def _engine_alone(engines: Any, chat: Any, calls: list[list[dict[str, Any]]]) -> tuple[float, int]:
    """CPU seconds and tokens of the engine, asked directly."""
    turns = [
        deque(Ask(prompt=_prompt(chat, body), most=body["max_tokens"], seed=body["seed"]) for body in mine) for mine in calls
    ]
    begin, tokens = time.process_time(), 0
    owner = {engines.add(mine.popleft()): mine for mine in turns}
    while engines.is_busy:
        for ticket, answer in engines.step():
            tokens += len(answer.token_ids)
            mine = owner.pop(ticket)
            if mine:
                owner[engines.add(mine.popleft())] = mine
    return time.process_time() - begin, tokens


def _forget(engines: Any) -> None:
    for engine in engines.engines.values():
        engine.slots.clear()


async def _caller(port: int, bodies: list[bytes]) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    tokens = 0
    for body in bodies:
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        tokens += json.loads(await reader.readexactly(length))["usage"]["completion_tokens"]
    writer.close()
    return tokens


def _callers(port: int, calls: list[list[dict[str, Any]]], pipe: Any) -> None:
    """The other process: tokens of all callers together."""
    bodies = [[json.dumps(body).encode() for body in mine] for mine in calls]

    async def run() -> int:
        return sum(await asyncio.gather(*(_caller(port, mine) for mine in bodies)))

    pipe.recv()
    pipe.send(asyncio.run(run()))


def _through_endpoint(port: int, calls: list[list[dict[str, Any]]]) -> tuple[float, int]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_callers, args=(port, calls, theirs))
    process.start()
    theirs.close()
    ours.send(None)  # not before it has loaded
    begin = time.process_time()
    tokens = ours.recv()
    seconds = time.process_time() - begin
    process.join()
    return seconds, tokens


def _measured(folder: Path, calls: list[list[dict[str, Any]]], repeats: int) -> tuple[float, float]:
    """Tokens per CPU second of the engine alone and through the endpoint: medians, taking turns."""
    model, is_ready = local(str(folder), batch=_CALLERS), threading.Event()
    backend = EngineBackend(model.thread, "tiny")
    sock = listening_socket("127.0.0.1", 0)
    server = model_server.server(backend, on_ready=is_ready.set)
    serving = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    serving.start()
    is_ready.wait()
    alone, through = list[float](), list[float]()
    for turn in range(repeats + 1):
        done: list[tuple[float, int]] = []

        def measure(engines: Any, done: list[tuple[float, int]] = done) -> None:
            _forget(engines)
            done.append(_engine_alone(engines, model.thread.chat, calls))
            _forget(engines)

        model.thread.between(measure).result()
        seconds, tokens = _through_endpoint(sock.getsockname()[1], calls)
        assert tokens == done[0][1], "the same load"
        if turn:
            alone.append(done[0][1] / done[0][0])
            through.append(tokens / seconds)
    server.should_exit = True
    serving.join()
    asyncio.run(model.close())
    return sorted(alone)[len(alone) // 2], sorted(through)[len(through) // 2]


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__)
    torch.set_num_threads(1)
    rows = []
    for name, (width, layers) in list(_SIZES.items())[: 2 if options.quick else None]:
        with tempfile.TemporaryDirectory() as base:
            folder = make_tiny(Path(base) / "tiny", width=width, layers=layers, context=1024)
            alone, through = _measured(folder, _calls(_CALLERS, 2, 32), 1 if options.quick or width > 500 else 3)
        target = TARGET if width > 32 else None
        rows.append(row(name, through, alone, "tokens/CPU s", target=target, is_rate=True))
    report("256 callers through the endpoint (ours), and the engine alone (peer)", rows, as_json=options.json)


if __name__ == "__main__":
    main()
