"""A real HTTP server that answers as vLLM and as SGLang do, with our own engine behind it.

The shapes are those of vLLM 0.32.0, recorded from its CPU build by `tests/lab/train/lm/test_real_vllm.py`'s requests, and of
SGLang's documentation (docs.sglang.io: native APIs, sampling parameters, LoRA serving) and its `io_struct` as of 2026. A field that
those servers do not have is refused here.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from counterpoint.lab.lm.engine import Answer, Ask, Engine
from counterpoint.lab.lm.network import Network, Weights, as_transformers, of_transformers, read, shape_of

VLLM_FIELDS = {
    "model", "prompt", "max_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty",
    "frequency_penalty", "seed", "logprobs", "return_token_ids", "ignore_eos", "stop_token_ids", "n", "stop", "echo", "stream", "user",
}  # fmt: skip
SGLANG_FIELDS = {"text", "input_ids", "sampling_params", "return_logprob", "lora_path", "stream", "rid", "top_logprobs_num"}
SGLANG_PARAMS = {
    "max_new_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
    "sampling_seed", "stop_token_ids", "ignore_eos", "n", "stop",
}  # fmt: skip


def config(model: Path, **more: Any) -> dict[str, Any]:
    """A short run of a toy task, whose price of a token makes every team earn something else."""
    limits = {"width": 1, "max_tokens": 8, "turns": 4, "steps": 3, "repairs": 0}
    task = {"name": "tests.lm_help:colours", "topology": "harness", "limits": limits}
    learn = {"updates": 2, "groups": 2, "samples": 3, "lr": 4e-3, "steps": 2, "resample": 0, **more.pop("learn", {})}
    usual = {"eval_episodes": 2, "workers": 1, "eval_every": 100, "checkpoint_every": 1, "prices": {"token": 0.01}}
    return {"model": str(model), "task": [task], "learn": learn, **usual, **more}


class Unwilling(Exception):
    """A refusal: status and message."""


class ContractServer:
    """Serves one model folder on a port of its own; a context manager."""

    def __init__(self, folder: Path, *, name: str = "tiny") -> None:
        self.name, self.shape, self.folder = name, shape_of(folder), folder
        self.asked: Counter[str] = Counter()
        self.bodies: list[tuple[str, Any]] = []
        self.before: Callable[[str, Any], None] = lambda path, body: None
        """May wait, or raise `Unwilling`."""
        self.after: Callable[[Ask, Answer], Answer] = lambda ask, answer: answer
        self._lock = threading.Lock()
        _, weights = read(folder)
        self._engines = {"": self._engine(weights)}
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def adapters(self) -> set[str]:
        return set(self._engines) - {""}

    @property
    def weights(self) -> Weights:
        return self._engines[""].weights

    def __enter__(self) -> ContractServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def _engine(self, weights: Weights) -> Engine:
        return Engine(Network(self.shape), {n: w.clone() for n, w in weights.items()}, ends=(), slots=4)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer(None)

            def do_POST(self) -> None:
                self._answer(json.loads(self.rfile.read(int(self.headers["content-length"])) or b"null"))

            def _answer(self, body: Any) -> None:
                try:
                    status, said = 200, server.answer(self.path, body)
                except Unwilling as refusal:
                    status, message = refusal.args
                    said = {"error": {"message": message, "type": "BadRequestError", "code": status}}
                data = said.encode() if isinstance(said, str) else json.dumps(said).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler

    # -- what is served

    def answer(self, path: str, body: Any) -> Any:
        self.asked[path] += 1
        self.bodies.append((path, body))
        self.before(path, body)
        places = {
            "/v1/models": lambda _: {"object": "list", "data": self._cards()},
            "/v1/completions": self._vllm, "/collective_rpc": self._collective, "/reset_prefix_cache": lambda _: "",
            "/v1/load_lora_adapter": self._load_adapter, "/v1/unload_lora_adapter": self._forget_adapter,
            "/generate": self._sglang, "/update_weights_from_disk": self._update, "/flush_cache": lambda _: "Cache flushed.\n",
            "/load_lora_adapter": lambda body: self._load_adapter(body) and {"success": True},
            "/unload_lora_adapter": lambda body: self._forget_adapter(body) and {"success": True},
        }  # fmt: skip
        if path not in places:
            raise Unwilling(404, "Not Found")
        with self._lock:
            return places[path](body)

    def _cards(self) -> list[dict[str, Any]]:
        own = {"id": self.name, "object": "model", "root": str(self.folder), "parent": None, "max_model_len": self.shape.context}
        return [{**own, "id": name, "parent": self.name} for name in sorted(self.adapters)] + [own]

    def _run(self, adapter: str, ask: Ask, ends: list[int]) -> Answer:
        if adapter not in self._engines:
            raise Unwilling(404, f"The model `{adapter}` does not exist.")
        engine = self._engines[adapter]
        engine.ends = frozenset(ends)
        (answer,) = engine.run([ask])
        return self.after(ask, answer)

    def _vllm(self, body: dict[str, Any]) -> dict[str, Any]:
        if unknown := set(body) - VLLM_FIELDS:
            raise Unwilling(400, f"extra fields: {sorted(unknown)}")
        assert (body["return_token_ids"], body["logprobs"], body["ignore_eos"]) == (True, 0, True)
        ask = Ask(prompt=body["prompt"], most=body["max_tokens"], temperature=body["temperature"], seed=body["seed"])
        answer = self._run("" if body["model"] == self.name else body["model"], ask, body["stop_token_ids"])
        choice = {
            "index": 0, "text": "", "finish_reason": answer.finish, "stop_reason": None, "token_ids": list(answer.token_ids),
            "logprobs": {"token_logprobs": list(answer.logps), "tokens": [], "top_logprobs": [], "text_offset": []},
            "prompt_token_ids": body["prompt"],
        }  # fmt: skip
        usage = {"prompt_tokens": len(ask.prompt), "completion_tokens": len(answer.token_ids), "total_tokens": 0}
        usage["prompt_tokens_details"] = {"cached_tokens": answer.reused}  # type: ignore[assignment]
        return {"id": "cmpl-1", "object": "text_completion", "model": body["model"], "choices": [choice], "usage": usage}

    def _sglang(self, body: dict[str, Any]) -> dict[str, Any]:
        how = body["sampling_params"]
        if unknown := (set(body) - SGLANG_FIELDS) | (set(how) - SGLANG_PARAMS):
            raise Unwilling(400, f"unexpected keyword argument {sorted(unknown)}")
        assert body["return_logprob"]
        ask = Ask(prompt=body["input_ids"], most=how["max_new_tokens"], temperature=how["temperature"], seed=how["sampling_seed"])
        answer = self._run(body.get("lora_path") or "", ask, how["stop_token_ids"])
        ended = {"type": "stop", "matched": answer.token_ids[-1]} if answer.finish == "stop" else {"type": "length", "length": ask.most}
        drawn = [[logp, token, None] for token, logp in zip(answer.token_ids, answer.logps, strict=True)]
        about = {
            "id": "1", "finish_reason": ended, "prompt_tokens": len(ask.prompt), "completion_tokens": len(answer.token_ids),
            "cached_tokens": answer.reused, "output_token_logprobs": drawn, "input_token_logprobs": [],
        }  # fmt: skip
        return {"text": "", "output_ids": list(answer.token_ids), "meta_info": about}

    def _collective(self, body: dict[str, Any]) -> dict[str, Any]:
        assert body["method"] == "reload_weights"
        self._engines[""].load(read(Path(body["kwargs"]["weights_path"]))[1])
        return {"results": [None]}

    def _update(self, body: dict[str, Any]) -> dict[str, Any]:
        folder = Path(body["model_path"])
        if not folder.is_dir():
            raise Unwilling(400, f"no folder {folder}")
        self._engines[""].load(read(folder)[1])
        return {"success": True, "message": "Succeeded to update model weights.", "num_paused_requests": 0}

    def _load_adapter(self, body: dict[str, str]) -> str:
        """PEFT's arithmetic, on the maps of a transformers model: W + alpha / r B A."""
        from safetensors.torch import load_file

        if body["lora_name"] in self._engines:
            raise Unwilling(400, f"The lora adapter '{body['lora_name']}' has already been loaded.")
        folder = Path(body["lora_path"])
        config = json.loads((folder / "adapter_config.json").read_text())
        tensors = load_file(folder / "adapter_model.safetensors")
        whole = {name: w.clone() for name, w in as_transformers(self.shape, self._engines[""].weights).items()}
        for name, b in tensors.items():
            at = name.removeprefix("base_model.model.").removesuffix(".lora_B.weight")
            if name.endswith(".lora_B.weight"):
                assert at.rpartition(".")[2] in config["target_modules"]
                whole[f"{at}.weight"] += config["lora_alpha"] / config["r"] * b @ tensors[name.replace("lora_B", "lora_A")]
        self._engines[body["lora_name"]] = self._engine(of_transformers(self.shape, whole))
        return f"Success: LoRA adapter '{body['lora_name']}' added successfully."

    def _forget_adapter(self, body: dict[str, str]) -> str:
        if self._engines.pop(body["lora_name"], None) is None:
            raise Unwilling(404, f"The lora adapter '{body['lora_name']}' cannot be found.")
        return f"Success: LoRA adapter '{body['lora_name']}' removed successfully."
