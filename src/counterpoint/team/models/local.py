"""Local weights: any folder or GGUF file on this machine, run by `transformers` and batched across agents.

Always true: making the model is cheap (nothing is loaded before the first call); its name and version are those of the weights
and never a path; its answers are the same alone or among many except for the last bits of the logits. What a recorded call
answered is promised by the recording, not by the engine: another machine or library version may round otherwise.
"""

from __future__ import annotations

import asyncio
from typing import Any

from counterpoint.team.local.batching import BatchEngine, BatchStats, Request
from counterpoint.team.local.conversion import ready_folder
from counterpoint.team.local.loading import Loaded, Options, load, require_extra
from counterpoint.team.local.weights import Source, find
from counterpoint.team.model import Call, Completion

_ENGINE = 1
"""Changes whenever the same weights and call would be answered otherwise."""


class LocalModel:
    """A model that runs in this process."""

    def __init__(self, source: Source, options: Options) -> None:
        self._source = source
        self._engine = BatchEngine(self._load, options)
        self._options = options
        self._version = f"{source.digest()}-{options.dtype}-{_ENGINE}"

    @property
    def name(self) -> str:
        """`local:` and the name of the folder or file."""
        return f"local:{self._source.name}"

    @property
    def version(self) -> str:
        """A digest of the weights, the number format and the engine."""
        return self._version

    @property
    def stats(self) -> BatchStats:
        """What the engine has done so far."""
        return self._engine.stats

    def _load(self) -> Loaded:
        return load(ready_folder(self._source), self._options)

    async def complete(self, call: Call) -> Completion:
        """Answer, together with whatever other calls wait at the same time."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Completion] = loop.create_future()

        def settle(result: Completion | Exception) -> None:
            if future.done():
                return
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

        def answer(result: Completion | Exception) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, result)

        request = Request(call, answer)
        self._engine.submit(request)
        try:
            return await future
        finally:
            request.is_cancelled = True

    async def close(self) -> None:
        """End the thread and let the memory go; calls that still wait fail."""
        await asyncio.to_thread(self._engine.close)


def local(spec: str, **options: Any) -> LocalModel:
    """The model of a name that `counterpoint models` lists, of a folder, or of a .gguf file; options are those of `Options`."""
    chosen = Options.of(options)
    source = find(spec)
    require_extra(gguf=source.is_gguf)
    return LocalModel(source, chosen)
