"""Who learns beside the first process: it makes the learners that the first one makes, and computes what that one computes.

Always true: a follower plays nothing, writes nothing and decides nothing. An interruption is the first one's to handle; where
that one dies, a follower's next exchange fails, and torchrun ends them all.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from counterpoint.errors import CounterpointError
from counterpoint.lab.lm.network import Shape
from counterpoint.lab.train.lm.learner import LanguageLearner
from counterpoint.lab.train.lm.policies import check_device, learner_of, learning_network
from counterpoint.lab.train.lm.ranks import Ranks, all_ranks
from counterpoint.lab.train.lm.settings import LanguageSettings
from counterpoint.lab.train.lm.sharded import blank_weights


@contextmanager
def leading() -> Iterator[None]:
    """The others follow what is trained in here, and end with it."""
    ranks = all_ranks()
    assert ranks is not None
    try:
        yield
    except RuntimeError as error:
        if not _is_of_exchange(error):
            raise
        _leave(ranks)
        why, fix = " ".join(str(error).split())[:200], "counterpoint train resume DIR, as the run was started"
        raise CounterpointError("a process that learns is lost", why=why, fix=fix) from error
    except BaseException:
        _leave(ranks)
        raise
    ranks.close()


def _is_of_exchange(error: RuntimeError) -> bool:
    """Whether processes could not reach each other; gloo has no error of its own."""
    return isinstance(error, torch.distributed.DistError) or "gloo" in str(error)


def _leave(ranks: Ranks) -> None:
    """End with the others, as far as they are there."""
    with suppress(RuntimeError):
        ranks.close()


def follow() -> None:
    """Compute what the first process asks for, until it ends."""
    for number in (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ():
        signal.signal(number, signal.SIG_IGN)
    ranks, learners = all_ranks(), dict[str, LanguageLearner]()
    assert ranks is not None
    torch.set_num_threads(1)
    while (said := ranks.of_first())[0] != "end":
        if said[0] == "begin":
            learners = _learners(ranks, *said[1:])
            continue
        _, name, method, args, options = said
        learners[name].options = options
        _compute(learners[name], method, args)
    ranks.close()


def _learners(ranks: Ranks, settings: LanguageSettings, shape: Shape, names: tuple[str, ...]) -> dict[str, LanguageLearner]:
    network = learning_network(settings, shape, check_device(settings.device))
    return {name: learner_of(settings, network, blank_weights(shape), name, ranks) for name in names}


def _compute(learner: LanguageLearner, method: str, args: tuple[Any, ...]) -> None:
    try:
        getattr(learner, method)(*args)
    except CounterpointError:
        return  # the first process raises the same, and says what becomes of the run
