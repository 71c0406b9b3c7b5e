// Made by `python -m counterpoint.app.viewer.typescript`; do not edit.

export const VERSION = 2;
export const EVENT_TYPES = ["orchestrator_decision", "spawn", "despawn", "message", "tool_call", "tool_result", "return", "aggregate", "human_intervention", "safety_event", "thinking"] as const;
export const EDGE_TYPES = ["temporal", "causal", "spawn", "message", "tool_dependency", "return", "aggregate", "safety_flow"] as const;
export const TOPOLOGIES = ["centralized", "planner_executor_critic", "debate", "swarm", "hierarchical", "harness", "mixed", "unknown"] as const;
export const COLUMNS = {"t": "float64", "dur": "float32", "agent": "uint32", "type": "uint8", "flags": "uint16", "tokens": "uint32", "cost": "float32", "tool": "uint16", "turn": "int32", "src": "uint32", "dst": "uint32", "edge": "uint8"} as const;
export const FLAGS = {"untrusted": 1, "tainted": 2, "failed": 4, "on_path": 8, "open": 16, "text": 32, "human": 64, "safety": 128, "unlinked": 256} as const;
export const FAMILIES = {"think": ["orchestrator_decision", "thinking"], "act": ["tool_call", "tool_result"], "coordinate": ["spawn", "message", "human_intervention"], "merge": ["return", "aggregate"], "stop": ["despawn", "safety_event"]} as const;
export const EVENT_FIELDS = {"id": "text", "kind": "text", "type": "text", "agent": "text", "role": "text", "tool": "text", "model": "text", "to": "text", "task": "text", "n": "number", "t": "number", "seconds": "number", "tokens": "number", "cost": "number", "turn": "number", "step": "number", "depth": "number", "reward": "number", "label": "text", "note": "text", "score": "number", "date": "date", "since": "date", "until": "date", "last": "date"} as const;
export const EVENT_FLAGS = {"untrusted": "untrusted", "tainted": "tainted", "failed": "failed", "error": "failed", "open": "open", "path": "on_path", "on_path": "on_path", "text": "text", "human": "human", "safety": "safety", "unlinked": "unlinked"} as const;
export const PANELS = [{"id": "safety", "name": "Safety", "key": "5"}, {"id": "blame", "name": "Blame", "key": "6"}, {"id": "advise", "name": "Advise", "key": "7"}, {"id": "story", "name": "Story", "key": "8"}] as const;
export const PAGES = [{"id": "runs", "name": "Runs"}, {"id": "compare", "name": "Compare"}, {"id": "bench", "name": "Bench"}] as const;

/** A trace in a list. */
export interface TraceRow {
  id: string;
  title: string | null;
  project: string | null;
  models: string[];
  date: number;
  active: number;
  task_id: string;
  system: string | null;
  topology: string | null;
  agents: number | null;
  events: number | null;
  tokens: number | null;
  cost_usd: number | null;
  seconds: number | null;
  reward: number | null;
  errors: number;
  problems: number;
  unpriced: number;
  is_open: boolean;
  is_steered: boolean;
  waits: string;
  since: number | null;
  parent: string | null;
  lanes: number[];
}

/** How many alerts a trace has, for its line in the list. */
export interface AlertCount {
  count: number;
  severity: string;
  text: string;
}

/** The list, and where it came from. */
export interface Traces {
  store: string;
  rows: TraceRow[];
  found: number;
  total: number;
  facets: Record<string, Record<string, number>>;
  zone: string;
  remarks: string[];
  version: string;
}

/** An agent of a trace. */
export interface Agent {
  name: string;
  label: string;
  role: string | null;
  parent: number;
  depth: number;
  spawn: number;
  events: number;
  tokens_own: number;
  tokens_total: number;
  cost_own: number | null;
  cost_total: number | null;
  busy_s: number | null;
  start: number;
  end: number;
  path_share: number;
  is_outside: boolean;
}

/** A computed fact for the answer strip; leads to an event or an agent. */
export interface Fact {
  kind: string;
  text: string;
  event: number;
  agent: number;
}

/** Something to look at: an incident, a reward hack, a failure, an unlinked child. */
export interface Alert {
  kind: string;
  severity: string;
  text: string;
  events: number[];
}

/** Everything about a trace but its events. */
export interface About {
  version: number;
  id: string;
  title: string | null;
  project: string | null;
  started: number | null;
  task_id: string;
  system: string | null;
  topology: string | null;
  rewards: Record<string, number>;
  costs: Record<string, number>;
  metrics: Record<string, number>;
  unpriced: Record<string, number>;
  errors: number;
  events: number;
  edges: number;
  start: number;
  end: number;
  agents: Agent[];
  tools: string[];
  models: string[];
  types: string[];
  edge_types: string[];
  facts: Fact[];
  alerts: Alert[];
  notes: string[];
  can_fork: boolean;
  fork_refusal: string | null;
  has_reward: boolean;
  has_logp: boolean;
  is_masked: boolean;
  is_large: boolean;
  parent: string | null;
  is_steered: boolean;
  is_partial: boolean;
}

/** One array in the bytes. */
export interface ColumnHead {
  name: string;
  dtype: string;
  offset: number;
  length: number;
}

/** How the bytes of `columns` begin: 4 bytes length of this JSON (little-endian), the JSON, padding to 8, then the arrays. */
export interface ColumnsHead {
  events: number;
  edges: number;
  columns: ColumnHead[];
  ids: string[];
  numbers: number[];
}

/** One level of bins: `lanes` rows of `bins` cells, two bytes each (family of most time, density 0-255), at `offset`. */
export interface BinsLevel {
  bins: number;
  offset: number;
}

/** How the bytes of `bins` begin, as with columns. A lane is a group of agents (a role at a depth), or one agent. */
export interface BinsHead {
  lanes: string[];
  members: number[][];
  start: number;
  end: number;
  levels: BinsLevel[];
}

/** An event beside another: what caused it, what it led to. */
export interface Neighbour {
  n: number;
  id: string;
  type: string;
  agent: number;
  edge: string;
}

/** One event, whole. */
export interface EventDetail {
  n: number;
  id: string;
  fields: Record<string, unknown>;
  text: string | null;
  text_size: number;
  is_cut: boolean;
  causes: Neighbour[];
  effects: Neighbour[];
  badge: string | null;
}

/** One event as a line of a transcript. */
export interface TalkRow {
  n: number;
  t: number;
  type: string;
  agent: number;
  to: number;
  tool: string | null;
  text: string;
  text_size: number;
  is_cut: boolean;
  trusted: boolean | null;
  ok: boolean | null;
  tokens: number | null;
  depth: number;
}

/** A window of a transcript: of one agent, a subtree or all. */
export interface Talk {
  total: number;
  first: number;
  rows: TalkRow[];
}

/** A credit method that this trace can answer, or why not. */
export interface MethodInfo {
  id: string;
  about: string;
  unit: string;
  is_additive: boolean;
  refusal: string | null;
  why: string | null;
}

/** What one agent cost and what became of its work. */
export interface WorkRow {
  agent: number;
  name: string;
  spent: string;
  became: string;
  lines: number;
}

/** What each agent cost and what became of its work, as `counterpoint credit` shows it. */
export interface Work {
  rows: WorkRow[];
  headline: string;
  notes: string[];
  why_no_credit: string | null;
}

/** Credit of one thing. */
export interface CreditRow {
  label: string;
  event: number;
  agent: number;
  value: number;
  low: number | null;
  high: number | null;
  excerpt: string;
}

/** What a method says about a trace at a unit. `refusal` says why it says nothing. */
export interface Credit {
  method: string;
  unit: string;
  units: string[];
  rows: CreditRow[];
  by_agent: Record<string, number>;
  total: number | null;
  target: number | null;
  whole: string;
  notes: string[];
  unassigned: number | null;
  is_additive: boolean;
  closes: boolean | null;
  refusal: string | null;
  fix: string | null;
}

/** How a run came out, as somebody said. */
export interface OutcomeInfo {
  channel: string;
  value: number;
  by: string;
  at: number;
  why: string;
}

/** An outcome that the log suggests; it counts only once somebody accepts it. */
export interface ProposalInfo {
  channel: string;
  value: number;
  kind: string;
  says: string;
  event: number;
}

/** What was said about how a run came out, and what its log suggests. */
export interface Outcomes {
  given: OutcomeInfo[];
  proposed: ProposalInfo[];
}

/** Two events side by side. `what`: same, edited, changed, only-a, only-b. */
export interface DiffRow {
  what: string;
  a: number;
  b: number;
  type: string;
  agent: string;
  before: string;
  after: string;
}

/** Two traces, aligned. */
export interface Diff {
  a: string;
  b: string;
  rows: DiffRow[];
  same: number;
  different: number;
  first: number;
  sums: Record<string, (number | null)[]>;
  agents: Record<string, number[]>;
  steered: string[];
}

/** An order that has taken effect on an agent, and the event that says so. */
export interface LiveOrder {
  id: string;
  action: string;
  agent: string;
  event: string;
}

/** A trace that is running, or whose record ends in a call without an answer. */
export interface LiveTrace {
  id: string;
  title: string | null;
  task_id: string;
  agents: number;
  events: number;
  last_t: number;
  silent_s: number;
  open: Record<string, unknown>[];
  is_steerable: boolean;
  names: string[];
  paused: string[];
  stopped: string[];
  orders: LiveOrder[];
}

/** An order that was sent: it acts at the next safe point. */
export interface OrderReceipt {
  id: string;
  action: string;
  agent: string;
  tree: boolean;
  by: string;
}

/** One message of the stream. */
export interface LiveBatch {
  seq: number;
  at: number;
  traces: LiveTrace[];
  events: Record<string, Record<string, unknown>[]>;
}

/** One annotation. */
export interface AnnotationInfo {
  id: string;
  event: number;
  name: string;
  label: string | null;
  score: number | null;
  text: string | null;
  by: string;
  at: number;
  is_model: boolean;
}

/** What is said about a trace, the oldest first. */
export interface AnnotationList {
  given: AnnotationInfo[];
}

/** What recurs, as a line of the board. */
export interface IssueLine {
  id: string;
  kind: string;
  name: string;
  state: string;
  runs: number;
  count: number;
  open: number;
  seen: string;
  tokens: number;
  cost_usd: number | null;
  projects: Record<string, number>;
  trend: number[];
  is_rare: boolean;
  decided: string;
}

/** The board of a store. */
export interface IssueBoard {
  issues: IssueLine[];
  kinds: Record<string, string>;
  runs: number;
  unread: string[];
}

/** One run with an issue. */
export interface IssueRunLine {
  trace_id: string;
  title: string | null;
  project: string | null;
  seen: string;
  count: number;
  open: number;
  events: string[];
  words: string;
}

/** One issue and its runs, the newest first. */
export interface IssuePage {
  issue: IssueLine;
  what: string;
  runs: IssueRunLine[];
  left_out: number;
}

/** A place where a check would have stopped it. */
export interface Gate {
  event: number;
  text: string;
}

/** From content that came from outside to an effect. */
export interface TaintPath {
  source: number;
  sink: number;
  events: number[];
  strength: string;
  rule: string;
  severity: string;
  is_blocked: boolean;
  gate: Gate | null;
}

/** What came from outside and where it went. */
export interface Safety {
  sources: number[];
  tainted: number;
  agents: number[];
  paths: TaintPath[];
  odd: number[];
  notes: string[];
}

/** What several runs have in common. */
export interface RecurringCause {
  words: string;
  who: string;
  runs: number;
  expected: number;
  example: string;
  event: string;
  reason: string;
}

/** The causes that recur, the most frequent first. */
export interface RecurringCauses {
  causes: RecurringCause[];
  judged: number;
  left_out: number;
  unclear: number;
}

/** One signal, in words. */
export interface SuspectReason {
  words: string;
  share: number;
  excerpt: string | null;
}

/** One step that may have decided it. */
export interface SuspectStep {
  event: number;
  step: number;
  agent: string;
  score: number;
  text: string | null;
  reasons: SuspectReason[];
}

/** Something that went wrong. */
export interface FailedStep {
  event: number;
  agent: string;
  what: string;
  reason: string;
  is_mended: boolean;
}

/** The ranking of a run. */
export interface Suspicion {
  suspects: SuspectStep[];
  agents: Record<string, number>;
  sure: string;
  verdict: string;
  why: string;
  shown: number[];
  set: string;
  steps: number;
  notes: string[];
  failed: FailedStep[];
  failed_count: number;
}

/** One thing that could be different. */
export interface TriedChange {
  scope: string;
  kind: string;
  says: string;
  event: number | null;
  gain: number | null;
  low: number | null;
  high: number | null;
  trials: number;
  tokens: number | null;
  verdict: string;
}

/** What could be changed, the best first. */
export interface Suggestions {
  changes: TriedChange[];
  certificates: Record<string, string>;
  trials: number;
  command: string;
  notes: string[];
}

/** Something that was handed over. */
export interface StoryText {
  text: string;
  length: number;
  event: number;
  agent: string;
}

/** One agent's part. */
export interface StoryAgent {
  agent: number;
  name: string;
  given: StoryText | null;
  did: string[];
  gave: StoryText | null;
  spent: string;
  note: string;
}

/** The whole team's. */
export interface Story {
  title: string;
  summary: string;
  agents: StoryAgent[];
  left_out: number;
}

/** A training run in a list. */
export interface RunRow {
  id: string;
  folder: string;
  preset: string | null;
  world: string | null;
  seed: number | null;
  updates: number;
  reward: number | null;
  bound: number | null;
  is_live: boolean;
  written: number;
  is_steered: boolean;
}

/** A value to compare with: the optimum or an upper bound of it, or what a hand-made policy gets on the same tasks. */
export interface Level {
  name: string;
  value: number;
  is_bound: boolean;
}

/** A curve of a run, with a band where there are several seeds. */
export interface Series {
  name: string;
  x: number[];
  y: (number | null)[];
  low: (number | null)[];
  high: (number | null)[];
}

/** A run and its curves. */
export interface Run {
  row: RunRow;
  series: Series[];
  alerts: Alert[];
  samples: string[];
  levels: Level[];
}

/** One side of a comparison. */
export interface CompareRow {
  name: string;
  mean: number;
  low: number | null;
  high: number | null;
  share_of_optimum: number | null;
  seeds: number;
  tokens: number | null;
  agents: number | null;
  calls: number | null;
  spent: number | null;
  steered: number;
}

/** Groups of runs on the same tasks. */
export interface Compare {
  metric: string;
  heading: string;
  rows: CompareRow[];
  differences: Record<string, unknown>[];
  curves: Series[];
  moved: Record<string, unknown>[];
  levels: Level[];
  remarks: string[];
  refusal: string | null;
}

/** A folder of `counterpoint compare methods` in a list. */
export interface RaceRow {
  id: string;
  plan: string;
  suite: string;
  rows: number;
  methods: number;
  worlds: string[];
  is_released: boolean;
}

/** A method minus a baseline, as shares of the bound. */
export interface RaceDifference {
  baseline: string;
  mean: number;
  low: number | null;
  high: number | null;
  p: number;
  p_holm: number;
  verdict: string;
  seeds: number;
}

/** One method in one world. */
export interface RaceLine {
  method: string;
  point: string;
  is_ranked: boolean;
  rank: number;
  rank_low: number;
  rank_high: number;
  seeds: number;
  mean: number;
  low: number | null;
  high: number | null;
  area: number;
  calls: (number | null)[];
  reached: number[];
  cpu_s: number;
  collapsed: number;
  differences: RaceDifference[];
  sees: string;
  families: string[];
  unit: string;
  trains: string[];
  regime: string;
  source: string;
  guessed: string[];
  command: string;
}

/** All methods in one world. */
export interface RaceWorld {
  world: string;
  decision: string;
  bound: number;
  budget: number;
  best_known: number;
  is_screening: boolean;
  rules: Record<string, number>;
  lines: RaceLine[];
  notes: string[];
  curves: Series[];
}

/** Every method side by side, world by world. */
export interface Race {
  id: string;
  plan: string;
  suite: string;
  worlds: RaceWorld[];
}

/** A folder of results. */
export interface BenchResult {
  id: string;
  team: string;
  suite: string;
  digest: string;
  runs: number;
}

/** A table, and a sentence above it. */
export interface BenchTable {
  title: string;
  words: string;
  head: string[];
  rows: string[][];
  right: number[];
  results: string[];
}

/** One look at the bench: the leaderboard, a card, or two results side by side. */
export interface Bench {
  title: string;
  results: BenchResult[];
  tables: BenchTable[];
}
