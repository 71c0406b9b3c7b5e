"""A stand-in for a model: an OpenAI-compatible endpoint on this machine that plays the bench's tasks from what it is sent.

    python examples/bench/endpoint.py counterpoint bench run short --team examples/bench/langgraph_team.py:team

It serves while the command runs, which finds it by OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL, as it would find a real
one. With `--skill 0.8` a step goes wrong with chance 0.2. It knows how the papers of the tasks are worded and no answer: an
agent learns from it what a careful reader of the same messages would.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from counterpoint.lab.tasks import grammar
from counterpoint.lab.tasks.task import Act, Choice, View, ViewItem, task

ABOUT = {  # words of a question, and the task that it is
    "ledger_hunt": "contracts that are worth", "sql_audit": "in the policy's highest version", "module_dag": "Python function",
    "split_evidence": "claim", "pointer_chase": "Follow the chain|A chain of", "timetables": "timetable",
}  # fmt: skip
PART = re.compile(r"^(s\d+): (.*?)(?=^s\d+: |\Z)", re.MULTILINE | re.DOTALL)
KINDS = {"": "question", "Your part:": "subtask", "What you know:": "brief"}


def answered(body: dict[str, Any], skill: float = 1.0) -> Act | list[Act]:
    """What a competent model says to a request: words (`stop`), or calls of tools."""
    messages = body["messages"]
    tools = [t["function"]["name"] for t in body.get("tools") or ()]
    said = [m for m in messages if m["role"] in ("user", "tool")]
    text = "\n".join(str(m.get("content")) for m in messages if m["role"] != "tool")
    asked = [name for name in tools if name.startswith("ask_")]
    if asked and not any(m["role"] == "tool" for m in said):  # a lead: everybody gets a part
        question, _, parts = str(said[-1]["content"]).partition("The parts:\n")
        return [Act("tool", asked[0], f"{question}Your part: {part.strip()}") for _, part in PART.findall(parts)]
    name = next((id_ for id_, words in ABOUT.items() if re.search(words, text)), "ledger_hunt")
    is_merge = bool(asked) or not tools
    choices = () if is_merge else tuple(Choice("tool", t, None) for t in tools)
    role, purpose = ("lead", "resolve") if is_merge else ("worker", "work")
    view = View(role, role, purpose, tuple(_seen(messages, is_merge)), (*choices, Choice("return", "", None)))
    if is_merge and name in ("module_dag", "timetables"):  # parts of one text: put side by side
        found, rule = task(name), task(name).rules[0]
        return Act("stop", "", found.merge(found.instance(0), rule, [s.text for s in view.seen if s.kind == "return"]))
    return task(name).work(view, _draws(messages), skill)


def _seen(messages: list[dict[str, Any]], is_merge: bool) -> list[ViewItem]:
    """The messages of a chat as what an agent has read and done."""
    out: list[ViewItem] = []
    calls: dict[str, str] = {}
    for i, message in enumerate(messages):
        content = str(message.get("content") or "")
        if message["role"] == "user":
            is_first = all(m["role"] == "system" for m in messages[:i])
            out += [ViewItem("return", "user", content)] if is_merge and not is_first else _told(content)
        elif message["role"] == "tool":
            tool = calls.get(message["tool_call_id"], "")
            out.append(ViewItem("return" if is_merge else "result", tool, content))
        for call in message.get("tool_calls") or ():
            name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"] or "{}")
            calls[call["id"]] = name
            out.append(ViewItem("own", "worker", grammar.write(Act("tool", name, next(iter(arguments.values()), "")))))
    return out


def _told(content: str) -> list[ViewItem]:
    """A message to an agent: the question, its part, and what only it knows."""
    out, kind = [], "question"
    for piece in re.split("^(Your part:|What you know:)", content, flags=re.MULTILINE):
        if piece in KINDS:
            kind = KINDS[piece]
        elif piece.strip():
            out.append(ViewItem(kind, "user", piece.strip()))
    return out


def _draws(messages: list[dict[str, Any]]) -> Any:
    key = json.dumps(messages, sort_keys=True, default=str)

    def draw(name: str) -> float:
        return int.from_bytes(hashlib.blake2b(f"{name}|{key}".encode(), digest_size=8).digest(), "big") / 2**64

    return draw


def completion(body: dict[str, Any], skill: float = 1.0) -> dict[str, Any]:
    """The response to a request for a chat completion."""
    act = answered(body, skill)
    acts = act if isinstance(act, list) else [act] if act.verb == "tool" else []
    message: dict[str, Any] = {"role": "assistant", "content": None if acts else act.text}
    if acts:
        fields = {t["function"]["name"]: next(iter(t["function"]["parameters"]["properties"]), "text") for t in body["tools"]}
        message["tool_calls"] = [
            {"id": f"call_{len(body['messages'])}_{i}", "type": "function",
             "function": {"name": a.target, "arguments": json.dumps({fields[a.target]: a.text})}}
            for i, a in enumerate(acts)
        ]  # fmt: skip
    words = sum(len(str(m.get("content") or "").split()) for m in body["messages"])
    out = len(json.dumps(message).split())
    usage = {"prompt_tokens": words, "completion_tokens": out, "total_tokens": words + out}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if acts else "stop"}
    return {"id": "c1", "object": "chat.completion", "created": 0, "model": body["model"], "choices": [choice], "usage": usage}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    skill = 1.0

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = json.dumps(completion(body, self.skill)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


def main() -> int:
    """Serve while a command runs; its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--skill", type=float, default=1.0)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"skill": given.skill}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    environment = {**os.environ, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none", "OPENAI_MODEL": f"stand-in-{given.skill:g}"}
    if not given.command:
        parser.error("say which command to run")
    return subprocess.run(given.command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
