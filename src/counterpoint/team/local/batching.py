"""The engine: one thread that serves many calls at once, token by token.

Before every forward pass calls may join and those that are done leave. A pass takes one token of each sequence that is writing
and a piece of one prompt that is being read; the last piece of a prompt takes the tree of its starts with it. Prompts are read
one after the other, as reading is bound by arithmetic and gains nothing from company, and the next can copy what it shares with
those before.

Always true: a call gets exactly one answer, a completion or an error; a call that was cancelled is let go before the next pass
and delays no other call; after `close` no thread is left, and calls that still waited have failed. The answer to a call does not
depend on the others except through the last bits of its logits, which sums of another shape round otherwise.
"""

from __future__ import annotations

import atexit
import errno
import queue
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from counterpoint.errors import CounterpointError
from counterpoint.team.local.attention import Cache, Prefixes, Segment, forward
from counterpoint.team.local.decoding import StartTree, Vocabulary, Writing, trees
from counterpoint.team.local.loading import Loaded, Options
from counterpoint.team.model import Call, Completion, ModelFailed


@dataclass
class Request:
    """A call, and where its answer goes."""

    call: Call
    answer: Callable[[Completion | Exception], None]
    is_cancelled: bool = False


@dataclass
class BatchStats:
    """What the engine has done so far."""

    passes: int = 0
    tokens_read: int = 0
    """Tokens that went through the model."""
    tokens_reused: int = 0
    """Tokens of prompts that were copied from an earlier prompt instead."""
    widest: int = 0
    """The most sequences in one pass."""


class _Row:
    """One sequence that is being read or written."""

    def __init__(self, request: Request, loaded: Loaded, vocabulary: Vocabulary) -> None:
        call = request.call
        self.request = request
        self.ids = list(loaded.prompt(call.messages))
        room = loaded.context - len(self.ids)
        self.writing = Writing(call, self.ids, vocabulary, limit=min(call.max_tokens, room))
        need = max([1, *(len(ids) for ids in self.writing.spelled)])
        if room < need:
            what = f"the prompt has {len(self.ids):,} tokens and the model reads {loaded.context:,}"
            raise ModelFailed("too long", what, fix="shorten the prompt, or use a model with a longer context")
        self.trees: deque[StartTree] = deque(trees(self.writing.spelled) if call.starts else ())
        self._is_one_tree = len(self.trees) == 1
        nodes = max((len(t.ids) for t in self.trees), default=0)
        self.cache = Cache(len(self.ids) + max(nodes, need, self.writing.limit))
        self._fed = 0
        """Tokens of the sequence, not of a tree, in the pass under way."""
        self._tree: StartTree | None = None
        self.reused = 0

    @property
    def pending(self) -> int:
        """Tokens that the model has not read yet."""
        return len(self.ids) - self.cache.length

    @property
    def is_reading(self) -> bool:
        """Whether more than the newest token must be read."""
        return self.pending > 1 or bool(self.trees)

    def segment(self, budget: int) -> Segment:
        """What goes into the next pass."""
        length, pending = self.cache.length, self.pending
        self._fed = min(pending, max(1, budget)) if pending else 0
        ids = self.ids[length : length + self._fed]
        positions = list(range(length, length + self._fed))
        self._tree = None
        if self._fed < pending:
            return Segment(self.cache, ids, positions, want=())
        if not self.trees:
            return Segment(self.cache, ids, positions, want=(self._fed - 1,))
        tree = self._tree = self.trees.popleft()
        positions += [len(self.ids) + tree.depth(node) for node in range(len(tree.ids))]
        want = list(range(max(0, self._fed - 1), self._fed + len(tree.ids)))
        return Segment(self.cache, [*ids, *tree.ids], positions, want=want, local=tree.local(self._fed))

    def absorb(self, logits: Any) -> None:
        """Take the logits of the pass: score the starts, or write the next token."""
        if self._tree is None:
            if len(logits):
                self.ids.append(self.writing.take(logits[-1]))
            return
        prompt = len(self.ids)
        self.writing.score(self._tree, logits, with_root=self._fed > 0)
        if self.trees:
            self.cache.take(prompt, ())
            return
        chosen = self.writing.choose()
        self.ids += chosen
        index = self.writing.call.starts.index(self.writing.start)
        nodes = self._tree.paths[index] if self._is_one_tree else []
        self.cache.take(prompt, [prompt + node for node in nodes])


@dataclass
class BatchEngine:
    """Serves calls in a thread of its own; loads the model when the first call comes."""

    load: Callable[[], Loaded]
    options: Options
    stats: BatchStats = field(default_factory=BatchStats)

    def __post_init__(self) -> None:
        self._inbox: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def submit(self, request: Request) -> None:
        """Hand in a call; any thread may."""
        with self._lock:
            if self._is_closed:
                raise ModelFailed("down", "the model has been closed", fix="make it again with local(...)")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="local-model", daemon=True)
                self._thread.start()
                atexit.register(self.close)
            self._inbox.put(request)

    def close(self) -> None:
        """End the thread, fail the calls that wait, free the memory; a second call does nothing."""
        with self._lock:
            self._is_closed = True
            thread, self._thread = self._thread, None
        if thread is not None:
            self._inbox.put(None)
            thread.join()
            atexit.unregister(self.close)

    # -- in the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        waiting: deque[Request] = deque()
        rows: list[_Row] = []
        try:
            loaded = self._loaded(waiting)
            if loaded is not None:
                self._serve(loaded, rows, waiting)
        finally:
            for request in [*(row.request for row in rows), *waiting]:
                fix = "close it when the calls are done"
                request.answer(ModelFailed("down", "the model was closed while a call waited", fix=fix))

    def _serve(self, loaded: Loaded, rows: list[_Row], waiting: deque[Request]) -> None:
        """Pass after pass, until it is time to end."""
        import torch

        vocabulary = Vocabulary(loaded.tokenizer, loaded.ends, loaded.vocabulary_size)
        prefixes = Prefixes(self.options.reuse_mib * 2**20)
        with torch.inference_mode():
            while self._receive(waiting, is_idle=not rows and not waiting):
                _leave(rows, waiting)
                self._join(rows, waiting, loaded, vocabulary, prefixes)
                if rows:
                    self._pass(rows, loaded, prefixes)

    def _loaded(self, waiting: deque[Request]) -> Loaded | None:
        """The model; where it cannot be loaded every call is told why, until the end."""
        try:
            return self.load()
        except Exception as error:
            reason = error
        while self._receive(waiting, is_idle=True):
            while waiting:
                waiting.popleft().answer(_failed("down", reason))
        return None

    def _receive(self, waiting: deque[Request], *, is_idle: bool) -> bool:
        """Take in what has come, and wait for it where there is nothing to do; false when it is time to end."""
        while True:
            try:
                request = self._inbox.get(block=is_idle)
            except queue.Empty:
                return True
            if request is None:
                return False
            waiting.append(request)
            is_idle = False

    def _join(
        self, rows: list[_Row], waiting: deque[Request], loaded: Loaded, vocabulary: Vocabulary, prefixes: Prefixes
    ) -> None:
        """Let the next call begin where no prompt is being read."""
        while waiting and len(rows) < self.options.batch and not any(row.is_reading for row in rows):
            request = waiting.popleft()
            try:
                row = _Row(request, loaded, vocabulary)
                prefixes.begin(row.cache, row.ids, ((other.ids, other.cache) for other in rows))
            except Exception as error:
                request.answer(_failed("server", error))
                continue
            row.reused = row.cache.length
            self.stats.tokens_reused += row.reused
            rows.append(row)

    def _pass(self, rows: list[_Row], loaded: Loaded, prefixes: Prefixes) -> None:
        """One forward pass over all, and what follows from it for each."""
        budget = max(1, self.options.chunk - len(rows))
        segments = [row.segment(budget) for row in rows]
        try:
            logits = forward(loaded.model, segments)
        except Exception as error:
            for row in rows:
                row.request.answer(_failed("server", error))
            rows.clear()
            prefixes.clear()
            return
        self.stats.passes += 1
        self.stats.tokens_read += sum(len(s.ids) for s in segments)
        self.stats.widest = max(self.stats.widest, len(rows))
        for row, got in zip(list(rows), logits, strict=True):
            try:
                row.absorb(got.numpy())
            except Exception as error:
                row.request.answer(_failed("server", error))
                rows.remove(row)
                continue
            if row.writing.finish is not None:
                rows.remove(row)
                prefixes.keep(row.ids, row.cache)
                row.request.answer(row.writing.completion({"reused_tokens": row.reused}))


def _leave(rows: list[_Row], waiting: deque[Request]) -> None:
    """Let go of calls that nobody waits for any more."""
    rows[:] = [row for row in rows if not row.request.is_cancelled]
    kept = [request for request in waiting if not request.is_cancelled]
    waiting.clear()
    waiting.extend(kept)


def _failed(kind: Any, error: Exception) -> ModelFailed:
    """An exception of the engine in our words."""
    if isinstance(error, ModelFailed):
        return error
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return ModelFailed(kind, "no space left on the device", fix="free some space and run it again")
    if isinstance(error, CounterpointError):
        return ModelFailed(kind, error.what, where=error.where, why=error.why, fix=error.fix)
    return ModelFailed(kind, f"the local model failed: {type(error).__name__}: {error}")
