"""TeamWorld: a dynamic Dec-POMDP in which all five orchestration sub-decisions matter, with known optima.

The simulator (`world.py` and what it calls) and the optima (`optimum/`) follow these rules and share no code; tests compare
them. Names in `code` are parameters (`counterpoint train worlds NAME`) or constants.

## A round

The orchestrator (slot 0) observes and gives one action with five parts:

| part | sub-decision | what |
|---|---|---|
| `stop`, `close` | O5 | stop the team, or close single items (no more calls on them) |
| `spawns`, `despawns` | O1 | spawn orders (family, type, number, parent); new agents can take calls from the next round on |
| `calls` | O2 | who works on which item; at most `calls_per_round` per agent, never twice the same item and agent in a round |
| `brief` (0-3, per call), `full_return`, `broadcast` | O3 | what is said to a worker, what comes back, who hears it |
| `rule` | O4 | how this round's returns enter the draft answer |

Order of events: stop decision, spawn decision and spawns, delegate decision, communicate decision, then call by call (brief,
tool call, tool result, return), then the aggregate decision and the new draft. The clock advances by one round. When the team
stops, no call is made in that round and the clock stands.

## What a call knows

A call of agent i on item j has the **knowledge** g = `brief_factor[b]` · match · load · drift, where match is 1 if the agent's
type is the item's and `mismatch` otherwise; load = max(0, 1 − `context_decay` · max(0, calls taken − `context_capacity`));
drift = max(0, 1 − `drift[family]` · round). Calls that the orchestrator takes itself (`orchestrator_works`) have brief factor
1, match 1, family B, and no brief price (its brief size only matters to interfaces of nodes).

- **vote** (truth y is 0 or 1, each with 1/2; difficulty z by `difficulty_shares`; for each family f, misled with
  `misconception[f][z]`, once per item): with probability g the vote is right with `skill[f][z]`, or with `right_if_misled` if f
  is misled on the item; with probability 1 − g it is a fair coin. At most `max_votes` calls per item and `votes_per_agent` per
  agent and item. Draft answer: the rule's; without votes 0. Pays `vote_weight` if right.
- **pool**: M finds are hidden, M = min(`pool_slots`, Poisson(γ)), γ ~ Gamma(`pool_shape`, mean `pool_mean`), or γ = `pool_mean`
  if `pool_shape` is 0. A call finds each still hidden find, independently, with `pool_find[f]` · g. Finds of calls in the same
  round are joined. At most `pool_calls` calls. Pays `pool_weight` per find.
- **draft**: starts sound, at level 0. A call first finds it sound or rotten: sound: level +1 with `draft_gain[f]` · g; then,
  with `draft_hazard`, it becomes rotten. Rotten: level −1 with `draft_loss`. At most one call per draft and round,
  `draft_calls` in all. The level is seen. Pays `draft_weight` per level (also negative).
- **chain**: at hop h, an *answer* call makes an attempt, right with `hop_right[f]` · g (at most `hop_attempts` per hop; a new
  attempt replaces the old one and its checks). A *verify* call (at most `hop_checks` per attempt, price `check_price`) passes a
  right attempt with 1 − `check_false_reject` and a wrong one with `check_false_accept`. A *next* call accepts the attempt and
  makes the first attempt at the next hop. One call per chain and round. Pays `chain_weight` if the last hop has an attempt when
  the team stops and the accepted attempts and that last one are all right.
- **node**: one call each, only after all nodes it depends on are done (in an earlier round). Right with `node_right[f]` · g
  times, for every dependency done by another agent, 1 − `interface_loss[b]`. Pays `node_weight` if done and right. The
  dependencies are seen, the modules are not. A module is a path of `node_module_size` nodes, with each further forward edge
  present with `node_extra_edges`; `node_cross_edges` edges run between modules, from a node at an earlier place to one at a
  later place of another module's path.

## Prices

Return = Σ quality − Σ calls (`price[family]` or `check_price`, + `brief_price` · b) − `broadcast_price` · agents alive (without
the orchestrator) per broadcast round − `spawn_price` · spawned − `round_price` · clock − `harm_price` · violations − topology's
prices.

## Rules (O4)

For votes, from the counts of yes and no by family: **bayes** takes the answer with the larger exact posterior (truth,
difficulty and misconceptions summed out, at knowledge 1); **naive** does the same as if every vote were independent
(misconception folded into each vote); **weighted** sums the reported confidence; **majority** counts; **first** takes the first
vote; **lossy** drops each return of the round with `summary_loss`, for good, and then counts. Ties go to the earlier draft. For
the other kinds only **lossy** matters: a dropped return is lost (no finds, no new level is *seen* but the level counts; no
attempt; the node stays undone and may be called again).

## Topologies

- centralized: the orchestrator hears every return.
- planner_executor_critic: every vote passes a critic at `critic_price`: a wrong one is passed with `critic_false_accept`, a
  right one rejected with `critic_false_reject`; a rejected vote is not counted (it counts as a call), and only that it was
  rejected is seen.
- debate: no spawn after the first round; if the last returns on an item were broadcast, a vote copies the public majority with
  `conformity` · |yes − no|/(yes + no).
- swarm: a vote copies the item's note with `memory_copy` if there is one (the last counted vote on the item).
- hierarchical: any agent above `max_depth` may be a parent; a return is dropped with `level_loss` for every level between its
  agent and the orchestrator beyond the first.
- harness: every call pays `gateway_price`; forbidden arguments, honeypots and injected spawns are blocked.
- In all but hierarchical, the orchestrator is every agent's parent.

## Adversaries

One attack at a time, `attack`, at the share `attack_rate` of the places where it can happen; whoever reads it follows it with
`obey`. An attacked vote is wrong; an attacked call of another kind knows nothing. Nothing of this is seen; the trace marks what
was planted (`extra.planted`) and what it really changed (`extra.corrupt`).

| | place | what it does |
|---|---|---|
| AV1 | items | a false constraint of the user travels with every brief of size 1 and more |
| AV2 | calls | the tool's answer is poisoned |
| AV3 | agents | a spawned agent is the adversary's: all it returns is wrong |
| AV4 | items | a poisoned note stays in the shared memory; a call reads it with `note_reads` |
| AV5 | calls | an argument outside the allow-list: a violation |
| AV6 | returns | asks for a spawn: an agent is spawned that never works |
| AV7 | calls | a padded brief (nine units more), and a checker that passes everything |
| AV8 | calls | a read outside the sandbox: a violation |
| benign_imperative | calls | a tool's answer in the imperative: nothing happens |
| benign_fan_out | spawns | a wide spawn that is meant: marked as a control, nothing happens |

The harness blocks AV5, AV6 and AV8; what was blocked is a `safety_event` too.

## Defences

`gates` names those that are on, with commas.

- `allow_list`: forbidden acts (AV5, AV8) are not done, spawns that a return asks for (AV6) are not made (always; `gate_price` a
  call)
- `taint`: orders in tool results and notes (AV2, AV4, AV5, AV8) are withheld, and the call goes on without them (`gate_hit`;
  harmless imperatives with `gate_false`: that call knows nothing; `gate_price` a call)
- `quarantine`: a return with a lie or an order (AV3, AV6) is dropped; its agent is not called again, unless it is the last that
  can be (`gate_hit`; `gate_price` a call)
- `quorum`: a vote counts where a second look, by another agent of the family, agrees; that one may meet the attack, too (the
  family's price a vote)
- `verifier`: a vote counts where a check passes it (`check_false_accept`, `check_false_reject`; `check_price` a vote)

A vote that is dropped has used up its call. Each stop is a `safety_event` with `extra.gate`, at most one for a call. No gate
looks at AV1 and AV7, but quorum and verifier may drop what comes of them.

## What some methods train

Off by default; about questions only.

**Acts** (`acts`). Each call on a question carries an act, chosen before the call; without a choice it is the first of its list.
A worker's newest counted answer takes the place of its older one. A second look is right with skill + `refine_gain` · (1 −
skill) where the skill is at least a half and the family is not misled. The orchestrator's own calls have no acts.

- With `deliberate`:
    - *refine*: looks; from this agent's second call on the question on, a second look
    - *persist*: says again what it said last; no look, no family's price, out of reach of all attacks but AV3
    - *concede*: says what the draft says, where any vote is counted; the same
- With `communicate`:
    - *solo*: looks
    - *broadcast*: looks; the answer is on the board; a message to everybody else
    - *query*: looks, and asks the first other agent that has answered; where they differ a second look, at the family's price; 2
      messages
    - *aggregate*: looks, and says what most of the board and it say, its own on a tie; a message for each answer read
    - *verify*: looks, and has it checked at `check_price` (`check_false_accept`, `check_false_reject`); says the opposite where
      that fails
    - *debate*: looks; where the first other agent that has answered differs, a second look of both families, at both prices, and
      most of the three is said; on the board; 2 messages

A message costs `broadcast_price` and `brief_tokens`.

**Judges** (`judges`). Each accepts a right answer with 1 − `judge_false_reject` and a wrong one with `judge_false_accept`, at
`judge_price`; everybody sees it. The share that accepts is the answer's score, and the confidence that **weighted** sums.

**Proposer** (`proposer`). In the first round it may set two dials: how hard (four of five questions are of that class, the
others of either of the other two) and how many (a third, two thirds or all; the rest is closed). A question of class z has no
answer, and pays nothing, with `proposal_flaws[z]`; nobody sees that, but the judges say of each asked question whether it is
sound, with their errors, and without judges the truth is said.

**Second side** (`opponent_rounds`). In so many rounds an opponent may choose one of AV1-AV8 for the round, at the places that
`attack_rate` gives it by the seed. Its return is the team's with the other sign; the channel `zero_sum` pays both, round by
round, on the team's stop decision and on the opponent's message. Beside hand-made policies other than `random`,
`policies.Opposed(policy, "AV2")` plays the second side.

The optimum of such a world is a bound: with `deliberate` alone, that of the world in which every look is a second one; with
`communicate`, judges or a proposer, every question right at no price.
"""
