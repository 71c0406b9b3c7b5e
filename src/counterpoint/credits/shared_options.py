"""Options that many mechanisms take: each is declared once, with one name and one meaning.

Always true: what is annotated with one of these means the same in every mechanism; only its default is the mechanism's own. A
mark stands alone where mechanisms differ in the kind of value that they take, as critics do: `Annotated[kind, VALUE]`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Annotated, Any

from counterpoint.credits.groups import Convention
from counterpoint.options import PositiveInt, Share, Shared
from counterpoint.trace import Event, Trace
from counterpoint.trace.replay import Replay
from counterpoint.trace.rows import Signals

# -- what is compared with what
GroupKey = Annotated[str | Callable[[Trace], Hashable], Shared("key", "a field or a function: traces with one key are a group")]
GroupConvention = Annotated[str | Convention, Shared("convention", "how a group becomes advantages: one of `groups.CONVENTIONS`")]
Singleton = Annotated[str | None, Shared("singleton", "what a group of one gets: zero, refuse, ...; None: the convention's rule")]
DDOF = Shared("ddof", "0 or 1: the standard deviation of a population or of a sample")
EPS = Shared("eps", "added to a standard deviation")
Unit = Annotated[str, Shared("unit", "the unit that gets the rows")]
SampleOf = Annotated[Callable[[Event], Hashable] | None, Shared("sample", "the sample of an event, where samples share a trace")]
StepBy = Annotated[str, Shared("by", "what a step is: an action, or an agent's turn")]
PaidSignals = Annotated[Signals | None, Shared("signals", "rewards that were paid, instead of those that the trace carries")]

# -- critics and discounts
VALUE = Shared("value", "a critic: the value of each prefix of a trace")
Q = Shared("q", "a critic: the value of each action or message of a trace")
Discount = Annotated[Share, Shared("gamma", "the discount per step")]
LAMBDA = Shared("lam", "how far a return looks ahead before it trusts the critic: 0 a step, 1 to the end")

# -- forks
REPLAY = Shared("replay", "what plays a trace again from a changed event on")
ReplayOf = Annotated[Replay | None, REPLAY]
Replicates = Annotated[int, Shared("k", "continuations of each arm")]
SEED = Shared("seed", "of everything that is drawn")
Coupled = Annotated[bool, Shared("coupled", "both arms meet the same luck")]
EventTypes = Annotated[Collection[str], Shared("types", "event types that are judged")]
EventIds = Annotated[Collection[str] | None, Shared("ids", "only these events")]

# -- effects from logs
LeafOf = Annotated[Callable[[Trace, Event], Hashable] | None, Shared("leaf", "cases that are compared with each other only")]
FEATURES = Shared("features", "what was known before the decision, as numbers")
PROPENSITY_FEATURES = Shared("propensity_features", "the same for the propensity; None: `features`")
Propensity = Annotated[str, Shared("propensity", "logged, or estimated from the features")]
Bandwidth = Annotated[float | None, Shared("bandwidth", "how near cases must be to be comparable; None: from the data")]
Folds = Annotated[PositiveInt, Shared("folds", "of cross-fitting")]
Penalty = Annotated[float, Shared("penalty", "of the ridge regression")]

# -- games of coalitions
WorthOf = Annotated[Callable[[Trace, frozenset[str]], float] | None, Shared("worth", "what a coalition would have earned")]
ORDERS = Shared("orders", "orders of the agents that are drawn")
StopError = Annotated[float | None, Shared("stop_se", "the standard error at which drawing stops")]
Tie = Annotated[Share, Shared("tie", "what an answer is worth when votes are even")]

# -- merges made again
MergeRule = Annotated[str | Callable[[Sequence[Any]], Any], Shared("rule", "how votes become an answer")]
Verifier = Annotated[Callable[[str, Any], float] | None, Shared("verify", "what an answer to a task is worth")]
StartAnswer = Annotated[Any, Shared("start", "the answer before any vote")]
