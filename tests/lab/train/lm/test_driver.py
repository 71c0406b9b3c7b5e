"""The driver: the same traces whoever is faster, workers that go wrong are replaced, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from counterpoint import Store, Trace
from counterpoint.audits.diff import fingerprint
from counterpoint.errors import CounterpointError, InputError
from counterpoint.lab.lm.chat import Chat
from counterpoint.lab.lm.engine import Ask
from counterpoint.lab.lm.frames import Frames
from counterpoint.lab.team.live_replay import LiveReplay
from counterpoint.lab.team.session import Spec, record_team
from counterpoint.lab.team.state import Limits
from counterpoint.lab.train.lm.driver import Driver
from counterpoint.lab.train.lm.rollout_messages import Order, Play, Stop, decode_orders, framed
from counterpoint.lab.train.lm.rollout_worker import Rollout
from counterpoint.trace import problems
from counterpoint.trace.model_calls import prompt_ids_of, prompt_of
from driver_help import LegalEngine

CHAT = Chat.bytes()
SMALL = Limits(width=2, turns=8, steps=4, max_tokens=64)
T1 = Spec(
    task="ledger_hunt", config={"documents": 6, "rows": 2, "parts": 2, "firms": 5}, seed=3, model="engine", limits=SMALL
)  # fmt: skip
SQL = Spec(task="sql_audit", seed=1, model="engine", topology="swarm", limits=SMALL)


def odd(does: str, once: Path | None = None) -> Rollout:
    config = {"parts": 2, "does": does, "once": str(once or "")}
    return Rollout(spec=Spec(task="driver_help:odd", config=config, model="fake:1", limits=SMALL), trace_id=f"odd {does}")


def demos(count: int) -> list[Rollout]:
    return [Rollout(spec=replace(T1, model="fake:0.7", seed=i)) for i in range(count)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("chat")
    CHAT.save(made)
    return made


@pytest.fixture(scope="module")
def pool(folder: Path) -> Iterator[Driver]:
    with Driver(folder, workers=2, patience_s=600) as made:
        yield made


def as_bytes(traces: list[Trace]) -> list[bytes]:
    return [msgspec.json.encode(trace) for trace in traces]


def test_the_same_bytes_whoever_is_faster(pool: Driver, folder: Path) -> None:
    rollouts = [Rollout(spec=T1, seed=s, policies={"worker": "w"}, trace_id=f"a{s}") for s in range(3)]
    rollouts += [Rollout(spec=SQL, seed=s, temperature=0.5, trace_id=f"b{s}") for s in range(2)] + demos(1)
    rollouts.append(Rollout(spec=replace(T1, task="module_dag", config={}, model="fake:0.9"), trace_id="programs are run"))
    found = pool.play(rollouts, LegalEngine(CHAT))
    assert [t.trace_id for t in found] == [r.name for r in rollouts]
    assert not any(p.severity == "error" for t in found for p in problems(t))
    assert len({msgspec.json.encode(t.events) for t in found}) == len(found), "samples of one task differ"
    again = pool.play(rollouts, LegalEngine(CHAT, order=7, at_once=1))
    assert as_bytes(again) == as_bytes(found)
    with Driver(folder, workers=1, per_worker=1, patience_s=600) as one:
        assert as_bytes(one.play(rollouts, LegalEngine(CHAT, order=8, at_once=2))) == as_bytes(found)


def test_a_call_tells_its_tokens_its_seed_and_its_policy(pool: Driver) -> None:
    engine = LegalEngine(CHAT)
    rollout = Rollout(spec=T1, seed=2, temperature=0.7, version="v5", policies={"worker": "w"}, constrained=True)
    (trace,) = pool.play([rollout], engine)
    calls = [e for e in trace.events if "call" in (e.extra or {}) and e.model is not None]
    assert len(calls) == len(engine.asks) == len({a.seed for a in engine.asks})
    by_seed = {ask.seed: ask for ask in engine.asks}
    for event in calls:
        call, ask = (event.extra or {})["call"], by_seed[(event.extra or {})["call"]["seed"]]
        assert (event.model, event.policy) == ("engine", "w" if event.role == "worker" else "v5")
        assert (ask.temperature, ask.most, ask.policy) == (0.7, 64, "w" if event.role == "worker" else "")
        assert call.get("policy", "") == ask.policy
        assert ask.is_one_line
        assert ask.starts, "held to what is legal"
        assert prompt_ids_of(trace)[event.id].tolist() == list(ask.prompt)
        assert [t for t in prompt_of(trace, event) if t not in CHAT.decode(ask.prompt)] == []
        answer = engine.answer(ask)
        assert (call["token_ids"], call["logps"]) == (list(answer.token_ids), list(answer.logps))
        assert trace.contents[call["completion"]] == CHAT.decode(answer.token_ids)
        assert (event.tokens_in, event.tokens_out) == (len(ask.prompt), len(answer.token_ids))
    assert {e.role for e in calls} >= {"orchestrator", "worker"}
    assert trace.meta["rollout"]["seed"] == 2


def test_a_demonstrator_is_recorded_as_by_record_team_with_tokens_beside(pool: Driver, tmp_path: Path) -> None:
    spec = replace(T1, model="fake:0.7")
    (trace,) = pool.play([Rollout(spec=spec)], None)
    with Store(tmp_path) as store:
        recorded = asyncio.run(record_team(spec, store, trace_id=trace.trace_id))
    assert (trace.rewards, trace.metrics, trace.task_id, trace.system, trace.topology) == (
        recorded.rewards, recorded.metrics, recorded.task_id, recorded.system, recorded.topology
    )  # fmt: skip
    assert {**trace.meta, "rollout": None} == {**recorded.meta, "rollout": None}
    assert trace.contents == recorded.contents
    theirs = {e.key: e for e in recorded.events}
    assert {e.key for e in trace.events} == theirs.keys()
    calls = 0
    for event in trace.events:
        call = (event.extra or {}).get("call", {})
        if "token_ids" in call:
            calls += 1
            assert CHAT.decode(call["token_ids"]) == trace.contents[call["completion"]]
            assert call["token_ids"][-1] == CHAT.ends[0]
            assert "logps" not in call
            assert len(prompt_ids_of(trace)[event.id]) == event.tokens_in
        mine, other = (
            msgspec.structs.replace(e, id="", t=0, dur=None, tokens_in=None, tokens_out=None, extra=None)
            for e in (event, theirs[event.key])
        )
        assert mine == other
    assert calls == sum("address" in (e.extra or {}).get("call", {}) and e.model is not None for e in recorded.events) > 5


def test_a_rollout_can_be_forked(pool: Driver) -> None:
    (trace,) = pool.play([Rollout(spec=T1, seed=2, policies={"worker": "w"})], LegalEngine(CHAT))
    again = LiveReplay().fork(trace, trace.events[-1].id)  # everything is answered by the recording, and no model is asked
    assert {e.key: fingerprint(e) for e in again.events} == {e.key: fingerprint(e) for e in trace.events}
    (demo,) = pool.play([Rollout(spec=replace(T1, model="fake:0.7"), seed=2)], None)
    played = LiveReplay(is_full=True).fork(demo, demo.events[-1].id)
    assert (played.rewards, played.meta["answer"]) == (demo.rewards, demo.meta["answer"])


def test_the_engine_itself_answers(pool: Driver, folder: Path) -> None:
    torch = pytest.importorskip("torch")
    from counterpoint.lab.lm.engine import Engine
    from counterpoint.lab.lm.network import Network, Rope, Shape

    shape = Shape(
        layers=1, heads=2, kv_heads=1, head_width=8, width=16, inner=24, vocabulary=CHAT.size, context=4096, eps=1e-5, rope=Rope()
    )  # fmt: skip
    sizes = {"words": (CHAT.size, 16), "norm": (16,), "0.norm1": (16,), "0.norm2": (16,), "0.qkv": (32, 16)}
    sizes |= {"0.o": (16, 16), "0.gate_up": (48, 16), "0.down": (16, 24)}
    drawn = torch.Generator().manual_seed(0)
    weights = {name: torch.randn(size, generator=drawn) * 0.4 for name, size in sizes.items()}
    spec = replace(T1, limits=replace(SMALL, max_tokens=16))
    rollouts = [Rollout(spec=spec, seed=s, constrained=s < 3, trace_id=f"r{s}") for s in range(5)]
    found = []
    with Driver(folder, workers=1, per_worker=2, patience_s=600) as one:
        for driver, slots in ((one, 3), (pool, 16)):
            engine, before = (
                Engine(Network(shape), weights, ends=CHAT.ends, lines=tuple(CHAT.lines), slots=slots),
                driver.stats.calls,
            )
            found.append(driver.play(rollouts, engine))
            assert driver.stats.calls - before == engine.stats.asked > 10
            assert not engine.is_busy
    for one, other in zip(*found, strict=True):
        for a, b in zip(one.events, other.events, strict=True):
            mine, theirs = ((e.extra or {}).get("call", {}) for e in (a, b))
            assert (a.id, a.key, a.t, mine.get("token_ids")) == (b.id, b.key, b.t, theirs.get("token_ids"))
            assert mine.get("logps", ()) == pytest.approx(theirs.get("logps", ()), abs=1e-4)
    notes = [[e.extra["call"] for e in t.events if e.extra and "token_ids" in e.extra.get("call", {})] for t in found[0]]
    verbs = [{CHAT.decode(note["token_ids"])[:4] for note in made} & {"SPAW", "STOP", "NOOP"} for made in notes]
    assert [bool(v) for v in verbs] == [True] * 3 + [False] * 2, "only who is held to it speaks the grammar"


def test_a_prompt_that_is_too_long_is_a_failed_call(pool: Driver) -> None:
    engine = LegalEngine(CHAT, context=1_500)
    found = pool.play([Rollout(spec=T1, seed=s) for s in range(3)], engine)
    errors = [e for t in found for e in t.events if e.error == "model: too long"]
    assert errors
    assert all((e.extra or {})["call"]["failed"] == "too long" for e in errors)
    assert max(len(a.prompt) for a in engine.asks) < 1_500


@pytest.mark.parametrize("does", ["kill", "words", "trace"])
def test_a_worker_that_goes_wrong_is_replaced_and_its_rollouts_are_played_again(does: str, pool: Driver, tmp_path: Path) -> None:
    rollouts = [*demos(4), odd(does, tmp_path / "done"), *demos(2)]
    before = len(pool.stats.replaced)
    with pytest.warns(RuntimeWarning, match="was replaced"):
        found = pool.play(rollouts, None)
    assert as_bytes(found) == as_bytes(pool.play(rollouts, None))
    (gone,) = pool.stats.replaced[before:]
    assert ("SIGKILL" if does == "kill" else "nonsense") in gone.why
    assert gone.pid not in pool.pids
    assert len(pool.pids) == 2
    assert rollouts[4].name in gone.rollouts


def test_messages_come_out_whole_however_they_arrive() -> None:
    orders: list[Order] = [Play(3, b"what"), Stop()]
    frames, sent = Frames(longest=1_000), framed(orders)
    got = [frame for byte in sent * 2 for frame in frames.add(bytes([byte]))] + frames.add(sent * 2)
    assert [decode_orders(frame) for frame in got] == [orders] * 4
    with pytest.raises(ValueError, match="1,001 bytes"):
        frames.add(b"\xe9\x03\0\0")


def test_a_rollout_that_ends_its_worker_twice_is_named(pool: Driver) -> None:
    with (
        pytest.warns(RuntimeWarning),
        pytest.raises(CounterpointError, match=r"rollout 3 crashed its worker twice.*SIGKILL") as error,
    ):
        pool.play([*demos(3), odd("kill"), *demos(2)], None)
    assert error.value.where == "odd kill"
    assert len(pool.play(demos(2), None)) == 2, "and the next are played"


def test_a_worker_that_is_silent_is_replaced(folder: Path, tmp_path: Path) -> None:
    with Driver(folder, workers=1, patience_s=4.0) as driver:
        with pytest.warns(RuntimeWarning, match="silent"):
            (trace,) = driver.play([odd("stop", tmp_path / "done")], None)
        assert trace.rewards == {"team": 1.0}
        assert [r.rollouts for r in driver.stats.replaced] == [("odd stop",)]


def test_an_exception_in_a_team_is_one_error_that_names_the_rollout(pool: Driver) -> None:
    with pytest.raises(CounterpointError, match="rollout 1 failed: ZeroDivisionError: nothing is divided by nothing") as error:
        pool.play([*demos(1), odd("raise"), *demos(5)], None)
    assert error.value.where == "odd raise"
    assert "in _do" in "".join(error.value.__notes__)


def test_a_worker_loads_neither_the_lake_nor_torch(pool: Driver) -> None:
    pool.play([Rollout(spec=T1), *demos(1)], LegalEngine(CHAT))
    with pytest.raises(CounterpointError, match=r"loaded: \[\]"):
        pool.play([odd("modules")] * 2, None)


def test_bad_input_is_one_clear_error(pool: Driver, tmp_path: Path) -> None:
    assert pool.play([], None) == []
    with pytest.raises(InputError, match="no engine"):
        pool.play([Rollout(spec=T1)], None)
    with pytest.raises(InputError, match="0 or more workers"):
        Driver(tmp_path, per_worker=0)
    with Driver(tmp_path, workers=1) as driver, pytest.raises(CounterpointError, match="has no tokenizer"):
        driver.play(demos(1), None)

    class Forgetful(LegalEngine):
        def step(self) -> list[Any]:
            self._waiting.clear()
            return []

    with pytest.raises(CounterpointError, match="has lost 1 call"):
        pool.play([Rollout(spec=T1)], Forgetful(CHAT))

    class Broken(LegalEngine):
        def add(self, ask: Ask) -> int:
            raise InputError("no adapter named 'w'")

    with pytest.raises(InputError, match="no adapter"):
        pool.play([Rollout(spec=T1)], Broken(CHAT))


def test_after_an_error_the_engine_has_nothing_left_to_do(pool: Driver) -> None:
    """It takes other weights only then; what two teams asked is computed, though nobody waits for it any more."""

    class Late(LegalEngine):
        is_over = False

        def add(self, ask: Ask) -> int:
            if len(self.asks) == 2:
                self.is_over = True
                raise InputError("no adapter named 'w'")
            return super().add(ask)

        def step(self) -> list[Any]:
            return super().step() if self.is_over else []

    engine = Late(CHAT)
    with pytest.raises(InputError, match="no adapter"):
        pool.play([Rollout(spec=T1, seed=k, trace_id=f"t{k}") for k in range(3)], engine)
    assert len(engine.asks) == 2
    assert not engine.is_busy


SCRIPT = """
import os, sys, time
import driver_help
from pathlib import Path
from counterpoint.lab.lm.chat import Chat
from counterpoint.lab.team.session import Spec
from counterpoint.lab.train.lm.driver import Driver
from counterpoint.lab.train.lm.rollout_worker import Rollout

class Slow(driver_help.LegalEngine):
    def step(self):
        print("pids", *driver.pids, flush=True)
        time.sleep(1000)

driver = Driver(sys.argv[1], workers=2)
try:
    driver.play([Rollout(spec=Spec(task="ledger_hunt", model="engine"))], Slow(Chat.bytes()))
except KeyboardInterrupt:
    print("left", *driver.pids, flush=True)
    sys.exit(7)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_running(how: signal.Signals, folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, str(script), str(folder)], stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        pids = [int(p) for p in process.stdout.readline().split()[1:]]
        assert len(pids) == 2
        process.send_signal(how)
        rest = process.stdout.read()  # to the end: workers hold it open as long as they live
        assert process.wait() == (7 if how == signal.SIGINT else -9)
    assert rest.split() == (["left"] if how == signal.SIGINT else [])
    for pid in pids if how == signal.SIGINT else ():  # else the system may keep their numbers for a while
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_repeatable_driver_asks_in_the_same_batches_whoever_is_faster(folder: Path) -> None:
    rollouts = [Rollout(spec=T1, seed=k, trace_id=f"r{k}") for k in range(4)]

    class Listening(LegalEngine):
        def __init__(self) -> None:
            super().__init__(CHAT)
            self.batches: list[list[int]] = []
            self._now: list[int] = []

        def add(self, ask: Any) -> int:
            self._now.append(len(ask.prompt))
            return super().add(ask)

        def step(self) -> Any:
            self.batches.append(self._now)
            self._now = []
            return super().step()

    heard = []
    for workers in (1, 2):
        engine = Listening()
        with Driver(folder, workers=workers, is_repeatable=True) as repeatable:
            traces = repeatable.play(rollouts, engine)
        heard.append((engine.batches, as_bytes(traces)))
    assert heard[0] == heard[1]
